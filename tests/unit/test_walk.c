#include "store/walk.h"

#include "base/util.h"
#include "store/manifest.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

static struct cairn_error err;
static char root[256];
static int root_fd;

static void start(void)
{
    snprintf(root, sizeof(root), "%s", testing_tmpdir());
    root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(root_fd, 0);
}

static void write_file(const char *path, const char *text)
{
    CLEANUP_FD int fd = openat(root_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void folder(const char *path)
{
    ck_assert_msg(mkdirat(root_fd, path, 0700) == 0, "%s: %s", path, strerror(errno));
}

/* The walk is refused for what lies at path, and says so. */
static void refused(const char *path, const char *why)
{
    struct walk w;
    ck_fails(walk_run(root, NULL, &w, &err), CAIRN_INVALID);
    ck_assert_msg(strstr(err.message, path) && strstr(err.message, why), "%s", err.message);
    ck_assert_int_eq(w.root, -1);
    ck_assert_ptr_null(w.files);
}

START_TEST(test_walk__finds_every_file_in_the_order_of_bytes)
{
    start();
    folder("a");
    folder("a/b");
    folder("é");
    write_file("a/b/c", "1");
    write_file("a-", "22");
    write_file("a0", "333");
    write_file("\xff\xfe", "4444");
    write_file("é/z", "");
    write_file("...", "55555");
    write_file("..x", "1");
    CLEANUP_WALK struct walk w;
    ck_ok(walk_run(root, NULL, &w, &err));
    /* '-' < '/' < '0' */
    const char *want[] = {"...", "..x", "a-", "a/b/c", "a0", "é/z", "\xff\xfe"};
    ck_assert_uint_eq(w.n, ARRAY_SIZE(want));
    for (size_t i = 0; i < w.n; i++) {
        ck_assert_str_eq(w.files[i].path, want[i]);
        ck_assert_uint_eq(w.files[i].path_len, strlen(want[i]));
    }
    ck_assert_uint_eq(w.logical_bytes, 16);
    ck_assert_uint_eq(w.empty_dirs, 0);
}
END_TEST

START_TEST(test_walk__a_link_of_any_kind_is_refused)
{
    static const char *const targets[] = {"file", "sub", "nowhere", "/etc/passwd", ".", "l"};
    start();
    write_file("file", "x");
    folder("sub");
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        ck_assert_int_eq(symlinkat(targets[i], root_fd, "sub/l"), 0);
        refused("sub/l", "a symbolic link");
        ck_assert_int_eq(unlinkat(root_fd, "sub/l", 0), 0);
    }
}
END_TEST

START_TEST(test_walk__what_is_no_file_is_refused_by_name)
{
    start();
    folder("sub");
    ck_assert_int_eq(mkfifoat(root_fd, "sub/pipe", 0600), 0);
    refused("sub/pipe", "a fifo");
    ck_assert_int_eq(unlinkat(root_fd, "sub/pipe", 0), 0);

    CLEANUP_FD int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof(name.sun_path), "%.80s/sub/sock", root);
    ck_assert_int_eq(bind(s, (struct sockaddr *)&name, sizeof(name)), 0);
    refused("sub/sock", "a socket");
    ck_assert_int_eq(unlinkat(root_fd, "sub/sock", 0), 0);

    /* Only root can make one. */
    if (mknodat(root_fd, "sub/null", S_IFCHR | 0600, makedev(1, 3)) == 0) {
        refused("sub/null", "a device");
        ck_assert_int_eq(unlinkat(root_fd, "sub/null", 0), 0);
    }
}
END_TEST

START_TEST(test_walk__the_folder_may_be_reached_through_a_link_but_must_be_one)
{
    start();
    folder("real");
    write_file("real/f", "x");
    char path[300];
    ck_assert_int_eq(symlinkat("real", root_fd, "link"), 0);
    snprintf(path, sizeof(path), "%s/link", root);
    struct walk w;
    ck_ok(walk_run(path, NULL, &w, &err));
    ck_assert_uint_eq(w.n, 1);
    walk_release(&w);
    snprintf(path, sizeof(path), "%s/real/f", root);
    ck_fails(walk_run(path, NULL, &w, &err), CAIRN_NOT_FOUND);
    snprintf(path, sizeof(path), "%s/no\nwhere", root);
    ck_fails(walk_run(path, NULL, &w, &err), CAIRN_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.message, "no\\x0awhere"));
}
END_TEST

