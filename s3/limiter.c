#include "s3/limiter.h"

#include "base/clock.h"
#include "s3/retry.h"

#include <stdlib.h>
#include <string.h>

#define RATE_MIN          0.5 /* requests a second: slow, but it finds out when things are well */
#define RATE_STEP         0.5 /* on each success, shared over a second's worth of them */
#define DECREASE_EVERY_NS (250 * 1000000LL)
#define MEASURE_NS        NS_PER_S
#define OTHERS_SHARE      8 /* of the places, one in so many is not for those that stream */

struct s3_limiter {
    char *name;
    unsigned refs; /* guarded by registry_lock, as next is */
    struct s3_limiter *next;

    pthread_mutex_t lock;             /* guards all below */
    pthread_cond_t cond, stream_cond; /* a place became free, perhaps for one that streams */
    unsigned in_flight, max;
    unsigned streams; /* of those in flight */
    double rate;      /* 0: none */
    double ceiling;   /* the rate at which it is lifted again */
    int64_t next_ns;  /* when the next request may start */
    int64_t decreased_ns;
    unsigned long throttled;
    /* starts in the current and the last window */
    int64_t window_ns;
    unsigned started, last_started;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct s3_limiter *registry; /* guarded by registry_lock */

static struct s3_limiter *make(const char *name, unsigned in_flight)
{
    struct s3_limiter *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->name = strdup(name);
    if (!l->name) {
        free(l);
        return NULL;
    }
    pthread_mutex_init(&l->lock, NULL);
    op_cond_init(&l->cond);
    op_cond_init(&l->stream_cond);
    l->max = in_flight;
    return l;
}

int s3_limiter_get(const char *name, unsigned in_flight, struct s3_limiter **out,
                   struct cairn_error *err)
{
    in_flight = in_flight < 1 ? 1 : in_flight > 1024 ? 1024 : in_flight;
    pthread_mutex_lock(&registry_lock);
    struct s3_limiter *l = registry;
    while (l && strcmp(l->name, name) != 0)
        l = l->next;
    if (l) {
        pthread_mutex_lock(&l->lock);
        l->max = in_flight < l->max ? in_flight : l->max;
        pthread_mutex_unlock(&l->lock);
    } else if ((l = make(name, in_flight))) {
        l->next = registry;
        registry = l;
    }
    if (l)
        l->refs++;
    pthread_mutex_unlock(&registry_lock);
    if (!l)
        return error_oom(err, "S3 limiter");
    *out = l;
    return CAIRN_OK;
}

void s3_limiter_put(struct s3_limiter *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&registry_lock);
    bool last = --l->refs == 0;
    if (last) {
        struct s3_limiter **p = &registry;
        while (*p != l)
            p = &(*p)->next;
        *p = l->next;
    }
    pthread_mutex_unlock(&registry_lock);
    if (!last)
        return;
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->cond);
    pthread_cond_destroy(&l->stream_cond);
    free(l->name);
    free(l);
}

static void count_start_locked(struct s3_limiter *l, int64_t now)
{
    if (now - l->window_ns >= MEASURE_NS) {
        l->last_started = now - l->window_ns < 2 * MEASURE_NS ? l->started : 0;
        l->window_ns = now;
        l->started = 0;
    }
    l->started++;
}

static bool is_full_locked(const struct s3_limiter *l, bool streams)
{
    unsigned others = l->max >= 2 * OTHERS_SHARE ? l->max / OTHERS_SHARE : l->max > 1;
    return l->in_flight >= l->max || (streams && l->streams >= l->max - others);
}

/* Each of the two is only worth a wake-up to one of its own kind. */
static void wake_locked(struct s3_limiter *l)
{
    pthread_cond_signal(&l->cond);
    pthread_cond_signal(&l->stream_cond);
}

/* A place and, when there is a rate, a time to start at; 0 for at once. */
static int take_place(struct s3_limiter *l, const struct cairn_op *op, bool streams,
                      const char *what, int64_t *start_ns, struct cairn_error *err)
{
    struct op_waiter w;
    int rc = op_check(op, what, err);
    if (rc)
        return rc;
    op_waiter_add(&w, op, &l->lock, streams ? &l->stream_cond : &l->cond);
    pthread_mutex_lock(&l->lock);
    while (!rc && is_full_locked(l, streams))
        rc = op_wait_locked(&w, what, err);
    if (!rc) {
        int64_t now = clock_monotonic();
        l->in_flight++;
        l->streams += streams;
        *start_ns = 0;
        if (l->rate > 0) {
            int64_t at = l->next_ns > now ? l->next_ns : now;
            l->next_ns = clock_add(at, (int64_t)((double)NS_PER_S / l->rate));
            *start_ns = at > now ? at : 0;
        }
        count_start_locked(l, *start_ns ? *start_ns : now);
    } else {
        /* The wake-up may have been meant for us: pass it on. */
        wake_locked(l);
    }
    pthread_mutex_unlock(&l->lock);
    op_waiter_remove(&w);
    return rc;
}

int s3_limiter_enter(struct s3_limiter *l, const struct cairn_op *op, bool streams,
                     const char *what, struct cairn_error *err)
{
    int64_t start_ns = 0;
    int rc = take_place(l, op, streams, what, &start_ns, err);
    if (!rc && start_ns) {
        rc = s3_sleep_until(op, start_ns, what, err);
        if (rc)
            s3_limiter_leave(l, streams, S3_LIMITER_OTHER);
    }
    return rc;
}

static void slow_down_locked(struct s3_limiter *l)
{
    int64_t now = clock_monotonic();
    l->throttled++;
    if (l->decreased_ns && now - l->decreased_ns < DECREASE_EVERY_NS)
        return;
    l->decreased_ns = now;
    double measured = l->started > l->last_started ? l->started : l->last_started;
    if (l->rate <= 0) {
        l->rate = measured > 2 * RATE_MIN ? measured : 2 * RATE_MIN;
        l->ceiling = 2 * l->rate;
    }
    l->rate /= 2;
    if (l->rate < RATE_MIN)
        l->rate = RATE_MIN;
    /* Requests that were given a start too soon keep it; the next ones are spaced anew. */
    l->next_ns = clock_add(now, (int64_t)((double)NS_PER_S / l->rate));
}

static void speed_up_locked(struct s3_limiter *l)
{
    if (l->rate <= 0)
        return;
    /* At the present rate this adds a tenth of the ceiling a second, and never less than
     * RATE_STEP. */
    double second = l->ceiling / 10 > RATE_STEP ? l->ceiling / 10 : RATE_STEP;
    l->rate += second / (l->rate > 1 ? l->rate : 1);
    if (l->rate > l->ceiling)
        l->rate = 0;
}

void s3_limiter_leave(struct s3_limiter *l, bool streams, enum s3_limiter_result result)
{
    pthread_mutex_lock(&l->lock);
    l->in_flight--;
    l->streams -= streams;
    if (result == S3_LIMITER_THROTTLED)
        slow_down_locked(l);
    else if (result == S3_LIMITER_OK)
        speed_up_locked(l);
    wake_locked(l);
    pthread_mutex_unlock(&l->lock);
}

void s3_limiter_state(struct s3_limiter *l, struct s3_limiter_state *out)
{
    pthread_mutex_lock(&l->lock);
    *out = (struct s3_limiter_state){.in_flight = l->in_flight,
                                     .max_in_flight = l->max,
                                     .rate = l->rate,
                                     .throttled = l->throttled};
    pthread_mutex_unlock(&l->lock);
}
