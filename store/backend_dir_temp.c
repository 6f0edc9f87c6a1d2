#include "base/step.h"
#include "base/util.h"
#include "store/backend_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

/* Bytes written between two looks at the op. */
#define PIECE ((size_t)1 << 20)

/* A file in tmp/, locked (flock) as long as its writer lives: without the lock it is garbage. */
struct temp {
    int folder, fd; /* owned */
    char name[33];  /* "" once it is installed or gone */
};

#define TEMP_INIT    ((struct temp){.folder = -1, .fd = -1})
#define CLEANUP_TEMP __attribute__((cleanup(temp_release)))

/* Removes the file unless it was installed. Keeps errno. */
static void temp_release(struct temp *t)
{
    int e = errno;
    if (t->fd >= 0 && t->name[0])
        (void)!unlinkat(t->folder, t->name, 0);
    if (t->fd >= 0)
        close(t->fd);
    if (t->folder >= 0)
        close(t->folder);
    *t = TEMP_INIT;
    errno = e;
}

/* A fresh file with its lock, in the open folder t. EAGAIN: a collector was quicker than the lock,
 * ENOENT: the folder is gone. */
static int temp_try(struct temp *t)
{
    uint8_t random[16];
    if (!util_random(random, sizeof(random)))
        return -1;
    char name[sizeof(t->name)];
    util_hex(random, sizeof(random), name);
    CLEANUP_FD int fd =
        openat(t->folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    STEP("backend.temp-created");
    struct stat st;
    bool taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    /* A file system without flock leaves age as the only sign of a dead writer. */
    if (taken || fstat(fd, &st) != 0 || st.st_nlink == 0) {
        (void)!unlinkat(t->folder, name, 0);
        errno = EAGAIN;
        return -1;
    }
    memcpy(t->name, name, sizeof(name));
    t->fd = util_steal_fd(&fd);
    return 0;
}

static int temp_new(const struct dir_backend *d, const char *verb, const char *key, struct temp *t,
                    struct cairn_error *err)
{
    *t = TEMP_INIT;
    for (int i = 0; i < DIR_TRIES; i++) {
        t->folder = dir_folder(d, "tmp", true);
        if (t->folder >= 0 && temp_try(t) == 0)
            return CAIRN_OK;
        int e = errno;
        temp_release(t);
        if (e != EAGAIN && e != EINTR && e != EEXIST && e != ENOENT)
            return dir_fail_write(d, e, verb, key, err);
        int rc = dir_root_check(d, verb, err);
        if (rc)
            return rc;
    }
    return dir_fail_write(d, EAGAIN, verb, key, err);
}

int dir_rename_once(int from_folder, const char *from, int to_folder, const char *to)
{
    if (renameat2(from_folder, from, to_folder, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        return -1;
    if (linkat(from_folder, from, to_folder, to, 0) != 0)
        return -1;
    /* From here the object is there; a name too many is garbage, not a failure. */
    (void)!unlinkat(from_folder, from, 0);
    return 0;
}

/* Into the folder of key, which may be made here or go away meanwhile. The folder, or -1. */
static int give_name(const struct dir_backend *d, const char *parent, const char *leaf, bool once,
                     struct temp *t)
{
    for (int i = 0; i < DIR_TRIES; i++) {
        CLEANUP_FD int folder = dir_folder(d, parent, true);
        if (folder < 0)
            return -1;
        int rc = once ? dir_rename_once(t->folder, t->name, folder, leaf)
                      : renameat(t->folder, t->name, folder, leaf);
        if (rc == 0) {
            t->name[0] = 0;
            return util_steal_fd(&folder);
        }
        if (errno != ENOENT)
            return -1;
        struct stat st;
        if (fstat(t->fd, &st) == 0 && st.st_nlink == 0)
            break; /* the temporary file is what was taken away */
    }
    errno = ENOENT;
    return -1;
}

/* Of what is only staged the bytes are written, and errors of that told here, while the journal of
 * the file system is left to the fsync of the manifest that follows, and dir_commit makes sure of
 * it: one journal commit less, about a millisecond. */
static int make_durable(int fd, enum dir_install how)
{
    if (how == DIR_STAGE) {
        if (sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0)
            return 0;
        if (errno == EIO || errno == ENOSPC || errno == EDQUOT)
            return -1; /* told once: fsync would know nothing of it */
    }
    return fsync(fd);
}

/* fsync the file, give it its name, fsync the folder. */
static int temp_install(const struct dir_backend *d, const struct cairn_op *op, const char *verb,
                        const char *key, enum dir_install how, struct temp *t,
                        struct cairn_error *err)
{
    char parent[PATH_MAX];
    const char *leaf = dir_split(key, parent);
    if (make_durable(t->fd, how) != 0)
        return dir_fail_write(d, errno, verb, key, err);
    STEP("backend.temp-synced");
    int rc = dir_op_check(op, verb, key, err);
    if (rc)
        return rc;
    CLEANUP_FD int folder = give_name(d, parent, leaf, how == DIR_ONCE, t);
    if (folder < 0)
        return dir_fail_write(d, errno, verb, key, err);
    STEP("backend.renamed");
    if (how != DIR_STAGE && dir_folder_settle(d, parent, folder) != 0)
        return dir_fail_write(d, errno, verb, key, err);
    return CAIRN_OK;
}

int dir_write(const struct dir_backend *d, const struct cairn_op *op, const char *verb,
              const char *key, const void *data, size_t len, enum dir_install how,
              struct cairn_error *err)
{
    CLEANUP_TEMP struct temp t = TEMP_INIT;
    int rc = dir_begin(op, verb, key, err);
    if (!rc)
        rc = temp_new(d, verb, key, &t, err);
    for (size_t done = 0; !rc && done < len;) {
        size_t n = len - done < PIECE ? len - done : PIECE;
        rc = dir_op_check(op, verb, key, err);
        if (!rc && util_pwrite_full(t.fd, (const char *)data + done, n, done) < 0)
            rc = dir_fail_write(d, errno, verb, key, err);
        done += n;
    }
    if (rc)
        return rc;
    STEP("backend.temp-written");
    return temp_install(d, op, verb, key, how, &t, err);
}

int dir_put(struct backend *b, const struct cairn_op *op, const char *key, const void *data,
            size_t len, struct cairn_error *err)
{
    return dir_write(dir_of(b), op, "put", key, data, len, DIR_REPLACE, err);
}

/* ---- Uploads ---- */

struct dir_upload {
    struct backend_upload base;
    struct temp temp; /* its fd is base.fd */
};

int dir_upload_new(struct backend *b, const struct cairn_op *op, struct backend_upload **out,
                   struct cairn_error *err)
{
    int rc = dir_op_check(op, "upload to", "tmp", err);
    if (rc)
        return rc;
    struct dir_upload *up = calloc(1, sizeof(*up));
    if (!up)
        return error_oom(err, "upload");
    rc = temp_new(dir_of(b), "upload to", "tmp", &up->temp, err);
    if (rc) {
        free(up);
        return rc;
    }
    up->base.backend = b;
    up->base.fd = up->temp.fd;
    snprintf(up->base.tmp_name, sizeof(up->base.tmp_name), LAYOUT_TMP "%s", up->temp.name);
    *out = &up->base;
    return CAIRN_OK;
}

void dir_upload_abort(struct backend_upload *base)
{
    struct dir_upload *up = (struct dir_upload *)base;
    temp_release(&up->temp);
    free(up);
}

/* The file is exactly size bytes long; room reserved beyond is given back. */
static int trim(const struct dir_backend *d, struct temp *t, const char *key, uint64_t size,
                struct cairn_error *err)
{
    struct stat st;
    if (fstat(t->fd, &st) != 0)
        return dir_fail_write(d, errno, "upload", key, err);
    if ((uint64_t)st.st_size < size)
        return error_set(err, CAIRN_INTERNAL, 0, "upload %s: %llu bytes written, not %llu", key,
                         (unsigned long long)st.st_size, (unsigned long long)size);
    if ((uint64_t)st.st_size > size && ftruncate(t->fd, (off_t)size) != 0)
        return dir_fail_write(d, errno, "upload", key, err);
    return CAIRN_OK;
}

int dir_upload_commit(struct backend_upload *base, const struct cairn_op *op, const char *key,
                      uint64_t size, struct cairn_error *err)
{
    struct dir_upload *up = (struct dir_upload *)base;
    const struct dir_backend *d = dir_of(base->backend);
    STEP("backend.upload-written");
    int rc = dir_begin(op, "upload", key, err);
    if (!rc)
        rc = trim(d, &up->temp, key, size, err);
    if (!rc)
        rc = temp_install(d, op, "upload", key, DIR_ONCE, &up->temp, err);
    dir_upload_abort(base);
    return rc;
}
