#include "cli/text.h"
#include "tests/lib/testing.h"

#include <math.h>
#include <string.h>

START_TEST(test_text__counts_are_digits_that_fit)
{
    uint64_t v;
    ck_assert(text_parse_count("0", &v) && v == 0);
    ck_assert(text_parse_count("18446744073709551615", &v) && v == UINT64_MAX);
    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "+1",
                                      "-1",
                                      "0x10",
                                      "1e3",
                                      "1.0",
                                      "1K",
                                      "18446744073709551616",
                                      "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!text_parse_count(bad[i], &v), "took \"%s\"", bad[i]);
}
END_TEST

START_TEST(test_text__sizes_take_units_of_1024)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},
                {"7", 7},
                {"7B", 7},
                {"64K", 65536},
                {"64k", 65536},
                {"64KiB", 65536},
                {"64KB", 65536},
                {"1M", 1 << 20},
                {"5G", 5ULL << 30},
                {"16T", 16ULL << 40},
                {"16777215T", 16777215ULL << 40}};
    static const char *const bad[] = {"",          "K",    "1KK", "1Ki",
                                      "1iB",       "1.5K", "1 K", "-1K",
                                      "16777216T", "1P",   "1BB", "18446744073709551615K"};
    uint64_t v;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_msg(text_parse_size(good[i].text, &v), "refused %s", good[i].text);
        ck_assert_uint_eq(v, good[i].value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!text_parse_size(bad[i], &v), "took \"%s\"", bad[i]);
}
END_TEST

START_TEST(test_text__seconds_are_plain_decimals)
{
    double v;
    ck_assert(text_parse_seconds("0", &v) && v == 0);
    ck_assert(text_parse_seconds("0.25", &v) && v == 0.25);
    ck_assert(text_parse_seconds(".5", &v) && v == 0.5);
    ck_assert(text_parse_seconds("5.", &v) && v == 5);
    char huge[400];
    memset(huge, '9', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = 0;
    ck_assert(text_parse_seconds(huge, &v) && isinf(v) && v > 0);
    static const char *const bad[] = {"",    ".",   "-1",  "+1",  "1s",
                                      "1e3", "inf", "nan", "0x1", "1.2.3"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!text_parse_seconds(bad[i], &v), "took \"%s\"", bad[i]);
}
END_TEST

START_TEST(test_text__sizes_are_shown_with_one_decimal)
{
    static const struct {
        uint64_t value;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1536, "1.5 KiB"},
                 {1048575, "1.0 MiB"},
                 {1 << 20, "1.0 MiB"},
                 {1023 << 20, "1023.0 MiB"},
                 {5ULL << 30, "5.0 GiB"},
                 {64ULL << 40, "64.0 TiB"},
                 {UINT64_MAX, "16.0 EiB"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[TEXT_SIZE_MAX];
        text_size(cases[i].value, text);
        ck_assert_str_eq(text, cases[i].text);
    }
}
END_TEST

START_TEST(test_text__time_has_whole_seconds)
{
    char text[TEXT_TIME_MAX];
    text_time(1, text);
    ck_assert_str_eq(text, "1970-01-01T00:00:00Z");
    text_time(1234567890999999999, text);
    ck_assert_str_eq(text, "2009-02-13T23:31:30Z");
}
END_TEST

static void check_escape(const char *in, size_t len, enum text_mode mode, const char *want)
{
    struct cairn_error err;
    struct buf out = BUF_INIT(4096);
    ck_ok(text_escape(&out, in, len, mode, &err));
    ck_assert_uint_eq(out.len, strlen(want));
    ck_assert_mem_eq(out.data, want, out.len);
    buf_release(&out);
}

START_TEST(test_text__nothing_that_moves_a_terminal_gets_through)
{
    check_escape("a\x1b[2Jb", 6, TEXT_NAME, "a\\x1b[2Jb");
    check_escape("\x7f\r\n\t", 4, TEXT_NAME, "\\x7f\\x0d\\x0a\\x09");
    check_escape("a\0b", 3, TEXT_NAME, "a\\x00b");
    check_escape("\xc2\x9b"
                 "2J",
                 4, TEXT_NAME, "\\xc2\\x9b2J"); /* C1: CSI */
    check_escape("\xe2\x80\xae"
                 "x",
                 4, TEXT_NAME, "\\xe2\\x80\\xaex"); /* right-to-left */
    check_escape("\xff\xc3", 2, TEXT_NAME, "\\xff\\xc3");
    check_escape("\xc3\xa9\xf0\x9f\x98\x80", 6, TEXT_NAME, "\xc3\xa9\xf0\x9f\x98\x80");
    check_escape("a\nb\tc\r", 6, TEXT_LINES, "a\nb\tc\\x0d");
}
END_TEST

START_TEST(test_text__only_names_double_a_backslash)
{
    check_escape("a\\x0ab", 6, TEXT_NAME, "a\\\\x0ab");
    check_escape("a\\x0ab", 6, TEXT_MESSAGE, "a\\x0ab");
    check_escape("a\\n", 3, TEXT_LINES, "a\\n");
}
END_TEST

START_TEST(test_text__a_cut_never_splits_a_character)
{
    for (size_t size = 1; size < 16; size++) {
        char out[16];
        memset(out, '#', sizeof(out));
        text_escape_cut(out, size, "\xc3\xa9\x01\xe2\x82\xac", TEXT_NAME);
        static const char whole[] = "\xc3\xa9\\x01\xe2\x82\xac";
        size_t n = strlen(out);
        ck_assert(n < size);
        ck_assert(n == 0 || n == 2 || n == 6 || n == 9);
        ck_assert_mem_eq(out, whole, n);
        if (size >= sizeof(whole))
            ck_assert_uint_eq(n, 9);
    }
}
END_TEST

TESTING_MAIN(text, test_text__counts_are_digits_that_fit, test_text__sizes_take_units_of_1024,
             test_text__seconds_are_plain_decimals, test_text__sizes_are_shown_with_one_decimal,
             test_text__time_has_whole_seconds,
             test_text__nothing_that_moves_a_terminal_gets_through,
             test_text__only_names_double_a_backslash, test_text__a_cut_never_splits_a_character)
