#include "base/flight.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/util.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Lock order: a token's lock before the table's (op.h), so no token is fired and no waiter is added
 * or removed with the table's lock held. */

#define THREADS_MAX        256
#define QUEUED_MAX_DEFAULT 1024

enum state { QUEUED, RUNNING, ENDED };

struct flight {
    /* constant */
    struct flight_table *table;
    char *key;                   /* owned */
    struct cairn_cancel *cancel; /* owned */
    struct flight_start start;   /* ctx: owned by the flight until start.ctx_free */
    uint64_t seq;                /* 1 for the table's first flight, and so on */

    /* guarded by the table's lock */
    unsigned refs; /* the table's until ENDED, and one for each call that looks at it */
    enum state state;
    bool invalid, installing;
    bool fired;                  /* by flight_table_free */
    struct flight *next, **link; /* in the table's list, until ENDED */
    struct flight *queue_next;
    pthread_cond_t changed; /* the state, or one of the flags */
    int rc;                 /* once ENDED; err if it is a failure */
    struct cairn_error err;
    struct flight_result *result; /* owned */
};

struct flight_table {
    /* constant */
    int64_t budget_ns;
    unsigned max_threads, max_queued;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t more;  /* the queue got a flight, or stop was set */
    pthread_cond_t left;  /* calls became 0 while stop was set */
    bool stop;
    unsigned calls; /* inside flight_run and flight_table_invalidate */
    uint64_t seq;
    struct flight *flights; /* QUEUED and RUNNING, in no order */
    unsigned count;         /* of them */
    struct flight *head, **tail;
    unsigned queued;        /* flights between head and tail */
    unsigned threads, idle; /* made or being made; of them waiting for more */
    struct slot {
        bool taken;
        pthread_t thread;
    } slots[];
};

/* ---- Results --------------------------------------------------------------------------------- */

void flight_result_init(struct flight_result *r, void (*free_fn)(struct flight_result *r))
{
    atomic_init(&r->refs, 1);
    r->free = free_fn;
}

struct flight_result *flight_result_ref(struct flight_result *r)
{
    if (r)
        atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

void flight_result_unref(struct flight_result *r)
{
    if (r && atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) == 1)
        r->free(r);
}

/* ---- Flights --------------------------------------------------------------------------------- */

#if defined(CAIRN_STEPS) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void check_locked(const struct flight_table *t)
{
    unsigned queued = 0, running = 0;
    for (const struct flight *f = t->head; f; f = f->queue_next, queued++)
        assert(f->state == QUEUED);
    assert(queued == t->queued);
    for (const struct flight *f = t->flights; f; f = f->next) {
        assert(f->refs > 0 && f->state != ENDED && *f->link == f);
        assert(f->state == RUNNING || (!f->invalid && !f->installing));
        running += f->state == RUNNING;
        queued -= f->state == QUEUED;
    }
    assert(queued == 0 && running + t->queued == t->count);
    assert(running + t->idle <= t->threads && t->threads <= t->max_threads);
}
#else
static void check_locked(const struct flight_table *t)
{
    (void)t;
}
#endif

static void flight_destroy(struct flight *f)
{
    if (f->start.ctx_free)
        f->start.ctx_free(f->start.ctx);
    flight_result_unref(f->result);
    cairn_cancel_free(f->cancel);
    pthread_cond_destroy(&f->changed);
    free(f->key);
    free(f);
}

/* True: the caller destroys it, once the lock is free. */
static bool unref_locked(struct flight *f)
{
    return --f->refs == 0;
}

static void unref(struct flight *f)
{
    struct flight_table *t = f->table;
    pthread_mutex_lock(&t->lock);
    bool last = unref_locked(f);
    pthread_mutex_unlock(&t->lock);
    if (last)
        flight_destroy(f);
}

/* With one reference, the table's. Does not take over start. */
static int flight_new(struct flight_table *t, const char *key, struct flight **out,
                      struct cairn_error *err)
{
    struct flight *f = calloc(1, sizeof(*f));
    if (!f)
        return error_oom(err, key);
    f->table = t;
    f->refs = 1;
    op_cond_init(&f->changed);
    f->key = strdup(key);
    int rc = f->key ? cairn_cancel_new(&f->cancel, err) : error_oom(err, key);
    if (rc) {
        flight_destroy(f);
        return rc;
    }
    *out = f;
    return CAIRN_OK;
}

