#include "base/jval.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <string.h>

static struct jval *parse(const char *text)
{
    struct cairn_error err;
    struct jval *v = NULL;
    ck_ok(jval_parse(text, strlen(text), &v, &err));
    ck_assert_ptr_nonnull(v);
    return v;
}

static void refuse(const void *text, size_t len)
{
    struct cairn_error err;
    struct jval *v = NULL;
    ck_fails(jval_parse(text, len, &v, &err), CAIRN_INVALID);
    ck_assert_ptr_null(v);
    ck_assert_ptr_nonnull(strstr(err.message, "line"));
}

START_TEST(test_jval__members_and_types)
{
    struct jval *v CLEANUP_JVAL = parse("{\"s\":\"x\",\"i\":-5,\"r\":1.5,\"t\":true,\"n\":null,"
                                        "\"a\":[1,\"two\"],\"o\":{}}");
    int64_t i = 0;
    double r = 0;
    bool b = false;
    ck_assert(jval_is_object(v) && !jval_is_array(v));
    ck_assert_str_eq(jval_str(jval_get(v, "s")), "x");
    ck_assert(jval_int(jval_get(v, "i"), &i) && i == -5);
    ck_assert(jval_real(jval_get(v, "r"), &r) && r == 1.5);
    ck_assert(jval_real(jval_get(v, "i"), &r) && r == -5);
    ck_assert(jval_bool(jval_get(v, "t"), &b) && b);
    ck_assert(jval_is_array(jval_get(v, "a")) && jval_is_object(jval_get(v, "o")));
    ck_assert_uint_eq(jval_len(jval_get(v, "a")), 2);
    ck_assert_str_eq(jval_str(jval_at(jval_get(v, "a"), 1)), "two");
    /* Of another type, or not there. */
    ck_assert(!jval_int(jval_get(v, "r"), &i) && i == -5);
    ck_assert(!jval_int(jval_get(v, "s"), &i) && !jval_bool(jval_get(v, "i"), &b));
    ck_assert(!jval_real(jval_get(v, "s"), &r) && !jval_bool(jval_get(v, "n"), &b));
    ck_assert_ptr_null(jval_str(jval_get(v, "i")));
    ck_assert_ptr_null(jval_get(v, "none"));
    ck_assert_ptr_null(jval_get(jval_get(v, "a"), "s"));
    ck_assert_ptr_null(jval_at(jval_get(v, "a"), 2));
    ck_assert_ptr_null(jval_at(jval_get(v, "o"), 0));
    ck_assert_uint_eq(jval_len(v), 0);
}
END_TEST

START_TEST(test_jval__null_pointers_are_absent_values)
{
    int64_t i;
    double r;
    bool b;
    ck_assert(!jval_is_object(NULL) && !jval_is_array(NULL));
    ck_assert_ptr_null(jval_get(NULL, "x"));
    ck_assert_ptr_null(jval_str(NULL));
    ck_assert(!jval_int(NULL, &i) && !jval_real(NULL, &r) && !jval_bool(NULL, &b));
    ck_assert_uint_eq(jval_len(NULL), 0);
    ck_assert_ptr_null(jval_at(NULL, 0));
    jval_free(NULL);
}
END_TEST

START_TEST(test_jval__numbers_have_bounds)
{
    int64_t i;
    struct jval *max CLEANUP_JVAL = parse("9223372036854775807");
    ck_assert(jval_int(max, &i) && i == INT64_MAX);
    struct jval *min CLEANUP_JVAL = parse("-9223372036854775808");
    ck_assert(jval_int(min, &i) && i == INT64_MIN);
    refuse("9223372036854775808", 19);
    refuse("-9223372036854775809", 20);
    refuse("1e999", 5);
    static const char *const bad[] = {"01", "+1", "1.", ".5", "0x10", "NaN", "Infinity", "-"};
    for (size_t k = 0; k < ARRAY_SIZE(bad); k++)
        refuse(bad[k], strlen(bad[k]));
}
END_TEST

