/* What is to become of a generation and of a pack: pure decisions from what one scan found. */
#ifndef CAIRN_GC_PLAN_H
#define CAIRN_GC_PLAN_H

#include "gc/roots.h"

enum plan_gen {
    PLAN_GEN_KEEP,
    PLAN_GEN_SUPERSEDED,  /* a later generation was committed; goes after the grace */
    PLAN_GEN_UNCOMMITTED, /* no meta.json ever named it, as far as can be told; goes when old */
};

/* Which of the three m is. It depends on no time but the order of m and its record's commit. */
enum plan_gen plan_generation(const struct roots_record *rec, const struct roots_manifest *m);
/* Whether its time has come. superseded_ns: when its successor was committed, or was first seen. */
bool plan_generation_due(const struct gc_run *run, enum plan_gen kind,
                         const struct roots_manifest *m, int64_t superseded_ns);

enum plan_pack {
    PLAN_PACK_KEEP,
    PLAN_PACK_CLOSE,  /* open, nobody refers to it, and old */
    PLAN_PACK_WAIT,   /* closed or dead, its time is not come */
    PLAN_PACK_KILL,   /* closed for sigma and still without a reference */
    PLAN_PACK_DELETE, /* dead for gamma and still without a reference */
    PLAN_PACK_REPACK, /* closed and referred to: its live chunks have to be moved */
    PLAN_PACK_STAMP,  /* gone; where what one writes is seen late, its marks wait once more */
    PLAN_PACK_UNMARK, /* gone, and for long enough: the marks go, too */
};

/* due_ns (may be NULL): with WAIT, the store time at which it is due; INT64_MAX: when what refers
 * to it has gone. */
enum plan_pack plan_pack(const struct gc_run *run, const struct roots_pack *p, int64_t *due_ns);

/* An open pack that is worth repacking: less than half of it is needed. */
bool plan_pack_sparse(const struct gc_run *run, const struct roots_pack *p);
/* An open pack that is small, as forks leave them behind, and no longer young. */
#define PLAN_SMALL       ((uint64_t)4 << 20)
#define PLAN_SMALL_COUNT 8 /* so many together are worth repacking */
bool plan_pack_small(const struct gc_run *run, const struct roots_pack *p);

#endif
