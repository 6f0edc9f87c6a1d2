#include "gc/repack.h"

#include "base/clock.h"
#include "base/step.h"
#include "base/util.h"
#include "gc/plan.h"
#include "store/commit.h"
#include "store/pin.h"
#include "store/relocate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- What there is to do ---- */

struct work {
    struct gc_run *run;
    const struct roots *r;
    struct pack_set from; /* packs to move out of */
    uint32_t *left;       /* by pack number: committed manifests that still name it */
    bool *stuck;          /* by manifest number: it cannot be moved, as is remembered */
    struct mover *mover;
};

static bool names_any(const struct work *w, const struct roots_manifest *m)
{
    for (uint32_t u = 0; u < m->n_uses; u++)
        if (w->left[w->r->uses[m->first_use + u]])
            return true;
    return false;
}

/* A manifest whose chunks could not be read is not copied for at each sweep anew, which would make
 * garbage of what can be read of it; what was wrong is told again. */
static int find_stuck(struct work *w, const struct roots_manifest *m, bool *stuck,
                      struct cairn_error *err)
{
    char key[KEY_MAX];
    struct backend_stat st = {.size = m->size, .mtime_ns = m->mtime_ns};
    struct cairn_error why;
    layout_export(w->r->records[m->record].id, m->gen, key);
    *stuck = sweep_db_find_stuck(w->run->db, key, &st, w->run->now, &why);
    return *stuck ? gc_settle(w->run, why.error_class, &why, err) : CAIRN_OK;
}

/* wanted: by pack number. todo: how many manifests can be moved out of it. */
static int find_todo(struct work *w, const bool *wanted, uint32_t *todo, struct cairn_error *err)
{
    const struct roots *r = w->r;
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < r->n_manifests; i++) {
        const struct roots_manifest *m = &r->manifests[i];
        const uint32_t *uses = r->uses + m->first_use;
        bool any = false;
        for (uint32_t u = 0; m->committed && u < m->n_uses; u++)
            any |= wanted[uses[u]];
        if (any)
            rc = find_stuck(w, m, &w->stuck[i], err);
        for (uint32_t u = 0; any && !w->stuck[i] && u < m->n_uses; u++)
            todo[uses[u]]++;
    }
    return rc;
}

static int choose(struct work *w, struct cairn_error *err)
{
    const struct roots *r = w->r;
    size_t n = r->n_packs ? r->n_packs : 1;
    uint64_t bytes = 0;
    CLEANUP_FREE bool *wanted = calloc(n, sizeof(*wanted));
    CLEANUP_FREE uint32_t *todo = calloc(n, sizeof(*todo));
    if (!wanted || !todo)
        return error_oom(err, "repacking");
    for (size_t i = 0; i < r->n_packs; i++)
        wanted[i] = plan_pack(w->run, &r->packs[i], NULL) == PLAN_PACK_REPACK;
    int rc = find_todo(w, wanted, todo, err);
    for (size_t i = 0; !rc && i < r->n_packs; i++) {
        wanted[i] = wanted[i] && todo[i] && bytes < REPACK_BYTES_MAX;
        if (!wanted[i])
            continue;
        bytes += roots_live(&r->packs[i]);
        rc = pack_set_add(&w->from, r->packs[i].id, err);
    }
    for (size_t i = 0; !rc && i < r->n_manifests; i++)
        for (uint32_t u = 0; r->manifests[i].committed && u < r->manifests[i].n_uses; u++) {
            uint32_t pack = r->uses[r->manifests[i].first_use + u];
            w->left[pack] += wanted[pack];
        }
    return rc;
}

/* ---- Copying ---- */

/* Whether another try cannot end in another way, unless somebody repairs something. */
static bool is_lasting(const struct cairn_error *e)
{
    return e->error_class == CAIRN_CORRUPT || e->error_class == CAIRN_NOT_FOUND ||
           (e->error_class == CAIRN_PERMANENT && e->sys_errno == EIO);
}

static void remember_stuck(struct work *w, const struct roots_manifest *m,
                           const struct cairn_error *e)
{
    char key[KEY_MAX];
    struct backend_stat st = {.size = m->size, .mtime_ns = m->mtime_ns};
    layout_export(w->r->records[m->record].id, m->gen, key);
    sweep_db_put_stuck(w->run->db, key, &st, w->run->now, e);
}

/* The chunks that a manifest needs of the packs. One whose chunks cannot be read is left alone, and
 * so are its packs. */