START_TEST(test_jval__what_is_no_json_is_refused)
{
    static const char *const bad[] = {
        "",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "'x'",
        "\"x",
        "[1] x",
        "{} {}",
        "nul",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"\\u12\"",
        "\"a\nb\"",
        "// x\n1",
        "\xef\xbb\xbf{}",
        "{\"a\":1,\"a\":2}",
        "{\"x\":{\"a\":1,\"a\":1}}",
        "\"\\u0000\"",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        refuse(bad[i], strlen(bad[i]));
    refuse("\"a\0b\"", 5);
    refuse("{}\0", 3);
}
END_TEST

START_TEST(test_jval__bad_utf8_is_refused)
{
    static const char *const bad[] = {"\"\xff\"",         "\"\xc0\x80\"",
                                      "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
                                      "\"\xe2\x82\"",     "{\"\xff\":1}"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        refuse(bad[i], strlen(bad[i]));
    struct jval *v CLEANUP_JVAL = parse("\"\\u00e9\xc3\xa9\\ud83d\\ude00\"");
    ck_assert_str_eq(jval_str(v), "\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80");
}
END_TEST

START_TEST(test_jval__depth_is_bounded)
{
    static char deep[2000000];
    memset(deep, '[', sizeof(deep));
    refuse(deep, sizeof(deep));
    refuse(deep, 2049);
    for (size_t i = 0; i + 5 <= sizeof(deep); i += 5)
        memcpy(deep + i, "{\"a\":", 5);
    refuse(deep, sizeof(deep));
    memset(deep, '[', 1000);
    memset(deep + 1000, ']', 1000);
    struct cairn_error err;
    struct jval *v CLEANUP_JVAL = NULL;
    ck_ok(jval_parse(deep, 2000, &v, &err));
    const struct jval *in = v;
    int depth = 1;
    for (; jval_len(in); depth++)
        in = jval_at(in, 0);
    ck_assert_int_eq(depth, 1000);
}
END_TEST

START_TEST(test_jval__the_place_of_the_fault_is_named)
{
    struct cairn_error err;
    struct jval *v = NULL;
    ck_fails(jval_parse("{\n\"a\": 1,\n\"b\": x}", 18, &v, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "line 3"));
}
END_TEST

static int collect(void *ctx, const char *name, const struct jval *value)
{
    int64_t i = 0;
    ck_assert(jval_int(value, &i));
    char *out = ctx;
    size_t n = strlen(out);
    snprintf(out + n, 64 - n, "%s=%d;", name, (int)i);
    return i == 3 ? 42 : 0;
}

START_TEST(test_jval__each_goes_in_order_until_told)
{
    char out[64] = "";
    struct jval *v CLEANUP_JVAL = parse("{\"z\":1,\"a\":2}");
    ck_assert_int_eq(jval_each(v, collect, out), 0);
    ck_assert_str_eq(out, "z=1;a=2;");
    out[0] = 0;
    struct jval *w CLEANUP_JVAL = parse("{\"z\":1,\"m\":3,\"a\":2}");
    ck_assert_int_eq(jval_each(w, collect, out), 42);
    ck_assert_str_eq(out, "z=1;m=3;");
    struct jval *x CLEANUP_JVAL = parse("[1]");
    ck_assert_int_eq(jval_each(x, collect, out), 0);
}
END_TEST

START_TEST(test_jval__is_json_takes_integers_of_any_size)
{
    static const char *const good[] = {"{\"n\": 123456789012345678901234567890}", "-1e300", "[]"};
    static const char *const bad[] = {"", "{", "{\"a\":1,\"a\":2}", "[1] x", "\"\xff\""};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_assert(jval_is_json(good[i], strlen(good[i])));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert(!jval_is_json(bad[i], strlen(bad[i])));
}
END_TEST

TESTING_MAIN(jval, test_jval__is_json_takes_integers_of_any_size, test_jval__members_and_types,
             test_jval__null_pointers_are_absent_values, test_jval__numbers_have_bounds,
             test_jval__what_is_no_json_is_refused, test_jval__bad_utf8_is_refused,
             test_jval__depth_is_bounded, test_jval__the_place_of_the_fault_is_named,
             test_jval__each_goes_in_order_until_told)
