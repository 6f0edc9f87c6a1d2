#include "store/ingest.h"

#include "base/step.h"
#include "base/util.h"
#include "store/chunk_io.h"
#include "store/digest.h"
#include "store/pack_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Plain bytes of a batch; one chunk where chunks are larger. */
#define BATCH_LEN (1024u * 1024)

enum fate { FATE_ZERO, FATE_KNOWN, FATE_NEW };

struct outcome {
    enum fate fate;
    struct chunk chunk;
    uint8_t xxh[XXH3_LEN];
    const uint8_t *stored; /* FATE_NEW: in the batch's buffers */
    size_t stored_len;
    bool has_parent; /* while a worker has it: there is one at the same place, its number */
    uint32_t parent;
};

/* Some chunks in a row of one file. Owned by the caller's thread, but by a pool thread between
 * pool_submit and pool_wait. */
struct batch {
    struct pool_work work;
    struct ingest *in;
    bool submitted;
    size_t file;
    int fd; /* borrowed from in->fds */
    uint64_t first;
    uint32_t n;       /* 0: the file has no data (left) */
    uint64_t reached; /* bytes of the export behind it, for progress */
    uint8_t *plain, *coded, *base;
    struct outcome *out;
    struct index_query *asked; /* room for one a chunk */
    bool differs;
    int rc;
    struct cairn_error err;
};

struct ingest {
    struct cairn_store *s;
    const struct cairn_op *op;
    const struct ingest_options *opt;
    struct ingest_result *result;
    struct cairn_error *err;
    uint32_t chunk_size, batch_max;
    atomic_bool stop; /* something failed: workers need not go on */

    struct batch *ring;
    size_t ring_n, head, used; /* oldest batch, batches in flight */

    /* Where the next batch comes from. */
    size_t next_file;
    uint64_t next_chunk, data_end, bytes_before;
    bool file_open, file_had_batch;

    int *fds; /* of each file; -1: not open (any more) */

    /* Where the results go. */
    size_t cur_file;
    bool cur_begun;
    uint64_t digest_pos;
    struct digest *digest;
    struct pack_writer *writer; /* NULL with compare_only */
};

/* ---- Workers --------------------------------------------------------------------------------- */

/* The parent's chunk at the same place, if it has one there of the same length. */
static bool parent_chunk(const struct ingest *in, const struct manifest_file *pf, uint64_t chunk_no,
                         size_t len, uint32_t *index)
{
    uint64_t off = chunk_no * in->chunk_size, run;
    if (!pf || off >= pf->size)
        return false;
    uint64_t have = pf->size - off < in->chunk_size ? pf->size - off : in->chunk_size;
    return have == len && manifest_lookup(in->opt->parent, pf, chunk_no, index, &run);
}

static bool usable(const struct ingest *in, const struct chunk *c)
{
    return !pack_set_has(in->opt->banned, c->loc.pack) &&
           (c->loc.encoding != CHUNK_ZSTD_BASE || !pack_set_has(in->opt->banned, c->base.pack));
}

/* The base for a chunk whose predecessor is parent: the predecessor itself or, so that bases have
 * no bases, the one that it is based on. Returns its length, 0 where there is none to be had. */
static size_t read_base(struct batch *b, struct chunk_ctx *ctx, const struct chunk *parent,
                        struct chunk *chunk)
{
    struct chunk base = {.loc = parent->loc};
    memcpy(base.sha, parent->sha, SHA256_LEN);
    if (parent->loc.encoding == CHUNK_ZSTD_BASE) {
        base.loc = parent->base;
        memcpy(base.sha, parent->base_sha, SHA256_LEN);
    }
    /* A chunk is no base for itself. */
    if (memcmp(base.sha, chunk->sha, SHA256_LEN) == 0)
        return 0;
    size_t len = 0;
    struct cairn_error ignored;
    /* Where packs are no local files, fetching a base takes a request, and more bytes than it
     * saves. */
    if (!b->in->s->backend->ops->open_fd || pack_set_has(b->in->opt->banned, base.loc.pack) ||
        chunk_read(b->in->s, b->in->op, ctx, &base, NULL, b->base, b->in->chunk_size, 0, &len,
                   &ignored))
        return 0;
    chunk->base = base.loc;
    memcpy(chunk->base_sha, base.sha, SHA256_LEN);
    return len;
}

