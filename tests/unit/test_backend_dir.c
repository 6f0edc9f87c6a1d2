/* What only a directory store can get wrong: links, folders, devices, leftovers, odd names. The
 * rest is the contract suite's (tests/contract). */
#include "base/util.h"
#include "store/backend_dir.h"
#include "tests/lib/objects.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ID "ck_0123456789abcdef"

static const char *root;
static struct backend *b;
static struct cairn_error err;

static void open_store(void)
{
    root = testing_tmpdir();
    ck_ok(backend_dir_open(root, &b, &err));
}

static const char *path_of(const char *name)
{
    static char path[4][PATH_MAX];
    static unsigned turn;
    char *out = path[turn++ % 4];
    snprintf(out, PATH_MAX, "%s/%s", root, name);
    return out;
}

static void make_folder(const char *name)
{
    ck_assert_int_eq(mkdir(path_of(name), 0700), 0);
}

static void make_file(const char *path, const char *text)
{
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static int put(const char *key, const char *text)
{
    return b->ops->put(b, NULL, key, text, strlen(text), &err);
}

static const char *keys_of(const char *prefix)
{
    return objects_keys(b, prefix, "");
}

/* ---- Links and other things that are no files ---- */

static void links_are_never_followed(bool openat2)
{
    const char *outside = testing_tmpdir();
    char target[PATH_MAX], inner[PATH_MAX];
    snprintf(target, sizeof(target), "%s/secret", outside);
    make_file(target, "secret");
    open_store();
    dir_of(b)->openat2 = openat2;
    make_folder("records");
    make_folder("packs");
    make_folder("tmp");
    snprintf(inner, sizeof(inner), "%s/" ID, outside);
    ck_assert_int_eq(mkdir(inner, 0700), 0);
    ck_assert_int_eq(symlink(target, path_of("packs/link")), 0);
    ck_assert_int_eq(symlink(outside, path_of("packs/aa")), 0);
    ck_assert_int_eq(symlink(inner, path_of("records/" ID)), 0);
    ck_assert_int_eq(symlink("nowhere", path_of("packs/dangling")), 0);
    ck_assert_int_eq(symlink("../packs", path_of("records/inside")), 0);
    static const char *const keys[] = {"packs/link", "packs/aa/secret", "packs/dangling",
                                       "records/inside/link", "records/" ID "/meta.json"};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        CLEANUP_BUF struct buf out = BUF_INIT(100);
        struct backend_stat st;
        char bytes[4];
        int fd;
        ck_fails(b->ops->get(b, NULL, keys[i], 100, &out, NULL, &err), CAIRN_PERMANENT);
        ck_assert_int_eq(err.sys_errno, ELOOP);
        ck_fails(b->ops->read(b, NULL, keys[i], 0, bytes, 4, &err), CAIRN_PERMANENT);
        ck_fails(b->ops->stat(b, NULL, keys[i], &st, &err), CAIRN_PERMANENT);
        ck_fails(b->ops->open_fd(b, NULL, keys[i], &fd, &err), CAIRN_PERMANENT);
    }
    /* Nothing is written through one, nor removed behind it. */
    int lock;
    struct backend_upload *up;
    struct backend_iter *it;
    ck_fails(put("packs/aa/new", "x"), CAIRN_PERMANENT);
    ck_fails(b->ops->stage(b, NULL, ID, "0123456789abcdef", "{}", 2, &err), CAIRN_PERMANENT);
    ck_fails(b->ops->commit(b, NULL, ID, "0123456789abcdef", "{}", 2, false, &err),
             CAIRN_PERMANENT);
    ck_fails(b->ops->lock(b, NULL, ID, &lock, &err), CAIRN_PERMANENT);
    ck_ok(b->ops->upload_new(b, NULL, &up, &err));
    ck_fails(b->ops->upload_commit(up, NULL, "packs/aa/new", 0, &err), CAIRN_PERMANENT);
    ck_fails(backend_remove_one(b, NULL, "packs/aa/secret", &err), CAIRN_PERMANENT);
    ck_fails(b->ops->list(b, NULL, "packs/aa/", "", &it, &err), CAIRN_PERMANENT);
    b->ops->unlock(b, ID, -1);
    b->ops->unstage(b, ID, "0123456789abcdef");
    ck_assert_int_eq(access(target, F_OK), 0);
    ck_assert_int_eq(access(inner, F_OK), 0);
    ck_assert_str_eq(keys_of(""),
                     "packs/aa packs/dangling packs/link records/" ID " records/inside");
    /* The link itself is a thing to be put over and to be removed. */
    ck_ok(put("packs/link", "mine"));
    ck_ok(backend_remove_one(b, NULL, "packs/link", &err));
    ck_ok(backend_remove_one(b, NULL, "packs/dangling", &err));
    CLEANUP_FD int fd = open(target, O_RDONLY);
    char text[16];
    ck_assert_int_eq(read(fd, text, sizeof(text)), 6);
    ck_assert_str_eq(keys_of(""), "packs/aa records/" ID " records/inside");
    /* And tmp/ as a link is refused too. */
    ck_assert_int_eq(rmdir(path_of("tmp")), 0);
    ck_assert_int_eq(symlink(outside, path_of("tmp")), 0);
    ck_fails(put("packs/new", "x"), CAIRN_PERMANENT);
    ck_fails(b->ops->upload_new(b, NULL, &up, &err), CAIRN_PERMANENT);
    backend_free(b);
}

