#include "store/record_map.h"

#include "base/util.h"
#include "store/cache_fill.h"
#include "store/chunk_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Plain bytes of one call that are on their way at a time. */
#define WINDOW_LEN (8u * 1024 * 1024)

enum ref_kind { REF_NONE, REF_PACK, REF_CACHE, REF_FILL, REF_MEMORY };

/* One call: as far as one manifest goes. */
struct map {
    struct cairn_record *r;
    struct cairn_store *s;
    const struct cairn_op *op;
    const struct manifest *m;
    uint32_t number; /* of the file */
    struct manifest_file file;
    uint32_t chunk_size;
    struct record_span *spans;
    size_t max, n;
    uint64_t done;         /* bytes in spans */
    struct chunk_ctx *ctx; /* owned; taken when it is needed */
    struct fill_hold hold;
    uint64_t begun; /* chunks of the file before this were begun */
    bool here_only; /* nothing is fetched */
    struct cairn_error *err;
};

/* ---- Spans ----------------------------------------------------------------------------------- */

static void release_ref(struct cairn_store *s, void *ref, int kind)
{
    if (kind == REF_PACK)
        pack_file_put(s, &(struct pack_file){.ref = ref});
    else if (kind == REF_CACHE)
        cache_put(s->cache, &(struct cache_ref){.pack = ref});
    else if (kind == REF_FILL)
        fill_place_release(s, &(struct fill_place){.fill = ref});
    else if (kind == REF_MEMORY)
        free(ref);
}

void record_spans_release(struct cairn_store *s, struct record_span *spans, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        release_ref(s, spans[i].ref, spans[i].ref_kind);
        spans[i] = (struct record_span){.fd = -1};
    }
}

void record_span_doubt(struct cairn_store *s, const struct record_span *span)
{
    if (span->ref_kind == REF_CACHE)
        cache_doubt(s->cache, &(struct cache_ref){.pack = span->ref});
}

static bool goes_on(const struct record_span *last, const struct record_span *next)
{
    if (last->fd >= 0)
        return next->fd == last->fd && next->ref == last->ref &&
               next->offset == last->offset + last->len;
    return !last->data && !next->data && next->fd < 0;
}

/* Add span (whose reference goes with it). False: there is no room for it. */
static bool add(struct map *map, const struct record_span *span)
{
    struct record_span *last = map->n ? &map->spans[map->n - 1] : NULL;
    if (last && goes_on(last, span)) {
        last->len += span->len;
        release_ref(map->s, span->ref, span->ref_kind);
    } else if (map->n < map->max) {
        map->spans[map->n++] = *span;
    } else {
        release_ref(map->s, span->ref, span->ref_kind);
        return false;
    }
    map->done += span->len;
    return true;
}

/* ---- One chunk ------------------------------------------------------------------------------- */

static int need_ctx(struct map *map)
{
    return map->ctx ? CAIRN_OK : chunk_ctx_get(map->s, &map->ctx, map->err);
}

/* A raw chunk of a directory store: in its pack. */
static int map_raw(struct map *map, const struct fill_want *want, struct record_span *span)
{
    const struct chunk_loc *loc = &want->chunk.loc;
    struct pack_file f;
    int rc = pack_file_get(map->s, map->op, loc->pack, &f, map->err);
    if (rc)
        return rc;
    span->fd = f.fd;
    span->offset = loc->offset;
    span->ref = f.ref;
    span->ref_kind = REF_PACK;
    if (pack_file_verified(&f, loc->offset))
        return CAIRN_OK;
    size_t len;
    rc = need_ctx(map);
    if (!rc)
        rc = chunk_read(map->s, map->op, map->ctx, &want->chunk, want->xxh, map->ctx->base,
                        want->plain_len, want->plain_len, &len, map->err);
    if (rc)
        pack_file_put(map->s, &f);
    else
        pack_file_set_verified(&f, loc->offset);
    return rc;
}

/* All but its length. */
static void span_of_place(const struct fill_place *place, struct record_span *span)
{
    if (place->ref.pack) {
        span->fd = place->ref.fd;
        span->offset = place->ref.at;
        span->ref = place->ref.pack;
        span->ref_kind = REF_CACHE;
    } else {
        span->data = place->data;
        span->ref = place->fill ? (void *)place->fill : place->memory;
        span->ref_kind = place->fill ? REF_FILL : REF_MEMORY;
    }
}

