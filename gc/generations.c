#include "gc/generations.h"

#include "base/clock.h"
#include "base/step.h"
#include "gc/plan.h"

#include <string.h>

/* From the last look to the delete, where nothing can lock. */
#define LOOK_MAX_NS (60 * NS_PER_S)

/* One generation that is to go. */
struct due {
    struct gc_run *run;
    const struct roots_record *rec;
    const struct roots_manifest *m;
    enum plan_gen kind;
};

/* The generation that meta.json names; exists: there is one. st: of the object that was read. */
static int look_at_meta(struct gc_run *run, const char *id, bool *exists, char gen[GEN_TEXT],
                        struct backend_stat *st, struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char key[KEY_MAX];
    struct cairn_error e;
    layout_meta(id, key);
    int rc = b->ops->get(b, run->op, key, META_MAX, &meta, st, &e);
    *exists = rc == CAIRN_OK;
    if (!rc)
        rc = gen_of_meta(meta.data, meta.len, gen, &e);
    return rc && rc != CAIRN_NOT_FOUND ? error_pass(err, &e) : CAIRN_OK;
}

/* Look again: manifest and meta.json are the very objects that the scan decided about. A generation
 * that was committed and superseded since then has readers within their grace. */
static int still_due(const struct due *d, bool *yes, struct cairn_error *err)
{
    struct gc_run *run = d->run;
    struct backend *b = run->s->backend;
    char key[KEY_MAX], gen[GEN_TEXT];
    struct backend_stat st;
    struct cairn_error e;
    bool exists;
    *yes = false;
    layout_export(d->rec->id, d->m->gen, key);
    int rc = b->ops->stat(b, run->op, key, &st, &e);
    if (rc == CAIRN_NOT_FOUND)
        return CAIRN_OK;
    if (rc)
        return error_pass(err, &e);
    if (st.mtime_ns != d->m->mtime_ns || st.size != d->m->size)
        return CAIRN_OK;
    rc = look_at_meta(run, d->rec->id, &exists, gen, &st, err);
    if (rc)
        return rc;
    *yes = exists ? d->rec->has_meta && st.mtime_ns == d->rec->meta_ns &&
                        strcmp(gen, d->rec->gen) == 0 && strcmp(gen, d->m->gen) != 0
                  : !d->rec->has_meta;
    return CAIRN_OK;
}

static int fence(const struct due *d, struct cairn_error *err)
{
    char key[KEY_MAX];
    layout_staged(d->rec->id, d->m->gen, key);
    return backend_remove_one(d->run->s->backend, d->run->op, key, err);
}

static int remove_manifest(const struct due *d, struct cairn_error *err)
{
    struct gc_run *run = d->run;
    char key[KEY_MAX], trace[KEY_MAX];
    const char *const keys[] = {key, trace};
    layout_export(d->rec->id, d->m->gen, key);
    layout_trace(d->rec->id, d->m->gen, trace);
    struct backend *b = run->s->backend;
    int rc = b->ops->remove(b, run->op, keys, d->m->traced ? 2 : 1, NULL, err);
    STEP("gc.generation-deleted");
    if (rc)
        return rc;
    run->changes++;
    run->result->generations_deleted++;
    run->result->bytes_freed += d->m->size;
    return CAIRN_OK;
}

/* With the record's lock: no writer of it is alive outside it. */
static int delete_locked(const struct due *d, struct cairn_error *err)
{
    bool yes;
    int rc = still_due(d, &yes, err);
    if (rc || !yes)
        return rc;
    if (d->kind == PLAN_GEN_UNCOMMITTED) {
        rc = fence(d, err);
        STEP("gc.generation-fenced");
        if (!rc)
            rc = still_due(d, &yes, err);
    }
    return rc || !yes ? rc : remove_manifest(d, err);
}

/* Where nothing can lock. A writer looks for intents after its manifest is visible and commits
 * within COMMIT_CHECK_MAX_NS of that look; so once the intent has been visible for longer than
 * that, whoever did not see it has committed or never will, and the next look tells. */
static int delete_announced(const struct due *d, struct cairn_error *err)
{
    struct gc_run *run = d->run;
    struct backend *b = run->s->backend;
    char key[KEY_MAX];
    bool yes;
    layout_intent(d->rec->id, d->m->gen, run->node, key);
    if (!d->m->intent_ns) {
        int rc = still_due(d, &yes, err);
        if (!rc && yes)
            rc = b->ops->put(b, run->op, key, "", 0, err);
        STEP("gc.intent");
        return rc;
    }
    if (!gc_is_older(run, d->m->intent_ns, run->t.intent))
        return CAIRN_OK;
    int64_t looked = clock_boottime();
    int rc = still_due(d, &yes, err);
    if (!rc && yes && d->kind == PLAN_GEN_UNCOMMITTED)
        rc = fence(d, err);
    if (rc)
        return rc;
    /* A process that stood still since it looked knows nothing any more. */
    if (clock_boottime() - looked > LOOK_MAX_NS)
        return CAIRN_OK;
    if (yes)
        rc = remove_manifest(d, err);
    return rc ? rc : backend_remove_one(b, run->op, key, err);
}

static int delete_one(const struct due *d, struct cairn_error *err)
{
    struct gc_run *run = d->run;
    struct backend *b = run->s->backend;
    int lock = -1;
    struct cairn_error e;
    int rc = b->ops->lock(b, run->op, d->rec->id, &lock, &e);
    if (rc == CAIRN_BUSY)
        return CAIRN_OK;
    if (rc)
        return error_pass(err, &e);
    rc = lock >= 0 ? delete_locked(d, err) : delete_announced(d, err);
    b->ops->unlock(b, d->rec->id, lock);
    return rc;
}

static int sweep_one(struct gc_run *run, const struct roots_record *rec,
                     const struct roots_manifest *m, struct cairn_error *err)
{
    enum plan_gen kind = plan_generation(rec, m);
    if (kind == PLAN_GEN_KEEP)
        return CAIRN_OK;
    int64_t since = m->mtime_ns;
    if (kind == PLAN_GEN_SUPERSEDED && rec->meta_ns > run->now) {
        since = run->now; /* the clock went back: nothing to remember */
    } else if (kind == PLAN_GEN_SUPERSEDED) {
        since = sweep_db_superseded(run->db, rec->id, m->gen, m->mtime_ns, run->now);
        since = rec->meta_ns < since ? rec->meta_ns : since;
    }
    if (!plan_generation_due(run, kind, m, since))
        return CAIRN_OK;
    char key[KEY_MAX];
    layout_export(rec->id, m->gen, key);
    gc_say(run, "delete", key, "%s %lld s ago",
           kind == PLAN_GEN_SUPERSEDED ? "superseded" : "put and never committed",
           (long long)((run->now - since) / NS_PER_S));
    if (run->dry_run) {
        run->result->generations_deleted++;
        run->result->bytes_freed += m->size;
        return CAIRN_OK;
    }
    struct due d = {run, rec, m, kind};
    struct cairn_error e;
    int rc = delete_one(&d, &e);
    if (rc)
        error_wrap(&e, "deleting %s", key);
    gc_progress(run, 1, 0);
    return gc_settle(run, rc, &e, err);
}

int generations_sweep(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    gc_phase(run, "generations");
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->n_manifests; i++) {
        rc = op_check(run->op, "gc", err);
        if (!rc)
            rc = sweep_one(run, &r->records[r->manifests[i].record], &r->manifests[i], err);
    }
    return rc;
}