static struct flight *find_locked(const struct flight_table *t, const char *key)
{
    for (struct flight *f = t->flights; f; f = f->next)
        if (!f->invalid && strcmp(f->key, key) == 0)
            return f;
    return NULL;
}

static void enqueue_locked(struct flight_table *t, struct flight *f)
{
    f->seq = ++t->seq;
    f->next = t->flights;
    if (f->next)
        f->next->link = &f->next;
    f->link = &t->flights;
    t->flights = f;
    t->count++;
    *t->tail = f;
    t->tail = &f->queue_next;
    t->queued++;
    pthread_cond_signal(&t->more);
}

/* f is NULL or any flight of the queue: which one leaves it. */
static struct flight *dequeue_locked(struct flight_table *t, struct flight *f)
{
    struct flight **p = &t->head;
    while (f && *p != f)
        p = &(*p)->queue_next;
    f = *p;
    *p = f->queue_next;
    if (!*p)
        t->tail = p;
    f->queue_next = NULL;
    t->queued--;
    return f;
}

/* The table lets go of f. True: the caller destroys it, once the lock is free. */
static bool end_locked(struct flight *f, int rc)
{
    f->state = ENDED;
    f->rc = rc;
    f->table->count--;
    *f->link = f->next;
    if (f->next)
        f->next->link = f->link;
    pthread_cond_broadcast(&f->changed);
    return unref_locked(f);
}

/* Timeout and cancelled are a caller's own; what a flight meets is not. */
static int not_the_callers(int rc, struct cairn_error *err)
{
    if (rc == CAIRN_TIMEOUT || rc == CAIRN_CANCELLED)
        rc = err->error_class = CAIRN_TRANSIENT;
    return rc;
}

static void fly(struct flight *f)
{
    struct flight_table *t = f->table;
    struct cairn_op op = {.deadline_ns = CAIRN_NO_DEADLINE, .cancel = f->cancel};
    if (t->budget_ns != CAIRN_NO_DEADLINE)
        op.deadline_ns = clock_add(clock_monotonic(), t->budget_ns);
    struct flight_result *result = NULL;
    struct cairn_error err = {0};
    int rc = not_the_callers(f->start.run(f->start.ctx, f, &op, &result, &err), &err);
    if (f->start.ctx_free)
        f->start.ctx_free(f->start.ctx);
    f->start.ctx_free = NULL;
    pthread_mutex_lock(&t->lock);
    f->err = err;
    f->result = result; /* of an invalid one too: nobody is left who would take it */
    bool last = end_locked(f, rc);
    check_locked(t);
    pthread_mutex_unlock(&t->lock);
    if (last)
        flight_destroy(f);
}