/* Folders inside each other, each name n bytes long, then a file: len bytes in all. */
static void deep_file(size_t n, size_t len)
{
    char name[256];
    memset(name, 'd', n);
    name[n] = 0;
    CLEANUP_FD int at = dup(root_fd);
    size_t have = 0;
    while (len - have > 255) {
        ck_assert(mkdirat(at, name, 0700) == 0 || errno == EEXIST);
        int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ck_assert_int_ge(next, 0);
        close(at);
        at = next;
        have += n + 1;
    }
    memset(name, 'f', 255);
    name[len - have] = 0;
    CLEANUP_FD int fd = openat(at, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
}

START_TEST(test_walk__the_longest_path_is_fine_and_one_more_byte_is_not)
{
    start();
    deep_file(200, MANIFEST_PATH_MAX);
    CLEANUP_WALK struct walk w;
    ck_ok(walk_run(root, NULL, &w, &err));
    ck_assert_uint_eq(w.n, 1);
    ck_assert_uint_eq(w.files[0].path_len, MANIFEST_PATH_MAX);
    ck_assert(manifest_path_is_valid(w.files[0].path, w.files[0].path_len));
    int fd;
    ck_ok(walk_open(&w, 0, &fd, &err));
    close(fd);
    deep_file(200, MANIFEST_PATH_MAX + 1);
    refused("export: path of more than 4095 bytes", "ddddd");
}
END_TEST

START_TEST(test_walk__a_name_of_255_bytes_is_fine)
{
    start();
    char name[256];
    memset(name, 'n', 255);
    name[255] = 0;
    folder(name);
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", name, name);
    write_file(path, "x");
    CLEANUP_WALK struct walk w;
    ck_ok(walk_run(root, NULL, &w, &err));
    ck_assert_str_eq(w.files[0].path, path);
    int fd;
    ck_ok(walk_open(&w, 0, &fd, &err));
    close(fd);
}
END_TEST

/* However deep, a walk needs neither a descriptor nor a stack for each level. */
START_TEST(test_walk__1900_levels_need_few_descriptors)
{
    start();
    deep_file(1, MANIFEST_PATH_MAX);
    struct rlimit few;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &few), 0);
    few.rlim_cur = 40;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct walk w;
    int rc = walk_run(root, NULL, &w, &err);
    few.rlim_cur = few.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_ok(rc);
    ck_assert_uint_eq(w.n, 1);
    ck_assert_uint_eq(w.files[0].path_len, MANIFEST_PATH_MAX);
    walk_release(&w);
}
END_TEST

START_TEST(test_walk__ten_thousand_files)
{
    start();
    char name[64];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "d%d", i);
        folder(name);
        for (int j = 0; j < 100; j++) {
            snprintf(name, sizeof(name), "d%d/%d", i, j);
            write_file(name, "x");
        }
    }
    CLEANUP_WALK struct walk w;
    ck_ok(walk_run(root, NULL, &w, &err));
    ck_assert_uint_eq(w.n, 10000);
    ck_assert_uint_eq(w.logical_bytes, 10000);
    for (size_t i = 1; i < w.n; i++)
        ck_assert_int_lt(strcmp(w.files[i - 1].path, w.files[i].path), 0);
}
END_TEST

START_TEST(test_walk__folders_without_files_are_counted)
{
    start();
    struct walk w;
    ck_ok(walk_run(root, NULL, &w, &err));
    ck_assert_uint_eq(w.n, 0);
    ck_assert_uint_eq(w.empty_dirs, 0);
    walk_release(&w);
    folder("empty");
    folder("nested");
    folder("nested/empty");
    folder("mixed");
    folder("mixed/empty");
    folder("mixed/sub");
    folder("mixed/sub/sub");
    write_file("mixed/sub/sub/f", "x");
    write_file("mixed/sub-", "x");
    write_file("mixed/sub0", "x");
    ck_ok(walk_run(root, NULL, &w, &err));
    ck_assert_uint_eq(w.n, 3);
    /* empty, nested, nested/empty, mixed/empty */
    ck_assert_uint_eq(w.empty_dirs, 4);
    walk_release(&w);
}
END_TEST

