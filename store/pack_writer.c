#include "store/pack_writer.h"

#include "base/log.h"
#include "base/step.h"
#include "base/util.h"
#include "store/fresh.h"
#include "store/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* Seals that may run beside the pack being filled. */
#define SEALS      STORE_IO_THREADS
#define BUFFER_LEN (1024 * 1024)
/* How much is written before the kernel is asked to start on it, so that fsync finds little left.
 */
#define FLUSH_EVERY (8u * 1024 * 1024)

/* A pack on its way. Owned by the writer's thread while it fills, by a pool thread from pool_submit
 * to pool_wait. */
struct open_pack {
    struct pool_work work;
    bool busy; /* submitted and not waited for */
    struct pack_writer *writer;
    struct backend_upload *upload;
    uint8_t id[PACK_ID_LEN];
    uint8_t header[PACK_HEADER_LEN];
    struct pack_entry *entries;
    uint32_t n, cap;
    uint64_t end; /* of the chunks, in the pack */
    int rc;       /* of the seal */
    struct cairn_error err;
};

struct pack_writer {
    struct cairn_store *store;
    const struct cairn_op *op;
    struct open_pack packs[SEALS + 1];
    size_t next; /* of packs, which are used in turn: the one that was begun longest ago */
    struct open_pack *current; /* NULL: none open */
    uint8_t *buffer;           /* the end of the current pack, not written yet */
    uint64_t buffer_off;       /* where it begins in the pack */
    size_t buffered;
    uint64_t flushed; /* of the current pack, handed to the kernel's write-back */
};

int pack_writer_new(struct cairn_store *store, const struct cairn_op *op, struct pack_writer **out,
                    struct cairn_error *err)
{
    struct pack_writer *w = calloc(1, sizeof(*w));
    if (!w || !(w->buffer = malloc(BUFFER_LEN))) {
        free(w);
        return error_oom(err, "pack writer");
    }
    w->store = store;
    w->op = op;
    *out = w;
    return CAIRN_OK;
}

static void reset(struct open_pack *p)
{
    if (p->upload)
        p->writer->store->backend->ops->upload_abort(p->upload);
    p->upload = NULL;
    free(p->entries);
    p->entries = NULL;
    p->n = p->cap = 0;
}

void pack_writer_free(struct pack_writer *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(w->packs); i++) {
        if (w->packs[i].busy)
            pool_wait(&w->packs[i].work);
        reset(&w->packs[i]);
    }
    free(w->buffer);
    free(w);
}

/* Wait for a seal and take its outcome. */
static int collect(struct open_pack *p, struct cairn_error *err)
{
    pool_wait(&p->work);
    p->busy = false;
    int rc = p->rc;
    if (rc && err)
        *err = p->err;
    reset(p);
    return rc;
}

static int write_at(struct open_pack *p, const void *data, size_t len, uint64_t off,
                    struct cairn_error *err)
{
    if (util_pwrite_full(p->upload->fd, data, len, off) < 0) {
        int e = errno;
        return error_sys(err, e, "writing a pack");
    }
    return CAIRN_OK;
}

static int seal(struct open_pack *p, struct cairn_error *err)
{
    struct cairn_store *s = p->writer->store;
    char key[KEY_MAX];
    layout_pack(p->id, key);
    CLEANUP_BUF struct buf tail = BUF_INIT(PACK_SIZE_MAX);
    STEP("pack.filled");
    int rc = pack_index_encode(p->header, p->end, p->entries, p->n, &tail, err);
    if (!rc)
        rc = write_at(p, tail.data, tail.len, p->end, err);
    if (rc)
        return rc;
    STEP("pack.index-written");
    rc = s->backend->ops->upload_commit(util_steal(&p->upload), p->writer->op, key,
                                        p->end + tail.len, err);
    if (rc)
        return error_wrap(err, "storing %s", key);
    fresh_note(p->id);
    STEP("pack.durable");
    struct cairn_error ignored;
    if (s->index && index_add_pack(s->index, p->id, p->entries, p->n, &ignored))
        log_line(LOG_LEVEL_WARNING, "%s is not entered in the index: %s", key, ignored.message);
    STEP("pack.indexed");
    return CAIRN_OK;
}

static void seal_work(struct pool_work *work, unsigned worker)
{
    (void)worker;
    struct open_pack *p = (struct open_pack *)((char *)work - offsetof(struct open_pack, work));
    p->rc = seal(p, &p->err);
}

static int flush(struct pack_writer *w, struct cairn_error *err)
{
    struct open_pack *p = w->current;
    int rc = w->buffered ? write_at(p, w->buffer, w->buffered, w->buffer_off, err) : CAIRN_OK;
    w->buffer_off += w->buffered;
    w->buffered = 0;
    if (!rc && w->buffer_off - w->flushed >= FLUSH_EVERY) {
        /* Only a push: fsync comes later, and not every file system has this call. */
        (void)sync_file_range(p->upload->fd, (off_t)w->flushed, (off_t)(w->buffer_off - w->flushed),
                              SYNC_FILE_RANGE_WRITE);
        w->flushed = w->buffer_off;
    }
    return rc;
}

