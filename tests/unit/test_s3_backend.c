/* The backend under faults: what each costs the caller, and that nothing wrong gets through. */
#include "base/clock.h"
#include "base/util.h"
#include "tests/s3/object.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One fault of each kind on the first answer: the second one is right, and is what comes back. */
static const char *const passing[] = {
    "GET times=1 do status=500 code=InternalError",
    "GET times=1 do status=502 bare",
    "GET times=1 do status=504 bare",
    "GET times=1 do status=408 bare",
    "GET times=1 do close=0",
    "GET times=1 do close=5000",
    "GET times=1 do stall=0",
    "GET times=1 do stall=5000",
    "GET times=1 do hole",
    "GET times=1 do deaf",
    "GET times=1 do reset",
    "GET times=1 do nothing",
    "GET times=1 do norange",
    "GET times=1 do claim=1",
    "GET times=1 do claim=100000",
    "GET times=1 do claim=-1",
    "GET times=1 do cut=5000",
    "GET times=1 do extra=10 status=500",
    /* Last, since all that follows is slower then. */
    "GET times=1 do status=429 bare",
    "GET times=1 do status=503 bare",
    "GET times=1 do status=503 code=SlowDown",
};

START_TEST(test_s3_backend__a_read_survives_one_fault_of_each_kind)
{
    struct cairn_error err;
    FOR_EACH_SIGNATURE(v)
    {
        plant();
        for (size_t i = 0; i < ARRAY_SIZE(passing); i++) {
            s3fs_clear(fs);
            rule(passing[i]);
            uint64_t before = stats().get;
            int rc = read_range(NULL, 20000, 30000, &err);
            ck_assert_msg(!rc, "v%d, %s: %s", v ? 2 : 4, passing[i], err.message);
            ck_assert_msg(memcmp(got, body + 20000, 30000) == 0, "v%d, %s: wrong bytes", v ? 2 : 4,
                          passing[i]);
            ck_assert_msg(stats().get - before >= 2, "v%d, %s: the fault did not happen", v ? 2 : 4,
                          passing[i]);
        }
    }
}
END_TEST

/* Faults that cannot be waited out: the class in which each ends. */
static const struct {
    const char *rule;
    int error_class;
} lasting[] = {
    {"GET do status=403 code=AccessDenied", CAIRN_PERMANENT},
    {"GET do status=404 code=NoSuchBucket", CAIRN_PERMANENT},
    {"GET do status=404 bare", CAIRN_PERMANENT},
    {"GET do status=404 code=NoSuchKey", CAIRN_NOT_FOUND},
    {"GET do status=400 code=InvalidArgument", CAIRN_PERMANENT},
    {"GET do status=416 code=InvalidRange", CAIRN_CORRUPT},
    {"GET do status=501 code=NotImplemented", CAIRN_PERMANENT},
};

START_TEST(test_s3_backend__what_will_not_pass_is_not_tried_again)
{
    struct cairn_error err;
    FOR_EACH_SIGNATURE(v)
    {
        plant();
        for (size_t i = 0; i < ARRAY_SIZE(lasting); i++) {
            s3fs_clear(fs);
            rule(lasting[i].rule);
            uint64_t before = stats().requests;
            int rc = read_range(NULL, 0, 100, &err);
            ck_assert_msg(rc == lasting[i].error_class, "v%d, %s: %s: %s", v ? 2 : 4,
                          lasting[i].rule, cairn_class_name(rc), err.message);
            ck_assert_uint_eq(stats().requests - before, 1);
        }
    }
}
END_TEST

START_TEST(test_s3_backend__an_object_that_ends_before_is_corrupt)
{
    struct cairn_error err;
    FOR_EACH_SIGNATURE(v)
    {
        plant();
        ck_fails(read_range(NULL, BODY_LEN - 10, 11, &err), CAIRN_CORRUPT);
        ck_fails(read_range(NULL, BODY_LEN, 1, &err), CAIRN_CORRUPT);
        ck_ok(read_range(NULL, BODY_LEN - 10, 10, &err));
        CLEANUP_BUF struct buf out = BUF_INIT(1 << 20);
        ck_fails(store->ops->get(store, NULL, "obj", 1000, &out, NULL, &err), CAIRN_CORRUPT);
        ck_assert_uint_eq(out.len, 0);
    }
}
END_TEST

