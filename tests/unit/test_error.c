#include "base/error.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <string.h>

START_TEST(test_error__names_and_numbers_are_the_published_ones)
{
    static const char *const names[] = {"ok",      "not_found", "transient", "permanent",
                                        "corrupt", "busy",      "timeout",   "cancelled",
                                        "invalid", "no_space",  "internal"};
    for (int i = 0; i < (int)ARRAY_SIZE(names); i++)
        ck_assert_str_eq(cairn_class_name(i), names[i]);
    ck_assert_int_eq(CAIRN_INTERNAL, (int)ARRAY_SIZE(names) - 1);
    ck_assert_str_eq(cairn_class_name(-1), "internal");
    ck_assert_str_eq(cairn_class_name((int)ARRAY_SIZE(names)), "internal");
}
END_TEST

START_TEST(test_error__errno_is_the_one_set_or_that_of_the_class)
{
    static const struct {
        int error_class, want;
    } cases[] = {{CAIRN_NOT_FOUND, ENOENT},
                 {CAIRN_TRANSIENT, EAGAIN},
                 {CAIRN_PERMANENT, EIO},
                 {CAIRN_CORRUPT, EIO},
                 {CAIRN_BUSY, EBUSY},
                 {CAIRN_TIMEOUT, ETIMEDOUT},
                 {CAIRN_INVALID, EINVAL},
                 {CAIRN_CANCELLED, ECANCELED},
                 {CAIRN_NO_SPACE, ENOSPC},
                 {CAIRN_INTERNAL, EIO},
                 {99, EIO},
                 {-1, EIO}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cairn_error err = {.error_class = cases[i].error_class};
        ck_assert_int_eq(cairn_error_errno(&err), cases[i].want);
        err.sys_errno = EROFS;
        ck_assert_int_eq(cairn_error_errno(&err), EROFS);
    }
}
END_TEST

START_TEST(test_error__errnos_have_their_class)
{
    static const struct {
        int sys_errno, want;
    } cases[] = {
        {ENOENT, CAIRN_NOT_FOUND},     {ENOTDIR, CAIRN_NOT_FOUND}, {ENOSPC, CAIRN_NO_SPACE},
        {EDQUOT, CAIRN_NO_SPACE},      {EAGAIN, CAIRN_TRANSIENT},  {EINTR, CAIRN_TRANSIENT},
        {EMFILE, CAIRN_TRANSIENT},     {ENFILE, CAIRN_TRANSIENT},  {ETIMEDOUT, CAIRN_TIMEOUT},
        {EBUSY, CAIRN_BUSY},           {EEXIST, CAIRN_BUSY},       {EINVAL, CAIRN_INVALID},
        {ENAMETOOLONG, CAIRN_INVALID}, {ENOMEM, CAIRN_INTERNAL},   {EACCES, CAIRN_PERMANENT},
        {EIO, CAIRN_PERMANENT},        {EROFS, CAIRN_PERMANENT},   {12345, CAIRN_PERMANENT}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cairn_error err;
        ck_assert_int_eq(errno_class(cases[i].sys_errno), cases[i].want);
        ck_assert_int_eq(error_sys(&err, cases[i].sys_errno, "opening %s", "x"), cases[i].want);
        ck_assert_int_eq(err.error_class, cases[i].want);
        ck_assert_int_eq(err.sys_errno, cases[i].sys_errno);
        ck_assert(strncmp(err.message, "opening x: ", 11) == 0 && err.message[11]);
    }
}
END_TEST

START_TEST(test_error__a_message_is_never_empty)
{
    struct cairn_error err;
    ck_assert_int_eq(error_set(&err, CAIRN_BUSY, 0, "%s", ""), CAIRN_BUSY);
    ck_assert(err.message[0]);
    memset(&err, 0, sizeof(err));
    err.error_class = CAIRN_CORRUPT;
    ck_assert_int_eq(error_wrap(&err, "reading"), CAIRN_CORRUPT);
    ck_assert_str_eq(err.message, "reading: (no detail)");
    ck_assert_int_eq(error_oom(&err, "pack"), CAIRN_INTERNAL);
    ck_assert_int_eq(err.sys_errno, ENOMEM);
    ck_assert(strncmp(err.message, "pack", 4) == 0);
}
END_TEST

START_TEST(test_error__wrapping_keeps_class_and_errno)
{
    struct cairn_error err;
    ck_assert_int_eq(error_set(&err, CAIRN_BUSY, EEXIST, "renaming %d", 3), CAIRN_BUSY);
    ck_assert_int_eq(error_wrap(&err, "publishing %s", "ck"), CAIRN_BUSY);
    ck_assert_int_eq(err.error_class, CAIRN_BUSY);
    ck_assert_int_eq(err.sys_errno, EEXIST);
    ck_assert_str_eq(err.message, "publishing ck: renaming 3");
}
END_TEST

START_TEST(test_error__long_messages_are_cut_at_the_end)
{
    struct cairn_error err;
    char text[CAIRN_ERROR_MESSAGE_MAX * 2];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    ck_assert_int_eq(error_set(&err, CAIRN_BUSY, 0, "begin %s", text), CAIRN_BUSY);
    ck_assert_uint_eq(strlen(err.message), CAIRN_ERROR_MESSAGE_MAX - 1);
    ck_assert(strncmp(err.message, "begin x", 7) == 0);
    ck_assert_int_eq(error_wrap(&err, "outer"), CAIRN_BUSY);
    ck_assert_uint_eq(strlen(err.message), CAIRN_ERROR_MESSAGE_MAX - 1);
    ck_assert(strncmp(err.message, "outer: begin x", 14) == 0);
    ck_assert_int_eq(error_wrap(&err, "%s", text), CAIRN_BUSY);
    ck_assert_uint_eq(strlen(err.message), CAIRN_ERROR_MESSAGE_MAX - 1);
    ck_assert_int_eq(error_sys(&err, EIO, "%s", text), CAIRN_PERMANENT);
    ck_assert_uint_eq(strlen(err.message), CAIRN_ERROR_MESSAGE_MAX - 1);
}
END_TEST

START_TEST(test_error__nobody_need_listen)
{
    ck_assert_int_eq(error_set(NULL, CAIRN_BUSY, 0, "x"), CAIRN_BUSY);
    ck_assert_int_eq(error_sys(NULL, ENOSPC, "x"), CAIRN_NO_SPACE);
    ck_assert_int_eq(error_oom(NULL, "x"), CAIRN_INTERNAL);
    ck_assert_int_ne(error_wrap(NULL, "x"), CAIRN_OK);
}
END_TEST

START_TEST(test_error__pass_hands_on_all_of_it)
{
    struct cairn_error err, from;
    (void)error_set(&from, CAIRN_BUSY, EEXIST, "held by %s", "nobody");
    ck_assert_int_eq(error_pass(&err, &from), CAIRN_BUSY);
    ck_assert_int_eq(err.error_class, CAIRN_BUSY);
    ck_assert_int_eq(err.sys_errno, EEXIST);
    ck_assert_str_eq(err.message, "held by nobody");
    ck_assert_int_eq(error_pass(NULL, &from), CAIRN_BUSY);
}
END_TEST

TESTING_MAIN(error, test_error__names_and_numbers_are_the_published_ones,
             test_error__errno_is_the_one_set_or_that_of_the_class,
             test_error__errnos_have_their_class, test_error__a_message_is_never_empty,
             test_error__wrapping_keeps_class_and_errno,
             test_error__long_messages_are_cut_at_the_end, test_error__nobody_need_listen,
             test_error__pass_hands_on_all_of_it)
