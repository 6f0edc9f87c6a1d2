/* Staged files beyond what a daemon does with them: copies within the mount, and more files than
 * the mount may have descriptors. */
#include "base/util.h"
#include "tests/mount/daemon.h"
#include "tests/mount/stage.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MIB ((size_t)1 << 20)

static struct world w;
static const char *root;
static char stage[512];

static void begin(void)
{
    world_start(&w, 1, NULL);
    root = w.node[0].dir;
    ck_assert_int_eq(daemon_stage(root, STAGE_A, stage), 0);
}

static void end(void)
{
    world_stop(&w);
    world_verify(&w);
}

/* An open file of the staging, with len bytes of seed. */
static int make(const char *name, size_t len, uint64_t seed)
{
    int fd = ck_sys(open(in(stage, name, NULL), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    CLEANUP_FREE uint8_t *bytes = malloc(len + 1);
    ck_assert_ptr_nonnull(bytes);
    testing_fill(bytes, len, seed);
    ck_assert_int_eq(util_pwrite_full(fd, bytes, len, 0), (ssize_t)len);
    return fd;
}

static void has(int fd, uint64_t off, const uint8_t *want, size_t len)
{
    CLEANUP_FREE uint8_t *got = malloc(len + 1);
    ck_assert_ptr_nonnull(got);
    ck_assert_int_eq(util_pread_full(fd, got, len, off), (ssize_t)len);
    ck_assert(memcmp(got, want, len) == 0);
}

static ssize_t copy(int from, off_t from_off, int to, off_t to_off, size_t len)
{
    return copy_file_range(from, &from_off, to, &to_off, len, 0);
}

/* All of it, as cp does. */
static void copy_all(int from, off_t from_off, int to, off_t to_off, size_t len)
{
    while (len) {
        ssize_t n = ck_sys(copy(from, from_off, to, to_off, len));
        ck_assert_int_gt(n, 0);
        from_off += n;
        to_off += n;
        len -= (size_t)n;
    }
}

/* System calls by which the mount has read so far. */
static long reads_of_mount(void)
{
    return world_proc(&w, 0, "io", "syscr");
}

START_TEST(test_mount_files__a_copy_within_the_mount_does_not_come_by_its_users)
{
    enum { LEN = 16 << 20 };
    static uint8_t want[LEN];
    begin();
    testing_fill(want, LEN, 1);
    int from = make("from", LEN, 1), to = make("to", 4096, 2);
    long before = reads_of_mount();
    copy_all(from, 0, to, 0, LEN);
    ck_assert_int_lt(reads_of_mount() - before, 64); /* requests of the kernel are reads as well */
    has(to, 0, want, LEN);
    close(from);
    close(to);
    end();
}
END_TEST

START_TEST(test_mount_files__a_copy_takes_what_is_mapped_and_shows_where_it_is_mapped)
{
    uint8_t want[3 * 4096];
    begin();
    testing_fill(want, sizeof(want), 1);
    int from = make("from", sizeof(want), 1), to = make("to", sizeof(want), 2);
    uint8_t *a = mmap(NULL, sizeof(want), PROT_READ | PROT_WRITE, MAP_SHARED, from, 0);
    const uint8_t *b = mmap(NULL, sizeof(want), PROT_READ, MAP_SHARED, to, 0);
    ck_assert_ptr_ne(a, MAP_FAILED);
    ck_assert_ptr_ne(b, MAP_FAILED);
    ck_assert(memcmp(b, want, 1) != 0); /* it is in the kernel's pages */
    a[5000] = want[5000] = (uint8_t)~want[5000];
    copy_all(from, 100, to, 200, 2 * 4096);
    ck_assert(memcmp(b + 200, want + 100, 2 * 4096) == 0);
    has(to, 200, want + 100, 2 * 4096);
    munmap(a, sizeof(want));
    munmap((void *)(uintptr_t)b, sizeof(want));
    close(from);
    close(to);
    end();
}
END_TEST

START_TEST(test_mount_files__a_copy_has_the_limits_of_any_file_system)
{
    uint8_t want[8192];
    struct stat st;
    begin();
    testing_fill(want, sizeof(want), 1);
    int from = make("from", sizeof(want), 1), to = make("to", 0, 2);
    /* Its end. */
    ck_assert_int_eq(copy(from, 8000, to, 0, 4096), 192);
    ck_assert_int_eq(copy(from, 8192, to, 0, 4096), 0);
    has(to, 0, want + 8000, 192);
    /* Beyond the end of the other: a hole. */
    ck_assert_int_eq(copy(from, 0, to, 1 << 20, 8192), 8192);
    ck_sys(fstat(to, &st));
    ck_assert_int_eq(st.st_size, (1 << 20) + 8192);
    ck_assert_int_lt(st.st_blocks, 200);
    /* Within itself. */
    ck_errno(copy(from, 0, from, 4096, 4097), EINVAL);
    ck_assert_int_eq(copy(from, 0, from, 4096, 4096), 4096);
    has(from, 4096, want, 4096);
    int more = ck_sys(open(in(stage, "to", NULL), O_WRONLY | O_APPEND | O_CLOEXEC));
    ck_errno(copy(from, 0, more, 0, 10), EBADF);
    int readable = ck_sys(open(in(stage, "to", NULL), O_RDONLY | O_CLOEXEC));
    ck_errno(copy(from, 0, readable, 0, 10), EBADF);
    /* A limit of the caller's. */
    signal(SIGXFSZ, SIG_IGN);
    ck_sys(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, RLIM_INFINITY}));
    ck_errno(copy(from, 0, to, 1 << 20, 10), EFBIG);
    ck_assert_int_eq(copy(from, 0, to, (1 << 20) - 5, 10), 5);
    ck_sys(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}));
    close(from);
    close(to);
    close(more);
    close(readable);
    end();
}
END_TEST

