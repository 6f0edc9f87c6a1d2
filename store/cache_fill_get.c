#include "store/cache_fill_private.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A chunk may be thrown out of the cache, or rejected, between two looks; not often. */
#define TRIES_MAX 4

void fill_want_manifest(const struct manifest *m, uint32_t i, uint32_t plain_len,
                        struct fill_want *out)
{
    manifest_chunk(m, i, &out->chunk);
    memcpy(out->xxh, manifest_chunk_xxh(m, i), XXH3_LEN);
    out->plain_len = plain_len;
}

bool fill_find_cached(struct cairn_store *s, const struct fill_want *want, void *scratch,
                      struct fill_place *out)
{
    const struct chunk_loc *loc = &want->chunk.loc;
    *out = (struct fill_place){.ref.fd = -1};
    if (!s->cache || !cache_find(s->cache, loc->pack, loc->offset, &out->ref))
        return false;
    if (!out->ref.confirmed || (want->plain_len && out->ref.len != want->plain_len)) {
        cache_put(s->cache, &out->ref);
        if (!scratch || !fill_from_cache(s, want, scratch, &out->ref))
            return false;
    }
    out->len = out->ref.len;
    return true;
}

static int wait_for(struct fills *f, const struct cairn_op *op, struct fill *fill,
                    struct cairn_error *err)
{
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &f->lock, &fill->ended);
    pthread_mutex_lock(&f->lock);
    while (fill->state != FILL_DONE && !rc)
        rc = op_wait_locked(&w, "reading a chunk", err);
    pthread_mutex_unlock(&f->lock);
    op_waiter_remove(&w);
    return rc;
}

/* The fill's own time or token is not the caller's. */
static int pass_on(const struct cairn_error *why, struct cairn_error *err)
{
    bool own = why->error_class == CAIRN_TIMEOUT || why->error_class == CAIRN_CANCELLED;
    return error_set(err, own ? CAIRN_TRANSIENT : why->error_class, why->sys_errno, "%s",
                     why->message);
}

int fills_wait(struct fills *f, const struct cairn_op *op, const struct fill_hold *hold,
               struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < hold->n; i++) {
        const struct fill *fill = hold->fills[i];
        rc = wait_for(f, op, hold->fills[i], err);
        if (!rc && fill->rc)
            rc = pass_on(&fill->err, err);
        for (size_t k = 0; !rc && k < fill->n; k++)
            if (fill->results[k].err)
                rc = pass_on(fill->results[k].err, err);
    }
    return rc;
}

/* What a fill that is DONE has of the chunk. *again: nothing, it was in the cache by then. */
static int take(struct fill *fill, const struct fill_want *want, struct fill_place *out,
                bool *again, struct cairn_error *err)
{
    size_t at = fill_find(fill, want);
    const struct fill_result *r = &fill->results[at];
    *again = fill->came;
    if (r->plain)
        *out = (struct fill_place){.data = r->plain, .len = r->len, .fill = fill, .ref.fd = -1};
    else if (r->err)
        return pass_on(r->err, err);
    else if (fill->rc)
        return pass_on(&fill->err, err);
    else if (!fill->came)
        return error_oom(err, "reading a chunk");
    return CAIRN_OK;
}

/* Without the help of anybody. */
static int read_directly(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                         const struct fill_want *want, struct fill_place *out,
                         struct cairn_error *err)
{
    size_t cap = s->format.chunk_size, len = 0;
    void *memory = malloc(cap);
    if (!memory)
        return error_oom(err, "reading a chunk");
    int rc =
        chunk_read(s, op, ctx, &want->chunk, want->xxh, memory, cap, want->plain_len, &len, err);
    if (rc) {
        free(memory);
        return rc;
    }
    *out =
        (struct fill_place){.data = memory, .len = (uint32_t)len, .memory = memory, .ref.fd = -1};
    return CAIRN_OK;
}

int fill_through_cache(struct cairn_store *s, const struct cairn_op *op, struct chunk_ctx *ctx,
                       const struct fill_want *want, struct fill_place *out,
                       struct cairn_error *err)
{
    const struct chunk_loc *loc = &want->chunk.loc;
    if (fill_find_cached(s, want, ctx->base, out))
        return CAIRN_OK;
    int rc = read_directly(s, op, ctx, want, out, err);
    if (rc || !s->cache)
        return rc;
    struct cache_item item = {.offset = loc->offset, .len = out->len, .plain = out->data};
    cache_insert(s->cache, loc->pack, &item, 1);
    struct fill_place kept;
    if (fill_find_cached(s, want, NULL, &kept)) {
        fill_place_release(s, out);
        *out = kept;
    }
    return CAIRN_OK;
}

int fills_get(struct fills *f, const struct cairn_op *op, const struct fill_want *want,
              struct fill_hold *hold, void *scratch, struct fill_place *out,
              struct cairn_error *err)
{
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        if (fill_find_cached(f->s, want, scratch, out))
            return CAIRN_OK;
        int rc = op_check(op, "reading a chunk", err);
        if (rc)
            return rc;
        struct fill *fill = fill_find_held(f, want, hold);
        if (!fill) {
            fills_begin(f, want, 1, hold);
            fill = fill_find_held(f, want, hold);
        }
        if (!fill)
            continue; /* it is in the cache by now, or nobody can be found to fetch it */
        bool again = false;
        rc = wait_for(f, op, fill, err);
        if (!rc)
            rc = take(fill, want, out, &again, err);
        /* Where the cache took it, a place in a file is better than one in memory. */
        struct fill_place kept;
        bool in_cache = !rc && !again && fill_find_cached(f->s, want, NULL, &kept);
        if (in_cache)
            *out = kept;
        if (rc || again || in_cache)
            fill_unref(f, fill);
        if (!again)
            return rc;
    }
    struct chunk_ctx *ctx = NULL;
    int rc = chunk_ctx_get(f->s, &ctx, err);
    if (!rc)
        rc = read_directly(f->s, op, ctx, want, out, err);
    chunk_ctx_put(f->s, ctx);
    return rc;
}

void fill_place_release(struct cairn_store *s, struct fill_place *place)
{
    if (place->ref.pack)
        cache_put(s->cache, &place->ref);
    if (place->fill)
        fill_unref(s->fills, place->fill);
    free(place->memory);
    *place = (struct fill_place){.ref.fd = -1};
}

int fills_read(struct fills *f, const struct cairn_op *op, const struct fill_want *want,
               struct fill_hold *hold, void *plain, size_t *len, struct cairn_error *err)
{
    for (int tries = 0;; tries++) {
        struct fill_place place;
        int rc = fills_get(f, op, want, hold, plain, &place, err);
        if (rc)
            return rc;
        *len = place.len;
        bool good = true;
        if (place.data)
            memcpy(plain, place.data, place.len);
        else
            good =
                util_pread_full(place.ref.fd, plain, place.len, place.ref.at) == (ssize_t)place.len;
        if (!good)
            cache_reject(f->s->cache, &place.ref);
        fill_place_release(f->s, &place);
        if (good)
            return CAIRN_OK;
        if (tries == TRIES_MAX)
            return error_set(err, CAIRN_PERMANENT, EIO, "the cache cannot be read");
    }
}
