/* Small things that nobody needs any more. */
#include "base/step.h"
#include "base/util.h"
#include "gc/generations.h"

#include <errno.h>
#include <string.h>
#include <sys/file.h>

static int remove_one(struct gc_run *run, const char *key, const char *why, struct cairn_error *err)
{
    gc_say(run, "delete", key, "%s", why);
    if (run->dry_run)
        return CAIRN_OK;
    struct cairn_error e;
    int rc = backend_remove_one(run->s->backend, run->op, key, &e);
    STEP("gc.leftover-deleted");
    run->changes += !rc;
    return gc_settle(run, rc, &e, err);
}

/* The same, unless it is another object by now than the scan saw. */
static int remove_unchanged(struct gc_run *run, const struct roots_object *o, const char *why,
                            struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    struct backend_stat st;
    struct cairn_error e;
    gc_say(run, "delete", o->key, "%s", why);
    if (run->dry_run)
        return CAIRN_OK;
    int rc = b->ops->stat(b, run->op, o->key, &st, &e);
    if (rc == CAIRN_NOT_FOUND || (!rc && st.mtime_ns != o->mtime_ns))
        return CAIRN_OK;
    if (!rc) {
        rc = backend_remove_one(b, run->op, o->key, &e);
        STEP("gc.leftover-deleted");
        run->changes += !rc;
    }
    return gc_settle(run, rc, &e, err);
}

/* A tombstone whose record is gone, or was published again, is kept for a while: it tells other
 * nodes' sweeps that the record did not just vanish. */
static int sweep_tombs(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->tombs.n; i++) {
        const struct roots_object *t = &r->tombs.list[i];
        if (!roots_find_record(r, t->id) && gc_is_older(run, t->mtime_ns, GC_TOMB_NS))
            rc = remove_unchanged(run, t, "the record was removed long ago", err);
    }
    return rc;
}

/* Whether a writer has the file open: it holds a flock on it as long as it lives. */
static bool is_in_use(struct gc_run *run, const char *key)
{
    struct backend *b = run->s->backend;
    struct cairn_error ignored;
    CLEANUP_FD int fd = -1;
    if (!b->ops->open_fd || b->ops->open_fd(b, run->op, key, &fd, &ignored))
        return false;
    return flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

static int sweep_temps(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->temps.n; i++) {
        const struct roots_object *t = &r->temps.list[i];
        if (gc_is_older(run, t->mtime_ns, run->t.young) && !is_in_use(run, t->key))
            rc = remove_one(run, t->key, "a write that ended long ago left it behind", err);
    }
    return rc;
}

/* Whether it still announces the end of a manifest. One put again since then is young and stays,
 * and its writer waits for this intent to go. */
static bool has_intent_manifest(const struct gc_run *run, const struct roots *r,
                                const struct roots_object *o)
{
    char own[KEY_MAX];
    const struct roots_record *rec = roots_find_record(r, o->id);
    for (size_t i = rec ? rec->first : 0; rec && i < rec->first + rec->n; i++) {
        layout_intent(o->id, r->manifests[i].gen, run->node, own);
        if (strcmp(own, o->key) == 0)
            return !r->manifests[i].committed && !r->manifests[i].pinned &&
                   r->manifests[i].mtime_ns < o->mtime_ns;
    }
    return false;
}

/* This node's intents go when there is nothing to delete any more; other nodes' when those have
 * been away for longer than any of their looks is good for. */
static int sweep_intents(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    size_t n = strlen(run->node);
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->intents.n; i++) {
        const struct roots_object *o = &r->intents.list[i];
        size_t len = strlen(o->key);
        bool own = len > n && strcmp(o->key + len - n, run->node) == 0;
        if (own ? !has_intent_manifest(run, r, o) : gc_is_older(run, o->mtime_ns, GC_TOMB_NS))
            rc = remove_unchanged(run, o, "nothing is left for it to announce", err);
    }
    return rc;
}

/* Something in a record's folder, under the record's lock, as its writer would hold it; and the
 * folder with it if nothing else is there. */
static int remove_locked(struct gc_run *run, const char *id, const char *key, const char *why,
                         struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    int lock = -1;
    struct cairn_error e;
    if (run->dry_run)
        return remove_one(run, key, why, err);
    int rc = b->ops->lock(b, run->op, id, &lock, &e);
    if (rc == CAIRN_BUSY)
        return CAIRN_OK;
    if (rc)
        return gc_settle(run, rc, &e, err);
    rc = remove_one(run, key, why, err);
    b->ops->unlock(b, id, lock);
    return rc;
}

/* A staged meta without a manifest: of a publish that died early. */
static int sweep_staged(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->n_staged; i++) {
        const struct roots_staged *s = &r->staged[i];
        const char *id = r->records[s->record].id;
        char key[KEY_MAX];
        layout_staged(id, s->gen, key);
        if (gc_is_older(run, s->mtime_ns, run->t.young))
            rc = remove_locked(run, id, key, "of a publish that died", err);
    }
    return rc;
}

/* A trace whose generation is gone: it was put by somebody who still had that open. Should the
 * generation come back, it has lost a hint. */
static int sweep_traces(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->traces.n; i++) {
        const struct roots_object *t = &r->traces.list[i];
        if (gc_is_older(run, t->mtime_ns, run->t.young))
            rc = remove_locked(run, t->id, t->key, "its generation is gone", err);
    }
    return rc;
}

/* One that was put again since it was looked at has a holder after all. */
static int sweep_pins(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->lost_pins.n; i++)
        rc = remove_unchanged(run, &r->lost_pins.list[i], "its holder is gone", err);
    return rc;
}

int leftovers_sweep(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    gc_phase(run, "leftovers");
    int rc = sweep_pins(run, r, err);
    if (!rc)
        rc = sweep_tombs(run, r, err);
    if (!rc)
        rc = sweep_staged(run, r, err);
    if (!rc)
        rc = sweep_traces(run, r, err);
    if (!rc)
        rc = sweep_temps(run, r, err);
    return rc ? rc : sweep_intents(run, r, err);
}
