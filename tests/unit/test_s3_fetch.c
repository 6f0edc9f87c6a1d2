/* A fetch from a bucket: how many requests it makes, and that nothing wrong or half gets through.
 */
#include "base/util.h"
#include "store/cache.h"
#include "store/manifest.h"
#include "store/store.h"
#include "tests/s3/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CK_A "ck_00000000000000aa"
#define CK_B "ck_00000000000000bb"
#define SIZE (24u << 20)
#define CS   65536u

static struct cairn_error err;
static struct cairn_store *s;
static char top[256];
static uint8_t bytes[SIZE];

/* Silence is not counted as a fault, on a machine that is busy, but by tests of just that. */
static int64_t silence_ns = 30 * NS_PER_S;

static void open_store(const char *name, unsigned workers)
{
    struct s3_config c = store_config();
    if (silence_ns)
        c.stall_ns = c.answer_ns = silence_ns;
    struct backend *b = NULL;
    char state[300];
    snprintf(state, sizeof(state), "%.200s/%s", top, name);
    if (strcmp(name, "writer") == 0) /* on a machine that is busy, too: it is not what is tested */
        c.stall_ns = c.answer_ns = 60 * NS_PER_S;
    ck_ok(backend_s3_open(&c, &b, &err));
    struct cairn_config config = {.state = state, .workers = workers};
    s = NULL;
    ck_ok(store_new(b, &config, NULL, &s, &err));
}

static void start(enum cairn_compression compression)
{
    server_start();
    snprintf(top, sizeof(top), "%.200s", testing_tmpdir());
    struct s3_config c = store_config();
    struct backend *b = NULL;
    const struct cairn_init_options o = {.compression = compression};
    ck_ok(backend_s3_open(&c, &b, &err));
    ck_ok(store_format_init(b, &o, NULL, &err));
    backend_free(b);
    open_store("writer", 4);
}

static void stop(void)
{
    cairn_close(s);
    s3fs_stop(fs);
    fs = NULL;
}

/* bytes as the one file of a record; all-zero chunks are left out. */
static void publish(const char *id, const char *parent)
{
    publish_bytes(s, top, id, parent, bytes, SIZE);
}

/* A host that has nothing yet. */
static void go_elsewhere(unsigned workers)
{
    static unsigned n;
    char name[32];
    cairn_close(s);
    snprintf(name, sizeof(name), "reader%u", n++);
    open_store(name, workers);
}

static char target[300];

static int fetch(const struct cairn_op *op, const char *id)
{
    static unsigned n;
    struct cairn_record *r = NULL;
    struct cairn_fetch_result result;
    snprintf(target, sizeof(target), "%.200s/out%u", top, n++);
    ck_ok(cairn_record_open(s, NULL, id, &r, &err));
    s3fs_reset_stats(fs);
    int rc = cairn_record_fetch(r, op, target, NULL, &result, &err);
    cairn_record_close(r);
    return rc;
}

static void check_target(void)
{
    char path[320];
    snprintf(path, sizeof(path), "%s/memory", target);
    CLEANUP_FREE uint8_t *is = malloc(SIZE);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(util_pread_full(fd, is, SIZE, 0), SIZE);
    for (size_t at = 0; at < SIZE; at += CS)
        ck_assert_msg(memcmp(is + at, bytes + at, CS) == 0, "byte %zu on is wrong", at);
}

/* Neither the target nor what it was made in. */
static void check_nothing_left(void)
{
    DIR *dir = opendir(top);
    const struct dirent *d;
    while ((d = readdir(dir)))
        ck_assert_msg(!strstr(d->d_name, "out"), "%s was left", d->d_name);
    closedir(dir);
}

/* Two workers, three quarters of the data each of them may ask for at once. */
START_TEST(test_s3_fetch__a_request_brings_megabytes)
{
    start(CAIRN_COMPRESSION_NONE);
    testing_fill(bytes, SIZE, 1);
    publish(CK_A, NULL);
    go_elsewhere(2);
    ck_ok(fetch(NULL, CK_A));
    check_target();
    /* Of 8 MiB at first, of 2 MiB at last. */
    ck_assert_uint_le(stats().get, 6);
    struct cache_stats st;
    cache_stats(s->cache, &st);
    ck_assert_uint_le(st.opened, 12); /* it has no file to look into: once for each piece */
    ck_assert_uint_lt(stats().body_out, SIZE + CS);
    stop();
}
END_TEST

/* Runs with holes between them, as in a memory image, are one request; so is a chunk that is there
 * a hundred times. */
START_TEST(test_s3_fetch__holes_and_repeats_cost_no_requests)
{
    start(CAIRN_COMPRESSION_NONE);
    testing_fill(bytes, SIZE, 1);
    for (size_t i = 1; i < SIZE / CS; i += 3)
        memset(bytes + i * CS, 0, CS);
    for (size_t i = 8; i < SIZE / CS; i += 3)
        memcpy(bytes + i * CS, bytes + 2 * CS, CS);
    publish(CK_A, NULL);
    go_elsewhere(1);
    ck_ok(fetch(NULL, CK_A));
    check_target();
    ck_assert_uint_le(stats().get, 12);
    ck_assert_uint_lt(stats().body_out, SIZE / 3 + 4 * CS);
    stop();
}
END_TEST

