#include "service/staging.h"

#include "base/util.h"
#include "store/store.h"
#include "store/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct staging_area {
    char *path; /* owned */
    int dir;    /* owned */
};

int staging_area_open(const char *path, struct staging_area **out, struct cairn_error *err)
{
    int rc = store_make_folders(path, err);
    if (rc)
        return rc;
    struct staging_area *a = calloc(1, sizeof(*a));
    if (!a)
        return error_oom(err, "staging");
    a->path = strdup(path);
    a->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int e = errno;
    if (a->dir >= 0 && fchmod(a->dir, 0711) != 0) {
        e = errno;
        close(a->dir);
        a->dir = -1;
    }
    if (!a->path || a->dir < 0) {
        rc = a->path ? error_sys(err, e, "staging area %s", path) : error_oom(err, "staging");
        staging_area_close(a);
        return rc;
    }
    *out = a;
    return CAIRN_OK;
}

void staging_area_close(struct staging_area *a)
{
    if (!a)
        return;
    if (a->dir >= 0)
        close(a->dir);
    free(a->path);
    free(a);
}

/* Whether a process of that user and group surely cannot pass. (Of other groups that it may be in,
 * and of access lists, which show in the group's bits, nothing is known here.) */
static bool is_barred(const struct stat *st, uid_t uid, gid_t gid)
{
    if (uid == 0)
        return false;
    if (st->st_uid == uid)
        return !(st->st_mode & S_IXUSR);
    if (st->st_gid == gid)
        return !(st->st_mode & S_IXGRP);
    return !(st->st_mode & (S_IXGRP | S_IXOTH));
}

/* Every folder on the way to the area, which is absolute. */
static int check_reach(const char *path, uid_t uid, gid_t gid, struct cairn_error *err)
{
    CLEANUP_FREE char *part = strdup(path);
    if (!part)
        return error_oom(err, "path");
    for (char *p = part; p; p = strchr(p + 1, '/')) {
        char cut = p[1];
        struct stat st;
        char *end = strchr(p + 1, '/');
        if (end)
            *end = 0;
        int rc = CAIRN_OK;
        if (stat(part, &st) != 0) {
            int e = errno;
            rc = error_sys(err, e, "%s", part);
        } else if (is_barred(&st, uid, gid)) {
            rc = error_set(err, CAIRN_PERMANENT, EACCES,
                           "user %u could not reach a staging: %s has mode %04o", (unsigned)uid,
                           part, (unsigned)st.st_mode & 07777);
        }
        if (end)
            *end = '/';
        if (rc || !cut)
            return rc;
    }
    return CAIRN_OK;
}

/* A folder that was just made, in a folder of ours, becomes the client's. */
static int give(int dir, const char *token, uid_t uid, gid_t gid, struct cairn_error *err)
{
    uid_t self = geteuid();
    if (uid == self || uid == 0)
        return CAIRN_OK;
    CLEANUP_FD int fd = openat(dir, token, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fchown(fd, uid, gid) == 0)
        return CAIRN_OK;
    int e = errno;
    if (e == EPERM)
        return error_set(err, CAIRN_PERMANENT, EPERM,
                         "the service runs as user %u and may not give a folder to user %u: "
                         "publish from a folder of your own",
                         (unsigned)self, (unsigned)uid);
    return error_sys(err, e, "giving away a staging");
}

/* The place of a staging; owned by the caller. */
static int place_of(struct staging_area *a, const char *token, char **path, struct cairn_error *err)
{
    if (asprintf(path, "%s/%s", a->path, token) < 0) {
        *path = NULL;
        return error_oom(err, "path");
    }
    return CAIRN_OK;
}

int staging_make(struct staging_area *a, const char *token, uid_t uid, gid_t gid, char **path,
                 struct cairn_error *err)
{
    CLEANUP_FREE char *place = NULL;
    int rc = uid == geteuid() ? CAIRN_OK : check_reach(a->path, uid, gid, err);
    if (!rc)
        rc = place_of(a, token, &place, err);
    if (rc)
        return rc;
    if (mkdirat(a->dir, token, 0700) != 0) {
        int e = errno;
        return error_sys(err, e, "making a staging in %s", a->path);
    }
    /* Whatever the umask. */
    if (fchmodat(a->dir, token, 0700, 0) != 0) {
        int e = errno;
        rc = error_sys(err, e, "making a staging in %s", a->path);
    }
    if (!rc)
        rc = give(a->dir, token, uid, gid, err);
    if (rc)
        unlinkat(a->dir, token, AT_REMOVEDIR);
    else
        *path = util_steal(&place);
    return rc;
}