START_TEST(test_backend_dir__links_are_never_followed)
{
    links_are_never_followed(true);
}
END_TEST

START_TEST(test_backend_dir__links_are_never_followed_without_openat2)
{
    links_are_never_followed(false);
}
END_TEST

START_TEST(test_backend_dir__fifos_and_sockets_hang_nobody_and_are_named)
{
    open_store();
    make_folder("packs");
    ck_assert_int_eq(mkfifo(path_of("packs/fifo"), 0600), 0);
    CLEANUP_BUF struct buf out = BUF_INIT(100);
    struct backend_stat st;
    ck_fails(b->ops->get(b, NULL, "packs/fifo", 100, &out, NULL, &err), CAIRN_PERMANENT);
    ck_fails(b->ops->stat(b, NULL, "packs/fifo", &st, &err), CAIRN_PERMANENT);
    if (mknod(path_of("packs/zero"), S_IFCHR | 0600, 1 << 8 | 5) == 0) {
        ck_fails(b->ops->get(b, NULL, "packs/zero", 100, &out, NULL, &err), CAIRN_PERMANENT);
        ck_assert_int_eq(unlink(path_of("packs/zero")), 0);
    }
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    struct backend_entry e;
    ck_ok(b->ops->list(b, NULL, "packs/", "", &it, &err));
    ck_ok(it->ops->iter_next(it, NULL, &e, &err));
    ck_assert_str_eq(e.key, "packs/fifo");
    ck_assert_uint_eq(e.stat.size, 0);
    backend_free(b);
}
END_TEST

/* ---- Keys and names ---- */

START_TEST(test_backend_dir__keys_that_lead_elsewhere_are_invalid)
{
    open_store();
    make_folder("a");
    static const char *const keys[] = {"",       "/",    "/etc/passwd", "a/",    "a//b", "../x",
                                       "a/../b", "a/..", "./a",         "a/./b", ".",    ".."};
    for (int walk = 0; walk < 2; walk++) {
        dir_of(b)->openat2 = !walk;
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
            struct backend_stat st;
            struct backend_upload *up;
            ck_fails(put(keys[i], "x"), CAIRN_INVALID);
            ck_fails(b->ops->stat(b, NULL, keys[i], &st, &err), CAIRN_INVALID);
            ck_fails(backend_remove_one(b, NULL, keys[i], &err), CAIRN_INVALID);
            ck_ok(b->ops->upload_new(b, NULL, &up, &err));
            ck_fails(b->ops->upload_commit(up, NULL, keys[i], 0, &err), CAIRN_INVALID);
        }
        struct backend_iter *it;
        ck_fails(b->ops->list(b, NULL, "../", "", &it, &err), CAIRN_INVALID);
        ck_fails(b->ops->list(b, NULL, "/etc/", "", &it, &err), CAIRN_INVALID);
        ck_fails(b->ops->list(b, NULL, "a//", "", &it, &err), CAIRN_INVALID);
    }
    ck_assert_str_eq(keys_of(""), "");
    backend_free(b);
}
END_TEST