/* Everything the staging folder's owner can do to a file between the listing and the reading. */
START_TEST(test_walk__a_file_that_is_not_what_was_found_is_busy)
{
    static const char *const how[] = {"vanished",  "replaced", "fifo",       "socket",
                                      "link",      "folder",   "grown",      "shrunk",
                                      "rewritten", "parent",   "parent-link"};
    start();
    char outside[300];
    snprintf(outside, sizeof(outside), "%s", testing_tmpdir());
    for (size_t i = 0; i < ARRAY_SIZE(how); i++) {
        const char *h = how[i];
        folder("sub");
        write_file("sub/f", "before");
        const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
        ck_assert_int_eq(utimensat(root_fd, "sub/f", old, 0), 0);
        CLEANUP_WALK struct walk w;
        ck_ok(walk_run(root, NULL, &w, &err));
        int fd;
        ck_ok(walk_open(&w, 0, &fd, &err));
        ck_ok(walk_unchanged(&w, 0, fd, &err));
        if (strcmp(h, "grown") == 0) {
            write_file("sub/f", "before and more");
        } else if (strcmp(h, "shrunk") == 0) {
            write_file("sub/f", "b");
        } else if (strcmp(h, "rewritten") == 0) {
            write_file("sub/f", "BEFORE");
        } else {
            ck_assert_int_eq(unlinkat(root_fd, "sub/f", 0), 0);
            if (strcmp(h, "replaced") == 0) {
                /* Another file of the same name, size and time, while the old one is still open. */
                write_file("sub/f", "before");
                ck_assert_int_eq(utimensat(root_fd, "sub/f", old, 0), 0);
            } else if (strcmp(h, "fifo") == 0) {
                ck_assert_int_eq(mkfifoat(root_fd, "sub/f", 0600), 0);
            } else if (strcmp(h, "socket") == 0) {
                ck_assert_int_eq(mknodat(root_fd, "sub/f", S_IFSOCK | 0600, 0), 0);
            } else if (strcmp(h, "link") == 0) {
                ck_assert_int_eq(symlinkat("/etc/passwd", root_fd, "sub/f"), 0);
            } else if (strcmp(h, "folder") == 0) {
                folder("sub/f");
            } else if (strncmp(h, "parent", 6) == 0) {
                ck_assert_int_eq(unlinkat(root_fd, "sub", AT_REMOVEDIR), 0);
                if (h[6])
                    ck_assert_int_eq(symlinkat(outside, root_fd, "sub"), 0);
            }
        }
        ck_fails(walk_unchanged(&w, 0, fd, &err), CAIRN_BUSY);
        ck_assert_msg(strstr(err.message, "sub/f"), "%s", err.message);
        close(fd);
        ck_fails(walk_open(&w, 0, &fd, &err), CAIRN_BUSY);
        ck_assert_msg(strstr(err.message, "sub/f"), "%s: %s", h, err.message);
        unlinkat(root_fd, "sub/f", AT_REMOVEDIR);
        unlinkat(root_fd, "sub/f", 0);
        if (unlinkat(root_fd, "sub", 0) != 0)
            unlinkat(root_fd, "sub", AT_REMOVEDIR);
    }
}
END_TEST

START_TEST(test_walk__a_folder_swapped_for_a_link_leads_nowhere)
{
    start();
    char outside[300];
    snprintf(outside, sizeof(outside), "%s", testing_tmpdir());
    folder("sub");
    write_file("sub/f", "mine");
    CLEANUP_WALK struct walk w;
    ck_ok(walk_run(root, NULL, &w, &err));
    /* The very same inode, but reached through a link. */
    ck_assert_int_eq(renameat(root_fd, "sub", root_fd, "moved"), 0);
    ck_assert_int_eq(symlinkat("moved", root_fd, "sub"), 0);
    int fd;
    ck_fails(walk_open(&w, 0, &fd, &err), CAIRN_BUSY);
}
END_TEST

/* ---- A folder that is swapped for a link all the time ---- */

static atomic_bool stop_swapping;

static void *swap(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop_swapping)) {
        if (renameat2(root_fd, "top/sub", root_fd, "link", RENAME_EXCHANGE) != 0)
            break;
        if (renameat(root_fd, "top/other", root_fd, "gone") == 0)
            renameat(root_fd, "gone", root_fd, "top/other");
    }
    return NULL;
}

START_TEST(test_walk__a_race_ends_in_a_refusal_and_never_outside)
{
    start();
    char outside[300], secret[400];
    snprintf(outside, sizeof(outside), "%s", testing_tmpdir());
    snprintf(secret, sizeof(secret), "%s/secret", outside);
    CLEANUP_FD int fd = open(secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    folder("top");
    folder("top/sub");
    folder("top/other");
    write_file("top/sub/f", "mine");
    write_file("top/other/f", "mine");
    ck_assert_int_eq(symlinkat(outside, root_fd, "link"), 0);
    char top[300];
    snprintf(top, sizeof(top), "%s/top", root);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, swap, NULL), 0);
    int refusals = 0;
    for (int i = 0; i < 20000; i++) {
        struct walk w;
        int rc = walk_run(top, NULL, &w, &err);
        if (rc) {
            refusals++;
            ck_assert_msg(rc == CAIRN_BUSY || rc == CAIRN_INVALID, "%s: %s", cairn_class_name(rc),
                          err.message);
            continue;
        }
        for (size_t f = 0; f < w.n; f++)
            ck_assert_ptr_null(strstr(w.files[f].path, "secret"));
        walk_release(&w);
    }
    atomic_store(&stop_swapping, true);
    pthread_join(thread, NULL);
    ck_assert_int_gt(refusals, 0);
}
END_TEST

