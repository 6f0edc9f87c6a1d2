#include "cli/app.h"
#include "tests/lib/testing.h"

#include <string.h>

#define CK "ck_0123456789abcdef"

/* Parse what follows the program's name. */
static int parse(struct options *o, struct cairn_error *err, ...)
{
    char *argv[16] = {(char *)(uintptr_t) "cairn"};
    int argc = 1;
    va_list ap;
    va_start(ap, err);
    while ((argv[argc] = va_arg(ap, char *)))
        argc++;
    va_end(ap);
    return options_parse(argc, argv, commands, n_commands, o, err);
}

#define check_refused(named, ...)                                                                  \
    do {                                                                                           \
        struct cairn_error err;                                                                    \
        struct options o;                                                                          \
        ck_fails(parse(&o, &err, __VA_ARGS__, NULL), CAIRN_INVALID);                               \
        ck_assert_msg(strstr(err.message, named) != NULL, "\"%s\" lacks \"%s\"", err.message,      \
                      named);                                                                      \
        options_release(&o);                                                                       \
    } while (0)

START_TEST(test_options__stand_before_and_after_the_command)
{
    struct cairn_error err;
    struct options o;
    ck_ok(parse(&o, &err, "--store", "/s", "--json", "publish", "--from=/f", CK, "--state=/t",
                "--workers", "3", NULL));
    ck_assert_str_eq(o.command->name, "publish");
    ck_assert_str_eq(o.value[OPTION_STORE].text, "/s");
    ck_assert_str_eq(o.value[OPTION_STATE].text, "/t");
    ck_assert_str_eq(o.value[OPTION_FROM].text, "/f");
    ck_assert(o.value[OPTION_JSON].given);
    ck_assert(!o.value[OPTION_DIGEST].given);
    ck_assert_uint_eq(o.value[OPTION_WORKERS].number, 3);
    ck_assert_uint_eq(o.n_operands, 1);
    ck_assert_str_eq(o.operands[0], CK);
    options_release(&o);
}
END_TEST

START_TEST(test_options__two_dashes_end_them)
{
    struct cairn_error err;
    struct options o;
    ck_ok(parse(&o, &err, "cat", CK, "--", "--json", NULL));
    ck_assert_uint_eq(o.n_operands, 2);
    ck_assert_str_eq(o.operands[1], "--json");
    options_release(&o);
    ck_ok(parse(&o, &err, "cat", "--", CK, "--", NULL));
    ck_assert_str_eq(o.operands[1], "--");
    options_release(&o);
    ck_ok(parse(&o, &err, "cat", CK, "-", NULL));
    ck_assert_str_eq(o.operands[1], "-");
    options_release(&o);
}
END_TEST

START_TEST(test_options__the_last_one_counts_and_expectations_add_up)
{
    struct cairn_error err;
    struct options o;
    ck_ok(parse(&o, &err, "publish", CK, "--from", "/a", "--from", "/b", "--expect", "m=1G",
                "--expect", "a=b=7", NULL));
    ck_assert_str_eq(o.value[OPTION_FROM].text, "/b");
    ck_assert_uint_eq(o.n_expect, 2);
    ck_assert_str_eq(o.expect[0].path, "m");
    ck_assert_uint_eq(o.expect[0].size, 1ULL << 30);
    ck_assert_str_eq(o.expect[1].path, "a=b");
    ck_assert_uint_eq(o.expect[1].size, 7);
    options_release(&o);
}
END_TEST