START_TEST(test_backend_dir__foreign_names_are_listed_as_they_are)
{
    open_store();
    char name[NAME_MAX + 1], want[2048], long_key[NAME_MAX + 32];
    memset(name, 'n', NAME_MAX);
    name[NAME_MAX] = 0;
    make_folder("records");
    snprintf(long_key, sizeof(long_key), "records/%s", name);
    make_file(path_of(long_key), "long");
    make_file(path_of("records/\x01\r\n\x7f"), "control");
    make_file(path_of("records/\xff\xfe"), "no utf-8");
    make_folder("records/\t");
    make_file(path_of("records/\t/ x"), "");
    snprintf(want, sizeof(want), "records/\x01\r\n\x7f records/\t/ x %s records/\xff\xfe",
             long_key);
    ck_assert_str_eq(keys_of(""), want);
    struct backend_stat st;
    ck_ok(b->ops->stat(b, NULL, "records/\x01\r\n\x7f", &st, &err));
    ck_ok(b->ops->stat(b, NULL, long_key, &st, &err));
    ck_assert_uint_eq(st.size, 4);
    /* An error about one is fit for a terminal. */
    ck_fails(b->ops->stat(b, NULL, "records/\x1b[2J", &st, &err), CAIRN_NOT_FOUND);
    ck_assert_ptr_null(strchr(err.message, 0x1b));
    ck_assert_ptr_nonnull(strstr(err.message, "\\x1b[2J"));
    backend_free(b);
}
END_TEST

START_TEST(test_backend_dir__a_bottomless_tree_ends_as_one_key)
{
    open_store();
    char path[PATH_MAX] = "d";
    for (int i = 0; i < 60; i++) {
        make_folder(path);
        memcpy(path + strlen(path), "/d", 3);
    }
    make_file(path_of("e"), "");
    const char *keys = keys_of("");
    ck_assert_str_eq(keys + strlen(keys) - 4, "/d e");
    ck_assert_uint_eq(strlen(keys), 32 * 2 - 1 + 2);
    backend_free(b);
}
END_TEST

START_TEST(test_backend_dir__lost_and_found_is_the_file_systems)
{
    open_store();
    make_folder("lost+found");
    make_file(path_of("lost+found/#123"), "");
    make_folder("records");
    make_folder("records/lost+found");
    make_file(path_of("records/lost+found/x"), "");
    ck_assert_str_eq(keys_of(""), "records/lost+found/x");
    backend_free(b);
}
END_TEST

/* ---- What is left behind ---- */