START_TEST(test_s3_backend__a_black_hole_costs_the_deadline_and_no_more)
{
    struct cairn_error err;
    static const char *const holes[] = {"ANY do hole", "ANY do deaf", "ANY do stall=10"};
    FOR_EACH_SIGNATURE(v)
    {
        plant();
        for (size_t i = 0; i < ARRAY_SIZE(holes); i++) {
            struct cairn_op op;
            s3fs_clear(fs);
            rule(holes[i]);
            cairn_op_init(&op, 0.8, NULL);
            int64_t start = clock_monotonic();
            int rc = read_range(&op, 0, 1000, &err);
            ck_assert_msg(rc == CAIRN_TIMEOUT || rc == CAIRN_TRANSIENT, "%s: %s", holes[i],
                          err.message);
            ck_assert_double_lt(seconds_since(start), 3); /* without it: four, of retries */
            cairn_op_init(&op, 0.3, NULL);                /* ends while the first attempt waits */
            ck_fails(read_range(&op, 0, 1000, &err), CAIRN_TIMEOUT);
            ck_assert_ptr_nonnull(strstr(err.message, "GET obj: deadline passed"));
        }
    }
}
END_TEST

START_TEST(test_s3_backend__a_spent_deadline_sends_nothing)
{
    struct cairn_error err;
    CLEANUP_BUF struct buf out = BUF_INIT(1 << 20);
    FOR_EACH_SIGNATURE(v)
    {
        struct cairn_op op;
        const char *key = "obj";
        struct backend_stat st;
        struct backend_iter *it = NULL;
        cairn_op_init(&op, 0, NULL);
        ck_fails(get(&op, "obj", &out, &err), CAIRN_TIMEOUT);
        ck_fails(put(&op, "obj", "x", &err), CAIRN_TIMEOUT);
        ck_fails(read_range(&op, 0, 1, &err), CAIRN_TIMEOUT);
        ck_fails(store->ops->stat(store, &op, "obj", &st, &err), CAIRN_TIMEOUT);
        ck_fails(store->ops->remove(store, &op, &key, 1, NULL, &err), CAIRN_TIMEOUT);
        ck_fails(store->ops->list(store, &op, "", "", &it, &err), CAIRN_TIMEOUT);
        ck_assert_uint_eq(stats().requests, 0);
        ck_assert_uint_eq(stats().connections, 0);
    }
}
END_TEST

static void *fire_soon(void *token)
{
    usleep(200000);
    cairn_cancel_fire(token);
    return NULL;
}

START_TEST(test_s3_backend__a_cancel_ends_a_request_at_once)
{
    struct cairn_error err;
    FOR_EACH_SIGNATURE(v)
    {
        struct cairn_cancel *token;
        struct cairn_op op;
        pthread_t t;
        plant();
        rule("ANY do hole");
        ck_ok(cairn_cancel_new(&token, &err));
        cairn_op_init(&op, -1, token);
        ck_assert_int_eq(pthread_create(&t, NULL, fire_soon, token), 0);
        int64_t start = clock_monotonic();
        ck_fails(read_range(&op, 0, 1, &err), CAIRN_CANCELLED);
        ck_assert_double_lt(seconds_since(start), 3);
        pthread_join(t, NULL);
        cairn_cancel_free(token);
    }
}
END_TEST

START_TEST(test_s3_backend__a_dead_server_is_told_in_one_line)
{
    struct cairn_error err;
    struct cairn_op op;
    store_start(S3_SIGNATURE_V4);
    struct s3fs *dead = fs;
    char endpoint[64];
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:1");
    (void)dead;
    backend_free(store);
    struct s3_config c = store_config();
    c.endpoint = endpoint;
    store_open(&c);
    cairn_op_init(&op, 2, NULL);
    int64_t start = clock_monotonic();
    ck_fails(store->ops->read(store, &op, "records/ck_0/meta.json", 0, got, 1, &err),
             CAIRN_TRANSIENT);
    ck_assert_double_lt(seconds_since(start), 3.5);
    ck_assert_msg(strncmp(err.message, "GET records/ck_0/meta.json: CURLE_COULDNT_CONNECT (", 51) ==
                      0,
                  "%s", err.message);
    ck_assert_ptr_nonnull(strstr(err.message, " attempts in "));
    ck_assert_ptr_null(strstr(err.message, "secret"));
    store_stop();
}
END_TEST

/* ---- Listing --------------------------------------------------------------------------------- */

static int count_all(const char *prefix, unsigned *n, struct cairn_error *err)
{
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    char last[1100] = "";
    *n = 0;
    int rc = store->ops->list(store, NULL, prefix, "", &it, err);
    while (!rc) {
        struct backend_entry e;
        rc = it->ops->iter_next(it, NULL, &e, err);
        if (rc || !e.key)
            break;
        ck_assert_int_gt(strcmp(e.key, last), 0);
        snprintf(last, sizeof(last), "%s", e.key);
        ++*n;
    }
    return rc;
}

