#include "store/prefetch.h"

#include "base/clock.h"
#include "base/util.h"
#include "store/cache_fill.h"

#include <stdlib.h>
#include <string.h>

/* Plain bytes that are put in the order of the packs at a time, and chunks at most. */
#define WINDOW_LEN    (8u * 1024 * 1024)
#define WINDOW_CHUNKS 256u
/* One piece is one read, mostly, which reads on over what nobody wants as far as cache_fill.c does.
 * Shorter than it may be there: several are in memory at a time, in two forms. */
#define PIECE_LEN (1024u * 1024)
#define PIECE_GAP 32768u
/* Reads under way, of all who prefetch together: there are more threads for reads than that. */
#define READS_MAX 8u
/* Of the cache's bound. */
#define SHARE 8
/* The cache did not take what was fetched: so often it is given the time to make room. */
#define REFUSALS_MAX 8u
#define REFUSED_NS   (NS_PER_S / 10)

/* Neighbours in a pack that are on their way. */
struct piece {
    struct fill_hold hold;
    struct fill_want last; /* of them, to see whether the cache took it */
};

struct prefetch {
    struct cairn_record *r;
    struct cairn_store *s;
    const struct cairn_op *op;
    const struct trace *t;
    const struct manifest *m;
    size_t run;              /* of t: the next to be looked at */
    uint32_t at;             /* and the chunk of it */
    struct fill_want *wants; /* owned; WINDOW_CHUNKS */
    struct piece *pieces;    /* owned; READS_MAX, a ring */
    unsigned first, under_way;
    unsigned refusals;
    uint64_t bytes_max;
    struct prefetch_result *result;
    struct cairn_error *err;
};

/* ---- What is wanted -------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct chunk_loc *x = &((const struct fill_want *)a)->chunk.loc;
    const struct chunk_loc *y = &((const struct fill_want *)b)->chunk.loc;
    int c = memcmp(x->pack, y->pack, PACK_ID_LEN);
    return c ? c : (x->offset > y->offset) - (x->offset < y->offset);
}

/* Chunk `no` of the file, if it has bytes that are not here. */
static bool is_wanted(const struct prefetch *p, const struct manifest_file *f, uint64_t no,
                      struct fill_want *out)
{
    uint32_t cs = manifest_info(p->m)->chunk_size, index;
    uint64_t run, begin = no * cs;
    if (begin >= f->size || !manifest_lookup(p->m, f, no, &index, &run))
        return false;
    uint64_t left = f->size - begin;
    fill_want_manifest(p->m, index, left < cs ? (uint32_t)left : cs, out);
    return !fills_has(p->s->fills, out);
}

/* The next of what the trace names and is not here, in the order of the packs. 0: nothing is left.
 */
static size_t next_window(struct prefetch *p)
{
    uint32_t cs = manifest_info(p->m)->chunk_size;
    size_t n = 0, most = WINDOW_LEN / cs < WINDOW_CHUNKS ? WINDOW_LEN / cs : WINDOW_CHUNKS;
    while (p->run < p->t->n && n < most) {
        const struct trace_run *run = &p->t->runs[p->run];
        struct manifest_file f;
        manifest_file(p->m, run->file, &f);
        while (p->at < run->count && n < most) {
            n += is_wanted(p, &f, run->first + p->at++, &p->wants[n]);
            p->result->chunks++;
        }
        if (p->at == run->count) {
            p->run++;
            p->at = 0;
        }
    }
    qsort(p->wants, n, sizeof(p->wants[0]), by_place);
    return n;
}

/* How many of the n wants are neighbours. */
static size_t piece_len(const struct fill_want *wants, size_t n)
{
    const struct chunk_loc *first = &wants[0].chunk.loc;
    size_t at = 1;
    while (at < n) {
        const struct chunk_loc *last = &wants[at - 1].chunk.loc, *next = &wants[at].chunk.loc;
        uint64_t end = last->offset + (uint64_t)last->stored_len;
        if (memcmp(next->pack, first->pack, PACK_ID_LEN) != 0 || next->offset > end + PIECE_GAP ||
            next->offset + (uint64_t)next->stored_len - first->offset > PIECE_LEN)
            break;
        at++;
    }
    return at;
}

