#define FUSE_USE_VERSION 314
#include "base/util.h"
#include "fuse/spool.h"
#include "fuse/task.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <string.h>

static struct spool_handle *handle_of(const struct fuse_file_info *fi)
{
    return (struct spool_handle *)(uintptr_t)fi->fh;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

/* What the kernel does by itself (O_APPEND: it says where; O_DIRECT: of its own cache) is not for
 * the descriptor here. */
static int own_flags(int flags)
{
    return (flags & (O_ACCMODE | O_TRUNC)) | O_CLOEXEC | O_NOCTTY;
}

static bool can_write(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
}

static void begin_writing(struct mount *m, struct inode *i)
{
    atomic_fetch_add(&m->spool->writers, 1);
    atomic_fetch_add(&i->spool->writers, 1);
    spool_about_to_change(m, i);
}

static void end_writing(struct mount *m, struct inode *i)
{
    if (atomic_fetch_sub(&i->spool->writers, 1) == 1) {
        spool_written(m, i);
        /* Somebody came in between, and may have said so too early. */
        if (atomic_load(&i->spool->writers))
            spool_about_to_change(m, i);
    }
    atomic_fetch_sub(&m->spool->writers, 1);
}

static void close_handle(struct mount *m, struct inode *i, struct spool_handle *h)
{
    spool_opened_remove(m->spool, &h->opened);
    if (h->writes)
        end_writing(m, i); /* as long as it is open its path is known */
    close(h->fd);
    free(h);
}

/* fd is transferred. Pages stay when the file is opened again: only this mount changes it. */
static int set_handle(struct mount *m, int fd, bool writes, struct fuse_file_info *fi)
{
    struct spool_handle *h = malloc(sizeof(*h));
    if (!h) {
        close(fd);
        return ENOMEM;
    }
    *h = (struct spool_handle){.fd = fd, .writes = writes};
    spool_opened_add(m->spool, &m->spool->files, &h->opened);
    fi->fh = (uintptr_t)h;
    fi->keep_cache = 1;
    fi->direct_io = 0;
    return 0;
}

void spool_open(struct mount *m, struct fuse_req *req, struct inode *i, struct fuse_file_info *fi)
{
    char path[SPOOL_FD_PATH];
    bool writes = can_write(fi->flags);
    if (writes)
        begin_writing(m, i);
    CLEANUP_HELD struct spool_held held = {0};
    int e = spool_hold(i->spool, &held);
    int fd = e ? -1 : open(spool_fd_path(held.fd, path), own_flags(fi->flags));
    if (!e)
        e = fd < 0 ? errno : set_handle(m, fd, writes, fi);
    if (e) {
        if (writes)
            end_writing(m, i);
        fuse_reply_err(req, e);
        return;
    }
    inode_ref(m, i); /* if nobody hears the answer, the kernel may have forgotten it by now */
    if (fuse_reply_open(req, fi) != 0)
        close_handle(m, i, handle_of(fi));
    inode_forget(m, i, 1);
}

/* The node of a file that was just made and is open. */
static int node_of_open(struct mount *m, int fd, struct inode **out, struct stat *st)
{
    char path[SPOOL_FD_PATH];
    int o_path = open(spool_fd_path(fd, path), O_PATH | O_CLOEXEC);
    return o_path < 0 ? errno : spool_node(m, o_path, out, st);
}

/* A new file has the mode that it is to have: the kernel has taken the caller's umask off, ours is
 * nobody's. *made: it was not there. Errno. */
static int open_new(struct fuse_req *req, int folder, const char *name, mode_t mode, int flags,
                    int *out, bool *made)
{
    CLEANUP_FD int fd =
        openat(folder, name, own_flags(flags) | O_CREAT | O_EXCL | O_NOFOLLOW, mode & 07777);
    if (fd < 0 && errno == EEXIST && !(flags & O_EXCL)) {
        *out = openat(folder, name, own_flags(flags) | O_NOFOLLOW);
        return *out < 0 ? errno : 0;
    }
    if (fd < 0)
        return errno;
    *made = true;
    int e = fchmod(fd, mode & 07777) == 0 ? 0 : errno;
    if (!e)
        e = spool_give_to_caller(req, folder, name);
    if (!e)
        *out = util_steal_fd(&fd);
    return e;
}

static int create(struct mount *m, struct fuse_req *req, int folder, const char *name, mode_t mode,
                  struct fuse_file_info *fi, struct inode **out, struct stat *st)
{
    CLEANUP_FD int fd = -1;
    bool made = false;
    int e = open_new(req, folder, name, mode, fi->flags, &fd, &made);
    if (!e)
        e = node_of_open(m, fd, out, st);
    if (e && made)
        (void)unlinkat(folder, name, 0);
    if (e)
        return e;
    bool writes = can_write(fi->flags);
    if (writes)
        begin_writing(m, *out);
    e = set_handle(m, util_steal_fd(&fd), writes, fi);
    if (e) {
        if (writes)
            end_writing(m, *out);
        inode_forget(m, *out, 1);
    }
    return e;
}

void spool_create(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name,
                  mode_t mode, struct fuse_file_info *fi)
{
    CLEANUP_FD int folder = -1;
    struct inode *i = NULL;
    struct stat st;
    char gen[GEN_TEXT];
    /* meta.json comes by being renamed, and a record is a folder. */
    int e = (dir->kind == INODE_RECORD && spool_name_of(name, gen) == SPOOL_NAME_META) ||
                    (dir->kind == INODE_ROOT && id_is_valid(name))
                ? EPERM
                : spool_folder(m, dir, true, &folder);
    if (!e)
        e = create(m, req, folder, name, mode, fi, &i, &st);
    if (e) {
        fuse_reply_err(req, e);
        return;
    }
    struct fuse_entry_param entry;
    spool_fill_entry(m, i, &st, &entry);
    if (fuse_reply_create(req, &entry, fi) != 0) {
        close_handle(m, i, handle_of(fi));
        inode_forget(m, i, 1);
    }
}

void spool_release(struct mount *m, struct fuse_req *req, struct inode *i,
                   struct fuse_file_info *fi)
{
    close_handle(m, i, handle_of(fi));
    fuse_reply_err(req, 0);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

void spool_read(struct mount *m, struct fuse_req *req, struct inode *i, size_t size, uint64_t off,
                struct fuse_file_info *fi)
{
    (void)m;
    (void)i;
    CLEANUP_FREE char *buf = malloc(size ? size : 1);
    ssize_t n = buf ? util_pread_full(handle_of(fi)->fd, buf, size, off) : -1;
    if (n < 0)
        fuse_reply_err(req, buf ? errno : ENOMEM);
    else
        fuse_reply_buf(req, buf, (size_t)n);
}

static bool is_full(int e)
{
    return e == ENOSPC || e == EDQUOT;
}

/* Bytes written; 0: errno says why. */
static size_t write_all(int fd, const char *data, size_t size, uint64_t off)
{
    size_t done = 0;
    errno = 0;
    while (done < size) {
        ssize_t n = pwrite(fd, data + done, size - done, (off_t)(off + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

void spool_write(struct mount *m, struct fuse_req *req, struct inode *i, const void *data,
                 size_t size, uint64_t off, struct fuse_file_info *fi)
{
    (void)i;
    int fd = handle_of(fi)->fd;
    size_t done = write_all(fd, data, size, off);
    if (done < size && is_full(errno) && spool_wait_for_room(m->spool))
        done += write_all(fd, (const char *)data + done, size - done, off + done);
    if (!done && size)
        fuse_reply_err(req, errno ? errno : EIO);
    else
        fuse_reply_write(req, done);
}

void spool_lseek(struct mount *m, struct fuse_req *req, struct inode *i, int64_t off, int whence,
                 struct fuse_file_info *fi)
{
    (void)m;
    (void)i;
    off_t at = lseek(handle_of(fi)->fd, off, whence);
    if (at < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_lseek(req, at);
}

void spool_flush(struct mount *m, struct fuse_req *req, struct inode *i, struct fuse_file_info *fi)
{
    (void)m;
    (void)i;
    (void)fi;
    fuse_reply_err(req, 0);
}

/* ---- What may take long ---------------------------------------------------------------------- */

struct slow {
    int fd, to; /* handles of the request, which outlive it */
    int mode;
    bool data_only;
    uint64_t off, to_off, len;
};

static void do_fsync(struct mount *m, struct fuse_req *req, const struct cairn_op *op, void *arg)
{
    (void)m;
    (void)op;
    const struct slow *s = arg;
    fuse_reply_err(req, (s->data_only ? fdatasync(s->fd) : fsync(s->fd)) == 0 ? 0 : errno);
}

static int allocate(const struct slow *s)
{
    int rc;
    do
        rc = fallocate(s->fd, s->mode, (off_t)s->off, (off_t)s->len);
    while (rc != 0 && errno == EINTR);
    return rc ? errno : 0;
}

static void do_fallocate(struct mount *m, struct fuse_req *req, const struct cairn_op *op,
                         void *arg)
{
    (void)op;
    int e = allocate(arg);
    if (is_full(e) && spool_wait_for_room(m->spool))
        e = allocate(arg);
    fuse_reply_err(req, e);
}

/* Of one call, which nobody can end halfway. Who copies goes on from where it ended. */
#define COPY_MAX ((size_t)128 << 20)

/* Bytes copied, or -1 with errno. */
static ssize_t copy(const struct slow *s)
{
    off_t from = (off_t)s->off, to = (off_t)s->to_off;
    return copy_file_range(s->fd, &from, s->to, &to, s->len < COPY_MAX ? s->len : COPY_MAX, 0);
}

static void do_copy(struct mount *m, struct fuse_req *req, const struct cairn_op *op, void *arg)
{
    (void)op;
    ssize_t n = copy(arg);
    if (n < 0 && is_full(errno) && spool_wait_for_room(m->spool))
        n = copy(arg);
    /* EOPNOTSUPP: the kernel copies by reading and writing then. */
    if (n < 0)
        fuse_reply_err(req, errno == EXDEV || errno == ENOSYS ? EOPNOTSUPP : errno);
    else
        fuse_reply_write(req, (size_t)n);
}

static void run_slow(struct mount *m, struct fuse_req *req, task_fn *fn, const struct slow *what)
{
    struct slow *arg = malloc(sizeof(*arg));
    if (!arg) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    *arg = *what;
    (void)task_run(m, LANE_SPOOL, req, fn, arg);
}

void spool_fsync(struct mount *m, struct fuse_req *req, struct inode *i, bool data_only,
                 struct fuse_file_info *fi)
{
    (void)i;
    run_slow(m, req, do_fsync, &(struct slow){.fd = handle_of(fi)->fd, .data_only = data_only});
}

void spool_fallocate(struct mount *m, struct fuse_req *req, struct inode *i, int mode, uint64_t off,
                     uint64_t len, struct fuse_file_info *fi)
{
    (void)i;
    run_slow(m, req, do_fallocate,
             &(struct slow){.fd = handle_of(fi)->fd, .mode = mode, .off = off, .len = len});
}

void spool_copy_file_range(struct mount *m, struct fuse_req *req, struct inode *from,
                           uint64_t from_off, struct fuse_file_info *from_fi, struct inode *to,
                           uint64_t to_off, struct fuse_file_info *to_fi, size_t len)
{
    if (from->kind != INODE_SPOOL || to->kind != INODE_SPOOL) {
        fuse_reply_err(req, to->kind == INODE_SPOOL ? EOPNOTSUPP : EROFS);
        return;
    }
    run_slow(m, req, do_copy,
             &(struct slow){.fd = handle_of(from_fi)->fd,
                            .to = handle_of(to_fi)->fd,
                            .off = from_off,
                            .to_off = to_off,
                            .len = len});
}