static int encode(struct batch *b, struct chunk_ctx *ctx, const struct chunk *parent,
                  const uint8_t *plain, size_t len, uint8_t *room, struct outcome *o)
{
    o->stored = plain;
    o->stored_len = len;
    o->chunk.loc = (struct chunk_loc){.encoding = CHUNK_RAW, .plain_len = (uint32_t)len};
    if (b->in->s->format.compression == FORMAT_NONE)
        return CAIRN_OK;
    size_t base_len = parent ? read_base(b, ctx, parent, &o->chunk) : 0, out_len;
    enum chunk_encoding enc;
    int rc = codec_encode(ctx->codec, plain, len, b->base, base_len, room, &enc, &out_len, &b->err);
    if (rc || enc == CHUNK_RAW)
        return rc;
    o->stored = room;
    o->stored_len = out_len;
    o->chunk.loc.encoding = (uint8_t)enc;
    if (enc == CHUNK_ZSTD_BASE && out_len > len / 4) {
        /* A base that hardly helps is a second read for nothing. */
        uint8_t *other = room + codec_bound(len);
        size_t plain_out;
        rc = codec_encode(ctx->codec, plain, len, NULL, 0, other, &enc, &plain_out, &b->err);
        if (!rc && enc == CHUNK_ZSTD && plain_out <= out_len + out_len / 8) {
            o->stored = other;
            o->stored_len = plain_out;
            o->chunk.loc.encoding = CHUNK_ZSTD;
        }
    }
    return rc;
}

static size_t chunk_len(const struct batch *b, size_t batch_len, uint32_t i)
{
    size_t left = batch_len - (size_t)i * b->in->chunk_size;
    return left < b->in->chunk_size ? left : b->in->chunk_size;
}

/* What can be told of a chunk without the index; it is new to all appearances otherwise. */
static int sift(struct batch *b, const struct manifest_file *pf, uint32_t i, size_t len)
{
    struct ingest *in = b->in;
    struct outcome *o = &b->out[i];
    const uint8_t *plain = b->plain + (size_t)i * in->chunk_size;
    if (util_is_zero(plain, len)) {
        o->fate = FATE_ZERO;
        return CAIRN_OK;
    }
    hash_xxh3(in->s->format.secret, plain, len, o->xxh);
    struct chunk parent;
    o->has_parent = parent_chunk(in, pf, b->first + i, len, &o->parent);
    if (o->has_parent) {
        manifest_chunk(in->opt->parent, o->parent, &parent);
        if (!in->opt->base_only &&
            memcmp(o->xxh, manifest_chunk_xxh(in->opt->parent, o->parent), XXH3_LEN) == 0 &&
            usable(in, &parent)) {
            o->fate = FATE_KNOWN;
            o->chunk = parent;
            return CAIRN_OK;
        }
    }
    o->fate = FATE_NEW;
    if (in->opt->compare_only) {
        b->differs = true;
        return CAIRN_OK;
    }
    return hash_sha256(plain, len, o->chunk.sha, &b->err);
}

/* Ask the index for all that look new, at once. What it does not tell is stored again. */
static void look_up(struct batch *b, size_t batch_len)
{
    struct ingest *in = b->in;
    struct cairn_error ignored;
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        if (b->out[i].fate == FATE_NEW)
            memcpy(b->asked[n++].chunk.sha, b->out[i].chunk.sha, SHA256_LEN);
    if (!in->s->index || index_lookup_many(in->s->index, b->asked, n, &ignored))
        return;
    const struct index_query *q = b->asked;
    for (uint32_t i = 0; i < b->n; i++) {
        struct outcome *o = &b->out[i];
        if (o->fate != FATE_NEW)
            continue;
        if (q->found && q->chunk.loc.plain_len == chunk_len(b, batch_len, i) &&
            usable(in, &q->chunk)) {
            o->fate = FATE_KNOWN;
            o->chunk = q->chunk;
        }
        q++;
    }
}