START_TEST(test_backend_dir__a_root_that_vanished_is_never_not_found)
{
    open_store();
    ck_ok(put("records/" ID "/meta.json", "{}"));
    struct backend_iter *it;
    struct backend_entry e;
    ck_ok(b->ops->list(b, NULL, "", "", &it, &err));
    ck_ok(backend_remove_one(b, NULL, "records/" ID "/meta.json", &err));
    ck_assert_int_eq(rmdir(path_of("records/" ID)), 0);
    ck_assert_int_eq(rmdir(path_of("records")), 0);
    ck_assert_int_eq(rmdir(path_of("tmp")), 0);
    ck_assert_int_eq(rmdir(root), 0);
    CLEANUP_BUF struct buf out = BUF_INIT(100);
    struct backend_stat st;
    struct backend_upload *up;
    bool there;
    int lock;
    uint64_t a, t;
    ck_fails(it->ops->iter_next(it, NULL, &e, &err), CAIRN_PERMANENT);
    it->ops->iter_free(it);
    ck_fails(b->ops->get(b, NULL, "format.json", 100, &out, NULL, &err), CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, root));
    ck_fails(b->ops->stat(b, NULL, "format.json", &st, &err), CAIRN_PERMANENT);
    ck_fails(backend_exists(b, NULL, "format.json", &there, &err), CAIRN_PERMANENT);
    ck_fails(put("format.json", "{}"), CAIRN_PERMANENT);
    ck_fails(backend_remove_one(b, NULL, "format.json", &err), CAIRN_PERMANENT);
    ck_fails(b->ops->list(b, NULL, "records/", "", &it, &err), CAIRN_PERMANENT);
    ck_fails(b->ops->list(b, NULL, "", "", &it, &err), CAIRN_PERMANENT);
    ck_fails(b->ops->upload_new(b, NULL, &up, &err), CAIRN_PERMANENT);
    ck_fails(b->ops->commit(b, NULL, ID, "0123456789abcdef", "{}", 2, true, &err), CAIRN_PERMANENT);
    ck_fails(b->ops->lock(b, NULL, ID, &lock, &err), CAIRN_PERMANENT);
    ck_fails(b->ops->space(b, &a, &t, &err), CAIRN_PERMANENT);
    backend_free(b);
    ck_fails(backend_dir_open(root, &b, &err), CAIRN_PERMANENT);
    ck_assert_int_eq(err.sys_errno, ENOENT);
}
END_TEST

START_TEST(test_backend_dir__a_live_temporary_file_is_locked_and_a_dead_one_is_not)
{
    open_store();
    struct backend_upload *up;
    ck_ok(b->ops->upload_new(b, NULL, &up, &err));
    ck_assert_str_eq(keys_of(LAYOUT_TMP), up->tmp_name);
    CLEANUP_FD int fd = open(path_of(up->tmp_name), O_RDONLY);
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), -1);
    ck_assert_int_eq(errno, EWOULDBLOCK);
    b->ops->upload_abort(up);
    ck_assert_str_eq(keys_of(""), "");

    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (b->ops->upload_new(b, NULL, &up, &err) == CAIRN_OK)
            _exit(write(up->fd, "x", 1) != 1);
        _exit(1);
    }
    int status = 1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    const char *left = keys_of(LAYOUT_TMP);
    ck_assert_uint_eq(strlen(left), strlen("tmp/") + 32);
    CLEANUP_FD int dead = open(path_of(left), O_RDONLY);
    ck_assert_int_eq(flock(dead, LOCK_EX | LOCK_NB), 0);
    backend_free(b);
}
END_TEST

START_TEST(test_backend_dir__failures_leave_no_temporary_file)
{
    open_store();
    ck_ok(put("a/object", "x"));
    ck_ok(put("file", "x"));
    struct backend_upload *up;
    ck_fails(put("file/x", "x"), CAIRN_PERMANENT); /* beneath a file */
    ck_fails(put("a", "x"), CAIRN_PERMANENT);      /* over a folder */
    char long_key[300] = "a/";
    memset(long_key + 2, 'n', 256);
    ck_fails(put(long_key, "x"), CAIRN_INVALID);
    ck_ok(b->ops->upload_new(b, NULL, &up, &err));
    ck_fails(b->ops->upload_commit(up, NULL, "file/x", 0, &err), CAIRN_PERMANENT);
    ck_ok(b->ops->upload_new(b, NULL, &up, &err));
    ck_fails(b->ops->upload_commit(up, NULL, "file", 0, &err), CAIRN_BUSY); /* never replaces */
    ck_assert_str_eq(keys_of(""), "a/object file");
    backend_free(b);
}
END_TEST

static mode_t mode_of(const char *name)
{
    struct stat st;
    ck_assert_int_eq(stat(path_of(name), &st), 0);
    return st.st_mode & 07777;
}