START_TEST(test_mount_files__what_was_copied_is_published)
{
    struct image im = IMAGE_SMALL(1);
    char meta[4096], sum[80], export[1024], name[600], path[1100];
    begin();
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, "{}"), 0);
    ck_assert_int_eq(daemon_publish(root, STAGE_A, stage, NULL), 0);
    ck_assert_int_eq(daemon_fetch(root, STAGE_A, meta, sum, export), 0);
    /* From a committed file into a staged one, and on into a second. */
    ck_assert_int_eq(daemon_stage(root, STAGE_B, stage), 0);
    ck_sys(mkdir(in(stage, "export", NULL), 0755));
    text(name, sizeof(name), "%s/memory-ranges", export);
    int committed = ck_sys(open(name, O_RDONLY | O_CLOEXEC));
    int first = make("export/first", 0, 0), second = make("export/second", 0, 0);
    copy_all(committed, 0, first, 0, im.memory);
    copy_all(first, 0, second, 0, im.memory);
    close(committed);
    close(first);
    close(second);
    ck_assert_int_eq(daemon_stage_meta(stage, "{\"b\":1}"), 0);
    ck_assert_int_eq(daemon_publish(root, STAGE_B, stage, NULL), 0);
    ck_assert_int_eq(daemon_fetch(root, STAGE_B, meta, sum, export), 0);
    CLEANUP_FREE uint8_t *want = malloc(im.memory);
    ck_assert_ptr_nonnull(want);
    image_memory(&im, 0, im.memory, want);
    for (int i = 0; i < 2; i++) {
        text(path, sizeof(path), "%s/%s", export, i ? "second" : "first");
        CLEANUP_FD int fd = ck_sys(open(path, O_RDONLY | O_CLOEXEC));
        has(fd, 0, want, im.memory);
    }
    end();
}
END_TEST

/* ---- Many files ------------------------------------------------------------------------------ */

#define LIMIT 256
#define MANY  700

static void begin_with_few_descriptors(void)
{
    ck_sys(setrlimit(RLIMIT_NOFILE, &(struct rlimit){LIMIT, LIMIT}));
    begin();
}

static const char *nth(const char *folder, unsigned i)
{
    static char names[4][64];
    static unsigned next;
    char *name = names[next++ % 4];
    text(name, sizeof(names[0]), "%s/%u/%u", folder, i % 7, i);
    return in(stage, name, NULL);
}

