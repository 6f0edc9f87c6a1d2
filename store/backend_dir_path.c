#include "base/step.h"
#include "base/util.h"
#include "store/backend_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

/* ---- Keys and errors ---- */

void dir_key_show(const char *key, char out[DIR_SHOWN_MAX])
{
    size_t n = 0;
    for (; *key && n + 8 < DIR_SHOWN_MAX; key++) {
        unsigned char c = (unsigned char)*key;
        n += (size_t)snprintf(out + n, DIR_SHOWN_MAX - n, c >= 0x20 && c < 0x7f ? "%c" : "\\x%02x",
                              c);
    }
    snprintf(out + n, DIR_SHOWN_MAX - n, "%s", *key ? "..." : "");
}

int dir_key_check(const char *key, struct cairn_error *err)
{
    bool bad = strlen(key) >= PATH_MAX;
    for (const char *p = key; !bad; p++) {
        size_t n = strcspn(p, "/");
        bad = n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.');
        p += n;
        if (!*p)
            break;
    }
    if (!bad)
        return CAIRN_OK;
    char shown[DIR_SHOWN_MAX];
    dir_key_show(key, shown);
    return error_set(err, CAIRN_INVALID, EINVAL, "bad key \"%s\"", shown);
}

int dir_op_check(const struct cairn_op *op, const char *verb, const char *key,
                 struct cairn_error *err)
{
    if (op_check(op, verb, NULL) == CAIRN_OK)
        return CAIRN_OK;
    char shown[DIR_SHOWN_MAX], what[DIR_SHOWN_MAX + 32];
    dir_key_show(key, shown);
    snprintf(what, sizeof(what), "%s %s", verb, shown);
    return op_check(op, what, err);
}

int dir_begin(const struct cairn_op *op, const char *verb, const char *key, struct cairn_error *err)
{
    int rc = dir_key_check(key, err);
    return rc ? rc : dir_op_check(op, verb, key, err);
}

int dir_root_check(const struct dir_backend *d, const char *verb, struct cairn_error *err)
{
    struct stat st;
    if (fstat(d->root, &st) != 0) {
        error_sys(err, errno, "%s: the store's folder %s", verb, d->path);
        return err ? (err->error_class = CAIRN_PERMANENT) : CAIRN_PERMANENT;
    }
    if (st.st_nlink == 0)
        return error_set(err, CAIRN_PERMANENT, ENOENT, "%s: the store's folder %s was removed",
                         verb, d->path);
    return CAIRN_OK;
}

int dir_fail(const struct dir_backend *d, int sys_errno, const char *verb, const char *key,
             struct cairn_error *err)
{
    int rc = errno_class(sys_errno) == CAIRN_NOT_FOUND ? dir_root_check(d, verb, err) : CAIRN_OK;
    if (rc)
        return rc;
    char shown[DIR_SHOWN_MAX];
    dir_key_show(key, shown);
    return error_sys(err, sys_errno, "%s %s", verb, shown);
}

int dir_fail_write(const struct dir_backend *d, int sys_errno, const char *verb, const char *key,
                   struct cairn_error *err)
{
    int rc = dir_fail(d, sys_errno, verb, key, err);
    if (rc != CAIRN_NOT_FOUND)
        return rc;
    /* ENOENT: somebody takes the folders away as fast as they are made. */
    rc = sys_errno == ENOENT ? CAIRN_TRANSIENT : CAIRN_PERMANENT;
    if (err)
        err->error_class = rc;
    return rc;
}

/* ---- Resolving ---- */

static bool is_link(int at, const char *name)
{
    struct stat st;
    return fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

int dir_step(int at, const char *name, int flags)
{
    CLEANUP_FD int fd = -1;
    do
        fd = openat(at, name, flags | O_NOFOLLOW | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        int e = errno;
        errno = e == ENOTDIR && is_link(at, name) ? ELOOP : e;
        return -1;
    }
    /* O_PATH opens the link itself. */
    struct stat st;
    if ((flags & O_PATH) && !(flags & O_DIRECTORY) && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode)) {
        errno = ELOOP;
        return -1;
    }
    return util_steal_fd(&fd);
}

