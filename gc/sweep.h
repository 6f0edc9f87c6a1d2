/* One sweep, on the calling thread (docs/protocol-collector.md). */
#ifndef CAIRN_GC_SWEEP_H
#define CAIRN_GC_SWEEP_H

#include "store/store.h"

/* cairn_gc without the lock among processes: for its holder, and for tests. db: the memory
 * (borrowed), or NULL. */
struct sweep_db;
CAIRN_MUST_CHECK int sweep_run(struct cairn_store *s, const struct cairn_op *op,
                               const struct cairn_gc_config *config,
                               const struct cairn_gc_options *options, struct sweep_db *db,
                               struct cairn_gc_result *result, struct cairn_error *err);

#endif