START_TEST(test_s3_backend__a_listing_is_complete_whatever_its_pages)
{
    struct cairn_error err;
    unsigned n;
    FOR_EACH_SIGNATURE(v)
    {
        plant_many("l/", 2500);
        s3fs_store(fs, "pre/fix2/l/x", "x", 1);
        s3fs_page_size(fs, 1000);
        ck_ok(count_all("l/", &n, &err));
        ck_assert_uint_eq(n, 2500);
        ck_assert_uint_eq(stats().list, 3);
        s3fs_page_size(fs, 7);
        ck_ok(count_all("", &n, &err));
        ck_assert_uint_eq(n, 2500);
        s3fs_page_size(fs, 500);
        rule("LIST skip=2 times=1 do status=500");
        rule("LIST skip=2 times=1 do cut=3000");
        rule("LIST skip=1 times=1 do inner=SlowDown");
        rule("LIST times=1 do close=500");
        ck_ok(count_all("l/", &n, &err));
        ck_assert_uint_eq(n, 2500);
    }
}
END_TEST

START_TEST(test_s3_backend__pages_without_a_key_are_followed)
{
    struct cairn_error err;
    unsigned n;
    store_start(S3_SIGNATURE_V4);
    plant_many("l/", 30);
    s3fs_page_size(fs, 10);
    rule("LIST skip=1 times=3 do empty");
    ck_ok(count_all("l/", &n, &err));
    ck_assert_uint_eq(n, 30);
    store_stop();
}
END_TEST

START_TEST(test_s3_backend__a_page_that_fails_is_an_error_never_an_end)
{
    struct cairn_error err;
    unsigned n;
    static const struct {
        const char *rule;
        int error_class;
    } faults[] = {
        {"LIST skip=1 do status=500", CAIRN_TRANSIENT},
        {"LIST skip=1 do cut=800", CAIRN_TRANSIENT},
        {"LIST skip=1 do cut=0", CAIRN_TRANSIENT},
        {"LIST skip=1 do inner=AccessDenied", CAIRN_PERMANENT},
        {"LIST skip=1 do status=403 code=AccessDenied", CAIRN_PERMANENT},
        {"LIST skip=1 do status=404 code=NoSuchKey", CAIRN_PERMANENT},
        {"LIST skip=1 do status=404 code=NoSuchBucket", CAIRN_PERMANENT},
        {"LIST skip=1 do repeat", CAIRN_TRANSIENT},
        {"LIST skip=1 do reverse", CAIRN_TRANSIENT},
    };
    server_start();
    plant_many("l/", 30);
    s3fs_page_size(fs, 10);
    for (int v = S3_SIGNATURE_V4; v <= S3_SIGNATURE_V2; v++)
        for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
            struct s3_config c = store_config();
            c.signature = v;
            c.retry_window_ns = NS_PER_S;
            store_open(&c);
            s3fs_clear(fs);
            rule(faults[i].rule);
            int rc = count_all("l/", &n, &err);
            ck_assert_msg(rc == faults[i].error_class, "v%d, %s: %s: %s", v ? 2 : 4, faults[i].rule,
                          cairn_class_name(rc), rc ? err.message : "");
            ck_assert_uint_eq(n, 10);
            backend_free(store);
        }
    s3fs_stop(fs);
}
END_TEST

START_TEST(test_s3_backend__foreign_keys_do_not_break_a_listing)
{
    struct cairn_error err;
    unsigned n;
    FOR_EACH_SIGNATURE(v)
    {
        char longest[1025];
        memset(longest, 'k', 1024);
        longest[1024] = 0;
        memcpy(longest, "pre/fix/", 8);
        s3fs_store(fs, "pre/fix/a\x01", "x", 1);
        s3fs_store(fs, "pre/fix/b\r\n", "x", 1);
        s3fs_store(fs, "pre/fix/c\xff\xfe", "x", 1);
        s3fs_store(fs, "pre/fix/d<>&\"'", "x", 1);
        s3fs_store(fs, longest, "x", 1);
        s3fs_page_size(fs, 2);
        ck_ok(count_all("", &n, &err));
        ck_assert_uint_eq(n, 5);
    }
}
END_TEST

/* ---- Throttling ------------------------------------------------------------------------------ */

static atomic_int errors;

static void *reader(void *arg)
{
    uint8_t one[100];
    struct cairn_error err;
    struct cairn_op op;
    (void)arg;
    cairn_op_init(&op, 60, NULL);
    for (int i = 0; i < 5; i++)
        if (store->ops->read(store, &op, "obj", (uint64_t)i * 100, one, 100, &err) ||
            memcmp(one, body + i * 100, 100) != 0)
            atomic_fetch_add(&errors, 1);
    return NULL;
}

