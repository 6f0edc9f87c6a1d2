#include "store/cache_file.h"

#include "base/step.h"
#include "base/util.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAGIC     "CAIRNCA1"
#define CHECK_LEN 8
#define READ_LEN  4096u
/* It is held for some microseconds. */
#define LOCK_TRIES       120
#define LOCK_TRIES_SHORT 20
#define LOCK_SHORT_NS    50000
#define LOCK_LONG_NS     1000000

/* The byte of the file that is locked in its stead; no lock keeps anybody from reading or writing.
 */
#define LOCK_APPEND 0

/* ---- Header ---------------------------------------------------------------------------------- */

/* | 0 magic | 8 version | 12 chunk size | 16 pack | 32 checksum (XXH3-128 of the bytes before) | */
#define HEADER_USED 48

static void make_header(const struct cache_file *p, uint8_t out[HEADER_USED])
{
    memcpy(out, MAGIC, 8);
    put_le32(out + 8, CACHE_FILE_VERSION);
    put_le32(out + 12, p->chunk_size);
    memcpy(out + 16, p->pack, PACK_ID_LEN);
    hash_xxh3(p->secret, out, 32, out + 32);
}

/* CAIRN_NOT_FOUND: it has none of ours. */
static int check_header(const struct cache_file *p, int fd, const char *path,
                        struct cairn_error *err)
{
    uint8_t is[HEADER_USED], want[HEADER_USED];
    make_header(p, want);
    ssize_t n = util_pread_full(fd, is, sizeof(is), 0);
    int e = errno;
    if (n < 0)
        return error_sys(err, e, "reading %s", path);
    if ((size_t)n == sizeof(is) && memcmp(is, want, sizeof(is)) == 0)
        return CAIRN_OK;
    return error_set(err, CAIRN_NOT_FOUND, ENOENT, "%s is no cache file of this pack", path);
}

static int write_header(const struct cache_file *p, int fd, const char *path,
                        struct cairn_error *err)
{
    uint8_t header[HEADER_USED];
    make_header(p, header);
    if (util_pwrite_full(fd, header, sizeof(header), 0) < 0) {
        int e = errno;
        return error_sys(err, e, "writing %s", path);
    }
    return CAIRN_OK;
}

/* The folder above is made with the first file in it. */
static int open_file(const char *path, int flags, int *fd, struct cairn_error *err)
{
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (*fd < 0 && errno == ENOENT && (flags & O_CREAT)) {
        CLEANUP_FREE char *folder = strdup(path);
        char *slash = folder ? strrchr(folder, '/') : NULL;
        if (!slash)
            return error_oom(err, "path");
        *slash = 0;
        int rc = store_make_cache_folders(folder, err);
        if (rc)
            return rc;
        *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    }
    if (*fd < 0) {
        int e = errno;
        return error_sys(err, e, "opening %s", path);
    }
    return CAIRN_OK;
}

int cache_file_open(const struct cache_file *p, const char *path, bool create, int *out,
                    struct cairn_error *err)
{
    for (int tries = 0;; tries++) {
        CLEANUP_FD int fd = -1;
        struct stat st;
        int rc = open_file(path, create ? O_CREAT : 0, &fd, err);
        if (rc)
            return rc;
        STEP("cache.opened");
        if (fstat(fd, &st) != 0) {
            int e = errno;
            return error_sys(err, e, "looking at %s", path);
        }
        /* Whoever finds it empty writes the header; all write the same one. */
        if (create && st.st_size == 0 && (rc = write_header(p, fd, path, err)) != 0)
            return rc;
        rc = check_header(p, fd, path, err);
        if (!rc) {
            *out = util_steal_fd(&fd);
            return CAIRN_OK;
        }
        if (rc != CAIRN_NOT_FOUND || !create || tries)
            return rc;
        /* Never written over: somebody may be reading it. */
        if (unlink(path) != 0 && errno != ENOENT) {
            int e = errno;
            return error_sys(err, e, "removing %s", path);
        }
    }
}

/* ---- Records --------------------------------------------------------------------------------- */

