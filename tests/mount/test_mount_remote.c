/* A store that is far away: what is asked of it, and that nobody waits for what is slow but those
 * who want it. On the fault server, which counts. */
#include "base/clock.h"
#include "base/util.h"
#include "tests/mount/bucket.h"
#include "tests/mount/stage.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static struct world w;
static char gen[17];

static const char *shown(const char *path)
{
    return stage_shown(&w, 0, STAGE_A, gen, path);
}

static void begin(void)
{
    world_trace(false); /* its requests are counted in test_mount_trace.c */
    bucket_start(&w, 1);
}

static void end(void)
{
    bucket_stop(&w);
}

/* 64 KiB of data at the beginning of each MiB. */
static void publish_islands(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        stage_file(&w, "memory", i * MIB, 64 * KIB, 100 + i, n * MIB);
    stage_publish(&w, STAGE_A, "{}", false, gen);
}

START_TEST(test_remote__a_cold_fault_is_one_request)
{
    begin();
    publish_islands(32);
    int fd = ck_sys(open(shown("memory"), O_RDONLY));
    uint8_t *map = mmap(NULL, 32 * MIB, PROT_READ, MAP_PRIVATE, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    s3fs_reset_stats(fs);
    uint8_t want[64 * KIB];
    testing_fill(want, sizeof(want), 100 + 17);
    ck_assert_mem_eq(map + 17 * MIB + 8192, want + 8192, 4096);
    struct s3fs_stats st = counts();
    ck_assert_uint_eq(st.get, 1);
    ck_assert_uint_lt(st.body_out, 2 * 64 * KIB);
    /* The rest of the chunk is here; a hole asks nobody. (Backwards: who reads on gets more.) */
    for (size_t at = sizeof(want); at; at -= 4096)
        ck_assert_mem_eq(map + 17 * MIB + at - 4096, want + at - 4096, 4096);
    for (size_t at = 400 * KIB; at > 100 * KIB; at -= 4096)
        ck_assert(util_is_zero(map + 17 * MIB + at, 4096));
    ck_assert_uint_eq(counts().get, 1);
    munmap(map, 32 * MIB);
    close(fd);
    end();
}
END_TEST

START_TEST(test_remote__the_first_byte_takes_four_round_trips)
{
    begin();
    publish_islands(4);
    char path[1024];
    snprintf(path, sizeof(path), "%s", shown("memory"));
    s3fs_reset_stats(fs);
    uint8_t byte;
    CLEANUP_FD int fd = ck_sys(open(path, O_RDONLY));
    /* meta.json, whether its manifest is there, the manifest; then the chunk. */
    ck_assert_uint_le(counts().requests, 3);
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)MIB), 1);
    ck_assert_uint_le(counts().requests, 4);
    close(util_steal_fd(&fd));
    end();
}
END_TEST

