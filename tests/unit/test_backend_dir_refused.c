/* A directory store where the system says no: full, read-only, forbidden, or without the newer
 * system calls. The mounts need root and a mount namespace; where those cannot be had, the two
 * tests that mount fall back to what any user can do (a file-size limit, a folder without write
 * permission). */
#include "base/util.h"
#include "store/backend_dir.h"
#include "tests/lib/objects.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ID  "ck_0123456789abcdef"
#define GEN "0123456789abcdef"

static const char *root;
static struct backend *b;
static struct cairn_error err;

static const char *path_of(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    return path;
}

static int put(const char *key, const char *text)
{
    return b->ops->put(b, NULL, key, text, strlen(text), &err);
}

/* A small file system of this test's process alone. */
static bool mount_small(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("small", root, "tmpfs", 0, "size=256k,mode=0700") == 0;
}

START_TEST(test_backend_dir_refused__a_full_disk_leaves_nothing_behind)
{
    root = testing_tmpdir();
    int want = CAIRN_NO_SPACE;
    if (!mount_small()) {
        signal(SIGXFSZ, SIG_IGN);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 18, 1 << 18}), 0);
        want = CAIRN_PERMANENT; /* EFBIG */
    }
    ck_ok(backend_dir_open(root, &b, &err));
    ck_ok(put("packs/00/small", "x"));
    size_t big = 1 << 20;
    CLEANUP_FREE uint8_t *data = malloc(big);
    testing_fill(data, big, 1);
    ck_fails(b->ops->put(b, NULL, "packs/00/big", data, big, &err), want);
    ck_fails(b->ops->put(b, NULL, "packs/00/small", data, big, &err), want);
    ck_fails(b->ops->stage(b, NULL, ID, "0123456789abcdef", data, big, &err), want);
    ck_assert_uint_eq(objects_count(b, "", NULL), 1);
    struct backend_upload *up;
    ck_ok(b->ops->upload_new(b, NULL, &up, &err));
    ck_assert_int_eq(util_pwrite_full(up->fd, data, big, 0), -1);
    b->ops->upload_abort(up);
    ck_assert_uint_eq(objects_count(b, "", NULL), 1);
    CLEANUP_BUF struct buf out = BUF_INIT(10);
    ck_ok(b->ops->get(b, NULL, "packs/00/small", 10, &out, NULL, &err));
    ck_assert_uint_eq(out.len, 1);
    /* There is room again, and what is needed to delete needs none. */
    ck_ok(put("packs/00/next", "y"));
    ck_ok(backend_remove_one(b, NULL, "packs/00/next", &err));
    backend_free(b);
    umount2(root, MNT_DETACH);
}
END_TEST

static void refuses_writing(int want_errno)
{
    struct backend_upload *up;
    CLEANUP_BUF struct buf out = BUF_INIT(10);
    int lock;
    ck_fails(put("records/" ID "/meta.json", "new"), CAIRN_PERMANENT);
    ck_assert_int_eq(err.sys_errno, want_errno);
    ck_fails(put("new/folder/x", "new"), CAIRN_PERMANENT);
    ck_fails(b->ops->upload_new(b, NULL, &up, &err), CAIRN_PERMANENT);
    ck_fails(b->ops->lock(b, NULL, "ck_0000000000000000", &lock, &err), CAIRN_PERMANENT);
    bool failed = false;
    const char *key = "records/" ID "/meta.json";
    ck_fails(b->ops->remove(b, NULL, &key, 1, &failed, &err), CAIRN_PERMANENT);
    ck_assert_int_eq(err.sys_errno, want_errno);
    ck_assert(failed);
    ck_ok(b->ops->get(b, NULL, key, 10, &out, NULL, &err));
    ck_assert_mem_eq(out.data, "{}", 2);
    ck_assert_uint_eq(objects_count(b, "", NULL), 1);
}

/* The rest of the test runs without root's rights. */
static void become_nobody(void)
{
    if (geteuid() == 0) {
        ck_assert_int_eq(chmod(root, 0755), 0);
        ck_assert_int_eq(setegid(65534), 0);
        ck_assert_int_eq(seteuid(65534), 0);
    }
}

