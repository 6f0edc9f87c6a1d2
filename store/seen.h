/* A set of chunk locations, to look at each only once: 16 bytes a chunk. It keeps 64-bit
 * fingerprints, so two locations are taken for one with a chance of n * n / 2^65 for n chunks.
 * Not thread-safe. */
#ifndef CAIRN_STORE_SEEN_H
#define CAIRN_STORE_SEEN_H

#include "base/error.h"
#include "store/ids.h"

#include <stdbool.h>

struct seen {
    uint64_t *slots; /* owned, a power of two; 0: free */
    size_t n, cap;
};

/* *fresh: it was not there before. */
CAIRN_MUST_CHECK int seen_add(struct seen *s, const uint8_t pack[PACK_ID_LEN], uint32_t offset,
                              bool *fresh, struct cairn_error *err);
bool seen_has(const struct seen *s, const uint8_t pack[PACK_ID_LEN], uint32_t offset);
void seen_release(struct seen *s);

#endif