/* The same data twice in a file, far apart, and compressed. */
START_TEST(test_s3_fetch__compressed_and_out_of_order)
{
    start(CAIRN_COMPRESSION_ZSTD);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)(i / CS * 7 + i % 251 + (i >> 9 & 3));
    publish(CK_A, NULL);
    testing_fill(bytes, SIZE / 4, 2);
    memmove(bytes + SIZE / 2, bytes + SIZE / 4, SIZE / 4);
    for (size_t i = 0; i < SIZE / CS / 2; i += 2) {
        uint8_t chunk[CS];
        memcpy(chunk, bytes + i * CS, CS);
        memcpy(bytes + i * CS, bytes + SIZE - (i + 1) * CS, CS);
        memcpy(bytes + SIZE - (i + 1) * CS, chunk, CS);
    }
    publish(CK_B, CK_A);
    go_elsewhere(3);
    ck_ok(fetch(NULL, CK_B));
    check_target();
    stop();
}
END_TEST

START_TEST(test_s3_fetch__a_piece_that_breaks_is_not_begun_anew)
{
    static const char *const rules[] = {"GET key=packs/ times=2 do close=1500000",
                                        "GET key=packs/ times=3 do reset"};
    start(CAIRN_COMPRESSION_NONE);
    testing_fill(bytes, SIZE, 3);
    publish(CK_A, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        go_elsewhere(3);
        s3fs_clear(fs);
        rule(rules[i]);
        ck_ok(fetch(NULL, CK_A));
        check_target();
        ck_assert_msg(stats().body_out < SIZE + (4u << 20), "%s: %llu bytes", rules[i],
                      (unsigned long long)stats().body_out);
    }
    /* One that falls silent, too; how much was lost with its connection, or with others that were
     * only slow, is not ours to say. */
    silence_ns = 0;
    go_elsewhere(3);
    s3fs_clear(fs);
    rule("GET key=packs/ times=2 do stall=1500000");
    ck_ok(fetch(NULL, CK_A));
    check_target();
    ck_assert_uint_ge(stats().get, 8);
    stop();
}
END_TEST

/* A bit that turns on its way costs its own chunk once more; other ranges than were asked for, and
 * whole objects in place of ranges, are asked for again. */
START_TEST(test_s3_fetch__what_is_wrong_is_fetched_again)
{
    static const char *const rules[] = {
        "GET key=packs/ times=1 do flip=900000", "GET key=packs/ times=3 do shift",
        "GET key=packs/ times=2 do norange", "GET key=packs/ times=2 do cut=700000"};
    for (int c = CAIRN_COMPRESSION_ZSTD; c <= CAIRN_COMPRESSION_NONE; c++) {
        start(c);
        for (size_t i = 0; i < SIZE; i++)
            bytes[i] = (uint8_t)(i / CS * 7 + i % 251);
        testing_fill(bytes, SIZE / 2, 4);
        publish(CK_A, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
            go_elsewhere(2);
            s3fs_clear(fs);
            rule(rules[i]);
            ck_ok(fetch(NULL, CK_A));
            check_target();
            if (!i)
                ck_assert_uint_lt(stats().body_out, SIZE + 2 * CS);
        }
        stop();
    }
}
END_TEST

/* What the pack itself has wrong is corrupt, and nothing of the rest is left. */
START_TEST(test_s3_fetch__a_damaged_pack_leaves_nothing)
{
    start(CAIRN_COMPRESSION_NONE);
    testing_fill(bytes, SIZE, 5);
    publish(CK_A, NULL);
    go_elsewhere(2);
    rule("GET key=packs/ do flip=900");
    ck_fails(fetch(NULL, CK_A), CAIRN_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.message, "packs/"));
    ck_assert_ptr_nonnull(strstr(err.message, "offset"));
    check_nothing_left();
    stop();
}
END_TEST

/* A manifest that somebody made up: what is verified as one chunk is not the other one that is said
 * to lie there, too. */
START_TEST(test_s3_fetch__two_chunks_in_one_place_are_not_taken_for_each_other)
{
    start(CAIRN_COMPRESSION_NONE);
    testing_fill(bytes, SIZE, 9);
    publish(CK_A, NULL);
    char gen[GEN_TEXT], key[KEY_MAX];
    CLEANUP_MANIFEST struct manifest *m = NULL;
    ck_ok(gen_of_meta(CK_A, strlen(CK_A), gen, &err));
    ck_ok(store_load_manifest(s, NULL, CK_A, gen, &m, &err));
    uint32_t n = manifest_info(m)->n_chunks;
    CLEANUP_FREE struct chunk_loc *locs = calloc(n, sizeof(*locs));
    for (uint32_t i = 0; i < n; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        locs[i] = c.loc;
    }
    locs[1] = locs[0];
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    ck_ok(manifest_relocate(m, locs, &data, &len, &err));
    layout_export(CK_A, gen, key);
    ck_ok(s->backend->ops->put(s->backend, NULL, key, data, len, &err));
    go_elsewhere(1);
    ck_fails(fetch(NULL, CK_A), CAIRN_CORRUPT);
    check_nothing_left();
    stop();
}
END_TEST