int staging_remove(struct staging_area *a, const char *token, struct cairn_error *err)
{
    int rc = tree_remove(a->dir, token, err);
    return rc ? error_wrap(err, "removing a staging in %s", a->path) : CAIRN_OK;
}

static int64_t touched(int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
        return 0;
    return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

int64_t staging_touched(struct staging_area *a, const char *token)
{
    CLEANUP_FD int fd = openat(a->dir, token, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int64_t own = touched(a->dir, token), exported = touched(fd, "export");
    return own > exported ? own : exported;
}

int staging_each(struct staging_area *a,
                 int (*fn)(void *ctx, const char *name, struct cairn_error *err), void *ctx,
                 struct cairn_error *err)
{
    int fd = openat(a->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_DIR DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return error_sys(err, e, "listing %s", a->path);
    }
    int rc = CAIRN_OK;
    const struct dirent *entry;
    for (errno = 0; !rc && (entry = readdir(d)); errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = fn(ctx, entry->d_name, err);
    int e = errno;
    return rc ? rc : e ? error_sys(err, e, "listing %s", a->path) : CAIRN_OK;
}

void staging_open_release(struct staging_open *o)
{
    if (o->export_dir >= 0)
        close(o->export_dir);
    if (o->dir >= 0)
        close(o->dir);
    *o = STAGING_OPEN_INIT;
}

/* ELOOP and ENOTDIR: something else stands where the folder should. */
static int refuse(struct cairn_error *err, int e, const char *what, const char *name)
{
    if (e == ELOOP || e == ENOTDIR)
        return error_set(err, CAIRN_INVALID, ENOTDIR, "%s %s is no folder", what, name);
    return error_sys(err, e, "%s %s", what, name);
}

static int open_for(int at, const char *name, uid_t uid, struct staging_open *o,
                    struct cairn_error *err)
{
    struct stat st;
    int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    o->dir = openat(at, name, flags);
    if (o->dir < 0)
        return refuse(err, errno, "staging", name);
    if (fstat(o->dir, &st) != 0)
        return refuse(err, errno, "staging", name);
    if (uid != 0 && st.st_uid != uid)
        return error_set(err, CAIRN_PERMANENT, EACCES,
                         "staging %s belongs to user %u, and not to user %u", name,
                         (unsigned)st.st_uid, (unsigned)uid);
    o->export_dir = openat(o->dir, "export", flags);
    if (o->export_dir < 0)
        return refuse(err, errno, "export/ of the staging", name);
    snprintf(o->from, sizeof(o->from), "/proc/self/fd/%d", o->export_dir);
    return CAIRN_OK;
}

int staging_open_for(struct staging_area *a, const char *token_or_path, uid_t uid,
                     struct staging_open *out, struct cairn_error *err)
{
    *out = STAGING_OPEN_INIT;
    if (!a && (token_or_path[0] != '/' || strlen(token_or_path) >= PATH_MAX))
        return error_set(err, CAIRN_INVALID, EINVAL, "the path of a staging must be absolute");
    int rc = open_for(a ? a->dir : AT_FDCWD, token_or_path, uid, out, err);
    if (rc)
        staging_open_release(out);
    return rc;
}

int staging_meta(const struct staging_open *o, uid_t uid, struct buf *out, struct cairn_error *err)
{
    CLEANUP_FD int fd =
        openat(o->dir, "meta.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 && errno == ELOOP)
        return error_set(err, CAIRN_INVALID, ELOOP, "meta.json of the staging is a link");
    if (fd < 0 || fstat(fd, &st) != 0) {
        int e = errno;
        return error_sys(err, e, "meta.json of the staging");
    }
    if (!S_ISREG(st.st_mode))
        return error_set(err, CAIRN_INVALID, EINVAL, "meta.json of the staging is no regular file");
    if (uid != 0 && st.st_uid != uid)
        return error_set(err, CAIRN_PERMANENT, EACCES,
                         "meta.json of the staging belongs to user %u, and not to user %u",
                         (unsigned)st.st_uid, (unsigned)uid);
    int rc = buf_reserve(out, META_MAX + 1, err);
    if (rc)
        return rc;
    ssize_t n = util_pread_full(fd, out->data + out->len, META_MAX + 1, 0);
    if (n < 0) {
        int e = errno;
        return error_sys(err, e, "meta.json of the staging");
    }
    if (n > META_MAX)
        return error_set(err, CAIRN_INVALID, EFBIG,
                         "meta.json of the staging has more than %d bytes", META_MAX);
    out->len += (size_t)n;
    return CAIRN_OK;
}
