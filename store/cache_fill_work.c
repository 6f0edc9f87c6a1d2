#include "store/cache_fill_private.h"

#include "base/clock.h"
#include "base/step.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Longer than a backend tries by itself, so that it is the backend who says what is wrong. */
#define FILL_BUDGET_NS (180 * NS_PER_S)

static struct cairn_op fill_op(const struct fills *f)
{
    return (struct cairn_op){.deadline_ns = clock_add(clock_monotonic(), FILL_BUDGET_NS),
                             .cancel = f->cancel};
}

void fill_want_base(const struct chunk *chunk, struct fill_want *out)
{
    *out = (struct fill_want){.chunk.loc = chunk->base};
    memcpy(out->chunk.sha, chunk->base_sha, SHA256_LEN);
}

void fill_read(struct fills *f, struct fill *fill)
{
    char key[KEY_MAX];
    layout_pack(fill->wants[0].chunk.loc.pack, key);
    struct cairn_op op = fill_op(f);
    /* Who began it may have looked in the cache before, and at the fills after another one ended.
     */
    fill->came = true;
    for (size_t i = 0; fill->came && i < fill->n; i++)
        fill->came = fills_has(f, &fill->wants[i]);
    if (fill->came)
        return;
    fill->stored = malloc(fill->len);
    if (!fill->stored) {
        fill->rc = error_oom(&fill->err, "reading a pack");
        return;
    }
    struct backend *b = f->s->backend;
    fill->rc = b->ops->read(b, &op, key, fill->from, fill->stored, fill->len, &fill->err);
    STEP("fill.read");
}

bool fill_from_cache(struct cairn_store *s, const struct fill_want *want, void *out,
                     struct cache_ref *ref)
{
    struct cache *c = s->cache;
    const struct chunk_loc *loc = &want->chunk.loc;
    if (!c || !cache_find(c, loc->pack, loc->offset, ref))
        return false;
    bool fits = ref->len <= s->format.chunk_size &&
                (!want->plain_len || ref->len == want->plain_len) &&
                util_pread_full(ref->fd, out, ref->len, ref->at) == (ssize_t)ref->len;
    if (fits && !ref->confirmed) {
        fits = !chunk_verify(s, &want->chunk, want->xxh, out, ref->len, NULL);
        if (fits)
            cache_confirm(c, ref);
    }
    if (!fits) {
        cache_reject(c, ref);
        cache_put(c, ref);
    }
    return fits;
}

/* Past everything else: what is corrupt a second time is, and the index forgets the pack. first:
 * its own bytes have not been read yet. */
static int read_alone(struct fills *f, struct chunk_ctx *ctx, const struct fill_want *want,
                      bool first, struct fill_result *r, struct cairn_error *err)
{
    struct cairn_op op = fill_op(f);
    size_t cap = f->s->format.chunk_size, len;
    if (!r->own)
        r->own = malloc(cap);
    if (!r->own)
        return error_oom(err, "reading a chunk");
    int rc = (first ? chunk_read : chunk_read_again)(f->s, &op, ctx, &want->chunk, want->xxh,
                                                     r->own, cap, want->plain_len, &len, err);
    if (!rc) {
        r->plain = r->own;
        r->len = (uint32_t)len;
    }
    return rc;
}

/* The base's plain bytes: those of its fill, else of the cache. Borrowed; NULL: neither has them.
 */
static const uint8_t *find_base(struct fills *f, struct fill *fill, struct chunk_ctx *ctx,
                                const struct chunk *chunk, size_t *len)
{
    struct fill_want base;
    fill_want_base(chunk, &base);
    for (size_t i = 0; i < fill->bases.n; i++) {
        const struct fill *other = fill->bases.fills[i];
        size_t at = fill_find(other, &base);
        if (at != SIZE_MAX && other->results[at].plain) {
            *len = other->results[at].len;
            return other->results[at].plain;
        }
    }
    struct cache_ref ref;
    if (!fill_from_cache(f->s, &base, ctx->base, &ref))
        return NULL;
    *len = ref.len;
    cache_put(f->s->cache, &ref);
    return ctx->base;
}

