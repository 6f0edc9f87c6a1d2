#include "base/util.h"

#include "tests/lib/testing.h"

#include <errno.h>
#include <string.h>

START_TEST(test_util__is_zero_sees_every_byte)
{
    uint8_t b[257] = {0};
    for (size_t len = 0; len <= sizeof(b); len++)
        ck_assert(util_is_zero(b, len));
    for (size_t i = 0; i < sizeof(b); i++) {
        b[i] = 1;
        ck_assert(!util_is_zero(b, sizeof(b)));
        ck_assert(util_is_zero(b, i));
        b[i] = 0;
    }
}
END_TEST

START_TEST(test_util__unhex_takes_exactly_lower_case_digits)
{
    uint8_t out[2];
    ck_assert(util_unhex("00ff", out, 2));
    ck_assert_int_eq(out[1], 0xff);
    ck_assert(!util_unhex("00fF", out, 2));
    ck_assert(!util_unhex("00f", out, 2));
    ck_assert(!util_unhex("00ff0", out, 2));
    ck_assert(!util_unhex("", out, 1));
}
END_TEST

START_TEST(test_util__utf8_is_that_of_rfc3629)
{
    ck_assert(util_is_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10));
    ck_assert(!util_is_utf8("\xc0\x80", 2));
    ck_assert(!util_is_utf8("\xed\xa0\x80", 3));
    ck_assert(!util_is_utf8("\xf4\x90\x80\x80", 4));
    ck_assert(!util_is_utf8("\xe2\x82", 2));
    ck_assert(!util_is_utf8("a\0", 2));
}
END_TEST

START_TEST(test_util__first_name_of_a_path)
{
    char name[NAME_MAX + 1], path[NAME_MAX + 3];
    ck_assert_int_eq(util_first_name("a/b", name), 1);
    ck_assert_str_eq(name, "a");
    ck_assert_int_eq(util_first_name("abc", name), 3);
    ck_assert_str_eq(name, "abc");
    ck_assert_int_eq(util_first_name("/abc", name), 0);
    ck_assert_str_eq(name, "");
    memset(path, 'x', sizeof(path));
    memcpy(path + NAME_MAX, "/y", 3);
    ck_assert_int_eq(util_first_name(path, name), NAME_MAX);
    path[NAME_MAX] = 'x';
    errno = 0;
    ck_assert_int_eq(util_first_name(path, name), -1);
    ck_assert_int_eq(errno, ENAMETOOLONG);
}
END_TEST

TESTING_MAIN(util, test_util__is_zero_sees_every_byte,
             test_util__unhex_takes_exactly_lower_case_digits, test_util__utf8_is_that_of_rfc3629,
             test_util__first_name_of_a_path)
