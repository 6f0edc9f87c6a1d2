#include "s3/retry.h"

#include "base/clock.h"
#include "base/util.h"

#include <pthread.h>

void s3_retry_begin(struct s3_retry *r, const struct cairn_op *op, int64_t window_ns)
{
    *r = (struct s3_retry){.op = op,
                           .start_ns = clock_monotonic(),
                           .window_ns = window_ns > 0 ? window_ns : S3_RETRY_WINDOW_NS};
    if (!util_random(&r->random, sizeof(r->random)))
        r->random = (uint64_t)r->start_ns ^ (uintptr_t)r;
}

int s3_retry_attempt(struct s3_retry *r, const char *what, struct cairn_error *err)
{
    int rc = op_check(r->op, what, err);
    if (!rc)
        r->attempts++;
    return rc;
}

/* Marsaglia's xorshift64 (2003): the waits of many processes must only not agree. */
static uint64_t next_random(struct s3_retry *r)
{
    uint64_t x = r->random ? r->random : 1;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return r->random = x;
}

int s3_sleep_until(const struct cairn_op *op, int64_t until_ns, const char *what,
                   struct cairn_error *err)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    struct op_waiter w;
    struct cairn_op bounded = {.deadline_ns = until_ns, .cancel = op ? op->cancel : NULL};
    struct cairn_error e;
    if (op && op->deadline_ns < until_ns)
        bounded.deadline_ns = op->deadline_ns;
    op_cond_init(&cond);
    op_waiter_add(&w, &bounded, &lock, &cond);
    pthread_mutex_lock(&lock);
    while (!op_wait_locked(&w, what, &e)) {
    }
    pthread_mutex_unlock(&lock);
    op_waiter_remove(&w);
    pthread_cond_destroy(&cond);
    /* Either the time has come, or the op has ended: the op itself says which. */
    return op_check(op, what, err);
}

int s3_retry_wait(struct s3_retry *r, int64_t retry_after_ns, const char *what,
                  struct cairn_error *err)
{
    unsigned n = r->attempts ? r->attempts - 1 : 0;
    int64_t top = S3_RETRY_CAP_NS;
    if (n < 7 && S3_RETRY_BASE_NS << n < top)
        top = S3_RETRY_BASE_NS << n;
    int64_t wait = (int64_t)(next_random(r) % (uint64_t)(top + 1));
    if (retry_after_ns > S3_RETRY_AFTER_MAX_NS)
        retry_after_ns = S3_RETRY_AFTER_MAX_NS;
    /* What the server asks for is the least; the jitter on top keeps the callers apart. */
    if (retry_after_ns > 0)
        wait = retry_after_ns + wait / 4;
    int64_t now = clock_monotonic(), until = clock_add(now, wait);
    if (until > clock_add(r->start_ns, r->window_ns))
        return CAIRN_TRANSIENT;
    if (r->op && until >= r->op->deadline_ns) {
        /* The last attempt before the deadline gets half of what is left, unless the server said
         * when to come back. */
        int64_t left = r->op->deadline_ns - now;
        if (retry_after_ns > 0 || left < S3_RETRY_BASE_NS)
            return CAIRN_TRANSIENT;
        until = now + left / 2;
    }
    return s3_sleep_until(r->op, until, what, err);
}
