#include "store/cache_private.h"

#include "base/step.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* Bytes are written in pieces of at most so many chunks. */
#define PIECES_MAX 64

/* What becomes of an item. */
struct plan {
    uint32_t place;
    bool writes; /* it is not there, and will be at place */
    bool placed; /* a place is its own */
};

struct insert {
    struct cache *c;
    struct cache_pack *p;
    const struct cache_item *items;
    struct plan *plans;
    size_t n;
    bool reserves; /* places only */
    uint64_t charged;
};

/* Of a new file: its header and the first page of its map. Later pages are counted when the budget
 * lists what is there. */
#define NEW_FILE_LEN 8192u

static uint64_t on_disk(uint32_t len)
{
    return align_up(len, 4096);
}

/* Who has a place, who needs one. What is there already is not written again. */
static void look_locked(struct insert *in)
{
    for (size_t i = 0; i < in->n; i++) {
        struct plan *plan = &in->plans[i];
        struct cache_slot *slot = cache_slot_locked(in->p, in->items[i].offset);
        if (!slot) {
            plan->writes = true;
        } else if (slot->state != CACHE_REJECTED) {
            plan->writes = false;
        } else if (slot->len == in->items[i].len) {
            *plan = (struct plan){.place = slot->place, .writes = true, .placed = true};
        } else {
            plan->writes = false; /* its record is of something else: it is never kept here */
        }
    }
}

static uint64_t bytes_to_write(const struct insert *in)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < in->n; i++)
        if (in->plans[i].writes)
            bytes += on_disk(in->items[i].len);
    return bytes;
}

/* Others may have come first: then their places count. */
static void look(struct insert *in)
{
    pthread_mutex_lock(&in->c->lock);
    look_locked(in);
    pthread_mutex_unlock(&in->c->lock);
}

static size_t places_needed(const struct insert *in)
{
    size_t n = 0;
    for (size_t i = 0; i < in->n; i++)
        n += in->plans[i].writes && !in->plans[i].placed;
    return n;
}

/* Make the file as long as the new places want it. XFS gives writes that make a file longer more
 * blocks than they need, which stay when others write behind them. Other than ftruncate this never
 * makes it shorter. A file system that cannot do it does not need it. */
static int lengthen(const struct insert *in, int fd, uint32_t place, uint32_t len,
                    struct cairn_error *err)
{
    struct cache_file file = cache_file_of(in->c, in->p->id);
    uint64_t last = cache_file_at(&file, place) + on_disk(len) - 4096;
    if (fallocate(fd, 0, (off_t)last, 4096) == 0 ||
        (errno != ENOSPC && errno != EDQUOT && errno != EIO && errno != EFBIG))
        return CAIRN_OK;
    int e = errno;
    return error_sys(err, e, "making room in the cache");
}

static int append(struct insert *in, int fd, uint32_t end, struct cairn_error *err)
{
    size_t n = places_needed(in), used = 0;
    if (!n)
        return CAIRN_OK;
    CLEANUP_FREE struct cache_record *records = calloc(n, sizeof(*records));
    if (!records)
        return error_oom(err, "cache");
    for (size_t i = 0; i < in->n; i++)
        if (in->plans[i].writes && !in->plans[i].placed)
            records[used++] = (struct cache_record){in->items[i].offset, in->items[i].len};
    struct cache_file file = cache_file_of(in->c, in->p->id);
    int rc = cache_file_append(&file, fd, end, records, (uint32_t)n, err);
    if (rc)
        return rc;
    rc = lengthen(in, fd, end + (uint32_t)n - 1, records[n - 1].plain_len, err);
    used = 0;
    pthread_mutex_lock(&in->c->lock);
    for (size_t i = 0; i < in->n; i++) {
        struct plan *plan = &in->plans[i];
        if (!plan->writes || plan->placed)
            continue;
        plan->place = end + (uint32_t)used++;
        plan->placed = true;
        /* Until the bytes are there the slot only keeps the place, also where another thread has
         * read the record before this one came here. */
        struct cache_slot slot = {in->items[i].offset, plan->place, in->items[i].len,
                                  CACHE_REJECTED};
        struct cache_slot *read = cache_slot_locked(in->p, slot.offset);
        if (read && read->place == slot.place)
            *read = slot;
        else if (!read && !cache_slot_add_locked(in->p, &slot))
            plan->writes = false;
    }
    if (in->p->end < end + n)
        in->p->end = end + (uint32_t)n;
    pthread_mutex_unlock(&in->c->lock);
    return rc;
}

/* Give every chunk that is to be written a place. Stale: the file is no longer the one at its path,
 * as another process evicted it. */
static int take_places(struct insert *in, bool *stale, struct cairn_error *err)
{
    *stale = false;
    if (!places_needed(in))
        return CAIRN_OK;
    char path[CACHE_PATH_MAX];
    cache_path(in->c, in->p->id, path);
    struct cache_file file = cache_file_of(in->c, in->p->id);
    /* An open file description of its own, so that threads lock each other out as well. */
    CLEANUP_FD int fd = -1;
    struct stat here, there;
    int rc = cache_file_open(&file, path, false, &fd, err);
    *stale = rc == CAIRN_NOT_FOUND;
    if (rc)
        return rc;
    if (fstat(fd, &here) != 0 || fstat(in->p->fd, &there) != 0) {
        int e = errno;
        return error_sys(err, e, "looking at %s", path);
    }
    *stale = here.st_ino != there.st_ino || here.st_dev != there.st_dev;
    if (*stale)
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "%s was replaced", path);
    if (!cache_file_lock(fd))
        return error_set(err, CAIRN_BUSY, EBUSY, "%s: another process has had its lock for long",
                         path);
    STEP("cache.locked");
    uint32_t end;
    rc = cache_pack_read(in->c, in->p, fd, true, &end, err);
    if (rc)
        return rc;
    look(in);
    return append(in, fd, end, err);
}

