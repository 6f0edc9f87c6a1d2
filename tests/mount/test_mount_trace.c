/* What a first reader touched is fetched ahead for the next one, on the fault server, which counts.
 */
#include "base/clock.h"
#include "base/util.h"
#include "store/trace.h"
#include "tests/mount/bucket.h"
#include "tests/mount/stage.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define KIB     ((size_t)1 << 10)
#define MIB     ((size_t)1 << 20)
#define CHUNK   (64 * KIB)
#define ISLANDS 96u
#define TOUCHES 40u
/* What has to come about in the background, on a machine that is busy. */
#define SOON_NS (40 * NS_PER_S)

static struct world w;
static struct cairn_error err;
static char gen[17];

static void begin(size_t nodes)
{
    bucket_start(&w, nodes);
    /* 64 KiB of data at the beginning of each MiB. */
    for (unsigned i = 0; i < ISLANDS; i++)
        stage_file(&w, "disk/memory", i * MIB, CHUNK, 100 + i, ISLANDS * MIB);
    stage_publish(&w, STAGE_A, "{}", false, gen);
}

static void end(void)
{
    bucket_stop(&w);
}

static void sleep_ms(int ms)
{
    poll(NULL, 0, ms);
}

static int open_memory(size_t node, const char *id, const char *of)
{
    return (int)ck_sys(open(stage_shown(&w, node, id, of, "disk/memory"), O_RDONLY));
}

/* The n-th island that is touched: scrambled, each once. */
static unsigned nth(unsigned n)
{
    return (n * 37 + 11) % ISLANDS;
}

/* A page of each of the islands from `from` on. */
static void touch(int fd, unsigned from, unsigned n)
{
    uint8_t want[CHUNK], is[4096];
    for (unsigned i = from; i < from + n; i++) {
        size_t page = i % 16 * 4096;
        testing_fill(want, sizeof(want), 100 + nth(i));
        ck_assert_int_eq(pread(fd, is, sizeof(is), (off_t)(nth(i) * MIB + page)), sizeof(is));
        ck_assert(memcmp(is, want + page, sizeof(is)) == 0);
        /* Holes are nobody's first touch. */
        ck_assert_int_eq(pread(fd, is, sizeof(is), (off_t)(nth(i) * MIB + 512 * KIB)), sizeof(is));
    }
}

static void read_on(size_t node, const char *id, const char *of, unsigned n)
{
    int fd = open_memory(node, id, of);
    touch(fd, 0, n);
    close(fd);
}

static const char *key_of(const char *id, const char *of)
{
    static char key[600];
    char part[KEY_MAX];
    layout_trace(id, of, part);
    text(key, sizeof(key), "%s/%s", w.store + strlen("s3://bucket/"), part);
    return key;
}

/* The trace of a generation that has n chunks by now: as it is in the store, waited for. */
static void trace_of(const char *id, const char *of, uint32_t n, struct trace *out)
{
    CLEANUP_MANIFEST struct manifest *m = NULL;
    struct cairn_store *s = world_store(&w);
    ck_ok(store_load_manifest(s, NULL, id, of, &m, &err));
    for (int64_t until = clock_monotonic() + SOON_NS;; sleep_ms(20)) {
        int rc = trace_get(s, NULL, id, of, m, out, &err);
        if (!rc && out->chunks == n)
            break;
        ck_assert(!rc || rc == CAIRN_NOT_FOUND || rc == CAIRN_CORRUPT);
        ck_assert_msg(clock_monotonic() < until, "no trace of %u chunks: %s", n,
                      rc ? err.message : "another one");
        trace_release(out);
    }
    cairn_close(s);
}

static void trace_is(const char *id, const char *of, uint32_t n)
{
    CLEANUP_TRACE struct trace t = {0};
    trace_of(id, of, n, &t);
}

/* Until so many chunks were sent. */
static void wait_for_chunks(unsigned n)
{
    int64_t until = clock_monotonic() + SOON_NS;
    while (counts().body_out < n * CHUNK) {
        ck_assert_msg(clock_monotonic() < until, "only %llu bytes were fetched ahead",
                      (unsigned long long)counts().body_out);
        sleep_ms(20);
    }
}