/* Corrupt: what was read does not give the chunk; *first: only for want of its base. */
static int decode_one(struct fills *f, struct fill *fill, struct chunk_ctx *ctx, size_t i,
                      uint8_t *room, bool *first, struct cairn_error *err)
{
    const struct fill_want *want = &fill->wants[i];
    const struct chunk_loc *loc = &want->chunk.loc;
    struct fill_result *r = &fill->results[i];
    const uint8_t *stored = fill->stored + (loc->offset - fill->from), *base = NULL;
    size_t cap = f->s->format.chunk_size, len = loc->stored_len, base_len = 0;
    int rc;
    if (loc->encoding == CHUNK_RAW) {
        if (len > cap || (want->plain_len && len != want->plain_len))
            return error_set(err, CAIRN_CORRUPT, EIO, "a raw chunk of another length");
        rc = chunk_verify(f->s, &want->chunk, want->xxh, stored, len, err);
        room = fill->stored + (loc->offset - fill->from);
    } else {
        if (loc->encoding == CHUNK_ZSTD_BASE &&
            !(base = find_base(f, fill, ctx, &want->chunk, &base_len))) {
            *first = true;
            return error_set(err, CAIRN_CORRUPT, EIO, "a base that is not at hand");
        }
        rc = chunk_decode(f->s, ctx, &want->chunk, want->xxh, stored, base, base_len, room, cap,
                          want->plain_len, &len, err);
    }
    if (!rc) {
        r->plain = room;
        r->len = (uint32_t)len;
    }
    return rc;
}

static void keep_error(struct fill_result *r, const struct cairn_error *err)
{
    r->err = malloc(sizeof(*err));
    if (r->err)
        *r->err = *err;
}

static void put_in_cache(struct fills *f, const struct fill *fill)
{
    if (!f->s->cache)
        return;
    struct cache_item items[FILL_CHUNKS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < fill->n; i++)
        if (fill->results[i].plain)
            items[n++] = (struct cache_item){.offset = fill->wants[i].chunk.loc.offset,
                                             .len = fill->results[i].len,
                                             .plain = fill->results[i].plain};
    if (n)
        cache_insert(f->s->cache, fill->wants[0].chunk.loc.pack, items, n);
}

static int make_room(struct fills *f, struct fill *fill)
{
    size_t encoded = 0;
    for (size_t i = 0; i < fill->n; i++)
        encoded += fill->wants[i].chunk.loc.encoding != CHUNK_RAW;
    if (!encoded)
        return CAIRN_OK;
    fill->decoded = malloc(encoded * f->s->format.chunk_size);
    return fill->decoded ? CAIRN_OK : error_oom(&fill->err, "decoding chunks");
}

void fill_decode(struct fills *f, struct fill *fill)
{
    struct chunk_ctx *ctx = NULL;
    if (fill->came || (fill->rc && fill->rc != CAIRN_CORRUPT))
        return;
    /* A read past the pack's end says nothing of the chunks before it. */
    bool none = fill->rc != CAIRN_OK;
    fill->rc = make_room(f, fill);
    if (!fill->rc)
        fill->rc = chunk_ctx_get(f->s, &ctx, &fill->err);
    if (fill->rc)
        return;
    uint8_t *room = fill->decoded;
    for (size_t i = 0; i < fill->n; i++) {
        struct cairn_error err;
        bool first = none && fill->n > 1;
        int rc = none ? CAIRN_CORRUPT : decode_one(f, fill, ctx, i, room, &first, &err);
        if (rc == CAIRN_CORRUPT)
            rc = read_alone(f, ctx, &fill->wants[i], first, &fill->results[i], &err);
        if (rc)
            keep_error(&fill->results[i], &err);
        if (fill->wants[i].chunk.loc.encoding != CHUNK_RAW)
            room += f->s->format.chunk_size;
    }
    chunk_ctx_put(f->s, ctx);
    put_in_cache(f, fill);
    STEP("fill.decoded");
}