START_TEST(test_options__a_wrong_line_is_told_in_words)
{
    check_refused("unknown option --jsno", "ls", "--jsno");
    check_refused("unknown option --js", "ls", "--js"); /* no abbreviations */
    check_refused("unknown option -x", "ls", "-x");
    check_refused("unknown option -qh", "ls", "-qh");
    check_refused("unknown command \"lst\"", "lst");
    check_refused("--store needs a value", "ls", "--store");
    check_refused("--store needs a value", "ls", "--store=");
    check_refused("--store=--json", "ls", "--store", "--json");
    check_refused("--json takes no value", "ls", "--json=1");
    check_refused("--from does not belong to cairn ls", "ls", "--from", "/x");
    check_refused("--json does not belong to cairn cat", "cat", CK, "p", "--json");
    check_refused("--from DIR is missing", "publish", CK);
    check_refused("--to DIR is missing", "fetch", CK);
    check_refused("too few operands", "publish", "--from", "/x");
    check_refused("too few operands", "rm", "--json");
    check_refused("unexpected operand \"x\\x1b\"", "ls", "x\x1b");
}
END_TEST

START_TEST(test_options__values_are_checked)
{
    check_refused("--workers", "ls", "--workers", "0");
    check_refused("--workers", "ls", "--workers", "65");
    check_refused("--workers", "ls", "--workers", "two");
    check_refused("--timeout", "ls", "--timeout", "-1");
    check_refused("--timeout", "ls", "--timeout", "soon");
    check_refused("--timeout", "ls", "--timeout", "nan");
    check_refused("--limit", "ls", "--limit", "-1");
    check_refused("--chunk-size", "init", "--chunk-size", "2K");
    check_refused("--chunk-size", "init", "--chunk-size", "2M");
    check_refused("zstd|none", "init", "--compression", "lz4");
    check_refused("PATH=BYTES", "publish", CK, "--from", "/f", "--expect", "x");
    check_refused("PATH=BYTES", "publish", CK, "--from", "/f", "--expect", "=1");
    check_refused("PATH=BYTES", "publish", CK, "--from", "/f", "--expect", "x=y");
    check_refused("--parent: bad id", "publish", CK, "--from", "/f", "--parent", "../x");
}
END_TEST

START_TEST(test_options__ids_are_checked_before_anything_is_done)
{
    check_refused("bad id", "publish", "ck_0123", "--from", "/f");
    check_refused("bad id", "rm", CK, "ck_0123456789abcdeF");
    check_refused("bad id", "fork", CK, "../../etc");
    check_refused("bad id", "verify", CK, "");
    struct cairn_error err;
    struct options o;
    ck_ok(parse(&o, &err, "cat", CK, "no id", NULL)); /* only its first operand is one */
    options_release(&o);
}
END_TEST

START_TEST(test_options__help_asks_for_nothing_else)
{
    struct cairn_error err;
    struct options o;
    ck_ok(parse(&o, &err, "publish", "-h", NULL));
    ck_assert(o.value[OPTION_HELP].given);
    options_release(&o);
    ck_ok(parse(&o, &err, NULL));
    ck_assert_ptr_null(o.command);
    options_release(&o);
}
END_TEST

START_TEST(test_options__help_tells_of_every_option_a_command_takes)
{
    for (size_t i = 0; i < n_commands; i++) {
        struct cairn_error err;
        struct buf text = BUF_INIT(65536);
        ck_ok(options_help_command(&commands[i], &text, &err));
        ck_ok(buf_add(&text, "", 1, &err));
        const char *t = (const char *)text.data;
        ck_assert(strstr(t, commands[i].name) != NULL);
        ck_assert(strstr(t, commands[i].summary) != NULL);
        ck_assert_int_eq(strstr(t, " --json") != NULL,
                         (commands[i].options & OPTION_BIT(OPTION_JSON)) != 0);
        ck_assert_int_eq(strstr(t, " --from DIR ") != NULL,
                         (commands[i].options & OPTION_BIT(OPTION_FROM)) != 0);
        buf_release(&text);
    }
}
END_TEST

TESTING_MAIN(options, test_options__stand_before_and_after_the_command,
             test_options__two_dashes_end_them,
             test_options__the_last_one_counts_and_expectations_add_up,
             test_options__a_wrong_line_is_told_in_words, test_options__values_are_checked,
             test_options__ids_are_checked_before_anything_is_done,
             test_options__help_asks_for_nothing_else,
             test_options__help_tells_of_every_option_a_command_takes)