START_TEST(test_remote__random_pages_transfer_their_chunks_only)
{
    begin();
    enum { ISLANDS = 400, TOUCHES = 250 };
    publish_islands(ISLANDS);
    static bool touched[ISLANDS];
    int fd = ck_sys(open(shown("memory"), O_RDONLY));
    uint8_t *map = mmap(NULL, ISLANDS * MIB, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    s3fs_reset_stats(fs);
    uint64_t seed = 7, chunks = 0;
    uint8_t want[64 * KIB];
    for (int i = 0; i < TOUCHES; i++) {
        unsigned island = (unsigned)(testing_random(&seed) % ISLANDS);
        size_t page = testing_random(&seed) % 16 * 4096;
        testing_fill(want, sizeof(want), 100 + island);
        ck_assert(memcmp(map + island * MIB + page, want + page, 4096) == 0);
        chunks += !touched[island];
        touched[island] = true;
        /* And some pages of holes. */
        ck_assert(util_is_zero(map + island * MIB + 512 * KIB + page, 4096));
    }
    struct s3fs_stats st = counts();
    ck_assert_uint_le(st.get, chunks);
    ck_assert_uint_le(st.body_out, chunks * (64 * KIB + 1024));
    munmap(map, ISLANDS * MIB);
    close(fd);
    end();
}
END_TEST

START_TEST(test_remote__reading_on_asks_for_more_at_a_time)
{
    begin();
    stage_file(&w, "memory", 0, 16 * MIB, 1, 0);
    stage_publish(&w, STAGE_A, "{}", false, gen);
    s3fs_reset_stats(fs);
    stage_same(stage_path(&w, "memory"), shown("memory"));
    struct s3fs_stats st = counts();
    ck_assert_uint_lt(st.get, 16 * MIB / (64 * KIB) / 2);
    ck_assert_uint_lt(st.body_out, 18 * MIB);
    /* Once here, nobody is asked again. */
    s3fs_reset_stats(fs);
    int fd = ck_sys(open(shown("memory"), O_RDONLY));
    ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
    stage_same(stage_path(&w, "memory"), shown("memory"));
    ck_assert_uint_lt(counts().body_out, 64 * KIB);
    end();
}
END_TEST

#define READERS 40 /* more than there are threads for it */

static atomic_int finished;
static char memory[1024]; /* the path; threads may not ask for one */

static void *read_one(void *arg)
{
    uint8_t byte;
    unsigned island = (unsigned)(uintptr_t)arg;
    int fd = open(memory, O_RDONLY);
    bool ok = fd >= 0 && pread(fd, &byte, 1, (off_t)(island * MIB)) == 1;
    atomic_fetch_add(&finished, 1);
    close(fd);
    return ok ? arg : NULL;
}

START_TEST(test_remote__slow_reads_keep_nobody_else_waiting)
{
    begin();
    publish_islands(READERS + 2);
    stage_fork(&w, STAGE_A, STAGE_B, "{\"n\":2}", (char[17]){0});
    snprintf(memory, sizeof(memory), "%s", shown("memory"));
    CLEANUP_FD int fd = ck_sys(open(memory, O_RDONLY));
    uint8_t byte;
    ck_assert_int_eq(pread(fd, &byte, 1, 0), 1);
    rule("GET key=packs/ do delay=2000");
    pthread_t threads[READERS];
    for (unsigned i = 0; i < READERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_one, (void *)(uintptr_t)(i + 1)),
                         0);
    poll(NULL, 0, 200);
    struct stat st;
    ck_sys(stat(world_path(&w, 0, STAGE_B "/meta.json"), &st));
    DIR *d = opendir(world_path(&w, 0, NULL));
    ck_assert_ptr_nonnull(d);
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    ck_assert_int_eq(n, 4);
    ck_sys(mkdir(world_path(&w, 0, STAGE_B "-1.tmp"), 0700));
    ck_sys(rmdir(world_path(&w, 0, STAGE_B "-1.tmp")));
    /* The rest of a chunk that is here; the kernel has a page of it. */
    for (off_t at = 60 * KIB; at; at -= 4096)
        ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    ck_assert_int_eq(atomic_load(&finished), 0);
    close(util_steal_fd(&fd));
    s3fs_clear(fs);
    for (unsigned i = 0; i < READERS; i++) {
        void *ok;
        ck_assert_int_eq(pthread_join(threads[i], &ok), 0);
        ck_assert_ptr_nonnull(ok);
    }
    end();
}
END_TEST

/* More than there are threads for reads. */
#define CROWD 48

static void start_all(pthread_t *threads, unsigned n, void *(*fn)(void *))
{
    for (unsigned i = 0; i < n; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, fn, (void *)(uintptr_t)(i + 1)), 0);
    poll(NULL, 0, 300);
}

static void join_all(const pthread_t *threads, unsigned n)
{
    void *ok;
    for (unsigned i = 0; i < n; i++) {
        ck_assert_int_eq(pthread_join(threads[i], &ok), 0);
        ck_assert_ptr_nonnull(ok);
    }
}

