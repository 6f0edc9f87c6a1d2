#define FUSE_USE_VERSION 314
#include "fuse/file.h"

#include "base/util.h"
#include "fuse/buffers.h"
#include "fuse/generation.h"
#include "fuse/task.h"
#include "fuse/trace.h"
#include "store/record_map.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <string.h>

/* Of one call of record_map, and pieces of one answer. */
#define SPANS_MAX 64

/* Never written to: its pages cost nothing. */
static uint8_t zeros[BUFFER_LEN];

/* An answer being put together. Bytes of files are read into the buffer, one behind the other;
 * holes need no room. */
struct answer {
    struct cairn_store *store;
    uint8_t *buf; /* BUFFER_LEN bytes */
    size_t used;  /* of it */
    size_t len;   /* of the answer so far */
    bool flat;    /* all of it in the buffer, holes too: more pieces than iov has */
    struct iovec iov[SPANS_MAX];
    int n;
};

static void add_piece(struct answer *a, void *base, size_t len)
{
    struct iovec *last = a->n ? &a->iov[a->n - 1] : NULL;
    if (last && (uint8_t *)last->iov_base + last->iov_len == base)
        last->iov_len += len;
    else
        a->iov[a->n++] = (struct iovec){.iov_base = base, .iov_len = len};
    a->len += len;
}

static int add_span(struct answer *a, const struct record_span *span, struct cairn_error *err)
{
    size_t len = (size_t)span->len;
    bool hole = span->fd < 0 && !span->data;
    if (hole && !a->flat) {
        add_piece(a, zeros, len);
        return CAIRN_OK;
    }
    uint8_t *to = a->buf + a->used;
    if (hole) {
        memset(to, 0, len);
    } else if (span->fd < 0) {
        memcpy(to, span->data, len);
    } else {
        ssize_t n = util_pread_full(span->fd, to, len, span->offset);
        if (n < 0)
            return error_sys(err, errno, "reading a local copy");
        if ((size_t)n < len) {
            record_span_doubt(a->store, span);
            return error_set(err, CAIRN_TRANSIENT, EIO, "a local copy was cut");
        }
    }
    a->used += len;
    add_piece(a, to, len);
    return CAIRN_OK;
}

static int fill(struct generation *g, uint32_t index, const struct cairn_op *op, size_t size,
                uint64_t off, struct answer *a, struct cairn_error *err)
{
    struct record_span spans[SPANS_MAX];
    a->used = a->len = 0;
    a->n = 0;
    while (a->len < size && (a->flat || a->n < SPANS_MAX)) {
        size_t n, max = a->flat ? SPANS_MAX : (size_t)(SPANS_MAX - a->n);
        int rc = record_map(g->record, op, index, off + a->len, size - a->len, spans, max, &n, err);
        if (!rc && !n)
            rc = error_set(err, CAIRN_CORRUPT, EIO, "%s: a file ends before its size", g->id);
        if (rc)
            return rc;
        for (size_t i = 0; !rc && i < n; i++)
            rc = add_span(a, &spans[i], err);
        record_spans_release(a->store, spans, n);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

/* A local copy that could not be read was put in doubt: the next try asks elsewhere. */
#define TRIES 3

/* size bytes, which the file has. A shorter answer would be taken for the file's end. */
static int read_from(struct generation *g, uint32_t index, const struct cairn_op *op, size_t size,
                     uint64_t off, struct answer *a, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (int tries = 0; tries < TRIES; tries++) {
        a->flat = false;
        rc = fill(g, index, op, size, off, a, err);
        if (!rc && a->len < size) {
            a->flat = true;
            rc = fill(g, index, op, size, off, a, err);
        }
        struct cairn_error ignored;
        if (rc != CAIRN_TRANSIENT || op_check(op, "read", &ignored))
            break;
    }
    return rc;
}

/* The generation that the file was opened by is gone or damaged: any other that has the content
 * will do. */
static int read_elsewhere(struct mount *m, const struct cairn_op *op, struct inode *i, size_t size,
                          uint64_t off, struct answer *a, int rc)
{
    struct file_source sources[FILE_SOURCES];
    pthread_mutex_lock(&i->file->lock);
    size_t n = i->file->n_sources;
    for (size_t k = 0; k < n; k++)
        sources[k] = i->file->sources[k];
    pthread_mutex_unlock(&i->file->lock);
    for (size_t k = 0; k < n && rc; k++) {
        struct generation *g = NULL;
        struct cairn_error e;
        if (generation_get(m, op, sources[k].id, sources[k].gen, &g, &e))
            continue;
        if (file_is_in(i, g, sources[k].index) &&
            !read_from(g, sources[k].index, op, size, off, a, &e))
            rc = CAIRN_OK;
        generation_put(m, g);
    }
    return rc;
}

/* Of size bytes at off, as many as the file has and an answer takes. */
static size_t cut(const struct inode *i, size_t size, uint64_t off)
{
    if (size > BUFFER_LEN)
        size = BUFFER_LEN;
    if (off >= i->size)
        return 0;
    return size > i->size - off ? (size_t)(i->size - off) : size;
}

static bool fill_here(struct generation *g, uint32_t index, size_t size, uint64_t off,
                      struct answer *a)
{
    struct record_span spans[SPANS_MAX];
    struct cairn_error ignored;
    size_t n;
    if (!record_map_here(g->record, index, off, size, spans, SPANS_MAX, &n))
        return false;
    int rc = CAIRN_OK;
    for (size_t k = 0; !rc && k < n; k++)
        rc = add_span(a, &spans[k], &ignored);
    record_spans_release(a->store, spans, n);
    return !rc;
}

bool file_read_here(struct mount *m, struct fuse_req *req, struct inode *i, struct open_file *f,
                    size_t size, uint64_t off)
{
    struct answer a = {.store = m->store, .buf = buffers_get(m->buffers)};
    size = cut(i, size, off);
    bool here = a.buf && size && fill_here(f->g, f->index, size, off, &a);
    trace_read(f, off, size, !here);
    if (here) {
        atomic_fetch_add_explicit(&m->n_read_bytes, a.len, memory_order_relaxed);
        fuse_reply_iov(req, a.iov, a.n);
    }
    buffers_put(m->buffers, a.buf);
    return here;
}

void file_read(struct mount *m, struct fuse_req *req, const struct cairn_op *op, struct inode *i,
               struct open_file *f, size_t size, uint64_t off)
{
    struct cairn_error err;
    struct answer a = {.store = m->store, .buf = buffers_get(m->buffers)};
    if (!a.buf) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    size = cut(i, size, off);
    int rc = read_from(f->g, f->index, op, size, off, &a, &err);
    if (rc == CAIRN_NOT_FOUND || rc == CAIRN_CORRUPT)
        rc = read_elsewhere(m, op, i, size, off, &a, rc);
    if (rc) {
        int e = task_errno(m, "read", &err);
        /* That a file which is open is not to be found is no answer to a read. */
        fuse_reply_err(req, e == ENOENT ? EIO : e);
    } else {
        atomic_fetch_add_explicit(&m->n_read_bytes, a.len, memory_order_relaxed);
        fuse_reply_iov(req, a.iov, a.n);
    }
    buffers_put(m->buffers, a.buf);
}
