#include "store/budget.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>

/* Room is made from this fill on, down to that; of the bound. */
#define HIGH_PART 32
#define LOW_PART  16
/* After so much was added, of the bound, and at least LEARN_MIN, everything is listed anew: other
 * processes may have added as much. */
#define LEARN_PART 64
#define LEARN_MIN  (1024 * 1024)
/* After a run that found too little to remove. */
#define PAUSE_NS (NS_PER_S)
/* While another process is at it, how often it is waited for, and how long each time. */
#define OTHERS_MAX 100
#define OTHERS_NS  (NS_PER_S / 10)

enum known {
    KNOWN_NOT,  /* nothing was listed yet */
    KNOWN_SOON, /* a first charge is listing */
    KNOWN,
};

/*   what the thread does   begins when                              ends
 *   sleeps                 nothing is due                           due, or stop
 *   lists and removes      due and the pause is over, or waiters    always; then runs++
 *   nothing any more       stop and not due                         joined */
struct budget {
    char *dir; /* constant, as the sources */
    int64_t wanted_limit;
    struct budget_source sources[BUDGET_SOURCES_MAX];
    size_t n_sources;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;  /* due, stop */
    pthread_cond_t room;  /* a run removed something or ended */
    enum known known;
    uint64_t limit, used;
    int64_t since;  /* charges less credits since the last listing began */
    bool due, stop; /* room is to be made; the thread is to end */
    bool running;   /* it is being made */
    bool has_thread;
    pthread_t thread;
    int64_t not_before; /* CLOCK_MONOTONIC: the end of a pause */
    uint64_t runs;      /* that ended, by this process or another one */
    unsigned others;    /* runs in a row that another process kept from removing anything */
    uint64_t asked;     /* the largest sum that waits for room */
    unsigned waiters;
    struct budget_stats stats; /* used and limit are set when asked for */
};

/* ---- Listing --------------------------------------------------------------------------------- */

struct listed {
    struct budget_item item;
    size_t source;
};

struct listing {
    struct listed *items; /* owned */
    size_t n, cap, source;
    uint64_t bytes;
};

static void listing_release(struct listing *l)
{
    free(l->items);
}
#define CLEANUP_LISTING __attribute__((cleanup(listing_release)))

static int keep(void *to, const struct budget_item *item, struct cairn_error *err)
{
    struct listing *l = to;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 256;
        struct listed *items = reallocarray(l->items, cap, sizeof(*items));
        if (!items)
            return error_oom(err, "listing the cache");
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = (struct listed){*item, l->source};
    l->bytes += item->bytes;
    return CAIRN_OK;
}

static int by_use(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    return x->item.used_ns < y->item.used_ns ? -1 : x->item.used_ns > y->item.used_ns;
}

static uint64_t limit_now(const struct budget *b, uint64_t kept)
{
    if (b->wanted_limit >= 0)
        return (uint64_t)b->wanted_limit;
    struct statvfs v;
    if (statvfs(b->dir, &v) != 0)
        return BUDGET_DEFAULT;
    uint64_t half = ((uint64_t)v.f_bavail * v.f_frsize + kept) / 2;
    return half < BUDGET_DEFAULT ? half : BUDGET_DEFAULT;
}