/* ---- What is under way ----------------------------------------------------------------------- */

/* Wait for the oldest piece. A damaged chunk is for those to complain of who need it. */
static int take_oldest(struct prefetch *p)
{
    struct piece *oldest = &p->pieces[p->first];
    int rc = fills_wait(p->s->fills, p->op, &oldest->hold, p->err);
    bool kept = rc || fills_has(p->s->fills, &oldest->last);
    fills_release(p->s->fills, &oldest->hold);
    p->first = (p->first + 1) % READS_MAX;
    p->under_way--;
    if (!kept) {
        p->result->full = ++p->refusals > REFUSALS_MAX || cache_paused(p->s->cache);
        op_pause(p->op, p->result->full ? 0 : REFUSED_NS);
    }
    return rc == CAIRN_CORRUPT ? CAIRN_OK : rc;
}

static void let_go(struct prefetch *p)
{
    for (; p->under_way; p->under_way--) {
        fills_release(p->s->fills, &p->pieces[p->first].hold);
        p->first = (p->first + 1) % READS_MAX;
    }
}

static unsigned reads_allowed(const struct prefetch *p)
{
    unsigned others = atomic_load(&p->s->prefetches);
    return others < READS_MAX ? READS_MAX / (others ? others : 1) : 1;
}

static int begin_piece(struct prefetch *p, const struct fill_want *wants, size_t n)
{
    int rc = op_check(p->op, "prefetching", p->err);
    while (!rc && p->under_way >= reads_allowed(p))
        rc = take_oldest(p);
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += wants[i].plain_len;
    p->result->full |= p->result->bytes + bytes > p->bytes_max;
    if (rc || p->result->full)
        return rc;
    p->result->bytes += bytes;
    struct piece *piece = &p->pieces[(p->first + p->under_way++) % READS_MAX];
    piece->hold.n = 0;
    piece->last = wants[n - 1];
    fills_begin(p->s->fills, wants, n, &piece->hold);
    return CAIRN_OK;
}

static int fetch(struct prefetch *p)
{
    size_t n;
    int rc = CAIRN_OK;
    while (!rc && !p->result->full && (n = next_window(p)))
        for (size_t at = 0, len; !rc && !p->result->full && at < n; at += len) {
            len = piece_len(&p->wants[at], n - at);
            rc = begin_piece(p, &p->wants[at], len);
        }
    while (!rc && p->under_way)
        rc = take_oldest(p);
    let_go(p);
    return rc;
}

/* A pack is gone: a collector may have moved its chunks. From the start: what is here costs little.
 */
static int fetch_again(struct prefetch *p)
{
    int rc = record_reload(p->r, p->op, p->m, p->err);
    if (rc)
        return rc;
    p->m = atomic_load(&p->r->manifest);
    p->run = 0;
    p->at = 0;
    return fetch(p);
}

int prefetch_run(struct cairn_record *r, const struct cairn_op *op, const struct trace *t,
                 struct prefetch_result *out, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    struct cairn_store *s = r->store;
    *out = (struct prefetch_result){0};
    int rc = op_check(op, "prefetching", err);
    if (rc || !t->n || !s->fills || !s->cache || cache_paused(s->cache))
        return rc;
    struct budget_stats room;
    budget_stats(s->budget, &room);
    CLEANUP_FREE struct fill_want *wants = calloc(WINDOW_CHUNKS, sizeof(*wants));
    CLEANUP_FREE struct piece *pieces = calloc(READS_MAX, sizeof(*pieces));
    if (!wants || !pieces)
        return error_oom(err, "prefetching");
    struct prefetch p = {.r = r,
                         .s = s,
                         .op = op,
                         .t = t,
                         .m = atomic_load(&r->manifest),
                         .wants = wants,
                         .pieces = pieces,
                         .bytes_max = room.limit / SHARE,
                         .result = out,
                         .err = err};
    atomic_fetch_add(&s->prefetches, 1);
    rc = fetch(&p);
    if (rc == CAIRN_NOT_FOUND)
        rc = fetch_again(&p);
    atomic_fetch_sub(&s->prefetches, 1);
    return rc ? error_wrap(err, "prefetching %s, generation %s", r->id, r->gen) : CAIRN_OK;
}
