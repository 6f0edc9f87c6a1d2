/* A gateway that is killed with SIGKILL and comes back, in the middle of every kind of request. */
#include "base/clock.h"
#include "base/util.h"
#include "s3/backend_s3.h"
#include "tests/lib/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_WRITERS 4
#define PACK_LEN  ((size_t)8 << 20)

static struct backend *store;
static atomic_bool stop;
static atomic_uint done;

static void gateway(const char *command)
{
    char line[1000];
    ck_assert_ptr_nonnull(getenv("RGW_SH"));
    snprintf(line, sizeof(line), "%s %s", getenv("RGW_SH"), command);
    ck_assert_int_eq(system(line), 0);
}

struct worker {
    unsigned n, made;
    int rc;
    struct cairn_error err;
};

static struct cairn_op patient(void)
{
    struct cairn_op op;
    cairn_op_init(&op, 90, NULL);
    return op;
}

/* Objects one after the other, each read back once it is acknowledged. */
static void *write_and_read(void *arg)
{
    struct worker *w = arg;
    const struct backend_ops *ops = store->ops;
    while (!atomic_load(&stop) && !w->rc) {
        char key[64], text[64];
        struct cairn_op op = patient();
        CLEANUP_BUF struct buf out = BUF_INIT(4096);
        snprintf(key, sizeof(key), "w/%u/%06u", w->n, w->made);
        int len = snprintf(text, sizeof(text), "%u of %u", w->made, w->n);
        w->rc = ops->put(store, &op, key, text, (size_t)len, &w->err);
        if (!w->rc)
            w->rc = ops->get(store, &op, key, 4096, &out, NULL, &w->err);
        if (!w->rc && (out.len != (size_t)len || memcmp(out.data, text, out.len) != 0))
            w->rc = error_set(&w->err, CAIRN_CORRUPT, 0, "%s: other bytes", key);
        w->made++;
        atomic_fetch_add(&done, 1);
    }
    return NULL;
}

/* Packs up and down. */
static void *pack_and_unpack(void *arg)
{
    struct worker *w = arg;
    const struct backend_ops *ops = store->ops;
    CLEANUP_FREE uint8_t *data = malloc(PACK_LEN), *got = malloc(PACK_LEN);
    while (!atomic_load(&stop) && !w->rc) {
        struct backend_upload *up;
        char key[64];
        struct cairn_op op = patient();
        snprintf(key, sizeof(key), "packs/%06u", w->made);
        testing_fill(data, PACK_LEN, w->made);
        w->rc = ops->upload_new(store, &op, &up, &w->err);
        if (w->rc)
            break;
        if (util_pwrite_full(up->fd, data, PACK_LEN, 0) != (ssize_t)PACK_LEN)
            w->rc = error_set(&w->err, CAIRN_INTERNAL, 0, "spool");
        if (!w->rc)
            w->rc = ops->upload_commit(up, &op, key, PACK_LEN, &w->err);
        if (!w->rc)
            w->rc = ops->read(store, &op, key, 0, got, PACK_LEN, &w->err);
        if (!w->rc && memcmp(data, got, PACK_LEN) != 0)
            w->rc = error_set(&w->err, CAIRN_CORRUPT, 0, "%s: other bytes", key);
        w->made++;
    }
    return NULL;
}

/* Listings that never end early: everything planted before is in each. */
static void *list_all(void *arg)
{
    struct worker *w = arg;
    const struct backend_ops *ops = store->ops;
    while (!atomic_load(&stop) && !w->rc) {
        CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
        struct cairn_op op = patient();
        struct backend_entry e;
        unsigned n = 0;
        w->rc = ops->list(store, &op, "planted/", "", &it, &w->err);
        while (!w->rc) {
            w->rc = it->ops->iter_next(it, &op, &e, &w->err);
            if (w->rc || !e.key)
                break;
            n++;
        }
        if (!w->rc && n != 300)
            w->rc = error_set(&w->err, CAIRN_CORRUPT, 0, "%u of 300 keys", n);
        w->made++;
    }
    return NULL;
}

