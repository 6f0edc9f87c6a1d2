/* Removing a record: tombstone, manifests, and meta.json last (docs/protocol.md). */
#ifndef CAIRN_STORE_REMOVE_H
#define CAIRN_STORE_REMOVE_H

#include "store/store.h"

/* Remove every generation of id, or finish such a removal; absent is success. The caller holds the
 * record's lock where there are locks. Holds are not looked at. */
CAIRN_MUST_CHECK int remove_record(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                   struct cairn_error *err);

#endif