static int copy_for(struct work *w, const struct roots_manifest *m, struct cairn_error *err)
{
    struct gc_run *run = w->run;
    const char *id = w->r->records[m->record].id;
    CLEANUP_MANIFEST struct manifest *man = NULL;
    struct cairn_error e;
    uint64_t before = mover_bytes(w->mover);
    int rc = store_load_manifest(run->s, run->op, id, m->gen, &man, &e);
    if (rc == CAIRN_NOT_FOUND)
        return CAIRN_OK;
    if (!rc)
        rc = mover_add(w->mover, man, &e);
    gc_progress(run, 1, mover_bytes(w->mover) - before);
    if (rc)
        error_wrap(&e, "repacking for %s", id);
    if (rc && is_lasting(&e))
        remember_stuck(w, m, &e);
    return gc_settle(run, rc, &e, err);
}

/* ---- Replacing ---- */

static int fresh_packs(const struct manifest *was, const struct manifest *is, struct pin *pin,
                       struct cairn_error *err)
{
    CLEANUP_PACK_SET struct pack_set old = {0};
    int rc = CAIRN_OK;
    for (uint32_t i = 0; !rc && i < manifest_info(was)->n_packs; i++)
        rc = pack_set_add(&old, manifest_pack(was, i), err);
    for (uint32_t i = 0; !rc && i < manifest_info(is)->n_packs; i++)
        if (!pack_set_has(&old, manifest_pack(is, i)))
            rc = pack_set_add(&pin->packs, manifest_pack(is, i), err);
    return rc;
}

/* Whether the manifest is what it was and the committed one, and the pin is still there. */
static int unchanged(struct gc_run *run, const char *id, const struct manifest *was,
                     const struct pin *pin, bool *same, struct cairn_error *err)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    CLEANUP_MANIFEST struct manifest *now = NULL;
    char gen[GEN_TEXT];
    struct cairn_error e;
    *same = false;
    int rc = store_get_meta(run->s, run->op, id, &meta, gen, &e);
    if (!rc && strcmp(gen, manifest_info(was)->gen) != 0)
        return CAIRN_OK;
    if (!rc)
        rc = store_load_manifest(run->s, run->op, id, gen, &now, &e);
    if (rc == CAIRN_NOT_FOUND)
        return CAIRN_OK;
    if (rc)
        return error_pass(err, &e);
    size_t a, b;
    const uint8_t *x = manifest_bytes(was, &a), *y = manifest_bytes(now, &b);
    if (a != b || memcmp(x, y, a) != 0)
        return CAIRN_OK;
    return backend_exists(run->s->backend, run->op, pin->key, same, err);
}

static int put_manifest(struct gc_run *run, const struct manifest *m, struct cairn_error *err)
{
    struct backend *b = run->s->backend;
    char key[KEY_MAX];
    size_t len;
    const uint8_t *data = manifest_bytes(m, &len);
    layout_export(manifest_info(m)->id, manifest_info(m)->gen, key);
    return b->ops->put(b, run->op, key, data, len, err);
}

/* With the pin stored. *tried: the new manifest was sent; *replaced: it is at its key. */
static int replace_pinned(struct work *w, const struct manifest *was, const struct manifest *is,
                          const struct pin *pin, bool *tried, bool *replaced,
                          struct cairn_error *err)
{
    struct gc_run *run = w->run;
    CLEANUP_PACK_SET struct pack_set bad = {0};
    bool same;
    int64_t checked = clock_boottime();
    int rc = commit_check_packs(run->s, run->op, is, &bad, err);
    STEP("gc.repack-checked");
    /* Another pack of it may be closed as well, but the fresh ones are what is new here. */
    for (size_t i = 0; !rc && i < bad.n; i++)
        if (pack_set_has(&pin->packs, bad.packs[i]))
            return CAIRN_OK;
    if (!rc)
        rc = unchanged(run, manifest_info(was)->id, was, pin, &same, err);
    if (rc || !same || clock_boottime() - checked > COMMIT_CHECK_MAX_NS)
        return rc;
    *tried = true;
    rc = put_manifest(run, is, err);
    STEP("gc.repack-replaced");
    *replaced = !rc;
    return rc;
}

