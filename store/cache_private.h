/* Between the files of the cache: cache.c (finding), cache_insert.c (adding), cache_evict.c (what
 * the budget asks for), cache_pack.c (the table of open files). */
#ifndef CAIRN_STORE_CACHE_PRIVATE_H
#define CAIRN_STORE_CACHE_PRIVATE_H

#include "base/clock.h"
#include "store/cache.h"
#include "store/cache_file.h"

#include <pthread.h>

/* Open files. A pack that leaves the table loses nothing but the knowledge of what was verified. */
#define CACHE_OPEN_MAX 192
#define CACHE_CHAINS   256

enum cache_state { CACHE_NONE, CACHE_FOUND, CACHE_CONFIRMED, CACHE_REJECTED };

/* A chunk: open addressing by offset; offset 0 is an empty slot. */
struct cache_slot {
    uint32_t offset, place, len;
    uint32_t state; /* enum cache_state */
};

/* The cache file of a pack, open. Everything but id and fd is guarded by the cache's lock. */
struct cache_pack {
    uint8_t id[PACK_ID_LEN];
    int fd;
    struct cache_pack *next; /* in its chain */
    bool listed;             /* in the table, which is a reference */
    unsigned refs;
    uint64_t used; /* the cache's clock */
    int64_t touched_ns;
    struct cache_slot *slots; /* owned */
    size_t cap, n;            /* a power of two, or 0; at most half full */
    uint32_t end;             /* records known */
};

/* Packs that had no file a moment ago: most of what a cold fetch asks for, once for each chunk. */
#define CACHE_ABSENT_NS NS_PER_S
struct cache_absent {
    uint8_t id[PACK_ID_LEN];
    int64_t until_ns; /* CLOCK_MONOTONIC */
};

struct cache {
    char *folder; /* owned, constant, as the next three */
    uint8_t secret[XXH3_SECRET_LEN];
    uint32_t chunk_size;
    struct budget *budget; /* borrowed */

    pthread_mutex_t lock; /* guards what follows */
    struct cache_pack *chains[CACHE_CHAINS];
    struct cache_absent absent[CACHE_CHAINS]; /* one a chain */
    size_t open;
    uint64_t clock;
    int64_t pause_until_ns, pause_ns, logged_ns; /* CLOCK_MONOTONIC */
    struct cache_stats stats;
};

static inline struct cache_file cache_file_of(const struct cache *c, const uint8_t *pack)
{
    return (struct cache_file){.secret = c->secret, .pack = pack, .chunk_size = c->chunk_size};
}

#define CACHE_PATH_MAX 4200
void cache_path(const struct cache *c, const uint8_t pack[PACK_ID_LEN], char out[CACHE_PATH_MAX]);

/* Something of the cache's disk failed: add nothing for a while. */
void cache_failed(struct cache *c, const struct cairn_error *why);

/* ---- Open packs ------------------------------------------------------------------------------ */

/* With a reference, or NULL: it has no file (create: none to be had; *err says why). */
struct cache_pack *cache_pack_get(struct cache *c, const uint8_t pack[PACK_ID_LEN], bool create,
                                  struct cairn_error *err);
/* It had no file less than CACHE_ABSENT_NS ago. */
bool cache_pack_is_absent_locked(const struct cache *c, const uint8_t pack[PACK_ID_LEN]);
struct cache_pack *cache_pack_find_locked(struct cache *c, const uint8_t pack[PACK_ID_LEN]);
void cache_pack_put(struct cache *c, struct cache_pack *p);
/* Its file is no longer the one that others see: nobody is to find it any more. */
void cache_pack_forget(struct cache *c, struct cache_pack *p);
/* Learn the records behind those that are known. locked: fd has the lock. *end: their number. */
CAIRN_MUST_CHECK int cache_pack_read(struct cache *c, struct cache_pack *p, int fd, bool locked,
                                     uint32_t *end, struct cairn_error *err);

struct cache_slot *cache_slot_locked(struct cache_pack *p, uint32_t offset); /* or NULL */
/* False when memory ran out. The chunk is not there yet. */
bool cache_slot_add_locked(struct cache_pack *p, const struct cache_slot *slot);

extern const struct budget_source cache_source; /* without ctx */

#endif
