#define FUSE_USE_VERSION 314
#include "base/util.h"
#include "fuse/spool.h"
#include "fuse/spool_hidden.h"
#include "fuse/task.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <string.h>

/* ---- Making ---------------------------------------------------------------------------------- */

/* Answer with what was just made; take it away if that fails. */
static void reply_made(struct mount *m, struct fuse_req *req, int folder, const char *name,
                       int flag)
{
    struct inode *i;
    struct stat st;
    int e = spool_give_to_caller(req, folder, name);
    if (!e)
        e = spool_node_at(m, folder, name, &i, &st);
    if (e) {
        (void)unlinkat(folder, name, flag);
        fuse_reply_err(req, e);
        return;
    }
    spool_reply_entry(m, req, i, &st);
}

/* The shell of a record. Its attributes are those of any record's folder. */
static void make_record(struct mount *m, struct fuse_req *req, const char *id)
{
    struct stat st;
    if (mkdirat(m->spool->tree, id, 0700) != 0 ||
        fstatat(m->spool->tree, id, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        fuse_reply_err(req, errno);
        return;
    }
    struct inode *i = inode_record(m, id);
    if (!i) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    hidden_drop(m->spool->hidden, id, "");
    st.st_ino = i->ino;
    st.st_mode = S_IFDIR | 0750;
    st.st_uid = m->uid;
    st.st_gid = m->gid;
    struct fuse_entry_param e;
    spool_fill_entry(m, i, &st, &e);
    e.attr_timeout = 0;
    if (fuse_reply_entry(req, &e) != 0)
        inode_forget(m, i, 1);
}

/* meta.json comes by being renamed, and the root holds folders only. */
static bool is_refused(const struct inode *dir, const char *name)
{
    char gen[GEN_TEXT];
    return (dir->kind == INODE_RECORD && spool_name_of(name, gen) == SPOOL_NAME_META) ||
           (dir->kind == INODE_ROOT && id_is_valid(name));
}

void spool_mkdir(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name,
                 mode_t mode)
{
    CLEANUP_FD int folder = -1;
    if (dir->kind == INODE_ROOT && id_is_valid(name)) {
        make_record(m, req, name);
        return;
    }
    int e = is_refused(dir, name) ? EPERM : spool_folder(m, dir, true, &folder);
    if (!e && mkdirat(folder, name, mode & 07777) != 0)
        e = errno;
    /* The kernel has taken the caller's umask off; ours is nobody's. */
    if (!e && fchmodat(folder, name, mode & 07777, 0) != 0)
        e = errno;
    if (e)
        fuse_reply_err(req, e);
    else
        reply_made(m, req, folder, name, AT_REMOVEDIR);
}

void spool_mknod(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name,
                 mode_t mode, dev_t rdev)
{
    CLEANUP_FD int folder = -1;
    if (S_ISCHR(mode) || S_ISBLK(mode) || is_refused(dir, name)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    int e = spool_folder(m, dir, true, &folder);
    if (!e && mknodat(folder, name, mode, rdev) != 0)
        e = errno;
    if (!e && fchmodat(folder, name, mode & 07777, 0) != 0)
        e = errno;
    if (e)
        fuse_reply_err(req, e);
    else
        reply_made(m, req, folder, name, 0);
}

void spool_symlink(struct mount *m, struct fuse_req *req, const char *target, struct inode *dir,
                   const char *name)
{
    CLEANUP_FD int folder = -1;
    if (is_refused(dir, name)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    int e = spool_folder(m, dir, true, &folder);
    if (!e && symlinkat(target, folder, name) != 0)
        e = errno;
    if (e)
        fuse_reply_err(req, e);
    else
        reply_made(m, req, folder, name, 0);
}

void spool_readlink(struct mount *m, struct fuse_req *req, struct inode *i)
{
    (void)m;
    char target[4096];
    CLEANUP_HELD struct spool_held held = {0};
    int e = spool_hold(i->spool, &held);
    ssize_t n = e ? -1 : readlinkat(held.fd, "", target, sizeof(target) - 1);
    if (n < 0) {
        fuse_reply_err(req, e ? e : errno == ENOENT ? EINVAL : errno);
        return;
    }
    target[n] = 0;
    fuse_reply_readlink(req, target);
}

void spool_link(struct mount *m, struct fuse_req *req, struct inode *i, struct inode *dir,
                const char *name)
{
    CLEANUP_FD int folder = -1;
    char path[SPOOL_FD_PATH];
    if (is_refused(dir, name)) {
        fuse_reply_err(req, EPERM);
        return;
    }
    CLEANUP_HELD struct spool_held held = {0};
    int e = spool_folder(m, dir, true, &folder);
    if (!e)
        e = spool_hold(i->spool, &held);
    if (!e && linkat(AT_FDCWD, spool_fd_path(held.fd, path), folder, name, AT_SYMLINK_FOLLOW) != 0)
        e = errno;
    struct inode *same;
    struct stat st;
    if (!e)
        e = spool_node_at(m, folder, name, &same, &st);
    if (e)
        fuse_reply_err(req, e);
    else
        spool_reply_entry(m, req, same, &st);
}

/* ---- Removing -------------------------------------------------------------------------------- */

/* A digest that is taken away is away, whether the store has one of that name too or not. */
static int after_unlink(struct mount *m, const struct inode *dir, const char *name)
{
    char gen[GEN_TEXT];
    if (dir->kind != INODE_RECORD || spool_name_of(name, gen) != SPOOL_NAME_DIGEST)
        return 0;
    return hidden_add(m->spool->hidden, dir->id, name);
}

void spool_unlink(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name)
{
    CLEANUP_FD int folder = -1;
    struct stat st;
    int e = spool_folder(m, dir, false, &folder);
    if (!e && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        e = errno;
    if (e == ENOENT && dir->kind != INODE_SPOOL && dir->kind != INODE_ROOT) {
        spool_remove_committed_file(m, req, dir, name);
        return;
    }
    if (!e && S_ISREG(st.st_mode) && st.st_nlink == 1)
        background_forget(m->spool->background, &st);
    if (!e)
        e = spool_unlink_at(m, folder, name, 0);
    fuse_reply_err(req, e ? e : after_unlink(m, dir, name));
}

void spool_rmdir(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name)
{
    CLEANUP_FD int folder = -1;
    if (dir->kind == INODE_ROOT && id_is_valid(name)) {
        spool_remove_record(m, req, name);
        return;
    }
    char gen[GEN_TEXT];
    int e = spool_folder(m, dir, false, &folder);
    if (!e)
        e = spool_unlink_at(m, folder, name, AT_REMOVEDIR);
    if (e == ENOENT && dir->kind != INODE_SPOOL && dir->kind != INODE_ROOT)
        spool_remove_committed_folder(m, req, dir, name);
    else if (!e && dir->kind == INODE_RECORD && spool_name_of(name, gen) == SPOOL_NAME_EXPORT)
        spool_unpublish(m, req, dir->id, gen);
    else
        fuse_reply_err(req, e);
}

/* ---- Listing --------------------------------------------------------------------------------- */

static struct spool_listing *listing_of(const struct fuse_file_info *fi)
{
    return (struct spool_listing *)(uintptr_t)fi->fh;
}

static void close_listing(struct mount *m, struct spool_listing *l)
{
    spool_opened_remove(m->spool, &l->opened);
    dirlist_release(&l->list);
    free(l);
}

void spool_opendir(struct mount *m, struct fuse_req *req, struct inode *dir,
                   struct fuse_file_info *fi)
{
    struct cairn_error err;
    struct spool_listing *l = calloc(1, sizeof(*l));
    if (!l) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    spool_opened_add(m->spool, &m->spool->folders, &l->opened);
    if (spool_list(m, dir, &l->list, &err)) {
        fuse_reply_err(req, cairn_error_errno(&err));
        close_listing(m, l);
        return;
    }
    fi->fh = (uintptr_t)l;
    if (fuse_reply_open(req, fi) != 0)
        close_listing(m, l);
}

void spool_readdir(struct mount *m, struct fuse_req *req, struct inode *dir, size_t size,
                   uint64_t off, struct fuse_file_info *fi)
{
    struct dirlist *list = &listing_of(fi)->list;
    struct cairn_error err;
    /* From the start again (rewinddir): what is there now. */
    if (off == 0) {
        dirlist_release(list);
        int rc = spool_list(m, dir, list, &err);
        if (rc) {
            fuse_reply_err(req, cairn_error_errno(&err));
            return;
        }
    }
    dirlist_reply(list, req, size, off, dir->ino);
}

/* Of what the store holds there is nothing to be done. */
static void do_fsyncdir(struct mount *m, struct fuse_req *req, const struct cairn_op *op, void *arg)
{
    (void)op;
    CLEANUP_FD int folder = -1;
    CLEANUP_FD int fd = -1;
    struct inode *const *dir = arg;
    int e = spool_folder(m, *dir, false, &folder);
    if (!e) {
        fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        e = fd < 0 || fsync(fd) != 0 ? errno : 0;
    }
    fuse_reply_err(req, e == ENOENT ? 0 : e);
}

void spool_fsyncdir(struct mount *m, struct fuse_req *req, struct inode *dir, bool data_only,
                    struct fuse_file_info *fi)
{
    (void)data_only;
    (void)fi;
    struct inode **arg = malloc(sizeof(struct inode *));
    if (!arg) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    *arg = dir; /* it stays while its request is not answered */
    (void)task_run(m, LANE_SPOOL, req, do_fsyncdir, arg);
}

void spool_releasedir(struct mount *m, struct fuse_req *req, struct inode *dir,
                      struct fuse_file_info *fi)
{
    (void)dir;
    close_listing(m, listing_of(fi));
    fuse_reply_err(req, 0);
}
