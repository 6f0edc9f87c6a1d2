#include "fuse/trace_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "store/prefetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Fetching ahead -------------------------------------------------------------------------- */

/* The generation's own trace (then *own says that it is there), or its parent's, by the paths. *out
 * stays empty where there is neither. */
static int find_trace(struct tracer *t, const struct cairn_op *op, const struct generation *g,
                      enum own *own, struct trace *out, struct cairn_error *err)
{
    struct cairn_store *s = t->m->store;
    const struct manifest *m = atomic_load(&g->record->manifest);
    const struct manifest_info *info = manifest_info(m);
    int rc = trace_get(s, op, g->id, g->gen, m, out, err);
    *own = !rc && out->n ? OWN_THERE : OWN_NONE;
    if (rc == CAIRN_CORRUPT)
        log_line(LOG_LEVEL_DEBUG, "mount: a trace is passed over: %s", err->message);
    if (rc && rc != CAIRN_NOT_FOUND && rc != CAIRN_CORRUPT)
        return rc;
    if (*own == OWN_THERE || !info->parent_id[0])
        return CAIRN_OK;
    trace_release(out);
    rc = trace_get(s, op, info->parent_id, info->parent_gen, m, out, err);
    return rc == CAIRN_NOT_FOUND || rc == CAIRN_CORRUPT ? CAIRN_OK : rc;
}

int trace_fetch(struct tracer *t, struct generation *g, const struct cairn_op *op,
                struct cairn_error *err)
{
    CLEANUP_TRACE struct trace trace = {0};
    struct prefetch_result result = {0};
    enum own own;
    int rc = find_trace(t, op, g, &own, &trace, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&t->lock);
    g->traced->own = own;
    g->traced->chunks = trace.chunks;
    g->traced->known_ns = clock_monotonic();
    pthread_mutex_unlock(&t->lock);
    rc = prefetch_run(g->record, op, &trace, &result, err);
    atomic_fetch_add(&t->m->n_prefetched_bytes, result.bytes);
    if (trace.n)
        log_line(LOG_LEVEL_DEBUG, "mount: %s, generation %s: %llu bytes fetched ahead%s", g->id,
                 g->gen, (unsigned long long)result.bytes,
                 result.full ? ", the cache is full" : "");
    if (rc)
        return rc;
    pthread_mutex_lock(&t->lock);
    g->traced->fetched = true;
    pthread_mutex_unlock(&t->lock);
    return CAIRN_OK;
}

/* ---- Keeping --------------------------------------------------------------------------------- */

static void add_all(struct touches *set, const struct manifest *m, const struct trace *t)
{
    for (size_t i = 0; i < t->n; i++)
        touches_add(set, m, &t->runs[i], false);
}

/* What is to be put where base is there already: base, then what it lacks. if_lacking: *out stays
 * empty if base has all that a trace may have, or readers had to wait for little else: at most an
 * eighth of what it has. */
static int extend(const struct manifest *m, const struct trace *base, const struct touched *touched,
                  bool if_lacking, struct trace *out, struct cairn_error *err)
{
    struct touches *set = NULL;
    struct touched both;
    int rc = touches_new(m, &set, err);
    if (rc)
        return rc;
    touches_begin(set);
    add_all(set, m, base);
    uint64_t had = touches_count(set);
    add_all(set, m, &touched->late);
    bool lacks = (touches_count(set) - had) * 8 > had;
    add_all(set, m, &touched->all);
    touches_end(set, &both);
    if ((lacks && base->chunks < TRACE_CHUNKS_MAX) || !if_lacking) {
        *out = both.all;
        both.all = (struct trace){0};
    }
    touched_release(&both);
    touches_free(set);
    return CAIRN_OK;
}

/* What is to be put, if anything. */
static int what_to_put(struct tracer *t, const struct cairn_op *op, struct job *j,
                       struct trace *out, struct cairn_error *err)
{
    const struct manifest *m = atomic_load(&j->g->record->manifest);
    CLEANUP_TRACE struct trace base = {0};
    enum own own;
    pthread_mutex_lock(&t->lock);
    own = j->g->traced->own;
    /* Who forks often has the parent's pages in the kernel, which then asks for few of them: its
     * order counts on. */
    bool look = own != OWN_NONE || j->g->traced->chunks / 2 > j->touched.all.chunks;
    pthread_mutex_unlock(&t->lock);
    int rc = look ? find_trace(t, op, j->g, &own, &base, err) : CAIRN_OK;
    if (rc)
        return rc;
    if (own == OWN_THERE || base.chunks / 2 > j->touched.all.chunks)
        return extend(m, &base, &j->touched, own == OWN_THERE, out, err);
    *out = j->touched.all;
    j->touched.all = (struct trace){0};
    return CAIRN_OK;
}

/* One of a generation that was removed while it was open would lie about until a sweep. */
static int put(struct cairn_store *s, const struct cairn_op *op, const struct manifest *m,
               const struct trace *trace, struct cairn_error *err)
{
    const struct manifest_info *info = manifest_info(m);
    char key[KEY_MAX];
    bool exists;
    layout_export(info->id, info->gen, key);
    int rc = backend_exists(s->backend, op, key, &exists, err);
    if (!rc && !exists)
        rc = error_set(err, CAIRN_NOT_FOUND, ENOENT, "%s is gone", key);
    return rc ? rc : trace_put(s, op, m, trace, err);
}

int trace_keep(struct tracer *t, struct job *j, const struct cairn_op *op, struct cairn_error *err)
{
    CLEANUP_TRACE struct trace trace = {0};
    struct traced *d = j->g->traced;
    int rc = what_to_put(t, op, j, &trace, err);
    if (rc || !trace.n)
        return rc;
    rc = put(t->m->store, op, atomic_load(&j->g->record->manifest), &trace, err);
    pthread_mutex_lock(&t->lock);
    t->refused_ns = rc == CAIRN_PERMANENT ? clock_monotonic() : 0;
    if (!rc) {
        d->own = OWN_THERE;
        d->chunks = trace.chunks;
        d->known_ns = clock_monotonic();
    }
    pthread_mutex_unlock(&t->lock);
    if (rc)
        return rc;
    atomic_fetch_add(&t->m->n_traces, 1);
    log_line(LOG_LEVEL_DEBUG, "mount: %s, generation %s: a trace of %u chunks is kept", j->g->id,
             j->g->gen, trace.chunks);
    return CAIRN_OK;
}
