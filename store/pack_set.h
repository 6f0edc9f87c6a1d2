/* A set of pack names, for the few packs that a publish must not use. Not thread-safe while it is
 * changed. */
#ifndef CAIRN_STORE_PACK_SET_H
#define CAIRN_STORE_PACK_SET_H

#include "base/error.h"
#include "store/ids.h"

#include <stdbool.h>

struct pack_set {
    uint8_t (*packs)[PACK_ID_LEN]; /* owned, sorted */
    size_t n, cap;
};

void pack_set_release(struct pack_set *s);
#define CLEANUP_PACK_SET __attribute__((cleanup(pack_set_release)))
CAIRN_MUST_CHECK int pack_set_add(struct pack_set *s, const uint8_t pack[PACK_ID_LEN],
                                  struct cairn_error *err);
/* s may be NULL: the empty set. O(log n). */
bool pack_set_has(const struct pack_set *s, const uint8_t pack[PACK_ID_LEN]);

#endif
