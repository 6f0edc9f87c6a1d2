#include "store/tree.h"

#include "base/log.h"
#include "base/step.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define ASIDE_MARK ".cairn-"

/* A tree is removed with few descriptors and a flat stack, however deep it is: whatever folder is
 * not empty is moved up to the top of the tree, to be emptied from there. */
struct remover {
    int top;        /* the folder at the top, borrowed */
    uint64_t moved; /* number of the next folder moved up */
    struct cairn_error *err;
};

static int cannot_remove(struct remover *r, int sys_errno, const char *name)
{
    return error_sys(r->err, sys_errno, "removing %s", name);
}

static bool is_taken(int sys_errno)
{
    return sys_errno == ENOTEMPTY || sys_errno == EEXIST;
}

static int move_up(struct remover *r, int dir, const char *name)
{
    for (;;) {
        char to[32];
        snprintf(to, sizeof(to), ".cairn-%llu", (unsigned long long)r->moved++);
        if (renameat(dir, name, r->top, to) == 0 || errno == ENOENT)
            return CAIRN_OK;
        if (!is_taken(errno) && errno != ENOTDIR)
            return cannot_remove(r, errno, name);
    }
}

/* name goes, or is a folder that is not empty: *full. */
static int remove_name(struct remover *r, int dir, const char *name, bool *full)
{
    *full = false;
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return CAIRN_OK;
    if (errno != EISDIR && errno != EPERM)
        return cannot_remove(r, errno, name);
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return CAIRN_OK;
    *full = is_taken(errno);
    return *full ? CAIRN_OK : cannot_remove(r, errno, name);
}

/* Call fn for each name until a whole round finds none: removing entries may make readdir skip
 * others. fd is transferred. */
static int each_name(struct remover *r, int fd, int (*fn)(struct remover *, int, const char *))
{
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return error_sys(r->err, e, "reading a folder to remove");
    }
    bool found = true;
    while (found) {
        found = false;
        rewinddir(dir);
        const struct dirent *d;
        while ((errno = 0, d = readdir(dir))) {
            if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
                continue;
            int rc = fn(r, dirfd(dir), d->d_name);
            if (rc)
                return rc;
            found = true;
        }
        if (errno) {
            int e = errno;
            return error_sys(r->err, e, "reading a folder to remove");
        }
    }
    return CAIRN_OK;
}

static int remove_below(struct remover *r, int dir, const char *name)
{
    bool full;
    int rc = remove_name(r, dir, name, &full);
    return rc || !full ? rc : move_up(r, dir, name);
}

static int open_folder(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int remove_at_top(struct remover *r, int dir, const char *name)
{
    bool full;
    int rc = remove_name(r, dir, name, &full);
    if (rc || !full)
        return rc;
    int fd = open_folder(dir, name);
    if (fd < 0)
        return errno == ENOENT ? CAIRN_OK : cannot_remove(r, errno, name);
    rc = each_name(r, fd, remove_below);
    return rc ? rc : remove_name(r, dir, name, &full);
}

int tree_remove(int dir, const char *name, struct cairn_error *err)
{
    struct remover r = {.top = -1, .err = err};
    bool full;
    int rc = remove_name(&r, dir, name, &full);
    if (rc || !full)
        return rc;
    CLEANUP_FD int fd = open_folder(dir, name);
    if (fd < 0)
        return errno == ENOENT ? CAIRN_OK : cannot_remove(&r, errno, name);
    r.top = fd;
    rc = each_name(&r, open_folder(fd, "."), remove_at_top);
    if (!rc)
        rc = remove_name(&r, dir, name, &full);
    if (!rc && full)
        rc = error_set(err, CAIRN_BUSY, ENOTEMPTY, "removing %s: others put files into it", name);
    return rc;
}

int tree_create(int root, const char *path, int *fd, struct cairn_error *err)
{
    CLEANUP_FREE char *p = strdup(path);
    if (!p)
        return error_oom(err, "path");
    for (char *slash = strchr(p, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdirat(root, p, 0777) != 0 && errno != EEXIST) {
            int e = errno;
            return error_sys(err, e, "making folder %s", p);
        }
        *slash = '/';
    }
    *fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (*fd < 0) {
        int e = errno;
        return error_sys(err, e, "making file %s", path);
    }
    return CAIRN_OK;
}

/* Parent folder and last name of target, without trailing slashes. */
static int split_target(struct tree_aside *a, const char *target, struct cairn_error *err)
{
    size_t len = strlen(target);
    while (len > 1 && target[len - 1] == '/')
        len--;
    size_t start = len;
    while (start > 0 && target[start - 1] != '/')
        start--;
    size_t n = len - start;
    if (n == 0 || (n == 1 && target[start] == '.') ||
        (n == 2 && target[start] == '.' && target[start + 1] == '.'))
        return error_set(err, CAIRN_INVALID, EINVAL,
                         "target \"%s\": name the folder that is to be made", target);
    if (n > 220)
        return error_set(err, CAIRN_INVALID, ENAMETOOLONG, "target: a name of more than 220 bytes");
    memcpy(a->base, target + start, n);
    a->base[n] = 0;
    CLEANUP_FREE char *parent = start ? strndup(target, start) : strdup(".");
    if (!parent)
        return error_oom(err, "path");
    a->parent = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->parent < 0) {
        int e = errno;
        return error_sys(err, e, "folder %s", parent);
    }
    return CAIRN_OK;
}

