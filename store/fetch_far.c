#include "store/fetch_piece.h"

#include "base/step.h"
#include "base/util.h"
#include "store/fetch_cache.h"
#include "store/fetch_claims.h"
#include "store/fetch_repeats.h"
#include "store/pack_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What lies between two wanted chunks is read and thrown away, if it is short, or short in
 * comparison with what is wanted: a request costs more. */
#define GAP_ALWAYS 32768u
#define GAP_MAX    262144u
#define GAP_SHARE  8 /* of the wanted bytes, one in so many, in all */

/* A piece on its way. Belongs to one thread. */
struct far {
    const struct fetch_piece *p;
    struct chunk_ctx *ctx;
    struct fill_want *wants; /* of each chunk of the piece */
    uint32_t room;           /* chunks that fit into p->plain */
    /* In p->plain, verified and not yet written: these chunks, all of one pack. */
    uint32_t first, n;
    /* A read under way: the chunks that it brings, each once, and which of the piece's they are. */
    const uint32_t *order;
    uint32_t n_order;
    const struct fill_want **run;
    const struct chunk_loc **run_loc;
    uint32_t *run_at; /* of each: its first place in order */
    uint32_t n_run;
};

static uint32_t chunk_size(const struct far *f)
{
    return f->p->s->format.chunk_size;
}

/* ---- What is here, verified, goes where it belongs ------------------------------------------- */

static struct fetch_piece part_of(const struct fetch_piece *p, uint32_t i, uint32_t n)
{
    struct fetch_piece part = *p;
    part.chunks += i;
    part.got += i;
    part.nos += i;
    part.n = n;
    return part;
}

static bool keeps(const struct far *f)
{
    return f->p->s->cache && (f->p->keeps || atomic_load(f->p->clones));
}

static void keep(struct far *f)
{
    const struct fetch_piece *p = f->p;
    if (!keeps(f))
        return;
    CLEANUP_FREE struct cache_item *items = calloc(f->n, sizeof(*items));
    if (!items)
        return;
    size_t n = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        const struct cache_item item = {.offset = f->wants[f->first + k].chunk.loc.offset,
                                        .len = fetch_plain_len(p, f->first + k),
                                        .plain = p->plain + (size_t)k * chunk_size(f)};
        size_t same = 0;
        while (same < n && items[same].offset != item.offset)
            same++;
        if (same == n)
            items[n++] = item;
    }
    cache_insert(p->s->cache, f->wants[f->first].chunk.loc.pack, items, n);
    STEP("fetch.kept");
    if (!atomic_load(p->clones))
        return;
    struct fetch_piece part = part_of(p, f->first, f->n);
    part.plain = NULL;
    fetch_cache_take(&part, f->wants + f->first, f->ctx);
}

static int flush(struct far *f, struct cairn_error *err)
{
    const struct fetch_piece *p = f->p;
    int rc = CAIRN_OK;
    if (!f->n)
        return CAIRN_OK;
    keep(f);
    for (uint32_t k = 0, n; !rc && k < f->n; k += n) {
        const uint8_t *got = p->got + f->first + k;
        for (n = 1; k + n < f->n && got[n] == got[0]; n++) {
        }
        if (got[0] == FETCH_SHARED)
            continue;
        rc = fetch_write(p, f->first + k, n, p->plain + (size_t)k * chunk_size(f), err);
        if (!rc)
            memset(p->got + f->first + k, FETCH_WRITTEN, n);
    }
    f->n = 0;
    return rc;
}

/* Where chunk i is to be put. It is there once place_done said so. */
static int place_of(struct far *f, uint32_t i, uint8_t **out, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    if (f->n &&
        (f->n == f->room || f->first + f->n != i ||
         memcmp(f->wants[f->first].chunk.loc.pack, f->wants[i].chunk.loc.pack, PACK_ID_LEN) != 0))
        rc = flush(f, err);
    if (!f->n)
        f->first = i;
    *out = f->p->plain + (size_t)f->n * chunk_size(f);
    return rc;
}

static void place_done(struct far *f, uint32_t i)
{
    const struct fetch_piece *p = f->p;
    fetch_repeats_give(p->repeats, p->m, p->chunks[i], p->plain + (size_t)f->n * chunk_size(f),
                       fetch_plain_len(p, i));
    f->n++;
}

