#include "fuse/trace_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/util.h"
#include "fuse/file.h"
#include "store/record.h"

#include <stdlib.h>
#include <string.h>

/* More wait than that: the order of some generation is not kept, or not made use of. */
#define QUEUE_MAX 64
/* Of plain bytes touched: less is not worth an object. */
#define TRACE_MIN ((uint64_t)1 << 20)
/* What is known of the traces that a generation has, and that all of one is here, is believed so
 * long. */
#define KNOWN_NS (60 * NS_PER_S)
/* Who may not write is not asked to for so long. */
#define REFUSED_NS  (600 * NS_PER_S)
#define PREFETCH_NS (1800 * NS_PER_S)
#define KEEP_NS     (60 * NS_PER_S)
/* At the end of the mount. */
#define LAST_NS (NS_PER_S)

/* ---- Jobs ------------------------------------------------------------------------------------ */

static void job_free(struct tracer *t, struct job *j)
{
    touched_release(&j->touched);
    generation_put(t->m, j->g);
    free(j);
}

/* j is transferred. */
static void submit(struct tracer *t, struct job *j)
{
    pthread_mutex_lock(&t->lock);
    bool queued = t->n < QUEUE_MAX && !t->stop && (j->keep || !t->ending);
    if (queued) {
        j->next = NULL;
        *t->last = j;
        t->last = &j->next;
        t->n++;
        t->n_keep += j->keep;
        if (!j->keep)
            j->g->traced->queued = true;
        pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->lock);
    if (!queued)
        job_free(t, j);
}

/* Until its files are closed, at most. */
static void run_prefetch(struct tracer *t, unsigned thread, struct generation *g)
{
    struct cairn_error err;
    struct cairn_cancel *cancel = NULL;
    struct traced *d = g->traced;
    bool can = cairn_cancel_new(&cancel, &err) == CAIRN_OK;
    pthread_mutex_lock(&t->lock);
    d->queued = false;
    bool wanted = can && d->opens && !t->ending;
    if (wanted)
        d->prefetch = t->running[thread] = cancel;
    pthread_mutex_unlock(&t->lock);
    struct cairn_op op = {.deadline_ns = clock_add(clock_monotonic(), PREFETCH_NS),
                          .cancel = cancel};
    if (wanted && trace_fetch(t, g, &op, &err))
        log_line(LOG_LEVEL_DEBUG, "mount: fetching ahead: %s", err.message);
    pthread_mutex_lock(&t->lock);
    if (d->prefetch == cancel)
        d->prefetch = NULL;
    t->running[thread] = NULL;
    pthread_mutex_unlock(&t->lock);
    cairn_cancel_free(cancel);
}

static void run_keep(struct tracer *t, struct job *j)
{
    struct cairn_error err;
    struct cairn_op op = {.deadline_ns = clock_add(clock_monotonic(), KEEP_NS),
                          .cancel = t->cancel};
    if (trace_keep(t, j, &op, &err))
        log_line(LOG_LEVEL_DEBUG, "mount: no trace is kept: %s", err.message);
}

/* Whether that may be worth an object. */
static bool is_worth_keeping_locked(const struct tracer *t, const struct traced *d,
                                    const struct touched *touched)
{
    uint64_t cs = t->m->store->format.chunk_size;
    if (touched->copy || touched->all.chunks * cs < TRACE_MIN ||
        (t->refused_ns && clock_monotonic() - t->refused_ns < REFUSED_NS))
        return false;
    return d->own != OWN_THERE || (uint64_t)touched->late.chunks * 8 > d->chunks;
}

/* d's recording is over; NULL: there is nothing to keep. */
static struct job *end_locked(struct tracer *t, struct traced *d)
{
    struct touched touched = {0};
    if (d->touches)
        touches_end(d->touches, &touched);
    struct job *j = is_worth_keeping_locked(t, d, &touched) ? malloc(sizeof(*j)) : NULL;
    if (!j) {
        touched_release(&touched);
        return NULL;
    }
    *j = (struct job){.g = generation_ref(t->m, d->g), .keep = true, .touched = touched};
    return j;
}

/* ---- Threads --------------------------------------------------------------------------------- */

struct worker {
    struct tracer *t;
    unsigned no;
};

/* The next that may run: one thread is left for what is to be kept, however long prefetches take.
 * NULL: none. */
static struct job *take_locked(struct tracer *t)
{
    struct job **at = &t->first, *j;
    while (*at && !(*at)->keep && t->n_fetching == TRACE_THREADS - 1)
        at = &(*at)->next;
    j = *at;
    if (!j)
        return NULL;
    *at = j->next;
    if (t->last == &j->next)
        t->last = at;
    t->n--;
    t->n_fetching += !j->keep;
    return j;
}

static void over_locked(struct tracer *t, bool kept)
{
    if (kept && --t->n_keep == 0)
        pthread_cond_broadcast(&t->quiet);
    t->n_fetching -= !kept;
    pthread_cond_signal(&t->wake);
}

