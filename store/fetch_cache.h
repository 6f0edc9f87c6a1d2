/* The part of a fetch that the cache does, where objects are no local files: what is there, and
 * whether what is not should come there. Private to the fetch. */
#ifndef CAIRN_STORE_FETCH_CACHE_H
#define CAIRN_STORE_FETCH_CACHE_H

#include "store/cache_fill.h"
#include "store/fetch_piece.h"

/* Whether a fetch should leave what it downloads in the cache, although that is written twice then:
 * a record with a parent shares most of its chunks with the parent and its other children, and the
 * next of them finds those here. Not if it would fill the cache to more than half. */
bool fetch_cache_keeps(struct cairn_store *s, const struct manifest_info *info);
/* A folder on the file system of the cache, which can probably share bytes between files. The same
 * bound. */
bool fetch_cache_is_near(struct cairn_store *s, const struct manifest_info *info, int folder);

/* Of the piece's chunks (wants tells the same of them) what the cache has is shared with the file,
 * if the file systems can, or read into p->plain, if there is one. */
void fetch_cache_take(const struct fetch_piece *p, const struct fill_want *wants,
                      struct chunk_ctx *ctx);

#endif