static int work_chunks(struct batch *b, struct chunk_ctx *ctx, const struct manifest_file *pf,
                       size_t len)
{
    struct ingest *in = b->in;
    int rc = CAIRN_OK;
    for (uint32_t i = 0; !rc && i < b->n; i++) {
        if (atomic_load(&in->stop))
            return CAIRN_OK;
        rc = sift(b, pf, i, chunk_len(b, len, i));
    }
    if (rc || in->opt->compare_only)
        return rc;
    look_up(b, len);
    for (uint32_t i = 0; !rc && i < b->n && !atomic_load(&in->stop); i++) {
        struct outcome *o = &b->out[i];
        struct chunk parent;
        if (o->fate != FATE_NEW)
            continue;
        if (o->has_parent) {
            manifest_chunk(in->opt->parent, o->parent, &parent);
            /* What the index of this host does not know yet may be there all the same. */
            if (memcmp(parent.sha, o->chunk.sha, SHA256_LEN) == 0 && usable(in, &parent)) {
                o->fate = FATE_KNOWN;
                o->chunk = parent;
                continue;
            }
        }
        rc =
            encode(b, ctx, o->has_parent ? &parent : NULL, b->plain + (size_t)i * in->chunk_size,
                   chunk_len(b, len, i), b->coded + (size_t)i * 2 * codec_bound(in->chunk_size), o);
    }
    return rc;
}

static int work_batch(struct batch *b)
{
    struct ingest *in = b->in;
    const struct walk_file *f = &in->opt->files->files[b->file];
    uint64_t off = b->first * in->chunk_size;
    size_t len = (size_t)b->n * in->chunk_size;
    if (len > f->size - off)
        len = (size_t)(f->size - off);
    int rc = op_check(in->op, "publish", &b->err);
    if (rc)
        return rc;
    ssize_t got = util_pread_full(b->fd, b->plain, len, off);
    if (got < 0 || (size_t)got < len) {
        int e = errno;
        char shown[WALK_SHOWN];
        walk_shown(f->path, f->path_len, shown);
        return got < 0 ? error_sys(&b->err, e, "export: reading %s", shown)
                       : error_set(&b->err, CAIRN_BUSY, EBUSY,
                                   "export: %s became shorter while it was published", shown);
    }
    struct manifest_file pf_room, *pf = NULL;
    if (in->opt->parent) {
        int64_t at = manifest_find(in->opt->parent, f->path, f->path_len);
        if (at >= 0)
            manifest_file(in->opt->parent, (uint32_t)at, pf = &pf_room);
    }
    struct chunk_ctx *ctx = NULL;
    rc = chunk_ctx_get(in->s, &ctx, &b->err);
    if (!rc)
        rc = work_chunks(b, ctx, pf, len);
    chunk_ctx_put(in->s, ctx);
    return rc;
}

static void run_batch(struct pool_work *work, unsigned worker)
{
    (void)worker;
    struct batch *b = (struct batch *)((char *)work - offsetof(struct batch, work));
    b->rc = atomic_load(&b->in->stop) ? CAIRN_OK : work_batch(b);
    if (b->rc)
        atomic_store(&b->in->stop, true);
}

/* ---- The caller's thread: handing out -------------------------------------------------------- */

static int open_file(struct ingest *in, size_t file)
{
    const struct walk *files = in->opt->files;
    if (!in->opt->open_files)
        return walk_open(files, file, &in->fds[file], in->err);
    in->fds[file] = fcntl(in->opt->open_files[file], F_DUPFD_CLOEXEC, 0);
    if (in->fds[file] < 0) {
        int e = errno;
        char shown[WALK_SHOWN];
        const struct walk_file *f = &files->files[file];
        return error_sys(in->err, e, "export: %s", walk_shown(f->path, f->path_len, shown));
    }
    return walk_unchanged(files, file, in->fds[file], in->err);
}

static const struct manifest *known_chunks(const struct ingest *in, size_t file)
{
    return in->opt->known ? in->opt->known[file] : NULL;
}