static void *deleter(void *arg)
{
    struct worker *w = arg;
    const struct backend_ops *ops = store->ops;
    while (!atomic_load(&stop) && !w->rc) {
        char names[20][32];
        const char *keys[20];
        bool failed[20];
        struct cairn_op op = patient();
        for (int i = 0; i < 20 && !w->rc; i++) {
            snprintf(names[i], sizeof(names[i]), "d/%d", i);
            keys[i] = names[i];
            w->rc = ops->put(store, &op, keys[i], "x", 1, &w->err);
        }
        if (!w->rc)
            w->rc = ops->remove(store, &op, keys, 20, failed, &w->err);
        for (int i = 0; i < 20 && !w->rc; i++) {
            bool there = false;
            w->rc = backend_exists(store, &op, keys[i], &there, &w->err);
            if (!w->rc && there)
                w->rc = error_set(&w->err, CAIRN_CORRUPT, 0, "%s is still there", keys[i]);
        }
        w->made++;
    }
    return NULL;
}

static void outage(enum s3_signature signature)
{
    static void *(*const others[])(void *) = {pack_and_unpack, list_all, deleter};
    struct cairn_error err;
    struct worker w[N_WRITERS + 3] = {{.n = 0}};
    pthread_t t[N_WRITERS + 3];
    char prefix[64];
    snprintf(prefix, sizeof(prefix), "outage-%d-%d", signature, getpid());
    struct s3_config c = {.bucket = getenv("S3_BUCKET"),
                          .endpoint = getenv("S3_ENDPOINT"),
                          .prefix = prefix,
                          .force_path_style = true,
                          .signature = signature,
                          .spool_dir = testing_tmpdir()};
    atomic_store(&stop, false);
    ck_ok(backend_s3_open(&c, &store, &err));
    for (int i = 0; i < 300; i++) {
        char key[64];
        snprintf(key, sizeof(key), "planted/%03d", i);
        ck_ok(store->ops->put(store, NULL, key, "x", 1, &err));
    }
    for (unsigned i = 0; i < N_WRITERS + 3; i++) {
        w[i].n = i;
        ck_assert_int_eq(pthread_create(&t[i], NULL,
                                        i < N_WRITERS ? write_and_read : others[i - N_WRITERS],
                                        &w[i]),
                         0);
    }
    for (int round = 0; round < 3; round++) {
        unsigned before = atomic_load(&done);
        while (atomic_load(&done) < before + 20)
            usleep(10000);
        gateway(round == 1 ? "stop $RGW_DIR TERM" : "stop $RGW_DIR KILL");
        usleep(300000);
        gateway("start $RGW_DIR");
    }
    unsigned before = atomic_load(&done);
    int64_t until = clock_monotonic() + 60 * NS_PER_S;
    while (atomic_load(&done) < before + 20 && clock_monotonic() < until)
        usleep(10000);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < N_WRITERS + 3; i++)
        pthread_join(t[i], NULL);
    for (unsigned i = 0; i < N_WRITERS + 3; i++) {
        ck_assert_msg(!w[i].rc, "worker %u: %s: %s", i, cairn_class_name(w[i].rc),
                      w[i].err.message);
        ck_assert_uint_gt(w[i].made, 0);
    }
    ck_assert_uint_ge(atomic_load(&done), before + 20);
    /* Every acknowledged object is listed. */
    unsigned n = 0, made = 0;
    struct backend_entry e;
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    ck_ok(store->ops->list(store, NULL, "w/", "", &it, &err));
    for (;;) {
        ck_ok(it->ops->iter_next(it, NULL, &e, &err));
        if (!e.key)
            break;
        n++;
    }
    for (unsigned i = 0; i < N_WRITERS; i++)
        made += w[i].made;
    ck_assert_uint_eq(n, made);
    backend_iter_freep(&it);
    it = NULL;
    backend_free(store);
}

START_TEST(test_rgw_outage__nothing_fails_and_nothing_is_lost_v4)
{
    outage(S3_SIGNATURE_V4);
}
END_TEST

START_TEST(test_rgw_outage__nothing_fails_and_nothing_is_lost_v2)
{
    outage(S3_SIGNATURE_V2);
}
END_TEST

TESTING_MAIN(rgw_outage, test_rgw_outage__nothing_fails_and_nothing_is_lost_v4,
             test_rgw_outage__nothing_fails_and_nothing_is_lost_v2)