/* An encoded chunk of a directory store: in the cache, which it enters now if it was not there. */
static int map_encoded(struct map *map, const struct fill_want *want, struct fill_place *place)
{
    int rc = need_ctx(map);
    return rc ? rc : fill_through_cache(map->s, map->op, map->ctx, want, place, map->err);
}

/* ---- What has to be fetched ------------------------------------------------------------------ */

static uint32_t plain_len(const struct map *map, uint64_t no)
{
    uint64_t left = map->file.size - no * map->chunk_size;
    return left < map->chunk_size ? (uint32_t)left : map->chunk_size;
}

/* Up to max of the chunks from `no` on and before `end`; *next is the first that was not looked at.
 */
static size_t collect(const struct map *map, uint64_t no, uint64_t end, struct fill_want *wants,
                      size_t max, uint64_t *next)
{
    size_t n = 0;
    while (no < end && n < max) {
        uint32_t index;
        uint64_t run;
        if (!manifest_lookup(map->m, &map->file, no, &index, &run)) {
            no = run < end - no ? no + run : end;
            continue;
        }
        for (; run && no < end && n < max; run--, no++)
            fill_want_manifest(map->m, index++, plain_len(map, no), &wants[n++]);
    }
    *next = no;
    return n;
}

static size_t window_chunks(const struct map *map)
{
    size_t n = WINDOW_LEN > map->chunk_size ? WINDOW_LEN / map->chunk_size : 1;
    return n < FILL_HOLD_MAX ? n : FILL_HOLD_MAX;
}

/* Begin what this call still needs, a window at a time. */
static int begin_window(struct map *map, uint64_t no, uint64_t end, struct fill_hold *hold)
{
    size_t most = window_chunks(map);
    if (end - no < most)
        most = (size_t)(end - no);
    CLEANUP_FREE struct fill_want *wants = calloc(most, sizeof(*wants));
    if (!wants)
        return error_oom(map->err, "reading");
    size_t n = collect(map, no, end, wants, most, &map->begun);
    fills_release(map->s->fills, hold);
    fills_begin(map->s->fills, wants, n, hold);
    return CAIRN_OK;
}

static int map_fetched(struct map *map, const struct fill_want *want, uint64_t no, uint64_t end,
                       struct fill_place *place)
{
    int rc = need_ctx(map);
    if (!rc && no >= map->begun)
        rc = begin_window(map, no, end, &map->hold);
    return rc ? rc
              : fills_get(map->s->fills, map->op, want, &map->hold, map->ctx->base, place,
                          map->err);
}

/* Whoever reads on in order finds the next chunks here. Without a cache there is nowhere to. */
static void read_ahead(struct map *map, uint64_t first, uint64_t last)
{
    struct cairn_record *r = map->r;
    uint64_t from, n, end = (map->file.size + map->chunk_size - 1) / map->chunk_size;
    if (!map->s->fills || !map->s->cache || cache_paused(map->s->cache))
        return;
    pthread_mutex_lock(&r->ahead_lock);
    record_ahead_step(&r->ahead, map->number, map->chunk_size, first, last, &from, &n);
    pthread_mutex_unlock(&r->ahead_lock);
    if (!n || from >= end)
        return;
    struct fill_hold hold = {.n = 0};
    struct cairn_error ignored;
    map->err = &ignored;
    (void)!begin_window(map, from, from + n < end ? from + n : end, &hold);
    fills_release(map->s->fills, &hold);
}

/* ---- All of it ------------------------------------------------------------------------------- */

static int map_chunk(struct map *map, uint64_t no, uint64_t end, uint32_t index,
                     struct record_span *span)
{
    struct fill_want want;
    struct fill_place place;
    fill_want_manifest(map->m, index, plain_len(map, no), &want);
    int rc = CAIRN_OK;
    if (!map->s->fills && want.chunk.loc.encoding == CHUNK_RAW)
        return map_raw(map, &want, span);
    if (fill_find_cached(map->s, &want, NULL, &place)) {
        span_of_place(&place, span);
        return CAIRN_OK;
    }
    if (map->here_only)
        return error_set(map->err, CAIRN_TRANSIENT, EAGAIN, "not here");
    rc = op_check(map->op, "reading", map->err);
    if (!rc)
        rc = map->s->fills ? map_fetched(map, &want, no, end, &place)
                           : map_encoded(map, &want, &place);
    if (!rc)
        span_of_place(&place, span);
    return rc;
}

