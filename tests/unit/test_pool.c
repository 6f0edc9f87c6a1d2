#include "base/pool.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

struct item {
    struct pool_work work;
    int number;
    struct item *then; /* submitted by run */
};

static atomic_int next, ran, wrong_order, bad_worker, unmasked;

static void run(struct pool_work *work, unsigned worker)
{
    struct item *it = (struct item *)work;
    if (atomic_fetch_add(&next, 1) != it->number)
        atomic_fetch_add(&wrong_order, 1);
    if (worker >= pool_workers(work->pool))
        atomic_fetch_add(&bad_worker, 1);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (!sigismember(&mask, SIGTERM))
        atomic_fetch_add(&unmasked, 1);
    if (it->number % 1000 == 0)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    if (it->then)
        pool_submit(work->pool, &it->then->work);
    atomic_fetch_add(&ran, 1);
}

static struct pool *new_pool(unsigned workers)
{
    struct cairn_error err;
    struct pool *p = NULL;
    next = ran = wrong_order = bad_worker = unmasked = 0;
    ck_ok(pool_new(workers, &p, &err));
    return p;
}

static struct item *new_items(int n)
{
    struct item *items = calloc((size_t)n, sizeof(*items));
    ck_assert_ptr_nonnull(items);
    for (int i = 0; i < n; i++)
        items[i] = (struct item){.work.run = run, .number = i};
    return items;
}

START_TEST(test_pool__one_worker_keeps_the_order)
{
    enum { N = 5000 };
    struct pool *p = new_pool(1);
    struct item *items CLEANUP_FREE = new_items(N);
    for (int i = 0; i < N; i++)
        pool_submit(p, &items[i].work);
    pool_wait(&items[N - 1].work);
    ck_assert_int_eq(ran, N);
    ck_assert_int_eq(wrong_order, 0);
    pool_free(p);
}
END_TEST

START_TEST(test_pool__many_items_all_run_and_are_waited_for)
{
    enum { N = 20000 };
    struct pool *p = new_pool(4);
    struct item *items CLEANUP_FREE = new_items(N);
    for (int round = 1; round <= 2; round++) { /* items can be used again */
        for (int i = 0; i < N; i++)
            pool_submit(p, &items[i].work);
        for (int i = N - 1; i >= 0; i--)
            pool_wait(&items[i].work);
        ck_assert_int_eq(ran, round * N);
    }
    ck_assert_int_eq(bad_worker, 0);
    ck_assert_int_eq(unmasked, 0);
    pool_free(p);
}
END_TEST

START_TEST(test_pool__free_runs_what_is_queued)
{
    enum { N = 3000 };
    struct pool *p = new_pool(2);
    struct item *items CLEANUP_FREE = new_items(N);
    for (int i = 0; i < N; i++)
        pool_submit(p, &items[i].work);
    pool_free(p);
    ck_assert_int_eq(ran, N);
    pool_free(NULL);
}
END_TEST

START_TEST(test_pool__a_running_item_may_submit_others)
{
    enum { N = 200 };
    struct pool *p = new_pool(2);
    struct item *items CLEANUP_FREE = new_items(N);
    for (int i = 0; i < N - 1; i++)
        items[i].then = &items[i + 1];
    pool_submit(p, &items[0].work);
    pool_free(p); /* and the pool runs those, too */
    ck_assert_int_eq(ran, N);
    ck_assert_int_eq(wrong_order, 0);
}
END_TEST

START_TEST(test_pool__the_number_of_workers_has_bounds)
{
    static const unsigned asked[] = {0, 1, 64, 1000}, got[] = {1, 1, 64, 64};
    for (int i = 0; i < 4; i++) {
        struct pool *p = new_pool(asked[i]);
        ck_assert_uint_eq(pool_workers(p), got[i]);
        pool_free(p);
    }
}
END_TEST

struct meeting {
    struct pool_work work;
    pthread_barrier_t *barrier;
};

static void meet(struct pool_work *work, unsigned worker)
{
    (void)worker;
    pthread_barrier_wait(((struct meeting *)work)->barrier);
}

START_TEST(test_pool__workers_run_at_the_same_time)
{
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 3);
    struct pool *p = new_pool(3);
    struct meeting m[3];
    for (int i = 0; i < 3; i++) {
        m[i] = (struct meeting){.work.run = meet, .barrier = &barrier};
        pool_submit(p, &m[i].work);
    }
    for (int i = 0; i < 3; i++)
        pool_wait(&m[i].work); /* for ever, if they took turns */
    pool_free(p);
    pthread_barrier_destroy(&barrier);
}
END_TEST

TESTING_MAIN(pool, test_pool__one_worker_keeps_the_order,
             test_pool__many_items_all_run_and_are_waited_for, test_pool__free_runs_what_is_queued,
             test_pool__a_running_item_may_submit_others,
             test_pool__the_number_of_workers_has_bounds, test_pool__workers_run_at_the_same_time)