START_TEST(test_remote__however_many_reads_are_slow_staging_goes_on)
{
    begin();
    publish_islands(CROWD + 2);
    snprintf(memory, sizeof(memory), "%s", shown("memory"));
    close(ck_sys(open(memory, O_RDONLY)));
    ck_sys(mkdir(world_path(&w, 0, STAGE_B "-1.tmp"), 0700));
    CLEANUP_FD int fd =
        ck_sys(open(world_path(&w, 0, STAGE_B "-1.tmp/x"), O_RDWR | O_CREAT | O_EXCL, 0600));
    ck_assert_int_eq(write(fd, "abc", 3), 3);
    rule("GET key=packs/ do delay=4000");
    pthread_t threads[CROWD];
    start_all(threads, CROWD, read_one);
    ck_sys(fsync(fd));
    ck_sys(fallocate(fd, 0, 0, 8192));
    off_t from = 0, to = 4096;
    ck_assert_int_eq(copy_file_range(fd, &from, fd, &to, 3, 0), 3);
    ck_assert_int_eq(atomic_load(&finished), 0);
    s3fs_clear(fs);
    join_all(threads, CROWD);
    close(util_steal_fd(&fd));
    end();
}
END_TEST

/* More than there are threads for names. */
#define FORKS 20

static char forks[FORKS][1024];

static void *stat_one(void *arg)
{
    struct stat st;
    int rc = stat(forks[(uintptr_t)arg - 1], &st);
    atomic_fetch_add(&finished, 1);
    return rc ? NULL : arg;
}

START_TEST(test_remote__however_many_manifests_are_slow_a_staging_can_be_made)
{
    begin();
    publish_islands(1);
    for (unsigned i = 0; i < FORKS; i++) {
        char id[32], meta[32], of[17];
        struct stat st;
        snprintf(id, sizeof(id), "ck_%016x", 0xf000 + i);
        snprintf(meta, sizeof(meta), "{\"fork\":%u}", i);
        stage_fork(&w, STAGE_A, id, meta, of);
        snprintf(forks[i], sizeof(forks[i]), "%s", stage_shown(&w, 0, id, of, ""));
        ck_sys(stat(forks[i], &st)); /* the folder, for which no manifest is needed */
        snprintf(forks[i], sizeof(forks[i]), "%s", stage_shown(&w, 0, id, of, "memory"));
    }
    rule("GET key=export- do delay=4000");
    pthread_t threads[FORKS];
    start_all(threads, FORKS, stat_one);
    ck_sys(mkdir(world_path(&w, 0, STAGE_B "-1.tmp"), 0700));
    ck_assert_int_eq(atomic_load(&finished), 0);
    s3fs_clear(fs);
    join_all(threads, FORKS);
    end();
}
END_TEST

START_TEST(test_remote__a_reader_that_waits_can_be_killed)
{
    begin();
    publish_islands(4);
    close(ck_sys(open(shown("memory"), O_RDONLY)));
    rule("GET key=packs/ do delay=9000");
    pid_t pid = ck_sys(fork());
    if (pid == 0) {
        uint8_t byte;
        int fd = open(shown("memory"), O_RDONLY);
        (void)!pread(fd, &byte, 1, 0);
        _exit(0);
    }
    poll(NULL, 0, 500);
    ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
    int64_t begun = clock_monotonic();
    ck_sys(kill(pid, SIGKILL));
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    /* The read itself goes on for eight seconds. */
    ck_assert_int_lt((clock_monotonic() - begun) / NS_PER_S, 6);
    s3fs_clear(fs);
    CLEANUP_FD int fd = ck_sys(open(shown("memory"), O_RDONLY));
    uint8_t byte;
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)MIB), 1);
    close(util_steal_fd(&fd));
    end();
}
END_TEST

static atomic_int ticks;

static void tick(int signo)
{
    (void)signo;
    atomic_fetch_add(&ticks, 1);
}

