/* Loops over listings: where they end, and with what. */
#include "store/listing.h"

#include "base/util.h"
#include "tests/lib/backend_fault.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/testing.h"

#include <errno.h>

static struct backend *b;
static struct cairn_error err;

static void start(void)
{
    static const char *const keys[] = {"holds/ck_0000000000000001", "holds/ck_0000000000000002",
                                       "holds/nobody's", "records/ck_0000000000000001/meta.json"};
    struct backend *inner;
    ck_ok(backend_mem_new(&inner, &err));
    ck_ok(backend_fault_new(inner, &b, &err));
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        ck_ok(b->ops->put(b, NULL, keys[i], "x", 1, &err));
}

static void plan(enum fault_op op, unsigned nth)
{
    ck_ok(backend_fault_add(b, &(struct fault_plan){.op = op, .nth = nth}, &err));
}

START_TEST(test_listing__tells_each_key_apart_and_ends)
{
    start();
    struct listing l;
    int rc = listing_open(&l, b, NULL, LAYOUT_HOLDS, "holds/ck_0000000000000001", &err);
    ck_assert(listing_next(&l, &rc, &err));
    ck_assert_str_eq(l.entry.key, "holds/ck_0000000000000002");
    ck_assert_uint_eq(l.entry.stat.size, 1);
    ck_assert_int_eq(l.key.kind, LAYOUT_KIND_HOLD);
    ck_assert_str_eq(l.key.id, "ck_0000000000000002");
    ck_assert(listing_next(&l, &rc, &err));
    ck_assert_int_eq(l.key.kind, LAYOUT_KIND_UNKNOWN);
    ck_assert(!listing_next(&l, &rc, &err));
    ck_ok(rc);
    listing_close(&l);
    backend_free(b);
}
END_TEST

START_TEST(test_listing__a_failure_of_the_listing_ends_it)
{
    start();
    plan(FAULT_ITER_NEXT, 2);
    plan(FAULT_LIST, 2);
    size_t n = 0;
    struct listing l, none;
    int rc = listing_open(&l, b, NULL, "", "", &err);
    while (listing_next(&l, &rc, &err))
        n++;
    listing_close(&l);
    ck_assert_int_eq(rc, CAIRN_TRANSIENT);
    ck_assert_int_eq(err.error_class, CAIRN_TRANSIENT);
    ck_assert_uint_eq(n, 1);
    rc = listing_open(&none, b, NULL, "", "", &err);
    ck_assert_int_eq(rc, CAIRN_TRANSIENT);
    ck_assert(!listing_next(&none, &rc, &err));
    ck_assert_int_eq(rc, CAIRN_TRANSIENT);
    listing_close(&none);
    backend_free(b);
}
END_TEST

START_TEST(test_listing__a_failure_of_the_body_ends_it_and_stays)
{
    start();
    struct listing l;
    int rc = listing_open(&l, b, NULL, "", "", &err);
    size_t n = 0;
    while (listing_next(&l, &rc, &err))
        if (++n == 2)
            rc = error_set(&err, CAIRN_BUSY, EBUSY, "the body's");
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(rc, CAIRN_BUSY);
    ck_assert_str_eq(err.message, "the body's");
    ck_assert_uint_eq(backend_fault_calls(b, FAULT_ITER_NEXT), 2);
    listing_close(&l);
    backend_free(b);
}
END_TEST

TESTING_MAIN(listing, test_listing__tells_each_key_apart_and_ends,
             test_listing__a_failure_of_the_listing_ends_it,
             test_listing__a_failure_of_the_body_ends_it_and_stays)
