#include "store/walk.h"

#include "base/util.h"
#include "store/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

const char *walk_shown(const char *path, size_t len, char out[WALK_SHOWN])
{
    char *p = out;
    size_t shown = len < 252 ? len : 252;
    for (size_t i = 0; i < shown; i++) {
        unsigned char c = (unsigned char)path[i];
        if (c < 0x20 || c == 0x7f)
            p += snprintf(p, 5, "\\x%02x", c);
        else
            *p++ = (char)c;
    }
    snprintf(p, 4, "%s", shown < len ? "..." : "");
    return out;
}

/* The same, name by name. What is moved out of the export meanwhile may still be reached through
 * a folder that was opened before: then it is not the file that was found (walk_unchanged). */
static int open_by_names(int dir, const char *path, int flags)
{
    CLEANUP_FD int held = -1;
    for (int at = dir;;) {
        char name[NAME_MAX + 1];
        ssize_t n = util_first_name(path, name);
        if (n < 0)
            return -1;
        path += n + (path[n] == '/');
        int fd = openat(at, name, *path ? O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC : flags);
        if (fd < 0 || !*path)
            return fd;
        util_closep(&held);
        at = held = fd;
    }
}

/* Every component is resolved beneath dir and none may be a link. O_NONBLOCK: something may have
 * put a fifo in the place of a file meanwhile. */
static int open_beneath(int dir, const char *path, int flags)
{
    flags |= O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    struct open_how how = {.flags = (uint64_t)(unsigned)flags,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
    /* Absent before Linux 5.6, and refused with EPERM by old container runtimes. */
    return fd < 0 && (errno == ENOSYS || errno == EPERM) ? open_by_names(dir, path, flags) : fd;
}

#define FILE_SIZE_MAX (INT64_MAX - ((int64_t)1 << 30))

static const char *kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFLNK:
        return "a symbolic link";
    case S_IFIFO:
        return "a fifo";
    case S_IFSOCK:
        return "a socket";
    case S_IFBLK:
    case S_IFCHR:
        return "a device";
    default:
        return "no regular file";
    }
}

/* Folders wait in a list until they are read, one at a time: a walk holds one descriptor and one
 * frame of the stack however deep the export is. */
struct walker {
    struct walk *out;
    const struct cairn_op *op;
    size_t cap;
    char **folders; /* owned, each path too, with its slash; "" is the export's own */
    size_t n_folders, folders_cap;
    uint64_t folders_seen; /* without the export's own */
    char path[MANIFEST_PATH_MAX + 2];
    struct cairn_error *err;
};

static int add_file(struct walker *w, size_t len, const struct stat *st)
{
    struct walk *out = w->out;
    if (out->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 16;
        struct walk_file *files = reallocarray(out->files, cap, sizeof(*files));
        if (!files)
            return error_oom(w->err, "listing the export");
        out->files = files;
        w->cap = cap;
    }
    char *path = strndup(w->path, len);
    if (!path)
        return error_oom(w->err, "listing the export");
    out->files[out->n++] =
        (struct walk_file){.path = path, .path_len = len, .size = (uint64_t)st->st_size, .st = *st};
    out->logical_bytes += (uint64_t)st->st_size;
    return CAIRN_OK;
}

/* The first len bytes of w->path are a folder's. */
static int add_folder(struct walker *w, size_t len)
{
    if (w->n_folders == w->folders_cap) {
        size_t cap = w->folders_cap ? 2 * w->folders_cap : 16;
        char **folders = reallocarray(w->folders, cap, sizeof(*folders));
        if (!folders)
            return error_oom(w->err, "listing the export");
        w->folders = folders;
        w->folders_cap = cap;
    }
    w->folders[w->n_folders] = strndup(w->path, len);
    if (!w->folders[w->n_folders])
        return error_oom(w->err, "listing the export");
    w->n_folders++;
    return CAIRN_OK;
}

