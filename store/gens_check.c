#include "base/clock.h"
#include "base/hash.h"
#include "store/gens_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MODE   0400
#define FOLDER_MODE 0700

int gens_key(const struct manifest *m, struct gens_key *out, struct cairn_error *err)
{
    const struct manifest_info *info = manifest_info(m);
    CLEANUP_SHA256 struct sha256 *h = NULL;
    uint8_t sum[SHA256_LEN], head[16];
    int rc = sha256_new(&h, err);
    for (uint32_t i = 0; !rc && i < info->n_files; i++) {
        struct manifest_file f;
        manifest_file(m, i, &f);
        put_le64(head, f.path_len);
        put_le64(head + 8, f.size);
        rc = sha256_update(h, head, sizeof(head), err);
        if (!rc)
            rc = sha256_update(h, f.path, f.path_len, err);
        if (!rc)
            rc = sha256_update(h, f.content, sizeof(f.content), err);
    }
    if (!rc)
        rc = sha256_final(h, sum, err);
    if (rc)
        return rc;
    memcpy(out->id, info->id, sizeof(out->id));
    memcpy(out->gen, info->gen, sizeof(out->gen));
    util_hex(sum, (GENS_CONTENT_TEXT - 1) / 2, out->content);
    return CAIRN_OK;
}

/* ---- Times and modes ---- */

/* When the record was made, as far as file systems can tell: what is written to later differs. */
static struct timespec stamp_of(const struct manifest *m)
{
    int64_t ns = manifest_info(m)->created_ns;
    if (ns < 0 || ns / NS_PER_S > INT32_MAX)
        ns = NS_PER_S;
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

/* Some file systems keep whole seconds only. */
static bool has_stamp(const struct stat *st, const struct timespec *stamp)
{
    return st->st_mtim.tv_sec == stamp->tv_sec &&
           (st->st_mtim.tv_nsec == stamp->tv_nsec || st->st_mtim.tv_nsec == 0);
}

/* Call fn for each folder of the export (its root is ".") and then for each file, until it returns
 * non-zero. Files are in the order of their paths, so a folder's are in a row. */
static int each_path(const struct manifest *m,
                     int (*fn)(void *ctx, const char *path, const struct manifest_file *file),
                     void *ctx)
{
    char path[MANIFEST_PATH_MAX + 1], last[MANIFEST_PATH_MAX + 1] = "";
    int rc = fn(ctx, ".", NULL);
    for (uint32_t i = 0; !rc && i < manifest_info(m)->n_files; i++) {
        struct manifest_file f;
        manifest_file(m, i, &f);
        memcpy(path, f.path, f.path_len);
        path[f.path_len] = 0;
        for (char *s = strchr(path, '/'); !rc && s; s = strchr(s + 1, '/')) {
            size_t n = (size_t)(s - path) + 1;
            if (strncmp(path, last, n) == 0)
                continue;
            *s = 0;
            rc = fn(ctx, path, NULL);
            *s = '/';
        }
        memcpy(last, path, f.path_len + 1u);
    }
    for (uint32_t i = 0; !rc && i < manifest_info(m)->n_files; i++) {
        struct manifest_file f;
        manifest_file(m, i, &f);
        memcpy(path, f.path, f.path_len);
        path[f.path_len] = 0;
        rc = fn(ctx, path, &f);
    }
    return rc;
}

struct freezer {
    int export;
    struct timespec stamp;
    uint64_t bytes;
    bool folders; /* this round's subject */
    struct cairn_error *err;
};

static int open_beneath(int export, const char *path, bool folder)
{
    return openat(export, path,
                  O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (folder ? O_DIRECTORY : 0));
}

static int freeze_one(void *ctx, const char *path, const struct manifest_file *file)
{
    struct freezer *f = ctx;
    if ((file == NULL) != f->folders)
        return CAIRN_OK;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, f->stamp};
    struct stat st;
    CLEANUP_FD int fd = open_beneath(f->export, path, !file);
    if (fd < 0 || fstat(fd, &st) != 0 || fchmod(fd, file ? FILE_MODE : FOLDER_MODE) != 0 ||
        futimens(fd, times) != 0) {
        int e = errno;
        return error_sys(f->err, e, "sealing %s", path);
    }
    if (file)
        f->bytes += (uint64_t)st.st_blocks * 512;
    return CAIRN_OK;
}

int gens_freeze(int export, const struct manifest *m, uint64_t *bytes, struct cairn_error *err)
{
    struct freezer f = {.export = export, .stamp = stamp_of(m), .err = err};
    int rc = each_path(m, freeze_one, &f);
    f.folders = true;
    if (!rc)
        rc = each_path(m, freeze_one, &f);
    *bytes = f.bytes;
    return rc;
}

