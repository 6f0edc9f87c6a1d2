/* Reads through a cache whose disk is a small tmpfs (as root, in mounts of the test's own). */
#include "base/util.h"
#include "store/cache.h"
#include "store/record_map.h"
#include "tests/lib/kit.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static struct cairn_error err;
static struct kit k;

static void start(const char *size)
{
    kit_start(&k, &(struct kit_options){.mem = true, .faulty = true});
    kit_fill(&k, "a", "memory", 12 * MIB, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "a", NULL, NULL, &err));
    cairn_close(k.s);
    ck_assert_msg(unshare(CLONE_NEWNS) == 0 &&
                      mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                      mount("cairn-test", k.state, "tmpfs", 0, size) == 0,
                  "a tmpfs cannot be mounted");
    k.s = kit_open(&k);
}

static void stop(void)
{
    kit_stop(&k);
    ck_assert_int_eq(umount(k.state), 0);
}

static void read_all(void)
{
    CLEANUP_FREE uint8_t *want = malloc(12 * MIB), *is = malloc(12 * MIB);
    struct cairn_record *r = NULL;
    size_t got;
    testing_fill(want, 12 * MIB, 1);
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    for (size_t at = 0; at < 12 * MIB; at += MIB) {
        ck_ok(cairn_record_pread(r, NULL, 0, is, MIB, at, &got, &err));
        ck_assert_int_eq(memcmp(is, want + at, MIB), 0);
    }
    cairn_record_close(r);
}

/* Filled by somebody else: the cache gets next to nothing, and reads do not notice. */
START_TEST(test_cache_space__a_disk_that_others_filled_fails_no_read)
{
    struct cache_stats st;
    char path[400];
    start("size=16m");
    snprintf(path, sizeof(path), "%s/ballast", k.state);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(posix_fallocate(fd, 0, 13 * MIB), 0);
    /* Give it a bound that the disk does not have. */
    cairn_close(k.s);
    k.opt.cache_bytes = 1 << 30;
    k.s = kit_open(&k);
    read_all();
    cache_stats(k.s->cache, &st);
    ck_assert_uint_gt(st.not_kept, 0);
    read_all();
    /* And when there is room again it is used. */
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    ck_assert_int_eq(close(fd), 0);
    for (int i = 0; i < 300; i++) {
        read_all();
        cache_stats(k.s->cache, &st);
        if (st.inserted >= 12 * MIB / 65536)
            break;
        (void)!usleep(100000);
    }
    ck_assert_uint_ge(st.inserted, 12 * MIB / 65536);
    read_all();
    backend_fault_clear(k.s->backend);
    read_all();
    ck_assert_uint_eq(backend_fault_calls(k.s->backend, FAULT_READ), 0);
    stop();
}
END_TEST

/* By default it leaves half of the disk to others. */
START_TEST(test_cache_space__by_default_half_of_the_disk_stays_free)
{
    struct budget_stats st;
    start("size=16m");
    read_all();
    read_all();
    budget_stats(k.s->budget, &st);
    ck_assert_uint_le(st.limit, 8 * MIB);
    ck_assert_uint_gt(st.limit, 4 * MIB);
    ck_assert_uint_le(st.used, st.limit);
    stop();
}
END_TEST

TESTING_MAIN(cache_space, test_cache_space__a_disk_that_others_filled_fails_no_read,
             test_cache_space__by_default_half_of_the_disk_stays_free)