/* As far as the manifest goes, on from map->done. */
static int map_range(struct map *map, uint64_t offset, uint64_t len)
{
    uint32_t cs = map->chunk_size;
    uint64_t end = (offset + len + cs - 1) / cs;
    int rc = CAIRN_OK;
    while (!rc && map->done < len) {
        uint64_t at = offset + map->done, no = at / cs, skip = at - no * cs, run;
        struct record_span span = {.fd = -1};
        uint32_t index;
        if (!manifest_lookup(map->m, &map->file, no, &index, &run)) {
            span.len = run > UINT64_MAX / cs ? UINT64_MAX - skip : run * cs - skip;
        } else {
            span.len = plain_len(map, no) - skip;
            rc = map_chunk(map, no, end, index, &span);
            if (rc)
                return rc;
            span.offset += skip;
            if (span.data)
                span.data = (const uint8_t *)span.data + skip;
        }
        if (span.len > len - map->done)
            span.len = len - map->done;
        if (!add(map, &span))
            break;
    }
    return rc;
}

static void end_map(struct map *map)
{
    if (map->s->fills)
        fills_release(map->s->fills, &map->hold);
    chunk_ctx_put(map->s, map->ctx);
    map->ctx = NULL;
}

/* *len is cut at the end of the file. */
static int begin_map(struct map *map, struct cairn_record *r, const struct cairn_op *op, uint64_t i,
                     uint64_t offset, uint64_t *len, struct cairn_error *err)
{
    map->r = r;
    map->s = r->store;
    map->op = op;
    map->m = atomic_load(&r->manifest);
    map->chunk_size = r->store->format.chunk_size;
    map->number = (uint32_t)i;
    map->spans = NULL;
    map->max = map->n = 0;
    map->done = map->begun = 0;
    map->ctx = NULL;
    map->hold.n = 0;
    map->here_only = false;
    map->err = err;
    if (i >= manifest_info(map->m)->n_files)
        return error_set(err, CAIRN_INVALID, EINVAL, "%s has no file %llu", r->id,
                         (unsigned long long)i);
    manifest_file(map->m, map->number, &map->file);
    if (offset >= map->file.size)
        *len = 0;
    else if (*len > map->file.size - offset)
        *len = map->file.size - offset;
    return op_check(op, "reading", err);
}

/* A pack is gone: the manifest is loaded again once, since a collector may have moved chunks. */
static int reload(struct map *map)
{
    int rc = record_reload(map->r, map->op, map->m, map->err);
    if (rc)
        return rc;
    map->m = atomic_load(&map->r->manifest);
    map->begun = 0;
    manifest_file(map->m, map->number, &map->file);
    return CAIRN_OK;
}

int record_map_part(struct cairn_record *r, const struct cairn_op *op, uint64_t i, uint64_t offset,
                    uint64_t len, struct record_span *spans, size_t max, size_t *n,
                    struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    struct map map;
    *n = 0;
    int rc = begin_map(&map, r, op, i, offset, &len, err);
    if (rc || !len)
        return rc;
    map.spans = spans;
    map.max = max;
    rc = map_range(&map, offset, len);
    if (rc == CAIRN_NOT_FOUND) {
        rc = reload(&map);
        if (!rc)
            rc = map_range(&map, offset, len);
    }
    if (!rc && map.done)
        read_ahead(&map, offset / map.chunk_size, (offset + map.done - 1) / map.chunk_size);
    end_map(&map);
    *n = map.n;
    return rc ? error_wrap(err, "reading %s, generation %s", r->id, r->gen) : CAIRN_OK;
}

int record_map(struct cairn_record *r, const struct cairn_op *op, uint64_t i, uint64_t offset,
               uint64_t len, struct record_span *spans, size_t max, size_t *n,
               struct cairn_error *err)
{
    int rc = record_map_part(r, op, i, offset, len, spans, max, n, err);
    if (rc) {
        record_spans_release(r->store, spans, *n);
        *n = 0;
    }
    return rc;
}

bool record_map_here(struct cairn_record *r, uint64_t i, uint64_t offset, uint64_t len,
                     struct record_span *spans, size_t max, size_t *n)
{
    struct map map;
    struct cairn_error ignored;
    *n = 0;
    if (!r->store->fills || begin_map(&map, r, NULL, i, offset, &len, &ignored) || !len)
        return false;
    map.spans = spans;
    map.max = max;
    map.here_only = true;
    bool all = !map_range(&map, offset, len) && map.done == len;
    if (all)
        read_ahead(&map, offset / map.chunk_size, (offset + len - 1) / map.chunk_size);
    end_map(&map);
    if (all)
        *n = map.n;
    else
        record_spans_release(r->store, spans, map.n);
    return all;
}
