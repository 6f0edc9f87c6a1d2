/* Bytes that are handed on while the rest still comes: each once and in order, whatever breaks. */
#include "base/clock.h"
#include "base/util.h"
#include "tests/s3/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BODY_LEN (3u << 20)
#define OFF      70000u
#define LEN      (2u << 20)

static uint8_t body[BODY_LEN];
static struct cairn_error err;

static void plant(void)
{
    testing_fill(body, sizeof(body), 7);
    s3fs_store(fs, "pre/fix/obj", body, sizeof(body));
}

/* Checks what comes against the body. */
struct taker {
    size_t got, calls;
    bool wrong;
    size_t fails_at;   /* take fails once so much was handed on */
    int fails_with;    /* of which class; 0: no_space */
    size_t sleeps_at;  /* or is slow, once */
    unsigned sleep_us; /* so long */
    struct cairn_cancel *cancel;
    size_t cancels_at;
};

static int take(void *ctx, const void *data, size_t len, struct cairn_error *e)
{
    struct taker *t = ctx;
    t->calls++;
    if (t->got + len > LEN || memcmp(data, body + OFF + t->got, len) != 0)
        t->wrong = true;
    if (t->fails_at && t->got >= t->fails_at)
        return error_set(e, t->fails_with ? t->fails_with : CAIRN_NO_SPACE, ENOSPC,
                         "no room for it");
    if (t->sleep_us && t->got >= t->sleeps_at) {
        usleep(t->sleep_us);
        t->sleep_us = 0;
    }
    if (t->cancel && t->got >= t->cancels_at)
        cairn_cancel_fire(t->cancel);
    t->got += len;
    return CAIRN_OK;
}

static int stream(const struct cairn_op *op, struct taker *t)
{
    const struct backend_taker to = {.take = take, .ctx = t};
    int rc = backend_stream(store, op, "obj", OFF, LEN, &to, &err);
    ck_assert_msg(!t->wrong, "other bytes than those of the object");
    return rc;
}

START_TEST(test_s3_stream__what_breaks_off_is_taken_up_where_it_stopped)
{
    /* The second: what the second request may have to send. */
    static const struct {
        const char *rule;
        uint64_t rest;
    } faults[] = {
        {"GET times=1 do close=0", LEN},
        {"GET times=1 do close=1000000", LEN - 1000000},
        {"GET times=1 do stall=1500000", LEN - 1500000},
        {"GET times=1 do reset", LEN},
        {"GET times=1 do nothing", LEN},
        {"GET times=1 do norange", LEN},
        {"GET times=1 do cut=5000", LEN},
        {"GET times=1 do claim=1000", LEN},
        {"GET times=1 do status=500 code=InternalError", LEN},
    };
    FOR_EACH_SIGNATURE(v)
    {
        plant();
        for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
            struct taker t = {0};
            s3fs_clear(fs);
            rule(faults[i].rule);
            s3fs_reset_stats(fs);
            int rc = stream(NULL, &t);
            ck_assert_msg(rc == CAIRN_OK, "%s: %s", faults[i].rule, err.message);
            ck_assert_uint_eq(t.got, LEN);
            ck_assert_msg(stats().get >= 2, "%s", faults[i].rule);
            if (strstr(faults[i].rule, "stall") || strstr(faults[i].rule, "close"))
                ck_assert_msg(stats().body_out < LEN + LEN / 2, "%s: all of it again: %llu",
                              faults[i].rule, (unsigned long long)stats().body_out);
        }
    }
}
END_TEST

/* (libs3 tells nobody of the Content-Range: there the chunk's checksum finds it.) */
START_TEST(test_s3_stream__another_range_than_was_asked_for_is_not_taken)
{
    struct taker t = {0};
    store_start(S3_SIGNATURE_V4);
    plant();
    rule("GET times=1 do shift");
    ck_ok(stream(NULL, &t));
    ck_assert_uint_eq(t.got, LEN);
    ck_assert_uint_eq(stats().get, 2);
    store_stop();
}
END_TEST

/* A path that drops every connection after 100 kB: there is no end to patience while it gets on.
 * Without that the waits between twenty attempts would come to far more than the window. */
START_TEST(test_s3_stream__a_path_that_breaks_always_gets_there)
{
    FOR_EACH_SIGNATURE(v)
    {
        struct taker t = {0};
        plant();
        rule("GET do close=100000");
        ck_ok(stream(NULL, &t));
        ck_assert_uint_eq(t.got, LEN);
        ck_assert_uint_ge(stats().get, LEN / 100000);
        /* One that does not get on ends as any. */
        t = (struct taker){0};
        s3fs_clear(fs);
        rule("GET do close=0");
        ck_fails(stream(NULL, &t), CAIRN_TRANSIENT);
        ck_assert_uint_eq(t.got, 0);
    }
}
END_TEST

