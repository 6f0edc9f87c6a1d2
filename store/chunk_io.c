#include "store/chunk_io.h"

#include "base/log.h"
#include "base/util.h"
#include "store/cache_fill.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    if (c) {
        s->free_ctx = c->next;
        s->n_free_ctx--;
    }
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
    /* The next user rarely goes on in the same pack, and as many as there are would be held. */
    free(c->span);
    c->span = NULL;
    c->span_cap = c->span_len = 0;
    c->bases = NULL;
    pthread_mutex_lock(&s->ctx_lock);
    bool keep = s->n_free_ctx < CHUNK_CTX_KEPT;
    if (keep) {
        c->next = s->free_ctx;
        s->free_ctx = c;
        s->n_free_ctx++;
    }
    pthread_mutex_unlock(&s->ctx_lock);
    if (!keep)
        ctx_free(c);
}

void chunk_ctx_free_all(struct cairn_store *s)
{
    while (s->free_ctx) {
        struct chunk_ctx *c = s->free_ctx;
        s->free_ctx = c->next;
        s->n_free_ctx--;
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

/* The stored bytes of a chunk, as they lie in the pack, into out (loc->stored_len bytes). Not
 * verified. not_found: the pack is gone. corrupt: it ends before. */
static int read_stored(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
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

static int read_once(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                     const struct chunk *chunk, const uint8_t *xxh, void *plain, size_t cap,
                     size_t expect, size_t *len, struct cairn_error *err);

int chunk_verify(struct cairn_store *s, const struct chunk *chunk, const uint8_t *xxh,
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

static int check_raw(const struct chunk *chunk, size_t cap, size_t expect, struct cairn_error *err)
{
    if (chunk->loc.stored_len > cap || (expect && chunk->loc.stored_len != expect))
        return damaged(chunk, "it has another length than it should", err);
    return CAIRN_OK;
}

int chunk_decode(struct cairn_store *s, struct chunk_ctx *ctx, const struct chunk *chunk,
                 const uint8_t *xxh, const void *stored, const void *base, size_t base_len,
                 void *plain, size_t cap, size_t expect, size_t *len, struct cairn_error *err)
{
    struct cairn_error why;
    int rc = codec_decode(ctx->codec, chunk->loc.encoding, stored, chunk->loc.stored_len, base,
                          base_len, plain, cap, expect, len, &why);
    if (rc == CAIRN_CORRUPT)
        damaged(chunk, why.message, err);
    else if (rc && err)
        *err = why;
    return rc ? rc : chunk_verify(s, chunk, xxh, plain, *len, err);
}

/* The plain bytes of the chunk's base into ctx->base. */
static int read_base(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                     const struct chunk *chunk, size_t *len, struct cairn_error *err)
{
    struct chunk base = {.loc = chunk->base};
    memcpy(base.sha, chunk->base_sha, SHA256_LEN);
    if (base.loc.encoding == CHUNK_ZSTD_BASE)
        return damaged(chunk, "its base has a base", err);
    if (ctx->bases && s->fills) {
        struct fill_want want;
        fill_want_base(chunk, &want);
        return fills_read(s->fills, op, &want, ctx->bases, ctx->base, len, err);
    }
    return read_once(s, op, ctx, &base, NULL, ctx->base, s->format.chunk_size, 0, len, err);
}

static int read_once(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                     const struct chunk *chunk, const uint8_t *xxh, void *plain, size_t cap,
                     size_t expect, size_t *len, struct cairn_error *err)
{
    size_t base_len = 0;
    int rc = CAIRN_OK;
    if (chunk->loc.encoding == CHUNK_RAW) {
        *len = chunk->loc.stored_len;
        rc = check_raw(chunk, cap, expect, err);
        if (!rc)
            rc = read_stored(s, op, ctx, &chunk->loc, plain, err);
        return rc ? rc : chunk_verify(s, chunk, xxh, plain, *len, err);
    }
    if (chunk->loc.encoding == CHUNK_ZSTD_BASE)
        rc = read_base(s, op, ctx, chunk, &base_len, err);
    if (!rc && chunk->loc.stored_len > codec_bound(s->format.chunk_size))
        rc = damaged(chunk, "it is longer than any chunk can be", err);
    if (!rc)
        rc = read_stored(s, op, ctx, &chunk->loc, ctx->stored, err);
    return rc ? rc
              : chunk_decode(s, ctx, chunk, xxh, ctx->stored, ctx->base, base_len, plain, cap,
                             expect, len, err);
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

int chunk_read_again(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                     const struct chunk *chunk, const uint8_t *xxh, void *plain, size_t cap,
                     size_t expect, size_t *len, struct cairn_error *err)
{
    ctx->span_len = 0; /* it may be what was damaged on its way */
    int rc = read_once(s, op, ctx, chunk, xxh, plain, cap, expect, len, err);
    if (rc == CAIRN_CORRUPT)
        forget(s, chunk);
    return rc;
}

int chunk_read(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
               const struct chunk *chunk, const uint8_t *xxh, void *plain, size_t cap,
               size_t expect, size_t *len, struct cairn_error *err)
{
    int rc = read_once(s, op, ctx, chunk, xxh, plain, cap, expect, len, err);
    return rc == CAIRN_CORRUPT
               ? chunk_read_again(s, op, ctx, chunk, xxh, plain, cap, expect, len, err)
               : rc;
}
