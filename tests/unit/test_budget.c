#include "store/budget.h"

#include "base/clock.h"
#include "base/util.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>

static struct cairn_error err;

/* A source whose items are kept in an array instead of on a disk. */
#define ITEMS 64

struct shelf {
    pthread_mutex_t lock;
    struct budget_item items[ITEMS];
    bool there[ITEMS], busy[ITEMS];
    unsigned scans, evictions;
    char order[ITEMS + 1]; /* first letters of what was evicted */
    bool broken;
};

static int shelf_scan(void *ctx, budget_emit *emit, void *to, struct cairn_error *e)
{
    struct shelf *s = ctx;
    int rc = CAIRN_OK;
    pthread_mutex_lock(&s->lock);
    s->scans++;
    struct budget_item items[ITEMS];
    size_t n = 0;
    for (size_t i = 0; i < ITEMS; i++)
        if (s->there[i])
            items[n++] = s->items[i];
    bool broken = s->broken;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; !rc && i < n; i++)
        rc = emit(to, &items[i], e);
    return broken ? error_set(e, CAIRN_PERMANENT, EIO, "a shelf that cannot be read") : rc;
}

static int shelf_evict(void *ctx, const struct budget_item *item, struct cairn_error *e)
{
    struct shelf *s = ctx;
    int rc = CAIRN_OK;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < ITEMS; i++) {
        if (!s->there[i] || strcmp(s->items[i].name, item->name) != 0)
            continue;
        if (s->busy[i]) {
            rc = error_set(e, CAIRN_BUSY, EBUSY, "in use");
        } else {
            s->there[i] = false;
            s->order[s->evictions++] = item->name[0];
        }
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void put(struct shelf *s, size_t i, uint64_t bytes, int64_t used)
{
    pthread_mutex_lock(&s->lock);
    s->items[i] = (struct budget_item){.bytes = bytes, .used_ns = used};
    snprintf(s->items[i].name, sizeof(s->items[i].name), "%c", (int)('a' + i));
    s->there[i] = true;
    pthread_mutex_unlock(&s->lock);
}

static const char *dir;

static struct budget *start(struct shelf *s, int64_t limit)
{
    struct budget *b = NULL;
    if (!dir)
        dir = testing_tmpdir();
    ck_ok(budget_new(dir, limit, &b, &err));
    budget_add_source(b, &(struct budget_source){
                             .what = "shelf", .ctx = s, .scan = shelf_scan, .evict = shelf_evict});
    return b;
}

#define SHELF                                                                                      \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

START_TEST(test_budget__counts_what_is_there_and_what_comes)
{
    struct shelf s = SHELF;
    struct budget_stats st;
    put(&s, 0, 300, 5);
    struct budget *b = start(&s, 1000);
    ck_assert_uint_eq(s.scans, 0); /* costs nothing before it is used */
    ck_assert(budget_charge(b, 500));
    ck_assert_uint_eq(s.scans, 1);
    budget_stats(b, &st);
    ck_assert_uint_eq(st.used, 800);
    ck_assert_uint_eq(st.limit, 1000);
    ck_assert(!budget_charge(b, 201));
    budget_credit(b, 100);
    ck_assert(!budget_charge(b, 1001));
    ck_assert(!budget_charge(b, UINT64_MAX));
    budget_stats(b, &st);
    ck_assert_uint_eq(st.refused, 3);
    budget_free(b);
}
END_TEST

START_TEST(test_budget__removes_the_least_recently_used_until_enough_is_free)
{
    struct shelf s = SHELF;
    struct shelf t = SHELF;
    static const int64_t used[] = {50, 10, 70, 20, 60, 30};
    for (size_t i = 0; i < 3; i++)
        put(&s, i, 100, used[i]); /* a b c */
    for (size_t i = 3; i < 6; i++)
        put(&t, i, 100, used[i]); /* d e f */
    struct budget *b = start(&s, 600);
    budget_add_source(b, &(struct budget_source){
                             .what = "other", .ctx = &t, .scan = shelf_scan, .evict = shelf_evict});
    ck_ok(budget_charge_wait(b, NULL, 250, &err)); /* 600 - 250: three must go */
    ck_assert_str_eq(s.order, "b");
    ck_assert_str_eq(t.order, "df");
    struct budget_stats st;
    budget_stats(b, &st);
    ck_assert_uint_eq(st.evicted, 3);
    ck_assert_uint_eq(st.evicted_bytes, 300);
    budget_free(b);
}
END_TEST

START_TEST(test_budget__what_is_in_use_stays_and_the_rest_goes_for_it)
{
    struct shelf s = SHELF;
    for (size_t i = 0; i < 4; i++)
        put(&s, i, 100, (int64_t)i);
    s.items[0].in_use = true;
    s.busy[1] = true;
    struct budget *b = start(&s, 400);
    ck_ok(budget_charge_wait(b, NULL, 150, &err));
    ck_assert_str_eq(s.order, "cd");
    put(&s, 4, 150, 9); /* what was charged for */
    s.busy[4] = true;
    int64_t begin = clock_monotonic();
    ck_fails(budget_charge_wait(b, NULL, 200, &err), CAIRN_NO_SPACE);
    ck_assert_int_eq(err.sys_errno, ENOSPC);
    ck_assert_int_lt(clock_monotonic() - begin, 20 * NS_PER_S);
    ck_fails(budget_charge_wait(b, NULL, 401, &err), CAIRN_NO_SPACE); /* no use in removing */
    put(&s, 5, 5000, 9);
    s.busy[5] = true;
    budget_take(b, 5000);
    struct budget_stats st;
    budget_stats(b, &st);
    ck_assert_uint_gt(st.used, st.limit);
    ck_assert(!budget_charge(b, 1));
    budget_free(b);
    ck_assert(s.there[0] && s.there[1]);
}
END_TEST

/* The lock file says that somebody else is making room. */
START_TEST(test_budget__waits_for_another_process_within_the_op)
{
    struct shelf s = SHELF;
    char path[4200];
    put(&s, 0, 400, 1);
    struct budget *b = start(&s, 400);
    snprintf(path, sizeof(path), "%s/evict.lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    struct cairn_op op;
    cairn_op_init(&op, 0.5, NULL);
    ck_fails(budget_charge_wait(b, &op, 100, &err), CAIRN_TIMEOUT);
    ck_assert_uint_eq(s.evictions, 0);
    /* It removes something: that is seen. */
    pthread_mutex_lock(&s.lock);
    s.there[0] = false;
    pthread_mutex_unlock(&s.lock);
    ck_ok(budget_charge_wait(b, NULL, 100, &err));
    put(&s, 0, 400, 1);
    close(fd); /* it dies: its lock goes with it */
    ck_ok(budget_charge_wait(b, NULL, 300, &err));
    ck_ok(budget_charge_wait(b, NULL, 0, &err));
    budget_free(b);
}
END_TEST

START_TEST(test_budget__a_spent_or_cancelled_op_does_not_wait)
{
    struct shelf s = SHELF;
    put(&s, 0, 400, 1);
    struct budget *b = start(&s, 400);
    struct cairn_op op;
    cairn_op_init(&op, 0, NULL);
    ck_fails(budget_charge_wait(b, &op, 100, &err), CAIRN_TIMEOUT);
    ck_assert_uint_eq(s.scans, 0);
    struct cairn_cancel *cancel = NULL;
    ck_ok(cairn_cancel_new(&cancel, &err));
    cairn_cancel_fire(cancel);
    cairn_op_init(&op, 10, cancel);
    ck_fails(budget_charge_wait(b, &op, 100, &err), CAIRN_CANCELLED);
    budget_free(b);
    cairn_cancel_free(cancel);
}
END_TEST

START_TEST(test_budget__a_source_that_cannot_be_listed_removes_nothing)
{
    struct shelf s = SHELF;
    put(&s, 0, 400, 1);
    s.broken = true;
    struct budget *b = start(&s, 400);
    ck_assert(budget_charge(b, 300)); /* what is not known is not counted */
    ck_fails(budget_charge_wait(b, NULL, 300, &err), CAIRN_NO_SPACE);
    ck_assert_uint_eq(s.evictions, 0);
    s.broken = false;
    budget_free(b);
}
END_TEST

START_TEST(test_budget__by_default_at_most_half_of_what_is_free)
{
    struct shelf s = SHELF;
    struct budget_stats st;
    struct statvfs v;
    struct budget *b = start(&s, -1);
    budget_stats(b, &st);
    ck_assert_int_eq(statvfs(dir, &v), 0);
    uint64_t half = (uint64_t)v.f_bavail * v.f_frsize / 2;
    ck_assert_uint_le(st.limit, BUDGET_DEFAULT);
    if (half > BUDGET_DEFAULT + ((uint64_t)1 << 30))
        ck_assert_uint_eq(st.limit, BUDGET_DEFAULT);
    else
        ck_assert_uint_le(st.limit, half + ((uint64_t)1 << 30));
    budget_free(b);
}
END_TEST

/* A program that ends at once has made room all the same: else short-lived ones never would. */
START_TEST(test_budget__room_that_is_due_is_made_before_it_ends)
{
    struct shelf s = SHELF;
    for (size_t i = 0; i < 10; i++)
        put(&s, i, 100, (int64_t)i);
    struct budget *b = start(&s, 1000);
    ck_assert(!budget_charge(b, 10));
    budget_free(b);
    ck_assert_uint_eq(s.evictions, 1);
}
END_TEST

TESTING_MAIN(budget, test_budget__counts_what_is_there_and_what_comes,
             test_budget__removes_the_least_recently_used_until_enough_is_free,
             test_budget__what_is_in_use_stays_and_the_rest_goes_for_it,
             test_budget__waits_for_another_process_within_the_op,
             test_budget__a_spent_or_cancelled_op_does_not_wait,
             test_budget__a_source_that_cannot_be_listed_removes_nothing,
             test_budget__by_default_at_most_half_of_what_is_free,
             test_budget__room_that_is_due_is_made_before_it_ends)
