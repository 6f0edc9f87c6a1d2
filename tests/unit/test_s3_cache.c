/* Reads of a bucket through the cache: requests are counted where they arrive. */
#include "base/util.h"
#include "store/chunk_io.h"
#include "store/store.h"
#include "tests/s3/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CK_A "ck_00000000000000aa"
#define CK_B "ck_00000000000000bb"
#define CK_C "ck_00000000000000cc"
#define SIZE (6u << 20)
#define CS   65536u

static struct cairn_error err;
static struct cairn_store *s;
static char state[256], top[256];
static uint8_t bytes[SIZE];

static void open_store(void)
{
    struct s3_config c = store_config();
    struct backend *b = NULL;
    c.stall_ns = c.answer_ns = 20 * NS_PER_S;
    ck_ok(backend_s3_open(&c, &b, &err));
    struct cairn_config config = {.state = state, .workers = 4};
    s = NULL;
    ck_ok(store_new(b, &config, NULL, &s, &err));
}

static void new_state(void)
{
    static unsigned n;
    if (s)
        cairn_close(s);
    snprintf(state, sizeof(state), "%.200s/state%u", top, n++);
    open_store();
}

/* The bytes of seed, with a chunk of its own for each child. */
static void image(unsigned child)
{
    testing_fill(bytes, SIZE, 1);
    if (child)
        testing_fill(bytes + (size_t)child * 5 * CS, CS, 100 + child);
}

static void publish(const char *id, unsigned child, const char *parent)
{
    image(child);
    publish_bytes(s, top, id, parent, bytes, SIZE);
}

/* A template, two of its children, and a node that has nothing of them. */
static void start(void)
{
    server_start();
    snprintf(top, sizeof(top), "%.200s", testing_tmpdir());
    snprintf(state, sizeof(state), "%.200s/state", top);
    struct s3_config c = store_config();
    struct backend *b = NULL;
    ck_ok(backend_s3_open(&c, &b, &err));
    ck_ok(store_format_init(b, NULL, NULL, &err));
    backend_free(b);
    open_store();
    publish(CK_A, 0, NULL);
    publish(CK_B, 1, CK_A);
    publish(CK_C, 2, CK_A);
    new_state();
    s3fs_reset_stats(fs);
}

static void stop(void)
{
    cairn_close(s);
    s = NULL;
    s3fs_stop(fs);
    fs = NULL;
}

static struct cairn_record *open_record(const char *id)
{
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(s, NULL, id, &r, &err));
    return r;
}

static void read_same(struct cairn_record *r, uint64_t off, size_t len)
{
    CLEANUP_FREE uint8_t *is = malloc(len);
    size_t got;
    ck_ok(cairn_record_pread(r, NULL, 0, is, len, off, &got, &err));
    ck_assert_uint_eq(got, len);
    ck_assert_int_eq(memcmp(is, bytes + off, len), 0);
}

START_TEST(test_s3_cache__a_second_read_asks_for_nothing)
{
    start();
    image(0);
    struct cairn_record *r = open_record(CK_A);
    uint64_t opened = stats().get;
    read_same(r, 4 * CS + 5, 4096); /* a cold page: one request for its chunk */
    ck_assert_uint_eq(stats().get, opened + 1);
    ck_assert_uint_lt(stats().body_out, 2 * CS + 65536);
    read_same(r, 0, SIZE);
    uint64_t all = stats().get;
    ck_assert_uint_le(all, opened + 4);
    read_same(r, 0, SIZE);
    read_same(r, 4 * CS + 5, 4096);
    ck_assert_uint_eq(stats().get, all);
    cairn_record_close(r);
    cairn_close(s);
    open_store();
    r = open_record(CK_A);
    s3fs_reset_stats(fs);
    read_same(r, 0, SIZE);
    ck_assert_uint_eq(stats().requests, 0);
    cairn_record_close(r);
    stop();
}
END_TEST

#define READERS 50

struct reader {
    pthread_t thread;
    struct cairn_record *r;
    struct cairn_op op;
    int rc;
    struct cairn_error err;
    uint8_t is[4096];
};

static void *read_one(void *arg)
{
    struct reader *x = arg;
    size_t got;
    x->rc = cairn_record_pread(x->r, &x->op, 0, x->is, sizeof(x->is), 9 * CS, &got, &x->err);
    return NULL;
}

static void fifty(struct reader readers[READERS], struct cairn_record *r, double seconds)
{
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.r = r};
        cairn_op_init(&readers[i].op, seconds, NULL);
        ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, read_one, &readers[i]), 0);
    }
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i].thread, NULL);
}

