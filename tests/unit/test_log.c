#include "base/log.h"

#include "tests/lib/testing.h"

#include <string.h>

static char last[8192];
static int last_level, lines;

static void keep(void *ctx, enum log_level level, const char *line)
{
    ck_assert_ptr_eq(ctx, last);
    snprintf(last, sizeof(last), "%s", line);
    last_level = (int)level;
    lines++;
}

START_TEST(test_log__without_a_sink_lines_are_dropped)
{
    log_set_sink(NULL, NULL, LOG_LEVEL_DEBUG);
    log_line(LOG_LEVEL_ERROR, "%s", "nobody hears");
}
END_TEST

START_TEST(test_log__control_bytes_are_shown)
{
    log_set_sink(keep, last, LOG_LEVEL_DEBUG);
    log_line(LOG_LEVEL_NOTICE, "a%sb\tc", "\n\r\x1b[2J\x01\x7f");
    ck_assert_str_eq(last, "a\\x0a\\x0d\\x1b[2J\\x01\\x7fb\\x09c");
    ck_assert_int_eq(last_level, LOG_LEVEL_NOTICE);
    log_line(LOG_LEVEL_NOTICE, "caf\xc3\xa9 100%% \\");
    ck_assert_str_eq(last, "caf\xc3\xa9 100% \\");
}
END_TEST

START_TEST(test_log__lines_above_the_level_are_dropped)
{
    log_set_sink(keep, last, LOG_LEVEL_WARNING);
    lines = 0;
    log_line(LOG_LEVEL_INFO, "no");
    log_line(LOG_LEVEL_NOTICE, "no");
    ck_assert_int_eq(lines, 0);
    log_line(LOG_LEVEL_WARNING, "yes");
    log_line(LOG_LEVEL_ERROR, "yes");
    ck_assert_int_eq(lines, 2);
}
END_TEST

START_TEST(test_log__a_long_line_is_cut_whole)
{
    char text[5000];
    memset(text, '\n', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    log_set_sink(keep, last, LOG_LEVEL_DEBUG);
    log_line(LOG_LEVEL_ERROR, "%s", text);
    size_t n = strlen(last);
    ck_assert_uint_ge(n, 4000);
    ck_assert_uint_eq(n % 4, 0);
    ck_assert_ptr_null(strchr(last, '\n'));
    ck_assert_str_eq(last + n - 4, "\\x0a");
}
END_TEST

TESTING_MAIN(log, test_log__without_a_sink_lines_are_dropped, test_log__control_bytes_are_shown,
             test_log__lines_above_the_level_are_dropped, test_log__a_long_line_is_cut_whole)
