/* Bringing here what a trace says will be needed: for a thread that has nothing else to do. */
#ifndef CAIRN_STORE_PREFETCH_H
#define CAIRN_STORE_PREFETCH_H

#include "store/record.h"
#include "store/trace.h"

struct prefetch_result {
    uint64_t chunks; /* that were looked at, in the cache by now or not to be had */
    uint64_t bytes;  /* plain ones that were fetched, or are on their way */
    bool full;       /* it ended early, as the cache is small, or takes nothing now */
};

/* Bring the runs of t (of the files of r: trace_get) into the cache, in windows of some MiB in the
 * order of t, each window in the order of the packs, so that neighbours cost one read. Few reads at
 * a time: who needs a chunk at once finds a free thread. No more than an eighth of the cache's
 * bound is filled so, which leaves there what others brought; where the cache takes nothing, or the
 * store is local, nothing is done.
 *
 * Ends at once with op; reads that run are left to end by themselves. Errors: those of the reads,
 * the first of which ends it. Thread-safe. */
CAIRN_MUST_CHECK int prefetch_run(struct cairn_record *r, const struct cairn_op *op,
                                  const struct trace *t, struct prefetch_result *out,
                                  struct cairn_error *err);

#endif
