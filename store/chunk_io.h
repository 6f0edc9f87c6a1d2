/* Reading stored chunks: open packs, scratch space, decoding, verifying.
 *
 * What is handed out was verified: against the keyed XXH3-128 of the manifest where that is known
 * (which finds decay, the thing that can happen to a pack behind a manifest that was itself
 * verified, at ten times the speed: docs/protocol.md), else against the chunk's SHA-256. `verify`
 * always uses SHA-256. */
#ifndef CAIRN_STORE_CHUNK_IO_H
#define CAIRN_STORE_CHUNK_IO_H

#include "store/chunk.h"
#include "store/codec.h"
#include "store/manifest.h"
#include "store/pack_files.h"
#include "store/store.h"

struct fill_hold;

/* Scratch for one thread's work on chunks. */
struct chunk_ctx {
    struct codec *codec;
    /* codec_bound(chunk size) bytes. After chunk_read of an encoded chunk: what lies in the pack
     * and was verified by what it decodes to. */
    uint8_t *stored;
    uint8_t *base; /* chunk size bytes */
    /* Borrowed until chunk_ctx_put: bases come by way of the cache and of these fills
     * (cache_fill.h). NULL: they are read each time. */
    struct fill_hold *bases;
    struct chunk_ctx *next;
    /* A piece of a pack that was read ahead (chunk_read_ahead); span_len 0: none. */
    uint8_t *span;
    size_t span_cap, span_len;
    uint64_t span_off;
    uint8_t span_pack[PACK_ID_LEN];
};
/* Some are kept for the next user: this many, whatever the number of threads that once read at the
 * same time, and without what they read ahead. */
#define CHUNK_CTX_KEPT 16
CAIRN_MUST_CHECK int chunk_ctx_get(struct cairn_store *s, struct chunk_ctx **out,
                                   struct cairn_error *err);
void chunk_ctx_put(struct cairn_store *s, struct chunk_ctx *ctx); /* NULL is allowed */
void chunk_ctx_free_all(struct cairn_store *s);

/* Where objects are no local files, each read is a request: before chunk i of src is read, fetch
 * the piece of its pack that it and those after it (without chunk end) lie in, so that they cost
 * one request. at tells where a chunk of src lies. Does nothing where packs are files, or where
 * chunk i was read ahead already. A failure is left to chunk_read to find. */
typedef void chunk_at(const void *src, uint32_t i, struct chunk_loc *out);
void chunk_read_ahead(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                      chunk_at *at, const void *src, uint32_t i, uint32_t end);
/* at for a struct manifest. */
void chunk_at_manifest(const void *manifest, uint32_t i, struct chunk_loc *out);

/* The plain bytes of a chunk into plain (expect bytes; expect 0: up to cap bytes, *len tells).
 * xxh: the keyed hash to verify against; NULL or all zero: SHA-256. A mismatch is read once more,
 * then it is corrupt, with pack, offset and chunk, and the index forgets the pack (and the base's),
 * so that a later publish stores anew what it holds. not_found: the pack (or the base's) is gone.
 */
CAIRN_MUST_CHECK int chunk_read(struct cairn_store *s, const struct cairn_op *op,
                                struct chunk_ctx *ctx, const struct chunk *chunk,
                                const uint8_t *xxh, void *plain, size_t cap, size_t expect,
                                size_t *len, struct cairn_error *err);

/* The second half of chunk_read, for whoever has read and verified once: what is corrupt now is. */
CAIRN_MUST_CHECK int chunk_read_again(struct cairn_store *s, const struct cairn_op *op,
                                      struct chunk_ctx *ctx, const struct chunk *chunk,
                                      const uint8_t *xxh, void *plain, size_t cap, size_t expect,
                                      size_t *len, struct cairn_error *err);

/* The parts of chunk_read, for whoever has the stored bytes already: decode them, with the base's
 * plain bytes where there is one, and verify. Errors: corrupt. */
CAIRN_MUST_CHECK int chunk_decode(struct cairn_store *s, struct chunk_ctx *ctx,
                                  const struct chunk *chunk, const uint8_t *xxh, const void *stored,
                                  const void *base, size_t base_len, void *plain, size_t cap,
                                  size_t expect, size_t *len, struct cairn_error *err);
CAIRN_MUST_CHECK int chunk_verify(struct cairn_store *s, const struct chunk *chunk,
                                  const uint8_t *xxh, const void *plain, size_t len,
                                  struct cairn_error *err);

#endif
