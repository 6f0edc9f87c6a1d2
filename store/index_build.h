/* Building the local index from the packs of the store. */
#ifndef CAIRN_STORE_INDEX_BUILD_H
#define CAIRN_STORE_INDEX_BUILD_H

#include "store/pack.h"
#include "store/store.h"

/* The chunks of a pack as its own index tells them; *entries is owned by the caller (free).
 * corrupt: the pack is damaged. not_found: it is gone. size: of the object, from its listing. */
CAIRN_MUST_CHECK int index_read_pack(struct cairn_store *s, const struct cairn_op *op,
                                     const uint8_t pack[PACK_ID_LEN], uint64_t size,
                                     struct pack_entry **entries, uint32_t *n,
                                     struct cairn_error *err);

/* Enter every pack that the index does not know yet. With anew it is emptied first. A damaged pack
 * is left out and logged. Does nothing where no index is kept. */
CAIRN_MUST_CHECK int index_build(struct cairn_store *s, const struct cairn_op *op, bool anew,
                                 struct cairn_error *err);

#endif
