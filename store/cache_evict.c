#include "store/cache_private.h"

#include "base/clock.h"
#include "base/step.h"
#include "base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int64_t stamp(const struct timespec *ts)
{
    return (int64_t)ts->tv_sec * NS_PER_S + ts->tv_nsec;
}

/* Files that go while they are listed are passed over. */
static int scan_folder(int root, const char *name, budget_emit *emit, void *to,
                       struct cairn_error *err)
{
    int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return e == ENOENT ? CAIRN_OK : error_sys(err, e, "opening folder %s", name);
    }
    const struct dirent *d;
    while ((errno = 0, d = readdir(dir))) {
        uint8_t pack[PACK_ID_LEN];
        struct stat st;
        if (!util_unhex(d->d_name, pack, PACK_ID_LEN) || d->d_name[2 * PACK_ID_LEN] ||
            fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        struct budget_item item = {.bytes = (uint64_t)st.st_blocks * 512,
                                   .used_ns = stamp(&st.st_atim)};
        if (stamp(&st.st_mtim) > item.used_ns)
            item.used_ns = stamp(&st.st_mtim);
        snprintf(item.name, sizeof(item.name), "%.2s/%.32s", d->d_name, d->d_name);
        int rc = emit(to, &item, err);
        if (rc)
            return rc;
    }
    if (errno) {
        int e = errno;
        return error_sys(err, e, "reading folder %s", name);
    }
    return CAIRN_OK;
}

static int scan(void *ctx, budget_emit *emit, void *to, struct cairn_error *err)
{
    struct cache *c = ctx;
    CLEANUP_FD int root = open(c->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        int e = errno;
        return error_sys(err, e, "opening %s", c->folder);
    }
    CLEANUP_DIR DIR *dir = fdopendir(root);
    if (!dir) {
        int e = errno;
        return error_sys(err, e, "opening %s", c->folder);
    }
    root = -1; /* dir's */
    int rc = CAIRN_OK;
    const struct dirent *d;
    while (!rc && (errno = 0, d = readdir(dir))) {
        uint8_t first;
        if (util_unhex(d->d_name, &first, 1))
            rc = scan_folder(dirfd(dir), d->d_name, emit, to, err);
    }
    if (!rc && errno) {
        int e = errno;
        rc = error_sys(err, e, "reading %s", c->folder);
    }
    return rc;
}

static int evict(void *ctx, const struct budget_item *item, struct cairn_error *err)
{
    struct cache *c = ctx;
    char path[CACHE_PATH_MAX];
    uint8_t pack[PACK_ID_LEN];
    if (strlen(item->name) != 3 + 2 * PACK_ID_LEN || !util_unhex(item->name + 3, pack, PACK_ID_LEN))
        return error_set(err, CAIRN_INTERNAL, 0, "no name of a cache file");
    cache_path(c, pack, path);
    if (unlink(path) != 0 && errno != ENOENT) {
        int e = errno;
        return error_sys(err, e, "removing it");
    }
    STEP("cache.removed");
    pthread_mutex_lock(&c->lock);
    struct cache_pack *p = cache_pack_find_locked(c, pack);
    if (p)
        p->refs++;
    pthread_mutex_unlock(&c->lock);
    if (p) {
        cache_pack_forget(c, p);
        cache_pack_put(c, p);
    }
    return CAIRN_OK;
}

const struct budget_source cache_source = {.what = "chunks", .scan = scan, .evict = evict};