static void become_root(void)
{
    ck_assert_int_eq(seteuid(getuid()), 0);
    ck_assert_int_eq(setegid(getgid()), 0);
}

START_TEST(test_backend_dir_refused__a_read_only_store_can_be_read)
{
    root = testing_tmpdir();
    bool mounted = mount_small();
    ck_ok(backend_dir_open(root, &b, &err));
    ck_ok(put("records/" ID "/meta.json", "{}"));
    if (mounted) {
        ck_assert_int_eq(mount("small", root, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
        refuses_writing(EROFS);
    } else {
        ck_assert_int_eq(chmod(path_of("records/" ID), 0500), 0);
        ck_assert_int_eq(chmod(path_of("tmp"), 0500), 0);
        /* Somebody else's folders, all readable and none writable. */
        ck_assert_int_eq(chmod(path_of("records"), 0555), 0);
        ck_assert_int_eq(chmod(path_of("records/" ID), 0555), 0);
        ck_assert_int_eq(chmod(path_of("records/" ID "/meta.json"), 0444), 0);
        ck_assert_int_eq(chmod(path_of("tmp"), 0555), 0);
        become_nobody();
        if (geteuid() == getuid())
            ck_assert_int_eq(chmod(root, 0555), 0);
        refuses_writing(EACCES);
        become_root();
        ck_assert_int_eq(chmod(root, 0700), 0);
    }
    backend_free(b);
    umount2(root, MNT_DETACH);
}
END_TEST

START_TEST(test_backend_dir_refused__what_may_not_be_seen_is_an_error_and_no_end)
{
    root = testing_tmpdir();
    ck_ok(backend_dir_open(root, &b, &err));
    ck_ok(put("records/a/meta.json", "{}"));
    ck_ok(put("records/b/meta.json", "{}"));
    ck_ok(put("records/c/meta.json", "{}"));
    ck_assert_int_eq(chmod(path_of("records"), 0755), 0);
    ck_assert_int_eq(chmod(path_of("records/a"), 0755), 0);
    ck_assert_int_eq(chmod(path_of("records/c"), 0755), 0);
    ck_assert_int_eq(chmod(path_of("records/b"), 0), 0);
    become_nobody();
    struct backend_iter *it;
    struct backend_entry e;
    struct backend_stat st;
    bool there;
    ck_ok(b->ops->list(b, NULL, "records/", "", &it, &err));
    ck_ok(it->ops->iter_next(it, NULL, &e, &err));
    ck_assert_str_eq(e.key, "records/a/meta.json");
    for (int again = 0; again < 2; again++) { /* and it does not go on behind the gap */
        ck_fails(it->ops->iter_next(it, NULL, &e, &err), CAIRN_PERMANENT);
        ck_assert_int_eq(err.sys_errno, EACCES);
        ck_assert_ptr_null(e.key);
    }
    ck_fails(b->ops->stat(b, NULL, "records/b/meta.json", &st, &err), CAIRN_PERMANENT);
    ck_fails(backend_exists(b, NULL, "records/b/meta.json", &there, &err), CAIRN_PERMANENT);
    struct backend_iter *none;
    ck_fails(b->ops->list(b, NULL, "records/b/", "", &none, &err), CAIRN_PERMANENT);
    become_root();
    ck_assert_int_eq(chmod(path_of("records/b"), 0700), 0);
    /* What stood in the way is gone: the same listing goes on, complete. */
    ck_ok(it->ops->iter_next(it, NULL, &e, &err));
    ck_assert_str_eq(e.key, "records/b/meta.json");
    ck_ok(it->ops->iter_next(it, NULL, &e, &err));
    ck_assert_str_eq(e.key, "records/c/meta.json");
    it->ops->iter_free(it);
    backend_free(b);
}
END_TEST

START_TEST(test_backend_dir_refused__no_descriptor_left_is_transient)
{
    root = testing_tmpdir();
    ck_ok(backend_dir_open(root, &b, &err));
    ck_ok(put("records/" ID "/meta.json", "{}"));
    int next = dup(0);
    ck_assert_int_ge(next, 0);
    close(next);
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct rlimit none = {(rlim_t)next, limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    struct backend_stat st;
    struct backend_iter *it;
    ck_fails(b->ops->stat(b, NULL, "records/" ID "/meta.json", &st, &err), CAIRN_TRANSIENT);
    ck_fails(b->ops->list(b, NULL, "", "", &it, &err), CAIRN_TRANSIENT);
    ck_fails(put("x", "x"), CAIRN_TRANSIENT);
    ck_fails(backend_remove_one(b, NULL, "records/" ID "/meta.json", &err), CAIRN_TRANSIENT);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_uint_eq(objects_count(b, "", NULL), 1);
    backend_free(b);
}
END_TEST

/* From now on the system call nr fails with e in this process. */
static void refuse(int nr, int e)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)nr, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)e),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {ARRAY_SIZE(code), code};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0), 0);
}

