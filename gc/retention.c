/* Records whose time is over, and removals that were cut short. */
#include "base/clock.h"
#include "base/step.h"
#include "gc/generations.h"
#include "store/hold.h"
#include "store/remove.h"

#include <string.h>

/* Looked at again under the lock: the commit is the one that was too old, and nobody holds it. */
static int expire(struct gc_run *run, const struct roots *r, const struct roots_record *rec,
                  struct cairn_error *err)
{
    (void)r;
    struct backend *b = run->s->backend;
    char key[KEY_MAX];
    struct backend_stat st;
    bool held;
    struct cairn_error e;
    layout_meta(rec->id, key);
    int rc = b->ops->stat(b, run->op, key, &st, &e);
    if (rc == CAIRN_NOT_FOUND)
        return CAIRN_OK;
    if (rc)
        return error_pass(err, &e);
    if (st.mtime_ns != rec->meta_ns)
        return CAIRN_OK;
    rc = hold_exists(run->s, run->op, rec->id, &held, err);
    if (rc || held)
        return rc;
    rc = remove_record(run->s, run->op, rec->id, err);
    if (rc)
        return rc;
    run->changes++;
    run->result->records_expired++;
    return CAIRN_OK;
}

static int finish_removal(struct gc_run *run, const struct roots *r, const struct roots_record *rec,
                          struct cairn_error *err)
{
    (void)r;
    gc_say(run, "delete", rec->id, "its removal was cut short");
    if (run->dry_run)
        return CAIRN_OK;
    int rc = remove_finish(run->s, run->op, rec->id, err);
    STEP("gc.removal-finished");
    run->changes += !rc;
    return rc;
}

typedef int record_fn(struct gc_run *run, const struct roots *r, const struct roots_record *rec,
                      struct cairn_error *err);

static int locked(struct gc_run *run, const struct roots *r, const struct roots_record *rec,
                  record_fn *fn, struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    int lock = -1;
    struct cairn_error e;
    int rc = b->ops->lock(b, run->op, rec->id, &lock, &e);
    if (rc == CAIRN_BUSY)
        return CAIRN_OK;
    if (!rc) {
        rc = fn(run, r, rec, &e);
        b->ops->unlock(b, rec->id, lock);
    }
    if (rc)
        error_wrap(&e, "deleting %s", rec->id);
    return gc_settle(run, rc, &e, err);
}

static int sweep_one(struct gc_run *run, const struct roots *r, const struct roots_record *rec,
                     struct cairn_error *err)
{
    if (rec->unfinished)
        return locked(run, r, rec, finish_removal, err);
    if (rec->tomb || !run->t.ttl || !rec->has_meta || rec->held || rec->pinned ||
        !gc_is_older(run, rec->meta_ns, run->t.ttl))
        return CAIRN_OK;
    gc_say(run, "delete", rec->id, "committed %lld s ago",
           (long long)((run->now - rec->meta_ns) / NS_PER_S));
    if (run->dry_run) {
        run->result->records_expired++;
        return CAIRN_OK;
    }
    return locked(run, r, rec, expire, err);
}

int retention_sweep(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    gc_phase(run, "retention");
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->n_records; i++) {
        rc = op_check(run->op, "gc", err);
        if (!rc)
            rc = sweep_one(run, r, &r->records[i], err);
    }
    return rc;
}
