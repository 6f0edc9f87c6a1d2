/* The digest of an export ("sandbox-template-export-v2", docs/format.md): a hash over its files'
 * paths and bytes that does not depend on how they are stored.
 *
 * One digest per export: new; then for each file in the order of its path's bytes: file, then its
 * bytes in order (data, zeros); then final. Not thread-safe. */
#ifndef CAIRN_STORE_DIGEST_H
#define CAIRN_STORE_DIGEST_H

#include "base/hash.h"

#define DIGEST_PIECE ((uint64_t)16 * 1024 * 1024)
#define DIGEST_TEXT  (7 + 2 * SHA256_LEN + 1) /* "sha256:" + hex + NUL */

struct digest;

CAIRN_MUST_CHECK int digest_new(struct digest **out, struct cairn_error *err);
void digest_free(struct digest *d); /* NULL is allowed */

/* Begin a file. The bytes of the one before must all have been given (else internal). */
CAIRN_MUST_CHECK int digest_file(struct digest *d, const char *path, size_t len, uint64_t size,
                                 struct cairn_error *err);
CAIRN_MUST_CHECK int digest_data(struct digest *d, const void *data, size_t len,
                                 struct cairn_error *err);
/* len zero bytes; whole pieces of zeros cost one comparison each, not 16 MiB of hashing. */
CAIRN_MUST_CHECK int digest_zeros(struct digest *d, uint64_t len, struct cairn_error *err);
CAIRN_MUST_CHECK int digest_final(struct digest *d, uint8_t out[SHA256_LEN],
                                  struct cairn_error *err);

void digest_text(const uint8_t digest[SHA256_LEN], char out[DIGEST_TEXT]);

#endif
