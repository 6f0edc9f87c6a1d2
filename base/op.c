#include "base/op.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct cairn_cancel {
    atomic_bool fired;
    int fd; /* eventfd */
    pthread_mutex_t lock;
    struct op_waiter *waiters; /* guarded by lock */
};

int cairn_cancel_new(struct cairn_cancel **out, struct cairn_error *err)
{
    struct cairn_cancel *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "cancel token");
    c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->fd < 0) {
        int e = errno;
        free(c);
        return error_sys(err, e, "eventfd for a cancel token");
    }
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return CAIRN_OK;
}

void cairn_cancel_fire(struct cairn_cancel *c)
{
    pthread_mutex_lock(&c->lock);
    if (!atomic_exchange(&c->fired, true)) {
        (void)!write(c->fd, &(uint64_t){1}, sizeof(uint64_t));
        /* Taking each waiter's mutex means that it either has not looked at the flag yet or
         * already sleeps on the condition: no wake-up is lost. */
        for (struct op_waiter *w = c->waiters; w; w = w->next) {
            pthread_mutex_lock(w->lock);
            pthread_cond_broadcast(w->cond);
            pthread_mutex_unlock(w->lock);
        }
    }
    pthread_mutex_unlock(&c->lock);
}

bool cairn_cancel_fired(const struct cairn_cancel *c)
{
    return atomic_load(&c->fired);
}

int cairn_cancel_fd(const struct cairn_cancel *c)
{
    return c->fd;
}

void cairn_cancel_free(struct cairn_cancel *c)
{
    if (!c)
        return;
    close(c->fd);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void cairn_op_init(struct cairn_op *op, double seconds, struct cairn_cancel *cancel)
{
    int64_t ns = clock_from_seconds(seconds, CAIRN_NO_DEADLINE);
    op->deadline_ns = ns == CAIRN_NO_DEADLINE ? ns : clock_add(clock_monotonic(), ns);
    op->cancel = cancel;
}

int op_check(const struct cairn_op *op, const char *what, struct cairn_error *err)
{
    if (!op)
        return CAIRN_OK;
    if (op->cancel && atomic_load_explicit(&op->cancel->fired, memory_order_relaxed))
        return error_set(err, CAIRN_CANCELLED, ECANCELED, "%s: cancelled", what);
    if (op->deadline_ns != CAIRN_NO_DEADLINE && clock_monotonic() >= op->deadline_ns)
        return error_set(err, CAIRN_TIMEOUT, ETIMEDOUT, "%s: deadline passed", what);
    return CAIRN_OK;
}

int op_poll_ms(const struct cairn_op *op)
{
    if (!op || op->deadline_ns == CAIRN_NO_DEADLINE)
        return -1;
    int64_t left = op->deadline_ns - clock_monotonic();
    if (left <= 0)
        return 0;
    int64_t ms = (left + 999999) / 1000000;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

void op_pause(const struct cairn_op *op, int64_t ns)
{
    if (op && op->deadline_ns != CAIRN_NO_DEADLINE) {
        int64_t left = op->deadline_ns - clock_monotonic();
        ns = left < ns ? left : ns;
    }
    if (ns <= 0)
        return;
    struct pollfd p = {.fd = op && op->cancel ? op->cancel->fd : -1, .events = POLLIN};
    struct timespec ts = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
    (void)ppoll(&p, 1, &ts, NULL);
}

void op_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void op_waiter_add(struct op_waiter *w, const struct cairn_op *op, pthread_mutex_t *lock,
                   pthread_cond_t *cond)
{
    *w = (struct op_waiter){.op = op, .lock = lock, .cond = cond};
    if (!op || !op->cancel)
        return;
    struct cairn_cancel *c = op->cancel;
    pthread_mutex_lock(&c->lock);
    w->next = c->waiters;
    if (w->next)
        w->next->link = &w->next;
    w->link = &c->waiters;
    c->waiters = w;
    pthread_mutex_unlock(&c->lock);
}

void op_waiter_remove(struct op_waiter *w)
{
    if (!w->op || !w->op->cancel)
        return;
    struct cairn_cancel *c = w->op->cancel;
    pthread_mutex_lock(&c->lock);
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    pthread_mutex_unlock(&c->lock);
}

int op_wait_locked(struct op_waiter *w, const char *what, struct cairn_error *err)
{
    int rc = op_check(w->op, what, err);
    if (rc)
        return rc;
    if (!w->op || w->op->deadline_ns == CAIRN_NO_DEADLINE) {
        pthread_cond_wait(w->cond, w->lock);
    } else {
        struct timespec ts = {.tv_sec = w->op->deadline_ns / NS_PER_S,
                              .tv_nsec = w->op->deadline_ns % NS_PER_S};
        pthread_cond_timedwait(w->cond, w->lock, &ts);
    }
    return CAIRN_OK;
}
