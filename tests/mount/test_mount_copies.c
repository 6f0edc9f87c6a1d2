/* Files that lie whole in the cache: the kernel reads them by itself, and goes on when the mount
 * does not. */
#include "base/clock.h"
#include "base/util.h"
#include "tests/mount/stage.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

static struct world w;
static char gen[17];

static const char *shown(const char *path)
{
    return stage_shown(&w, 0, STAGE_A, gen, path);
}

/* What must work here: as root, on Linux 6.9 or newer. */
static bool can_pass_through(void)
{
    struct utsname u;
    int major = 0, minor = 0;
    ck_sys(uname(&u));
    ck_assert_int_eq(sscanf(u.release, "%d.%d", &major, &minor), 2);
    return geteuid() == 0 && (major > 6 || (major == 6 && minor >= 9));
}

static size_t copies(size_t node)
{
    char command[1024], text[32] = "";
    snprintf(command, sizeof(command), "find %s/*/cache/files -type f ! -name '.*' | wc -l",
             w.node[node].state);
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
    pclose(f);
    return strtoul(text, NULL, 10);
}

/* Copies are made in the background: until there are n. */
static void wait_for_copies(size_t node, size_t n)
{
    int64_t end = clock_monotonic() + 60 * NS_PER_S;
    while (copies(node) < n) {
        ck_assert_msg(clock_monotonic() < end, "no copy was made");
        poll(NULL, 0, 20);
    }
}

static void begin(const char *materialise)
{
    world_start(&w, 1, materialise);
    stage_file(&w, "memory", 3 * MIB, 5 * MIB + 100, 1, 32 * MIB + 5);
    stage_file(&w, "other", 0, 100000, 2, 0);
    stage_publish(&w, STAGE_A, "{\"n\":1}", false, gen);
}

/* All bytes of fd are those of the staged memory. */
static void check(int fd)
{
    CLEANUP_FD int source = ck_sys(open(stage_path(&w, "memory"), O_RDONLY));
    size_t len = 32 * MIB + 5;
    uint8_t *want = mmap(NULL, len, PROT_READ, MAP_PRIVATE, source, 0);
    uint8_t *got = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    ck_assert_ptr_ne(want, MAP_FAILED);
    ck_assert_ptr_ne(got, MAP_FAILED);
    ck_assert(memcmp(got, want, len) == 0);
    munmap(got, len);
    munmap(want, len);
}

/* The mount stands still: only what needs it not can be read. In a process of its own, for what
 * hangs must be killed; it says what came of it, as its own end waits for the mount (a close). */
static bool reads_without_mount(int fd)
{
    int ends[2];
    char said = 0;
    ck_sys(pipe2(ends, O_CLOEXEC));
    ck_sys(kill(w.node[0].pid, SIGSTOP));
    ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    pid_t reader = ck_sys(fork());
    if (reader == 0) {
        static uint8_t buf[MIB];
        char word = 'y';
        for (uint64_t at = 0; at < 32 * MIB; at += MIB)
            if (util_pread_full(fd, buf, MIB, at) != (ssize_t)MIB)
                word = 'n';
        _exit(write(ends[1], &word, 1) != 1);
    }
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    ck_sys(poll(&p, 1, 2000));
    if (p.revents)
        ck_assert_int_eq(read(ends[0], &said, 1), 1);
    ck_sys(kill(reader, SIGKILL));
    ck_sys(kill(w.node[0].pid, SIGCONT));
    ck_sys(waitpid(reader, NULL, 0));
    close(ends[0]);
    close(ends[1]);
    return said == 'y';
}

START_TEST(test_copies__the_kernel_reads_them_by_itself)
{
    begin("always");
    int lazy = ck_sys(open(shown("memory"), O_RDONLY));
    check(lazy);
    if (!can_pass_through()) {
        close(lazy);
        world_stop(&w);
        return;
    }
    wait_for_copies(0, 1);
    sleep(1); /* the kernel believes a name for so long */
    /* A new open has an inode of its own, while the lazy one goes on. */
    int direct = ck_sys(open(shown("memory"), O_RDONLY));
    struct stat a, b;
    ck_sys(fstat(lazy, &a));
    ck_sys(fstat(direct, &b));
    ck_assert_uint_eq(a.st_ino, b.st_ino);
    ck_assert(reads_without_mount(direct));
    ck_assert(!reads_without_mount(lazy));
    check(direct);
    check(lazy);
    close(lazy);
    int again = ck_sys(open(shown("memory"), O_RDONLY));
    ck_assert(reads_without_mount(again));
    ck_errno(open(shown("memory"), O_RDWR), EROFS);
    close(direct);
    close(again);
    stage_same(stage_path(&w, "memory"), shown("memory"));
    world_stop(&w);
}
END_TEST

