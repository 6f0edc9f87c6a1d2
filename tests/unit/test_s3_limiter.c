#include "base/clock.h"
#include "s3/limiter.h"
#include "tests/lib/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static struct s3_limiter *fresh(unsigned max)
{
    struct cairn_error err;
    struct s3_limiter *l;
    ck_ok(s3_limiter_get("test", max, &l, &err));
    return l;
}

static atomic_int inside, most;

static void *visitor(void *arg)
{
    struct s3_limiter *l = arg;
    struct cairn_error err;
    for (int i = 0; i < 20; i++) {
        ck_ok(s3_limiter_enter(l, NULL, false, "x", &err));
        int now = atomic_fetch_add(&inside, 1) + 1, seen = atomic_load(&most);
        while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now)) {
        }
        usleep(500);
        atomic_fetch_sub(&inside, 1);
        s3_limiter_leave(l, false, S3_LIMITER_OK);
    }
    return NULL;
}

START_TEST(test_s3_limiter__never_more_in_flight_than_said)
{
    struct s3_limiter *l = fresh(3);
    pthread_t t[10];
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, visitor, l), 0);
    for (int i = 0; i < 10; i++)
        pthread_join(t[i], NULL);
    ck_assert_int_eq(atomic_load(&most), 3);
    s3_limiter_put(l);
}
END_TEST

START_TEST(test_s3_limiter__is_one_for_each_name)
{
    struct cairn_error err;
    struct s3_limiter *a = fresh(4), *b = fresh(2), *c;
    struct s3_limiter_state s;
    ck_assert_ptr_eq(a, b);
    s3_limiter_state(a, &s);
    ck_assert_uint_eq(s.max_in_flight, 2);
    ck_ok(s3_limiter_get("other", 9, &c, &err));
    ck_assert_ptr_ne(a, c);
    s3_limiter_put(a);
    s3_limiter_put(b);
    s3_limiter_put(c);
}
END_TEST

START_TEST(test_s3_limiter__a_waiter_leaves_at_its_deadline)
{
    struct s3_limiter *l = fresh(1);
    struct cairn_error err;
    struct cairn_op op;
    struct s3_limiter_state s;
    ck_ok(s3_limiter_enter(l, NULL, false, "x", &err));
    cairn_op_init(&op, 0.2, NULL);
    int64_t start = clock_monotonic();
    ck_fails(s3_limiter_enter(l, &op, false, "x", &err), CAIRN_TIMEOUT);
    ck_assert_int_lt(clock_monotonic() - start, 10 * NS_PER_S);
    s3_limiter_leave(l, false, S3_LIMITER_OK);
    s3_limiter_state(l, &s);
    ck_assert_uint_eq(s.in_flight, 0);
    s3_limiter_put(l);
}
END_TEST

START_TEST(test_s3_limiter__throttling_slows_and_success_speeds_up_again)
{
    struct s3_limiter *l = fresh(16);
    struct cairn_error err;
    struct s3_limiter_state s;
    for (int i = 0; i < 40; i++) {
        ck_ok(s3_limiter_enter(l, NULL, false, "x", &err));
        s3_limiter_leave(l, false, S3_LIMITER_OK);
    }
    s3_limiter_state(l, &s);
    ck_assert(s.rate <= 0);
    ck_ok(s3_limiter_enter(l, NULL, false, "x", &err));
    s3_limiter_leave(l, false, S3_LIMITER_THROTTLED);
    s3_limiter_state(l, &s);
    ck_assert_uint_eq(s.throttled, 1);
    double first = s.rate;
    ck_assert_double_gt(first, 10);
    ck_assert_double_lt(first, 41);
    /* The same burst counts once, a later one again. */
    ck_ok(s3_limiter_enter(l, NULL, false, "x", &err));
    s3_limiter_leave(l, false, S3_LIMITER_THROTTLED);
    s3_limiter_state(l, &s);
    ck_assert(s.rate >= first);
    usleep(300000);
    ck_ok(s3_limiter_enter(l, NULL, false, "x", &err));
    s3_limiter_leave(l, false, S3_LIMITER_THROTTLED);
    s3_limiter_state(l, &s);
    ck_assert_double_lt(s.rate, first * 0.6);
    /* Starts are spaced: five take about four times 1/rate. */
    int64_t start = clock_monotonic();
    double rate = s.rate;
    for (int i = 0; i < 5; i++) {
        ck_ok(s3_limiter_enter(l, NULL, false, "x", &err));
        s3_limiter_leave(l, false, S3_LIMITER_OTHER);
    }
    double took = (double)(clock_monotonic() - start) / (double)NS_PER_S;
    ck_assert_double_gt(took, 3.5 / rate);
    for (int i = 0; i < 2000 && s.rate > 0; i++) {
        ck_ok(s3_limiter_enter(l, NULL, false, "x", &err));
        s3_limiter_leave(l, false, S3_LIMITER_OK);
        s3_limiter_state(l, &s);
    }
    ck_assert(s.rate <= 0);
    s3_limiter_put(l);
}
END_TEST

TESTING_MAIN(s3_limiter, test_s3_limiter__never_more_in_flight_than_said,
             test_s3_limiter__is_one_for_each_name,
             test_s3_limiter__a_waiter_leaves_at_its_deadline,
             test_s3_limiter__throttling_slows_and_success_speeds_up_again)
