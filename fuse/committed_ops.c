/* Requests about what the store holds. Where the store is far away those that may have to ask it
 * are answered by a task; where it is a local folder, at once. */
#define FUSE_USE_VERSION 314
#include "fuse/committed.h"
#include "fuse/file.h"
#include "fuse/generation.h"
#include "fuse/spool.h"
#include "fuse/task.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <string.h>
#include <sys/statvfs.h>

/* What a request asks, for a task. The inode stays while its request is not answered. */
struct ask {
    struct inode *i;
    struct fuse_file_info fi;
    size_t size;
    uint64_t off;
    char name[];
};

static void run(struct mount *m, enum task_lane lane, fuse_req_t req, task_fn *fn,
                const struct ask *what, const char *name)
{
    size_t len = name ? strlen(name) : 0;
    struct ask *a = malloc(sizeof(*a) + len + 1);
    if (!a) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    *a = *what;
    memcpy(a->name, name ? name : "", len + 1);
    if (m->remote) {
        (void)task_run(m, lane, req, fn, a);
        return;
    }
    struct cairn_op op = task_op_here(m, lane);
    fn(m, req, &op, a);
    free(a);
}

/* ---- Names and attributes -------------------------------------------------------------------- */

/* How long the kernel may believe that the name means this inode. A file's name is safe below its
 * folder's, but a file that may become readable directly wants to be looked up again for it. */
static double entry_seconds(struct mount *m, const struct inode *i)
{
    if (i->kind == INODE_SUBDIR)
        return MOUNT_CONSTANT_SECONDS;
    if (i->kind == INODE_FILE)
        return atomic_load(&m->passthrough) && m->materialise != MOUNT_MATERIALISE_NEVER
                   ? 1.0
                   : MOUNT_CONSTANT_SECONDS;
    return MOUNT_ENTRY_SECONDS;
}

/* One lookup of i is the reply's, or taken back. */
static void reply_entry(struct mount *m, fuse_req_t req, struct inode *i, const struct stat *st,
                        double attr_seconds, double seconds)
{
    struct fuse_entry_param e = {.ino = inode_node_id(m, i),
                                 .generation = 1,
                                 .attr = *st,
                                 .attr_timeout = attr_seconds,
                                 .entry_timeout = seconds};
    if (fuse_reply_entry(req, &e))
        inode_forget(m, i, 1);
}

static void do_lookup(struct mount *m, fuse_req_t req, const struct cairn_op *op, void *arg)
{
    struct ask *a = arg;
    struct inode *i;
    struct stat st;
    double seconds;
    struct cairn_error err;
    int rc = committed_find(m, op, a->i, a->name, &i, &err);
    if (!rc) {
        rc = committed_attr(m, op, i, &st, &seconds, &err);
        if (rc)
            inode_forget(m, i, 1);
    }
    if (rc)
        fuse_reply_err(req, task_errno(m, "lookup", &err));
    else
        reply_entry(m, req, i, &st, seconds, entry_seconds(m, i));
}

void committed_lookup(struct mount *m, fuse_req_t req, struct inode *dir, const char *name)
{
    if (dir->kind == INODE_ROOT || dir->kind == INODE_RECORD) {
        struct inode *i;
        struct stat st;
        int e = spool_find(m, dir, name, &i, &st);
        if (!e) {
            spool_reply_entry(m, req, i, &st);
            return;
        }
        if (e != ENOENT) {
            fuse_reply_err(req, e);
            return;
        }
    }
    if (strlen(name) > NAME_MAX) {
        fuse_reply_err(req, ENAMETOOLONG);
        return;
    }
    /* Whoever makes a staging asks for its name first, and waits for no store. */
    if (!committed_may_have(dir, name)) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    run(m, LANE_LOOK, req, do_lookup, &(struct ask){.i = dir}, name);
}

