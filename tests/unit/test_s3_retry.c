#include "base/clock.h"
#include "s3/retry.h"
#include "tests/lib/testing.h"

#include <pthread.h>
#include <unistd.h>

static double since(int64_t start)
{
    return (double)(clock_monotonic() - start) / (double)NS_PER_S;
}

START_TEST(test_s3_retry__a_spent_deadline_makes_no_attempt)
{
    struct cairn_error err;
    struct cairn_op op;
    struct s3_retry r;
    cairn_op_init(&op, 0, NULL);
    s3_retry_begin(&r, &op, 0);
    ck_fails(s3_retry_attempt(&r, "GET x", &err), CAIRN_TIMEOUT);
    ck_assert_uint_eq(r.attempts, 0);
}
END_TEST

START_TEST(test_s3_retry__waits_grow_and_are_spread)
{
    /* Without waiting: the longest wait that n attempts allow is the cap of the jitter. */
    struct cairn_error err;
    int64_t longest = 0, shortest = INT64_MAX;
    int late = 0;
    for (int i = 0; i < 40; i++) {
        struct s3_retry r;
        s3_retry_begin(&r, NULL, 0);
        r.attempts = 1;
        int64_t start = clock_monotonic();
        ck_ok(s3_retry_wait(&r, 0, "GET x", &err));
        int64_t took = clock_monotonic() - start;
        longest = took > longest ? took : longest;
        shortest = took < shortest ? took : shortest;
        late += took >= S3_RETRY_BASE_NS * 2;
    }
    ck_assert_int_lt(shortest, S3_RETRY_BASE_NS / 3);
    ck_assert_int_gt(longest, S3_RETRY_BASE_NS / 2);
    ck_assert_int_lt(late, 10); /* a busy machine wakes somebody late now and then */
}
END_TEST

START_TEST(test_s3_retry__retry_after_is_the_least_wait)
{
    struct cairn_error err;
    struct s3_retry r;
    s3_retry_begin(&r, NULL, 0);
    r.attempts = 1;
    int64_t start = clock_monotonic();
    ck_ok(s3_retry_wait(&r, NS_PER_S / 2, "GET x", &err));
    ck_assert_double_ge(since(start), 0.5);
    ck_assert_double_lt(since(start), 5);
}
END_TEST

START_TEST(test_s3_retry__gives_up_at_once_when_the_wait_cannot_fit)
{
    struct cairn_error err;
    struct cairn_op op;
    struct s3_retry r;
    cairn_op_init(&op, 1, NULL);
    s3_retry_begin(&r, &op, 0);
    int64_t start = clock_monotonic();
    ck_assert_int_eq(s3_retry_wait(&r, 5 * NS_PER_S, "GET x", &err), CAIRN_TRANSIENT);
    s3_retry_begin(&r, NULL, NS_PER_S);
    ck_assert_int_eq(s3_retry_wait(&r, 5 * NS_PER_S, "GET x", &err), CAIRN_TRANSIENT);
    ck_assert_double_lt(since(start), 4); /* not the wait */
}
END_TEST

START_TEST(test_s3_retry__many_attempts_end_by_the_deadline)
{
    struct cairn_error err;
    struct cairn_op op;
    struct s3_retry r;
    int rc = 0;
    cairn_op_init(&op, 1.5, NULL);
    s3_retry_begin(&r, &op, 0);
    int64_t start = clock_monotonic();
    while (!rc) {
        rc = s3_retry_attempt(&r, "GET x", &err);
        if (!rc)
            rc = s3_retry_wait(&r, 0, "GET x", &err);
    }
    ck_assert(rc == CAIRN_TRANSIENT || rc == CAIRN_TIMEOUT);
    ck_assert_double_lt(since(start), 6);
    ck_assert_uint_gt(r.attempts, 2);
    ck_assert_uint_lt(r.attempts, 40);
}
END_TEST

static void *fire_soon(void *token)
{
    usleep(200000);
    cairn_cancel_fire(token);
    return NULL;
}

START_TEST(test_s3_retry__a_cancel_wakes_the_wait)
{
    struct cairn_error err;
    struct cairn_cancel *token;
    struct cairn_op op;
    struct s3_retry r;
    pthread_t t;
    ck_ok(cairn_cancel_new(&token, &err));
    cairn_op_init(&op, -1, token);
    s3_retry_begin(&r, &op, 0);
    ck_assert_int_eq(pthread_create(&t, NULL, fire_soon, token), 0);
    int64_t start = clock_monotonic();
    ck_fails(s3_retry_wait(&r, 30 * NS_PER_S, "GET x", &err), CAIRN_CANCELLED);
    ck_assert_double_lt(since(start), 2);
    pthread_join(t, NULL);
    cairn_cancel_free(token);
}
END_TEST

TESTING_MAIN(s3_retry, test_s3_retry__a_spent_deadline_makes_no_attempt,
             test_s3_retry__waits_grow_and_are_spread, test_s3_retry__retry_after_is_the_least_wait,
             test_s3_retry__gives_up_at_once_when_the_wait_cannot_fit,
             test_s3_retry__many_attempts_end_by_the_deadline,
             test_s3_retry__a_cancel_wakes_the_wait)