START_TEST(test_copies__are_made_at_the_second_open)
{
    begin("second");
    if (!can_pass_through()) {
        world_stop(&w);
        return;
    }
    close(ck_sys(open(shown("other"), O_RDONLY)));
    close(ck_sys(open(shown("memory"), O_RDONLY)));
    close(ck_sys(open(shown("memory"), O_RDONLY)));
    wait_for_copies(0, 1);
    ck_assert_uint_eq(copies(0), 1);
    world_stop(&w);
}
END_TEST

START_TEST(test_copies__never_means_never)
{
    begin("never");
    for (int i = 0; i < 3; i++) {
        int fd = ck_sys(open(shown("memory"), O_RDONLY));
        check(fd);
        close(fd);
    }
    ck_assert_uint_eq(copies(0), 0);
    world_stop(&w);
}
END_TEST

START_TEST(test_copies__outlive_the_mount)
{
    begin("always");
    if (!can_pass_through()) {
        world_stop(&w);
        return;
    }
    close(ck_sys(open(shown("memory"), O_RDONLY)));
    wait_for_copies(0, 1);
    world_unmount(&w, 0);
    world_mount(&w, 0);
    int fd = ck_sys(open(shown("memory"), O_RDONLY));
    ck_assert(reads_without_mount(fd));
    /* What is open so goes on when the mount was killed. */
    uint8_t *map = mmap(NULL, 32 * MIB, PROT_READ, MAP_PRIVATE, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    world_kill(&w, 0);
    check(fd);
    ck_errno(open(shown("memory"), O_RDONLY), ENOTCONN);
    world_mount(&w, 0);
    check(fd);
    stage_same(stage_path(&w, "memory"), shown("memory"));
    ck_assert(util_is_zero(map, MIB));
    munmap(map, 32 * MIB);
    close(fd);
    world_stop(&w);
}
END_TEST

START_TEST(test_copies__go_on_when_the_mount_is_cut_off)
{
    int status;
    uint8_t byte;
    begin("always");
    if (!can_pass_through()) {
        world_stop(&w);
        return;
    }
    int lazy = ck_sys(open(shown("memory"), O_RDONLY));
    wait_for_copies(0, 1);
    poll(NULL, 0, 1100);
    int direct = ck_sys(open(shown("memory"), O_RDONLY));
    ck_sys(kill(w.node[0].pid, SIGTERM));
    ck_sys(waitpid(w.node[0].pid, &status, 0));
    w.node[0].pid = 0;
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 3); /* it was in use */
    check(direct);
    ck_assert_int_eq(pread(lazy, &byte, 1, 20 * MIB), -1);
    ck_errno(open(shown("memory"), O_RDONLY), ENOENT);
    close(lazy);
    close(direct);
    world_mount(&w, 0);
    stage_same(stage_path(&w, "memory"), shown("memory"));
    world_stop(&w);
}
END_TEST

START_TEST(test_copies__a_file_opened_by_many_at_once)
{
    begin("always");
    /* Opens of both kinds, in any order, while the copy is being made: none may fail. */
    for (int round = 0; round < 4; round++) {
        pid_t pids[6];
        for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
            pids[i] = ck_sys(fork());
            if (pids[i])
                continue;
            uint8_t byte;
            for (int n = 0; n < 200; n++) {
                int fd = open(shown("memory"), O_RDONLY);
                if (fd < 0 || pread(fd, &byte, 1, 4 << 20) != 1)
                    _exit(1);
                if (n % 3 == 0)
                    poll(NULL, 0, 1);
                close(fd);
            }
            _exit(0);
        }
        for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
            int status;
            ck_sys(waitpid(pids[i], &status, 0));
            ck_assert_int_eq(status, 0);
        }
        poll(NULL, 0, 300);
    }
    world_stop(&w);
}
END_TEST

START_TEST(test_copies__one_of_another_size_is_not_believed)
{
    char command[1024];
    begin("always");
    if (!can_pass_through()) {
        world_stop(&w);
        return;
    }
    close(ck_sys(open(shown("memory"), O_RDONLY)));
    wait_for_copies(0, 1);
    world_unmount(&w, 0);
    snprintf(command, sizeof(command),
             "f=$(find %s/*/cache/files -type f); chmod 600 $f; truncate -s 5M $f",
             w.node[0].state);
    ck_assert_int_eq(system(command), 0);
    world_mount(&w, 0);
    stage_same(stage_path(&w, "memory"), shown("memory"));
    world_stop(&w);
}
END_TEST

TESTING_MAIN(mount_copies, test_copies__the_kernel_reads_them_by_itself,
             test_copies__are_made_at_the_second_open, test_copies__never_means_never,
             test_copies__outlive_the_mount, test_copies__go_on_when_the_mount_is_cut_off,
             test_copies__a_file_opened_by_many_at_once,
             test_copies__one_of_another_size_is_not_believed)