static void *thread_main(void *arg)
{
    struct flight_table *t = arg;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->head && !t->stop) {
            t->idle++;
            pthread_cond_wait(&t->more, &t->lock);
            t->idle--;
        }
        if (!t->head)
            break;
        struct flight *f = dequeue_locked(t, NULL);
        f->state = RUNNING;
        pthread_mutex_unlock(&t->lock);
        fly(f);
        pthread_mutex_lock(&t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* A slot for one more thread, if one is wanted and allowed. */
static struct slot *reserve_thread_locked(struct flight_table *t)
{
    if (t->queued <= t->idle || t->threads >= t->max_threads)
        return NULL;
    struct slot *s = t->slots;
    while (s->taken)
        s++;
    s->taken = true;
    t->threads++;
    return s;
}

/* Without a thread at all nothing in the queue would ever run: all of it ends. */
static void no_thread(struct flight_table *t, struct slot *s, int sys_errno)
{
    struct flight *dead = NULL;
    pthread_mutex_lock(&t->lock);
    s->taken = false;
    t->threads--;
    while (!t->threads && t->head) {
        struct flight *f = dequeue_locked(t, NULL);
        int rc = error_sys(&f->err, sys_errno, "%s: starting a thread", f->key);
        if (end_locked(f, rc)) {
            f->queue_next = dead;
            dead = f;
        }
    }
    check_locked(t);
    pthread_mutex_unlock(&t->lock);
    while (dead) {
        struct flight *f = dead;
        dead = f->queue_next;
        flight_destroy(f);
    }
}

static void make_thread(struct flight_table *t, struct slot *s)
{
    int e = thread_start(&s->thread, thread_main, t);
    if (e)
        no_thread(t, s, e);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

int flight_table_new(const struct flight_table_options *options, struct flight_table **out,
                     struct cairn_error *err)
{
    unsigned n = options->max_threads;
    n = n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;
    struct flight_table *t = calloc(1, sizeof(*t) + n * sizeof(t->slots[0]));
    if (!t)
        return error_oom(err, "table of flights");
    t->budget_ns = options->budget_ns;
    t->max_threads = n;
    t->max_queued = options->max_queued ? options->max_queued : QUEUED_MAX_DEFAULT;
    t->tail = &t->head;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->more, NULL);
    pthread_cond_init(&t->left, NULL);
    *out = t;
    return CAIRN_OK;
}

static int enter(struct flight_table *t, const char *key, struct cairn_error *err)
{
    pthread_mutex_lock(&t->lock);
    bool stop = t->stop;
    if (!stop)
        t->calls++;
    pthread_mutex_unlock(&t->lock);
    if (stop)
        return error_set(err, CAIRN_TRANSIENT, ESHUTDOWN, "%s: shutting down", key);
    return CAIRN_OK;
}

/* The last touch of the table by a call. */
static void leave(struct flight_table *t)
{
    pthread_mutex_lock(&t->lock);
    if (--t->calls == 0 && t->stop)
        pthread_cond_signal(&t->left);
    pthread_mutex_unlock(&t->lock);
}

/* A reference of the flight of key. *fresh, if given, is used where there is none yet, and is then
 * NULL. Found without fresh: NULL where there is none. */
static int join_locked(struct flight_table *t, const char *key, struct flight **fresh,
                       struct flight **out, struct cairn_error *err)
{
    struct flight *f = find_locked(t, key);
    if (!f && *fresh) {
        if (t->stop)
            return error_set(err, CAIRN_TRANSIENT, ESHUTDOWN, "%s: shutting down", key);
        if (t->count >= t->max_threads + (uint64_t)t->max_queued)
            return error_set(err, CAIRN_TRANSIENT, EAGAIN, "%s: %u others are under way", key,
                             t->count);
        f = util_steal(fresh);
        enqueue_locked(t, f);
    }
    if (f)
        f->refs++;
    *out = f;
    check_locked(t);
    return CAIRN_OK;
}

static int join_or_start(struct flight_table *t, const char *key, const struct flight_start *start,
                         bool *started, struct flight **out, struct cairn_error *err)
{
    struct flight *fresh = NULL;
    pthread_mutex_lock(&t->lock);
    int rc = join_locked(t, key, &fresh, out, err);
    pthread_mutex_unlock(&t->lock);
    if (rc || *out)
        return rc;
    rc = flight_new(t, key, &fresh, err);
    if (rc)
        return rc;
    struct flight *mine = fresh;
    fresh->start = *start;
    pthread_mutex_lock(&t->lock);
    rc = join_locked(t, key, &fresh, out, err);
    struct slot *slot = reserve_thread_locked(t);
    pthread_mutex_unlock(&t->lock);
    if (fresh) {
        fresh->start.ctx_free = NULL;
        flight_destroy(fresh);
    }
    if (slot)
        make_thread(t, slot);
    *started = !rc && *out == mine;
    return rc;
}

/* Until f ended, or the caller has to leave. */
static int await(struct flight *f, const struct cairn_op *op, struct flight_result **out,
                 struct cairn_error *err)
{
    struct flight_table *t = f->table;
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &t->lock, &f->changed);
    pthread_mutex_lock(&t->lock);
    while (f->state != ENDED && !f->invalid && !rc)
        rc = op_wait_locked(&w, f->key, err);
    if (f->invalid) {
        rc = error_set(err, CAIRN_TRANSIENT, ESTALE, "%s: invalidated meanwhile", f->key);
    } else if (f->state == ENDED) {
        rc = f->rc;
        if (rc && err)
            *err = f->err;
        if (!rc && out)
            *out = flight_result_ref(f->result);
    }
    pthread_mutex_unlock(&t->lock);
    op_waiter_remove(&w);
    return rc;
}

