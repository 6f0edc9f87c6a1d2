/* What is noted of the reads of a generation. On a clock that the test moves. */
#include "fuse/touches.h"

#include "base/util.h"
#include "tests/lib/kit.h"
#include "tests/unit/trace_kit.h"

#include <pthread.h>
#include <string.h>

int64_t __wrap_clock_monotonic(void);

static struct cairn_error err;
static int64_t now = 1000;
static struct manifest *m;
static struct touches *t;

int64_t __wrap_clock_monotonic(void)
{
    return now;
}

#define CS 4096u

/* A file of `size` bytes, with data but for chunks [hole, end) of it. */
static void file(struct manifest_builder *b, const char *path, uint64_t size, uint64_t hole,
                 uint64_t end)
{
    static uint32_t n;
    static const uint8_t xxh[XXH3_LEN];
    ck_ok(manifest_builder_file_begin(b, path, strlen(path), size, &err));
    for (uint64_t no = 0; no * CS < size; no++) {
        uint64_t left = size - no * CS;
        struct chunk c = {.loc.encoding = CHUNK_ZSTD, .loc.stored_len = 100, .loc.offset = 64};
        put_le32(c.sha, ++n);
        put_le32(c.loc.pack, n / 100);
        c.loc.offset += n % 100 * 100;
        c.loc.plain_len = left < CS ? (uint32_t)left : CS;
        if (no < hole || no >= end)
            ck_ok(manifest_builder_chunk(b, no, &c, xxh, &err));
    }
    ck_ok(manifest_builder_file_end(b, &err));
}

/* "a": 100 chunks, of which 40 to 59 are a hole, and a byte; "b": n chunks of data. */
static void start(uint32_t n)
{
    struct manifest_builder *b = NULL;
    struct manifest_info info = {.id = CK_A, .gen = "0123456789abcdef"};
    uint8_t *data;
    size_t len;
    ck_ok(manifest_builder_new(CS, &b, &err));
    file(b, "a", 100 * CS + 1, 40, 60);
    file(b, "b", (uint64_t)n * CS, 0, 0);
    ck_ok(manifest_builder_encode(b, &info, &data, &len, &err));
    manifest_builder_free(b);
    ck_ok(manifest_decode(data, len, NULL, NULL, &m, &err));
    ck_ok(touches_new(m, &t, &err));
}

static void end(void)
{
    touches_free(t);
    manifest_free(m);
}

START_TEST(test_touches__first_touches_are_noted_in_their_order)
{
    struct touched got;
    start(200);
    touches_note(t, m, 0, 0, 10, true); /* not begun */
    touches_begin(t);
    touches_note(t, m, 1, 7 * CS, 1, false);
    touches_note(t, m, 0, 38 * CS + 5, 24 * CS, true); /* over the hole, to chunk 62 */
    touches_note(t, m, 1, 6 * CS, 3 * CS, true);       /* 7 is known */
    touches_note(t, m, 1, 7 * CS, 1, true);
    touches_note(t, m, 0, 100 * CS, 1, false);
    touches_note(t, m, 0, 5 * CS, 0, false);
    touches_note(t, m, 5, 0, 10, false); /* no such file */
    touches_note(t, m, 1, UINT64_MAX / 2, 10, false);
    touches_note(t, m, 0, 45 * CS, 4 * CS, false); /* all hole */
    ck_assert_uint_eq(touches_count(t), 9);
    touches_end(t, &got);
    ck_assert_uint_eq(got.all.n, 6);
    is(&got.all, 0, 1, 7, 1);
    is(&got.all, 1, 0, 38, 2);
    is(&got.all, 2, 0, 60, 3);
    is(&got.all, 3, 1, 6, 1);
    is(&got.all, 4, 1, 8, 1);
    is(&got.all, 5, 0, 100, 1);
    ck_assert_uint_eq(got.late.n, 4);
    ck_assert_uint_eq(got.late.chunks, 7);
    is(&got.late, 0, 0, 38, 2);
    ck_assert(!got.copy);
    touched_release(&got);
    /* It has ended: a second end has nothing, nor has what comes after it. */
    touches_note(t, m, 1, 20 * CS, CS, true);
    touches_end(t, &got);
    ck_assert_uint_eq(got.all.n + got.late.n, 0);
    touches_begin(t);
    touches_note(t, m, 1, 7 * CS, 1, false);
    touches_end(t, &got);
    ck_assert_uint_eq(got.all.chunks, 1);
    touched_release(&got);
    end();
}
END_TEST