/* ---- The order is kept, and made use of ---- */

START_TEST(test_trace__what_was_touched_first_is_here_at_the_next_open)
{
    CLEANUP_TRACE struct trace t = {0};
    begin(2);
    s3fs_reset_stats(fs);
    read_on(0, STAGE_A, gen, TOUCHES);
    trace_of(STAGE_A, gen, TOUCHES, &t);
    ck_assert_uint_ge(counts().get, TOUCHES);
    ck_assert_uint_eq(t.n, TOUCHES);
    for (unsigned i = 0; i < TOUCHES; i++) {
        ck_assert_uint_eq(t.runs[i].first, nth(i) * MIB / CHUNK);
        ck_assert_uint_eq(t.runs[i].count, 1);
    }
    s3fs_reset_stats(fs);
    int fd = open_memory(1, STAGE_A, gen);
    wait_for_chunks(TOUCHES);
    uint64_t fetched = counts().get;
    ck_assert_uint_lt(fetched, TOUCHES);
    touch(fd, 0, TOUCHES);
    ck_assert_uint_eq(counts().get, fetched);
    ck_assert_uint_lt(counts().body_out, (TOUCHES + 2) * CHUNK + 64 * KIB);
    close(fd);
    /* Nothing was missed: nothing is put. */
    sleep_ms(200);
    ck_assert_uint_eq(counts().put, 0);
    world_verify(&w);
    end();
}
END_TEST

START_TEST(test_trace__a_fork_has_its_parents)
{
    char fork[17];
    begin(2);
    stage_fork(&w, STAGE_A, STAGE_B, "{\"n\":2}", fork);
    read_on(0, STAGE_A, gen, TOUCHES);
    trace_is(STAGE_A, gen, TOUCHES);
    s3fs_reset_stats(fs);
    int fd = open_memory(1, STAGE_B, fork);
    wait_for_chunks(TOUCHES);
    uint64_t fetched = counts().get;
    ck_assert_uint_lt(fetched, TOUCHES);
    touch(fd, 0, TOUCHES);
    ck_assert_uint_eq(counts().get, fetched);
    close(fd);
    /* It has one of its own then. */
    trace_is(STAGE_B, fork, TOUCHES);
    end();
}
END_TEST

START_TEST(test_trace__what_it_lacks_is_added)
{
    CLEANUP_TRACE struct trace t = {0};
    begin(2);
    read_on(0, STAGE_A, gen, 24);
    trace_is(STAGE_A, gen, 24);
    /* A little is not worth it; much is. */
    read_on(0, STAGE_A, gen, 27);
    sleep_ms(200);
    trace_is(STAGE_A, gen, 24);
    read_on(1, STAGE_A, gen, TOUCHES);
    trace_of(STAGE_A, gen, TOUCHES, &t);
    for (unsigned i = 0; i < TOUCHES; i++)
        ck_assert_uint_eq(t.runs[i].first, nth(i) * MIB / CHUNK);
    end();
}
END_TEST

/* ---- It is a hint ---- */

START_TEST(test_trace__what_is_no_trace_harms_nobody_and_is_replaced)
{
    static const char *const bad[] = {
        "", "{\"files\":[\"disk/memory\"],\"touched\":[[0,0,99999999]]}",
        "{\"files\":[\"other\"],\"touched\":[[0,0,8192]]}",
        "{\"files\":[\"disk/memory\"],\"touched\":[[0,9223372036854775807,8192]]}"};
    begin(2);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        s3fs_store(fs, key_of(STAGE_A, gen), bad[i], strlen(bad[i]));
        world_unmount(&w, i % 2);
        world_mount(&w, i % 2);
        read_on(i % 2, STAGE_A, gen, TOUCHES);
        trace_is(STAGE_A, gen, TOUCHES);
    }
    end();
}
END_TEST

