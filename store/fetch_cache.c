#include "store/fetch_cache.h"

#include "base/util.h"
#include "store/budget.h"
#include "store/cache_fill.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

static bool has_room(struct cairn_store *s, const struct manifest_info *info)
{
    struct budget_stats st;
    if (!s->fills || !s->cache)
        return false;
    budget_stats(s->budget, &st);
    return info->data_bytes <= st.limit / 2;
}

bool fetch_cache_keeps(struct cairn_store *s, const struct manifest_info *info)
{
    return info->parent_id[0] && has_room(s, info);
}

/* Two empty files can share their bytes: a file system that cannot says so. One that cannot make
 * them without a name is asked when there is something to share. */
static bool can_clone(int from, int to)
{
    CLEANUP_FD int a = openat(from, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    CLEANUP_FD int b = openat(to, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return a < 0 || b < 0 || ioctl(b, FICLONE, a) == 0;
}

bool fetch_cache_is_near(struct cairn_store *s, const struct manifest_info *info, int folder)
{
    struct stat here, there;
    CLEANUP_FREE char *path = NULL;
    if (!has_room(s, info))
        return false;
    if (asprintf(&path, "%s/cache", s->state) < 0) {
        path = NULL;
        return false;
    }
    CLEANUP_FD int cache = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return cache >= 0 && fstat(folder, &here) == 0 && fstat(cache, &there) == 0 &&
           here.st_dev == there.st_dev && can_clone(cache, folder);
}

static uint32_t chunk_size(const struct fetch_piece *p)
{
    return p->s->format.chunk_size;
}

/* Chunks that lie behind each other in the cache, to be taken with one call. */
struct run {
    struct fill_place place; /* of the first, and the reference for all */
    uint32_t i, n;
    uint64_t len;
};

/* Whole chunks only: a file system shares whole blocks. */
static bool share_run(const struct fetch_piece *p, const struct run *run)
{
    if (!atomic_load(p->clones) || run->len != (uint64_t)run->n * chunk_size(p))
        return false;
    struct file_clone_range range = {.src_fd = run->place.ref.fd,
                                     .src_offset = run->place.ref.at,
                                     .src_length = run->len,
                                     .dest_offset = p->nos[run->i] * chunk_size(p)};
    bool ok = ioctl(p->fd, FICLONERANGE, &range) == 0;
    if (ok)
        atomic_fetch_add(p->cloned_bytes, run->len);
    else
        atomic_store(p->clones, false);
    return ok;
}

/* What cannot be read stays FETCH_NOT: it is then downloaded. */
static void end_run(const struct fetch_piece *p, struct run *run)
{
    enum fetch_got got = FETCH_NOT;
    if (!run->n)
        return;
    if (share_run(p, run))
        got = FETCH_SHARED;
    else if (!p->plain)
        got = FETCH_NOT;
    else if (util_pread_full(run->place.ref.fd, p->plain + (size_t)run->i * chunk_size(p), run->len,
                             run->place.ref.at) == (ssize_t)run->len)
        got = FETCH_PLAIN;
    else
        cache_doubt(p->s->cache, &run->place.ref);
    memset(p->got + run->i, (int)got, run->n);
    fill_place_release(p->s, &run->place);
    run->n = 0;
}

static void take_place(const struct fetch_piece *p, struct run *run, uint32_t i,
                       struct fill_place *place)
{
    if (run->n && run->i + run->n == i && p->nos[i] == p->nos[run->i] + run->n &&
        run->place.ref.pack == place->ref.pack && run->place.ref.at + run->len == place->ref.at) {
        run->len += place->len;
        run->n++;
        fill_place_release(p->s, place);
        return;
    }
    end_run(p, run);
    *run = (struct run){.place = *place, .i = i, .n = 1, .len = place->len};
}

void fetch_cache_take(const struct fetch_piece *p, const struct fill_want *wants,
                      struct chunk_ctx *ctx)
{
    struct run run = {.n = 0};
    memset(p->got, FETCH_NOT, p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        struct fill_place place;
        if (fill_find_cached(p->s, &wants[i], ctx->base, &place))
            take_place(p, &run, i, &place);
    }
    end_run(p, &run);
}