static int replace_locked(struct work *w, const char *id, const char *gen, bool *replaced,
                          struct cairn_error *err)
{
    struct gc_run *run = w->run;
    CLEANUP_MANIFEST struct manifest *was = NULL, *is = NULL;
    CLEANUP_PIN struct pin pin = {0};
    struct cairn_error e;
    int rc = store_load_manifest(run->s, run->op, id, gen, &was, &e);
    if (!rc)
        rc = mover_apply(w->mover, was, &is, &e);
    /* Gone, or another one than was copied for: next time. */
    if (rc == CAIRN_NOT_FOUND || (rc == CAIRN_TRANSIENT && e.sys_errno == EAGAIN))
        return CAIRN_OK;
    if (rc)
        return error_pass(err, &e);
    rc = pin_init(&pin, run->node, id, gen, err);
    if (!rc)
        rc = fresh_packs(was, is, &pin, err);
    if (!rc)
        rc = pin_put(run->s, run->op, &pin, err);
    STEP("gc.repack-pinned");
    if (rc)
        return rc;
    bool tried = false;
    rc = replace_pinned(w, was, is, &pin, &tried, replaced, err);
    /* Where the new manifest may not be seen by everybody yet, or may still arrive after its answer
     * got lost, the pin stays until it has lost its holder. */
    if (!tried || !run->t.visibility) {
        struct cairn_error x;
        int rm = pin_remove(run->s, run->op, &pin, &x);
        STEP("gc.repack-unpinned");
        if (rm && !rc)
            rc = error_pass(err, &x);
    }
    return rc;
}

static int replace(struct work *w, const struct roots_manifest *m, struct cairn_error *err)
{
    struct gc_run *run = w->run;
    struct backend *b = run->s->backend;
    const char *id = w->r->records[m->record].id;
    int lock = -1;
    bool replaced = false;
    struct cairn_error e;
    int rc = b->ops->lock(b, run->op, id, &lock, &e);
    if (rc == CAIRN_BUSY)
        return CAIRN_OK;
    if (!rc) {
        rc = replace_locked(w, id, m->gen, &replaced, &e);
        b->ops->unlock(b, id, lock);
    }
    if (rc)
        error_wrap(&e, "repacking for %s", id);
    for (uint32_t u = 0; replaced && u < m->n_uses; u++) {
        uint32_t pack = w->r->uses[m->first_use + u];
        if (w->left[pack] && --w->left[pack] == 0)
            run->result->packs_repacked++;
    }
    run->changes += replaced;
    return gc_settle(run, rc, &e, err);
}

static int each_manifest(struct work *w,
                         int (*fn)(struct work *, const struct roots_manifest *,
                                   struct cairn_error *),
                         struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < w->r->n_manifests; i++) {
        const struct roots_manifest *m = &w->r->manifests[i];
        rc = op_check(w->run->op, "gc", err);
        if (!rc && m->committed && !w->stuck[i] && names_any(w, m))
            rc = fn(w, m, err);
    }
    return rc;
}

static int say(struct work *w)
{
    for (size_t i = 0; i < w->r->n_packs; i++) {
        char key[KEY_MAX];
        if (!w->left[i])
            continue;
        layout_pack(w->r->packs[i].id, key);
        gc_say(w->run, "repack", key, "%u manifest(s) need parts of it", w->left[i]);
        w->run->result->packs_repacked += w->run->dry_run;
    }
    return CAIRN_OK;
}

static int move(struct work *w, struct cairn_error *err)
{
    struct gc_run *run = w->run;
    struct cairn_error e;
    int rc = mover_new(run->s, run->op, &w->from, &w->mover, err);
    if (!rc)
        rc = each_manifest(w, copy_for, err);
    if (rc)
        return rc;
    rc = mover_finish(w->mover, &e);
    STEP("gc.repack-copied");
    if (rc) {
        error_wrap(&e, "repacking");
        return gc_settle(run, rc, &e, err);
    }
    return each_manifest(w, replace, err);
}

int repack_run(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    if (!run->repack)
        return CAIRN_OK;
    gc_phase(run, "repack");
    struct work w = {.run = run, .r = r};
    w.left = calloc(r->n_packs ? r->n_packs : 1, sizeof(*w.left));
    w.stuck = calloc(r->n_manifests ? r->n_manifests : 1, sizeof(*w.stuck));
    int rc = w.left && w.stuck ? choose(&w, err) : error_oom(err, "repacking");
    if (!rc && w.from.n) {
        rc = say(&w);
        if (!rc && !run->dry_run)
            rc = move(&w, err);
    }
    mover_free(w.mover);
    pack_set_release(&w.from);
    free(w.left);
    free(w.stuck);
    return rc;
}
