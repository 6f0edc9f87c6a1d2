#include "gc/run.h"

#include "base/clock.h"
#include "base/log.h"
#include "store/commit.h"
#include "store/listing.h"

#include <stdio.h>

#define GRACE_S      3600
#define VISIBILITY_S 900
#define YOUNG_S      86400
#define MARGIN_S     1800

static int64_t or_default(int64_t ns, int64_t seconds)
{
    return ns < 0 ? seconds * NS_PER_S : ns;
}

void gc_times_of(const struct cairn_gc_config *c, bool local, struct gc_times *out)
{
    *out = (struct gc_times){
        .grace = or_default(c->grace_ns, GRACE_S),
        .visibility = or_default(c->visibility_ns, local ? 0 : VISIBILITY_S),
        .young = or_default(c->young_ns, YOUNG_S),
        .ttl = or_default(c->ttl_ns, 0),
    };
    out->dead = clock_add(out->grace, or_default(c->dead_margin_ns, MARGIN_S));
    out->intent = clock_add(out->visibility, COMMIT_CHECK_MAX_NS);
    out->pin = clock_add(out->grace, out->grace);
}

bool gc_is_older(const struct gc_run *run, int64_t a, int64_t than)
{
    return a > 0 && a <= run->now && run->now - a >= than;
}

void gc_phase(struct gc_run *run, const char *phase)
{
    run->result->phase = phase;
    if (run->options && run->options->progress)
        run->options->progress(run->options->ctx, run->result);
}

void gc_progress(struct gc_run *run, uint64_t objects, uint64_t bytes)
{
    run->result->objects += objects;
    run->result->bytes += bytes;
    if (run->options && run->options->progress)
        run->options->progress(run->options->ctx, run->result);
}

void gc_say(const struct gc_run *run, const char *verb, const char *object, const char *fmt, ...)
{
    char why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    log_line(LOG_LEVEL_DEBUG, "gc: %s%s %s: %s", run->dry_run ? "would " : "", verb, object, why);
    if (run->options && run->options->action)
        run->options->action(run->options->ctx, verb, object, why);
}

int gc_settle(struct gc_run *run, int rc, const struct cairn_error *e, struct cairn_error *err)
{
    if (!rc)
        return CAIRN_OK;
    if (rc == CAIRN_TIMEOUT || rc == CAIRN_CANCELLED || rc == CAIRN_INTERNAL)
        return error_pass(err, e);
    log_line(LOG_LEVEL_WARNING, "gc: %s", e->message);
    run->result->failed++;
    if (!run->late_rc) {
        run->late_rc = rc;
        run->late = *e;
    }
    return CAIRN_OK;
}

int gc_each(const struct gc_run *run, const char *prefix, gc_entry_fn *fn, void *ctx,
            struct cairn_error *err)
{
    CLEANUP_LISTING struct listing l;
    int rc = listing_open(&l, run->s->backend, run->op, prefix, "", err);
    while (listing_next(&l, &rc, err))
        rc = fn(ctx, &l.entry, &l.key, err);
    return rc ? error_wrap(err, "listing %s", prefix) : CAIRN_OK;
}