/* The next run of data of the open file into [next_chunk, data_end); false at its end. */
static int find_data(struct ingest *in, uint64_t size, bool *found)
{
    uint64_t pos = in->next_chunk * in->chunk_size;
    *found = false;
    if (pos >= size)
        return CAIRN_OK;
    if (pos < in->data_end) {
        *found = true;
        return CAIRN_OK;
    }
    int fd = in->fds[in->next_file];
    off_t data = lseek(fd, (off_t)pos, SEEK_DATA);
    if (data < 0 && errno == ENXIO)
        return CAIRN_OK;
    if (data < 0 && errno != EINVAL && errno != EOPNOTSUPP) {
        int e = errno;
        char shown[WALK_SHOWN];
        const struct walk_file *f = &in->opt->files->files[in->next_file];
        return error_sys(in->err, e, "export: seeking in %s",
                         walk_shown(f->path, f->path_len, shown));
    }
    off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    /* A file system without holes: all of it is data. */
    in->data_end = hole < 0 || (uint64_t)hole > size ? size : (uint64_t)hole;
    /* No hole can begin where data does, nor before where it was looked for: whoever says so is not
     * to be believed that the rest is one. */
    if (data >= 0 && (in->data_end <= (uint64_t)data || in->data_end <= pos))
        in->data_end = size;
    if (data >= 0 && (uint64_t)data > pos)
        in->next_chunk = (uint64_t)data / in->chunk_size;
    *found =
        in->next_chunk * in->chunk_size < size && in->data_end > (uint64_t)(data < 0 ? 0 : data);
    return CAIRN_OK;
}

/* Fill b with the next batch. *more is false when every file was handed out. */
static int next_batch(struct ingest *in, struct batch *b, bool *more)
{
    const struct walk *files = in->opt->files;
    *more = false;
    while (in->next_file < files->n) {
        uint64_t size = files->files[in->next_file].size;
        if (!in->file_open) {
            int rc = open_file(in, in->next_file);
            if (rc)
                return rc;
            in->file_open = true;
            in->file_had_batch = false;
            in->next_chunk = in->data_end = 0;
        }
        bool found = false;
        int rc = known_chunks(in, in->next_file) ? CAIRN_OK : find_data(in, size, &found);
        if (rc)
            return rc;
        b->file = in->next_file;
        b->fd = in->fds[b->file];
        b->first = in->next_chunk;
        b->n = 0;
        b->differs = false;
        if (found) {
            uint64_t left = in->data_end - in->next_chunk * in->chunk_size;
            uint64_t n = (left + in->chunk_size - 1) / in->chunk_size;
            b->n = n < in->batch_max ? (uint32_t)n : in->batch_max;
            in->next_chunk += b->n;
            uint64_t at = in->next_chunk * in->chunk_size;
            b->reached = in->bytes_before + (at < size ? at : size);
        } else {
            in->bytes_before += size;
            b->reached = in->bytes_before;
            in->file_open = false;
            in->next_file++;
        }
        /* Every file makes at least one batch, so that open files are bounded by the ring. */
        if (found || !in->file_had_batch) {
            in->file_had_batch = true;
            *more = true;
            return CAIRN_OK;
        }
    }
    return CAIRN_OK;
}

/* ---- The caller's thread: taking back -------------------------------------------------------- */

static int digest_to(struct ingest *in, uint64_t pos)
{
    int rc = CAIRN_OK;
    if (in->digest && pos > in->digest_pos)
        rc = digest_zeros(in->digest, pos - in->digest_pos, in->err);
    in->digest_pos = pos;
    return rc;
}

static int end_file(struct ingest *in)
{
    const struct walk *files = in->opt->files;
    int rc = walk_unchanged(files, in->cur_file, in->fds[in->cur_file], in->err);
    close(in->fds[in->cur_file]);
    in->fds[in->cur_file] = -1;
    if (!rc)
        rc = digest_to(in, files->files[in->cur_file].size);
    if (!rc)
        rc = manifest_builder_file_end(in->result->builder, in->err);
    in->cur_file++;
    in->cur_begun = false;
    return rc;
}

