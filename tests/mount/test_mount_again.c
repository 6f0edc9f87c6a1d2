/* An id that comes back: a record is removed and published anew on another node, under the very
 * same meta.json and with other files. Names, inodes and manifests that were known here are those
 * of its first life. */
#include "base/util.h"
#include "tests/mount/stage.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define KIB          ((size_t)1 << 10)
#define LEN          (256 * KIB)
#define SEEN_SECONDS 2 /* what another node did is seen after that */

static struct world w;
static char gen[17];

static void publish(const char *id, uint64_t seed)
{
    stage_file(&w, "memory", 0, LEN, seed, 0);
    stage_file(&w, "in/it", 0, LEN, seed + 1, 0);
    stage_publish(&w, id, "{}", false, gen);
}

static void begin(void)
{
    world_start(&w, 1, NULL);
    publish(STAGE_A, 10);
}

static void check_seed(int fd, uint64_t seed)
{
    static uint8_t want[LEN], got[LEN];
    testing_fill(want, LEN, seed);
    ck_assert_int_eq(util_pread_full(fd, got, LEN, 0), (ssize_t)LEN);
    ck_assert_mem_eq(got, want, LEN);
}

static void check_shown(const char *id)
{
    stage_same(stage_path(&w, "memory"), stage_shown(&w, 0, id, gen, "memory"));
    stage_same(stage_path(&w, "in/it"), stage_shown(&w, 0, id, gen, "in/it"));
}

START_TEST(test_again__the_new_files_are_seen)
{
    begin();
    check_shown(STAGE_A);
    stage_delete(&w, STAGE_A);
    publish(STAGE_A, 20);
    sleep(SEEN_SECONDS);
    check_shown(STAGE_A);
    world_stop(&w);
}
END_TEST

/* Somebody looked at meta.json in between, and saw that it was gone, and at no file. */
START_TEST(test_again__the_new_files_are_seen_also_where_the_end_was_noticed)
{
    struct stat st;
    begin();
    check_shown(STAGE_A);
    stage_delete(&w, STAGE_A);
    sleep(SEEN_SECONDS);
    ck_errno(stat(world_path(&w, 0, STAGE_A "/meta.json"), &st), ENOENT);
    publish(STAGE_A, 20);
    sleep(SEEN_SECONDS);
    ck_sys(stat(world_path(&w, 0, STAGE_A "/meta.json"), &st));
    check_shown(STAGE_A);
    world_stop(&w);
}
END_TEST

START_TEST(test_again__what_is_open_keeps_its_bytes)
{
    begin();
    check_shown(STAGE_A);
    CLEANUP_FD int fd = ck_sys(open(stage_shown(&w, 0, STAGE_A, gen, "memory"), O_RDONLY));
    uint8_t *map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    stage_delete(&w, STAGE_A);
    publish(STAGE_A, 20);
    sleep(SEEN_SECONDS);
    check_shown(STAGE_A);
    ck_sys(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    check_seed(fd, 10);
    munmap(map, LEN);
    close(util_steal_fd(&fd));
    world_stop(&w);
}
END_TEST

/* A content whose every name leads elsewhere by now. */
START_TEST(test_again__a_content_is_not_read_from_where_it_was_once)
{
    struct stat st;
    char path[64];
    begin();
    publish(STAGE_B, 10);
    CLEANUP_FD int a = ck_sys(open(stage_shown(&w, 0, STAGE_A, gen, "memory"), O_RDONLY));
    CLEANUP_FD int b = ck_sys(open(stage_shown(&w, 0, STAGE_B, gen, "memory"), O_RDONLY));
    stage_delete(&w, STAGE_B);
    stage_delete(&w, STAGE_A);
    publish(STAGE_A, 20);
    sleep(SEEN_SECONDS);
    ck_sys(stat(world_path(&w, 0, STAGE_A "/meta.json"), &st));
    ck_errno(stat(world_path(&w, 0, STAGE_B "/meta.json"), &st), ENOENT);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", a);
    CLEANUP_FD int again = open(path, O_RDONLY | O_CLOEXEC);
    if (again < 0)
        ck_assert_int_eq(errno, ESTALE); /* no name led to it */
    else
        ck_sys(posix_fadvise(again, 0, 0, POSIX_FADV_DONTNEED));
    if (again >= 0)
        check_seed(again, 10);
    ck_sys(posix_fadvise(b, 0, 0, POSIX_FADV_DONTNEED));
    check_seed(b, 10);
    close(util_steal_fd(&a));
    close(util_steal_fd(&b));
    util_closep(&again);
    world_stop(&w);
}
END_TEST

/* What was removed here and is in the store still is hidden, but not what others publish then. */
START_TEST(test_again__what_others_publish_is_not_hidden)
{
    struct stat st;
    begin();
    publish(STAGE_T, 10);
    ck_sys(unlink(world_path(&w, 0, STAGE_T "/meta.json")));
    ck_sys(unlink(stage_shown(&w, 0, STAGE_A, gen, "memory")));
    ck_errno(stat(world_path(&w, 0, STAGE_T "/meta.json"), &st), ENOENT);
    ck_errno(stat(stage_shown(&w, 0, STAGE_A, gen, "memory"), &st), ENOENT);
    stage_file(&w, "memory", 0, LEN, 30, 0);
    stage_publish(&w, STAGE_T, "{\"n\":2}", false, gen);
    stage_delete(&w, STAGE_A);
    publish(STAGE_A, 30);
    sleep(SEEN_SECONDS);
    ck_sys(stat(world_path(&w, 0, STAGE_T "/meta.json"), &st));
    ck_assert_int_eq(st.st_size, 7);
    check_shown(STAGE_A);
    world_stop(&w);
}
END_TEST

#define FORKS 6u

/* Of the many names of a content all are gone but one, which was looked up before them. */
START_TEST(test_again__what_forks_shared_outlives_them)
{
    struct stat st;
    char id[FORKS][32], meta[32], path[256], fork[17], name[1024];
    begin();
    snprintf(name, sizeof(name), "%s", stage_shown(&w, 0, STAGE_A, gen, "memory"));
    ck_sys(stat(name, &st));
    for (unsigned i = 0; i < FORKS; i++) {
        snprintf(id[i], sizeof(id[i]), "ck_%016x", i);
        snprintf(meta, sizeof(meta), "{\"fork\":%u}", i);
        stage_fork(&w, STAGE_A, id[i], meta, fork);
        ck_sys(stat(stage_shown(&w, 0, id[i], fork, "memory"), &st));
    }
    for (unsigned i = 0; i < FORKS; i++)
        stage_delete(&w, id[i]);
    sleep(SEEN_SECONDS);
    for (unsigned i = 0; i < FORKS; i++) {
        snprintf(path, sizeof(path), "%s/meta.json", id[i]);
        ck_errno(stat(world_path(&w, 0, path), &st), ENOENT);
    }
    CLEANUP_FD int fd = ck_sys(open(name, O_RDONLY));
    check_seed(fd, 10);
    close(util_steal_fd(&fd));
    world_stop(&w);
}
END_TEST

TESTING_MAIN(mount_again, test_again__what_others_publish_is_not_hidden,
             test_again__what_forks_shared_outlives_them, test_again__the_new_files_are_seen,
             test_again__the_new_files_are_seen_also_where_the_end_was_noticed,
             test_again__what_is_open_keeps_its_bytes,
             test_again__a_content_is_not_read_from_where_it_was_once)