static void write_nth(const char *folder, unsigned i)
{
    char word[16];
    text(word, sizeof(word), "%u", i);
    int fd = ck_sys(open(nth(folder, i), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    ck_assert_int_eq(write(fd, word, strlen(word)), (ssize_t)strlen(word));
    close(fd);
}

static void has_nth(const char *path, unsigned i)
{
    char word[16], got[16] = "";
    text(word, sizeof(word), "%u", i);
    int fd = ck_sys(open(path, O_RDONLY | O_CLOEXEC));
    ck_assert_int_eq(read(fd, got, sizeof(got)), (ssize_t)strlen(word));
    ck_assert_str_eq(got, word);
    close(fd);
}

static void make_many(const char *folder, unsigned n)
{
    char name[64];
    ck_sys(mkdir(in(stage, folder, NULL), 0755));
    for (unsigned i = 0; i < 7; i++) {
        text(name, sizeof(name), "%s/%u", folder, i);
        ck_sys(mkdir(in(stage, name, NULL), 0755));
    }
    for (unsigned i = 0; i < n; i++)
        write_nth(folder, i);
}

/* So many others are used that nothing that was used before is at hand any more. */
static void use_others(void)
{
    struct stat st;
    for (unsigned i = 0; i < MANY; i++)
        ck_sys(stat(nth("export", i), &st));
}

static unsigned descriptors_of_mount(void)
{
    char path[64];
    unsigned n = 0;
    text(path, sizeof(path), "/proc/%d/fd", (int)w.node[0].pid);
    CLEANUP_DIR DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    return n;
}

START_TEST(test_mount_files__there_may_be_more_than_descriptors)
{
    static ino_t inos[MANY];
    struct stat st;
    char meta[4096], sum[80], export[1024], path[1200];
    begin_with_few_descriptors();
    make_many("export", MANY);
    for (unsigned i = 0; i < MANY; i++) {
        ck_sys(stat(nth("export", i), &st));
        inos[i] = st.st_ino;
    }
    for (unsigned i = 0; i < MANY; i++) {
        has_nth(nth("export", i), i);
        ck_sys(stat(nth("export", i), &st));
        ck_assert_uint_eq(st.st_ino, inos[i]);
    }
    ck_assert_uint_lt(descriptors_of_mount(), LIMIT);
    /* Attributes of what is not at hand. */
    ck_sys(chmod(nth("export", 3), 0600));
    ck_sys(truncate(nth("export", 4), 100));
    use_others();
    ck_sys(stat(nth("export", 3), &st));
    ck_assert_int_eq(st.st_mode & 07777, 0600);
    ck_sys(stat(nth("export", 4), &st));
    ck_assert_int_eq(st.st_size, 100);
    ck_sys(unlink(nth("export", 4)));
    write_nth("export", 4);
    ck_assert_int_eq(daemon_stage_meta(stage, "{}"), 0);
    ck_assert_int_eq(daemon_publish(root, STAGE_A, stage, NULL), 0);
    ck_assert_int_eq(daemon_fetch(root, STAGE_A, meta, sum, export), 0);
    for (unsigned i = 0; i < MANY; i++) {
        text(path, sizeof(path), "%s/%u/%u", export, i % 7, i);
        has_nth(path, i);
    }
    end();
}
END_TEST

START_TEST(test_mount_files__what_is_moved_linked_or_made_anew_is_found_again)
{
    struct stat st, other;
    begin_with_few_descriptors();
    make_many("export", MANY);
    make_many("moved", 0);
    for (unsigned i = 0; i < MANY; i += 10) {
        ck_sys(stat(nth("export", i), &st));
        ck_sys(rename(nth("export", i), nth("moved", i)));
        ck_errno(stat(nth("export", i), &other), ENOENT);
        write_nth("export", i);
        ck_sys(link(nth("moved", i), nth("moved", i + 5)));
        ck_sys(stat(nth("moved", i + 5), &other));
        ck_assert_uint_eq(other.st_ino, st.st_ino);
        ck_assert_uint_eq(other.st_nlink, 2);
    }
    use_others();
    for (unsigned i = 0; i < MANY; i += 10) {
        has_nth(nth("export", i), i);
        has_nth(nth("moved", i + 5), i);
        ck_sys(unlink(nth("moved", i)));
        ck_sys(stat(nth("moved", i + 5), &st));
        ck_assert_uint_eq(st.st_nlink, 1);
    }
    /* Numbers of files are used again. */
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 1; i < MANY; i += 10)
            ck_sys(unlink(nth("export", i)));
        for (unsigned i = 1; i < MANY; i += 10)
            write_nth("export", i);
        use_others();
        for (unsigned i = 1; i < MANY; i += 10)
            has_nth(nth("export", i), i);
    }
    end();
}
END_TEST

