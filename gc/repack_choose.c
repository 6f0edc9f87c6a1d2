/* Which packs are worth repacking. */
#include "base/util.h"
#include "gc/packs.h"
#include "gc/plan.h"
#include "gc/repack.h"
#include "store/manifest.h"
#include "store/seen.h"

#include <errno.h>
#include <stdlib.h>

/* Packs that are chosen by one sweep, at most. */
#define CHOOSE_MAX 64
/* Chunks that are counted exactly in one sweep, which bounds its memory (32 MiB). */
#define COUNT_MAX ((size_t)1 << 20)

/* Exact counts of live bytes, by pack number. */
struct counts {
    struct gc_run *run;
    const struct roots *r;
    uint64_t *live; /* of packs that wanted is set for */
    bool *wanted;
    struct seen seen;
};

static int count_manifest(struct counts *c, const struct roots_manifest *m, struct cairn_error *err)
{
    const char *id = c->r->records[m->record].id;
    CLEANUP_MANIFEST struct manifest *man = NULL;
    struct cairn_error e;
    int rc = store_load_manifest(c->run->s, c->run->op, id, m->gen, &man, &e);
    if (rc == CAIRN_NOT_FOUND)
        return CAIRN_OK; /* what is gone needs nothing */
    if (rc)
        return error_set(err, rc, e.sys_errno, "%s", e.message);
    for (uint32_t i = 0; !rc && i < manifest_info(man)->n_chunks; i++) {
        struct chunk k;
        bool fresh;
        manifest_chunk(man, i, &k);
        const struct roots_pack *p = roots_find_pack(c->r, k.loc.pack);
        if (!p || !c->wanted[p - c->r->packs])
            continue;
        rc = seen_add(&c->seen, k.loc.pack, k.loc.offset, &fresh, err);
        if (!rc && fresh)
            c->live[p - c->r->packs] += roots_footprint(&k.loc);
    }
    gc_progress(c->run, 1, m->size);
    return rc;
}

static bool names_wanted(const struct counts *c, const struct roots_manifest *m)
{
    for (uint32_t u = 0; u < m->n_uses; u++)
        if (c->wanted[c->r->uses[m->first_use + u].pack])
            return true;
    return false;
}

/* What is remembered needs no counting. */
static void recall(struct counts *c)
{
    for (size_t i = 0; i < c->r->n_packs; i++)
        if (c->wanted[i] &&
            sweep_db_find_live(c->run->db, c->r->packs[i].id, c->r->packs[i].refs_sum, &c->live[i]))
            c->wanted[i] = false;
}

static int count(struct counts *c, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    recall(c);
    for (size_t i = 0; !rc && i < c->r->n_manifests; i++) {
        rc = op_check(c->run->op, "gc", err);
        if (!rc && names_wanted(c, &c->r->manifests[i]))
            rc = count_manifest(c, &c->r->manifests[i], err);
        if (!rc && c->seen.n > COUNT_MAX)
            return error_set(err, CAIRN_TRANSIENT, EAGAIN, "too many chunks to be counted");
    }
    for (size_t i = 0; !rc && i < c->r->n_packs; i++)
        if (c->wanted[i])
            sweep_db_put_live(c->run->db, c->r->packs[i].id, c->r->packs[i].refs_sum, c->live[i]);
    return rc;
}

/* Close up to *left packs that are sparse. counted: those of which only counting tells. */
static int close_sparse(struct counts *c, bool counted, size_t *left, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && *left && i < c->r->n_packs; i++) {
        const struct roots_pack *p = &c->r->packs[i];
        bool needs_count;
        if (!plan_pack_sparse(c->run, p, &needs_count) || needs_count != counted ||
            (counted && !plan_is_sparse(p, c->live[i])))
            continue;
        (*left)--;
        rc = packs_close(c->run, p, "less than half of it is needed", err);
    }
    return rc;
}

static int close_small(struct gc_run *run, const struct roots *r, size_t *left,
                       struct cairn_error *err)
{
    size_t n = 0;
    bool count;
    int rc = CAIRN_OK;
    for (size_t i = 0; i < r->n_packs; i++)
        n += plan_pack_small(run, &r->packs[i]) && !plan_pack_sparse(run, &r->packs[i], &count);
    for (size_t i = 0; !rc && n >= PLAN_SMALL_COUNT && *left && i < r->n_packs; i++) {
        if (!plan_pack_small(run, &r->packs[i]) || plan_pack_sparse(run, &r->packs[i], &count))
            continue;
        (*left)--;
        rc = packs_close(run, &r->packs[i], "one of many small ones", err);
    }
    return rc;
}

int repack_choose(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    if (!run->repack || !r->n_packs)
        return CAIRN_OK;
    gc_phase(run, "choose");
    size_t left = CHOOSE_MAX, n = 0;
    CLEANUP_FREE uint64_t *live = calloc(r->n_packs, sizeof(*live));
    CLEANUP_FREE bool *wanted = calloc(r->n_packs, sizeof(*wanted));
    if (!live || !wanted)
        return error_oom(err, "choosing packs to repack");
    struct counts c = {.run = run, .r = r, .live = live, .wanted = wanted};
    for (size_t i = 0; i < r->n_packs && n < CHOOSE_MAX; i++) {
        bool count_it;
        if (plan_pack_sparse(run, &r->packs[i], &count_it) && count_it)
            n += wanted[i] = true;
    }
    int rc = close_sparse(&c, false, &left, err);
    if (!rc && n && left) {
        struct cairn_error e;
        rc = count(&c, &e);
        bool counted = !rc;
        rc = gc_settle(run, rc, &e, err);
        if (!rc && counted)
            rc = close_sparse(&c, true, &left, err);
    }
    seen_release(&c.seen);
    return rc ? rc : close_small(run, r, &left, err);
}
