/* An operation's right to wait: one absolute deadline and one cancel token, set once at entry and
 * only ever shortened on the way down. Part of the public API (the cairn_ names).
 *
 * Every wait of Cairn is bounded by an op and woken by its token. The deadline is on
 * CLOCK_MONOTONIC. A struct cairn_op is a value: copy it to shorten it. */
#ifndef CAIRN_BASE_OP_H
#define CAIRN_BASE_OP_H

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAIRN_NO_DEADLINE INT64_MAX

/* A one-way switch that wakes every wait made under it. Thread-safe. */
struct cairn_cancel;

struct cairn_op {
    int64_t deadline_ns;         /* CLOCK_MONOTONIC; CAIRN_NO_DEADLINE: none */
    struct cairn_cancel *cancel; /* borrowed, outlives every call made with it; NULL: none */
};

/* The caller owns *out until cairn_cancel_free. Errors: transient (no descriptor), internal. */
CAIRN_API CAIRN_MUST_CHECK int cairn_cancel_new(struct cairn_cancel **out, struct cairn_error *err);
/* Idempotent. Not for signal handlers: give signals a thread of their own (sigwait). */
CAIRN_API void cairn_cancel_fire(struct cairn_cancel *cancel);
CAIRN_API bool cairn_cancel_fired(const struct cairn_cancel *cancel);
/* A descriptor that polls readable from cairn_cancel_fire on; owned by the token. */
CAIRN_API int cairn_cancel_fd(const struct cairn_cancel *cancel);
/* No call made with the token may be running any more. NULL is allowed. */
CAIRN_API void cairn_cancel_free(struct cairn_cancel *cancel);

/* seconds from now: negative or NaN means no deadline, a huge value saturates. cancel may be NULL.
 */
CAIRN_API void cairn_op_init(struct cairn_op *op, double seconds, struct cairn_cancel *cancel);

#ifdef CAIRN_BUILDING /* inside Cairn; what follows is no part of the public API */

/* CAIRN_OK, CAIRN_TIMEOUT or CAIRN_CANCELLED (which wins). what names the work for the message. A
 * NULL op never ends. */
CAIRN_MUST_CHECK int op_check(const struct cairn_op *op, const char *what, struct cairn_error *err);

/* Milliseconds left, for poll(2): 0 when spent, -1 without a deadline, saturated to INT_MAX. */
int op_poll_ms(const struct cairn_op *op);

/* Wait for ns nanoseconds or less: until then, the deadline, or the token's firing. Whoever polls
 * for something asks op_check afterwards. */
void op_pause(const struct cairn_op *op, int64_t ns);

/* Waiting on a condition. The condition comes from op_cond_init; add and remove are called
 * *without* the mutex, wait *with* it (a token's lock comes before any waiter's mutex). A waiter
 * lives on the stack between add and remove:
 *
 *     op_waiter_add(&w, op, &lock, &cond);
 *     pthread_mutex_lock(&lock);
 *     while (!ready && !(rc = op_wait_locked(&w, "…", err))) {}
 *     pthread_mutex_unlock(&lock);
 *     op_waiter_remove(&w); */
struct op_waiter {
    const struct cairn_op *op;
    pthread_mutex_t *lock;
    pthread_cond_t *cond;
    struct op_waiter *next, **link; /* guarded by the token's lock */
};

void op_cond_init(pthread_cond_t *cond);
void op_waiter_add(struct op_waiter *w, const struct cairn_op *op, pthread_mutex_t *lock,
                   pthread_cond_t *cond);
void op_waiter_remove(struct op_waiter *w);
/* 0 after any wake-up: look at the predicate again. Else timeout or cancelled. */
CAIRN_MUST_CHECK int op_wait_locked(struct op_waiter *w, const char *what, struct cairn_error *err);

#endif /* CAIRN_BUILDING */

#ifdef __cplusplus
}
#endif

#endif
