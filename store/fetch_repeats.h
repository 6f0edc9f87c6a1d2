/* Chunks that a generation has in more than one place (pages that repeat all over a memory image):
 * a fetch from afar keeps the bytes of some, so that it downloads them once, or hardly more often.
 * Thread-safe, without a lock. Private to the fetch. */
#ifndef CAIRN_STORE_FETCH_REPEATS_H
#define CAIRN_STORE_FETCH_REPEATS_H

#include "store/manifest.h"

/* At most so many chunks, and bytes of them, the first ones. */
#define FETCH_REPEATS_MAX   4096u
#define FETCH_REPEATS_BYTES ((size_t)16 * 1024 * 1024)

struct fetch_repeats;

/* *out is NULL where nothing repeats. m is borrowed until fetch_repeats_free: asked about the
 * chunks of another one, it has none. Errors: internal. */
CAIRN_MUST_CHECK int fetch_repeats_new(const struct manifest *m, struct fetch_repeats **out,
                                       struct cairn_error *err);
void fetch_repeats_free(struct fetch_repeats *r); /* NULL is allowed, as in the next two */

/* The verified plain bytes of chunk i of m: they are kept if it repeats, and there is room. */
void fetch_repeats_give(struct fetch_repeats *r, const struct manifest *m, uint32_t i,
                        const void *plain, size_t len);
/* The same bytes, borrowed until fetch_repeats_free, or NULL. */
const void *fetch_repeats_find(struct fetch_repeats *r, const struct manifest *m, uint32_t i,
                               size_t *len);

#endif
