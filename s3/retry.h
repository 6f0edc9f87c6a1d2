/* The one place that decides whether a failed request is tried again, and waits before it is:
 * exponential back-off with full jitter, Retry-After honoured, within the op.
 *
 * Source of the jitter: "Exponential Backoff And Jitter", AWS Architecture Blog (2015): the wait is
 * uniform between 0 and min(cap, base * 2^n). One struct a call, used by one thread. */
#ifndef CAIRN_S3_RETRY_H
#define CAIRN_S3_RETRY_H

#include "base/op.h"

#include <stdint.h>

struct s3_retry {
    const struct cairn_op *op; /* borrowed */
    int64_t start_ns;          /* CLOCK_MONOTONIC */
    int64_t window_ns;         /* no attempt starts later than this after start */
    unsigned attempts;         /* begun */
    uint64_t random;
};

#define S3_RETRY_BASE_NS   (100 * 1000000LL)
#define S3_RETRY_CAP_NS    (10 * 1000000000LL)
#define S3_RETRY_WINDOW_NS (120 * 1000000000LL)
/* A Retry-After longer than this is taken as this. */
#define S3_RETRY_AFTER_MAX_NS (60 * 1000000000LL)

/* window_ns 0: S3_RETRY_WINDOW_NS. */
void s3_retry_begin(struct s3_retry *r, const struct cairn_op *op, int64_t window_ns);

/* Before each attempt: counts it. Timeout or cancelled when the op has ended: nothing is sent. */
CAIRN_MUST_CHECK int s3_retry_attempt(struct s3_retry *r, const char *what,
                                      struct cairn_error *err);

/* After a transient failure. 0: waited, try again. CAIRN_TRANSIENT: there is no time left for
 * another attempt (the wait would reach past the deadline or the window); *err is untouched.
 * Timeout or cancelled: the op ended during the wait; *err is set. */
CAIRN_MUST_CHECK int s3_retry_wait(struct s3_retry *r, int64_t retry_after_ns, const char *what,
                                   struct cairn_error *err);

/* Until until_ns on CLOCK_MONOTONIC. Timeout or cancelled: the op ended before. */
CAIRN_MUST_CHECK int s3_sleep_until(const struct cairn_op *op, int64_t until_ns, const char *what,
                                    struct cairn_error *err);

#endif