struct firing {
    struct cairn_cancel *token;
    pthread_t thread;
};

/* Once the body of a piece is on its way. */
static void *fire_late(void *arg)
{
    struct firing *f = arg;
    for (int i = 0; i < 1000 && stats().body_out < 1000000; i++)
        usleep(10000);
    cairn_cancel_fire(f->token);
    return NULL;
}

START_TEST(test_s3_fetch__cancelled_in_the_middle_of_a_piece)
{
    struct firing f;
    struct cairn_op op;
    start(CAIRN_COMPRESSION_NONE);
    testing_fill(bytes, SIZE, 6);
    publish(CK_A, NULL);
    cairn_close(s);
    struct s3_config c = store_config();
    struct backend *b = NULL;
    c.stall_ns = 60 * NS_PER_S; /* the server's silence does not end it */
    ck_ok(backend_s3_open(&c, &b, &err));
    struct cairn_config config = {.workers = 4};
    ck_ok(store_new(b, &config, NULL, &s, &err));
    ck_ok(cairn_cancel_new(&f.token, &err));
    cairn_op_init(&op, -1, f.token);
    rule("GET key=packs/ do stall=900000");
    s3fs_reset_stats(fs);
    ck_assert_int_eq(pthread_create(&f.thread, NULL, fire_late, &f), 0);
    int64_t begin = clock_monotonic();
    ck_fails(fetch(&op, CK_A), CAIRN_CANCELLED);
    ck_assert_double_lt(seconds_since(begin), 20);
    pthread_join(f.thread, NULL);
    cairn_cancel_free(f.token);
    check_nothing_left();
    /* The same with a deadline. */
    cairn_op_init(&op, 0.4, NULL);
    ck_fails(fetch(&op, CK_A), CAIRN_TIMEOUT);
    check_nothing_left();
    stop();
}
END_TEST

struct sibling {
    const char *id;
    char target[300];
    pthread_t thread;
    int rc;
    struct cairn_error err;
};

static void *fetch_sibling(void *arg)
{
    struct sibling *x = arg;
    struct cairn_record *r = NULL;
    struct cairn_fetch_result result;
    x->rc = cairn_record_open(s, NULL, x->id, &r, &x->err);
    if (!x->rc)
        x->rc = cairn_record_fetch(r, NULL, x->target, NULL, &result, &x->err);
    cairn_record_close(r);
    return NULL;
}

/* Children of one parent, fetched at the same time on one host: what they share comes once. Each
 * answer comes late, so that the others ask meanwhile. */
START_TEST(test_s3_fetch__siblings_at_once_download_what_they_share_once)
{
    static struct sibling siblings[4] = {{.id = "ck_0000000000000001"},
                                         {.id = "ck_0000000000000002"},
                                         {.id = "ck_0000000000000003"},
                                         {.id = "ck_0000000000000004"}};
    start(CAIRN_COMPRESSION_NONE);
    testing_fill(bytes, SIZE, 8);
    publish(CK_A, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(siblings); i++) {
        testing_fill(bytes + i * CS, CS, 100 + i);
        publish(siblings[i].id, CK_A);
        testing_fill(bytes, SIZE, 8);
    }
    go_elsewhere(8);
    rule("GET key=packs/ do delay=150");
    s3fs_reset_stats(fs);
    for (size_t i = 0; i < ARRAY_SIZE(siblings); i++) {
        snprintf(siblings[i].target, sizeof(siblings[i].target), "%.200s/sibling%zu", top, i);
        ck_assert_int_eq(pthread_create(&siblings[i].thread, NULL, fetch_sibling, &siblings[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(siblings); i++) {
        pthread_join(siblings[i].thread, NULL);
        ck_assert_msg(siblings[i].rc == CAIRN_OK, "%s", siblings[i].err.message);
        testing_fill(bytes, SIZE, 8);
        testing_fill(bytes + i * CS, CS, 100 + i);
        snprintf(target, sizeof(target), "%s", siblings[i].target);
        check_target();
    }
    ck_assert_msg(stats().body_out < SIZE + SIZE / 4, "%llu bytes",
                  (unsigned long long)stats().body_out);
    stop();
}
END_TEST

TESTING_MAIN(s3_fetch, test_s3_fetch__siblings_at_once_download_what_they_share_once,
             test_s3_fetch__a_request_brings_megabytes,
             test_s3_fetch__holes_and_repeats_cost_no_requests,
             test_s3_fetch__compressed_and_out_of_order,
             test_s3_fetch__a_piece_that_breaks_is_not_begun_anew,
             test_s3_fetch__what_is_wrong_is_fetched_again,
             test_s3_fetch__a_damaged_pack_leaves_nothing,
             test_s3_fetch__two_chunks_in_one_place_are_not_taken_for_each_other,
             test_s3_fetch__cancelled_in_the_middle_of_a_piece)