START_TEST(test_s3_stream__who_cannot_take_it_ends_it)
{
    FOR_EACH_SIGNATURE(v)
    {
        struct taker t = {.fails_at = 500000};
        plant();
        ck_fails(stream(NULL, &t), CAIRN_NO_SPACE);
        ck_assert_int_eq(err.sys_errno, ENOSPC);
        ck_assert_ptr_nonnull(strstr(err.message, "no room for it"));
        ck_assert_uint_eq(stats().get, 1);
        ck_assert_uint_lt(t.got, LEN);
        /* What would be tried again if the server had said so. */
        t = (struct taker){.fails_at = 500000, .fails_with = CAIRN_TRANSIENT};
        ck_fails(stream(NULL, &t), CAIRN_TRANSIENT);
        ck_assert_uint_eq(stats().get, 2);
        t = (struct taker){0};
        ck_ok(stream(NULL, &t)); /* nothing of it is left in a connection */
        ck_assert_uint_eq(t.got, LEN);
    }
}
END_TEST

START_TEST(test_s3_stream__cancelled_in_the_middle_it_takes_no_more)
{
    FOR_EACH_SIGNATURE(v)
    {
        struct taker t = {.cancels_at = 300000};
        struct cairn_op op;
        plant();
        ck_ok(cairn_cancel_new(&t.cancel, &err));
        cairn_op_init(&op, -1, t.cancel);
        ck_fails(stream(&op, &t), CAIRN_CANCELLED);
        ck_assert_uint_ge(t.got, 300000);
        /* V4: not one piece more; libs3 hands on what it has read. */
        ck_assert_uint_lt(t.got, v == S3_SIGNATURE_V4 ? 400000 : LEN);
        cairn_cancel_free(t.cancel);
    }
}
END_TEST

START_TEST(test_s3_stream__a_deadline_in_the_middle_is_kept)
{
    FOR_EACH_SIGNATURE(v)
    {
        struct taker t = {0};
        struct cairn_op op;
        plant();
        rule("GET do stall=500000");
        cairn_op_init(&op, 0.3, NULL);
        int64_t start = clock_monotonic();
        ck_fails(stream(&op, &t), CAIRN_TIMEOUT);
        ck_assert_double_lt(seconds_since(start), 2);
        ck_assert_uint_le(t.got, 500000);
    }
}
END_TEST

/* The limit for silence is half a second here. */
START_TEST(test_s3_stream__a_slow_taker_is_no_slow_server)
{
    FOR_EACH_SIGNATURE(v)
    {
        struct taker t = {.sleeps_at = 200000, .sleep_us = 1200000};
        plant();
        ck_ok(stream(NULL, &t));
        ck_assert_uint_eq(t.got, LEN);
        ck_assert_uint_eq(stats().get, 1);
    }
}
END_TEST

/* Takers that stand still, as those do that write to a disk which hangs. */
#define STANDING 4
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held: nobody passes */
static atomic_uint standing;

static int take_standing(void *ctx, const void *data, size_t len, struct cairn_error *e)
{
    (void)ctx, (void)data, (void)len, (void)e;
    atomic_fetch_add(&standing, 1);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return CAIRN_OK;
}

static void *stand(void *arg)
{
    const struct backend_taker to = {.take = take_standing};
    struct cairn_error e;
    (void)arg;
    ck_ok(backend_stream(store, NULL, "obj", OFF, LEN, &to, &e));
    return NULL;
}

START_TEST(test_s3_stream__takers_that_stand_still_keep_nobody_else_waiting)
{
    pthread_t threads[STANDING];
    struct cairn_op op;
    CLEANUP_BUF struct buf out = BUF_INIT(BODY_LEN);
    server_start();
    struct s3_config c = store_config();
    c.max_requests = STANDING;
    store_open(&c);
    plant();
    ck_ok(put(NULL, "small", "text", &err));
    pthread_mutex_lock(&gate);
    for (int i = 0; i < STANDING; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, stand, NULL), 0);
    while (atomic_load(&standing) < STANDING - 1)
        usleep(1000);
    usleep(100000); /* for one more, if it may */
    cairn_op_init(&op, 10, NULL);
    int rc = get(&op, "small", &out, &err);
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < STANDING; i++)
        pthread_join(threads[i], NULL);
    ck_assert_msg(rc == CAIRN_OK, "%s", err.message);
    store_stop();
}
END_TEST

START_TEST(test_s3_stream__nothing_and_too_much)
{
    const struct backend_taker to = {.take = take, .ctx = &(struct taker){0}};
    FOR_EACH_SIGNATURE(v)
    {
        plant();
        ck_ok(backend_stream(store, NULL, "obj", OFF, 0, &to, &err));
        ck_fails(backend_stream(store, NULL, "none", 0, 10, &to, &err), CAIRN_NOT_FOUND);
        ck_fails(backend_stream(store, NULL, "obj", BODY_LEN - 5, 10, &to, &err), CAIRN_CORRUPT);
        ck_fails(backend_stream(store, NULL, "obj", UINT64_MAX - 5, 10, &to, &err), CAIRN_CORRUPT);
    }
}
END_TEST

TESTING_MAIN(s3_stream, test_s3_stream__what_breaks_off_is_taken_up_where_it_stopped,
             test_s3_stream__another_range_than_was_asked_for_is_not_taken,
             test_s3_stream__a_path_that_breaks_always_gets_there,
             test_s3_stream__who_cannot_take_it_ends_it,
             test_s3_stream__cancelled_in_the_middle_it_takes_no_more,
             test_s3_stream__a_deadline_in_the_middle_is_kept,
             test_s3_stream__a_slow_taker_is_no_slow_server,
             test_s3_stream__takers_that_stand_still_keep_nobody_else_waiting,
             test_s3_stream__nothing_and_too_much)
