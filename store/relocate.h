/* Copying chunks out of packs that are closed or about to go, into fresh ones. */
#ifndef CAIRN_STORE_RELOCATE_H
#define CAIRN_STORE_RELOCATE_H

#include "store/manifest.h"
#include "store/pack_set.h"
#include "store/store.h"

/* *out (owned by the caller) is m with every chunk that lies in a pack of bad copied into new,
 * durable packs. Copied chunks are verified. not_found: a pack of bad is gone already. */
CAIRN_MUST_CHECK int relocate_chunks(struct cairn_store *s, const struct cairn_op *op,
                                     const struct manifest *m, const struct pack_set *bad,
                                     struct manifest **out, struct cairn_error *err);

#endif