/* The chunks of a file that was read before. */
static int take_known(struct ingest *in, const struct manifest *m)
{
    struct manifest_file f;
    manifest_file(m, 0, &f);
    if (f.size != in->opt->files->files[in->cur_file].size)
        return error_set(in->err, CAIRN_INTERNAL, 0,
                         "publish: chunks known of a file that is not "
                         "the one that is there");
    int rc = CAIRN_OK;
    for (uint32_t i = 0; !rc && i < f.n_extents; i++) {
        struct manifest_extent x;
        manifest_extent(m, f.first_extent + i, &x);
        for (uint32_t j = 0; !rc && j < x.count; j++) {
            struct chunk c;
            manifest_chunk(m, x.first + j, &c);
            rc = manifest_builder_chunk(in->result->builder, x.chunk_no + j, &c,
                                        manifest_chunk_xxh(m, x.first + j), in->err);
            in->result->chunks++;
        }
    }
    return rc;
}

static int begin_file(struct ingest *in)
{
    const struct walk_file *f = &in->opt->files->files[in->cur_file];
    int rc =
        manifest_builder_file_begin(in->result->builder, f->path, f->path_len, f->size, in->err);
    if (!rc && in->digest)
        rc = digest_file(in->digest, f->path, f->path_len, f->size, in->err);
    in->digest_pos = 0;
    in->cur_begun = true;
    const struct manifest *known = known_chunks(in, in->cur_file);
    return rc || !known ? rc : take_known(in, known);
}

static int take_chunk(struct ingest *in, struct batch *b, uint32_t i)
{
    struct outcome *o = &b->out[i];
    uint64_t size = in->opt->files->files[b->file].size;
    uint64_t off = (b->first + i) * in->chunk_size;
    size_t len = size - off < in->chunk_size ? (size_t)(size - off) : in->chunk_size;
    if (o->fate == FATE_ZERO)
        return CAIRN_OK;
    int rc = digest_to(in, off);
    if (!rc && in->digest)
        rc = digest_data(in->digest, b->plain + (size_t)i * in->chunk_size, len, in->err);
    in->digest_pos = off + len;
    struct chunk known;
    if (!rc && o->fate == FATE_NEW) {
        if (manifest_builder_find(in->result->builder, o->chunk.sha, &known)) {
            o->chunk = known;
        } else {
            rc = pack_writer_add(in->writer, &o->chunk, o->stored, o->stored_len, in->err);
            in->result->new_chunks++;
            in->result->new_bytes += len;
            in->result->stored_bytes += o->stored_len;
        }
    }
    if (!rc)
        rc = manifest_builder_chunk(in->result->builder, b->first + i, &o->chunk, o->xxh, in->err);
    in->result->chunks++;
    return rc;
}

/* Once one batch failed, those behind and before it may be half done: none of them is taken. */
static int failure(struct ingest *in)
{
    for (size_t i = 0; i < in->used; i++) {
        struct batch *b = &in->ring[(in->head + i) % in->ring_n];
        if (b->submitted)
            pool_wait(&b->work);
        b->submitted = false;
        if (!b->rc)
            continue;
        if (in->err)
            *in->err = b->err;
        return b->rc;
    }
    return error_set(in->err, CAIRN_INTERNAL, 0, "publish: stopped for no reason");
}

