/* What listings remember: the file by itself. */
#include "store/heads.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *state;
static uint8_t secret[XXH3_SECRET_LEN], other_secret[XXH3_SECRET_LEN];
static struct cairn_error err;

static struct heads *open_heads(void)
{
    struct heads *h = NULL;
    ck_ok(heads_new(state, secret, &h, &err));
    return h;
}

static void start(void)
{
    state = testing_tmpdir();
    testing_fill(secret, sizeof(secret), 1);
    testing_fill(other_secret, sizeof(other_secret), 2);
}

static const char *file(void)
{
    static char path[400];
    snprintf(path, sizeof(path), "%s/heads", state);
    return path;
}

static uint64_t size(void)
{
    struct stat st;
    return stat(file(), &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* Of record i, in its version v. */
static struct head make(unsigned i, unsigned v)
{
    struct head h = {.created_ns = -5 + (int64_t)i,
                     .logical_bytes = UINT64_MAX - i,
                     .stored_bytes = i,
                     .files = v,
                     .has_digest = i % 2};
    if (i % 3)
        snprintf(h.id, sizeof(h.id), "ck_%016x", i);
    else
        snprintf(h.id, sizeof(h.id), "tp_%032x", i);
    snprintf(h.gen, sizeof(h.gen), "%016x", i * 31 + v);
    testing_fill(h.stamp, sizeof(h.stamp), i * 1000 + v);
    testing_fill(h.digest, sizeof(h.digest), i);
    return h;
}

static bool knows(struct heads *h, uint32_t listing, unsigned i, unsigned v)
{
    struct head want = make(i, v), got;
    if (!heads_find(h, listing, want.id, &got))
        return false;
    ck_assert_str_eq(got.id, want.id);
    if (strcmp(got.gen, want.gen) != 0)
        return false;
    ck_assert_mem_eq(got.stamp, want.stamp, sizeof(got.stamp));
    ck_assert_mem_eq(got.digest, want.digest, sizeof(got.digest));
    ck_assert_int_eq(got.created_ns, want.created_ns);
    ck_assert_uint_eq(got.logical_bytes, want.logical_bytes);
    ck_assert_uint_eq(got.stored_bytes, want.stored_bytes);
    ck_assert_uint_eq(got.files, want.files);
    ck_assert_int_eq(got.has_digest, want.has_digest);
    return true;
}

static unsigned count(struct heads *h, unsigned from, unsigned to, unsigned v)
{
    uint32_t listing = heads_begin(h);
    unsigned n = 0;
    for (unsigned i = from; i < to; i++)
        n += knows(h, listing, i, v);
    heads_end(h, listing, false);
    return n;
}

static void put(struct heads *h, unsigned from, unsigned to, unsigned v)
{
    uint32_t listing = heads_begin(h);
    for (unsigned i = from; i < to; i++) {
        struct head row = make(i, v);
        heads_put(h, listing, &row);
    }
    heads_end(h, listing, false);
}

START_TEST(test_heads__what_was_put_is_found_again_here_and_later)
{
    start();
    struct heads *h = open_heads();
    ck_assert_uint_eq(count(h, 0, 10, 0), 0);
    put(h, 0, 1000, 0);
    ck_assert_uint_eq(count(h, 0, 1000, 0), 1000);
    ck_assert_uint_eq(count(h, 1000, 2000, 0), 0);
    put(h, 500, 600, 1);
    ck_assert_uint_eq(count(h, 0, 1000, 0), 900);
    heads_free(h);
    h = open_heads();
    ck_assert_uint_eq(count(h, 0, 1000, 0), 900);
    ck_assert_uint_eq(count(h, 500, 600, 1), 100);
    heads_free(h);
    struct stat st;
    ck_assert_int_eq(stat(file(), &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    /* Without a heads there is no memory. */
    ck_assert_uint_eq(count(NULL, 0, 10, 0), 0);
    put(NULL, 0, 10, 0);
    heads_free(NULL);
}
END_TEST

START_TEST(test_heads__another_process_is_followed)
{
    start();
    struct heads *a = open_heads(), *b = open_heads();
    put(a, 0, 100, 0);
    ck_assert_uint_eq(count(b, 0, 100, 0), 100);
    put(b, 100, 200, 0);
    put(a, 200, 300, 0);
    ck_assert_uint_eq(count(a, 0, 300, 0), 300);
    ck_assert_uint_eq(count(b, 0, 300, 0), 300);
    put(b, 0, 50, 7);
    ck_assert_uint_eq(count(a, 0, 50, 7), 50);
    /* The file goes: what is known stays known, and a new one is made. */
    ck_assert_int_eq(unlink(file()), 0);
    ck_assert_uint_eq(count(a, 0, 50, 7), 50);
    put(a, 300, 301, 0);
    ck_assert_uint_eq(count(b, 300, 301, 0), 1);
    heads_free(a);
    heads_free(b);
}
END_TEST

START_TEST(test_heads__rows_of_another_store_are_none)
{
    start();
    struct heads *h = open_heads();
    put(h, 0, 100, 0);
    heads_free(h);
    ck_ok(heads_new(state, other_secret, &h, &err));
    ck_assert_uint_eq(count(h, 0, 100, 0), 0);
    put(h, 0, 10, 0);
    heads_free(h);
    ck_ok(heads_new(state, other_secret, &h, &err));
    ck_assert_uint_eq(count(h, 0, 100, 0), 10);
    heads_free(h);
}
END_TEST

/* A bit of every third byte, one after the other; then every thirteenth length. */
START_TEST(test_heads__damage_is_not_believed_and_is_mended)
{
    start();
    struct heads *h = open_heads();
    put(h, 0, 8, 0);
    heads_free(h);
    uint64_t len = size(), row = len / 8;
    static uint8_t sound[4096], bad[4096];
    ck_assert_uint_le(len, sizeof(sound));
    CLEANUP_FD int fd = open(file(), O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(util_pread_full(fd, sound, len, 0), (ssize_t)len);
    for (uint64_t at = 0; at < len + len; at += at < len ? 3 : 13) {
        uint64_t n = at < len ? len : at - len;
        memcpy(bad, sound, len);
        if (at < len)
            bad[at] ^= (uint8_t)(1 << at % 8);
        CLEANUP_FD int out = open(file(), O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_eq(util_pwrite_full(out, bad, n, 0), (ssize_t)n);
        h = open_heads();
        ck_assert_uint_eq(count(h, 0, 8, 0), at < len ? 7 : n / row);
        /* What is added behind a cut row is found. */
        put(h, 8, 10, 0);
        heads_free(h);
        h = open_heads();
        ck_assert_uint_eq(count(h, 0, 10, 0), (at < len ? 7 : n / row) + 2);
        ck_assert_uint_eq(size() % row, 0);
        heads_free(h);
    }
}
END_TEST

START_TEST(test_heads__what_is_of_no_use_is_dropped)
{
    start();
    struct heads *h = open_heads();
    put(h, 0, 1, 0);
    uint64_t row = size();
    /* The same record anew again and again. */
    for (unsigned v = 1; v < 3000; v++)
        put(h, 0, 1, v);
    ck_assert_uint_le(size() / row, 2000);
    ck_assert_uint_eq(count(h, 0, 1, 2999), 1);
    /* Records that are gone: a listing of all has not met them. */
    put(h, 0, 4000, 0);
    heads_free(h);
    h = open_heads();
    uint32_t listing = heads_begin(h);
    for (unsigned i = 0; i < 10; i++)
        ck_assert(knows(h, listing, i, 0));
    heads_end(h, listing, false);
    ck_assert_uint_eq(count(h, 0, 4000, 0), 4000); /* that was not all */
    heads_free(h);
    h = open_heads();
    listing = heads_begin(h);
    for (unsigned i = 0; i < 10; i++)
        ck_assert(knows(h, listing, i, 0));
    heads_end(h, listing, true);
    ck_assert_uint_eq(count(h, 0, 4000, 0), 10);
    ck_assert_uint_eq(size() / row, 10);
    heads_free(h);
}
END_TEST

START_TEST(test_heads__a_disk_that_takes_nothing_is_no_error)
{
    start();
    struct heads *h = open_heads();
    char inside[500];
    ck_assert_int_eq(mkdir(file(), 0700), 0); /* in its place */
    snprintf(inside, sizeof(inside), "%s/x", file());
    ck_assert_int_eq(mkdir(inside, 0700), 0);
    put(h, 0, 100, 0);
    ck_assert_uint_eq(count(h, 0, 100, 0), 100);
    put(h, 100, 200, 0);
    ck_assert_uint_eq(count(h, 0, 200, 0), 200);
    heads_free(h);
}
END_TEST

static void *work(void *arg)
{
    struct heads *h = arg;
    for (unsigned round = 0; round < 20; round++) {
        uint32_t listing = heads_begin(h);
        for (unsigned i = 0; i < 50; i++) {
            struct head got, row = make(i, round);
            if (!heads_find(h, listing, row.id, &got) || strcmp(got.gen, row.gen) != 0)
                heads_put(h, listing, &row);
        }
        heads_end(h, listing, round % 3 == 0);
    }
    return NULL;
}

START_TEST(test_heads__threads_and_processes_share_it)
{
    start();
    struct heads *h[2] = {open_heads(), open_heads()};
    pthread_t threads[6];
    for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, h[i % 2]), 0);
    for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
        pthread_join(threads[i], NULL);
    put(h[0], 0, 50, 99);
    ck_assert_uint_eq(count(h[0], 0, 50, 99), 50);
    heads_free(h[0]);
    heads_free(h[1]);
    struct heads *again = open_heads();
    ck_assert_uint_eq(count(again, 0, 50, 99), 50);
    heads_free(again);
}
END_TEST

TESTING_MAIN(heads, test_heads__what_was_put_is_found_again_here_and_later,
             test_heads__another_process_is_followed, test_heads__rows_of_another_store_are_none,
             test_heads__damage_is_not_believed_and_is_mended,
             test_heads__what_is_of_no_use_is_dropped,
             test_heads__a_disk_that_takes_nothing_is_no_error,
             test_heads__threads_and_processes_share_it)
