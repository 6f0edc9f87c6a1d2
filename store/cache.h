/* The local cache of chunks: their plain bytes, in one sparse file for each pack (cache_file.h),
 * shared by all processes on one state directory, bounded by the budget, gone by least recent use.
 *
 * It never fails a reader. What cannot be kept (the bound is reached and all of it in use, the disk
 * is full or broken, a descriptor is not to be had) is not kept; after an error of the disk nothing
 * is added for some seconds, then it is tried again. It trusts nothing that it finds on the disk: a
 * chunk is handed out as not verified once in each process, and whoever gets it so verifies it and
 * says what came of it.
 *
 *   chunk      means                                   leaves it by
 *   (none)     not in the cache                        cache_insert, or another process's record
 *   FOUND      a record says that it is there          cache_confirm, cache_reject
 *   CONFIRMED  this process verified or wrote it       eviction, cache_reject
 *   REJECTED   its place holds something else          cache_insert writes it again
 *
 * Thread-safe. No lock is held over I/O. A hit allocates nothing. */
#ifndef CAIRN_STORE_CACHE_H
#define CAIRN_STORE_CACHE_H

#include "store/budget.h"
#include "store/chunk.h"

#include <stdbool.h>

struct cache;
struct cache_pack;

/* folder: an existing one of the cache's own. secret: the store's, XXH3_SECRET_LEN bytes, copied.
 * budget: borrowed until budget_free, which comes before cache_free; the cache makes itself a
 * source of it. The caller owns *out until cache_free. */
CAIRN_MUST_CHECK int cache_new(const char *folder, const uint8_t *secret, uint32_t chunk_size,
                               struct budget *budget, struct cache **out, struct cairn_error *err);
/* Nobody holds a reference any more. NULL is allowed. */
void cache_free(struct cache *c);

/* A chunk in the cache. fd stays readable until cache_put, also after an eviction. */
struct cache_ref {
    struct cache_pack *pack; /* private */
    int fd;                  /* borrowed */
    uint64_t at;             /* in fd, a multiple of 4096 */
    uint32_t offset;         /* in the pack */
    uint32_t len;            /* plain bytes */
    bool confirmed;          /* this process verified it */
};

/* False: not there. A file that another process made in the last second may be overlooked: see
 * cache_refresh. */
bool cache_find(struct cache *c, const uint8_t pack[PACK_ID_LEN], uint32_t offset,
                struct cache_ref *out);
void cache_put(struct cache *c, struct cache_ref *ref);
/* The chunk's bytes were verified; or they are not what they should be. */
void cache_confirm(struct cache *c, struct cache_ref *ref);
void cache_reject(struct cache *c, const struct cache_ref *ref);
/* The file of this chunk could not be read: forget what was verified in it. */
void cache_doubt(struct cache *c, const struct cache_ref *ref);
/* Learn what other processes added to this pack. Worth it before a download. */
void cache_refresh(struct cache *c, const uint8_t pack[PACK_ID_LEN]);

struct cache_item {
    uint32_t offset; /* in the pack */
    uint32_t len;    /* 1 to the chunk size */
    const void *plain;
};
/* Add verified chunks of one pack, each once in items, in the order in which they will be read. */
void cache_insert(struct cache *c, const uint8_t pack[PACK_ID_LEN], const struct cache_item *items,
                  size_t n);

/* The same chunks will be added soon, perhaps in parts (plain is not looked at): give them their
 * places, which other processes have to be locked out for, in one go. Not needed, only quicker. */
void cache_reserve(struct cache *c, const uint8_t pack[PACK_ID_LEN], const struct cache_item *items,
                   size_t n);

/* Its disk failed: nothing is added for a while. */
bool cache_paused(struct cache *c);

/* Let go of files that another process removed, so that their space comes back: from time to time.
 */
void cache_tidy(struct cache *c);

struct cache_stats {
    uint64_t hits, misses;             /* chunks, of cache_find */
    uint64_t opened;                   /* files, also those that were not there */
    uint64_t inserted, inserted_bytes; /* chunks */
    uint64_t rejected;                 /* chunks whose bytes were not what they should be */
    uint64_t not_kept;                 /* chunks that were not added, for whatever reason */
};
void cache_stats(struct cache *c, struct cache_stats *out);

#endif
