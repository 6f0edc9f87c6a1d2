#include "gc/clock.h"

#include "base/step.h"
#include "base/util.h"

#include <sys/stat.h>

int gc_clock_probe(const struct gc_run *run, int64_t *now, struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    struct backend_stat st;
    /* Empty: on a full disk an object without bytes can mostly still be made. */
    int rc = b->ops->put(b, run->op, LAYOUT_CLOCK, "", 0, err);
    STEP("gc.clock");
    if (!rc)
        rc = b->ops->stat(b, run->op, LAYOUT_CLOCK, &st, err);
    if (rc)
        return error_wrap(err, "telling the store's time");
    *now = st.mtime_ns;
    return CAIRN_OK;
}

static int later(void *ctx, const struct backend_entry *e, const struct layout_key *k,
                 struct cairn_error *err)
{
    (void)err;
    int64_t *now = ctx;
    if (k->kind != LAYOUT_KIND_UNKNOWN && e->stat.mtime_ns > *now)
        *now = e->stat.mtime_ns;
    return CAIRN_OK;
}

/* Where objects are files, the time of one that is there can be set to now without any space. The
 * one of format.json means nothing. */
static bool touch(const struct gc_run *run, int64_t *now)
{
    static const char *const keys[] = {LAYOUT_CLOCK, LAYOUT_FORMAT};
    struct backend *b = run->s->backend;
    for (size_t i = 0; b->ops->open_fd && i < ARRAY_SIZE(keys); i++) {
        CLEANUP_FD int fd = -1;
        struct backend_stat st;
        struct cairn_error ignored;
        if (b->ops->open_fd(b, run->op, keys[i], &fd, &ignored) || futimens(fd, NULL) != 0 ||
            b->ops->stat(b, run->op, keys[i], &st, &ignored))
            continue;
        *now = st.mtime_ns;
        return true;
    }
    return false;
}

int gc_clock_bound(const struct gc_run *run, int64_t *now, struct cairn_error *err)
{
    static const char *const prefixes[] = {LAYOUT_RECORDS, LAYOUT_PACKS, LAYOUT_PINS, "gc/",
                                           LAYOUT_TMP};
    *now = 0;
    int rc = CAIRN_OK;
    if (touch(run, now))
        return CAIRN_OK;
    for (size_t i = 0; !rc && i < ARRAY_SIZE(prefixes); i++)
        rc = gc_each(run, prefixes[i], later, now, err);
    return rc;
}