static int take_batch(struct ingest *in, struct batch *b)
{
    if (b->submitted)
        pool_wait(&b->work);
    b->submitted = false;
    int rc = atomic_load(&in->stop) ? failure(in) : CAIRN_OK;
    while (!rc && in->cur_file < b->file)
        rc = in->cur_begun ? end_file(in) : begin_file(in);
    if (!rc && !in->cur_begun)
        rc = begin_file(in);
    if (b->differs)
        in->result->differs = true;
    for (uint32_t i = 0; !rc && i < b->n && !in->result->differs; i++)
        rc = take_chunk(in, b, i);
    STEP("ingest.batch");
    return rc;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static void report(const struct ingest *in, uint64_t done)
{
    const struct cairn_progress *p = in->opt->progress;
    if (p && p->report)
        p->report(p->ctx, done, in->opt->files->logical_bytes);
}

static int run(struct ingest *in)
{
    bool more = true;
    while (!in->result->differs) {
        while (more && in->used < in->ring_n) {
            struct batch *b = &in->ring[(in->head + in->used) % in->ring_n];
            int rc = next_batch(in, b, &more);
            if (rc)
                return rc;
            if (!more)
                break;
            b->rc = CAIRN_OK;
            in->used++;
            if (b->n) {
                b->work.run = run_batch;
                b->submitted = true;
                pool_submit(in->s->pool, &b->work);
            }
        }
        if (!in->used)
            break;
        struct batch *b = &in->ring[in->head];
        int rc = take_batch(in, b);
        in->head = (in->head + 1) % in->ring_n;
        in->used--;
        if (rc)
            return rc;
        report(in, b->reached);
    }
    if (in->result->differs)
        return CAIRN_OK;
    int rc = in->cur_begun ? end_file(in) : CAIRN_OK;
    if (!rc && in->digest)
        rc = digest_final(in->digest, in->result->digest, in->err);
    if (!rc && in->writer)
        rc = pack_writer_finish(in->writer, in->err);
    return rc;
}

static int allocate(struct ingest *in)
{
    size_t n_files = in->opt->files->n;
    in->ring_n = 2 * pool_workers(in->s->pool) + 2;
    in->ring = calloc(in->ring_n, sizeof(in->ring[0]));
    in->fds = malloc((n_files ? n_files : 1) * sizeof(in->fds[0]));
    if (!in->ring || !in->fds)
        return error_oom(in->err, "publish");
    for (size_t i = 0; i < n_files; i++)
        in->fds[i] = -1;
    size_t len = (size_t)in->batch_max * in->chunk_size;
    bool codes = !in->opt->compare_only && in->s->format.compression != FORMAT_NONE;
    for (size_t i = 0; i < in->ring_n; i++) {
        struct batch *b = &in->ring[i];
        b->in = in;
        b->plain = malloc(len);
        b->out = calloc(in->batch_max, sizeof(b->out[0]));
        b->asked = calloc(in->batch_max, sizeof(b->asked[0]));
        b->base = malloc(in->chunk_size);
        /* Room for each chunk encoded with and without its base; untouched pages cost nothing. */
        if (codes)
            b->coded = malloc(in->batch_max * 2 * codec_bound(in->chunk_size));
        if (!b->plain || !b->out || !b->asked || !b->base || (codes && !b->coded))
            return error_oom(in->err, "publish");
    }
    int rc = manifest_builder_new(in->chunk_size, &in->result->builder, in->err);
    if (!rc && in->opt->digest)
        rc = digest_new(&in->digest, in->err);
    if (!rc && !in->opt->compare_only)
        rc = pack_writer_new(in->s, in->op, &in->writer, in->err);
    return rc;
}

static void release(struct ingest *in)
{
    atomic_store(&in->stop, true);
    for (size_t i = 0; in->ring && i < in->ring_n; i++) {
        struct batch *b = &in->ring[i];
        if (b->submitted)
            pool_wait(&b->work);
        free(b->plain);
        free(b->coded);
        free(b->base);
        free(b->out);
        free(b->asked);
    }
    for (size_t i = 0; in->fds && i < in->opt->files->n; i++)
        if (in->fds[i] >= 0)
            close(in->fds[i]);
    pack_writer_free(in->writer);
    digest_free(in->digest);
    free(in->fds);
    free(in->ring);
}

int ingest_run(struct cairn_store *s, const struct cairn_op *op,
               const struct ingest_options *options, struct ingest_result *result,
               struct cairn_error *err)
{
    *result = (struct ingest_result){0};
    uint32_t chunk_size = s->format.chunk_size;
    struct ingest in = {.s = s,
                        .op = op,
                        .opt = options,
                        .result = result,
                        .err = err,
                        .chunk_size = chunk_size,
                        .batch_max = BATCH_LEN > chunk_size ? BATCH_LEN / chunk_size : 1};
    int rc = CAIRN_OK;
    if (options->known && options->digest)
        rc = error_set(err, CAIRN_INTERNAL, EINVAL, "publish: a digest needs every file's bytes");
    if (!rc)
        rc = allocate(&in);
    if (!rc)
        rc = run(&in);
    release(&in);
    if (rc) {
        manifest_builder_free(result->builder);
        *result = (struct ingest_result){0};
    }
    return rc;
}