/* ---- Out of the cache ------------------------------------------------------------------------ */

static int take_cached(struct far *f, struct cairn_error *err)
{
    const struct fetch_piece *p = f->p;
    int rc = CAIRN_OK;
    for (uint32_t i = 0; p->s->cache && i < p->n; i++)
        if (!i || memcmp(f->wants[i].chunk.loc.pack, f->wants[i - 1].chunk.loc.pack, PACK_ID_LEN))
            cache_refresh(p->s->cache, f->wants[i].chunk.loc.pack);
    for (uint32_t i = 0, n; !rc && i < p->n; i += n ? n : 1) {
        for (n = 0; n < f->room && i + n < p->n && p->got[i + n] == FETCH_NOT &&
                    fills_has(p->s->fills, &f->wants[i + n]);
             n++) {
        }
        if (!n)
            continue;
        struct fetch_piece part = part_of(p, i, n);
        fetch_cache_take(&part, f->wants + i, f->ctx);
        for (uint32_t k = 0, plain; !rc && k < n; k += plain ? plain : 1) {
            for (plain = 0; k + plain < n && part.got[k + plain] == FETCH_PLAIN; plain++) {
            }
            if (plain)
                rc = fetch_write(&part, k, plain, p->plain + (size_t)k * chunk_size(f), err);
            memset(part.got + k, FETCH_WRITTEN, plain);
        }
    }
    return rc;
}

/* What this fetch had before, elsewhere. */
static int take_repeats(struct far *f, struct cairn_error *err)
{
    const struct fetch_piece *p = f->p;
    int rc = CAIRN_OK;
    for (uint32_t i = 0; !rc && p->repeats && i < p->n; i++) {
        size_t len;
        uint8_t *room;
        const void *plain = p->got[i] == FETCH_NOT
                                ? fetch_repeats_find(p->repeats, p->m, p->chunks[i], &len)
                                : NULL;
        /* (As short as it was where it came from, in a manifest that somebody made up.) */
        if (!plain || len != f->wants[i].plain_len)
            continue;
        rc = place_of(f, i, &room, err);
        if (!rc) {
            memcpy(room, plain, len);
            f->n++;
        }
    }
    return rc ? rc : flush(f, err);
}

/* ---- Out of a pack, as it comes -------------------------------------------------------------- */

static int stream_room(void *ctx, size_t i, uint8_t **room, struct cairn_error *err)
{
    struct far *f = ctx;
    return place_of(f, f->order[f->run_at[i]], room, err);
}

/* The same chunk, twice in the piece. (Others that a manifest claims to lie there, too, are none:
 * what was verified is not what they are.) */
static bool same_chunk(const struct fill_want *a, const struct fill_want *b)
{
    const struct chunk_loc *x = &a->chunk.loc, *y = &b->chunk.loc;
    return x->offset == y->offset && memcmp(x->pack, y->pack, PACK_ID_LEN) == 0 &&
           a->plain_len == b->plain_len &&
           memcmp(a->chunk.sha, b->chunk.sha, sizeof(a->chunk.sha)) == 0;
}

/* The chunk may belong in more than one place of the piece. */
static int stream_have(void *ctx, size_t i, size_t len, struct cairn_error *err)
{
    struct far *f = ctx;
    const uint8_t *plain = f->p->plain + (size_t)f->n * chunk_size(f);
    uint32_t end = i + 1 < f->n_run ? f->run_at[i + 1] : f->n_order;
    place_done(f, f->order[f->run_at[i]]);
    for (uint32_t k = f->run_at[i] + 1; k < end && same_chunk(f->run[i], &f->wants[f->order[k]]);
         k++) {
        uint8_t *room;
        int rc = place_of(f, f->order[k], &room, err);
        if (rc)
            return rc;
        memmove(room, plain, len);
        place_done(f, f->order[k]);
    }
    return CAIRN_OK;
}

/* One read: from order[from] on, as far as it is worth it. Returns where the next one begins. What
 * another fetch is bringing (with claims, whose lock the caller has) is left to it. */
