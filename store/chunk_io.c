#include "store/chunk_io.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_PACKS_MAX 128

/* An open pack. Users hold references; one without any stays open until it is the least recently
 * used of more than OPEN_PACKS_MAX. All fields but pack and fd are guarded by the table's lock. */
struct pack_entry_ref {
    uint8_t pack[PACK_ID_LEN];
    int fd;
    unsigned users;
    uint64_t used; /* the table's clock at the last use */
};

struct pack_files {
    pthread_mutex_t lock;
    struct pack_entry_ref *open[OPEN_PACKS_MAX];
    size_t n;
    uint64_t clock;
};

int pack_files_new(struct pack_files **out, struct cairn_error *err)
{
    struct pack_files *p = calloc(1, sizeof(*p));
    if (!p)
        return error_oom(err, "table of open packs");
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return CAIRN_OK;
}

static void ref_free(struct pack_entry_ref *r)
{
    close(r->fd);
    free(r);
}

void pack_files_free(struct pack_files *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++)
        ref_free(p->open[i]);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static struct pack_entry_ref *find_locked(struct pack_files *p, const uint8_t pack[PACK_ID_LEN])
{
    for (size_t i = 0; i < p->n; i++)
        if (memcmp(p->open[i]->pack, pack, PACK_ID_LEN) == 0)
            return p->open[i];
    return NULL;
}

/* Put r into the table if there is room or an unused one can leave it. *out_of is what left, to be
 * closed without the lock. */
static bool insert_locked(struct pack_files *p, struct pack_entry_ref *r,
                          struct pack_entry_ref **out_of)
{
    *out_of = NULL;
    if (p->n < OPEN_PACKS_MAX) {
        p->open[p->n++] = r;
        return true;
    }
    size_t oldest = OPEN_PACKS_MAX;
    for (size_t i = 0; i < p->n; i++)
        if (!p->open[i]->users &&
            (oldest == OPEN_PACKS_MAX || p->open[i]->used < p->open[oldest]->used))
            oldest = i;
    if (oldest == OPEN_PACKS_MAX)
        return false;
    *out_of = p->open[oldest];
    p->open[oldest] = r;
    return true;
}

int pack_file_get(struct cairn_store *s, const struct cairn_op *op, const uint8_t pack[PACK_ID_LEN],
                  struct pack_file *out, struct cairn_error *err)
{
    *out = (struct pack_file){.fd = -1};
    struct backend *b = s->backend;
    if (!b->ops->open_fd)
        return CAIRN_OK;
    struct pack_files *p = s->packs;
    pthread_mutex_lock(&p->lock);
    struct pack_entry_ref *r = find_locked(p, pack);
    if (r) {
        r->users++;
        r->used = ++p->clock;
    }
    pthread_mutex_unlock(&p->lock);
    if (!r) {
        char key[KEY_MAX];
        layout_pack(pack, key);
        int fd;
        int rc = b->ops->open_fd(b, op, key, &fd, err);
        if (rc)
            return rc;
        r = calloc(1, sizeof(*r));
        if (!r) {
            close(fd);
            return error_oom(err, "open pack");
        }
        memcpy(r->pack, pack, PACK_ID_LEN);
        r->fd = fd;
        r->users = 1;
        struct pack_entry_ref *spare = NULL, *theirs;
        pthread_mutex_lock(&p->lock);
        theirs = find_locked(p, pack);
        if (theirs) {
            theirs->users++;
            spare = r;
            r = theirs;
        } else if (!insert_locked(p, r, &spare)) {
            r->used = UINT64_MAX; /* not in the table: closed when put back */
        }
        if (r->used != UINT64_MAX)
            r->used = ++p->clock;
        pthread_mutex_unlock(&p->lock);
        if (spare)
            ref_free(spare);
    }
    *out = (struct pack_file){.fd = r->fd, .ref = r};
    return CAIRN_OK;
}

void pack_file_put(struct cairn_store *s, struct pack_file *f)
{
    struct pack_entry_ref *r = f->ref;
    *f = (struct pack_file){.fd = -1};
    if (!r)
        return;
    pthread_mutex_lock(&s->packs->lock);
    r->users--;
    bool last = r->users == 0 && r->used == UINT64_MAX;
    pthread_mutex_unlock(&s->packs->lock);
    if (last)
        ref_free(r);
}

static void ctx_free(struct chunk_ctx *c)
{
    codec_free(c->codec);
    free(c->stored);
    free(c->base);
    free(c->span);
    free(c);
}