static int target_taken(const struct tree_aside *a, struct cairn_error *err)
{
    return error_set(err, CAIRN_BUSY, EEXIST, "target %s exists and is not an empty folder",
                     a->base);
}

/* Quick refusal before any work; the rename at the end is what decides. */
static int check_target(struct tree_aside *a, struct cairn_error *err)
{
    int fd = openat(a->parent, a->base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return CAIRN_OK;
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return target_taken(a, err);
    CLEANUP_DIR DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return error_sys(err, e, "target %s", a->base);
    }
    const struct dirent *d;
    while ((d = readdir(dir)))
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            return target_taken(a, err);
    struct stat st;
    if (fstat(dirfd(dir), &st) == 0)
        a->mode = st.st_mode & 07777;
    return CAIRN_OK;
}

/* A maker holds a flock on its folder; one without is left from a kill. A maker that was caught
 * between mkdir and flock sees that its folder is gone and takes another name. */
static void remove_left(const struct tree_aside *a)
{
    char prefix[sizeof(a->base) + 16];
    int n = snprintf(prefix, sizeof(prefix), ".%s" ASIDE_MARK, a->base);
    int copy = openat(a->parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_DIR DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    const struct dirent *d;
    while (dir && (d = readdir(dir))) {
        if (strncmp(d->d_name, prefix, (size_t)n) != 0 || strlen(d->d_name) != (size_t)n + 16)
            continue;
        CLEANUP_FD int fd =
            openat(a->parent, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct cairn_error err;
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && tree_remove(a->parent, d->d_name, &err))
            log_line(LOG_LEVEL_WARNING, "left from an earlier run: %s: %s", d->d_name, err.message);
    }
}

/* Where there are no locks, nobody takes away what others have left, and nothing needs one. */
static bool lock_folder(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno == ENOLCK || errno == ENOSYS ||
           errno == ENOTSUP || errno == EINVAL;
}

static int make_aside(struct tree_aside *a, struct cairn_error *err)
{
    for (int tries = 0; tries < 16; tries++) {
        uint64_t nonce;
        if (!util_random(&nonce, sizeof(nonce)))
            break;
        snprintf(a->name, sizeof(a->name), ".%.220s" ASIDE_MARK "%016llx", a->base,
                 (unsigned long long)nonce);
        if (mkdirat(a->parent, a->name, 0700) != 0) {
            int e = errno;
            if (e == EEXIST)
                continue;
            a->name[0] = 0;
            return error_sys(err, e, "making a folder beside %s", a->base);
        }
        STEP("tree.made");
        a->fd = openat(a->parent, a->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        if (a->fd >= 0 && lock_folder(a->fd) && fstat(a->fd, &st) == 0 && st.st_nlink > 0)
            return CAIRN_OK;
        int e = errno;
        if (a->fd < 0 && e != ENOENT) { /* umask 0777, say */
            (void)unlinkat(a->parent, a->name, AT_REMOVEDIR);
            a->name[0] = 0;
            return error_sys(err, e, "opening the new folder beside %s", a->base);
        }
        if (a->fd >= 0)
            close(a->fd);
        a->fd = -1;
        (void)unlinkat(a->parent, a->name, AT_REMOVEDIR);
    }
    a->name[0] = 0;
    return error_set(err, CAIRN_TRANSIENT, EAGAIN, "no folder could be made beside %s", a->base);
}

int tree_aside_begin(struct tree_aside *a, const char *target, struct cairn_error *err)
{
    *a = TREE_ASIDE_INIT;
    int rc = split_target(a, target, err);
    if (!rc)
        rc = check_target(a, err);
    if (!rc) {
        remove_left(a);
        rc = make_aside(a, err);
    }
    if (rc)
        tree_aside_release(a);
    return rc;
}

int tree_aside_commit(struct tree_aside *a, struct cairn_error *err)
{
    STEP("tree.built");
    if (a->mode && fchmod(a->fd, a->mode) != 0) {
        int e = errno;
        return error_sys(err, e, "setting the mode of %s", a->base);
    }
    if (renameat(a->parent, a->name, a->parent, a->base) != 0) {
        int e = errno;
        if (e == ENOTEMPTY || e == EEXIST || e == ENOTDIR)
            return target_taken(a, err);
        return error_sys(err, e, "renaming the folder to %s", a->base);
    }
    a->name[0] = 0;
    STEP("tree.renamed");
    return CAIRN_OK;
}

void tree_aside_release(struct tree_aside *a)
{
    struct cairn_error err;
    if (a->name[0] && tree_remove(a->parent, a->name, &err))
        log_line(LOG_LEVEL_WARNING, "left behind: %s: %s", a->name, err.message);
    if (a->fd >= 0)
        close(a->fd);
    if (a->parent >= 0)
        close(a->parent);
    *a = TREE_ASIDE_INIT;
}