/* | 0 offset | 4 plain length | 8 checksum | */
static void make_record(const struct cache_file *p, uint32_t place, const struct cache_record *r,
                        uint8_t out[CACHE_RECORD_LEN])
{
    uint8_t text[PACK_ID_LEN + 12], sum[XXH3_LEN];
    memcpy(text, p->pack, PACK_ID_LEN);
    put_le32(text + PACK_ID_LEN, place);
    put_le32(text + PACK_ID_LEN + 4, r->offset);
    put_le32(text + PACK_ID_LEN + 8, r->plain_len);
    hash_xxh3(p->secret, text, sizeof(text), sum);
    put_le32(out, r->offset);
    put_le32(out + 4, r->plain_len);
    memcpy(out + 8, sum, CHECK_LEN);
}

static struct cache_record read_record(const struct cache_file *p, uint32_t place,
                                       const uint8_t in[CACHE_RECORD_LEN])
{
    struct cache_record r = {get_le32(in), get_le32(in + 4)};
    uint8_t want[CACHE_RECORD_LEN];
    make_record(p, place, &r, want);
    if (memcmp(in, want, sizeof(want)) != 0 || r.plain_len < 1 || r.plain_len > p->chunk_size)
        r.offset = 0;
    return r;
}

int cache_file_records(const struct cache_file *p, int fd, bool locked, uint32_t from,
                       cache_file_fn *fn, void *ctx, uint32_t *end, struct cairn_error *err)
{
    uint8_t page[READ_LEN];
    *end = from;
    while (*end < CACHE_PLACES) {
        uint64_t at = CACHE_HEADER_LEN + (uint64_t)*end * CACHE_RECORD_LEN;
        size_t len = READ_LEN - at % READ_LEN;
        ssize_t n = util_pread_full(fd, page, len, at);
        int e = errno;
        if (n < 0)
            return error_sys(err, e, "reading a map of the cache");
        for (size_t i = 0; i < (size_t)n / CACHE_RECORD_LEN; i++) {
            const uint8_t *bytes = page + i * CACHE_RECORD_LEN;
            if (util_is_zero(bytes, CACHE_RECORD_LEN))
                return CAIRN_OK;
            struct cache_record r = read_record(p, *end, bytes);
            if (!r.offset && !locked)
                return CAIRN_OK;
            fn(ctx, *end, &r);
            ++*end;
        }
        if ((size_t)n < len)
            return CAIRN_OK;
    }
    return CAIRN_OK;
}

int cache_file_append(const struct cache_file *p, int fd, uint32_t at,
                      const struct cache_record *records, uint32_t n, struct cairn_error *err)
{
    if (n > CACHE_PLACES - at)
        return error_set(err, CAIRN_BUSY, EFBIG, "a map of the cache is full");
    uint8_t page[READ_LEN];
    for (uint32_t done = 0; done < n;) {
        uint32_t part =
            n - done < READ_LEN / CACHE_RECORD_LEN ? n - done : READ_LEN / CACHE_RECORD_LEN;
        for (uint32_t i = 0; i < part; i++)
            make_record(p, at + done + i, &records[done + i], page + (size_t)i * CACHE_RECORD_LEN);
        if (util_pwrite_full(fd, page, (size_t)part * CACHE_RECORD_LEN,
                             CACHE_HEADER_LEN + (uint64_t)(at + done) * CACHE_RECORD_LEN) < 0) {
            int e = errno;
            return error_sys(err, e, "writing a map of the cache");
        }
        STEP("cache.recorded");
        done += part;
    }
    return CAIRN_OK;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

/* Of the open file description (F_OFD_SETLK), so that threads exclude each other as processes do.
 */
bool cache_file_lock(int fd)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_APPEND, .l_len = 1};
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (fcntl(fd, F_OFD_SETLK, &l) == 0)
            return true;
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return false;
        nanosleep(
            &(struct timespec){.tv_nsec = i < LOCK_TRIES_SHORT ? LOCK_SHORT_NS : LOCK_LONG_NS},
            NULL);
    }
    return false;
}