START_TEST(test_remote__other_signals_do_not_make_a_read_fail)
{
    begin();
    publish_islands(4);
    int fd = ck_sys(open(shown("memory"), O_RDONLY));
    rule("GET key=packs/ do delay=700");
    struct sigaction sa = {.sa_handler = tick};
    ck_sys(sigaction(SIGALRM, &sa, NULL));
    ck_sys(
        setitimer(ITIMER_REAL, &(struct itimerval){{.tv_usec = 20000}, {.tv_usec = 20000}}, NULL));
    uint8_t byte;
    ssize_t n = pread(fd, &byte, 1, (off_t)MIB);
    int e = errno;
    ck_sys(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    ck_assert_msg(n == 1, "%s", strerror(e));
    ck_assert_int_gt(atomic_load(&ticks), 0);
    close(fd);
    end();
}
END_TEST

START_TEST(test_remote__passing_faults_are_not_seen)
{
    begin();
    publish_islands(8);
    rule("GET key=packs/ times=1 do status=503 code=SlowDown");
    rule("GET key=packs/ times=1 do reset");
    rule("GET key=packs/ times=1 do cut=1000");
    rule("GET key=packs/ times=1 do flip=77");
    rule("GET key=records/ times=1 do status=500");
    stage_same(stage_path(&w, "memory"), shown("memory"));
    end();
}
END_TEST

START_TEST(test_remote__an_outage_is_an_error_that_ends_with_it)
{
    begin();
    publish_islands(4);
    struct stat st;
    ck_sys(stat(shown("memory"), &st));
    rule("ANY do status=403 code=AccessDenied");
    sleep(2);
    errno = 0;
    ck_assert_int_eq(stat(world_path(&w, 0, STAGE_A), &st), -1);
    ck_assert_int_ne(errno, ENOENT);
    ck_assert_int_ne(errno, ESTALE);
    s3fs_clear(fs);
    stage_same(stage_path(&w, "memory"), shown("memory"));
    end();
}
END_TEST

#define RECORDS 48

/* Kilobytes that the mount's process had resident at most. */
static long peak(void)
{
    return world_proc(&w, 0, "status", "VmHWM");
}

static void *read_all(void *arg)
{
    int *fds = arg;
    CLEANUP_FREE uint8_t *buf = malloc(MIB);
    for (int i = 0; i < RECORDS / 8; i++)
        if (!buf || util_pread_full(fds[i], buf, MIB, 0) != (ssize_t)MIB)
            return NULL;
    return arg;
}

START_TEST(test_remote__many_open_files_take_little_memory)
{
    begin();
    static int fds[RECORDS];
    pthread_t threads[8];
    char id[32];
    for (unsigned i = 0; i < RECORDS; i++) {
        snprintf(id, sizeof(id), "ck_%016x", i);
        stage_file(&w, "memory", 0, MIB, 1000 + i, 0);
        stage_publish(&w, id, "{}", false, gen);
        fds[i] = ck_sys(open(stage_shown(&w, 0, id, gen, "memory"), O_RDONLY));
    }
    rule("GET key=packs/ do delay=20");
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, &fds[i * RECORDS / 8]), 0);
    for (int i = 0; i < 8; i++) {
        void *ok;
        ck_assert_int_eq(pthread_join(threads[i], &ok), 0);
        ck_assert_ptr_nonnull(ok);
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    ck_assert_int_lt(peak(), 100L * 1024);
#else
    ck_assert_int_gt(peak(), 0);
#endif
    for (int i = 0; i < RECORDS; i++)
        close(fds[i]);
    end();
}
END_TEST

TESTING_MAIN(mount_remote, test_remote__the_first_byte_takes_four_round_trips,
             test_remote__many_open_files_take_little_memory,
             test_remote__a_cold_fault_is_one_request,
             test_remote__random_pages_transfer_their_chunks_only,
             test_remote__reading_on_asks_for_more_at_a_time,
             test_remote__slow_reads_keep_nobody_else_waiting,
             test_remote__however_many_reads_are_slow_staging_goes_on,
             test_remote__however_many_manifests_are_slow_a_staging_can_be_made,
             test_remote__a_reader_that_waits_can_be_killed,
             test_remote__other_signals_do_not_make_a_read_fail,
             test_remote__passing_faults_are_not_seen,
             test_remote__an_outage_is_an_error_that_ends_with_it)