static int look_at_one(void *ctx, const char *path, const struct manifest_file *file)
{
    const struct freezer *f = ctx;
    struct stat st;
    if (fstatat(f->export, path, &st, AT_SYMLINK_NOFOLLOW) != 0 || !has_stamp(&st, &f->stamp))
        return 1;
    if (!file)
        return !S_ISDIR(st.st_mode);
    return !S_ISREG(st.st_mode) || (uint64_t)st.st_size != file->size || (st.st_mode & 0222) != 0;
}

bool gens_is_frozen(int export, const struct manifest *m)
{
    struct freezer f = {.export = export, .stamp = stamp_of(m)};
    return each_path(m, look_at_one, &f) == 0;
}

/* ---- Bytes ---- */

static int differs(const struct manifest_file *f, struct cairn_error *err)
{
    return error_set(err, CAIRN_CORRUPT, EIO, "%.*s: its local copy is damaged", (int)f->path_len,
                     f->path);
}

static int read_all(int fd, const struct manifest_file *f, void *buf, size_t len, uint64_t off,
                    struct cairn_error *err)
{
    ssize_t n = util_pread_full(fd, buf, len, off);
    if (n >= 0)
        return (size_t)n == len ? CAIRN_OK : differs(f, err);
    int e = errno;
    return error_sys(err, e, "reading %.*s", (int)f->path_len, f->path);
}

static int check_chunk(const struct manifest *m, uint32_t index, const uint8_t *secret,
                       const void *data, size_t len, bool *same, struct cairn_error *err)
{
    const uint8_t *want = manifest_chunk_xxh(m, index);
    if (!util_is_zero(want, XXH3_LEN)) {
        uint8_t is[XXH3_LEN];
        hash_xxh3(secret, data, len, is);
        *same = memcmp(is, want, XXH3_LEN) == 0;
        return CAIRN_OK;
    }
    struct chunk c;
    uint8_t is[SHA256_LEN];
    manifest_chunk(m, index, &c);
    int rc = hash_sha256(data, len, is, err);
    *same = !rc && memcmp(is, c.sha, SHA256_LEN) == 0;
    return rc;
}

/* What no chunk covers is zero: only what the file system says is data is read. */
static int check_zeros(int fd, const struct manifest_file *f, uint64_t off, uint64_t end,
                       const struct cairn_op *op, uint8_t *buf, size_t cap, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    while (!rc && off < end) {
        off_t data = lseek(fd, (off_t)off, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        if (data > (off_t)off)
            off = (uint64_t)data;
        if (off >= end)
            break;
        size_t n = end - off < cap ? (size_t)(end - off) : cap;
        rc = op_check(op, "verifying", err);
        if (!rc)
            rc = read_all(fd, f, buf, n, off, err);
        if (!rc && !util_is_zero(buf, n))
            rc = differs(f, err);
        off += n;
    }
    return rc;
}

static int check_file(int export, const struct cairn_op *op, const struct manifest *m, uint32_t i,
                      const uint8_t *secret, uint8_t *buf, struct cairn_error *err)
{
    struct manifest_file f;
    uint32_t cs = manifest_info(m)->chunk_size;
    manifest_file(m, i, &f);
    CLEANUP_FREE char *path = strndup(f.path, f.path_len);
    if (!path)
        return error_oom(err, "path");
    CLEANUP_FD int fd = open_beneath(export, path, false);
    if (fd < 0) {
        int e = errno;
        return error_sys(err, e, "opening %s", path);
    }
    int rc = CAIRN_OK;
    for (uint64_t off = 0; !rc && off < f.size;) {
        uint32_t index;
        uint64_t run, end = f.size;
        if (!manifest_lookup(m, &f, off / cs, &index, &run)) {
            if (run < (f.size - off) / cs)
                end = off + run * cs;
            rc = check_zeros(fd, &f, off, end, op, buf, cs, err);
            off = end;
            continue;
        }
        size_t n = f.size - off < cs ? (size_t)(f.size - off) : cs;
        bool same = false;
        rc = op_check(op, "verifying", err);
        if (!rc)
            rc = read_all(fd, &f, buf, n, off, err);
        if (!rc)
            rc = check_chunk(m, index, secret, buf, n, &same, err);
        if (!rc && !same)
            rc = differs(&f, err);
        off += n;
    }
    return rc;
}

int gens_check_bytes(int export, const struct cairn_op *op, const struct manifest *m,
                     const uint8_t *secret, struct cairn_error *err)
{
    CLEANUP_FREE uint8_t *buf = malloc(manifest_info(m)->chunk_size);
    if (!buf)
        return error_oom(err, "verifying");
    int rc = CAIRN_OK;
    for (uint32_t i = 0; !rc && i < manifest_info(m)->n_files; i++)
        rc = check_file(export, op, m, i, secret, buf, err);
    return rc;
}
