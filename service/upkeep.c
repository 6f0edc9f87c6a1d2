#include "service/upkeep.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/op.h"
#include "base/util.h"
#include "gc/runner.h"
#include "service/metrics.h"
#include "service/publishes.h"

#include <malloc.h>
#include <pthread.h>
#include <stddef.h>

#define TIDY_NS        (600 * NS_PER_S)
#define TELL_NS        (600 * NS_PER_S)
#define FIRST_MAX_NS   (60 * NS_PER_S)
#define TTL_EVERY_NS   (3600 * NS_PER_S)
#define TIDY_BUDGET_NS (600 * NS_PER_S)

struct upkeep {
    struct service *service;
    struct loop_timer *sweep, *tidy; /* owned; loop thread */
    bool draining;                   /* loop thread */
    struct cairn_cancel *cancel;     /* owned */
    struct lane_job tidy_job;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t ended; /* tidying became false */
    bool tidying;
    unsigned failed; /* tidy runs in a row */
    int64_t told_ns;
    uint64_t skipped; /* runs that were due while one still ran */
};

/* Between 0 and below. */
static int64_t random_ns(int64_t below)
{
    uint64_t r = 0;
    if (below <= 0 || !util_random(&r, sizeof(r)))
        return 0;
    return (int64_t)(r % (uint64_t)below);
}

static int64_t first_delay(int64_t interval)
{
    int64_t most = interval / 10;
    return random_ns(most < FIRST_MAX_NS ? most : FIRST_MAX_NS);
}

static int64_t next_delay(int64_t interval)
{
    return interval - interval / 10 + random_ns(interval / 5);
}

/* 0: never. */
static int64_t sweep_interval(struct upkeep *u)
{
    struct service_settings settings;
    service_settings_get(u->service, &settings);
    int64_t interval = settings.sweep_interval_ns;
    const struct cairn_gc_config *gc = service_gc_config(u->service);
    if (gc->ttl_ns > 0 && (interval <= 0 || interval > TTL_EVERY_NS))
        interval = TTL_EVERY_NS;
    return interval > 0 ? interval : 0;
}

static void sweep(void *ctx)
{
    struct upkeep *u = ctx;
    struct cairn_error err;
    uint64_t number;
    int64_t interval = sweep_interval(u);
    if (u->draining || !interval)
        return;
    /* One that runs still is joined, that is, left alone. */
    if (gc_runner_start(service_runner(u->service), false, &number, NULL, &err))
        log_line(LOG_LEVEL_WARNING, "starting a sweep: %s", err.message);
    loop_timer_set(u->sweep, next_delay(interval));
}

static void tell_locked(struct upkeep *u, int rc, const struct cairn_error *err)
{
    int64_t now = clock_monotonic();
    if (!rc && u->failed)
        log_line(LOG_LEVEL_NOTICE, "clearing away stagings works again, after %u failures",
                 u->failed);
    if (!rc)
        u->failed = 0;
    if (!rc || rc == CAIRN_CANCELLED || (u->failed++ && now - u->told_ns < TELL_NS))
        return;
    log_line(LOG_LEVEL_WARNING, "clearing away stagings: %s", err->message);
    u->told_ns = now;
}

static void run_tidy(struct lane_job *job)
{
    struct upkeep *u = (struct upkeep *)((char *)job - offsetof(struct upkeep, tidy_job));
    struct cairn_op op = {.deadline_ns = clock_add(clock_monotonic(), TIDY_BUDGET_NS),
                          .cancel = u->cancel};
    struct cairn_error err;
    int rc = publishes_tidy(u->service, &op, &err);
    /* What a burst of requests or a large sweep has used goes back to the system. */
    malloc_trim(0);
    pthread_mutex_lock(&u->lock);
    tell_locked(u, rc, &err);
    u->tidying = false;
    pthread_cond_broadcast(&u->ended);
    pthread_mutex_unlock(&u->lock);
}

static void tidy(void *ctx)
{
    struct upkeep *u = ctx;
    struct cairn_error err;
    if (u->draining)
        return;
    pthread_mutex_lock(&u->lock);
    bool begin = !u->tidying;
    u->skipped += !begin;
    u->tidying = true;
    pthread_mutex_unlock(&u->lock);
    u->tidy_job.run = run_tidy;
    if (begin && lane_submit(service_lane(u->service, LANE_SHORT), &u->tidy_job, &err)) {
        pthread_mutex_lock(&u->lock);
        u->tidying = false;
        pthread_mutex_unlock(&u->lock);
    }
    struct service_settings settings;
    service_settings_get(u->service, &settings);
    int64_t interval = settings.staging_keep_ns / 4;
    loop_timer_set(u->tidy, next_delay(interval < TIDY_NS ? interval : TIDY_NS));
}

static void release(struct upkeep *u)
{
    loop_timer_free(u->sweep);
    loop_timer_free(u->tidy);
    cairn_cancel_free(u->cancel);
    pthread_cond_destroy(&u->ended);
    pthread_mutex_destroy(&u->lock);
    free(u);
}

static int start(struct service *s, void **self, struct cairn_error *err)
{
    struct upkeep *u = calloc(1, sizeof(*u));
    if (!u)
        return error_oom(err, "upkeep");
    u->service = s;
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->ended, NULL);
    int rc = cairn_cancel_new(&u->cancel, err);
    if (!rc)
        rc = loop_timer_new(service_loop(s), sweep, u, &u->sweep, err);
    if (!rc)
        rc = loop_timer_new(service_loop(s), tidy, u, &u->tidy, err);
    if (rc) {
        release(u);
        return rc;
    }
    int64_t interval = sweep_interval(u);
    if (interval)
        loop_timer_set(u->sweep, first_delay(interval));
    loop_timer_set(u->tidy, random_ns(NS_PER_S));
    *self = u;
    return CAIRN_OK;
}

static void reloaded(void *self)
{
    struct upkeep *u = self;
    int64_t interval = sweep_interval(u);
    if (interval)
        loop_timer_set(u->sweep, next_delay(interval));
    else
        loop_timer_stop(u->sweep);
}

static void drain(void *self)
{
    struct upkeep *u = self;
    u->draining = true;
    loop_timer_stop(u->sweep);
    loop_timer_stop(u->tidy);
    /* What it has not done, the next start does. */
    cairn_cancel_fire(u->cancel);
}

static void stop(void *self)
{
    struct upkeep *u = self;
    cairn_cancel_fire(u->cancel);
    pthread_mutex_lock(&u->lock);
    while (u->tidying)
        pthread_cond_wait(&u->ended, &u->lock);
    pthread_mutex_unlock(&u->lock);
    release(u);
}

static void metrics(void *self, struct metrics_text *out)
{
    struct upkeep *u = self;
    pthread_mutex_lock(&u->lock);
    unsigned failed = u->failed;
    uint64_t skipped = u->skipped;
    pthread_mutex_unlock(&u->lock);
    metrics_one(out, "cairn_tidy_failures", "gauge",
                "Times in a row that clearing away stagings failed.", failed);
    metrics_one(out, "cairn_tidy_skipped_total", "counter", "Times it was due while it still ran.",
                skipped);
}

const struct part upkeep_part = {.name = "upkeep",
                                 .start = start,
                                 .reloaded = reloaded,
                                 .drain = drain,
                                 .metrics = metrics,
                                 .stop = stop};
