#include "store/cache_fill_private.h"

#include "base/thread.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- One fill -------------------------------------------------------------------------------- */

size_t fill_find(const struct fill *fill, const struct fill_want *want)
{
    const struct chunk_loc *loc = &want->chunk.loc;
    if (loc->offset < fill->from || loc->offset >= fill->from + fill->len ||
        memcmp(loc->pack, fill->wants[0].chunk.loc.pack, PACK_ID_LEN) != 0)
        return SIZE_MAX;
    for (size_t i = 0; i < fill->n; i++)
        if (fill->wants[i].chunk.loc.offset == loc->offset)
            return i;
    return SIZE_MAX;
}

static void fill_free(struct fill *fill)
{
    if (!fill)
        return;
    for (size_t i = 0; fill->results && i < fill->n; i++) {
        free(fill->results[i].own);
        free(fill->results[i].err);
    }
    free(fill->results);
    free(fill->wants);
    free(fill->stored);
    free(fill->decoded);
    pthread_cond_destroy(&fill->ended);
    free(fill);
}

static struct fill *fill_new(const struct fill_want *const *wants, size_t n)
{
    struct fill *fill = calloc(1, sizeof(*fill));
    if (!fill)
        return NULL;
    op_cond_init(&fill->ended);
    fill->wants = calloc(n, sizeof(*fill->wants));
    fill->results = calloc(n, sizeof(*fill->results));
    if (!fill->wants || !fill->results) {
        fill_free(fill);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        fill->wants[i] = *wants[i];
        fill->based |= wants[i]->chunk.loc.encoding == CHUNK_ZSTD_BASE;
    }
    fill->n = n;
    const struct chunk_loc *last = &wants[n - 1]->chunk.loc;
    fill->from = wants[0]->chunk.loc.offset;
    fill->len = (size_t)(last->offset + (uint64_t)last->stored_len - fill->from);
    return fill;
}

/* What the caller is to free without the lock. */
static struct fill *unref_locked(struct fill *fill)
{
    return --fill->refs == 0 ? fill : NULL;
}

void fill_unref(struct fills *f, struct fill *fill)
{
    if (!fill)
        return;
    pthread_mutex_lock(&f->lock);
    struct fill *last = unref_locked(fill);
    pthread_mutex_unlock(&f->lock);
    fill_free(last);
}