/* The answer takes long enough for all to come. */
START_TEST(test_s3_cache__fifty_readers_of_a_cold_chunk_cost_one_request)
{
    static struct reader readers[READERS];
    start();
    image(0);
    struct cairn_record *r = open_record(CK_A);
    s3fs_reset_stats(fs);
    rule("GET key=packs/ times=1 do delay=1000");
    fifty(readers, r, 120);
    for (int i = 0; i < READERS; i++) {
        ck_assert_msg(readers[i].rc == CAIRN_OK, "%s", readers[i].err.message);
        ck_assert_int_eq(memcmp(readers[i].is, bytes + 9 * CS, 4096), 0);
    }
    ck_assert_uint_eq(stats().get, 1);
    ck_assert_uint_eq(stats().requests, 1);
    cairn_record_close(r);
    stop();
}
END_TEST

/* A server that accepts and never answers costs each its own deadline; later it is asked anew. */
START_TEST(test_s3_cache__a_black_hole_costs_a_reader_its_deadline)
{
    static struct reader readers[READERS];
    start();
    image(0);
    struct cairn_record *r = open_record(CK_A);
    s3fs_reset_stats(fs);
    rule("GET key=packs/ times=1 do hole");
    int64_t begin = clock_monotonic();
    fifty(readers, r, 0.5);
    ck_assert_double_lt(seconds_since(begin), 15);
    for (int i = 0; i < READERS; i++)
        ck_assert_int_eq(readers[i].rc, CAIRN_TIMEOUT);
    ck_assert_uint_eq(stats().get, 1);
    read_same(r, 20 * CS, CS);
    cairn_record_close(r);
    begin = clock_monotonic();
    stop(); /* while the download still hangs */
    ck_assert_double_lt(seconds_since(begin), 15);
}
END_TEST

static uint64_t fetch_gets(const char *id, unsigned child)
{
    char target[300], path[320];
    static unsigned n;
    struct cairn_fetch_result result;
    snprintf(target, sizeof(target), "%.200s/out%u", top, n++);
    struct cairn_record *r = open_record(id);
    uint64_t before = stats().body_out;
    ck_ok(cairn_record_fetch(r, NULL, target, NULL, &result, &err));
    uint64_t after = stats().body_out;
    cairn_record_close(r);
    image(child);
    snprintf(path, sizeof(path), "%s/memory", target);
    CLEANUP_FREE uint8_t *is = malloc(SIZE);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(util_pread_full(fd, is, SIZE, 0), SIZE);
    ck_assert_int_eq(memcmp(is, bytes, SIZE), 0);
    return after - before;
}

/* Children of one template: the second one downloads its own chunk, and no more. */
START_TEST(test_s3_cache__a_sibling_is_fetched_for_what_is_its_own)
{
    start();
    ck_assert_uint_ge(fetch_gets(CK_B, 1), SIZE);
    ck_assert_uint_lt(fetch_gets(CK_C, 2), 4 * CS);
    ck_assert_uint_lt(fetch_gets(CK_A, 0), 4 * CS);
    ck_assert_uint_lt(fetch_gets(CK_B, 1), 4096);
    /* What was only read serves a fetch as well. */
    new_state();
    image(0);
    struct cairn_record *r = open_record(CK_A);
    read_same(r, 0, SIZE / 2);
    cairn_record_close(r);
    uint64_t bytes_out = fetch_gets(CK_A, 0);
    ck_assert_uint_gt(bytes_out, SIZE / 2 - 1);
    ck_assert_uint_lt(bytes_out, SIZE / 2 + CS);
    stop();
}
END_TEST

/* As many as ever read at once, each with megabytes that were read ahead, would be kept. */
START_TEST(test_s3_cache__many_readers_leave_little_behind)
{
    struct chunk_ctx *ctx[4 * CHUNK_CTX_KEPT];
    size_t n = 0;
    start();
    fetch_gets(CK_B, 1);
    for (size_t i = 0; i < ARRAY_SIZE(ctx); i++)
        ck_ok(chunk_ctx_get(s, &ctx[i], &err));
    for (size_t i = 0; i < ARRAY_SIZE(ctx); i++) {
        ck_assert_ptr_null(ctx[i]->span);
        chunk_ctx_put(s, ctx[i]);
    }
    for (struct chunk_ctx *c = s->free_ctx; c; c = c->next)
        n++;
    ck_assert_uint_eq(n, CHUNK_CTX_KEPT);
    stop();
}
END_TEST

TESTING_MAIN(s3_cache, test_s3_cache__a_second_read_asks_for_nothing,
             test_s3_cache__fifty_readers_of_a_cold_chunk_cost_one_request,
             test_s3_cache__a_black_hole_costs_a_reader_its_deadline,
             test_s3_cache__a_sibling_is_fetched_for_what_is_its_own,
             test_s3_cache__many_readers_leave_little_behind)
