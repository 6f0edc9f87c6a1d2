/* The lock of a record, as its writers take it: whoever has it for moments only is waited for. */
#ifndef CAIRN_STORE_LOCK_H
#define CAIRN_STORE_LOCK_H

#include "store/store.h"

/* So long another holder is waited for: a sweep has a record's lock for milliseconds, a publish for
 * as long as it takes. */
#define LOCK_WAIT_NS (2 * NS_PER_S)

/* Lock the record (backend.h). Busy: somebody else had it for all of LOCK_WAIT_NS. */
CAIRN_MUST_CHECK int lock_record(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                 int *lock, struct cairn_error *err);

#endif
