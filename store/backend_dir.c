#include "store/backend_dir.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

/* Bytes moved between two looks at the op. */
#define PIECE ((size_t)1 << 20)

/* A class with its own words: "<verb> <key>: <detail>". */
static int fail_with(int error_class, int sys_errno, const char *verb, const char *key,
                     const char *detail, struct cairn_error *err)
{
    char shown[DIR_SHOWN_MAX];
    dir_key_show(key, shown);
    return error_set(err, error_class, sys_errno, "%s %s: %s", verb, shown, detail);
}

/* A regular file at key. Nonblocking, so that a fifo in the store hangs nobody. */
static int open_object(const struct dir_backend *d, const char *verb, const char *key, int *fd,
                       struct stat *st, struct cairn_error *err)
{
    CLEANUP_FD int f = dir_resolve(d, key, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (f < 0 || fstat(f, st) != 0)
        return dir_fail(d, errno, verb, key, err);
    if (S_ISDIR(st->st_mode))
        return dir_fail(d, ENOENT, verb, key, err);
    if (!S_ISREG(st->st_mode))
        return fail_with(CAIRN_PERMANENT, EINVAL, verb, key, "not a regular file", err);
    *fd = util_steal_fd(&f);
    return CAIRN_OK;
}

static int fail_short(const char *key, uint64_t off, size_t len, uint64_t size,
                      struct cairn_error *err)
{
    char detail[96];
    snprintf(detail, sizeof(detail), "%zu bytes wanted at %llu, it ends at %llu", len,
             (unsigned long long)off, (unsigned long long)size);
    return fail_with(CAIRN_CORRUPT, 0, "read", key, detail, err);
}

static int read_range(const struct dir_backend *d, const struct cairn_op *op, const char *key,
                      int fd, uint64_t off, void *dst, size_t len, struct cairn_error *err)
{
    for (size_t done = 0; done < len;) {
        size_t n = len - done < PIECE ? len - done : PIECE;
        int rc = dir_op_check(op, "read", key, err);
        if (rc)
            return rc;
        ssize_t got = util_pread_full(fd, (char *)dst + done, n, off + done);
        if (got < 0)
            return dir_fail(d, errno, "read", key, err);
        if ((size_t)got < n)
            return fail_short(key, off, len, off + done + (size_t)got, err);
        done += n;
    }
    return CAIRN_OK;
}

static int dir_get(struct backend *b, const struct cairn_op *op, const char *key, size_t max,
                   struct buf *out, struct backend_stat *stat_out, struct cairn_error *err)
{
    struct dir_backend *d = dir_of(b);
    CLEANUP_FD int fd = -1;
    struct stat st;
    int rc = dir_begin(op, "get", key, err);
    if (!rc)
        rc = open_object(d, "get", key, &fd, &st, err);
    if (rc)
        return rc;
    if ((uint64_t)st.st_size > max)
        return fail_with(CAIRN_CORRUPT, EFBIG, "get", key, "larger than such an object can be",
                         err);
    size_t len = (size_t)st.st_size;
    rc = buf_reserve(out, len, err);
    if (!rc && len)
        rc = read_range(d, op, key, fd, 0, out->data + out->len, len, err);
    if (rc)
        return rc;
    out->len += len;
    if (stat_out)
        dir_stat_of(&st, stat_out);
    return CAIRN_OK;
}

static int dir_read(struct backend *b, const struct cairn_op *op, const char *key, uint64_t off,
                    void *dst, size_t len, struct cairn_error *err)
{
    struct dir_backend *d = dir_of(b);
    CLEANUP_FD int fd = -1;
    struct stat st;
    int rc = dir_begin(op, "read", key, err);
    if (!rc)
        rc = open_object(d, "read", key, &fd, &st, err);
    if (rc)
        return rc;
    uint64_t size = (uint64_t)st.st_size;
    if (off > size || len > size - off)
        return fail_short(key, off, len, size, err);
    return read_range(d, op, key, fd, off, dst, len, err);
}

static int dir_stat(struct backend *b, const struct cairn_op *op, const char *key,
                    struct backend_stat *out, struct cairn_error *err)
{
    struct dir_backend *d = dir_of(b);
    int rc = dir_begin(op, "stat", key, err);
    if (rc)
        return rc;
    struct stat st;
    CLEANUP_FD int fd = dir_resolve(d, key, O_PATH);
    if (fd < 0 || fstat(fd, &st) != 0)
        return dir_fail(d, errno, "stat", key, err);
    if (S_ISDIR(st.st_mode))
        return dir_fail(d, ENOENT, "stat", key, err);
    if (!S_ISREG(st.st_mode))
        return fail_with(CAIRN_PERMANENT, EINVAL, "stat", key, "not a regular file", err);
    dir_stat_of(&st, out);
    return CAIRN_OK;
}

static int dir_open_fd(struct backend *b, const struct cairn_op *op, const char *key, int *fd,
                       struct cairn_error *err)
{
    struct stat st;
    int rc = dir_begin(op, "open", key, err);
    return rc ? rc : open_object(dir_of(b), "open", key, fd, &st, err);
}

static int dir_space(struct backend *b, uint64_t *avail, uint64_t *total, struct cairn_error *err)
{
    struct dir_backend *d = dir_of(b);
    struct statvfs st;
    int rc = dir_root_check(d, "space", err);
    if (rc)
        return rc;
    if (fstatvfs(d->root, &st) != 0)
        return error_sys(err, errno, "free space of %s", d->path);
    *avail = (uint64_t)st.f_bavail * st.f_frsize;
    *total = (uint64_t)st.f_blocks * st.f_frsize;
    return CAIRN_OK;
}

static void dir_free(struct backend *b)
{
    struct dir_backend *d = dir_of(b);
    if (d->root >= 0)
        close(d->root);
    free(d->path);
    free(d);
}

static const struct backend_ops ops = {
    .kind = "dir",
    .free = dir_free,
    .get = dir_get,
    .read = dir_read,
    .stat = dir_stat,
    .put = dir_put,
    .remove = dir_remove,
    .list = dir_list,
    .list_folders = dir_list_folders,
    .iter_next = dir_iter_next,
    .iter_free = dir_iter_free,
    .upload_new = dir_upload_new,
    .upload_commit = dir_upload_commit,
    .upload_abort = dir_upload_abort,
    .stage = dir_stage,
    .commit = dir_commit,
    .unstage = dir_unstage,
    .lock = dir_lock,
    .unlock = dir_unlock,
    .open_fd = dir_open_fd,
    .space = dir_space,
};

/* openat2 is absent before Linux 5.6, and refused with EPERM by old container runtimes. */
static bool has_openat2(const struct dir_backend *d)
{
    CLEANUP_FD int fd = dir_resolve(d, ".", O_PATH | O_DIRECTORY);
    return fd >= 0;
}

int backend_dir_open(const char *path, struct backend **out, struct cairn_error *err)
{
    CLEANUP_FD int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        int rc = error_sys(err, errno, "store folder %s", path);
        if (rc != CAIRN_NOT_FOUND)
            return rc;
        if (err)
            err->error_class = CAIRN_PERMANENT;
        return CAIRN_PERMANENT;
    }
    struct dir_backend *d = calloc(1, sizeof(*d));
    char *copy = strdup(path);
    if (!d || !copy) {
        free(d);
        free(copy);
        return error_oom(err, "directory backend");
    }
    *d = (struct dir_backend){
        .base.ops = &ops, .root = util_steal_fd(&root), .openat2 = true, .path = copy};
    d->openat2 = has_openat2(d);
    *out = &d->base;
    return CAIRN_OK;
}
