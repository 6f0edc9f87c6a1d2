#define FUSE_USE_VERSION 314
#include "fuse/spool.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <string.h>

/* ---- Folders --------------------------------------------------------------------------------- */

static int open_folder(int folder, const char *name, int *fd)
{
    *fd = openat(folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd < 0 ? errno : 0;
}

int spool_folder(struct mount *m, const struct inode *dir, bool make, int *fd)
{
    struct spool *s = m->spool;
    if (dir->kind == INODE_SPOOL) {
        CLEANUP_HELD struct spool_held held = {0};
        int e = spool_hold(dir->spool, &held);
        return e ? e : open_folder(held.fd, ".", fd);
    }
    if (dir->kind == INODE_ROOT)
        return open_folder(s->tree, ".", fd);
    if (dir->kind != INODE_RECORD)
        return ENOENT;
    int e = open_folder(s->tree, dir->id, fd);
    if (e != ENOENT || !make)
        return e == ENOTDIR ? ENOENT : e;
    if (mkdirat(s->tree, dir->id, 0700) != 0 && errno != EEXIST)
        return errno;
    return open_folder(s->tree, dir->id, fd);
}

bool spool_has_record(struct mount *m, const char *id)
{
    struct stat st;
    return fstatat(m->spool->tree, id, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

struct node_key {
    uint64_t dev, real;
};

uint64_t spool_number(dev_t dev, ino_t real)
{
    struct node_key key = {.dev = dev, .real = real};
    return inode_number(&key, sizeof(key));
}

/* fd is transferred. Errno. */
static int new_node(struct mount *m, int fd, const struct node_key *key, struct inode **out)
{
    struct inode *i = inode_new(INODE_SPOOL, key, sizeof(*key));
    if (!i) {
        close(fd);
        return ENOMEM;
    }
    i->ino = spool_number(key->dev, key->real);
    int e = spool_inode_new(m->spool->fds, fd, key->dev, key->real, &i->spool);
    if (e)
        inode_free(i);
    else
        *out = i;
    return e;
}

int spool_node(struct mount *m, int fd, struct inode **out, struct stat *st)
{
    CLEANUP_FD int own = fd;
    if (fstat(own, st) != 0)
        return errno;
    struct node_key key = {.dev = st->st_dev, .real = st->st_ino};
    st->st_ino = spool_number(st->st_dev, st->st_ino);
    *out = inode_find(m, INODE_SPOOL, &key, sizeof(key));
    if (*out && spool_inode_is((*out)->spool, own))
        return 0;
    if (*out) {
        inode_hide(m, *out);
        inode_forget(m, *out, 1);
    }
    struct inode *fresh;
    int e = new_node(m, util_steal_fd(&own), &key, &fresh);
    if (!e)
        *out = inode_intern(m, fresh);
    return e;
}

int spool_node_at(struct mount *m, int folder, const char *name, struct inode **out,
                  struct stat *st)
{
    int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? errno : spool_node(m, fd, out, st);
}

struct inode *spool_known_node(struct mount *m, const struct stat *st)
{
    struct node_key key = {.dev = st->st_dev, .real = st->st_ino};
    return inode_find(m, INODE_SPOOL, &key, sizeof(key));
}

const char *spool_fd_path(int fd, char out[SPOOL_FD_PATH])
{
    snprintf(out, SPOOL_FD_PATH, "/proc/self/fd/%d", fd);
    return out;
}

/* ---- Answers --------------------------------------------------------------------------------- */

void spool_fill_entry(const struct mount *m, const struct inode *i, const struct stat *st,
                      struct fuse_entry_param *e)
{
    *e = (struct fuse_entry_param){.ino = inode_node_id(m, i),
                                   .attr = *st,
                                   .attr_timeout = SPOOL_ATTR_SECONDS,
                                   .entry_timeout = 0};
}

void spool_reply_entry(struct mount *m, struct fuse_req *req, struct inode *i,
                       const struct stat *st)
{
    struct fuse_entry_param e;
    spool_fill_entry(m, i, st, &e);
    if (fuse_reply_entry(req, &e) != 0)
        inode_forget(m, i, 1);
}

void spool_lookup(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name)
{
    struct inode *i;
    struct stat st;
    CLEANUP_HELD struct spool_held held = {0};
    int e = spool_hold(dir->spool, &held);
    if (!e)
        e = spool_node_at(m, held.fd, name, &i, &st);
    if (e)
        fuse_reply_err(req, e);
    else
        spool_reply_entry(m, req, i, &st);
}

void spool_getattr(struct mount *m, struct fuse_req *req, struct inode *i,
                   struct fuse_file_info *fi)
{
    (void)m;
    (void)fi;
    struct stat st;
    CLEANUP_HELD struct spool_held held = {0};
    int e = spool_hold(i->spool, &held);
    if (!e && fstat(held.fd, &st) != 0)
        e = errno;
    if (e) {
        fuse_reply_err(req, e);
        return;
    }
    st.st_ino = i->ino;
    fuse_reply_attr(req, &st, SPOOL_ATTR_SECONDS);
}

/* ---- Attributes ------------------------------------------------------------------------------ */

int spool_give_to_caller(struct fuse_req *req, int folder, const char *name)
{
    const struct fuse_ctx *c = fuse_req_ctx(req);
    if (geteuid() != 0 || (c->uid == 0 && c->gid == 0))
        return 0;
    return fchownat(folder, name, c->uid, c->gid, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
}

static struct timespec time_to_set(const struct timespec *given, int to_set, int set, int now)
{
    struct timespec t = {.tv_nsec = UTIME_OMIT};
    if (to_set & now)
        t.tv_nsec = UTIME_NOW;
    else if (to_set & set)
        t = *given;
    return t;
}

/* path: as spool_fd_path has it. */
static int set_size(struct mount *m, struct inode *i, const char *path, off_t size,
                    const struct fuse_file_info *fi)
{
    spool_about_to_change(m, i);
    const struct spool_handle *h = fi ? (const struct spool_handle *)(uintptr_t)fi->fh : NULL;
    int rc = h && h->writes ? ftruncate(h->fd, size) : truncate(path, size);
    int e = rc ? errno : 0;
    if (!atomic_load(&i->spool->writers)) {
        spool_written(m, i);
        if (atomic_load(&i->spool->writers))
            spool_about_to_change(m, i);
    }
    return e;
}

static int set_own(struct mount *m, struct inode *i, const struct stat *attr, int to_set,
                   const struct fuse_file_info *fi)
{
    CLEANUP_HELD struct spool_held held = {0};
    char path[SPOOL_FD_PATH];
    int e = spool_hold(i->spool, &held);
    if (e)
        return e;
    (void)spool_fd_path(held.fd, path);
    if (to_set & FUSE_SET_ATTR_MODE && chmod(path, attr->st_mode & 07777) != 0)
        return errno;
    if (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
        uid_t uid = to_set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
        gid_t gid = to_set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;
        if (fchownat(held.fd, "", uid, gid, AT_EMPTY_PATH) != 0)
            return errno;
    }
    if (to_set & FUSE_SET_ATTR_SIZE)
        e = set_size(m, i, path, attr->st_size, fi);
    if (!e && to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |
                        FUSE_SET_ATTR_MTIME_NOW)) {
        struct timespec times[2] = {
            time_to_set(&attr->st_atim, to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW),
            time_to_set(&attr->st_mtim, to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW)};
        if (utimensat(AT_FDCWD, path, times, 0) != 0)
            e = errno;
    }
    return e;
}

/* What the store holds keeps its mode and owner; the mtime that a daemon sets on a superseded
 * generation is remembered here. */
static int set_committed(struct mount *m, struct inode *i, const struct stat *attr, int to_set)
{
    if (to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | FUSE_SET_ATTR_SIZE))
        return EROFS;
    char name[32] = "";
    if (i->kind == INODE_EXPORT)
        snprintf(name, sizeof(name), "export-%s", i->gen);
    else if (i->kind == INODE_DIGEST)
        snprintf(name, sizeof(name), "digest-%s", i->gen);
    else if (i->kind != INODE_RECORD)
        return i->kind == INODE_ROOT ? 0 : EROFS;
    if (!(to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)))
        return 0;
    struct timespec t =
        time_to_set(&attr->st_mtim, to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW);
    return spool_set_stamp(m->spool, i->id, name, &t);
}

void spool_setattr(struct mount *m, struct fuse_req *req, struct inode *i, const struct stat *attr,
                   int to_set, struct fuse_file_info *fi)
{
    int e = i->kind == INODE_SPOOL ? set_own(m, i, attr, to_set, fi)
                                   : set_committed(m, i, attr, to_set);
    if (e)
        fuse_reply_err(req, e);
    else if (i->kind == INODE_SPOOL)
        spool_getattr(m, req, i, fi);
    else
        committed_getattr(m, req, i);
}