/* Chunks from i on that lie behind each other: whole ones, and at last perhaps a short one. */
static size_t run_length(const struct insert *in, size_t i)
{
    size_t n = 1;
    while (i + n < in->n && n < PIECES_MAX && in->plans[i + n].writes &&
           in->items[i + n - 1].len == in->c->chunk_size &&
           in->plans[i + n].place == in->plans[i].place + n)
        n++;
    return n;
}

static int write_run(struct insert *in, size_t i, size_t n, struct cairn_error *err)
{
    struct iovec pieces[PIECES_MAX];
    struct cache_file file = cache_file_of(in->c, in->p->id);
    size_t len = 0;
    for (size_t k = 0; k < n; k++) {
        pieces[k] = (struct iovec){(void *)(uintptr_t)in->items[i + k].plain, in->items[i + k].len};
        len += in->items[i + k].len;
    }
    STEP("cache.writing");
    ssize_t done =
        pwritev(in->p->fd, pieces, (int)n, (off_t)cache_file_at(&file, in->plans[i].place));
    int e = errno;
    if (done < 0)
        return error_sys(err, e, "writing to the cache");
    /* A short count is a full disk, mostly; the next write says which. */
    if ((size_t)done < len)
        return error_set(err, CAIRN_NO_SPACE, ENOSPC, "writing to the cache: %zd bytes of %zu",
                         done, len);
    return CAIRN_OK;
}

static int write_all(struct insert *in, struct cairn_error *err)
{
    for (size_t i = 0, n; i < in->n; i += n) {
        n = 1;
        if (!in->plans[i].writes)
            continue;
        n = run_length(in, i);
        int rc = write_run(in, i, n, err);
        if (rc)
            return rc;
        STEP("cache.written");
        pthread_mutex_lock(&in->c->lock);
        for (size_t k = i; k < i + n; k++) {
            struct cache_slot *slot = cache_slot_locked(in->p, in->items[k].offset);
            if (slot && slot->place == in->plans[k].place)
                slot->state = CACHE_CONFIRMED;
            in->c->stats.inserted++;
            in->c->stats.inserted_bytes += in->items[k].len;
            in->charged -= on_disk(in->items[k].len);
            in->plans[k].writes = false;
        }
        in->c->pause_ns = 0;
        pthread_mutex_unlock(&in->c->lock);
    }
    return CAIRN_OK;
}

static int insert(struct insert *in, bool *stale, struct cairn_error *err)
{
    pthread_mutex_lock(&in->c->lock);
    look_locked(in);
    uint64_t bytes = bytes_to_write(in), file = in->p->end ? 0 : NEW_FILE_LEN;
    pthread_mutex_unlock(&in->c->lock);
    *stale = false;
    if (!bytes)
        return CAIRN_OK;
    if (!budget_charge(in->c->budget, bytes + file))
        return error_set(err, CAIRN_BUSY, 0, "the cache's bound is reached");
    in->charged = bytes;
    int rc = take_places(in, stale, err);
    if (!rc && !in->reserves)
        rc = write_all(in, err);
    /* What others had written meanwhile, or could not be. */
    budget_credit(in->c->budget, in->charged);
    return rc;
}

/* One or several chunks of a pack whose file is open. */
static int insert_into(struct cache *c, struct cache_pack *p, const struct cache_item *items,
                       size_t n, bool reserves, bool *stale, struct cairn_error *err)
{
    struct insert in = {.c = c, .p = p, .items = items, .n = n, .reserves = reserves};
    struct plan few[PIECES_MAX] = {0};
    CLEANUP_FREE struct plan *many = NULL;
    in.plans = few;
    if (n > PIECES_MAX)
        in.plans = many = calloc(n, sizeof(*many));
    if (!in.plans)
        return error_oom(err, "cache");
    int rc = insert(&in, stale, err);
    if (rc && !reserves) {
        pthread_mutex_lock(&c->lock);
        for (size_t i = 0; i < n; i++)
            c->stats.not_kept += in.plans[i].writes;
        pthread_mutex_unlock(&c->lock);
    }
    return rc;
}

static void add(struct cache *c, const uint8_t pack[PACK_ID_LEN], const struct cache_item *items,
                size_t n, bool reserves)
{
    struct cairn_error err;
    int rc = CAIRN_OK;
    for (int tries = 0; tries < 2; tries++) {
        struct cache_pack *p = cache_pack_get(c, pack, true, &err);
        bool stale = false;
        rc = p ? insert_into(c, p, items, n, reserves, &stale, &err) : err.error_class;
        if (stale)
            cache_pack_forget(c, p);
        if (p)
            cache_pack_put(c, p);
        if (!stale)
            break;
    }
    /* Neither the bound nor another process at the same file is a fault of the disk. */
    if (rc && rc != CAIRN_BUSY && rc != CAIRN_NOT_FOUND)
        cache_failed(c, &err);
}

void cache_insert(struct cache *c, const uint8_t pack[PACK_ID_LEN], const struct cache_item *items,
                  size_t n)
{
    if (!cache_paused(c)) {
        add(c, pack, items, n, false);
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->stats.not_kept += n;
    pthread_mutex_unlock(&c->lock);
}

void cache_reserve(struct cache *c, const uint8_t pack[PACK_ID_LEN], const struct cache_item *items,
                   size_t n)
{
    if (!cache_paused(c))
        add(c, pack, items, n, true);
}
