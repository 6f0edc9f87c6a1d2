#include "base/clock.h"
#include "base/step.h"
#include "base/util.h"
#include "store/chunk_io.h"
#include "store/fetch_cache.h"
#include "store/fetch_repeats.h"
#include "store/record.h"
#include "store/tree.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define BATCH_LEN (1024u * 1024)
/* Where a batch is, as a rule, one request: as large as this, but towards the end so small that all
 * workers end at about the same time (guided self-scheduling, Polychronopoulos and Kuck, 1987). */
#define BATCH_FAR_MAX (8u * 1024 * 1024)
#define BATCH_FAR_MIN (2u * 1024 * 1024)
/* What of it is held until it is written. */
#define FAR_ROOM (256u * 1024)

struct fetch;

/* Some chunks of one file. Owned by the caller's thread, but by a pool thread between
 * pool_submit and pool_wait. */
struct batch {
    struct pool_work work;
    struct fetch *f;
    uint32_t file;
    int fd;
    bool closes;   /* the last batch of its file */
    uint32_t n;    /* chunks */
    uint64_t *nos; /* their numbers in the file, ascending */
    /* and in the manifest at hand: one loaded again counts its own way */
    uint32_t *chunks;
    uint8_t *got; /* of each: enum fetch_got; shared: it is in place by reflink */
    uint8_t *plain;
    int rc;
    struct cairn_error err;
};

struct fetch {
    struct cairn_record *r;
    const struct cairn_op *op;
    const struct cairn_progress *progress;
    struct cairn_error *err;
    struct tree_aside aside;
    uint32_t chunk_size, batch_max;
    uint32_t room;  /* chunks that fit into a batch's plain */
    uint64_t given; /* plain bytes of the batches made so far, about */
    struct batch *ring;
    size_t ring_n, head, used;
    uint64_t done, total;
    atomic_bool stop;
    atomic_bool clones; /* FICLONERANGE has not failed yet */
    bool keeps;         /* what is downloaded stays in the cache */
    struct fetch_repeats *repeats;
    _Atomic uint64_t cloned_bytes;
};

/* At least one. */
static uint32_t in_chunks(const struct fetch *f, uint32_t bytes)
{
    return bytes > f->chunk_size ? bytes / f->chunk_size : 1;
}

/* ---- Workers --------------------------------------------------------------------------------- */

static size_t plain_len(const struct fetch *f, const struct manifest_file *file, uint64_t no)
{
    uint64_t left = file->size - no * f->chunk_size;
    return left < f->chunk_size ? (size_t)left : f->chunk_size;
}

/* How many chunks from i on lie raw and whole, one behind the other, in one pack. */
static uint32_t raw_run(const struct fetch *f, const struct manifest *m, const struct batch *b,
                        const struct manifest_file *file, uint32_t i)
{
    struct chunk first, c;
    uint32_t n = 0;
    manifest_chunk(m, b->chunks[i], &first);
    while (i + n < b->n) {
        manifest_chunk(m, b->chunks[i + n], &c);
        if (c.loc.encoding != CHUNK_RAW || b->nos[i + n] != b->nos[i] + n ||
            plain_len(f, file, b->nos[i + n]) != f->chunk_size ||
            memcmp(c.loc.pack, first.loc.pack, PACK_ID_LEN) != 0 ||
            c.loc.offset != first.loc.offset + (uint64_t)n * f->chunk_size)
            break;
        n++;
    }
    return n;
}

/* Share n verified raw chunks with the pack. False where the file systems cannot. */
static bool clone_run(struct batch *b, const struct manifest *m, uint32_t i, uint32_t n)
{
    struct fetch *f = b->f;
    struct chunk c;
    struct pack_file pack;
    struct cairn_error ignored;
    manifest_chunk(m, b->chunks[i], &c);
    if (pack_file_get(f->r->store, f->op, c.loc.pack, &pack, &ignored))
        return false;
    struct file_clone_range range = {.src_fd = pack.fd,
                                     .src_offset = c.loc.offset,
                                     .src_length = (uint64_t)n * f->chunk_size,
                                     .dest_offset = b->nos[i] * f->chunk_size};
    bool ok = pack.fd >= 0 && ioctl(b->fd, FICLONERANGE, &range) == 0;
    pack_file_put(f->r->store, &pack);
    if (ok)
        atomic_fetch_add(&f->cloned_bytes, range.src_length);
    else
        atomic_store(&f->clones, false);
    return ok;
}

/* As finely as file systems keep them. */
#define HOLE_LEN 4096u

