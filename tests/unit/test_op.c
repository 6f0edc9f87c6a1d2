#include "base/op.h"

#include "base/clock.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

static struct cairn_cancel *new_token(void)
{
    struct cairn_error err;
    struct cairn_cancel *c = NULL;
    ck_ok(cairn_cancel_new(&c, &err));
    return c;
}

static bool readable(const struct cairn_cancel *c)
{
    struct pollfd p = {.fd = cairn_cancel_fd(c), .events = POLLIN};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

START_TEST(test_op__a_token_fires_once_and_for_ever)
{
    struct cairn_cancel *c = new_token();
    ck_assert(!cairn_cancel_fired(c) && !readable(c));
    cairn_cancel_fire(c);
    cairn_cancel_fire(c);
    ck_assert(cairn_cancel_fired(c) && readable(c));
    ck_assert(readable(c));
    cairn_cancel_free(c);
    cairn_cancel_free(NULL);
}
END_TEST

START_TEST(test_op__check_tells_cancelled_before_timeout)
{
    struct cairn_error err;
    ck_ok(op_check(NULL, "x", &err));
    struct cairn_op op = {.deadline_ns = CAIRN_NO_DEADLINE};
    ck_ok(op_check(&op, "x", &err));
    op.deadline_ns = clock_monotonic() + 3600 * NS_PER_S;
    ck_ok(op_check(&op, "x", &err));
    static const int64_t past[] = {INT64_MIN, -1, 0, 1};
    for (size_t i = 0; i < sizeof(past) / sizeof(past[0]); i++) {
        op.deadline_ns = past[i];
        ck_fails(op_check(&op, "reading a chunk", &err), CAIRN_TIMEOUT);
        ck_assert_int_eq(err.sys_errno, ETIMEDOUT);
        ck_assert_ptr_nonnull(strstr(err.message, "reading a chunk"));
    }
    op.deadline_ns = clock_monotonic();
    ck_fails(op_check(&op, "x", &err), CAIRN_TIMEOUT);
    op.cancel = new_token();
    ck_fails(op_check(&op, "x", &err), CAIRN_TIMEOUT);
    cairn_cancel_fire(op.cancel);
    ck_fails(op_check(&op, "x", &err), CAIRN_CANCELLED);
    ck_assert_int_eq(err.sys_errno, ECANCELED);
    op.deadline_ns = CAIRN_NO_DEADLINE;
    ck_fails(op_check(&op, "x", &err), CAIRN_CANCELLED);
    cairn_cancel_free(op.cancel);
}
END_TEST

START_TEST(test_op__seconds_are_saturated)
{
    struct cairn_op op;
    static const double none[] = {-1, -1e300, -INFINITY, NAN, 1e300, INFINITY};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        cairn_op_init(&op, none[i], NULL);
        ck_assert_int_eq(op.deadline_ns, CAIRN_NO_DEADLINE);
        ck_assert_int_eq(op_poll_ms(&op), -1);
    }
    int64_t before = clock_monotonic();
    cairn_op_init(&op, 5, NULL);
    ck_assert_int_ge(op.deadline_ns, before + 5 * NS_PER_S);
    ck_assert_int_le(op.deadline_ns, clock_monotonic() + 5 * NS_PER_S);
    struct cairn_error err;
    cairn_op_init(&op, 0, NULL);
    ck_fails(op_check(&op, "x", &err), CAIRN_TIMEOUT);
    cairn_op_init(&op, 9e9, NULL);
    ck_ok(op_check(&op, "x", &err));
}
END_TEST

START_TEST(test_op__poll_ms_rounds_up_and_saturates)
{
    ck_assert_int_eq(op_poll_ms(NULL), -1);
    struct cairn_op op = {.deadline_ns = CAIRN_NO_DEADLINE};
    ck_assert_int_eq(op_poll_ms(&op), -1);
    op.deadline_ns = clock_monotonic();
    ck_assert_int_eq(op_poll_ms(&op), 0);
    op.deadline_ns = INT64_MIN / 2;
    ck_assert_int_eq(op_poll_ms(&op), 0);
    op.deadline_ns = clock_monotonic() + 100 * NS_PER_S;
    ck_assert_int_gt(op_poll_ms(&op), 90000);
    ck_assert_int_le(op_poll_ms(&op), 100000);
    op.deadline_ns = INT64_MAX - 1;
    ck_assert_int_eq(op_poll_ms(&op), INT_MAX);
    /* Never 0 while something is left: that would spin. */
    for (int i = 0; i < 2000; i++) {
        op.deadline_ns = clock_monotonic() + 50000;
        int ms = op_poll_ms(&op);
        ck_assert(ms == 1 || clock_monotonic() >= op.deadline_ns);
    }
}
END_TEST

/* ---- Waiting --------------------------------------------------------------------------------- */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool ready;
    struct cairn_op op;
    atomic_int waiting;
    int rc;
    struct cairn_error err;
    int64_t woke;
    pthread_t thread;
};

static void gate_init(struct gate *g, int64_t deadline_ns, struct cairn_cancel *cancel)
{
    *g = (struct gate){.op = {.deadline_ns = deadline_ns, .cancel = cancel}};
    pthread_mutex_init(&g->lock, NULL);
    op_cond_init(&g->cond);
}