/* Append to the current pack. The gap that aligning left before off is zero. */
static int append(struct pack_writer *w, const uint8_t *data, size_t len, uint64_t off,
                  struct cairn_error *err)
{
    size_t gap = (size_t)(off - (w->buffer_off + w->buffered));
    if (w->buffered + gap + len > BUFFER_LEN) {
        int rc = flush(w, err);
        if (rc)
            return rc;
        if (gap + len > BUFFER_LEN) {
            rc = write_at(w->current, data, len, off, err);
            w->buffer_off = off + len;
            return rc;
        }
    }
    memset(w->buffer + w->buffered, 0, gap);
    memcpy(w->buffer + w->buffered + gap, data, len);
    w->buffered += gap + len;
    return CAIRN_OK;
}

static int close_current(struct pack_writer *w, struct cairn_error *err)
{
    struct open_pack *p = w->current;
    int rc = flush(w, err);
    if (rc)
        return rc;
    w->current = NULL;
    p->work.run = seal_work;
    p->busy = true;
    pool_submit(w->store->io, &p->work);
    return CAIRN_OK;
}

static int open_next(struct pack_writer *w, struct cairn_error *err)
{
    int rc = op_check(w->op, "writing a pack", err);
    struct open_pack *p = &w->packs[w->next];
    if (!rc && p->busy)
        rc = collect(p, err);
    if (rc)
        return rc;
    w->next = (w->next + 1) % ARRAY_SIZE(w->packs);
    p->writer = w;
    if (!util_random(p->id, PACK_ID_LEN)) {
        int e = errno;
        return error_sys(err, e, "random name of a pack");
    }
    struct backend *b = w->store->backend;
    rc = b->ops->upload_new(b, w->op, &p->upload, err);
    if (rc)
        return rc;
    pack_header_encode(p->id, w->store->format.chunk_size, p->header);
    p->end = PACK_HEADER_LEN;
    w->current = p;
    w->buffer_off = w->flushed = 0;
    memcpy(w->buffer, p->header, PACK_HEADER_LEN);
    w->buffered = PACK_HEADER_LEN;
    return CAIRN_OK;
}

static int add_entry(struct open_pack *p, const struct pack_entry *e, struct cairn_error *err)
{
    if (p->n == p->cap) {
        uint32_t cap = p->cap ? 2 * p->cap : 64;
        struct pack_entry *entries = reallocarray(p->entries, cap, sizeof(*entries));
        if (!entries)
            return error_oom(err, "index of a pack");
        p->entries = entries;
        p->cap = cap;
    }
    p->entries[p->n++] = *e;
    return CAIRN_OK;
}

static uint64_t offset_for(const struct open_pack *p, uint8_t encoding)
{
    return encoding == CHUNK_RAW ? align_up(p->end, PACK_RAW_ALIGN) : p->end;
}

int pack_writer_add(struct pack_writer *w, struct chunk *chunk, const void *stored, size_t len,
                    struct cairn_error *err)
{
    int rc = CAIRN_OK;
    struct open_pack *p = w->current;
    if (p) {
        uint64_t full = offset_for(p, chunk->loc.encoding) + len + PACK_TRAILER_LEN +
                        ((uint64_t)p->n + 1) * PACK_ENTRY_LEN;
        if (full > PACK_SIZE_MAX)
            rc = close_current(w, err);
    }
    if (!rc && !w->current)
        rc = open_next(w, err);
    if (rc)
        return rc;
    p = w->current;
    uint64_t off = offset_for(p, chunk->loc.encoding);
    struct pack_entry e = {.offset = (uint32_t)off,
                           .stored_len = (uint32_t)len,
                           .plain_len = chunk->loc.plain_len,
                           .encoding = chunk->loc.encoding};
    memcpy(e.sha, chunk->sha, SHA256_LEN);
    if (e.encoding == CHUNK_ZSTD_BASE)
        memcpy(e.base_sha, chunk->base_sha, SHA256_LEN);
    rc = append(w, stored, len, off, err);
    if (!rc)
        rc = add_entry(p, &e, err);
    if (rc)
        return rc;
    p->end = off + len;
    memcpy(chunk->loc.pack, p->id, PACK_ID_LEN);
    chunk->loc.offset = e.offset;
    chunk->loc.stored_len = e.stored_len;
    return CAIRN_OK;
}

int pack_writer_finish(struct pack_writer *w, struct cairn_error *err)
{
    int rc = w->current ? close_current(w, err) : CAIRN_OK;
    for (size_t i = 0; i < ARRAY_SIZE(w->packs); i++)
        if (w->packs[i].busy) {
            int one = collect(&w->packs[i], rc ? NULL : err);
            rc = rc ? rc : one;
        }
    return rc;
}