START_TEST(test_touches__its_time_runs_from_the_first_touch)
{
    struct touched got;
    start(10);
    ck_assert(!touches_is_over(t, INT64_MAX));
    touches_begin(t);
    ck_assert(!touches_is_over(t, INT64_MAX));
    now = 5000;
    touches_note(t, m, 0, 45 * CS, 1, true); /* a hole is none */
    ck_assert(!touches_is_over(t, INT64_MAX));
    touches_note(t, m, 1, 0, 1, true);
    now += TOUCHES_NS / 2;
    touches_note(t, m, 1, CS, 1, true);
    ck_assert(!touches_is_over(t, 5000 + TOUCHES_NS - 1));
    ck_assert(touches_is_over(t, 5000 + TOUCHES_NS));
    touches_end(t, &got);
    ck_assert(!touches_is_over(t, INT64_MAX));
    touched_release(&got);
    end();
}
END_TEST

/* Of b's n chunks, touched in steps, those in [0, touched). */
static bool is_copy(uint32_t n, uint32_t touched, uint32_t step)
{
    struct touched got;
    start(n);
    touches_begin(t);
    for (uint32_t s = 0; s < step; s++)
        for (uint32_t no = s; no < touched; no += step)
            touches_note(t, m, 1, (uint64_t)no * CS, 1, true);
    ck_assert_uint_eq(touches_count(t), touched);
    touches_end(t, &got);
    ck_assert_uint_le(got.all.chunks, TRACE_CHUNKS_MAX);
    touched_release(&got);
    end();
    return got.copy;
}

START_TEST(test_touches__who_reads_nearly_everything_copies)
{
    uint32_t large = (80u << 20) / CS;
    /* All of what is small is a restore, too. */
    ck_assert(!is_copy(2000, 2000, 7));
    ck_assert(!is_copy(large, large / 3, 7));
    ck_assert(is_copy(large, large, 7));
    /* On and on, past what a trace has room for. */
    ck_assert(!is_copy(large, TRACE_CHUNKS_MAX - 10, 1));
    ck_assert(is_copy(large, TRACE_CHUNKS_MAX, 1));
}
END_TEST

START_TEST(test_touches__files_too_large_for_it_are_refused)
{
    struct manifest_builder *b = NULL;
    struct manifest_info info = {.id = CK_A, .gen = "0123456789abcdef"};
    CLEANUP_MANIFEST struct manifest *large = NULL;
    struct touches *none = NULL;
    uint8_t *data;
    size_t len;
    ck_ok(manifest_builder_new(CS, &b, &err));
    for (const char *path = "a"; *path; path = *path == 'a' ? "b" : "") {
        ck_ok(manifest_builder_file_begin(b, path, 1, INT64_MAX / 2, &err));
        ck_ok(manifest_builder_file_end(b, &err));
    }
    ck_ok(manifest_builder_encode(b, &info, &data, &len, &err));
    manifest_builder_free(b);
    ck_ok(manifest_decode(data, len, NULL, NULL, &large, &err));
    ck_fails(touches_new(large, &none, &err), CAIRN_INVALID);
    ck_assert_ptr_null(none);
}
END_TEST

#define READERS 4

static void *read_some(void *arg)
{
    for (uint32_t i = 0; i < 3000; i++)
        touches_note(t, m, 1, (uint64_t)((i * 7 + (uint32_t)(uintptr_t)arg) % 500) * CS, 1, true);
    return NULL;
}

START_TEST(test_touches__many_readers_note_each_chunk_once)
{
    pthread_t threads[READERS];
    struct touched got;
    start(500);
    touches_begin(t);
    for (uintptr_t i = 0; i < READERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_some, (void *)i), 0);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(touches_count(t), 500);
    touches_end(t, &got);
    ck_assert_uint_eq(got.all.chunks, 500);
    touched_release(&got);
    end();
}
END_TEST

TESTING_MAIN(touches, test_touches__first_touches_are_noted_in_their_order,
             test_touches__its_time_runs_from_the_first_touch,
             test_touches__who_reads_nearly_everything_copies,
             test_touches__files_too_large_for_it_are_refused,
             test_touches__many_readers_note_each_chunk_once)