static void do_getattr(struct mount *m, fuse_req_t req, const struct cairn_op *op, void *arg)
{
    struct ask *a = arg;
    struct stat st;
    double seconds;
    struct cairn_error err;
    if (committed_attr(m, op, a->i, &st, &seconds, &err))
        fuse_reply_err(req, task_errno(m, "getattr", &err));
    else
        fuse_reply_attr(req, &st, seconds);
}

void committed_getattr(struct mount *m, fuse_req_t req, struct inode *i)
{
    /* Of the others everything is known, and no store asked. */
    if (i->kind != INODE_RECORD && i->kind != INODE_EXPORT && i->kind != INODE_DIGEST) {
        struct cairn_op op = task_op_here(m, LANE_LOOK);
        do_getattr(m, req, &op, &(struct ask){.i = i});
        return;
    }
    run(m, LANE_LOOK, req, do_getattr, &(struct ask){.i = i}, NULL);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void do_open(struct mount *m, fuse_req_t req, const struct cairn_op *op, void *arg)
{
    struct ask *a = arg;
    file_open(m, req, op, a->i, &a->fi);
}

void committed_open(struct mount *m, fuse_req_t req, struct inode *i, struct fuse_file_info *fi)
{
    if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC)) {
        fuse_reply_err(req, EROFS);
        return;
    }
    if (i->kind == INODE_FILE) {
        run(m, LANE_LOOK, req, do_open, &(struct ask){.i = i, .fi = *fi}, NULL);
        return;
    }
    fi->fh = 0;
    fi->keep_cache = 1;
    fuse_reply_open(req, fi);
}

static void do_read(struct mount *m, fuse_req_t req, const struct cairn_op *op, void *arg)
{
    struct ask *a = arg;
    file_read(m, req, op, a->i, (struct open_file *)(uintptr_t)a->fi.fh, a->size, a->off);
}

void committed_read(struct mount *m, fuse_req_t req, struct inode *i, size_t size, uint64_t off,
                    struct fuse_file_info *fi)
{
    atomic_fetch_add_explicit(&m->n_reads, 1, memory_order_relaxed);
    if (i->kind != INODE_FILE) {
        size_t at = off < i->len ? (size_t)off : i->len, n = i->len - at;
        inode_ref(m, i); /* its bytes must outlive the answer, which may bring its forget */
        fuse_reply_buf(req, (const char *)i->bytes + at, n < size ? n : size);
        inode_forget(m, i, 1);
        return;
    }
    struct open_file *f = (struct open_file *)(uintptr_t)fi->fh;
    if (!m->remote) {
        struct cairn_op op = task_op_here(m, LANE_READ);
        file_read(m, req, &op, i, f, size, off);
        return;
    }
    /* What is here waits for no download, however many of those are under way. */
    if (file_read_here(m, req, i, f, size, off))
        return;
    run(m, LANE_READ, req, do_read, &(struct ask){.i = i, .fi = *fi, .size = size, .off = off},
        NULL);
}

void committed_lseek(struct mount *m, fuse_req_t req, struct inode *i, int64_t off, int whence,
                     struct fuse_file_info *fi)
{
    (void)m;
    uint64_t size = i->kind == INODE_FILE ? i->size : i->len;
    if (off < 0 || (whence != SEEK_DATA && whence != SEEK_HOLE)) {
        fuse_reply_err(req, off < 0 ? ENXIO : EINVAL);
        return;
    }
    if ((uint64_t)off >= size) {
        fuse_reply_err(req, ENXIO);
        return;
    }
    uint64_t at = whence == SEEK_DATA ? (uint64_t)off : size;
    if (i->kind == INODE_FILE) {
        const struct open_file *f = (struct open_file *)(uintptr_t)fi->fh;
        at = cairn_record_seek(f->g->record, f->index, (uint64_t)off, whence == SEEK_HOLE);
    }
    if (whence == SEEK_DATA && at >= size)
        fuse_reply_err(req, ENXIO);
    else
        fuse_reply_lseek(req, (off_t)at);
}

