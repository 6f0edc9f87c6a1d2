#include "gc/runner.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A sweep that goes on failing is told of at most this often. */
#define TELL_NS (600 * NS_PER_S)

enum state { IDLE, RUNNING, STOPPING, ENDED };

struct gc_runner {
    struct cairn_store *store;   /* borrowed, constant */
    struct cairn_cancel *cancel; /* owned, constant */
    pthread_t thread;            /* constant */
    pthread_mutex_t lock;        /* guards all below */
    pthread_cond_t changed;      /* state, sweep, ended, waiters */
    struct cairn_gc_config config;
    enum state state;
    bool dry_run;   /* of the sweep that runs */
    uint64_t sweep; /* begun */
    uint64_t ended; /* number of the last that ended */
    unsigned waiters;
    struct cairn_gc_result progress, last;
    int rc; /* of the last that ended */
    uint64_t good, failed;
    int64_t good_ns;
    struct cairn_error err;
};

static void progress(void *ctx, const struct cairn_gc_result *so_far)
{
    struct gc_runner *r = ctx;
    pthread_mutex_lock(&r->lock);
    r->progress = *so_far;
    pthread_mutex_unlock(&r->lock);
}

/* Until there is something to do; false: the runner is being freed. */
static bool next(struct gc_runner *r, bool *dry_run, struct cairn_gc_config *config)
{
    pthread_mutex_lock(&r->lock);
    while (r->state == IDLE)
        pthread_cond_wait(&r->changed, &r->lock);
    bool go = r->state == RUNNING;
    *dry_run = r->dry_run;
    *config = r->config;
    pthread_mutex_unlock(&r->lock);
    return go;
}

/* What the thread remembers of sweeps that failed one after the other. */
struct failures {
    unsigned n;
    int64_t told_ns;
};

static void tell(struct failures *f, int rc, const struct cairn_error *err)
{
    int64_t now = clock_monotonic();
    if (!rc && f->n)
        log_line(LOG_LEVEL_NOTICE, "sweeps succeed again, after %u that failed", f->n);
    if (!rc)
        f->n = 0;
    /* A sweep that was stopped says nothing of the store. */
    if (!rc || rc == CAIRN_CANCELLED || (f->n++ && now - f->told_ns < TELL_NS))
        return;
    log_line(LOG_LEVEL_WARNING, "%s", err->message);
    f->told_ns = now;
}

/* Nobody waits for a sweep: on Linux a niceness is the calling thread's. A kernel that knows slices
 * (6.12) lets whoever wakes up, with the usual short one, take the processor at once from a thread
 * with a long one, instead of after some milliseconds. */
static void give_way(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = 48, .policy = SCHED_BATCH, .nice = 10, .runtime = 100000000};
    (void)setpriority(PRIO_PROCESS, 0, 10);
    (void)syscall(SYS_sched_setattr, 0, &attr, 0); /* older kernels pass over the slice */
}

