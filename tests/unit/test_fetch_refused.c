/* What a file system refuses while a record is fetched: bytes that it lost told at close, no locks.
 * The calls are wrapped by the linker. */
#include "tests/lib/kit.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define META_A "{\"id\":\"a\"}"

int __real_close(int fd);
int __wrap_close(int fd);
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

static struct cairn_error err;
static struct kit k;
static atomic_int close_fails, flock_errno;

/* NFS and FUSE write behind, and say at close what became of it. */
int __wrap_close(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = close_fails ? readlink(link, path, sizeof(path) - 1) : 0;
    path[n > 0 ? n : 0] = 0;
    int rc = __real_close(fd);
    if (strstr(path, "/.out.cairn-") && strstr(path, "/disk") && atomic_exchange(&close_fails, 0)) {
        errno = EDQUOT;
        return -1;
    }
    return rc;
}

int __wrap_flock(int fd, int operation)
{
    if (flock_errno) {
        errno = flock_errno;
        return -1;
    }
    return __real_flock(fd, operation);
}

static int fetch(char target[512])
{
    struct cairn_record *r = NULL;
    struct cairn_fetch_result result;
    snprintf(target, 512, "%s/out", k.stage);
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    int rc = cairn_record_fetch(r, NULL, target, NULL, &result, &err);
    if (!rc)
        kit_same_folder(r, target);
    cairn_record_close(r);
    return rc;
}

static void publish(void)
{
    kit_start(&k, NULL);
    kit_fill(&k, "x", "disk", 200000, 0, 1);
    kit_fill(&k, "x", "other", 200000, 0, 2);
    ck_ok(kit_publish(&k, CK_A, "x", META_A, NULL, &err));
}

static unsigned left_behind(void)
{
    unsigned n = 0;
    DIR *dir = opendir(k.stage);
    const struct dirent *d;
    while ((d = readdir(dir)))
        n += strncmp(d->d_name, ".out.cairn-", 11) == 0;
    closedir(dir);
    return n;
}

START_TEST(test_fetch__bytes_lost_at_close_are_no_success)
{
    char target[512];
    publish();
    close_fails = 1;
    ck_fails(fetch(target), CAIRN_NO_SPACE);
    ck_assert_int_eq(close_fails, 0);
    ck_assert_int_ne(access(target, F_OK), 0);
    ck_assert_uint_eq(left_behind(), 0);
    ck_ok(fetch(target));
    kit_stop(&k);
}
END_TEST

START_TEST(test_tree__fetches_to_a_file_system_without_locks)
{
    char target[512];
    publish();
    flock_errno = EOPNOTSUPP;
    ck_ok(fetch(target));
    kit_stop(&k);
}
END_TEST

START_TEST(test_tree__leaves_no_folders_where_none_can_be_locked)
{
    char target[512];
    publish();
    flock_errno = EWOULDBLOCK;
    ck_fails(fetch(target), CAIRN_TRANSIENT);
    ck_assert_uint_eq(left_behind(), 0);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(fetch_refused, test_fetch__bytes_lost_at_close_are_no_success,
             test_tree__fetches_to_a_file_system_without_locks,
             test_tree__leaves_no_folders_where_none_can_be_locked)