START_TEST(test_trace__who_may_not_write_reads_all_the_same)
{
    begin(1);
    rule("PUT do status=403 code=AccessDenied");
    s3fs_reset_stats(fs);
    read_on(0, STAGE_A, gen, TOUCHES);
    int64_t until = clock_monotonic() + SOON_NS;
    while (!counts().put && clock_monotonic() < until)
        sleep_ms(20);
    ck_assert_uint_eq(counts().put, 1);
    sleep_ms(200);
    /* It is not asked for it again. */
    read_on(0, STAGE_A, gen, TOUCHES);
    sleep_ms(300);
    ck_assert_uint_eq(counts().put, 1);
    ck_assert(!s3fs_has(fs, key_of(STAGE_A, gen)));
    s3fs_clear(fs);
    end();
}
END_TEST

START_TEST(test_trace__little_is_not_kept)
{
    begin(1);
    s3fs_reset_stats(fs);
    read_on(0, STAGE_A, gen, 8);
    sleep_ms(300);
    ck_assert_uint_eq(counts().put, 0);
    end();
}
END_TEST

START_TEST(test_trace__without_them_nothing_is_asked_for_or_put)
{
    char path[300], line[600];
    unsigned lines = 0;
    world_trace(false);
    begin(1);
    s3fs_store(fs, key_of(STAGE_A, gen), "x", 1);
    text(path, sizeof(path), "%s/requests", w.top);
    ck_assert(s3fs_log(fs, path));
    read_on(0, STAGE_A, gen, TOUCHES);
    sleep_ms(300);
    end();
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f)) {
        ck_assert_msg(!strstr(line, "/trace-"), "%s", line);
        lines++;
    }
    fclose(f);
    ck_assert_uint_ge(lines, TOUCHES);
}
END_TEST

/* ---- It goes with its record ---- */

START_TEST(test_trace__it_goes_with_its_record)
{
    begin(1);
    read_on(0, STAGE_A, gen, TOUCHES);
    trace_is(STAGE_A, gen, TOUCHES);
    uint64_t n = s3fs_count(fs);
    stage_delete(&w, STAGE_A);
    ck_assert(!s3fs_has(fs, key_of(STAGE_A, gen)));
    ck_assert_uint_eq(s3fs_count(fs), n - 3 + 1); /* and a tombstone */
    /* Who still has it open puts none of what is gone. */
    stage_publish(&w, STAGE_B, "{\"b\":1}", false, gen);
    int fd = open_memory(0, STAGE_B, gen);
    touch(fd, 0, TOUCHES);
    stage_delete(&w, STAGE_B);
    close(fd);
    sleep_ms(300);
    ck_assert(!s3fs_has(fs, key_of(STAGE_B, gen)));
    end();
}
END_TEST

START_TEST(test_trace__alone_it_shows_no_record)
{
    struct stat st;
    unsigned n = 0;
    begin(1);
    s3fs_store(fs, key_of(STAGE_B, gen), "{\"files\":[],\"touched\":[]}", 25);
    ck_errno(stat(world_path(&w, 0, STAGE_B), &st), ENOENT);
    DIR *d = opendir(world_path(&w, 0, NULL));
    ck_assert_ptr_nonnull(d);
    while (readdir(d))
        n++;
    closedir(d);
    ck_assert_uint_eq(n, 3); /* with . and .. */
    /* Beside a record it shows nowhere either. */
    s3fs_store(fs, key_of(STAGE_A, gen), "{\"files\":[],\"touched\":[]}", 25);
    d = opendir(world_path(&w, 0, STAGE_A));
    ck_assert_ptr_nonnull(d);
    for (n = 0; readdir(d); n++)
        ;
    closedir(d);
    ck_assert_uint_eq(n, 4); /* meta.json and the export */
    end();
}
END_TEST

/* ---- Nobody waits for it ---- */

START_TEST(test_trace__an_open_file_is_read_while_the_store_is_slow_ahead)
{
    begin(2);
    read_on(0, STAGE_A, gen, TOUCHES);
    trace_is(STAGE_A, gen, TOUCHES);
    /* Neither the open nor a read of what the trace does not have. */
    rule("GET key=trace- do hole");
    read_on(1, STAGE_A, gen, TOUCHES);
    s3fs_clear(fs);
    end();
}
END_TEST

/* Lines of the server's log that have the text. */
static unsigned asked_for(const char *log, const char *what)
{
    char line[600];
    unsigned n = 0;
    FILE *f = fopen(log, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f))
        n += strstr(line, what) != NULL;
    fclose(f);
    return n;
}