static uint32_t gather(struct far *f, uint32_t from, const struct fetch_claims *claims)
{
    uint64_t end = 0, wanted = 0, wasted = 0;
    uint32_t k = from;
    f->n_run = 0;
    for (; k < f->n_order; k++) {
        const struct fill_want *want = &f->wants[f->order[k]];
        const struct chunk_loc *loc = &want->chunk.loc;
        if (f->n_run && same_chunk(want, f->run[f->n_run - 1]))
            continue;
        if (f->n_run &&
            (memcmp(loc->pack, f->run_loc[0]->pack, PACK_ID_LEN) != 0 || loc->offset < end))
            break;
        if (claims && fetch_claims_has_locked(claims, loc)) {
            f->p->got[f->order[k]] = FETCH_AWAY;
            continue;
        }
        uint64_t gap = f->n_run ? loc->offset - end : 0;
        if (gap > GAP_ALWAYS && (gap > GAP_MAX || wasted + gap > wanted / GAP_SHARE))
            break;
        wasted += gap;
        wanted += loc->stored_len;
        end = loc->offset + (uint64_t)loc->stored_len;
        f->run_at[f->n_run] = k;
        f->run_loc[f->n_run] = loc;
        f->run[f->n_run++] = want;
    }
    return k;
}

/* What chunk comes before which: by their places in packs. */
static int compare(const void *a, const void *b, void *ctx)
{
    const struct fill_want *wants = ctx;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const struct chunk_loc *x = &wants[i].chunk.loc, *y = &wants[k].chunk.loc;
    int by_pack = memcmp(x->pack, y->pack, PACK_ID_LEN);
    if (by_pack)
        return by_pack;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return i < k ? -1 : i > k;
}

/* Places in the cache for what is about to come. */
static void reserve(const struct far *f)
{
    if (!keeps(f))
        return;
    CLEANUP_FREE struct cache_item *items = calloc(f->n_run, sizeof(*items));
    for (uint32_t i = 0; items && i < f->n_run; i++)
        items[i] =
            (struct cache_item){.offset = f->run[i]->chunk.loc.offset, .len = f->run[i]->plain_len};
    if (items)
        cache_reserve(f->p->s->cache, f->run[0]->chunk.loc.pack, items, f->n_run);
}

static int stream_run(struct far *f, struct cairn_error *err)
{
    const struct fetch_piece *p = f->p;
    const struct pack_stream stream = {
        .wants = f->run, .n = f->n_run, .room = stream_room, .have = stream_have, .ctx = f};
    struct cairn_error why;
    reserve(f);
    int rc = pack_stream_run(p->s, p->op, f->ctx, &stream, &why);
    if (rc == CAIRN_CORRUPT) /* what it says of one chunk it does not say of the others */
        rc = CAIRN_OK;
    else if (rc && err)
        *err = why;
    return rc ? rc : flush(f, err);
}

/* patient: what another fetch is bringing is left to it, as FETCH_AWAY. */
static int stream_missing(struct far *f, uint32_t *order, bool patient, struct cairn_error *err)
{
    const struct fetch_piece *p = f->p;
    struct fetch_claims *claims = keeps(f) ? p->s->claims : NULL;
    int rc = CAIRN_OK;
    f->order = order;
    f->n_order = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->got[i] == FETCH_NOT && f->wants[i].chunk.loc.encoding != CHUNK_ZSTD_BASE)
            order[f->n_order++] = i;
    qsort_r(order, f->n_order, sizeof(order[0]), compare, f->wants);
    for (uint32_t at = 0; !rc && at < f->n_order;) {
        struct fetch_claim claim;
        if (claims)
            fetch_claims_lock(claims);
        at = gather(f, at, patient ? claims : NULL);
        claim = (struct fetch_claim){.locs = f->run_loc, .n = f->n_run};
        if (claims && f->n_run)
            fetch_claims_add_locked(claims, &claim);
        if (claims)
            fetch_claims_unlock(claims);
        if (!f->n_run)
            continue;
        rc = stream_run(f, err);
        if (claims)
            fetch_claims_remove(claims, &claim);
    }
    return rc;
}

/* *any: there was something to wait for. It is to be looked for in the cache. */
static int wait_for_others(struct far *f, bool *any, struct cairn_error *err)
{
    const struct fetch_piece *p = f->p;
    int rc = CAIRN_OK;
    *any = false;
    for (uint32_t i = 0; !rc && i < p->n; i++)
        if (p->got[i] == FETCH_AWAY) {
            rc = fetch_claims_wait(p->s->claims, p->op, &f->wants[i].chunk.loc, err);
            p->got[i] = FETCH_NOT;
            *any = true;
        }
    return rc;
}

