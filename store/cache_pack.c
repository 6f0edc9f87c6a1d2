#include "store/cache_private.h"

#include "base/util.h"

#include <stdlib.h>
#include <string.h>

/* ---- Chunks of a pack ------------------------------------------------------------------------ */

static size_t slot_start(const struct cache_pack *p, uint32_t offset)
{
    /* Knuth's multiplicative hashing: the high bits. (Raw chunks lie at multiples of 4096, which
     * leave nothing in the low ones.) */
    return (size_t)((offset * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (p->cap - 1);
}

struct cache_slot *cache_slot_locked(struct cache_pack *p, uint32_t offset)
{
    if (!p->cap)
        return NULL;
    for (size_t i = slot_start(p, offset);; i = (i + 1) & (p->cap - 1)) {
        if (p->slots[i].offset == offset)
            return &p->slots[i];
        if (!p->slots[i].offset)
            return NULL;
    }
}

static void place(struct cache_pack *p, const struct cache_slot *slot)
{
    size_t i = slot_start(p, slot->offset);
    while (p->slots[i].offset)
        i = (i + 1) & (p->cap - 1);
    p->slots[i] = *slot;
}

bool cache_slot_add_locked(struct cache_pack *p, const struct cache_slot *slot)
{
    if (2 * (p->n + 1) > p->cap) {
        struct cache_pack larger = *p;
        larger.cap = p->cap ? 2 * p->cap : 64;
        larger.slots = calloc(larger.cap, sizeof(*larger.slots));
        if (!larger.slots)
            return false;
        for (size_t i = 0; i < p->cap; i++)
            if (p->slots[i].offset)
                place(&larger, &p->slots[i]);
        free(p->slots);
        p->slots = larger.slots;
        p->cap = larger.cap;
    }
    place(p, slot);
    p->n++;
    return true;
}

struct reading {
    struct cache *c;
    struct cache_pack *p;
};

/* Of two records for one chunk the first counts: it may be known to be good. */
static void learn(void *ctx, uint32_t at, const struct cache_record *r)
{
    struct reading *reading = ctx;
    if (!r->offset)
        return;
    pthread_mutex_lock(&reading->c->lock);
    if (!cache_slot_locked(reading->p, r->offset))
        cache_slot_add_locked(reading->p,
                              &(struct cache_slot){r->offset, at, r->plain_len, CACHE_FOUND});
    pthread_mutex_unlock(&reading->c->lock);
}

int cache_pack_read(struct cache *c, struct cache_pack *p, int fd, bool locked, uint32_t *end,
                    struct cairn_error *err)
{
    struct cache_file file = cache_file_of(c, p->id);
    pthread_mutex_lock(&c->lock);
    uint32_t from = p->end;
    pthread_mutex_unlock(&c->lock);
    int rc = cache_file_records(&file, fd, locked, from, learn, &(struct reading){c, p}, end, err);
    pthread_mutex_lock(&c->lock);
    if (!rc && *end > p->end)
        p->end = *end;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* ---- The table ------------------------------------------------------------------------------- */

static void pack_free(struct cache_pack *p)
{
    if (!p)
        return;
    if (p->fd >= 0)
        close(p->fd);
    free(p->slots);
    free(p);
}

struct cache_pack *cache_pack_find_locked(struct cache *c, const uint8_t pack[PACK_ID_LEN])
{
    for (struct cache_pack *p = c->chains[pack[0]]; p; p = p->next)
        if (memcmp(p->id, pack, PACK_ID_LEN) == 0)
            return p;
    return NULL;
}

/* Returns what the caller is to free, without the lock: p itself or NULL. */
static struct cache_pack *unref_locked(struct cache_pack *p)
{
    return --p->refs == 0 ? p : NULL;
}

static struct cache_pack *unlist_locked(struct cache *c, struct cache_pack *p)
{
    if (!p->listed)
        return NULL;
    struct cache_pack **link = &c->chains[p->id[0]];
    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    p->listed = false;
    c->open--;
    return unref_locked(p);
}

/* Make room for one more: *out_of is what left. False: all are in use. */
static bool make_room_locked(struct cache *c, struct cache_pack **out_of)
{
    *out_of = NULL;
    if (c->open < CACHE_OPEN_MAX)
        return true;
    struct cache_pack *oldest = NULL;
    for (size_t i = 0; i < CACHE_CHAINS; i++)
        for (struct cache_pack *p = c->chains[i]; p; p = p->next)
            if (p->refs == 1 && (!oldest || p->used < oldest->used))
                oldest = p;
    if (!oldest)
        return false;
    *out_of = unlist_locked(c, oldest);
    return true;
}

void cache_pack_put(struct cache *c, struct cache_pack *p)
{
    pthread_mutex_lock(&c->lock);
    struct cache_pack *last = unref_locked(p);
    pthread_mutex_unlock(&c->lock);
    pack_free(last);
}

void cache_pack_forget(struct cache *c, struct cache_pack *p)
{
    pthread_mutex_lock(&c->lock);
    struct cache_pack *last = unlist_locked(c, p);
    pthread_mutex_unlock(&c->lock);
    pack_free(last);
}

static struct cache_pack *open_pack(struct cache *c, const uint8_t pack[PACK_ID_LEN], bool create,
                                    struct cairn_error *err)
{
    char path[CACHE_PATH_MAX];
    cache_path(c, pack, path);
    struct cache_pack *p = calloc(1, sizeof(*p));
    if (!p) {
        error_oom(err, "cache");
        return NULL;
    }
    memcpy(p->id, pack, PACK_ID_LEN);
    p->refs = 1;
    uint32_t end;
    struct cache_file file = cache_file_of(c, p->id);
    if (cache_file_open(&file, path, create, &p->fd, err)) {
        p->fd = -1;
        pack_free(p);
        return NULL;
    }
    if (cache_pack_read(c, p, p->fd, false, &end, err)) {
        pack_free(p);
        return NULL;
    }
    p->touched_ns = INT64_MIN; /* the first use counts */
    return p;
}

bool cache_pack_is_absent_locked(const struct cache *c, const uint8_t pack[PACK_ID_LEN])
{
    const struct cache_absent *a = &c->absent[pack[0]];
    return a->until_ns && memcmp(a->id, pack, PACK_ID_LEN) == 0 && clock_monotonic() < a->until_ns;
}

static void note_absent_locked(struct cache *c, const uint8_t pack[PACK_ID_LEN], bool is)
{
    struct cache_absent *a = &c->absent[pack[0]];
    if (is) {
        memcpy(a->id, pack, PACK_ID_LEN);
        a->until_ns = clock_add(clock_monotonic(), CACHE_ABSENT_NS);
    } else if (memcmp(a->id, pack, PACK_ID_LEN) == 0) {
        a->until_ns = 0;
    }
}

struct cache_pack *cache_pack_get(struct cache *c, const uint8_t pack[PACK_ID_LEN], bool create,
                                  struct cairn_error *err)
{
    pthread_mutex_lock(&c->lock);
    struct cache_pack *p = cache_pack_find_locked(c, pack), *spare = NULL;
    if (p)
        p->refs++;
    pthread_mutex_unlock(&c->lock);
    if (p)
        return p;
    struct cairn_error own;
    err = err ? err : &own;
    p = open_pack(c, pack, create, err);
    pthread_mutex_lock(&c->lock);
    c->stats.opened++;
    note_absent_locked(c, pack, !p && err->error_class == CAIRN_NOT_FOUND);
    if (!p) {
        pthread_mutex_unlock(&c->lock);
        return NULL;
    }
    struct cache_pack *theirs = cache_pack_find_locked(c, pack);
    if (theirs) {
        theirs->refs++;
        spare = p;
        p = theirs;
    } else if (make_room_locked(c, &spare)) {
        p->listed = true;
        p->refs++;
        p->used = ++c->clock;
        p->next = c->chains[pack[0]];
        c->chains[pack[0]] = p;
        c->open++;
    }
    pthread_mutex_unlock(&c->lock);
    pack_free(spare);
    return p;
}
