/* Shared fetches on a state directory that is a small tmpfs (as root, in mounts of the test's own).
 */
#include "base/util.h"
#include "store/gens.h"
#include "tests/lib/kit.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define MIB (1u << 20)

static struct cairn_error err;
static struct kit k;

/* Three records, of 3, 3 and 20 MiB, and a state of 5 MiB. */
static void start(void)
{
    kit_start(&k, &(struct kit_options){.compression = CAIRN_COMPRESSION_NONE});
    kit_fill(&k, "a", "memory", 3 * MIB, 0, 1);
    kit_fill(&k, "b", "memory", 3 * MIB, 0, 2);
    kit_fill(&k, "c", "memory", 20 * MIB, 0, 3);
    ck_ok(kit_publish(&k, CK_A, "a", NULL, NULL, &err));
    ck_ok(kit_publish(&k, CK_B, "b", NULL, NULL, &err));
    ck_ok(kit_publish(&k, CK_C, "c", NULL, NULL, &err));
    cairn_close(k.s);
    ck_assert_msg(unshare(CLONE_NEWNS) == 0 &&
                      mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                      mount("cairn-test", k.state, "tmpfs", 0, "size=5m") == 0,
                  "a tmpfs cannot be mounted");
    k.s = kit_open(&k);
}

static void stop(void)
{
    kit_stop(&k);
    ck_assert_int_eq(umount(k.state), 0);
}

static void nothing_half(void)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/cache/gens", k.s->state);
    CLEANUP_DIR DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    const struct dirent *d;
    while ((d = readdir(dir)))
        ck_assert_msg(strncmp(d->d_name, ".tmp-", 5) != 0, "%s", d->d_name);
}

static void same(const char *path, const char *id)
{
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, id, &r, &err));
    kit_same_folder(r, path);
    cairn_record_close(r);
}

static int fetch(const char *id, struct cairn_fetch_shared_result *r)
{
    return cairn_fetch_shared(k.s, NULL, id, NULL, r, &err);
}

START_TEST(test_shared_space__what_cannot_fit_says_so_and_leaves_nothing)
{
    struct cairn_fetch_shared_result a, r;
    start();
    ck_ok(fetch(CK_A, &a));
    ck_fails(fetch(CK_C, &r), CAIRN_NO_SPACE);
    ck_assert_ptr_nonnull(strstr(err.message, CK_C));
    nothing_half();
    same(a.path, CK_A);
    /* What is leased is not given up for another one. */
    ck_fails(fetch(CK_B, &r), CAIRN_NO_SPACE);
    nothing_half();
    same(a.path, CK_A);
    /* With room it works, as if nothing had been. */
    ck_assert_int_eq(mount("cairn-test", k.state, "tmpfs", MS_REMOUNT, "size=40m"), 0);
    ck_ok(fetch(CK_C, &r));
    same(r.path, CK_C);
    cairn_fetch_shared_result_release(&a);
    cairn_fetch_shared_result_release(&r);
    stop();
}
END_TEST

START_TEST(test_shared_space__what_nobody_leases_makes_room)
{
    struct cairn_fetch_shared_result a, b;
    struct stat st;
    start();
    /* Whether the fetch or the budget's thread is the quicker to remove differs from time to time.
     */
    for (unsigned i = 0; i < 8; i++) {
        ck_ok(fetch(CK_A, &a));
        ck_ok(cairn_lease_release(k.s, a.lease, &err));
        ck_assert_int_eq(stat(a.path, &st), 0);
        ck_ok(fetch(CK_B, &b));
        same(b.path, CK_B);
        ck_assert_int_ne(stat(a.path, &st), 0);
        nothing_half();
        ck_ok(cairn_lease_release(k.s, b.lease, &err));
        cairn_fetch_shared_result_release(&a);
        cairn_fetch_shared_result_release(&b);
    }
    stop();
}
END_TEST

static void *call(void *arg)
{
    struct cairn_fetch_shared_result r;
    struct cairn_error mine;
    *(int *)arg = cairn_fetch_shared(k.s, NULL, CK_C, NULL, &r, &mine);
    return NULL;
}

START_TEST(test_shared_space__all_who_wait_are_told)
{
    pthread_t threads[8];
    int rc[8];
    start();
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call, &rc[i]), 0);
    for (unsigned i = 0; i < 8; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_int_eq(rc[i], CAIRN_NO_SPACE);
    }
    nothing_half();
    stop();
}
END_TEST

TESTING_MAIN(shared_space, test_shared_space__what_cannot_fit_says_so_and_leaves_nothing,
             test_shared_space__what_nobody_leases_makes_room,
             test_shared_space__all_who_wait_are_told)