/* One name of the folder whose path is the first len bytes (with its slash) of w->path. */
static int walk_entry(struct walker *w, int dir, size_t len, const char *name)
{
    char shown[WALK_SHOWN];
    size_t n = strlen(name);
    if (len + n > MANIFEST_PATH_MAX)
        return error_set(w->err, CAIRN_INVALID, ENAMETOOLONG,
                         "export: path of more than %d bytes: %s", MANIFEST_PATH_MAX,
                         walk_shown(w->path, len, shown));
    memcpy(w->path + len, name, n + 1);
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        int e = errno;
        walk_shown(w->path, len + n, shown);
        return e == ENOENT ? error_set(w->err, CAIRN_BUSY, e, "export: %s vanished", shown)
                           : error_sys(w->err, e, "export: %s", shown);
    }
    /* So near the end of what can be told, file systems (tmpfs) overflow and find no data. */
    if (S_ISREG(st.st_mode) && st.st_size > FILE_SIZE_MAX)
        return error_set(w->err, CAIRN_INVALID, EFBIG, "export: %s: too large",
                         walk_shown(w->path, len + n, shown));
    if (S_ISREG(st.st_mode))
        return add_file(w, len + n, &st);
    if (!S_ISDIR(st.st_mode))
        return error_set(w->err, CAIRN_INVALID, EINVAL,
                         "export: %s is %s: only regular files and folders can be published",
                         walk_shown(w->path, len + n, shown), kind_of(st.st_mode));
    w->path[len + n] = '/';
    w->folders_seen++;
    return add_folder(w, len + n + 1);
}

/* EXDEV: it was moved out of the export while the kernel looked for it. */
static bool is_gone(int sys_errno)
{
    return sys_errno == ENOENT || sys_errno == ENOTDIR || sys_errno == ELOOP || sys_errno == EXDEV;
}

static int walk_folder(struct walker *w, const char *path)
{
    char shown[WALK_SHOWN];
    size_t len = strlen(path);
    memcpy(w->path, path, len);
    int fd = open_beneath(w->out->root, len ? path : ".", O_DIRECTORY);
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        walk_shown(path, len, shown);
        return is_gone(e) ? error_set(w->err, CAIRN_BUSY, e,
                                      "export: folder %s vanished while it was published", shown)
                          : error_sys(w->err, e, "export: reading folder %s", shown);
    }
    int rc = op_check(w->op, "listing the export", w->err);
    while (!rc) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (!d && errno) {
            int e = errno;
            return error_sys(w->err, e, "export: reading folder %s", walk_shown(path, len, shown));
        }
        if (!d)
            break;
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        rc = walk_entry(w, dirfd(dir), len, d->d_name);
    }
    return rc;
}

static int walk_folders(struct walker *w)
{
    int rc = add_folder(w, 0);
    while (!rc && w->n_folders) {
        CLEANUP_FREE char *path = w->folders[--w->n_folders];
        rc = walk_folder(w, path);
    }
    return rc;
}

static void walker_free(struct walker *w)
{
    while (w->n_folders)
        free(w->folders[--w->n_folders]);
    free(w->folders);
    free(w);
}

static int by_path(const void *a, const void *b)
{
    const struct walk_file *x = a, *y = b;
    size_t n = x->path_len < y->path_len ? x->path_len : y->path_len;
    int c = memcmp(x->path, y->path, n);
    return c ? c : (x->path_len > y->path_len) - (x->path_len < y->path_len);
}

/* Folders with a file below. What lies in one folder stands together in the order of paths, so a
 * file's folders are new but for those that it has in common with the file before it. */
static uint64_t folders_used(const struct walk *w)
{
    uint64_t n = 0;
    for (size_t i = 0; i < w->n; i++) {
        const char *path = w->files[i].path, *before = i ? w->files[i - 1].path : "";
        while (*path && *path == *before) {
            path++;
            before++;
        }
        for (; *path; path++)
            n += *path == '/';
    }
    return n;
}