START_TEST(test_s3_backend__throttling_slows_everybody_and_nobody_fails)
{
    pthread_t t[8];
    server_start();
    struct s3_config c = store_config();
    c.retry_window_ns = 60 * NS_PER_S;
    store_open(&c);
    plant();
    rule("GET pct=60 times=15 do status=503 code=SlowDown");
    int64_t start = clock_monotonic();
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, reader, NULL), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    ck_assert_int_eq(atomic_load(&errors), 0);
    /* 40 good answers and 15 refusals: spread out, not hammered. */
    ck_assert_double_gt(seconds_since(start), 0.5);
    store_stop();
}
END_TEST

START_TEST(test_s3_backend__retry_after_is_kept)
{
    struct cairn_error err;
    server_start();
    struct s3_config c = store_config();
    c.retry_window_ns = 60 * NS_PER_S;
    store_open(&c);
    plant();
    rule("GET times=1 do status=503 code=SlowDown retry-after=2");
    int64_t start = clock_monotonic();
    ck_ok(read_range(NULL, 0, 10, &err));
    ck_assert_double_ge(seconds_since(start), 2);
    /* As a date it says whole seconds, of the server's clock. */
    s3fs_skew(fs, 500);
    rule("GET times=1 do status=503 code=SlowDown retry-date=2");
    start = clock_monotonic();
    ck_ok(read_range(NULL, 0, 10, &err));
    ck_assert_double_ge(seconds_since(start), 2);
    store_stop();
}
END_TEST

/* ---- Connections ----------------------------------------------------------------------------- */

static unsigned open_fds(void)
{
    unsigned n = 0;
    CLEANUP_DIR DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    return n;
}

START_TEST(test_s3_backend__connections_are_kept_and_never_pile_up)
{
    struct cairn_error err;
    FOR_EACH_SIGNATURE(v)
    {
        plant();
        for (int i = 0; i < 50; i++)
            ck_ok(read_range(NULL, 0, 10, &err));
        ck_assert_uint_le(stats().connections, 2);
        unsigned before = open_fds();
        rule("ANY do hangup");
        for (int i = 0; i < 300; i++)
            ck_ok(read_range(NULL, 0, 10, &err));
        ck_assert_uint_le(open_fds(), before + 4);
    }
}
END_TEST

START_TEST(test_s3_backend__stat_tells_missing_from_refused)
{
    struct cairn_error err;
    struct backend_stat st;
    FOR_EACH_SIGNATURE(v)
    {
        plant();
        ck_ok(store->ops->stat(store, NULL, "obj", &st, &err));
        ck_assert_uint_eq(st.size, BODY_LEN);
        ck_assert_uint_eq(strlen(st.etag), 32);
        ck_fails(store->ops->stat(store, NULL, "none", &st, &err), CAIRN_NOT_FOUND);
        rule("ANY do status=404 code=NoSuchBucket");
        ck_fails(store->ops->stat(store, NULL, "obj", &st, &err), CAIRN_PERMANENT);
        ck_assert_ptr_nonnull(strstr(err.message, "NoSuchBucket"));
        s3fs_clear(fs);
        rule("ANY do status=403 code=AccessDenied");
        ck_fails(store->ops->stat(store, NULL, "obj", &st, &err), CAIRN_PERMANENT);
    }
}
END_TEST

TESTING_MAIN(s3_backend, test_s3_backend__a_read_survives_one_fault_of_each_kind,
             test_s3_backend__what_will_not_pass_is_not_tried_again,
             test_s3_backend__an_object_that_ends_before_is_corrupt,
             test_s3_backend__a_black_hole_costs_the_deadline_and_no_more,
             test_s3_backend__a_spent_deadline_sends_nothing,
             test_s3_backend__a_cancel_ends_a_request_at_once,
             test_s3_backend__a_dead_server_is_told_in_one_line,
             test_s3_backend__a_listing_is_complete_whatever_its_pages,
             test_s3_backend__pages_without_a_key_are_followed,
             test_s3_backend__a_page_that_fails_is_an_error_never_an_end,
             test_s3_backend__foreign_keys_do_not_break_a_listing,
             test_s3_backend__throttling_slows_everybody_and_nobody_fails,
             test_s3_backend__retry_after_is_kept,
             test_s3_backend__connections_are_kept_and_never_pile_up,
             test_s3_backend__stat_tells_missing_from_refused)