int chunk_ctx_get(struct cairn_store *s, struct chunk_ctx **out, struct cairn_error *err)
{
    pthread_mutex_lock(&s->ctx_lock);
    struct chunk_ctx *c = s->free_ctx;
    if (c)
        s->free_ctx = c->next;
    pthread_mutex_unlock(&s->ctx_lock);
    if (!c) {
        c = calloc(1, sizeof(*c));
        if (!c)
            return error_oom(err, "chunk scratch");
        c->stored = malloc(codec_bound(s->format.chunk_size));
        c->base = malloc(s->format.chunk_size);
        int rc = c->stored && c->base ? codec_new(&c->codec, err) : error_oom(err, "chunk scratch");
        if (rc) {
            ctx_free(c);
            return rc;
        }
    }
    *out = c;
    return CAIRN_OK;
}

void chunk_ctx_put(struct cairn_store *s, struct chunk_ctx *c)
{
    if (!c)
        return;
    c->span_len = 0;
    pthread_mutex_lock(&s->ctx_lock);
    c->next = s->free_ctx;
    s->free_ctx = c;
    pthread_mutex_unlock(&s->ctx_lock);
}

void chunk_ctx_free_all(struct cairn_store *s)
{
    while (s->free_ctx) {
        struct chunk_ctx *c = s->free_ctx;
        s->free_ctx = c->next;
        ctx_free(c);
    }
}

/* Pieces of a pack are read ahead up to this, over gaps of at most SPAN_GAP. */
#define SPAN_MAX (4u * 1024 * 1024)
#define SPAN_GAP 32768u

static bool in_span(const struct chunk_ctx *ctx, const struct chunk_loc *loc)
{
    return ctx->span_len && memcmp(ctx->span_pack, loc->pack, PACK_ID_LEN) == 0 &&
           loc->offset >= ctx->span_off &&
           loc->offset + (uint64_t)loc->stored_len <= ctx->span_off + ctx->span_len;
}

void chunk_at_manifest(const void *manifest, uint32_t i, struct chunk_loc *out)
{
    struct chunk c;
    manifest_chunk(manifest, i, &c);
    *out = c.loc;
}

void chunk_read_ahead(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                      chunk_at *at, const void *src, uint32_t i, uint32_t end)
{
    if (s->backend->ops->open_fd)
        return;
    struct chunk_loc first, loc;
    at(src, i, &first);
    if (in_span(ctx, &first))
        return;
    uint64_t to = first.offset + (uint64_t)first.stored_len;
    uint32_t n = 1;
    for (; i + n < end; n++) {
        at(src, i + n, &loc);
        uint64_t next = loc.offset + (uint64_t)loc.stored_len;
        if (memcmp(loc.pack, first.pack, PACK_ID_LEN) != 0 || loc.offset < to ||
            loc.offset - to > SPAN_GAP || next - first.offset > SPAN_MAX)
            break;
        to = next;
    }
    size_t len = (size_t)(to - first.offset);
    ctx->span_len = 0;
    if (n < 2 || len > SPAN_MAX)
        return;
    if (len > ctx->span_cap) {
        free(ctx->span);
        ctx->span = malloc(len);
        ctx->span_cap = ctx->span ? len : 0;
        if (!ctx->span)
            return;
    }
    char key[KEY_MAX];
    layout_pack(first.pack, key);
    struct cairn_error ignored;
    if (s->backend->ops->read(s->backend, op, key, first.offset, ctx->span, len, &ignored))
        return;
    memcpy(ctx->span_pack, first.pack, PACK_ID_LEN);
    ctx->span_off = first.offset;
    ctx->span_len = len;
}

int chunk_read_stored(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                      const struct chunk_loc *loc, void *out, struct cairn_error *err)
{
    if (in_span(ctx, loc)) {
        memcpy(out, ctx->span + (loc->offset - ctx->span_off), loc->stored_len);
        return CAIRN_OK;
    }
    char key[KEY_MAX];
    layout_pack(loc->pack, key);
    struct pack_file f;
    int rc = pack_file_get(s, op, loc->pack, &f, err);
    if (rc)
        return rc;
    if (f.fd < 0) {
        rc = s->backend->ops->read(s->backend, op, key, loc->offset, out, loc->stored_len, err);
    } else {
        ssize_t n = util_pread_full(f.fd, out, loc->stored_len, loc->offset);
        int e = errno;
        if (n < 0)
            rc = error_sys(err, e, "reading %s at %u", key, loc->offset);
        else if ((size_t)n < loc->stored_len)
            rc = error_set(err, CAIRN_CORRUPT, EIO, "%s ends before byte %llu", key,
                           (unsigned long long)loc->offset + loc->stored_len);
    }
    pack_file_put(s, &f);
    return rc;
}