START_TEST(test_backend_dir__fresh_folders_lose_their_mark_once_durable)
{
    open_store();
    int lock;
    ck_ok(put("packs/aa/x", "x"));
    ck_assert_int_eq(mode_of("packs"), 0700);
    ck_assert_int_eq(mode_of("packs/aa"), 0700);
    ck_assert_int_eq(mode_of("tmp"), 0700);
    /* Neither a lock nor a stage promises anything; the commit does. */
    ck_ok(b->ops->lock(b, NULL, ID, &lock, &err));
    ck_assert_int_eq(mode_of("records"), DIR_FOLDER_UNSYNCED);
    ck_ok(b->ops->stage(b, NULL, ID, "0123456789abcdef", "{}", 2, &err));
    ck_assert_int_eq(mode_of("records/" ID), DIR_FOLDER_UNSYNCED);
    ck_ok(b->ops->commit(b, NULL, ID, "0123456789abcdef", "{}", 2, true, &err));
    ck_assert_int_eq(mode_of("records"), 0700);
    ck_assert_int_eq(mode_of("records/" ID), 0700);
    ck_ok(backend_remove_one(b, NULL, "records/" ID "/meta.json", &err));
    b->ops->unlock(b, ID, lock);
    ck_assert_int_ne(access(path_of("records/" ID), F_OK), 0);
    /* As a maker that was killed leaves it. */
    ck_assert_int_eq(chmod(path_of("packs"), DIR_FOLDER_UNSYNCED), 0);
    ck_assert_int_eq(chmod(path_of("packs/aa"), DIR_FOLDER_UNSYNCED), 0);
    ck_ok(put("packs/aa/y", "y"));
    ck_assert_int_eq(mode_of("packs"), 0700);
    ck_assert_int_eq(mode_of("packs/aa"), 0700);
    /* A shared folder's sticky bit is not ours to take. */
    ck_assert_int_eq(chmod(path_of("packs/aa"), 01777), 0);
    ck_ok(put("packs/aa/z", "z"));
    ck_assert_int_eq(mode_of("packs/aa"), 01777);
    backend_free(b);
}
END_TEST

static atomic_bool stop;

static void *take_folders_away(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        rmdir(path_of("gc/dead"));
        rmdir(path_of("gc"));
    }
    return NULL;
}

START_TEST(test_backend_dir__put_makes_folders_again_that_others_take_away)
{
    open_store();
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, take_folders_away, NULL), 0);
    for (int i = 0; i < 200; i++) {
        int rc = put("gc/dead/x", "x");
        if (rc == CAIRN_TRANSIENT) /* said so, and leaves nothing */
            continue;
        ck_ok(rc);
        ck_assert_str_eq(keys_of("gc/"), "gc/dead/x");
        ck_ok(backend_remove_one(b, NULL, "gc/dead/x", &err));
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    ck_assert_str_eq(keys_of(""), "");
    backend_free(b);
}
END_TEST

static void *churn_names(void *arg)
{
    (void)arg;
    char path[PATH_MAX];
    for (unsigned i = 0; !atomic_load(&stop); i++) {
        snprintf(path, sizeof(path), "%s/gc/x%02u", root, i % 100);
        CLEANUP_FD int fd = i % 200 < 100 ? open(path, O_CREAT | O_WRONLY, 0600) : -1;
        if (fd < 0)
            unlink(path);
    }
    return NULL;
}

START_TEST(test_backend_dir__a_folder_that_changes_while_it_is_read_has_each_name_once)
{
    open_store();
    make_folder("gc");
    char name[32];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "gc/s%02d", i);
        make_file(path_of(name), "");
    }
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, churn_names, NULL), 0);
    for (int round = 0; round < 500; round++) {
        CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
        struct backend_entry e;
        char last[32] = "";
        int stable = 0;
        ck_ok(b->ops->list(b, NULL, "gc/", "", &it, &err));
        for (;;) {
            ck_ok(it->ops->iter_next(it, NULL, &e, &err));
            if (!e.key)
                break;
            ck_assert_str_gt(e.key, last);
            snprintf(last, sizeof(last), "%s", e.key);
            stable += e.key[3] == 's';
        }
        ck_assert_int_eq(stable, 100);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    backend_free(b);
}
END_TEST