static void *loop(void *arg)
{
    struct gc_runner *r = arg;
    struct failures failures = {0};
    bool dry_run;
    struct cairn_gc_config config;
    give_way();
    while (next(r, &dry_run, &config)) {
        struct cairn_gc_options options = {.dry_run = dry_run, .progress = progress, .ctx = r};
        struct cairn_op op = {.deadline_ns = CAIRN_NO_DEADLINE, .cancel = r->cancel};
        struct cairn_gc_result result;
        struct cairn_error err = {0};
        int rc = cairn_gc(r->store, &op, &config, &options, &result, &err);
        tell(&failures, rc, &err);
        pthread_mutex_lock(&r->lock);
        r->rc = rc;
        r->err = err;
        r->progress = r->last = result;
        r->ended = r->sweep;
        r->good += rc == 0;
        r->failed += rc != 0;
        if (!rc && !dry_run)
            r->good_ns = clock_realtime();
        if (r->state == RUNNING)
            r->state = IDLE;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

static int start_thread(struct gc_runner *r, struct cairn_error *err)
{
    int e = thread_start(&r->thread, loop, r);
    return e ? error_sys(err, e, "starting the collector's thread") : CAIRN_OK;
}

int gc_runner_new(struct cairn_store *store, const struct cairn_gc_config *config,
                  struct gc_runner **out, struct cairn_error *err)
{
    struct gc_runner *r = calloc(1, sizeof(*r));
    if (!r)
        return error_oom(err, "collector");
    r->store = store;
    cairn_gc_config_init(&r->config);
    if (config)
        r->config = *config;
    pthread_mutex_init(&r->lock, NULL);
    op_cond_init(&r->changed);
    int rc = cairn_cancel_new(&r->cancel, err);
    if (!rc)
        rc = start_thread(r, err);
    if (rc) {
        cairn_cancel_free(r->cancel);
        pthread_cond_destroy(&r->changed);
        pthread_mutex_destroy(&r->lock);
        free(r);
        return rc;
    }
    *out = r;
    return CAIRN_OK;
}

void gc_runner_free(struct gc_runner *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->state = r->state == RUNNING ? STOPPING : ENDED;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    cairn_cancel_fire(r->cancel);
    pthread_join(r->thread, NULL);
    pthread_mutex_lock(&r->lock);
    r->state = ENDED;
    pthread_cond_broadcast(&r->changed);
    while (r->waiters)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    cairn_cancel_free(r->cancel);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void gc_runner_configure(struct gc_runner *r, const struct cairn_gc_config *config)
{
    pthread_mutex_lock(&r->lock);
    r->config = *config;
    pthread_mutex_unlock(&r->lock);
}

static int shut_down(struct cairn_error *err)
{
    return error_set(err, CAIRN_TRANSIENT, ESHUTDOWN, "the collector is being stopped");
}

int gc_runner_start(struct gc_runner *r, bool dry_run, uint64_t *sweep, bool *joined,
                    struct cairn_error *err)
{
    int rc = CAIRN_OK;
    bool was = false;
    pthread_mutex_lock(&r->lock);
    if (r->state == STOPPING || r->state == ENDED) {
        rc = shut_down(err);
    } else if (r->state == RUNNING) {
        was = true;
        *sweep = r->sweep;
    } else {
        r->state = RUNNING;
        r->dry_run = dry_run;
        r->progress = (struct cairn_gc_result){.phase = "start", .next_ns = -1, .young_ns = -1};
        *sweep = ++r->sweep;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    if (!rc && joined)
        *joined = was;
    return rc;
}

void gc_runner_status(struct gc_runner *r, struct gc_runner_status *out)
{
    *out = (struct gc_runner_status){0};
    pthread_mutex_lock(&r->lock);
    out->sweep = r->sweep;
    out->running = r->ended != r->sweep;
    out->dry_run = r->dry_run;
    out->progress = r->progress;
    out->good = r->good;
    out->failed = r->failed;
    out->good_ns = r->good_ns;
    if (r->ended) {
        out->last = r->last;
        out->error_class = r->rc;
        memcpy(out->message, r->err.message, sizeof(out->message));
    }
    pthread_mutex_unlock(&r->lock);
}

/* With the mutex. Whether the wait is over, and how. */
static bool is_over_locked(const struct gc_runner *r, uint64_t sweep, int *rc,
                           struct cairn_gc_result *result, struct cairn_error *err)
{
    if (!sweep || sweep > r->sweep || sweep < r->ended) {
        *rc = error_set(err, CAIRN_INVALID, EINVAL, "no sweep %llu, or one long ended",
                        (unsigned long long)sweep);
        return true;
    }
    if (r->ended == sweep) {
        *rc = r->rc;
        if (r->rc && err)
            *err = r->err;
        if (result)
            *result = r->last;
        return true;
    }
    if (r->state == ENDED) {
        *rc = shut_down(err);
        return true;
    }
    return false;
}

int gc_runner_wait(struct gc_runner *r, const struct cairn_op *op, uint64_t sweep,
                   struct cairn_gc_result *result, struct cairn_error *err)
{
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &r->lock, &r->changed);
    pthread_mutex_lock(&r->lock);
    r->waiters++;
    while (!is_over_locked(r, sweep, &rc, result, err) &&
           !(rc = op_wait_locked(&w, "waiting for a sweep", err))) {
    }
    pthread_mutex_unlock(&r->lock);
    op_waiter_remove(&w);
    pthread_mutex_lock(&r->lock);
    r->waiters--;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return rc;
}