/* Two others are fetched ahead from a store that does not answer: one that is opened over and over
 * meanwhile waits for its turn once. */
START_TEST(test_trace__what_is_opened_often_is_queued_once)
{
    char path[300], of_b[17], of_t[17];
    begin(1);
    stage_publish(&w, STAGE_B, "{\"b\":1}", false, of_b);
    stage_publish(&w, STAGE_T, "{\"t\":1}", false, of_t);
    text(path, sizeof(path), "%s/requests", w.top);
    ck_assert(s3fs_log(fs, path));
    rule("GET key=" STAGE_B "/trace- do hole");
    rule("GET key=" STAGE_T "/trace- do hole");
    int b = open_memory(0, STAGE_B, of_b), t = open_memory(0, STAGE_T, of_t);
    for (int64_t until = clock_monotonic() + SOON_NS; asked_for(path, "/trace-") < 2; sleep_ms(20))
        ck_assert(clock_monotonic() < until);
    for (int i = 0; i < 10; i++) {
        close(open_memory(0, STAGE_A, gen));
        sleep_ms(30); /* the mount hears of it later */
    }
    int a = open_memory(0, STAGE_A, gen);
    close(b);
    close(t);
    for (int64_t until = clock_monotonic() + SOON_NS; asked_for(path, STAGE_A "/trace-") < 1;
         sleep_ms(20))
        ck_assert(clock_monotonic() < until);
    sleep_ms(300);
    ck_assert_uint_eq(asked_for(path, STAGE_A "/trace-"), 1);
    close(a);
    end();
}
END_TEST

/* How the mount ends, asked to: its exit status, within some seconds. */
static int end_of(size_t node)
{
    int status;
    int64_t begun = clock_monotonic();
    ck_sys(kill(w.node[node].pid, SIGTERM));
    ck_sys(waitpid(w.node[node].pid, &status, 0));
    w.node[node].pid = 0;
    ck_assert(WIFEXITED(status));
    ck_assert_int_lt((clock_monotonic() - begun) / NS_PER_S, 20);
    return WEXITSTATUS(status);
}

START_TEST(test_trace__a_mount_that_fetches_ahead_ends_at_once)
{
    begin(2);
    read_on(0, STAGE_A, gen, TOUCHES);
    trace_is(STAGE_A, gen, TOUCHES);
    for (int closed = 0; closed < 2; closed++) {
        rule("GET key=packs/ do hole");
        s3fs_reset_stats(fs);
        int fd = open_memory(1, STAGE_A, gen);
        int64_t until = clock_monotonic() + SOON_NS;
        while (counts().get < 3 && clock_monotonic() < until)
            sleep_ms(20); /* manifest, trace, a pack */
        ck_assert_uint_ge(counts().get, 3);
        if (closed)
            close(fd);
        ck_assert_int_eq(end_of(1), closed ? 0 : 3);
        if (!closed)
            close(fd);
        s3fs_clear(fs);
        world_mount(&w, 1);
    }
    end();
}
END_TEST

START_TEST(test_trace__what_was_read_last_is_kept_at_the_end_of_the_mount)
{
    begin(1);
    rule("PUT key=trace- do delay=200");
    read_on(0, STAGE_A, gen, TOUCHES);
    world_unmount(&w, 0);
    ck_assert(s3fs_has(fs, key_of(STAGE_A, gen)));
    end();
}
END_TEST

TESTING_MAIN(mount_trace, test_trace__what_was_touched_first_is_here_at_the_next_open,
             test_trace__a_fork_has_its_parents, test_trace__what_it_lacks_is_added,
             test_trace__what_is_no_trace_harms_nobody_and_is_replaced,
             test_trace__who_may_not_write_reads_all_the_same, test_trace__little_is_not_kept,
             test_trace__without_them_nothing_is_asked_for_or_put,
             test_trace__it_goes_with_its_record, test_trace__alone_it_shows_no_record,
             test_trace__an_open_file_is_read_while_the_store_is_slow_ahead,
             test_trace__what_is_opened_often_is_queued_once,
             test_trace__a_mount_that_fetches_ahead_ends_at_once,
             test_trace__what_was_read_last_is_kept_at_the_end_of_the_mount)