void fills_release(struct fills *f, struct fill_hold *hold)
{
    for (size_t i = 0; i < hold->n; i++)
        fill_unref(f, hold->fills[i]);
    hold->n = 0;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *fills_main(void *arg);

/* False: there is none at all. */
static bool start_thread_locked(struct fills *f)
{
    if (f->n_threads == FILL_THREADS || f->stop)
        return f->n_threads > 0;
    if (thread_start(&f->threads[f->n_threads], fills_main, f) == 0)
        f->n_threads++;
    return f->n_threads > 0;
}

/* There is a thread, or stop was set and the caller is one. */
static void queue_locked(struct fills *f, struct fill *fill)
{
    fill->next_job = NULL;
    *f->jobs_tail = fill;
    f->jobs_tail = &fill->next_job;
    f->n_jobs++;
    if (f->idle >= f->n_jobs)
        pthread_cond_signal(&f->more);
    else if (!start_thread_locked(f) || f->idle)
        pthread_cond_signal(&f->more);
}

/* One of what it waited for is over. */
static void unpend_locked(struct fills *f, struct fill *fill)
{
    if (--fill->pending == 0) {
        fill->state = FILL_DECODING;
        queue_locked(f, fill);
    }
}

/* The fill's bytes are there, or what kept them away. */
static void finish(struct fills *f, struct fill *fill)
{
    struct fill_link *done;
    pthread_mutex_lock(&f->lock);
    fill->state = FILL_DONE;
    struct fill **link = &f->active;
    while (*link != fill)
        link = &(*link)->next;
    *link = fill->next;
    pthread_cond_broadcast(&fill->ended);
    done = fill->dependents;
    fill->dependents = NULL;
    for (struct fill_link *l = done; l; l = l->next)
        unpend_locked(f, l->who);
    pthread_mutex_unlock(&f->lock);
    while (done) {
        struct fill_link *l = done;
        done = l->next;
        fill_unref(f, l->who);
        free(l);
    }
    fills_release(f, &fill->bases);
    fill_unref(f, fill); /* the table's */
}

/* A job is a fill to be read, or one to be decoded. */
static void work(struct fills *f, struct fill *fill, bool decodes)
{
    if (!decodes) {
        fill_read(f, fill);
        pthread_mutex_lock(&f->lock);
        fill->state = FILL_WAITING;
        decodes = --fill->pending == 0;
        if (decodes)
            fill->state = FILL_DECODING;
        pthread_mutex_unlock(&f->lock);
    }
    if (decodes) {
        fill_decode(f, fill);
        finish(f, fill);
    }
}

static void *fills_main(void *arg)
{
    struct fills *f = arg;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        f->idle++;
        while (!f->jobs && !f->stop)
            pthread_cond_wait(&f->more, &f->lock);
        f->idle--;
        struct fill *fill = f->jobs;
        if (!fill)
            break;
        f->jobs = fill->next_job;
        if (!f->jobs)
            f->jobs_tail = &f->jobs;
        f->n_jobs--;
        bool decodes = fill->state == FILL_DECODING;
        if (!decodes)
            fill->state = FILL_READING;
        pthread_mutex_unlock(&f->lock);
        work(f, fill, decodes);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

int fills_new(struct cairn_store *s, struct fills **out, struct cairn_error *err)
{
    struct fills *f = calloc(1, sizeof(*f));
    if (!f)
        return error_oom(err, "downloads of chunks");
    int rc = cairn_cancel_new(&f->cancel, err);
    if (rc) {
        free(f);
        return rc;
    }
    f->s = s;
    f->jobs_tail = &f->jobs;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->more, NULL);
    *out = f;
    return CAIRN_OK;
}

void fills_free(struct fills *f)
{
    if (!f)
        return;
    cairn_cancel_fire(f->cancel);
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_broadcast(&f->more);
    unsigned n = f->n_threads;
    pthread_mutex_unlock(&f->lock);
    for (unsigned i = 0; i < n; i++)
        pthread_join(f->threads[i], NULL);
    cairn_cancel_free(f->cancel);
    pthread_cond_destroy(&f->more);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* ---- Beginning ------------------------------------------------------------------------------- */

/* Wants that become one read. */
struct group {
    const struct fill_want *wants[FILL_CHUNKS_MAX];
    size_t n;
};

static bool joins(const struct group *g, const struct fill_want *want)
{
    const struct chunk_loc *first = &g->wants[0]->chunk.loc, *loc = &want->chunk.loc;
    const struct chunk_loc *last = &g->wants[g->n - 1]->chunk.loc;
    uint64_t end = last->offset + (uint64_t)last->stored_len;
    return g->n < FILL_CHUNKS_MAX && memcmp(loc->pack, first->pack, PACK_ID_LEN) == 0 &&
           loc->offset >= end && loc->offset - end <= FILL_GAP &&
           loc->offset + (uint64_t)loc->stored_len - first->offset <= FILL_LEN_MAX;
}

static void hold_locked(struct fill_hold *hold, struct fill *fill)
{
    for (size_t i = 0; i < hold->n; i++)
        if (hold->fills[i] == fill)
            return;
    if (hold->n == FILL_HOLD_MAX)
        return;
    hold->fills[hold->n++] = fill;
    fill->refs++;
}

/* Fills that were just begun, to be set up. */
struct fresh {
    struct fill *fills[FILL_CHUNKS_MAX]; /* a reference each */
    size_t n;
};

static void flush_locked(struct fills *f, struct group *g, struct fill_hold *hold,
                         struct fresh *fresh)
{
    struct fill *fill =
        g->n && (f->n_threads || start_thread_locked(f)) ? fill_new(g->wants, g->n) : NULL;
    g->n = 0;
    if (!fill)
        return;
    fill->refs = 2;    /* the table's, until it is DONE, and the one of who sets it up */
    fill->pending = 2; /* its read, and who sets it up */
    fill->next = f->active;
    f->active = fill;
    fresh->fills[fresh->n++] = fill;
    hold_locked(hold, fill);
    queue_locked(f, fill);
}

/* as_base: one that waits for nothing but its read, so that fills never wait in a circle. */
static struct fill *find_active_locked(struct fills *f, const struct fill_want *want, bool as_base)
{
    for (struct fill *fill = f->active; fill; fill = fill->next)
        if (!(as_base && fill->based) && fill_find(fill, want) != SIZE_MAX)
            return fill;
    return NULL;
}

static bool in_group(const struct group *g, const struct fill_want *want)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->wants[i]->chunk.loc.offset == want->chunk.loc.offset &&
            memcmp(g->wants[i]->chunk.loc.pack, want->chunk.loc.pack, PACK_ID_LEN) == 0)
            return true;
    return false;
}

/* n is at most FILL_CHUNKS_MAX. */
static void begin_missing(struct fills *f, const struct fill_want *wants, const bool *missing,
                          size_t n, bool as_bases, struct fill_hold *hold, struct fresh *fresh)
{
    struct group g = {.n = 0};
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < n; i++) {
        if (!missing[i] || in_group(&g, &wants[i]))
            continue;
        struct fill *fill = find_active_locked(f, &wants[i], as_bases);
        if (fill) {
            hold_locked(hold, fill);
            continue;
        }
        if (g.n && !joins(&g, &wants[i]))
            flush_locked(f, &g, hold, fresh);
        g.wants[g.n++] = &wants[i];
    }
    flush_locked(f, &g, hold, fresh);
    pthread_mutex_unlock(&f->lock);
}