static int write_blocks(const struct fetch_piece *p, const uint8_t *data, uint64_t off, size_t len,
                        struct cairn_error *err)
{
    for (size_t at = 0, end; at < len; at = end) {
        bool zero = true;
        for (end = at; end < len; end += HOLE_LEN) {
            size_t block = len - end < HOLE_LEN ? len - end : HOLE_LEN;
            bool is_zero = util_is_zero(data + end, block);
            if (end > at && is_zero != zero)
                break;
            zero = is_zero;
        }
        if (end > len)
            end = len;
        if (!zero && util_pwrite_full(p->fd, data + at, end - at, off + at) < 0) {
            int e = errno;
            return error_sys(err, e, "writing %s", p->path);
        }
    }
    return CAIRN_OK;
}

int fetch_write(const struct fetch_piece *p, uint32_t i, uint32_t n, const uint8_t *data,
                struct cairn_error *err)
{
    uint32_t cs = p->s->format.chunk_size;
    int rc = CAIRN_OK;
    for (uint32_t end = i + n, run; !rc && i < end; i += run, data += (size_t)run * cs) {
        for (run = 1; i + run < end && p->nos[i + run] == p->nos[i] + run; run++) {
        }
        size_t len = (size_t)(run - 1) * cs + fetch_plain_len(p, i + run - 1);
        rc = write_blocks(p, data, p->nos[i] * cs, len, err);
    }
    return rc;
}

static int find_chunks(struct batch *b, const struct manifest *m, const struct manifest_file *file)
{
    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t run;
        if (!manifest_lookup(m, file, b->nos[i], &b->chunks[i], &run))
            return error_set(&b->err, CAIRN_CORRUPT, EIO, "%s: its manifest lost a chunk",
                             b->f->r->paths[b->file]);
    }
    return CAIRN_OK;
}

static int read_chunk(struct batch *b, const struct manifest *m, const struct manifest_file *file,
                      struct chunk_ctx *ctx, uint32_t i, uint8_t *out)
{
    struct fetch *f = b->f;
    struct chunk c;
    size_t len = plain_len(f, file, b->nos[i]), got;
    manifest_chunk(m, b->chunks[i], &c);
    return chunk_read(f->r->store, f->op, ctx, &c, manifest_chunk_xxh(m, b->chunks[i]), out, len,
                      len, &got, &b->err);
}

/* Verify and share what can be shared. The bytes are read for that only, into one place that stays
 * in the processor's cache. */
static int share_runs(struct batch *b, const struct manifest *m, const struct manifest_file *file,
                      struct chunk_ctx *ctx)
{
    memset(b->got, FETCH_NOT, b->n);
    int rc = CAIRN_OK;
    for (uint32_t i = 0, n; !rc && i < b->n && atomic_load(&b->f->clones); i += n ? n : 1) {
        n = raw_run(b->f, m, b, file, i);
        for (uint32_t j = 0; !rc && j < n; j++)
            rc = read_chunk(b, m, file, ctx, i + j, ctx->base);
        if (!rc && n && clone_run(b, m, i, n))
            memset(b->got + i, FETCH_SHARED, n);
    }
    return rc;
}

/* Where packs are files. */
static int take_near(struct batch *b, const struct fetch_piece *p, const struct manifest_file *file,
                     struct chunk_ctx *ctx)
{
    int rc = share_runs(b, p->m, file, ctx);
    for (uint32_t i = 0; !rc && i < b->n; i++)
        if (b->got[i] == FETCH_NOT)
            rc = read_chunk(b, p->m, file, ctx, i, b->plain + (size_t)i * b->f->chunk_size);
    for (uint32_t i = 0, n; !rc && i < b->n; i += n) {
        n = 1;
        if (b->got[i] == FETCH_SHARED)
            continue;
        while (i + n < b->n && b->got[i + n] != FETCH_SHARED)
            n++;
        rc = fetch_write(p, i, n, b->plain + (size_t)i * b->f->chunk_size, &b->err);
    }
    return rc;
}

static int work_manifest(struct batch *b, const struct manifest *m, struct chunk_ctx *ctx)
{
    struct fetch *f = b->f;
    struct manifest_file file;
    manifest_file(m, b->file, &file);
    int rc = find_chunks(b, m, &file);
    if (rc)
        return rc;
    const struct fetch_piece piece = {.s = f->r->store,
                                      .op = f->op,
                                      .m = m,
                                      .chunks = b->chunks,
                                      .n = b->n,
                                      .nos = b->nos,
                                      .file_size = file.size,
                                      .path = f->r->paths[b->file],
                                      .fd = b->fd,
                                      .plain = b->plain,
                                      .got = b->got,
                                      .clones = &f->clones,
                                      .cloned_bytes = &f->cloned_bytes,
                                      .keeps = f->keeps,
                                      .repeats = f->repeats};
    return f->r->store->fills ? fetch_far(&piece, f->room, ctx, &b->err)
                              : take_near(b, &piece, &file, ctx);
}