START_TEST(test_walk__a_spent_op_is_seen)
{
    start();
    write_file("f", "x");
    struct cairn_op op;
    cairn_op_init(&op, 0, NULL);
    struct walk w;
    ck_fails(walk_run(root, &op, &w, &err), CAIRN_TIMEOUT);
    struct cairn_cancel *cancel = NULL;
    ck_ok(cairn_cancel_new(&cancel, &err));
    cairn_cancel_fire(cancel);
    cairn_op_init(&op, -1, cancel);
    ck_fails(walk_run(root, &op, &w, &err), CAIRN_CANCELLED);
    cairn_cancel_free(cancel);
}
END_TEST

START_TEST(test_walk__shown_paths_are_cut_and_escaped)
{
    char out[WALK_SHOWN], path[4096];
    ck_assert_str_eq(walk_shown("a\nb\x7f", 4, out), "a\\x0ab\\x7f");
    memset(path, 1, sizeof(path));
    walk_shown(path, sizeof(path), out);
    ck_assert_uint_eq(strlen(out), 252 * 4 + 3);
    ck_assert_str_eq(out + 252 * 4, "...");
}
END_TEST

/* openat2 is refused from here on, in this process. */
static void forbid_openat2(int e)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)e),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {ARRAY_SIZE(code), code};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0), 0);
    ck_assert_int_eq(syscall(SYS_openat2, -1, ".", NULL, 0), -1);
    ck_assert_int_eq(errno, e);
}

static void walk_without_openat2(int e)
{
    start();
    folder("a");
    folder("a/b");
    write_file("a/b/deep", "deep");
    write_file("top", "top");
    struct walk w;
    forbid_openat2(e);
    ck_ok(walk_run(root, NULL, &w, &err));
    ck_assert_uint_eq(w.n, 2);
    for (size_t i = 0; i < w.n; i++) {
        char text[8] = "";
        int fd;
        ck_ok(walk_open(&w, i, &fd, &err));
        ck_assert_int_eq(util_pread_full(fd, text, sizeof(text), 0), (ssize_t)w.files[i].size);
        ck_assert_str_eq(text, i ? "top" : "deep");
        close(fd);
    }
    /* No link is followed, wherever it is. */
    int fd;
    ck_assert_int_eq(renameat(root_fd, "a", root_fd, "elsewhere"), 0);
    ck_assert_int_eq(symlinkat("elsewhere", root_fd, "a"), 0);
    ck_fails(walk_open(&w, 0, &fd, &err), CAIRN_BUSY);
    ck_assert_int_eq(unlinkat(root_fd, "top", 0), 0);
    ck_assert_int_eq(symlinkat("elsewhere/b/deep", root_fd, "top"), 0);
    ck_fails(walk_open(&w, 1, &fd, &err), CAIRN_BUSY);
    walk_release(&w);
}

START_TEST(test_walk__goes_name_by_name_where_openat2_is_missing)
{
    walk_without_openat2(ENOSYS);
}
END_TEST

START_TEST(test_walk__goes_name_by_name_where_openat2_is_forbidden)
{
    walk_without_openat2(EPERM);
}
END_TEST

/* What a file of /proc holds is not in its size: as many bytes as that are not the file. */
START_TEST(test_walk__more_bytes_than_a_size_says_are_refused)
{
    CLEANUP_WALK struct walk w = WALK_INIT;
    ck_ok(walk_run("/proc/self/net", NULL, &w, &err));
    const struct walk_file *f = walk_find(&w, "dev", 3);
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(f->size, 0);
    ck_assert_ptr_null(walk_find(&w, "de", 2));
    ck_assert_ptr_null(walk_find(&w, "dev ", 4));
    int fd;
    ck_fails(walk_open(&w, (size_t)(f - w.files), &fd, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "dev holds more"));
}
END_TEST

TESTING_MAIN(walk, test_walk__more_bytes_than_a_size_says_are_refused,
             test_walk__finds_every_file_in_the_order_of_bytes,
             test_walk__a_link_of_any_kind_is_refused,
             test_walk__what_is_no_file_is_refused_by_name,
             test_walk__the_folder_may_be_reached_through_a_link_but_must_be_one,
             test_walk__the_longest_path_is_fine_and_one_more_byte_is_not,
             test_walk__a_name_of_255_bytes_is_fine, test_walk__1900_levels_need_few_descriptors,
             test_walk__ten_thousand_files, test_walk__folders_without_files_are_counted,
             test_walk__a_file_that_is_not_what_was_found_is_busy,
             test_walk__a_folder_swapped_for_a_link_leads_nowhere,
             test_walk__a_race_ends_in_a_refusal_and_never_outside, test_walk__a_spent_op_is_seen,
             test_walk__shown_paths_are_cut_and_escaped,
             test_walk__goes_name_by_name_where_openat2_is_missing,
             test_walk__goes_name_by_name_where_openat2_is_forbidden)
