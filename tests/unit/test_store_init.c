/* Making a store: what is durable, and how long it waits. The calls are wrapped by the linker. */
#include "base/clock.h"
#include "store/store.h"
#include "tests/lib/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int __real_fsync(int fd);
int __wrap_fsync(int fd);

static struct cairn_error err;
static char synced[16][4096];
static unsigned n_synced;

int __wrap_fsync(int fd)
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = n_synced < 16 ? readlink(link, synced[n_synced], 4095) : -1;
    if (n > 0)
        synced[n_synced++][n] = 0;
    return __real_fsync(fd);
}

static bool was_synced(const char *path)
{
    unsigned i = 0;
    while (i < n_synced && strcmp(synced[i], path) != 0)
        i++;
    return i < n_synced;
}

START_TEST(test_store_init__every_folder_on_the_way_is_durable)
{
    char top[512], a[512], store[512];
    snprintf(top, sizeof(top), "%s", testing_tmpdir());
    snprintf(a, sizeof(a), "%.200s/a", top);
    snprintf(store, sizeof(store), "%.200s/a/store", top);
    ck_ok(store_init_dir(store, NULL, NULL, &err));
    ck_assert(was_synced(top));
    ck_assert(was_synced(a));
    ck_assert(was_synced(store));
}
END_TEST

START_TEST(test_store_init__waits_for_another_one_no_longer_than_it_may)
{
    char store[512];
    snprintf(store, sizeof(store), "%.200s/store", testing_tmpdir());
    ck_assert_int_eq(mkdir(store, 0700), 0);
    int fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    struct cairn_op op;
    cairn_op_init(&op, 0.05, NULL);
    int64_t start = clock_monotonic();
    ck_fails(store_init_dir(store, NULL, &op, &err), CAIRN_TIMEOUT);
    ck_assert_int_lt(clock_monotonic() - start, 5 * NS_PER_S);
    close(fd);
    ck_ok(store_init_dir(store, NULL, NULL, &err));
}
END_TEST

TESTING_MAIN(store_init, test_store_init__every_folder_on_the_way_is_durable,
             test_store_init__waits_for_another_one_no_longer_than_it_may)