static void run_batch(struct pool_work *work, unsigned worker)
{
    (void)worker;
    struct batch *b = (struct batch *)((char *)work - offsetof(struct batch, work));
    struct fetch *f = b->f;
    if (atomic_load(&f->stop))
        return;
    struct chunk_ctx *ctx = NULL;
    b->rc = op_check(f->op, "fetch", &b->err);
    if (!b->rc)
        b->rc = chunk_ctx_get(f->r->store, &ctx, &b->err);
    if (!b->rc) {
        const struct manifest *m = atomic_load(&f->r->manifest);
        b->rc = work_manifest(b, m, ctx);
        if (b->rc == CAIRN_NOT_FOUND) {
            b->rc = record_reload(f->r, f->op, m, &b->err);
            if (!b->rc)
                b->rc = work_manifest(b, atomic_load(&f->r->manifest), ctx);
        }
    }
    chunk_ctx_put(f->r->store, ctx);
    if (b->rc)
        atomic_store(&f->stop, true);
}

/* ---- The caller's thread --------------------------------------------------------------------- */

/* Some file systems (NFS) tell only here that bytes which were written are lost. */
static void close_file(struct batch *b)
{
    if (close(b->fd) != 0 && errno != EINTR && !b->rc) {
        int e = errno;
        b->rc = error_sys(&b->err, e, "writing %s", b->f->r->paths[b->file]);
    }
}

static struct batch *wait_oldest(struct fetch *f)
{
    struct batch *b = &f->ring[f->head];
    pool_wait(&b->work);
    f->head = (f->head + 1) % f->ring_n;
    f->used--;
    if (b->closes)
        close_file(b);
    return b;
}

static int take_oldest(struct fetch *f)
{
    struct batch *b = wait_oldest(f);
    if (b->rc) {
        if (f->err)
            *f->err = b->err;
        return b->rc;
    }
    STEP("fetch.batch");
    f->done += (uint64_t)b->n * f->chunk_size;
    if (f->progress && f->progress->report)
        f->progress->report(f->progress->ctx, f->done < f->total ? f->done : f->total, f->total);
    return CAIRN_OK;
}

/* Of the next batch, in chunks. */
static uint32_t batch_size(const struct fetch *f)
{
    if (!f->r->store->fills)
        return f->batch_max;
    uint64_t left = f->given < f->total ? f->total - f->given : 0;
    uint64_t n = left / f->chunk_size / pool_workers(f->r->store->pool);
    uint32_t least = in_chunks(f, BATCH_FAR_MIN);
    return n < least ? least : n < f->batch_max ? (uint32_t)n : f->batch_max;
}

/* An empty one, after waiting for its place. */
static int begin_batch(struct fetch *f, uint32_t file, int fd, struct batch **out)
{
    int rc = f->used == f->ring_n ? take_oldest(f) : CAIRN_OK;
    struct batch *b = &f->ring[(f->head + f->used) % f->ring_n];
    b->file = file;
    b->fd = fd;
    b->n = 0;
    b->rc = CAIRN_OK;
    b->work.run = run_batch;
    *out = b;
    return rc;
}

static void submit(struct fetch *f, struct batch *b, bool closes)
{
    b->closes = closes;
    f->used++;
    f->given += (uint64_t)b->n * f->chunk_size;
    pool_submit(f->r->store->pool, &b->work);
}

/* All of its chunks, in batches. *fd is transferred to the last one. */
static int submit_file(struct fetch *f, const struct manifest *m, uint32_t i, int *fd)
{
    struct manifest_file file;
    struct batch *b = NULL;
    uint32_t most = 0;
    int rc = CAIRN_OK;
    manifest_file(m, i, &file);
    for (uint32_t x = 0; !rc && x < file.n_extents; x++) {
        struct manifest_extent ext;
        manifest_extent(m, file.first_extent + x, &ext);
        for (uint32_t at = 0; !rc && at < ext.count; at++) {
            if (!b) {
                rc = begin_batch(f, i, *fd, &b);
                most = batch_size(f);
                if (rc)
                    break;
            }
            b->nos[b->n++] = ext.chunk_no + at;
            bool last = x + 1 == file.n_extents && at + 1 == ext.count;
            if (b->n < most && !last)
                continue;
            submit(f, b, last);
            b = NULL;
            if (last)
                *fd = -1;
        }
    }
    return rc;
}

