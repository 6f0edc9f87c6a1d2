#include "base/jsonw.h"

#include "base/jval.h"
#include "tests/lib/testing.h"

#include <math.h>
#include <string.h>

static void expect(struct jsonw *w, const char *want)
{
    struct cairn_error err = {0};
    ck_ok(jsonw_end(w));
    ck_assert_uint_eq(w->out->len, strlen(want));
    ck_assert_msg(memcmp(w->out->data, want, w->out->len) == 0, "%.*s", (int)w->out->len,
                  (const char *)w->out->data);
}

START_TEST(test_jsonw__structure_and_commas)
{
    struct cairn_error err;
    struct buf b CLEANUP_BUF = BUF_INIT(4096);
    struct jsonw w = JSONW_INIT(&b, &err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "s", "x");
    jsonw_array(&w, "a");
    jsonw_array(&w, NULL);
    jsonw_array_end(&w);
    jsonw_object(&w, NULL);
    jsonw_object_end(&w);
    jsonw_u64(&w, NULL, 1);
    jsonw_null(&w, NULL);
    jsonw_array_end(&w);
    jsonw_bool(&w, "t", true);
    jsonw_bool(&w, "f", false);
    jsonw_raw(&w, "r", "[1]", 3);
    jsonw_object_end(&w);
    expect(&w, "{\"s\":\"x\",\"a\":[[],{},1,null],\"t\":true,\"f\":false,\"r\":[1]}");
}
END_TEST

START_TEST(test_jsonw__numbers)
{
    struct cairn_error err;
    struct buf b CLEANUP_BUF = BUF_INIT(4096);
    struct jsonw w = JSONW_INIT(&b, &err);
    jsonw_array(&w, NULL);
    jsonw_u64(&w, NULL, UINT64_MAX);
    jsonw_i64(&w, NULL, INT64_MIN);
    jsonw_real(&w, NULL, 1.5);
    jsonw_real(&w, NULL, NAN);
    jsonw_real(&w, NULL, -INFINITY);
    jsonw_array_end(&w);
    expect(&w, "[18446744073709551615,-9223372036854775808,1.500000,null,null]");
    buf_clear(&b);
    w = (struct jsonw)JSONW_INIT(&b, &err);
    jsonw_real(&w, NULL, -1.7976931348623157e308);
    ck_ok(jsonw_end(&w));
    ck_assert_uint_eq(b.len, 1 + 309 + 7);
}
END_TEST

static void expect_string(const void *text, size_t len, const char *want)
{
    struct cairn_error err;
    struct buf b CLEANUP_BUF = BUF_INIT(4096);
    struct jsonw w = JSONW_INIT(&b, &err);
    jsonw_strn(&w, NULL, text, len);
    expect(&w, want);
}

