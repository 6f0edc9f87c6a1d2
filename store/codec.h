/* Encoding and decoding of single chunks (zstd). A codec belongs to one thread at a time: it keeps
 * zstd's contexts, which cost more to make than to use. */
#ifndef CAIRN_STORE_CODEC_H
#define CAIRN_STORE_CODEC_H

#include "store/chunk.h"

#include <stddef.h>

struct codec;

CAIRN_MUST_CHECK int codec_new(struct codec **out, struct cairn_error *err);
void codec_free(struct codec *c); /* NULL is allowed */

/* Room that codec_encode needs for len plain bytes. */
size_t codec_bound(size_t len);

/* Encode plain into out (codec_bound(len) bytes), at zstd level 1. With a base (base_len > 0)
 * CHUNK_ZSTD_BASE is tried; else CHUNK_ZSTD. Kept only if it saves at least 1/8 of len, else
 * *encoding is CHUNK_RAW, *out_len is len and out is not to be used. */
CAIRN_MUST_CHECK int codec_encode(struct codec *c, const void *plain, size_t len, const void *base,
                                  size_t base_len, void *out, enum chunk_encoding *encoding,
                                  size_t *out_len, struct cairn_error *err);

/* Decode into plain, which has room for cap bytes; *plain_len is how many there were. Corrupt when
 * the bytes are no frame, give more than cap, or, with an expected length (expect > 0), another.
 * base is used with CHUNK_ZSTD_BASE only. The identity of the bytes is not checked here. */
CAIRN_MUST_CHECK int codec_decode(struct codec *c, uint8_t encoding, const void *stored,
                                  size_t stored_len, const void *base, size_t base_len, void *plain,
                                  size_t cap, size_t expect, size_t *plain_len,
                                  struct cairn_error *err);

#endif
