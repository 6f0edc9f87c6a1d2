#include "base/util.h"
#include "store/tree.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

static struct cairn_error err;
static struct kit k;
static struct cairn_record *r;
static struct cairn_fetch_result result;

static void start(const struct kit_options *options)
{
    kit_start(&k, options);
    kit_sample(&k, "one", 1);
    kit_fill(&k, "one", "deep/er/and/deeper", 10, 0, 5);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    ck_assert_int_eq(mkdir(kit_path(&k, "to", NULL), 0700), 0);
}

static void stop(void)
{
    cairn_record_close(r);
    kit_stop(&k);
}

static int fetch(const char *target)
{
    return cairn_record_fetch(r, NULL, target, NULL, &result, &err);
}

static size_t entries(const char *folder)
{
    size_t n = 0;
    CLEANUP_DIR DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    const struct dirent *d;
    while ((d = readdir(dir)))
        n += strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
    return n;
}

static void makes_the_export(bool mem)
{
    start(&(struct kit_options){.mem = mem, .chunk_size = 4096});
    char target[4096];
    snprintf(target, sizeof(target), "%s", kit_path(&k, "to", "out"));
    ck_ok(fetch(target));
    kit_same_folder(r, target);
    ck_assert_uint_eq(result.logical_bytes, k.result.logical_bytes);
    ck_assert_uint_eq(result.data_bytes, k.result.data_bytes);
    struct stat st;
    ck_assert_int_eq(stat(kit_path(&k, "to", "out/disks/cow.raw"), &st), 0);
    ck_assert_int_eq(st.st_size, 8 << 20);
    ck_assert_int_lt(st.st_blocks * 512, 200000);
    ck_assert_int_eq(stat(kit_path(&k, "to", "out/disks/empty"), &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    ck_assert_uint_eq(entries(kit_path(&k, "to", NULL)), 1);
    stop();
}

START_TEST(test_fetch__the_export_comes_back_holes_and_all)
{
    makes_the_export(false);
    makes_the_export(true);
}
END_TEST

START_TEST(test_fetch__a_new_target_is_private_and_one_that_was_there_keeps_its_mode)
{
    start(NULL);
    char target[4096];
    struct stat st;
    mode_t old = umask(0);
    snprintf(target, sizeof(target), "%s", kit_path(&k, "to", "new"));
    ck_ok(fetch(target));
    ck_assert_int_eq(stat(target, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    snprintf(target, sizeof(target), "%s", kit_path(&k, "to", "there"));
    ck_assert_int_eq(mkdir(target, 0755), 0);
    ck_ok(fetch(target));
    ck_assert_int_eq(stat(target, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0755);
    umask(old);
    stop();
}
END_TEST

START_TEST(test_fetch__targets)
{
    start(NULL);
    char to[4096], text[4200], cwd[4096];
    snprintf(to, sizeof(to), "%s", kit_path(&k, "to", NULL));
    /* An empty folder is taken, with slashes behind it or not. */
    ck_assert_int_eq(mkdir(kit_path(&k, "to", "empty"), 0700), 0);
    ck_ok(fetch(kit_path(&k, "to", "empty///")));
    kit_same_folder(r, kit_path(&k, "to", "empty"));
    /* Relative, in the folder where we are. */
    ck_assert_ptr_nonnull(getcwd(cwd, sizeof(cwd)));
    ck_assert_int_eq(chdir(to), 0);
    ck_ok(fetch("relative"));
    kit_same_folder(r, "relative");
    ck_ok(fetch("./dotted/"));
    kit_same_folder(r, "dotted");

    /* Not empty, a file, a link: busy, and left as they are. */
    kit_write(&k, "to", "full/f", "mine", 4, 0);
    kit_write(&k, "to", "file", "mine", 4, 0);
    ck_assert_int_eq(mkdir("other", 0700), 0);
    ck_assert_int_eq(symlink("other", "link"), 0);
    ck_assert_int_eq(symlink("nowhere", "dangling"), 0);
    ck_assert_int_eq(mkfifo("pipe", 0600), 0);
    static const char *const taken[] = {"full", "file", "link", "dangling", "pipe", "file/"};
    for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
        snprintf(text, sizeof(text), "%s/%s", to, taken[i]);
        ck_fails(fetch(text), CAIRN_BUSY);
    }
    ck_assert_uint_eq(entries("full"), 1);
    ck_assert_uint_eq(entries("other"), 0);
    struct stat st;
    ck_assert(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
    ck_assert(lstat("file", &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 4);

    /* No name to make. */
    static const char *const nameless[] = {"", ".", "..", "/", "./", "../", "a/.", "a/..", "a/../"};
    for (size_t i = 0; i < ARRAY_SIZE(nameless); i++)
        ck_fails(fetch(nameless[i]), CAIRN_INVALID);
    memset(text, 'n', 255);
    text[255] = 0;
    ck_fails(fetch(text), CAIRN_INVALID);
    text[220] = 0;
    ck_ok(fetch(text));
    kit_same_folder(r, text);
    ck_fails(fetch("missing/out"), CAIRN_NOT_FOUND);
    ck_fails(fetch("file/out"), CAIRN_NOT_FOUND);
    size_t n = entries(".");
    ck_assert_uint_eq(n, 10);
    ck_assert_int_eq(chdir(cwd), 0);
    stop();
}
END_TEST

/* ---- What does not end well ---- */

struct stopper {
    struct cairn_cancel *cancel;
    int calls;
};

static void cancel_soon(void *ctx, uint64_t done, uint64_t total)
{
    struct stopper *s = ctx;
    ck_assert_uint_le(done, total);
    if (++s->calls == 2)
        cairn_cancel_fire(s->cancel);
}

START_TEST(test_fetch__cancelled_in_the_middle_it_leaves_nothing)
{
    start(&(struct kit_options){.workers = 1});
    cairn_record_close(r);
    kit_fill(&k, "big", "m", 32 << 20, 0, 1);
    kit_fill(&k, "big", "d/e/e/p/n", 32 << 20, 0, 2);
    ck_ok(kit_publish(&k, CK_B, "big", NULL, NULL, &err));
    ck_ok(cairn_record_open(k.s, NULL, CK_B, &r, &err));
    struct stopper s = {0};
    ck_ok(cairn_cancel_new(&s.cancel, &err));
    struct cairn_op op;
    cairn_op_init(&op, -1, s.cancel);
    struct cairn_progress p = {cancel_soon, &s};
    size_t before = kit_descriptors();
    ck_fails(cairn_record_fetch(r, &op, kit_path(&k, "to", "out"), &p, &result, &err),
             CAIRN_CANCELLED);
    ck_assert_int_ge(s.calls, 2);
    ck_assert_uint_eq(entries(kit_path(&k, "to", NULL)), 0);
    ck_assert_uint_le(kit_descriptors(), before + 2); /* packs stay open */
    cairn_cancel_free(s.cancel);
    cairn_op_init(&op, 0, NULL);
    ck_fails(cairn_record_fetch(r, &op, kit_path(&k, "to", "out"), NULL, &result, &err),
             CAIRN_TIMEOUT);
    ck_assert_uint_eq(entries(kit_path(&k, "to", NULL)), 0);
    ck_ok(fetch(kit_path(&k, "to", "out")));
    kit_same_folder(r, kit_path(&k, "to", "out"));
    stop();
}
END_TEST

START_TEST(test_fetch__a_damaged_chunk_leaves_nothing)
{
    start(&(struct kit_options){.compression = CAIRN_COMPRESSION_NONE});
    kit_damage(&k, kit_first(&k, LAYOUT_PACKS), 4096 + 7);
    ck_fails(fetch(kit_path(&k, "to", "out")), CAIRN_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.message, "packs/"));
    ck_assert_uint_eq(entries(kit_path(&k, "to", NULL)), 0);
    stop();
}
END_TEST

START_TEST(test_fetch__what_a_killed_fetch_left_is_removed_and_a_live_one_is_not)
{
    start(NULL);
    kit_write(&k, "to", ".out.cairn-0123456789abcdef/d/f", "left", 4, 0);
    kit_write(&k, "to", ".out.cairn-00000000000000aa/d/f", "live", 4, 0);
    kit_write(&k, "to", ".other.cairn-0123456789abcdef/f", "not ours", 8, 0);
    kit_write(&k, "to", ".out.cairn-short/f", "no name of ours", 15, 0);
    ck_assert_int_eq(symlink("..", kit_path(&k, "to", ".out.cairn-0123456789abcdef/up")), 0);
    CLEANUP_FD int live =
        open(kit_path(&k, "to", ".out.cairn-00000000000000aa"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(flock(live, LOCK_EX), 0);
    ck_ok(fetch(kit_path(&k, "to", "out")));
    kit_same_folder(r, kit_path(&k, "to", "out"));
    ck_assert_int_ne(access(kit_path(&k, "to", ".out.cairn-0123456789abcdef"), F_OK), 0);
    ck_assert_int_eq(access(kit_path(&k, "to", ".out.cairn-00000000000000aa/d/f"), F_OK), 0);
    ck_assert_int_eq(access(kit_path(&k, "to", ".other.cairn-0123456789abcdef/f"), F_OK), 0);
    ck_assert_int_eq(access(kit_path(&k, "to", ".out.cairn-short/f"), F_OK), 0);
    stop();
}
END_TEST

/* ---- Trees ---- */

/* Levels of folders, a file at the bottom. */
static void deep_tree(int root, int levels)
{
    CLEANUP_FD int at = dup(root);
    for (int i = 0; i < levels; i++) {
        ck_assert_int_eq(mkdirat(at, "d", 0700), 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ck_assert_int_ge(next, 0);
        close(at);
        at = next;
    }
    CLEANUP_FD int fd = openat(at, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
}

START_TEST(test_fetch__a_tree_of_any_depth_is_removed)
{
    CLEANUP_FD int root = open(testing_tmpdir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(mkdirat(root, "t", 0700), 0);
    CLEANUP_FD int t = openat(root, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    deep_tree(t, 3000);
    struct rlimit few;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &few), 0);
    rlim_t was = few.rlim_cur;
    few.rlim_cur = 64;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    int rc = tree_remove(root, "t", &err);
    few.rlim_cur = was;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_ok(rc);
    ck_assert_int_ne(faccessat(root, "t", F_OK, 0), 0);
    ck_ok(tree_remove(root, "t", &err));
}
END_TEST

START_TEST(test_fetch__a_tree_is_removed_without_following_links)
{
    CLEANUP_FD int root = open(testing_tmpdir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(mkdirat(root, "keep", 0700), 0);
    ck_assert_int_eq(mkdirat(root, "keep/d", 0700), 0);
    ck_assert_int_eq(mkdirat(root, "t", 0700), 0);
    ck_assert_int_eq(mkdirat(root, "t/sub", 0700), 0);
    ck_assert_int_eq(symlinkat("../keep", root, "t/link"), 0);
    ck_assert_int_eq(symlinkat("../../keep", root, "t/sub/link"), 0);
    ck_assert_int_eq(mkfifoat(root, "t/sub/pipe", 0600), 0);
    /* Names that a removal might use itself, and folders of the same name at every level. */
    ck_assert_int_eq(mkdirat(root, "t/sub/sub", 0700), 0);
    ck_assert_int_eq(mkdirat(root, "t/sub/sub/sub", 0700), 0);
    char name[64];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "t/sub/%d", i);
        ck_assert_int_eq(mkdirat(root, name, 0700), 0);
        snprintf(name, sizeof(name), "t/sub/%d/%d", i, i);
        ck_assert_int_eq(mkdirat(root, name, 0700), 0);
    }
    ck_ok(tree_remove(root, "t", &err));
    ck_assert_int_ne(faccessat(root, "t", F_OK, 0), 0);
    ck_assert_int_eq(faccessat(root, "keep/d", F_OK, 0), 0);
    ck_assert_int_eq(symlinkat("keep", root, "t"), 0);
    ck_ok(tree_remove(root, "t", &err));
    ck_assert_int_eq(faccessat(root, "keep/d", F_OK, 0), 0);
}
END_TEST

START_TEST(test_fetch__1900_levels_deep)
{
    kit_start(&k, NULL);
    ck_assert_int_eq(mkdir(kit_path(&k, "deep", NULL), 0700), 0);
    CLEANUP_FD int root = open(kit_path(&k, "deep", NULL), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    deep_tree(root, 1900);
    ck_ok(kit_publish(&k, CK_A, "deep", NULL, NULL, &err));
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    struct cairn_file f;
    cairn_record_file(r, 0, &f);
    ck_assert_uint_eq(strlen(f.path), 3801);
    ck_assert_int_eq(mkdir(kit_path(&k, "to", NULL), 0700), 0);
    ck_ok(fetch(kit_path(&k, "to", "out")));
    CLEANUP_FD int out = open(kit_path(&k, "to", "out"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(faccessat(out, f.path, F_OK, 0), 0);
    stop();
}
END_TEST

TESTING_MAIN(fetch, test_fetch__the_export_comes_back_holes_and_all,
             test_fetch__a_new_target_is_private_and_one_that_was_there_keeps_its_mode,
             test_fetch__targets, test_fetch__cancelled_in_the_middle_it_leaves_nothing,
             test_fetch__a_damaged_chunk_leaves_nothing,
             test_fetch__what_a_killed_fetch_left_is_removed_and_a_live_one_is_not,
             test_fetch__a_tree_of_any_depth_is_removed,
             test_fetch__a_tree_is_removed_without_following_links, test_fetch__1900_levels_deep)
