/* Holds: holds/<id> keeps a record from being removed, by rm or by retention. */
#ifndef CAIRN_STORE_HOLD_H
#define CAIRN_STORE_HOLD_H

#include "store/store.h"

/* Whether the record is held. */
CAIRN_MUST_CHECK int hold_exists(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                 bool *held, struct cairn_error *err);

#endif