/* Sets used and limit to what the disk says. */
static int list_all(struct budget *b, struct listing *l, struct cairn_error *err)
{
    pthread_mutex_lock(&b->lock);
    b->since = 0;
    pthread_mutex_unlock(&b->lock);
    int rc = CAIRN_OK;
    for (size_t i = 0; !rc && i < b->n_sources; i++) {
        l->source = i;
        rc = b->sources[i].scan(b->sources[i].ctx, keep, l, err);
        if (rc)
            error_wrap(err, "listing %s", b->sources[i].what);
    }
    uint64_t limit = limit_now(b, l->bytes);
    pthread_mutex_lock(&b->lock);
    if (!rc) {
        int64_t used = (int64_t)l->bytes + b->since;
        b->used = used > 0 ? (uint64_t)used : 0;
        b->limit = limit;
    }
    b->known = KNOWN;
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* ---- Making room ----------------------------------------------------------------------------- */

/* Whether enough is free: for those who wait, and so that others need not. */
static bool enough_locked(const struct budget *b)
{
    uint64_t low = b->limit - b->limit / LOW_PART;
    return b->used <= low && (b->asked > b->limit || b->used <= b->limit - b->asked);
}

/* A disk that fails, fails for all of them: one is told of. */
static void evict(struct budget *b, struct listing *l)
{
    bool told = false;
    if (l->n) /* qsort takes no NULL */
        qsort(l->items, l->n, sizeof(l->items[0]), by_use);
    for (size_t i = 0; i < l->n; i++) {
        const struct listed *it = &l->items[i];
        pthread_mutex_lock(&b->lock);
        bool enough = enough_locked(b);
        pthread_mutex_unlock(&b->lock);
        if (enough)
            return;
        if (it->item.in_use)
            continue;
        struct cairn_error err;
        const struct budget_source *src = &b->sources[it->source];
        int rc = src->evict(src->ctx, &it->item, &err);
        if (rc && rc != CAIRN_BUSY && !told) {
            log_line(LOG_LEVEL_WARNING, "cache: removing %s %s: %s", src->what, it->item.name,
                     err.message);
            told = true;
        }
        if (rc)
            continue;
        pthread_mutex_lock(&b->lock);
        b->used -= it->item.bytes < b->used ? it->item.bytes : b->used;
        b->stats.evicted++;
        b->stats.evicted_bytes += it->item.bytes;
        pthread_cond_broadcast(&b->room);
        pthread_mutex_unlock(&b->lock);
    }
}

/* The lock of all processes on this folder, or -1: another one is at it. On a disk that is too full
 * for the file, the folder stands in: what makes room must not need any. */
static int lock_all(const struct budget *b)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/evict.lock", b->dir);
    CLEANUP_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == ENOSPC || errno == EDQUOT))
        fd = open(b->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
        return -1;
    return util_steal_fd(&fd);
}

/* False if another process is at it. */
static bool make_room(struct budget *b)
{
    CLEANUP_FD int lock = lock_all(b);
    CLEANUP_LISTING struct listing l = {0};
    struct cairn_error err;
    if (list_all(b, &l, &err))
        log_line(LOG_LEVEL_WARNING, "cache: %s", err.message);
    else if (lock >= 0)
        evict(b, &l);
    return lock >= 0;
}

static void run_locked(struct budget *b)
{
    b->due = false;
    b->running = true;
    pthread_mutex_unlock(&b->lock);
    bool mine = make_room(b);
    pthread_mutex_lock(&b->lock);
    b->running = false;
    b->others = mine ? 0 : b->others + 1;
    bool ended = mine || b->others >= OTHERS_MAX;
    if (!enough_locked(b)) {
        b->not_before = clock_add(clock_monotonic(), ended ? PAUSE_NS : OTHERS_NS);
        b->due = b->due || !ended;
    }
    if (ended)
        b->runs++;
    pthread_cond_broadcast(&b->room);
}