static void works_all_the_same(void)
{
    int lock;
    struct backend_upload *up;
    ck_ok(b->ops->lock(b, NULL, ID, &lock, &err));
    ck_ok(b->ops->stage(b, NULL, ID, "0123456789abcdef", "{}", 2, &err));
    ck_ok(b->ops->commit(b, NULL, ID, "0123456789abcdef", "{}", 2, true, &err));
    ck_ok(b->ops->stage(b, NULL, ID, "0123456789abcdef", "{}", 2, &err));
    ck_fails(b->ops->commit(b, NULL, ID, "0123456789abcdef", "{}", 2, true, &err), CAIRN_BUSY);
    ck_assert_int_eq(err.sys_errno, EEXIST);
    b->ops->unstage(b, ID, "0123456789abcdef");
    ck_fails(b->ops->commit(b, NULL, ID, "fedcba9876543210", "{}", 2, true, &err), CAIRN_BUSY);
    ck_assert_int_eq(err.sys_errno, ENOENT);
    b->ops->unlock(b, ID, lock);
    ck_ok(b->ops->upload_new(b, NULL, &up, &err));
    ck_assert_int_eq(util_pwrite_full(up->fd, "pack", 4, 0), 4);
    ck_ok(b->ops->upload_commit(up, NULL, "packs/00/x", 4, &err));
    ck_ok(b->ops->upload_new(b, NULL, &up, &err));
    ck_fails(b->ops->upload_commit(up, NULL, "packs/00/x", 0, &err), CAIRN_BUSY);
    struct backend_stat st;
    ck_ok(b->ops->stat(b, NULL, "packs/00/x", &st, &err));
    ck_assert_uint_eq(st.size, 4);
    ck_fails(b->ops->stat(b, NULL, "packs/11/x", &st, &err), CAIRN_NOT_FOUND);
    ck_fails(b->ops->stat(b, NULL, "packs/00/x/y", &st, &err), CAIRN_NOT_FOUND);
    ck_assert_uint_eq(objects_count(b, "", NULL), 2);
    ck_assert_uint_eq(objects_count(b, LAYOUT_TMP, NULL), 0);
}

static void without_openat2(int sys_errno)
{
    root = testing_tmpdir();
    refuse(SYS_openat2, sys_errno);
    ck_ok(backend_dir_open(root, &b, &err));
    ck_assert(!dir_of(b)->openat2);
    works_all_the_same();
    backend_free(b);
}

START_TEST(test_backend_dir_refused__works_without_openat2)
{
    without_openat2(ENOSYS);
}
END_TEST

START_TEST(test_backend_dir_refused__works_where_openat2_is_forbidden)
{
    without_openat2(EPERM);
}
END_TEST

START_TEST(test_backend_dir_refused__works_where_rename_cannot_refuse_to_replace)
{
    root = testing_tmpdir();
    ck_ok(backend_dir_open(root, &b, &err));
    ck_assert(dir_of(b)->openat2);
    refuse(SYS_renameat2, EINVAL);
    works_all_the_same();
    backend_free(b);
}
END_TEST

