#include "gc/plan.h"

#include "base/clock.h"

enum plan_gen plan_generation(const struct roots_record *rec, const struct roots_manifest *m)
{
    if (m->committed || m->pinned)
        return PLAN_GEN_KEEP;
    /* A manifest put before the commit of the current one was superseded by it, or by an earlier
     * one; one put after it, or with its staged meta beside it, is of a publish on its way. */
    if (rec->has_meta && !m->staged && m->mtime_ns < rec->meta_ns)
        return PLAN_GEN_SUPERSEDED;
    return PLAN_GEN_UNCOMMITTED;
}

bool plan_generation_due(const struct gc_run *run, enum plan_gen kind,
                         const struct roots_manifest *m, int64_t superseded_ns)
{
    switch (kind) {
    case PLAN_GEN_SUPERSEDED:
        return gc_is_older(run, superseded_ns, run->t.grace);
    case PLAN_GEN_UNCOMMITTED:
        return gc_is_older(run, m->mtime_ns, run->t.young);
    default:
        return false;
    }
}

/* Dead, by a mark that is not older than the closed one: a closed mark put later (two sweeps that
 * did not see each other) makes the waits begin anew. */
static bool is_dead(const struct roots_pack *p)
{
    return p->dead && p->closed && p->closed_ns <= p->dead_ns;
}

static enum plan_pack gone(const struct gc_run *run, const struct roots_pack *p)
{
    if (!p->closed && !p->dead)
        return PLAN_PACK_KEEP;
    if (!run->t.visibility)
        return PLAN_PACK_UNMARK;
    /* Somebody may still be told that the pack is there, so its closed mark has to stay for sigma
     * after that. It is put again to tell since when; then it is younger than the dead one. */
    if (!p->closed)
        return PLAN_PACK_UNMARK;
    if (is_dead(p))
        return PLAN_PACK_STAMP;
    return gc_is_older(run, p->closed_ns, p->dead ? run->t.visibility : run->t.dead)
               ? PLAN_PACK_UNMARK
               : PLAN_PACK_KEEP;
}

enum plan_pack plan_pack(const struct gc_run *run, const struct roots_pack *p, int64_t *due_ns)
{
    int64_t due = 0;
    if (!due_ns)
        due_ns = &due;
    if (!p->present)
        return p->refs || p->pinned ? PLAN_PACK_KEEP : gone(run, p);
    bool used = p->refs || p->pinned;
    if (!p->closed)
        return !used && gc_is_older(run, p->mtime_ns, run->t.young) ? PLAN_PACK_CLOSE
                                                                    : PLAN_PACK_KEEP;
    if (is_dead(p) && !used) {
        *due_ns = clock_add(p->dead_ns, run->t.dead);
        return gc_is_older(run, p->dead_ns, run->t.dead) ? PLAN_PACK_DELETE : PLAN_PACK_WAIT;
    }
    *due_ns = clock_add(p->closed_ns, run->t.visibility);
    if (!gc_is_older(run, p->closed_ns, run->t.visibility))
        return PLAN_PACK_WAIT;
    if (p->committed)
        return PLAN_PACK_REPACK;
    if (used) {
        *due_ns = INT64_MAX;
        return PLAN_PACK_WAIT; /* for what refers to it to go */
    }
    return PLAN_PACK_KILL;
}

static bool may_be_closed(const struct gc_run *run, const struct roots_pack *p)
{
    return p->present && !p->closed && !p->dead && p->committed &&
           gc_is_older(run, p->mtime_ns, run->t.young);
}

bool plan_pack_sparse(const struct gc_run *run, const struct roots_pack *p)
{
    return may_be_closed(run, p) && roots_live(p) + ROOTS_OVERHEAD < p->size / 2;
}

bool plan_pack_small(const struct gc_run *run, const struct roots_pack *p)
{
    return may_be_closed(run, p) && p->size < PLAN_SMALL;
}
