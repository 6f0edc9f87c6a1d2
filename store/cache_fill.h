/* Chunks that are not here, brought here: one download for all who want a chunk at the same time.
 *
 * A *fill* is one ranged read of a pack and the chunks that come out of it, decoded, verified and
 * put into the cache. It runs on a thread of its own kind, under an op of its own, and belongs to
 * no caller: callers wait for it as long as their own op allows. A chunk that is based on another
 * waits for the fill of its base, which runs at the same time.
 *
 *   state     what happens                                   leaves it by
 *   QUEUED    waits for a thread, to read                    a thread: READING
 *   READING   the ranged read                                its end: WAITING
 *   WAITING   for the fills of bases (often there are none)  the last one's end: DECODING
 *   DECODING  decode, verify, cache_insert                   its end: DONE
 *   DONE      no longer found by others; lives as long as somebody holds it, with its bytes, so
 *             that a cache that could not take them fails nobody
 *
 * Nothing is remembered of a failure: whoever comes later begins a new fill. Works without a cache,
 * too. Thread-safe; no lock is held over I/O or decoding. */
#ifndef CAIRN_STORE_CACHE_FILL_H
#define CAIRN_STORE_CACHE_FILL_H

#include "store/cache.h"
#include "store/chunk_io.h"

struct fill;
struct fills;

/* A chunk that somebody wants. */
struct fill_want {
    struct chunk chunk;
    uint8_t xxh[XXH3_LEN]; /* all zero: not known, SHA-256 tells */
    uint32_t plain_len;    /* 0: not known */
};
void fill_want_manifest(const struct manifest *m, uint32_t i, uint32_t plain_len,
                        struct fill_want *out);
/* What a based chunk is based on. */
void fill_want_base(const struct chunk *chunk, struct fill_want *out);

/* For a backend whose objects are no local files. The caller owns *out until fills_free. */
CAIRN_MUST_CHECK int fills_new(struct cairn_store *s, struct fills **out, struct cairn_error *err);
/* Ends what runs. No call may be running, nothing be held. NULL is allowed. */
void fills_free(struct fills *f);

#define FILL_HOLD_MAX 256

/* Fills that somebody keeps, so that their bytes are there when he comes for them. */
struct fill_hold {
    struct fill *fills[FILL_HOLD_MAX];
    size_t n;
};

/* Begin to bring here what of wants is neither in the cache nor on its way, and hold the fills that
 * do so. Neighbours in wants that are neighbours in their pack cost one read (at most 4 MiB). Does
 * not wait for any download. */
void fills_begin(struct fills *f, const struct fill_want *wants, size_t n, struct fill_hold *hold);
void fills_release(struct fills *f, struct fill_hold *hold);
/* Until all that is held has ended, as long as op allows. Errors: the first that one of them met,
 * else timeout and cancelled. */
CAIRN_MUST_CHECK int fills_wait(struct fills *f, const struct cairn_op *op,
                                const struct fill_hold *hold, struct cairn_error *err);

/* A chunk's verified plain bytes, in one of two places. */
struct fill_place {
    const void *data;     /* NULL: in the cache */
    struct cache_ref ref; /* data NULL */
    uint32_t len;
    struct fill *fill; /* private: owns data */
    void *memory;      /* private: the same */
};

/* The place of a chunk, after waiting for it as long as op allows. scratch: chunk size bytes, which
 * data may point to. hold is grown if the chunk has to be fetched. Errors: those of chunk_read;
 * timeout and cancelled are the caller's own. */
CAIRN_MUST_CHECK int fills_get(struct fills *f, const struct cairn_op *op,
                               const struct fill_want *want, struct fill_hold *hold, void *scratch,
                               struct fill_place *out, struct cairn_error *err);
void fill_place_release(struct cairn_store *s, struct fill_place *place);

/* The chunk's bytes into plain (chunk size bytes). */
CAIRN_MUST_CHECK int fills_read(struct fills *f, const struct cairn_op *op,
                                const struct fill_want *want, struct fill_hold *hold, void *plain,
                                size_t *len, struct cairn_error *err);

/* ---- Also where objects are local files ------------------------------------------------------ */

/* The chunk's place in the cache, verified. scratch: chunk size bytes to verify it in; NULL: only
 * if this process did so before. False: it has none. */
bool fill_find_cached(struct cairn_store *s, const struct fill_want *want, void *scratch,
                      struct fill_place *out);
/* The same, and if it has none: read it from the backend with ctx, put it into the cache. */
CAIRN_MUST_CHECK int fill_through_cache(struct cairn_store *s, const struct cairn_op *op,
                                        struct chunk_ctx *ctx, const struct fill_want *want,
                                        struct fill_place *out, struct cairn_error *err);

/* The chunk is in the cache (or was, a moment ago). */
bool fills_has(struct fills *f, const struct fill_want *want);

#endif