START_TEST(test_mount_files__what_is_open_goes_on_without_a_name)
{
    struct stat st;
    char byte;
    begin_with_few_descriptors();
    make_many("export", MANY);
    make_many("other", 10);
    ck_sys(mkdir(in(stage, "gone", NULL), 0755));
    int unlinked = ck_sys(open(nth("other", 1), O_RDWR | O_CLOEXEC));
    int replaced = ck_sys(open(nth("other", 2), O_RDONLY | O_CLOEXEC));
    int named = ck_sys(open(nth("other", 3), O_PATH | O_CLOEXEC));
    int folder = ck_sys(open(in(stage, "gone", NULL), O_PATH | O_DIRECTORY | O_CLOEXEC));
    use_others(); /* and so they have to be opened again in order to be unlinked */
    ck_sys(unlink(nth("other", 1)));
    ck_sys(rename(nth("other", 4), nth("other", 2)));
    ck_sys(unlink(nth("other", 3)));
    ck_sys(rmdir(in(stage, "gone", NULL)));
    use_others();
    sleep(2); /* longer than the kernel believes attributes */
    int fds[] = {unlinked, replaced, named, folder};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        ck_sys(fstat(fds[i], &st));
        ck_assert_msg(st.st_nlink == 0 || (fds[i] == folder && st.st_nlink <= 1), "%zu: %u links",
                      i, (unsigned)st.st_nlink);
    }
    ck_assert_int_eq(pread(unlinked, &byte, 1, 0), 1);
    ck_assert_int_eq(byte, '1');
    ck_sys(ftruncate(unlinked, 10));
    ck_sys(fchmod(unlinked, 0600));
    ck_assert_int_eq(pwrite(unlinked, "x", 1, 10), 1);
    ck_sys(fstat(unlinked, &st));
    ck_assert_int_eq(st.st_size, 11);
    ck_assert_int_eq(pread(replaced, &byte, 1, 0), 1);
    ck_assert_int_eq(byte, '2');
    has_nth(nth("other", 2), 4);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    end();
}
END_TEST

START_TEST(test_mount_files__where_they_cannot_be_opened_again_too_many_are_refused)
{
    char name[32];
    if (geteuid() != 0)
        return;
    ck_sys(prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH, 0, 0, 0));
    begin_with_few_descriptors();
    int e = 0;
    unsigned n = 0;
    for (; !e && n < 2 * LIMIT; n++) {
        text(name, sizeof(name), "%u", n);
        int fd = open(in(stage, name, NULL), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        e = fd < 0 ? errno : 0;
        if (fd >= 0)
            close(fd);
    }
    ck_assert_msg(e == ENFILE, "%u files: %s", n, strerror(e));
    ck_assert_uint_gt(n, LIMIT / 2);
    ck_errno(access(in(stage, name, NULL), F_OK), ENOENT);
    /* There is room for all that the mount does besides, and for others when these are gone. */
    for (unsigned i = 0; i + 1 < n; i++) {
        text(name, sizeof(name), "%u", i);
        ck_sys(unlink(in(stage, name, NULL)));
    }
    struct image im = IMAGE_SMALL(5);
    ck_assert_int_eq(tool_export(stage, &im), 0);
    ck_assert_int_eq(daemon_stage_meta(stage, "{}"), 0);
    ck_assert_int_eq(daemon_publish(root, STAGE_A, stage, NULL), 0);
    end();
}
END_TEST

TESTING_MAIN(mount_files, test_mount_files__a_copy_within_the_mount_does_not_come_by_its_users,
             test_mount_files__a_copy_takes_what_is_mapped_and_shows_where_it_is_mapped,
             test_mount_files__a_copy_has_the_limits_of_any_file_system,
             test_mount_files__what_was_copied_is_published,
             test_mount_files__there_may_be_more_than_descriptors,
             test_mount_files__what_is_moved_linked_or_made_anew_is_found_again,
             test_mount_files__what_is_open_goes_on_without_a_name,
             test_mount_files__where_they_cannot_be_opened_again_too_many_are_refused)
