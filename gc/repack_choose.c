/* Which packs are worth repacking. */
#include "gc/packs.h"
#include "gc/plan.h"
#include "gc/repack.h"

/* Packs that are chosen by one sweep, at most. */
#define CHOOSE_MAX 64

static bool is_only_small(const struct gc_run *run, const struct roots_pack *p)
{
    return plan_pack_small(run, p) && !plan_pack_sparse(run, p);
}

int repack_choose(struct gc_run *run, const struct roots *r, struct cairn_error *err)
{
    if (!run->repack)
        return CAIRN_OK;
    gc_phase(run, "choose");
    size_t left = CHOOSE_MAX, small = 0;
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && left && i < r->n_packs; i++) {
        small += is_only_small(run, &r->packs[i]);
        if (!plan_pack_sparse(run, &r->packs[i]))
            continue;
        left--;
        rc = packs_close(run, &r->packs[i], "less than half of it is needed", err);
    }
    for (size_t i = 0; !rc && small >= PLAN_SMALL_COUNT && left && i < r->n_packs; i++) {
        if (!is_only_small(run, &r->packs[i]))
            continue;
        left--;
        rc = packs_close(run, &r->packs[i], "one of many small ones", err);
    }
    return rc;
}