static const char *folders_of(const char *prefix, const char *after)
{
    static char text[4096];
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    size_t n = 0;
    text[0] = 0;
    ck_ok(b->ops->list_folders(b, NULL, prefix, after, &it, &err));
    for (;;) {
        struct backend_entry e;
        ck_ok(it->ops->iter_next(it, NULL, &e, &err));
        if (!e.key)
            return text;
        struct stat st;
        ck_assert_int_eq(stat(path_of(e.key), &st), 0);
        ck_assert_int_eq(e.stat.mtime_ns, st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s ", e.key);
    }
}

START_TEST(test_backend_dir__folders_are_listed_by_themselves)
{
    open_store();
    ck_assert_str_eq(folders_of("records/", ""), "");
    ck_ok(put("records/b/meta.json", "1"));
    ck_ok(put("records/a/export-1", "1"));
    ck_ok(put("records/a/deep/er", "1"));
    ck_ok(put("records/ab/x", "1"));
    ck_ok(put("records/file", "1"));
    ck_assert_int_eq(symlink("a", path_of("records/link")), 0);
    make_folder("records/empty");
    ck_assert_str_eq(folders_of("records/", ""),
                     "records/a/ records/ab/ records/b/ records/empty/ ");
    ck_assert_str_eq(folders_of("records/a", ""), "records/a/ records/ab/ ");
    ck_assert_str_eq(folders_of("records/", "records/a0"),
                     "records/ab/ records/b/ records/empty/ ");
    ck_assert_str_eq(folders_of("records/", "records/b0"), "records/empty/ ");
    ck_assert_str_eq(folders_of("records/x", ""), "");
    ck_assert_str_eq(folders_of("", ""), "records/ tmp/ ");
    /* One that goes meanwhile is passed over; one that becomes a file too. */
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    struct backend_entry e;
    ck_ok(b->ops->list_folders(b, NULL, "records/", "", &it, &err));
    ck_ok(it->ops->iter_next(it, NULL, &e, &err));
    ck_assert_str_eq(e.key, "records/a/");
    ck_assert_int_eq(rename(path_of("records/b"), path_of("records/c")), 0);
    ck_assert_int_eq(rmdir(path_of("records/empty")), 0);
    make_file(path_of("records/empty"), "");
    ck_ok(it->ops->iter_next(it, NULL, &e, &err));
    ck_assert_str_eq(e.key, "records/ab/");
    ck_ok(it->ops->iter_next(it, NULL, &e, &err));
    ck_assert_ptr_null(e.key);
    /* An object that comes, is replaced or goes changes its folder's time. */
    static const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    for (int i = 0; i < 3; i++) {
        struct stat st;
        ck_assert_int_eq(utimensat(AT_FDCWD, path_of("records/a"), old, 0), 0);
        if (i < 2)
            ck_ok(put("records/a/meta.json", "again"));
        else
            ck_ok(backend_remove_one(b, NULL, "records/a/meta.json", &err));
        ck_assert_int_eq(stat(path_of("records/a"), &st), 0);
        ck_assert_int_ne(st.st_mtim.tv_sec, old[0].tv_sec);
    }
    backend_free(b);
}
END_TEST

TESTING_MAIN(backend_dir, test_backend_dir__links_are_never_followed,
             test_backend_dir__links_are_never_followed_without_openat2,
             test_backend_dir__fifos_and_sockets_hang_nobody_and_are_named,
             test_backend_dir__keys_that_lead_elsewhere_are_invalid,
             test_backend_dir__foreign_names_are_listed_as_they_are,
             test_backend_dir__a_bottomless_tree_ends_as_one_key,
             test_backend_dir__lost_and_found_is_the_file_systems,
             test_backend_dir__a_root_that_vanished_is_never_not_found,
             test_backend_dir__a_live_temporary_file_is_locked_and_a_dead_one_is_not,
             test_backend_dir__failures_leave_no_temporary_file,
             test_backend_dir__fresh_folders_lose_their_mark_once_durable,
             test_backend_dir__put_makes_folders_again_that_others_take_away,
             test_backend_dir__a_folder_that_changes_while_it_is_read_has_each_name_once,
             test_backend_dir__folders_are_listed_by_themselves)