static void *budget_main(void *arg)
{
    struct budget *b = arg;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (!b->due && !b->stop)
            pthread_cond_wait(&b->work, &b->lock);
        if (!b->due || (b->stop && b->others))
            break;
        if (!b->stop && clock_monotonic() < b->not_before) {
            struct timespec ts = {.tv_sec = b->not_before / NS_PER_S,
                                  .tv_nsec = b->not_before % NS_PER_S};
            pthread_cond_timedwait(&b->work, &b->lock, &ts);
            continue;
        }
        run_locked(b);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* Without a thread nothing is removed: what does not fit is then not kept. */
static void wake_locked(struct budget *b)
{
    if (!b->has_thread) {
        b->has_thread = thread_start(&b->thread, budget_main, b) == 0;
        if (!b->has_thread)
            return;
    }
    b->due = true;
    pthread_cond_signal(&b->work);
}

/* ---- Charges --------------------------------------------------------------------------------- */

/* The first one to charge finds out what is there. Those who come meanwhile do not wait. */
static void know(struct budget *b)
{
    pthread_mutex_lock(&b->lock);
    bool mine = b->known == KNOWN_NOT;
    if (mine)
        b->known = KNOWN_SOON;
    pthread_mutex_unlock(&b->lock);
    if (!mine)
        return;
    CLEANUP_LISTING struct listing l = {0};
    struct cairn_error err;
    if (list_all(b, &l, &err))
        log_line(LOG_LEVEL_WARNING, "cache: %s", err.message);
}

static bool fits_locked(const struct budget *b, uint64_t bytes)
{
    return bytes <= b->limit && b->used <= b->limit - bytes;
}

static void count_locked(struct budget *b, uint64_t bytes)
{
    b->used += bytes;
    b->since += (int64_t)bytes;
    uint64_t learn = b->limit / LEARN_PART > LEARN_MIN ? b->limit / LEARN_PART : LEARN_MIN;
    if (b->used > b->limit - b->limit / HIGH_PART || b->since > (int64_t)learn)
        wake_locked(b);
}

bool budget_charge(struct budget *b, uint64_t bytes)
{
    know(b);
    pthread_mutex_lock(&b->lock);
    bool fits = fits_locked(b, bytes);
    if (fits) {
        count_locked(b, bytes);
    } else {
        b->stats.refused++;
        wake_locked(b);
    }
    pthread_mutex_unlock(&b->lock);
    return fits;
}

int budget_charge_wait(struct budget *b, const struct cairn_op *op, uint64_t bytes,
                       struct cairn_error *err)
{
    int rc = op_check(op, "making room in the cache", err);
    if (rc)
        return rc;
    know(b);
    struct op_waiter w;
    op_waiter_add(&w, op, &b->lock, &b->room);
    pthread_mutex_lock(&b->lock);
    b->waiters++;
    b->not_before = 0;
    /* A run that began before may have stopped at what was enough then; the one after knows. */
    uint64_t last = b->runs + 1 + b->running;
    while (!rc && !fits_locked(b, bytes)) {
        if (bytes > b->limit || b->runs >= last) {
            rc = error_set(err, CAIRN_NO_SPACE, ENOSPC,
                           "the cache has no room for %llu bytes (%llu of %llu are in use)",
                           (unsigned long long)bytes, (unsigned long long)b->used,
                           (unsigned long long)b->limit);
            break;
        }
        if (bytes > b->asked)
            b->asked = bytes;
        wake_locked(b);
        if (!b->has_thread)
            rc = error_set(err, CAIRN_TRANSIENT, EAGAIN, "the cache cannot start a thread");
        else
            rc = op_wait_locked(&w, "making room in the cache", err);
    }
    if (!rc)
        count_locked(b, bytes);
    else
        b->stats.refused++;
    if (--b->waiters == 0)
        b->asked = 0;
    pthread_mutex_unlock(&b->lock);
    op_waiter_remove(&w);
    return rc;
}

void budget_take(struct budget *b, uint64_t bytes)
{
    know(b);
    pthread_mutex_lock(&b->lock);
    count_locked(b, bytes);
    pthread_mutex_unlock(&b->lock);
}

void budget_credit(struct budget *b, uint64_t bytes)
{
    pthread_mutex_lock(&b->lock);
    b->used -= bytes < b->used ? bytes : b->used;
    b->since -= (int64_t)bytes;
    pthread_cond_broadcast(&b->room);
    pthread_mutex_unlock(&b->lock);
}

void budget_look(struct budget *b)
{
    pthread_mutex_lock(&b->lock);
    wake_locked(b);
    pthread_mutex_unlock(&b->lock);
}

void budget_stats(struct budget *b, struct budget_stats *out)
{
    know(b);
    pthread_mutex_lock(&b->lock);
    *out = b->stats;
    out->used = b->used;
    out->limit = b->limit;
    pthread_mutex_unlock(&b->lock);
}

/* ---- Life ------------------------------------------------------------------------------------ */

int budget_new(const char *dir, int64_t limit, struct budget **out, struct cairn_error *err)
{
    struct budget *b = calloc(1, sizeof(*b));
    if (!b || !(b->dir = strdup(dir))) {
        free(b);
        return error_oom(err, "bound of the cache");
    }
    pthread_mutex_init(&b->lock, NULL);
    op_cond_init(&b->work);
    op_cond_init(&b->room);
    b->wanted_limit = limit;
    b->limit = limit_now(b, 0);
    *out = b;
    return CAIRN_OK;
}

void budget_add_source(struct budget *b, const struct budget_source *source)
{
    if (b->n_sources < BUDGET_SOURCES_MAX)
        b->sources[b->n_sources++] = *source;
}

void budget_free(struct budget *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_cond_broadcast(&b->work);
    bool joins = b->has_thread;
    pthread_mutex_unlock(&b->lock);
    if (joins)
        pthread_join(b->thread, NULL);
    pthread_cond_destroy(&b->work);
    pthread_cond_destroy(&b->room);
    pthread_mutex_destroy(&b->lock);
    free(b->dir);
    free(b);
}