static int walk(int root, const char *path, int flags)
{
    CLEANUP_FD int held = -1;
    int at = root;
    for (;;) {
        char name[NAME_MAX + 1];
        ssize_t n = util_first_name(path, name);
        if (n < 0)
            return -1;
        bool last = path[n] == 0;
        int fd = dir_step(at, name, last ? flags : O_PATH | O_DIRECTORY);
        if (fd < 0 || last)
            return fd;
        if (held >= 0)
            close(held);
        at = held = fd;
        path += n + 1;
    }
}

int dir_resolve(const struct dir_backend *d, const char *path, int flags)
{
    if (!*path)
        return openat(d->root, ".", flags | O_CLOEXEC);
    if (!d->openat2)
        return walk(d->root, path, flags);
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd;
    do
        fd = syscall(SYS_openat2, d->root, path, &how, sizeof(how));
    while (fd < 0 && errno == EINTR);
    return (int)fd;
}

const char *dir_split(const char *key, char parent[PATH_MAX])
{
    const char *slash = strrchr(key, '/');
    size_t n = slash ? (size_t)(slash - key) : 0;
    memcpy(parent, key, n);
    parent[n] = 0;
    return slash ? slash + 1 : key;
}

/* ---- Folders ---- */

int dir_folder_sync(int fd)
{
    int rc;
    do
        rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc != 0 && (errno == EINVAL || errno == ENOTSUP) ? 0 : rc;
}

static bool is_unsynced(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (st.st_mode & (S_ISVTX | 0777)) == DIR_FOLDER_UNSYNCED;
}

/* The folder fd, in parent, becomes durable, then loses its mark. */
static int settle(int parent, int fd)
{
    if (dir_folder_sync(parent) != 0)
        return -1;
    STEP("backend.made-folder-synced");
    /* A mark that stays (the folder is another user's) costs an fsync each time. */
    (void)!fchmod(fd, DIR_FOLDER_UNSYNCED & 0777);
    return 0;
}

/* One step of walk_folders: opens name in parent. */
static int walk_into(int parent, const char *name, bool make, bool promise)
{
    bool made = make && mkdirat(parent, name, promise ? DIR_FOLDER_UNSYNCED : 0700) == 0;
    if (make && !made && errno != EEXIST)
        return -1;
    if (made)
        STEP("backend.folder-made");
    CLEANUP_FD int fd = dir_step(parent, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return -1;
    /* A file system that keeps no such mode bit pays at once. */
    bool now = made ? promise && !is_unsynced(fd) : !make && is_unsynced(fd);
    if (now && settle(parent, fd) != 0)
        return -1;
    return util_steal_fd(&fd);
}

/* Goes down path name by name. make: what is missing is made, marked. Else: what is marked becomes
 * durable in its parent and loses its mark, from the top, so that a folder without a mark has none
 * above it either. ENOENT: a folder was taken away meanwhile. */
static int walk_folders(const struct dir_backend *d, const char *path, bool make)
{
    /* Nothing in tmp/ is promised to outlive a crash. */
    bool promise = strcmp(path, "tmp") != 0;
    CLEANUP_FD int parent = dir_resolve(d, "", O_RDONLY | O_DIRECTORY);
    for (const char *p = path; parent >= 0; p++) {
        char name[NAME_MAX + 1];
        ssize_t n = util_first_name(p, name);
        if (n < 0)
            return -1;
        int fd = walk_into(parent, name, make, promise);
        if (fd < 0)
            return -1;
        close(parent);
        parent = fd;
        p += n;
        if (!*p)
            return 0;
    }
    return -1;
}

int dir_folder(const struct dir_backend *d, const char *path, bool make)
{
    for (int i = 0; i < DIR_TRIES; i++) {
        int fd = dir_resolve(d, path, O_RDONLY | O_DIRECTORY);
        if (fd >= 0 || errno != ENOENT || !make || !*path)
            return fd;
        if (walk_folders(d, path, true) != 0 && errno != ENOENT)
            return -1;
    }
    errno = ENOENT;
    return -1;
}

int dir_folder_settle(const struct dir_backend *d, const char *path, int fd)
{
    if (dir_folder_sync(fd) != 0)
        return -1;
    STEP("backend.folder-synced");
    if (!*path || !is_unsynced(fd))
        return 0;
    /* Who took the folder away took what was in it before. */
    return walk_folders(d, path, false) == 0 || errno == ENOENT ? 0 : -1;
}

void dir_stat_of(const struct stat *st, struct backend_stat *out)
{
    *out = (struct backend_stat){
        .size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
    };
}