static void gate_release(struct gate *g)
{
    pthread_cond_destroy(&g->cond);
    pthread_mutex_destroy(&g->lock);
}

static void *wait_at(void *arg)
{
    struct gate *g = arg;
    struct op_waiter w;
    op_waiter_add(&w, &g->op, &g->lock, &g->cond);
    atomic_store(&g->waiting, 1);
    pthread_mutex_lock(&g->lock);
    while (!g->ready && !g->rc)
        g->rc = op_wait_locked(&w, "the gate", &g->err);
    pthread_mutex_unlock(&g->lock);
    op_waiter_remove(&w);
    g->woke = clock_monotonic();
    return NULL;
}

static void nap(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

START_TEST(test_op__cancelling_wakes_every_waiter_at_once)
{
    struct cairn_cancel *c = new_token();
    struct gate g[5];
    for (int i = 0; i < 5; i++) {
        gate_init(&g[i], i % 2 ? CAIRN_NO_DEADLINE : clock_monotonic() + 3600 * NS_PER_S, c);
        ck_assert_int_eq(pthread_create(&g[i].thread, NULL, wait_at, &g[i]), 0);
    }
    for (int i = 0; i < 5; i++)
        while (!atomic_load(&g[i].waiting))
            nap(100000);
    nap(20000000);
    int64_t fired = clock_monotonic();
    cairn_cancel_fire(c);
    for (int i = 0; i < 5; i++) {
        pthread_join(g[i].thread, NULL);
        ck_assert_int_eq(g[i].rc, CAIRN_CANCELLED);
        ck_assert_int_ge(g[i].woke, fired);
        ck_assert_int_lt(g[i].woke - fired, 5 * NS_PER_S);
        gate_release(&g[i]);
    }
    cairn_cancel_free(c);
}
END_TEST

START_TEST(test_op__a_wait_ends_at_its_deadline)
{
    struct gate g;
    int64_t begin = clock_monotonic();
    gate_init(&g, begin + 50000000, NULL);
    wait_at(&g);
    ck_assert_int_eq(g.rc, CAIRN_TIMEOUT);
    ck_assert_int_ge(g.woke - begin, 50000000);
    ck_assert_int_lt(g.woke - begin, 20 * NS_PER_S);
    gate_release(&g);
    gate_init(&g, 1, NULL); /* long past: at once */
    wait_at(&g);
    ck_assert_int_eq(g.rc, CAIRN_TIMEOUT);
    gate_release(&g);
}
END_TEST

START_TEST(test_op__what_is_ready_is_no_error)
{
    struct cairn_cancel *c = new_token();
    struct gate g;
    gate_init(&g, CAIRN_NO_DEADLINE, c);
    ck_assert_int_eq(pthread_create(&g.thread, NULL, wait_at, &g), 0);
    nap(5000000);
    pthread_mutex_lock(&g.lock);
    g.ready = true;
    pthread_cond_broadcast(&g.cond);
    pthread_mutex_unlock(&g.lock);
    pthread_join(g.thread, NULL);
    ck_assert_int_eq(g.rc, CAIRN_OK);
    gate_release(&g);
    cairn_cancel_free(c);
}
END_TEST

static void *fire_it(void *c)
{
    cairn_cancel_fire(c);
    return NULL;
}

/* Firing while waiters are being added, sleep and leave: none is lost, none is touched too late. */
START_TEST(test_op__firing_races_with_adding_and_removing)
{
    uint64_t seed = 1;
    for (int round = 0; round < 1000; round++) {
        struct cairn_cancel *c = new_token();
        struct gate g[2];
        pthread_t firer;
        for (int i = 0; i < 2; i++) {
            /* Some leave by themselves at about the same moment. */
            int64_t soon = clock_monotonic() + (int64_t)(testing_random(&seed) % 200000);
            gate_init(&g[i], testing_random(&seed) % 2 ? soon : CAIRN_NO_DEADLINE, c);
        }
        ck_assert_int_eq(pthread_create(&g[0].thread, NULL, wait_at, &g[0]), 0);
        ck_assert_int_eq(pthread_create(&firer, NULL, fire_it, c), 0);
        wait_at(&g[1]);
        pthread_join(firer, NULL);
        pthread_join(g[0].thread, NULL);
        for (int i = 0; i < 2; i++) {
            ck_assert(g[i].rc == CAIRN_CANCELLED ||
                      (g[i].rc == CAIRN_TIMEOUT && g[i].op.deadline_ns != CAIRN_NO_DEADLINE));
            gate_release(&g[i]);
        }
        cairn_cancel_free(c);
    }
}
END_TEST

TESTING_MAIN(op, test_op__a_token_fires_once_and_for_ever,
             test_op__check_tells_cancelled_before_timeout, test_op__seconds_are_saturated,
             test_op__poll_ms_rounds_up_and_saturates,
             test_op__cancelling_wakes_every_waiter_at_once, test_op__a_wait_ends_at_its_deadline,
             test_op__what_is_ready_is_no_error, test_op__firing_races_with_adding_and_removing)