START_TEST(test_jsonw__escapes)
{
    expect_string("a\"b\\c/", 6, "\"a\\\"b\\\\c/\"");
    expect_string("\n\r\t\b\f\x1f\x7f", 7, "\"\\u000a\\u000d\\u0009\\u0008\\u000c\\u001f\\u007f\"");
    expect_string("", 0, "\"\"");
    expect_string("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", 14,
                  "\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
}
END_TEST

START_TEST(test_jsonw__bytes_that_are_no_utf8_are_replaced)
{
#define R "\xef\xbf\xbd"
    expect_string("a\xff", 2, "\"a" R "\"");
    expect_string("a\0b", 3, "\"a" R "b\"");
    expect_string("\xc3", 1, "\"" R "\"");
    expect_string("\xe2\x82x", 3, "\"" R R "x\"");
    expect_string("\xc0\xaf", 2, "\"" R R "\"");
    expect_string("\xed\xa0\x80", 3, "\"" R R R "\"");
    expect_string("\xf4\x90\x80\x80", 4, "\"" R R R R "\"");
    expect_string("\x80\xc3\xa9\x80", 4, "\"" R "\xc3\xa9" R "\"");
}
END_TEST

START_TEST(test_jsonw__names_are_escaped_too)
{
    struct cairn_error err;
    struct buf b CLEANUP_BUF = BUF_INIT(4096);
    struct jsonw w = JSONW_INIT(&b, &err);
    jsonw_object(&w, NULL);
    jsonw_i64(&w, "a\"\n\xff", -1);
    jsonw_object_end(&w);
    expect(&w, "{\"a\\\"\\u000a" R "\":-1}");
}
END_TEST

/* Whatever the bytes are: a reader takes the result, and what was text comes back. */
START_TEST(test_jsonw__a_reader_takes_any_bytes)
{
    uint64_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        struct cairn_error err;
        struct buf b CLEANUP_BUF = BUF_INIT(4096);
        struct jsonw w = JSONW_INIT(&b, &err);
        uint8_t text[40];
        size_t len = testing_random(&seed) % sizeof(text);
        testing_fill(text, len, testing_random(&seed));
        for (size_t i = 0; i < len; i++) {
            if (round % 2)
                text[i] = text[i] % 0x7f + 1;
        }
        jsonw_strn(&w, NULL, text, len);
        ck_ok(jsonw_end(&w));
        struct jval *v CLEANUP_JVAL = NULL;
        ck_ok(jval_parse(b.data, b.len, &v, &err));
        ck_assert_ptr_nonnull(jval_str(v));
        if (round % 2) {
            ck_assert_uint_eq(strlen(jval_str(v)), len);
            ck_assert(memcmp(jval_str(v), text, len) == 0);
        }
    }
}
END_TEST

static void expect_bytes(const void *data, size_t len, const char *want)
{
    struct cairn_error err;
    struct buf b CLEANUP_BUF = BUF_INIT(4096);
    struct jsonw w = JSONW_INIT(&b, &err);
    jsonw_object(&w, NULL);
    jsonw_bytes(&w, "b", data, len);
    jsonw_object_end(&w);
    expect(&w, want);
}

START_TEST(test_jsonw__bytes_that_are_no_text_come_in_hex_as_well)
{
#define A32   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEX16 "61616161616161616161616161616161"
    expect_bytes("", 0, "{\"b\":\"\"}");
    expect_bytes("\xc3\xa9", 2, "{\"b\":\"\xc3\xa9\"}");
    expect_bytes("a\0", 2, "{\"b\":\"a" R "\",\"b_hex\":\"6100\"}");
    expect_bytes("\xff\x1b", 2, "{\"b\":\"" R "\\u001b\",\"b_hex\":\"ff1b\"}");
    expect_bytes(A32 "\xff", 33, "{\"b\":\"" A32 R "\",\"b_hex\":\"" HEX16 HEX16 "ff\"}");
}
END_TEST

START_TEST(test_jsonw__the_first_failure_stays)
{
    struct cairn_error err = {0};
    struct buf b CLEANUP_BUF = BUF_INIT(8);
    struct jsonw w = JSONW_INIT(&b, &err);
    jsonw_array(&w, NULL);
    jsonw_str(&w, NULL, "too long for it");
    size_t len = b.len;
    jsonw_array_end(&w); /* would fit */
    ck_assert_uint_eq(b.len, len);
    ck_assert_int_eq(jsonw_end(&w), CAIRN_INVALID);
    ck_assert_int_eq(err.error_class, CAIRN_INVALID);
    ck_assert(err.message[0]);
}
END_TEST

TESTING_MAIN(jsonw, test_jsonw__structure_and_commas, test_jsonw__numbers, test_jsonw__escapes,
             test_jsonw__bytes_that_are_no_utf8_are_replaced, test_jsonw__names_are_escaped_too,
             test_jsonw__a_reader_takes_any_bytes,
             test_jsonw__bytes_that_are_no_text_come_in_hex_as_well,
             test_jsonw__the_first_failure_stays)
