/* SHA-256 (FIPS 180-4, by OpenSSL, which uses the CPU's own instructions) and keyed XXH3-128 (by
 * xxHash). Thread-safe as far as each context is used by one thread at a time. */
#ifndef CAIRN_BASE_HASH_H
#define CAIRN_BASE_HASH_H

#include "base/error.h"

#include <stdint.h>

#define SHA256_LEN 32
#define XXH3_LEN   16
/* Bytes of secret that XXH3 is keyed with here (xxHash wants at least 136). */
#define XXH3_SECRET_LEN 192

CAIRN_MUST_CHECK int hash_sha256(const void *data, size_t len, uint8_t out[SHA256_LEN],
                                 struct cairn_error *err);

/* In pieces. new, then update any number of times, then final (which leaves it ready to begin
 * again), then free. */
struct sha256;
CAIRN_MUST_CHECK int sha256_new(struct sha256 **out, struct cairn_error *err);
CAIRN_MUST_CHECK int sha256_update(struct sha256 *h, const void *data, size_t len,
                                   struct cairn_error *err);
CAIRN_MUST_CHECK int sha256_final(struct sha256 *h, uint8_t out[SHA256_LEN],
                                  struct cairn_error *err);
void sha256_free(struct sha256 *h);
void sha256_freep(struct sha256 **h);
#define CLEANUP_SHA256 __attribute__((cleanup(sha256_freep)))

/* The canonical (big-endian) form of XXH3-128 of data under secret. */
void hash_xxh3(const uint8_t secret[XXH3_SECRET_LEN], const void *data, size_t len,
               uint8_t out[XXH3_LEN]);

#endif