static int damaged(const struct chunk *chunk, const char *how, struct cairn_error *err)
{
    char key[KEY_MAX], sha[2 * SHA256_LEN + 1];
    layout_pack(chunk->loc.pack, key);
    util_hex(chunk->sha, SHA256_LEN, sha);
    return error_set(err, CAIRN_CORRUPT, EIO, "%s, offset %u, chunk %s: %s", key, chunk->loc.offset,
                     sha, how);
}

static int verify_plain(struct cairn_store *s, const struct chunk *chunk, const uint8_t *xxh,
                        const void *plain, size_t len, struct cairn_error *err)
{
    if (xxh && !util_is_zero(xxh, XXH3_LEN)) {
        uint8_t sum[XXH3_LEN];
        hash_xxh3(s->format.secret, plain, len, sum);
        return memcmp(sum, xxh, XXH3_LEN) == 0 ? CAIRN_OK
                                               : damaged(chunk, "its bytes have changed", err);
    }
    uint8_t sum[SHA256_LEN];
    int rc = hash_sha256(plain, len, sum, err);
    if (!rc && memcmp(sum, chunk->sha, SHA256_LEN) != 0)
        rc = damaged(chunk, "its bytes have changed", err);
    return rc;
}

static int read_once(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                     const struct chunk *chunk, const uint8_t *xxh, void *plain, size_t cap,
                     size_t expect, size_t *len, struct cairn_error *err)
{
    size_t base_len = 0;
    int rc;
    if (chunk->loc.encoding == CHUNK_ZSTD_BASE) {
        struct chunk base = {.loc = chunk->base};
        memcpy(base.sha, chunk->base_sha, SHA256_LEN);
        if (base.loc.encoding == CHUNK_ZSTD_BASE)
            return damaged(chunk, "its base has a base", err);
        rc = read_once(s, op, ctx, &base, NULL, ctx->base, s->format.chunk_size, 0, &base_len, err);
        if (rc)
            return rc;
    }
    if (chunk->loc.encoding == CHUNK_RAW) {
        if (chunk->loc.stored_len > cap || (expect && chunk->loc.stored_len != expect))
            return damaged(chunk, "it has another length than it should", err);
        *len = chunk->loc.stored_len;
        rc = chunk_read_stored(s, op, ctx, &chunk->loc, plain, err);
    } else {
        if (chunk->loc.stored_len > codec_bound(s->format.chunk_size))
            return damaged(chunk, "it is longer than any chunk can be", err);
        rc = chunk_read_stored(s, op, ctx, &chunk->loc, ctx->stored, err);
        if (!rc) {
            struct cairn_error why;
            rc = codec_decode(ctx->codec, chunk->loc.encoding, ctx->stored, chunk->loc.stored_len,
                              ctx->base, base_len, plain, cap, expect, len, &why);
            if (rc == CAIRN_CORRUPT)
                damaged(chunk, why.message, err);
            else if (rc && err)
                *err = why;
        }
    }
    return rc ? rc : verify_plain(s, chunk, xxh, plain, *len, err);
}

/* No new record is to refer to what is damaged. Dropping a pack that is not known costs a look. */
static void forget(struct cairn_store *s, const struct chunk *chunk)
{
    struct cairn_error ignored;
    bool based = chunk->loc.encoding == CHUNK_ZSTD_BASE;
    if (s->index && (index_drop_pack(s->index, chunk->loc.pack, &ignored) ||
                     (based && index_drop_pack(s->index, chunk->base.pack, &ignored))))
        log_line(LOG_LEVEL_WARNING, "index: dropping a damaged pack: %s", ignored.message);
}

int chunk_read(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
               const struct chunk *chunk, const uint8_t *xxh, void *plain, size_t cap,
               size_t expect, size_t *len, struct cairn_error *err)
{
    int rc = read_once(s, op, ctx, chunk, xxh, plain, cap, expect, len, err);
    if (rc == CAIRN_CORRUPT) {
        ctx->span_len = 0; /* it may be what was damaged on its way */
        rc = read_once(s, op, ctx, chunk, xxh, plain, cap, expect, len, err);
    }
    if (rc == CAIRN_CORRUPT)
        forget(s, chunk);
    return rc;
}
