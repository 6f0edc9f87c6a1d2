/* Leases on a clock that the test moves (clock_boottime is wrapped by the linker). */
#include "store/lease.h"

#include "base/clock.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct cairn_error err;
static struct kit k;
static _Atomic int64_t skew;

int64_t __real_clock_boottime(void);
int64_t __wrap_clock_boottime(void);
int64_t __wrap_clock_boottime(void)
{
    return __real_clock_boottime() + atomic_load(&skew);
}

static void advance(double seconds)
{
    atomic_fetch_add(&skew, (int64_t)(seconds * (double)NS_PER_S));
}

static void start(void)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
}

static void take(double seconds, struct cairn_fetch_shared_result *r)
{
    struct cairn_fetch_shared_options o = {.lease_seconds = seconds};
    ck_ok(cairn_fetch_shared(k.s, NULL, CK_A, &o, r, &err));
}

START_TEST(test_lease__is_found_renewed_and_released)
{
    struct cairn_fetch_shared_result r;
    struct cairn_lease l;
    start();
    take(100, &r);
    ck_assert(r.lease_seconds > 90 && r.lease_seconds <= 100);
    ck_ok(cairn_lease_find(k.s, r.lease, &l, &err));
    ck_assert_str_eq(l.lease, r.lease);
    ck_assert_str_eq(l.id, CK_A);
    ck_assert_str_eq(l.gen, r.gen);
    ck_assert_str_eq(l.path, r.path);
    ck_assert(l.seconds_left > 90 && l.seconds_left <= 100);
    advance(60);
    ck_ok(cairn_lease_renew(k.s, r.lease, 100, &l, &err));
    ck_assert(l.seconds_left > 90);
    advance(60);
    ck_ok(cairn_lease_find(k.s, r.lease, NULL, &err));
    ck_ok(cairn_lease_renew(k.s, r.lease, 0, &l, &err)); /* the default */
    ck_assert(l.seconds_left > 3500 && l.seconds_left <= 3600);
    ck_ok(cairn_lease_renew(k.s, r.lease, INFINITY, &l, &err));
    ck_assert(l.seconds_left > 29.0 * 86400 && l.seconds_left <= 30.0 * 86400);
    ck_ok(cairn_lease_release(k.s, r.lease, &err));
    ck_fails(cairn_lease_release(k.s, r.lease, &err), CAIRN_NOT_FOUND);
    ck_fails(cairn_lease_find(k.s, r.lease, &l, &err), CAIRN_NOT_FOUND);
    ck_fails(cairn_lease_renew(k.s, "", 1, &l, &err), CAIRN_NOT_FOUND);
    cairn_fetch_shared_result_release(&r);
    kit_stop(&k);
}
END_TEST

START_TEST(test_lease__expires)
{
    struct cairn_fetch_shared_result a, b;
    struct stat st;
    double next;
    start();
    ck_assert_uint_eq(cairn_lease_expire(k.s, &next), 0);
    ck_assert(next < 0);
    take(100, &a);
    take(200, &b);
    ck_assert_uint_eq(cairn_lease_expire(k.s, &next), 0);
    ck_assert(next > 90 && next <= 100);
    advance(150);
    ck_assert(!gens_clear(k.s->gens));
    ck_assert_uint_eq(cairn_lease_expire(k.s, &next), 1);
    ck_assert(next > 40 && next <= 50);
    ck_fails(cairn_lease_find(k.s, a.lease, NULL, &err), CAIRN_NOT_FOUND);
    ck_ok(cairn_lease_find(k.s, b.lease, NULL, &err));
    ck_assert(!gens_clear(k.s->gens));
    advance(100);
    ck_fails(cairn_lease_renew(k.s, b.lease, 100, NULL, &err), CAIRN_NOT_FOUND);
    ck_assert(gens_clear(k.s->gens));
    ck_assert_int_ne(stat(a.path, &st), 0);
    cairn_fetch_shared_result_release(&a);
    cairn_fetch_shared_result_release(&b);
    kit_stop(&k);
}
END_TEST

/* Nobody calls: the keeper's thread sees to it. */
START_TEST(test_lease__expires_by_itself)
{
    struct cairn_fetch_shared_result a;
    struct keeper_stats st;
    start();
    take(100, &a);
    keeper_stats(k.s, &st);
    ck_assert_uint_eq(st.holds, 1);
    advance(150);
    keeper_wake(k.s);
    do {
        usleep(1000);
        keeper_stats(k.s, &st);
    } while (st.holds);
    ck_assert(gens_clear(k.s->gens));
    cairn_fetch_shared_result_release(&a);
    kit_stop(&k);
}
END_TEST

struct list {
    unsigned n, stop_at;
    char last[CAIRN_LEASE_TEXT];
};

static int add(void *ctx, const struct cairn_lease *l)
{
    struct list *list = ctx;
    memcpy(list->last, l->lease, sizeof(list->last));
    /* It may do anything to them. */
    ck_ok(cairn_lease_release(k.s, l->lease, &err));
    return ++list->n == list->stop_at;
}

START_TEST(test_lease__all_are_listed)
{
    struct cairn_fetch_shared_result r[40];
    struct list list = {.stop_at = 3};
    start();
    ck_ok(cairn_lease_list(k.s, add, &list, &err));
    ck_assert_uint_eq(list.n, 0);
    for (unsigned i = 0; i < 40; i++)
        take(100, &r[i]);
    ck_ok(cairn_lease_list(k.s, add, &list, &err));
    ck_assert_uint_eq(list.n, 3);
    ck_assert_str_eq(list.last, r[2].lease);
    list = (struct list){0};
    ck_ok(cairn_lease_list(k.s, add, &list, &err));
    ck_assert_uint_eq(list.n, 37);
    ck_assert_str_eq(list.last, r[39].lease);
    for (unsigned i = 0; i < 40; i++)
        cairn_fetch_shared_result_release(&r[i]);
    ck_assert(gens_clear(k.s->gens));
    kit_stop(&k);
}
END_TEST

START_TEST(test_lease__those_left_end_with_the_store)
{
    struct cairn_fetch_shared_result r;
    struct stat st;
    start();
    take(100, &r);
    size_t open_with_it = kit_descriptors();
    kit_reopen(&k);
    ck_assert_uint_lt(kit_descriptors(), open_with_it);
    ck_fails(cairn_lease_find(k.s, r.lease, NULL, &err), CAIRN_NOT_FOUND);
    ck_assert_int_eq(stat(r.path, &st), 0);
    ck_assert(gens_clear(k.s->gens));
    cairn_fetch_shared_result_release(&r);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(lease, test_lease__is_found_renewed_and_released, test_lease__expires,
             test_lease__expires_by_itself, test_lease__all_are_listed,
             test_lease__those_left_end_with_the_store)
