#include "base/clock.h"
#include "cli/files.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The test's folder. */
static const char *dir(void)
{
    static const char *made;
    if (!made)
        made = testing_tmpdir();
    return made;
}

/* DIR/name in one of a few buffers. */
static const char *at(const char *name)
{
    static char path[4][512];
    static unsigned next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof(path[0]), "%s/%s", dir(), name);
    return p;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void check_file(const char *path, const char *want)
{
    struct cairn_error err;
    struct buf text = BUF_INIT(4096);
    ck_ok(files_read(path, NULL, "file", &text, &err));
    ck_assert_uint_eq(text.len, strlen(want));
    if (text.len)
        ck_assert_mem_eq(text.data, want, text.len);
    buf_release(&text);
}

START_TEST(test_files__reading_takes_exactly_the_limit)
{
    struct cairn_error err;
    write_file(at("f"), "0123456789");
    struct buf ten = BUF_INIT(10), nine = BUF_INIT(9);
    ck_ok(files_read(at("f"), NULL, "meta", &ten, &err));
    ck_assert_uint_eq(ten.len, 10);
    ck_fails(files_read(at("f"), NULL, "meta", &nine, &err), CAIRN_INVALID);
    ck_assert(strstr(err.message, "9 bytes") != NULL);
    ck_fails(files_read(at("absent"), NULL, "meta", &ten, &err), CAIRN_NOT_FOUND);
    ck_fails(files_read(dir(), NULL, "meta", &ten, &err), CAIRN_PERMANENT);
    ck_assert_int_eq(err.sys_errno, EISDIR);
    buf_release(&ten);
    buf_release(&nine);
}
END_TEST

START_TEST(test_files__a_pipe_that_says_nothing_ends_with_the_op)
{
    struct cairn_error err;
    int fds[2];
    char path[64];
    ck_assert_int_eq(pipe(fds), 0);
    snprintf(path, sizeof(path), "/dev/fd/%d", fds[0]);
    struct buf text = BUF_INIT(16);
    struct cairn_op op;
    cairn_op_init(&op, 0.05, NULL);
    int64_t start = clock_monotonic();
    ck_fails(files_read(path, &op, "meta", &text, &err), CAIRN_TIMEOUT);
    ck_assert(clock_monotonic() - start < 5 * NS_PER_S);
    struct cairn_cancel *cancel;
    ck_ok(cairn_cancel_new(&cancel, &err));
    cairn_op_init(&op, -1, cancel);
    cairn_cancel_fire(cancel);
    ck_fails(files_read(path, &op, "meta", &text, &err), CAIRN_CANCELLED);
    cairn_cancel_free(cancel);
    buf_release(&text);
}
END_TEST

START_TEST(test_files__a_staged_file_appears_whole_or_not_at_all)
{
    struct cairn_error err;
    struct staged_file s;
    write_file(at("f"), "old");
    ck_ok(files_stage(&s, at("f"), "new", 3, NULL, &err));
    check_file(at("f"), "old");
    files_abort(&s);
    check_file(at("f"), "old");
    ck_ok(files_stage(&s, at("f"), "new", 3, NULL, &err));
    char tmp[512];
    snprintf(tmp, sizeof(tmp), "%s", s.tmp);
    ck_assert_int_eq(access(tmp, F_OK), 0);
    ck_ok(files_commit(&s, &err));
    files_abort(&s);
    check_file(at("f"), "new");
    ck_assert_int_eq(access(tmp, F_OK), -1);
    ck_fails(files_stage(&s, dir(), "x", 1, NULL, &err), CAIRN_PERMANENT);
    files_abort(&s);
    ck_fails(files_stage(&s, at("no/f"), "x", 1, NULL, &err), CAIRN_NOT_FOUND);
    files_abort(&s);
    ck_ok(files_stage(&s, "/dev/full", "x", 1, NULL, &err));
    ck_fails(files_commit(&s, &err), CAIRN_NO_SPACE);
    files_abort(&s);
    ck_assert_int_eq(access("/dev/full", F_OK), 0);
}
END_TEST

START_TEST(test_files__folders_are_made_with_all_above_them)
{
    struct cairn_error err;
    struct stat st;
    ck_ok(files_make_dirs(at("a/b/c"), 0700, &err));
    ck_ok(files_make_dirs(at("a/b/c"), 0700, &err));
    ck_assert_int_eq(stat(at("a/b"), &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0700);
    write_file(at("f"), "");
    ck_assert_int_ne(files_make_dirs(at("f/x"), 0700, &err), CAIRN_OK);
    ck_assert_int_ne(files_make_dirs(at("f"), 0700, &err), CAIRN_OK);
    ck_ok(files_make_dirs("/", 0700, &err));
}
END_TEST

static void check_canonical(const char *path, const char *want)
{
    struct cairn_error err;
    char *got;
    ck_ok(files_canonical(path, &got, &err));
    ck_assert_str_eq(got, want);
    free(got);
}

START_TEST(test_files__canonical_paths_see_through_links_and_dots)
{
    struct cairn_error err;
    char *top;
    ck_ok(files_canonical(dir(), &top, &err));
    char want[512];
    ck_ok(files_make_dirs(at("a/b"), 0700, &err));
    ck_assert_int_eq(symlink("a/b", at("l")), 0);
    snprintf(want, sizeof(want), "%s/a/b", top);
    check_canonical(at("a/b"), want);
    check_canonical(at("l"), want);
    check_canonical(at("a//./b/"), want);
    check_canonical(at("l/x/.."), want);
    snprintf(want, sizeof(want), "%s/a/b/x/y", top);
    check_canonical(at("l/x//./y/"), want);
    snprintf(want, sizeof(want), "%s/a", top);
    check_canonical(at("l/.."), want);
    ck_assert_int_eq(chdir(top), 0);
    snprintf(want, sizeof(want), "%s/new", top);
    check_canonical("new", want);
    check_canonical("./new", want);
    check_canonical("/", "/");
    check_canonical("/..", "/");
    check_canonical("/no-such-thing/../../x-y-z", "/x-y-z");
    free(top);
}
END_TEST

START_TEST(test_files__inside_means_a_whole_component)
{
    ck_assert(files_is_inside("/a/b", "/a/b"));
    ck_assert(files_is_inside("/a/b/c", "/a/b"));
    ck_assert(files_is_inside("/a", "/"));
    ck_assert(!files_is_inside("/a/bc", "/a/b"));
    ck_assert(!files_is_inside("/a", "/a/b"));
    ck_assert(!files_is_inside("/", "/a"));
}
END_TEST

TESTING_MAIN(files, test_files__reading_takes_exactly_the_limit,
             test_files__a_pipe_that_says_nothing_ends_with_the_op,
             test_files__a_staged_file_appears_whole_or_not_at_all,
             test_files__folders_are_made_with_all_above_them,
             test_files__canonical_paths_see_through_links_and_dots,
             test_files__inside_means_a_whole_component)