START_TEST(test_backend_dir_refused__works_without_flock_and_says_so)
{
    root = testing_tmpdir();
    ck_ok(backend_dir_open(root, &b, &err));
    refuse(SYS_flock, ENOTSUP);
    int lock = 0;
    ck_ok(b->ops->lock(b, NULL, ID, &lock, &err));
    ck_assert_int_eq(lock, -1);
    b->ops->unlock(b, ID, lock);
    ck_assert_int_ne(access(path_of("records/" ID), F_OK), 0);
    works_all_the_same();
    backend_free(b);
}
END_TEST

/* What cannot be written of a staged meta is told at once, since a later fsync would not tell it
 * again; where there is no such call, fsync does it. */
START_TEST(test_backend_dir_refused__a_staged_meta_is_written_or_refused)
{
    root = testing_tmpdir();
    ck_ok(backend_dir_open(root, &b, &err));
    refuse(SYS_sync_file_range, ENOSYS);
    ck_ok(b->ops->stage(b, NULL, ID, GEN, "{}", 2, &err));
    refuse(SYS_sync_file_range, ENOSPC);
    ck_fails(b->ops->stage(b, NULL, ID, GEN, "{}", 2, &err), CAIRN_NO_SPACE);
    refuse(SYS_sync_file_range, EIO);
    ck_fails(b->ops->stage(b, NULL, ID, GEN, "{}", 2, &err), CAIRN_PERMANENT);
    ck_ok(b->ops->commit(b, NULL, ID, GEN, "{}", 2, BACKEND_ONCE, &err));
    ck_assert_uint_eq(objects_count(b, "", NULL), 1);
    backend_free(b);
}
END_TEST

START_TEST(test_backend_dir_refused__a_failing_fsync_fails_the_write)
{
    root = testing_tmpdir();
    ck_ok(backend_dir_open(root, &b, &err));
    ck_ok(put("packs/00/x", "x"));
    ck_ok(b->ops->stage(b, NULL, ID, GEN, "{}", 2, &err));
    refuse(SYS_fsync, EIO);
    /* The commit makes durable what was staged, before it is the record's. */
    ck_fails(b->ops->commit(b, NULL, ID, GEN, "{}", 2, BACKEND_ONCE, &err), CAIRN_PERMANENT);
    ck_assert_int_ne(access(path_of("records/" ID "/meta.json"), F_OK), 0);
    ck_assert_int_eq(access(path_of("records/" ID "/meta-" GEN ".staged"), F_OK), 0);
    struct backend_upload *up;
    ck_fails(put("packs/00/y", "y"), CAIRN_PERMANENT);
    ck_assert_int_eq(err.sys_errno, EIO);
    ck_ok(b->ops->upload_new(b, NULL, &up, &err));
    ck_fails(b->ops->upload_commit(up, NULL, "packs/00/z", 0, &err), CAIRN_PERMANENT);
    ck_assert_uint_eq(objects_count(b, "packs/", NULL), 1);
    bool failed = false;
    const char *key = "packs/00/x";
    ck_fails(b->ops->remove(b, NULL, &key, 1, &failed, &err), CAIRN_PERMANENT);
    ck_assert(failed);
    backend_free(b);
}
END_TEST

TESTING_MAIN(backend_dir_refused, test_backend_dir_refused__a_full_disk_leaves_nothing_behind,
             test_backend_dir_refused__a_read_only_store_can_be_read,
             test_backend_dir_refused__what_may_not_be_seen_is_an_error_and_no_end,
             test_backend_dir_refused__no_descriptor_left_is_transient,
             test_backend_dir_refused__works_without_openat2,
             test_backend_dir_refused__works_where_openat2_is_forbidden,
             test_backend_dir_refused__works_where_rename_cannot_refuse_to_replace,
             test_backend_dir_refused__works_without_flock_and_says_so,
             test_backend_dir_refused__a_staged_meta_is_written_or_refused,
             test_backend_dir_refused__a_failing_fsync_fails_the_write)