static void *work(void *arg)
{
    struct worker w = *(struct worker *)arg;
    struct tracer *t = w.t;
    free(arg);
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        struct job *j = take_locked(t);
        if (!j) {
            pthread_cond_wait(&t->wake, &t->lock);
            continue;
        }
        bool keeps = j->keep;
        pthread_mutex_unlock(&t->lock);
        if (keeps)
            run_keep(t, j);
        else
            run_prefetch(t, w.no, j->g);
        job_free(t, j);
        pthread_mutex_lock(&t->lock);
        over_locked(t, keeps);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static int start_threads(struct tracer *t, struct cairn_error *err)
{
    for (unsigned i = 0; i < TRACE_THREADS; i++) {
        struct worker *w = malloc(sizeof(*w));
        if (!w)
            return error_oom(err, "tracer");
        *w = (struct worker){.t = t, .no = i};
        int e = thread_start(&t->threads[i], work, w);
        if (e) {
            free(w);
            return error_sys(err, e, "thread of the mount");
        }
        t->n_threads++;
    }
    return CAIRN_OK;
}

int tracer_new(struct mount *m, struct tracer **out, struct cairn_error *err)
{
    struct tracer *t = calloc(1, sizeof(*t));
    if (!t)
        return error_oom(err, "tracer");
    t->m = m;
    t->last = &t->first;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    op_cond_init(&t->quiet);
    int rc = cairn_cancel_new(&t->cancel, err);
    if (!rc)
        rc = start_threads(t, err);
    if (rc)
        tracer_free(t);
    else
        *out = t;
    return rc;
}

static void wait_for_keepers(struct tracer *t)
{
    struct cairn_error ignored;
    struct op_waiter w;
    struct cairn_op op = {.deadline_ns = clock_add(clock_monotonic(), LAST_NS)};
    op_waiter_add(&w, &op, &t->lock, &t->quiet);
    pthread_mutex_lock(&t->lock);
    t->ending = true;
    for (unsigned i = 0; i < TRACE_THREADS; i++)
        if (t->running[i])
            cairn_cancel_fire(t->running[i]);
    while (t->n_keep && !op_wait_locked(&w, "keeping traces", &ignored))
        ;
    t->stop = true;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    op_waiter_remove(&w);
}

void tracer_free(struct tracer *t)
{
    if (!t)
        return;
    if (t->n_threads)
        wait_for_keepers(t);
    if (t->cancel)
        cairn_cancel_fire(t->cancel);
    for (unsigned i = 0; i < t->n_threads; i++)
        pthread_join(t->threads[i], NULL);
    for (struct job *j = t->first, *next; j; j = next) {
        next = j->next;
        job_free(t, j);
    }
    cairn_cancel_free(t->cancel);
    pthread_cond_destroy(&t->quiet);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- What is open ---------------------------------------------------------------------------- */

void traced_free(struct traced *d)
{
    if (!d)
        return;
    touches_free(d->touches);
    free(d);
}

static struct traced *traced_new(struct generation *g)
{
    struct cairn_error why;
    struct traced *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    d->g = g;
    if (touches_new(atomic_load(&g->record->manifest), &d->touches, &why))
        log_line(LOG_LEVEL_DEBUG, "mount: %s is not traced: %s", g->id, why.message);
    return d;
}

/* The first of its files is opened. True: what it may have of a trace is to be looked for. */
static bool begin_locked(struct tracer *t, struct traced *d)
{
    bool known = d->known_ns && clock_monotonic() - d->known_ns < KNOWN_NS;
    d->next_open = t->open;
    d->link = &t->open;
    if (t->open)
        t->open->link = &d->next_open;
    t->open = d;
    if (d->touches)
        touches_begin(d->touches);
    if (known && d->fetched)
        return false;
    d->fetched = false;
    return !d->queued;
}

void trace_opened(struct mount *m, struct open_file *f)
{
    struct tracer *t = m->tracer;
    struct generation *g = f->g;
    if (!t)
        return;
    struct job *j = calloc(1, sizeof(*j));
    pthread_mutex_lock(&t->lock);
    struct traced *fresh = NULL;
    if (!g->traced) {
        pthread_mutex_unlock(&t->lock);
        fresh = traced_new(g);
        pthread_mutex_lock(&t->lock);
    }
    if (!g->traced && fresh) {
        g->traced = fresh;
        fresh = NULL;
    }
    f->traced = g->traced;
    bool look = f->traced && f->traced->opens++ == 0 && begin_locked(t, f->traced) && j;
    if (look)
        j->g = generation_ref(m, g);
    pthread_mutex_unlock(&t->lock);
    traced_free(fresh);
    if (look)
        submit(t, j);
    else
        free(j);
}

void trace_closed(struct mount *m, struct open_file *f)
{
    struct tracer *t = m->tracer;
    struct traced *d = f->traced;
    struct job *j = NULL;
    if (!d)
        return;
    f->traced = NULL;
    pthread_mutex_lock(&t->lock);
    if (--d->opens == 0) {
        *d->link = d->next_open;
        if (d->next_open)
            d->next_open->link = d->link;
        if (d->prefetch)
            cairn_cancel_fire(d->prefetch);
        j = end_locked(t, d);
    }
    pthread_mutex_unlock(&t->lock);
    if (j)
        submit(t, j);
}

void trace_read(const struct open_file *f, uint64_t off, size_t size, bool late)
{
    if (f->traced && f->traced->touches)
        touches_note(f->traced->touches, atomic_load(&f->g->record->manifest), f->index, off, size,
                     late);
}

/* One whose time is over. */
static struct job *next_over(struct tracer *t, int64_t now)
{
    struct job *j = NULL;
    pthread_mutex_lock(&t->lock);
    for (struct traced *d = t->open; d && !j; d = d->next_open)
        if (d->touches && touches_is_over(d->touches, now))
            j = end_locked(t, d);
    pthread_mutex_unlock(&t->lock);
    return j;
}

void trace_tidy(struct mount *m)
{
    int64_t now = clock_monotonic();
    for (struct job *j; m->tracer && (j = next_over(m->tracer, now));)
        submit(m->tracer, j);
}
