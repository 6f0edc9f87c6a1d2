#include "base/clock.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <math.h>

START_TEST(test_clock__seconds_from_outside_saturate)
{
    static const struct {
        double seconds;
        int64_t want;
    } cases[] = {
        {0, 0},
        {-0.0, 0},
        {1.5, 1500000000},
        {1e-9, 1},
        {1e-12, 0},
        {9223372034, 9223372034000000000},
        {9223372036, INT64_MAX},
        {9.3e9, INT64_MAX},
        {1e300, INT64_MAX},
        {INFINITY, INT64_MAX},
        {-1e-300, 77},
        {-1, 77},
        {-1e300, 77},
        {-INFINITY, 77},
        {NAN, 77},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        ck_assert_msg(clock_from_seconds(cases[i].seconds, 77) == cases[i].want, "%g: %lld",
                      cases[i].seconds, (long long)clock_from_seconds(cases[i].seconds, 77));
}
END_TEST

START_TEST(test_clock__sums_saturate)
{
    ck_assert_int_eq(clock_add(1, 2), 3);
    ck_assert_int_eq(clock_add(INT64_MAX, 1), INT64_MAX);
    ck_assert_int_eq(clock_add(1, INT64_MAX), INT64_MAX);
    ck_assert_int_eq(clock_add(INT64_MAX, INT64_MIN), -1);
    ck_assert_int_eq(clock_add(INT64_MIN, -1), INT64_MIN);
    ck_assert_int_eq(clock_add(-1, INT64_MIN), INT64_MIN);
    ck_assert_int_eq(clock_add(clock_monotonic(), INT64_MAX), INT64_MAX);
}
END_TEST

START_TEST(test_clock__text_is_rfc3339_in_utc)
{
    static const struct {
        int64_t ns;
        const char *want;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000000000Z"},
        {1, "1970-01-01T00:00:00.000000001Z"},
        {-1, "1969-12-31T23:59:59.999999999Z"},
        {951782400 * NS_PER_S, "2000-02-29T00:00:00.000000000Z"},
        {INT64_MAX, "2262-04-11T23:47:16.854775807Z"},
        {INT64_MIN, "1677-09-21T00:12:43.145224192Z"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[CLOCK_RFC3339_MAX];
        clock_rfc3339(cases[i].ns, out);
        ck_assert_str_eq(out, cases[i].want);
    }
}
END_TEST

START_TEST(test_clock__clocks_run_forward)
{
    int64_t m = clock_monotonic(), b = clock_boottime(), r = clock_realtime();
    ck_assert_int_gt(m, 0);
    ck_assert_int_ge(b, m - NS_PER_S);
    ck_assert_int_gt(r, (int64_t)1700000000 * NS_PER_S);
    for (int i = 0; i < 1000; i++) {
        int64_t n = clock_monotonic();
        ck_assert_int_ge(n, m);
        m = n;
    }
}
END_TEST

TESTING_MAIN(clock, test_clock__seconds_from_outside_saturate, test_clock__sums_saturate,
             test_clock__text_is_rfc3339_in_utc, test_clock__clocks_run_forward)