/* ---- One by one: what is based on another chunk, and what was damaged -------------------------
 */

static void at_want(const void *src, uint32_t i, struct chunk_loc *out)
{
    *out = ((const struct fill_want *)src)[i].chunk.loc;
}

static int read_one(struct far *f, uint32_t i, uint32_t end, struct cairn_error *err)
{
    const struct fetch_piece *p = f->p;
    const struct fill_want *want = &f->wants[i];
    uint8_t *room;
    size_t len;
    int rc = place_of(f, i, &room, err);
    if (rc)
        return rc;
    chunk_read_ahead(p->s, p->op, f->ctx, at_want, f->wants, i, end);
    rc = chunk_read(p->s, p->op, f->ctx, &want->chunk, want->xxh, room, chunk_size(f),
                    want->plain_len, &len, err);
    if (!rc)
        place_done(f, i);
    return rc;
}

/* Chunks i to end - 1, none of which is there. Their bases are downloaded side by side. */
static int read_group(struct far *f, uint32_t i, uint32_t end, struct fill_want *bases,
                      struct cairn_error *err)
{
    struct fill_hold hold = {.n = 0};
    size_t n = 0;
    int rc = CAIRN_OK;
    for (uint32_t k = i; k < end; k++)
        if (f->wants[k].chunk.loc.encoding == CHUNK_ZSTD_BASE &&
            f->wants[k].chunk.base.encoding != CHUNK_ZSTD_BASE)
            fill_want_base(&f->wants[k].chunk, &bases[n++]);
    fills_begin(f->p->s->fills, bases, n, &hold);
    f->ctx->bases = &hold;
    for (; !rc && i < end; i++)
        rc = read_one(f, i, end, err);
    f->ctx->bases = NULL;
    fills_release(f->p->s->fills, &hold);
    return rc ? rc : flush(f, err);
}

static int read_rest(struct far *f, struct cairn_error *err)
{
    const struct fetch_piece *p = f->p;
    CLEANUP_FREE struct fill_want *bases = NULL;
    int rc = CAIRN_OK;
    for (uint32_t i = 0, n; !rc && i < p->n; i += n ? n : 1) {
        for (n = 0; n < f->room && i + n < p->n && p->got[i + n] == FETCH_NOT; n++) {
        }
        if (!n)
            continue;
        if (!bases && !(bases = calloc(f->room, sizeof(*bases))))
            return error_oom(err, "fetch");
        rc = read_group(f, i, i + n, bases, err);
    }
    return rc;
}

/* Another fetch may fail, or its chunks not be kept: after some rounds nobody is waited for. */
#define ROUNDS 3

int fetch_far(const struct fetch_piece *p, uint32_t room, struct chunk_ctx *ctx,
              struct cairn_error *err)
{
    CLEANUP_FREE struct fill_want *wants = calloc(p->n, sizeof(*wants));
    CLEANUP_FREE const struct fill_want **run = calloc(p->n, sizeof(*run));
    CLEANUP_FREE const struct chunk_loc **run_loc = calloc(p->n, sizeof(*run_loc));
    CLEANUP_FREE uint32_t *numbers = calloc(2 * (size_t)p->n, sizeof(*numbers));
    if (!wants || !run || !run_loc || !numbers)
        return error_oom(err, "fetch");
    struct far f = {.p = p,
                    .ctx = ctx,
                    .wants = wants,
                    .room = room,
                    .run = run,
                    .run_loc = run_loc,
                    .run_at = numbers + p->n};
    memset(p->got, FETCH_NOT, p->n);
    for (uint32_t i = 0; i < p->n; i++)
        fill_want_manifest(p->m, p->chunks[i], fetch_plain_len(p, i), &wants[i]);
    bool again = true;
    int rc = CAIRN_OK;
    for (int round = 1; !rc && again && round <= ROUNDS; round++) {
        rc = take_cached(&f, err);
        if (!rc)
            rc = take_repeats(&f, err);
        if (!rc)
            rc = stream_missing(&f, numbers, round < ROUNDS, err);
        if (!rc)
            rc = wait_for_others(&f, &again, err);
    }
    return rc ? rc : read_rest(&f, err);
}