void committed_release(struct mount *m, fuse_req_t req, struct inode *i, struct fuse_file_info *fi)
{
    if (fi->fh)
        file_release(m, req, i, (struct open_file *)(uintptr_t)fi->fh);
    fuse_reply_err(req, 0);
}

/* ---- Folders --------------------------------------------------------------------------------- */

/* An open folder: libfuse's fh. The kernel reads one at a time. */
struct open_dir {
    struct dirlist list;
    bool read; /* from its start once: read from there again it is listed anew */
};

static int fill(struct mount *m, const struct cairn_op *op, struct inode *dir, struct open_dir *d,
                struct cairn_error *err)
{
    dirlist_release(&d->list);
    d->read = false;
    return committed_list(m, op, dir, &d->list, err);
}

static void open_dir_free(struct open_dir *d)
{
    dirlist_release(&d->list);
    free(d);
}

static void do_opendir(struct mount *m, fuse_req_t req, const struct cairn_op *op, void *arg)
{
    struct ask *a = arg;
    struct cairn_error err;
    struct open_dir *d = calloc(1, sizeof(*d));
    if (!d) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    if (fill(m, op, a->i, d, &err)) {
        open_dir_free(d);
        fuse_reply_err(req, task_errno(m, "opendir", &err));
        return;
    }
    a->fi.fh = (uint64_t)(uintptr_t)d;
    if (fuse_reply_open(req, &a->fi))
        open_dir_free(d);
}

void committed_opendir(struct mount *m, fuse_req_t req, struct inode *dir,
                       struct fuse_file_info *fi)
{
    run(m, LANE_LOOK, req, do_opendir, &(struct ask){.i = dir, .fi = *fi}, NULL);
}

static void do_readdir(struct mount *m, fuse_req_t req, const struct cairn_op *op, void *arg)
{
    struct ask *a = arg;
    struct cairn_error err;
    struct open_dir *d = (struct open_dir *)(uintptr_t)a->fi.fh;
    if (a->off == 0 && d->read && fill(m, op, a->i, d, &err)) {
        fuse_reply_err(req, task_errno(m, "readdir", &err));
        return;
    }
    d->read = true;
    dirlist_reply(&d->list, req, a->size, a->off, a->i->ino);
}

void committed_readdir(struct mount *m, fuse_req_t req, struct inode *dir, size_t size,
                       uint64_t off, struct fuse_file_info *fi)
{
    struct ask a = {.i = dir, .fi = *fi, .size = size, .off = off};
    const struct open_dir *d = (struct open_dir *)(uintptr_t)fi->fh;
    if (off || !d->read) {
        struct cairn_op op = task_op_here(m, LANE_LOOK);
        do_readdir(m, req, &op, &a);
    } else {
        run(m, LANE_LOOK, req, do_readdir, &a, NULL);
    }
}

void committed_releasedir(struct mount *m, fuse_req_t req, struct inode *dir,
                          struct fuse_file_info *fi)
{
    (void)m;
    (void)dir;
    open_dir_free((struct open_dir *)(uintptr_t)fi->fh);
    fuse_reply_err(req, 0);
}

/* ---- Space ----------------------------------------------------------------------------------- */

/* What can be published: it must find room in the spool first, and then in the store. A bucket has
 * no bound. */
void committed_statfs(struct mount *m, fuse_req_t req)
{
    struct statvfs st;
    struct cairn_error err;
    uint64_t avail, total;
    struct backend *b = m->store->backend;
    if (statvfs(m->store->state, &st)) {
        fuse_reply_err(req, errno);
        return;
    }
    if (!b->ops->space(b, &avail, &total, &err) && avail != UINT64_MAX && st.f_frsize) {
        fsblkcnt_t blocks = total / st.f_frsize, left = avail / st.f_frsize;
        if (left < st.f_bavail) {
            st.f_blocks = blocks;
            st.f_bfree = st.f_bavail = left;
        }
    }
    st.f_namemax = NAME_MAX;
    fuse_reply_statfs(req, &st);
}
