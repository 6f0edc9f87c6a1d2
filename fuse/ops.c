#define FUSE_USE_VERSION 314
#include "fuse/ops.h"

#include "fuse/passthrough.h"
#include "fuse/table.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

static struct mount *begin(fuse_req_t req)
{
    struct mount *m = fuse_req_userdata(req);
    atomic_fetch_add_explicit(&m->n_requests, 1, memory_order_relaxed);
    return m;
}

static bool is_spool(const struct inode *i)
{
    return i->kind == INODE_SPOOL;
}

/* Inside a committed generation nothing is made. */
static bool is_committed_tree(const struct inode *i)
{
    return i->kind == INODE_EXPORT || i->kind == INODE_SUBDIR;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct mount *m = begin(req);
    struct inode *dir = inode_of(m, parent);
    if (is_spool(dir))
        spool_lookup(m, req, dir, name);
    else
        committed_lookup(m, req, dir, name);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
    struct mount *m = begin(req);
    inode_forget(m, inode_of(m, ino), n);
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    struct mount *m = begin(req);
    for (size_t k = 0; k < count; k++)
        inode_forget(m, inode_of(m, forgets[k].ino), forgets[k].nlookup);
    fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_getattr(m, req, i, fi);
    else
        committed_getattr(m, req, i);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                       struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (i->kind == INODE_FILE)
        fuse_reply_err(req, EROFS);
    else
        spool_setattr(m, req, i, attr, to_set, fi);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_readlink(m, req, i);
    else
        fuse_reply_err(req, EINVAL);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    struct mount *m = begin(req);
    struct inode *dir = inode_of(m, parent);
    if (is_spool(dir))
        spool_mknod(m, req, dir, name, mode, rdev);
    else
        fuse_reply_err(req, is_committed_tree(dir) ? EROFS : EPERM);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct mount *m = begin(req);
    struct inode *dir = inode_of(m, parent);
    if (is_committed_tree(dir))
        fuse_reply_err(req, EROFS);
    else
        spool_mkdir(m, req, dir, name, mode);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct mount *m = begin(req);
    struct inode *dir = inode_of(m, parent);
    if (is_spool(dir))
        spool_symlink(m, req, target, dir, name);
    else
        fuse_reply_err(req, is_committed_tree(dir) ? EROFS : EPERM);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct mount *m = begin(req);
    spool_unlink(m, req, inode_of(m, parent), name);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct mount *m = begin(req);
    spool_rmdir(m, req, inode_of(m, parent), name);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
                      const char *to_name, unsigned flags)
{
    struct mount *m = begin(req);
    struct inode *dir = inode_of(m, parent), *to_dir = inode_of(m, to_parent);
    if (is_committed_tree(dir) || is_committed_tree(to_dir))
        fuse_reply_err(req, EROFS);
    else
        spool_rename(m, req, dir, name, to_dir, to_name, flags);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino), *dir = inode_of(m, parent);
    if (is_spool(i) && is_spool(dir))
        spool_link(m, req, i, dir, name);
    else
        fuse_reply_err(req, EXDEV);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_open(m, req, i, fi);
    else
        committed_open(m, req, i, fi);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *dir = inode_of(m, parent);
    if (is_committed_tree(dir))
        fuse_reply_err(req, EROFS);
    else
        spool_create(m, req, dir, name, mode, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_read(m, req, i, size, (uint64_t)off, fi);
    else
        committed_read(m, req, i, size, (uint64_t)off, fi);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
                     struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_write(m, req, i, data, size, (uint64_t)off, fi);
    else
        fuse_reply_err(req, EROFS);
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
                     struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_lseek(m, req, i, off, whence, fi);
    else
        committed_lseek(m, req, i, off, whence, fi);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                         struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_fallocate(m, req, i, mode, (uint64_t)off, (uint64_t)len, fi);
    else
        fuse_reply_err(req, EROFS);
}

static void op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_off,
                               struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_off,
                               struct fuse_file_info *to_fi, size_t len, int flags)
{
    (void)flags;
    struct mount *m = begin(req);
    spool_copy_file_range(m, req, inode_of(m, from), (uint64_t)from_off, from_fi, inode_of(m, to),
                          (uint64_t)to_off, to_fi, len);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_flush(m, req, i, fi);
    else
        fuse_reply_err(req, 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_fsync(m, req, i, data_only != 0, fi);
    else
        fuse_reply_err(req, 0);
}

/* An open folder's handle is none of a file. */
static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    spool_fsyncdir(m, req, inode_of(m, ino), data_only != 0, fi);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_release(m, req, i, fi);
    else
        committed_release(m, req, i, fi);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_opendir(m, req, i, fi);
    else
        committed_opendir(m, req, i, fi);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_readdir(m, req, i, size, (uint64_t)off, fi);
    else
        committed_readdir(m, req, i, size, (uint64_t)off, fi);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mount *m = begin(req);
    struct inode *i = inode_of(m, ino);
    if (is_spool(i))
        spool_releasedir(m, req, i, fi);
    else
        committed_releasedir(m, req, i, fi);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    (void)ino;
    committed_statfs(begin(req), req);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                        size_t size, int flags)
{
    (void)ino, (void)name, (void)value, (void)size, (void)flags;
    fuse_reply_err(req, EOPNOTSUPP);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    (void)ino, (void)name, (void)size;
    fuse_reply_err(req, EOPNOTSUPP);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    (void)ino, (void)size;
    fuse_reply_err(req, EOPNOTSUPP);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    (void)ino, (void)name;
    fuse_reply_err(req, EOPNOTSUPP);
}

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
                     struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_size,
                     size_t out_size)
{
    (void)ino, (void)arg, (void)fi, (void)flags, (void)in, (void)in_size, (void)out_size;
    fuse_reply_err(req, cmd == FICLONE || cmd == FICLONERANGE ? EOPNOTSUPP : ENOTTY);
}

#define UNWANTED                                                                                   \
    (FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |                         \
     FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO |                 \
     FUSE_CAP_WRITEBACK_CACHE)

/* No capability that changes what is kept: the kernel is the only writer of what it caches. */
static void op_init(void *userdata, struct fuse_conn_info *conn)
{
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
    fuse_unset_feature_flag(conn, UNWANTED);
#else
    conn->want &= ~(unsigned)UNWANTED;
#endif
    passthrough_init(userdata, conn);
    conn->max_background = 64;
    conn->congestion_threshold = 48;
    conn->time_gran = 1;
}

const struct fuse_lowlevel_ops mount_ops = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .readlink = op_readlink,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .symlink = op_symlink,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .rename = op_rename,
    .link = op_link,
    .open = op_open,
    .create = op_create,
    .read = op_read,
    .write = op_write,
    .lseek = op_lseek,
    .fallocate = op_fallocate,
    .copy_file_range = op_copy_file_range,
    .flush = op_flush,
    .fsync = op_fsync,
    .release = op_release,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .releasedir = op_releasedir,
    .fsyncdir = op_fsyncdir,
    .statfs = op_statfs,
    .setxattr = op_setxattr,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .removexattr = op_removexattr,
    .ioctl = op_ioctl,
};