int flight_run(struct flight_table *t, const char *key, const struct flight_start *start,
               const struct cairn_op *op, struct flight_result **out, struct cairn_error *err)
{
    if (out)
        *out = NULL;
    bool started = false;
    int rc = op_check(op, key, err);
    if (!rc)
        rc = enter(t, key, err);
    if (!rc) {
        struct flight *f = NULL;
        rc = join_or_start(t, key, start, &started, &f, err);
        if (!rc) {
            rc = await(f, op, out, err);
            unref(f);
        }
        leave(t);
    }
    if (!started && start->ctx_free)
        start->ctx_free(start->ctx);
    return rc;
}

/* key itself, or one beneath it. */
static bool is_beneath(const char *is, const char *key)
{
    size_t n = strlen(key);
    return strncmp(is, key, n) == 0 && (is[n] == 0 || is[n] == '/');
}

/* A flight of key that began before and must be told, or waited for; with a reference. A QUEUED one
 * ends here. */
static struct flight *invalidate_one_locked(struct flight_table *t, const char *key, uint64_t seq)
{
    struct flight *f = t->flights;
    while (f && (f->seq > seq || !is_beneath(f->key, key) || (f->invalid && !f->installing)))
        f = f->next;
    if (!f)
        return NULL;
    f->refs++;
    f->invalid = true;
    pthread_cond_broadcast(&f->changed);
    if (f->state == QUEUED) {
        dequeue_locked(t, f);
        end_locked(f, CAIRN_TRANSIENT); /* err: see await */
    }
    check_locked(t);
    return f;
}

int flight_table_invalidate(struct flight_table *t, const char *key, const struct cairn_op *op,
                            struct cairn_error *err)
{
    int rc = enter(t, key, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&t->lock);
    uint64_t seq = t->seq;
    pthread_mutex_unlock(&t->lock);
    while (!rc) {
        pthread_mutex_lock(&t->lock);
        struct flight *f = invalidate_one_locked(t, key, seq);
        pthread_mutex_unlock(&t->lock);
        if (!f)
            break;
        cairn_cancel_fire(f->cancel);
        struct op_waiter w;
        op_waiter_add(&w, op, &t->lock, &f->changed);
        pthread_mutex_lock(&t->lock);
        while (f->installing && !rc)
            rc = op_wait_locked(&w, key, err);
        pthread_mutex_unlock(&t->lock);
        op_waiter_remove(&w);
        unref(f);
    }
    leave(t);
    return rc;
}

bool flight_install_begin(struct flight *f)
{
    pthread_mutex_lock(&f->table->lock);
    f->installing = !f->invalid;
    bool ok = f->installing;
    check_locked(f->table);
    pthread_mutex_unlock(&f->table->lock);
    return ok;
}

void flight_install_end(struct flight *f)
{
    pthread_mutex_lock(&f->table->lock);
    f->installing = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->table->lock);
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Some flight that is still to be told, with a reference. A QUEUED one ends here. */
static struct flight *stop_one_locked(struct flight_table *t)
{
    struct flight *f = t->flights;
    while (f && f->fired)
        f = f->next;
    if (!f)
        return NULL;
    f->refs++;
    f->fired = true;
    if (f->state == QUEUED) {
        dequeue_locked(t, f);
        end_locked(f, error_set(&f->err, CAIRN_TRANSIENT, ESHUTDOWN, "%s: shutting down", f->key));
    }
    return f;
}

void flight_table_free(struct flight_table *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->more);
    struct flight *f;
    while ((f = stop_one_locked(t))) {
        pthread_mutex_unlock(&t->lock);
        cairn_cancel_fire(f->cancel);
        unref(f);
        pthread_mutex_lock(&t->lock);
    }
    /* Calls first: one of them may be about to make a thread. */
    while (t->calls)
        pthread_cond_wait(&t->left, &t->lock);
    check_locked(t);
    pthread_mutex_unlock(&t->lock);
    for (unsigned i = 0; i < t->max_threads; i++)
        if (t->slots[i].taken)
            pthread_join(t->slots[i].thread, NULL);
    pthread_cond_destroy(&t->left);
    pthread_cond_destroy(&t->more);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