static int fetch_file(struct fetch *f, const struct manifest *m, uint32_t i)
{
    struct manifest_file file;
    manifest_file(m, i, &file);
    CLEANUP_FD int fd = -1;
    int rc = op_check(f->op, "fetch", f->err);
    if (!rc)
        rc = tree_create(f->aside.fd, f->r->paths[i], &fd, f->err);
    STEP("fetch.created");
    if (!rc && ftruncate(fd, (off_t)file.size) != 0) {
        int e = errno;
        rc = error_sys(f->err, e, "sizing %s", f->r->paths[i]);
    }
    if (!rc)
        rc = submit_file(f, m, i, &fd);
    if (rc) {
        /* Batches in flight still write to fd. */
        atomic_store(&f->stop, true);
        while (f->used)
            wait_oldest(f);
    }
    return rc;
}

static int run(struct fetch *f)
{
    const struct manifest *m = atomic_load(&f->r->manifest);
    int rc = CAIRN_OK;
    for (uint32_t i = 0; !rc && i < manifest_info(m)->n_files; i++)
        rc = fetch_file(f, m, i);
    while (!rc && f->used)
        rc = take_oldest(f);
    return rc;
}

static int allocate(struct fetch *f)
{
    f->ring_n = 2 * pool_workers(f->r->store->pool);
    f->ring = calloc(f->ring_n, sizeof(f->ring[0]));
    if (!f->ring)
        return error_oom(f->err, "fetch");
    for (size_t i = 0; i < f->ring_n; i++) {
        f->ring[i].f = f;
        f->ring[i].plain = malloc((size_t)f->room * f->chunk_size);
        f->ring[i].nos = calloc(f->batch_max, sizeof(f->ring[i].nos[0]));
        f->ring[i].chunks = calloc(f->batch_max, sizeof(f->ring[i].chunks[0]));
        f->ring[i].got = calloc(f->batch_max, sizeof(f->ring[i].got[0]));
        if (!f->ring[i].plain || !f->ring[i].nos || !f->ring[i].chunks || !f->ring[i].got)
            return error_oom(f->err, "fetch");
    }
    return CAIRN_OK;
}

static void release(struct fetch *f)
{
    atomic_store(&f->stop, true);
    /* In their order: the last batch of a file closes it, and those before it write to it. */
    while (f->used)
        wait_oldest(f);
    for (size_t i = 0; f->ring && i < f->ring_n; i++) {
        struct batch *b = &f->ring[i];
        free(b->plain);
        free(b->nos);
        free(b->chunks);
        free(b->got);
    }
    free(f->ring);
    fetch_repeats_free(f->repeats);
    tree_aside_release(&f->aside);
}

int cairn_record_fetch(struct cairn_record *r, const struct cairn_op *op, const char *target,
                       const struct cairn_progress *progress, struct cairn_fetch_result *result,
                       struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    int64_t start = clock_monotonic();
    const struct manifest_info *info = manifest_info(atomic_load(&r->manifest));
    bool far = r->store->fills != NULL;
    struct fetch f = {.r = r,
                      .op = op,
                      .progress = progress,
                      .err = err,
                      .aside = TREE_ASIDE_INIT,
                      .chunk_size = r->store->format.chunk_size,
                      .total = info->data_bytes,
                      .clones = r->store->backend->ops->open_fd != NULL};
    f.batch_max = in_chunks(&f, far ? BATCH_FAR_MAX : BATCH_LEN);
    f.room = far ? in_chunks(&f, FAR_ROOM) : f.batch_max;
    int rc = op_check(op, "fetch", err);
    if (!rc)
        rc = allocate(&f);
    if (!rc && far)
        rc = fetch_repeats_new(atomic_load(&r->manifest), &f.repeats, err);
    if (!rc)
        rc = tree_aside_begin(&f.aside, target, err);
    if (!rc && far) {
        f.keeps = fetch_cache_keeps(r->store, info);
        atomic_store(&f.clones, fetch_cache_is_near(r->store, info, f.aside.fd));
    }
    if (!rc)
        rc = run(&f);
    if (!rc)
        rc = tree_aside_commit(&f.aside, err);
    release(&f);
    *result = (struct cairn_fetch_result){.logical_bytes = info->logical_bytes,
                                          .data_bytes = info->data_bytes,
                                          .cloned_bytes = atomic_load(&f.cloned_bytes),
                                          .seconds = (double)(clock_monotonic() - start) /
                                                     (double)NS_PER_S};
    return rc ? error_wrap(err, "fetch %s", r->id) : CAIRN_OK;
}