bool fills_has(struct fills *f, const struct fill_want *want)
{
    struct cache_ref ref;
    struct cache *c = f->s->cache;
    if (!c || !cache_find(c, want->chunk.loc.pack, want->chunk.loc.offset, &ref))
        return false;
    cache_put(c, &ref);
    return true;
}

/* Another process may have brought it here since its pack was looked at. */
static bool is_missing(struct fills *f, const struct fill_want *want, uint8_t *refreshed)
{
    if (fills_has(f, want))
        return false;
    if (!f->s->cache || memcmp(refreshed, want->chunk.loc.pack, PACK_ID_LEN) == 0)
        return true;
    memcpy(refreshed, want->chunk.loc.pack, PACK_ID_LEN);
    cache_refresh(f->s->cache, want->chunk.loc.pack);
    return !fills_has(f, want);
}

static void begin_slice(struct fills *f, const struct fill_want *wants, size_t n, bool as_bases,
                        struct fill_hold *hold, struct fresh *fresh)
{
    bool missing[FILL_CHUNKS_MAX], any = false;
    uint8_t refreshed[PACK_ID_LEN] = {0};
    for (size_t i = 0; i < n; i++) {
        missing[i] = is_missing(f, &wants[i], refreshed);
        any |= missing[i];
    }
    if (any)
        begin_missing(f, wants, missing, n, as_bases, hold, fresh);
}

static bool depend(struct fills *f, struct fill *fill, struct fill *base)
{
    struct fill_link *link = malloc(sizeof(*link));
    if (!link)
        return false; /* its bases are then read one by one */
    *link = (struct fill_link){.who = fill};
    pthread_mutex_lock(&f->lock);
    bool waits = base->state != FILL_DONE;
    if (waits) {
        link->next = base->dependents;
        base->dependents = link;
        fill->pending++;
        fill->refs++;
    }
    pthread_mutex_unlock(&f->lock);
    if (!waits)
        free(link);
    return true;
}

/* Begin what its chunks are based on. Bases have no bases: this goes one deep. */
static void begin_bases(struct fills *f, struct fill *fill)
{
    struct fresh fresh = {.n = 0};
    size_t n = 0;
    CLEANUP_FREE struct fill_want *bases = calloc(fill->n, sizeof(*bases));
    for (size_t i = 0; bases && i < fill->n; i++) {
        const struct chunk *chunk = &fill->wants[i].chunk;
        if (chunk->loc.encoding == CHUNK_ZSTD_BASE && chunk->base.encoding != CHUNK_ZSTD_BASE)
            fill_want_base(chunk, &bases[n++]);
    }
    if (n)
        begin_slice(f, bases, n, true, &fill->bases, &fresh);
    size_t held = fill->bases.n;
    for (size_t i = 0; i < held; i++)
        if (!depend(f, fill, fill->bases.fills[i])) {
            /* Nobody looks into one that may still be at work. */
            fill->bases.n = i;
            for (; i < held; i++)
                fill_unref(f, fill->bases.fills[i]);
        }
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < fresh.n; i++)
        unpend_locked(f, fresh.fills[i]);
    pthread_mutex_unlock(&f->lock);
    for (size_t i = 0; i < fresh.n; i++)
        fill_unref(f, fresh.fills[i]);
}

void fills_begin(struct fills *f, const struct fill_want *wants, size_t n, struct fill_hold *hold)
{
    for (size_t at = 0, part; at < n; at += part) {
        struct fresh fresh = {.n = 0};
        part = n - at < FILL_CHUNKS_MAX ? n - at : FILL_CHUNKS_MAX;
        begin_slice(f, wants + at, part, false, hold, &fresh);
        for (size_t i = 0; i < fresh.n; i++)
            begin_bases(f, fresh.fills[i]);
        pthread_mutex_lock(&f->lock);
        for (size_t i = 0; i < fresh.n; i++)
            unpend_locked(f, fresh.fills[i]);
        pthread_mutex_unlock(&f->lock);
        for (size_t i = 0; i < fresh.n; i++)
            fill_unref(f, fresh.fills[i]);
    }
}

struct fill *fill_find_held(struct fills *f, const struct fill_want *want, struct fill_hold *hold)
{
    struct fill *found = NULL;
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; !found && i < hold->n; i++)
        if (fill_find(hold->fills[i], want) != SIZE_MAX)
            found = hold->fills[i];
    if (!found)
        found = find_active_locked(f, want, false);
    if (found)
        found->refs++;
    pthread_mutex_unlock(&f->lock);
    return found;
}
