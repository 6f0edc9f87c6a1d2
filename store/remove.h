/* Removing a record: tombstone, manifests, and meta.json last (docs/protocol.md). */
#ifndef CAIRN_STORE_REMOVE_H
#define CAIRN_STORE_REMOVE_H

#include "store/store.h"

/* Remove every generation of id; absent is success. The caller holds the record's lock where there
 * are locks. Holds are not looked at. */
CAIRN_MUST_CHECK int remove_record(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                   struct cairn_error *err);

/* cairn_delete, but only if gen is committed under the lock ("": no generation is, or none that can
 * be read). *other: it is not, and nothing was done: what somebody published meanwhile stays. */
CAIRN_MUST_CHECK int remove_if_committed(struct cairn_store *s, const struct cairn_op *op,
                                         const char *id, const char *gen, bool *other,
                                         struct cairn_error *err);

/* Finish a removal that was cut short: remove the generations that the record's tombstone names and
 * nothing else, so that what was published under the id since stays. No tombstone: nothing to do.
 * This is what a sweep calls. The caller holds the record's lock where there are locks. Where there
 * are none (S3), a publish that commits between the last look at meta.json and its deletion, some
 * milliseconds, would lose its commit; it takes its generations out of the tombstone first, so that
 * this takes a sweep that stalled there through the whole of a publish. */
CAIRN_MUST_CHECK int remove_finish(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                   struct cairn_error *err);

#endif