int walk_run(const char *from, const struct cairn_op *op, struct walk *out, struct cairn_error *err)
{
    char shown[WALK_SHOWN];
    *out = WALK_INIT;
    out->root = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out->root < 0) {
        int e = errno;
        return error_sys(err, e, "export folder %s", walk_shown(from, strlen(from), shown));
    }
    struct walker *w = calloc(1, sizeof(*w));
    if (!w) {
        walk_release(out);
        return error_oom(err, "listing the export");
    }
    *w = (struct walker){.out = out, .op = op, .err = err};
    int rc = walk_folders(w);
    uint64_t folders = w->folders_seen;
    walker_free(w);
    if (rc) {
        walk_release(out);
        return rc;
    }
    if (out->n)
        qsort(out->files, out->n, sizeof(out->files[0]), by_path);
    out->empty_dirs = folders - folders_used(out);
    return CAIRN_OK;
}

const struct walk_file *walk_find(const struct walk *w, const char *path, size_t len)
{
    struct walk_file wanted = {.path = (char *)path, .path_len = len};
    return w->n ? bsearch(&wanted, w->files, w->n, sizeof(w->files[0]), by_path) : NULL;
}

void walk_release(struct walk *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->files[i].path);
    free(w->files);
    if (w->root >= 0)
        close(w->root);
    *w = WALK_INIT;
}

static int changed(const struct walk_file *f, const char *how, struct cairn_error *err)
{
    char shown[WALK_SHOWN];
    return error_set(err, CAIRN_BUSY, EBUSY, "export: %s %s while it was published",
                     walk_shown(f->path, f->path_len, shown), how);
}

int walk_open(const struct walk *w, size_t i, int *fd, struct cairn_error *err)
{
    const struct walk_file *f = &w->files[i];
    char shown[WALK_SHOWN];
    CLEANUP_FD int file = open_beneath(w->root, f->path, 0);
    if (file < 0) {
        int e = errno;
        if (is_gone(e))
            return changed(f, "vanished", err);
        if (e == ENXIO || e == ENODEV) /* a socket, or a device without a driver */
            return changed(f, "was replaced", err);
        return error_sys(err, e, "export: opening %s", walk_shown(f->path, f->path_len, shown));
    }
    int rc = walk_unchanged(w, i, file, err);
    if (rc)
        return rc;
    *fd = util_steal_fd(&file);
    return CAIRN_OK;
}

int walk_unchanged(const struct walk *w, size_t i, int fd, struct cairn_error *err)
{
    const struct walk_file *f = &w->files[i];
    struct stat st;
    char shown[WALK_SHOWN];
    if (fstat(fd, &st) != 0) {
        int e = errno;
        return error_sys(err, e, "export: %s", walk_shown(f->path, f->path_len, shown));
    }
    /* Of a file that is gone the bytes read are still those that were found, but whoever took it
     * away is at work in the folder. */
    if (st.st_nlink == 0 && f->st.st_nlink > 0)
        return changed(f, "vanished", err);
    if (!S_ISREG(st.st_mode) || st.st_ino != f->st.st_ino || st.st_dev != f->st.st_dev)
        return changed(f, "was replaced", err);
    if (st.st_size != f->st.st_size) {
        char how[96];
        snprintf(how, sizeof(how), "changed its size from %lld to %lld bytes",
                 (long long)f->st.st_size, (long long)st.st_size);
        return changed(f, how, err);
    }
    char more;
    if (pread(fd, &more, 1, st.st_size) > 0 && fstat(fd, &st) == 0 && st.st_size == f->st.st_size)
        return error_set(err, CAIRN_INVALID, EINVAL,
                         "export: %s holds more than the %lld bytes of its size, as files of /proc "
                         "do: it cannot be published",
                         walk_shown(f->path, f->path_len, shown), (long long)st.st_size);
    if (st.st_mtim.tv_sec != f->st.st_mtim.tv_sec || st.st_mtim.tv_nsec != f->st.st_mtim.tv_nsec)
        return changed(f, "was written to", err);
    return CAIRN_OK;
}
