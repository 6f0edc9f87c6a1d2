/* SHA-256 of sixteen buffers at once, one in each 32-bit lane of AVX-512: on a processor that has
 * it two to three times the throughput of SHA instructions, which wait for their own results.
 * Private to hash.c. */
#ifndef CAIRN_BASE_HASH_LANES_H
#define CAIRN_BASE_HASH_LANES_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>

#define HASH_LANES 16

/* Whether this processor can. */
bool hash_lanes_can(void);
/* len bytes of each data[i] into out[i]. Several may be one and the same; only where it can. */
void hash_lanes_sha256(const uint8_t *const data[HASH_LANES], size_t len,
                       uint8_t *const out[HASH_LANES]);

#endif
