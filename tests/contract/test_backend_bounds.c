/* The contract of store/backend.h on ops and threads: a spent deadline or a fired token does
 * nothing, a reader sees whole objects, one commit of many is the one. */
#include "base/util.h"
#include "tests/contract/factory.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define KEY "records/" ID_A "/export-" GEN1

/* Every operation under an op that has ended, and the store as it was. */
static void nothing_is_done(const struct cairn_op *op, int want)
{
    struct cairn_error err;
    struct backend *b = test_backend;
    const struct backend_ops *ops = b->ops;
    CLEANUP_BUF struct buf out = BUF_INIT(100);
    struct backend_stat st;
    char bytes[4];
    int lock, fd;
    const char *keys[] = {KEY, "gc/none"};
    bool failed[2] = {false, false};
    put_text(KEY, "1234");
    ck_fails(ops->get(b, op, KEY, 100, &out, &st, &err), want);
    ck_assert_uint_eq(out.len, 0);
    ck_fails(ops->read(b, op, KEY, 0, bytes, 4, &err), want);
    ck_fails(ops->stat(b, op, KEY, &st, &err), want);
    ck_fails(ops->put(b, op, KEY, "new", 3, &err), want);
    ck_fails(ops->put(b, op, "packs/00/new", "new", 3, &err), want);
    ck_fails(ops->remove(b, op, keys, 2, failed, &err), want);
    ck_assert(failed[0] && failed[1]);
    ck_fails(ops->stage(b, op, ID_B, GEN1, "{}", 2, &err), want);
    ck_fails(ops->lock(b, op, ID_B, &lock, &err), want);
    if (ops->open_fd)
        ck_fails(ops->open_fd(b, op, KEY, &fd, &err), want);

    struct backend_iter *it = NULL;
    struct backend_entry e;
    ck_fails(ops->list(b, op, "", "", &it, &err), want);
    ck_ok(ops->list(b, NULL, "", "", &it, &err));
    ck_fails(it->ops->iter_next(it, op, &e, &err), want);
    it->ops->iter_free(it);

    struct backend_upload *up = NULL;
    ck_fails(ops->upload_new(b, op, &up, &err), want);
    ck_ok(ops->upload_new(b, NULL, &up, &err));
    ck_fails(ops->upload_commit(up, op, "packs/00/new", 0, &err), want);

    ck_ok(ops->stage(b, NULL, ID_B, GEN1, "{}", 2, &err));
    ck_fails(ops->commit(b, op, ID_B, GEN1, "{}", 2, false, &err), want);
    ops->unstage(b, ID_B, GEN1);

    ck_assert_str_eq(keys_of("", ""), KEY);
    ck_assert_str_eq(get_text(KEY), "1234");
}

CONTRACT_TEST(test_backend_bounds__a_spent_deadline_does_nothing)
{
    struct cairn_op op;
    cairn_op_init(&op, 0, NULL);
    nothing_is_done(&op, CAIRN_TIMEOUT);
}

CONTRACT_TEST(test_backend_bounds__a_fired_token_does_nothing)
{
    struct cairn_error err;
    struct cairn_cancel *cancel;
    ck_ok(cairn_cancel_new(&cancel, &err));
    cairn_cancel_fire(cancel);
    struct cairn_op op;
    cairn_op_init(&op, 0, cancel);
    nothing_is_done(&op, CAIRN_CANCELLED);
    cairn_cancel_free(cancel);
}

/* ---- Threads ---- */

struct racer {
    pthread_t thread;
    unsigned n;
    atomic_bool *stop;
    int rc;
    bool torn, won;
    struct cairn_error err;
};

static void start(struct racer *r, unsigned n, void *(*run)(void *), atomic_bool *stop)
{
    for (unsigned i = 0; i < n; i++) {
        r[i] = (struct racer){.n = i, .stop = stop};
        ck_assert_int_eq(pthread_create(&r[i].thread, NULL, run, &r[i]), 0);
    }
}

static void join(struct racer *r, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        pthread_join(r[i].thread, NULL);
    for (unsigned i = 0; i < n; i++) {
        struct cairn_error err = r[i].err;
        ck_ok(r[i].rc);
        ck_assert(!r[i].torn);
    }
}

#define BODY_MAX 70000

/* Version v: 1 + v * 997 % BODY_MAX bytes, each of them v. */
static size_t body(unsigned v, uint8_t out[BODY_MAX])
{
    size_t len = 1 + v * 997u % (BODY_MAX - 1);
    memset(out, (int)(v & 0xff), len);
    return len;
}

static void *put_versions(void *arg)
{
    struct racer *r = arg;
    CLEANUP_FREE uint8_t *data = malloc(BODY_MAX);
    for (unsigned i = 0; i < 150 && !r->rc; i++) {
        size_t len = body((r->n * 150 + i) & 0xff, data);
        r->rc = test_backend->ops->put(test_backend, NULL, KEY, data, len, &r->err);
    }
    return NULL;
}

static void *get_versions(void *arg)
{
    struct racer *r = arg;
    CLEANUP_FREE uint8_t *want = malloc(BODY_MAX);
    while (!r->rc && !atomic_load(r->stop)) {
        CLEANUP_BUF struct buf out = BUF_INIT(BODY_MAX);
        struct backend_stat st;
        r->rc = test_backend->ops->get(test_backend, NULL, KEY, BODY_MAX, &out, &st, &r->err);
        if (!r->rc)
            r->torn |= out.len == 0 || body(out.data[0], want) != out.len || st.size != out.len ||
                       memcmp(want, out.data, out.len) != 0;
    }
    return NULL;
}

CONTRACT_TEST(test_backend_bounds__readers_see_whole_objects)
{
    struct racer writers[2], readers[3];
    uint8_t first[BODY_MAX];
    struct cairn_error err;
    atomic_bool stop = false;
    ck_ok(test_backend->ops->put(test_backend, NULL, KEY, first, body(0, first), &err));
    start(readers, 3, get_versions, &stop);
    start(writers, 2, put_versions, &stop);
    join(writers, 2);
    atomic_store(&stop, true);
    join(readers, 3);
}

static void *commit_once(void *arg)
{
    struct racer *r = arg;
    char gen[32], meta[32];
    snprintf(gen, sizeof(gen), "%016x", r->n);
    int len = snprintf(meta, sizeof(meta), "{%u}", r->n);
    const struct backend_ops *ops = test_backend->ops;
    r->rc = ops->stage(test_backend, NULL, ID_A, gen, meta, (size_t)len, &r->err);
    if (r->rc)
        return NULL;
    r->rc = ops->commit(test_backend, NULL, ID_A, gen, meta, (size_t)len, true, &r->err);
    r->won = !r->rc;
    ops->unstage(test_backend, ID_A, gen);
    if (r->rc == CAIRN_BUSY)
        r->rc = CAIRN_OK;
    return NULL;
}

CONTRACT_TEST(test_backend_bounds__one_commit_of_many_is_the_one)
{
    for (int round = 0; round < 20; round++) {
        struct racer r[6];
        struct cairn_error err;
        char meta[32] = "", other[32];
        unsigned winners = 0;
        bool is_winners = false;
        start(r, 6, commit_once, NULL);
        join(r, 6);
        ck_assert_str_eq(keys_of("", ""), "records/" ID_A "/meta.json");
        snprintf(meta, sizeof(meta), "%s", get_text("records/" ID_A "/meta.json"));
        for (unsigned i = 0; i < 6; i++) {
            winners += r[i].won;
            snprintf(other, sizeof(other), "{%u}", i);
            if (r[i].won && strcmp(other, meta) == 0)
                is_winners = true;
        }
        if (test_place.factory->looks_first)
            ck_assert_uint_ge(winners, 1);
        else
            ck_assert_uint_eq(winners, 1);
        ck_assert(is_winners);
        ck_ok(backend_remove_one(test_backend, NULL, "records/" ID_A "/meta.json", &err));
    }
}

static atomic_int holders;

/* Lock, count the holders, and on the way let the record's folder come and go. */
static void *hold_lock(void *arg)
{
    struct racer *r = arg;
    const struct backend_ops *ops = test_backend->ops;
    for (unsigned i = 0; i < 4000 && !r->rc && !r->torn; i++) {
        int lock;
        r->rc = ops->lock(test_backend, NULL, ID_A, &lock, &r->err);
        if (r->rc == CAIRN_BUSY)
            r->rc = CAIRN_OK;
        else if (!r->rc) {
            r->won = true;
            if (lock >= 0)
                r->torn = atomic_fetch_add(&holders, 1) != 0;
            if (i % 256 == 0)
                r->rc = ops->put(test_backend, NULL, KEY, "x", 1, &r->err);
            if (i % 256 == 0 && !r->rc)
                r->rc = backend_remove_one(test_backend, NULL, KEY, &r->err);
            sched_yield();
            if (lock >= 0)
                atomic_fetch_sub(&holders, 1);
            ops->unlock(test_backend, ID_A, lock);
        }
    }
    return NULL;
}

CONTRACT_TEST(test_backend_bounds__a_lock_has_one_holder_while_its_folder_comes_and_goes)
{
    struct racer r[4];
    start(r, 4, hold_lock, NULL);
    join(r, 4);
    bool any = false;
    for (unsigned i = 0; i < 4; i++)
        any |= r[i].won;
    ck_assert(any);
    ck_assert_str_eq(keys_of("", ""), "");
}

static void *upload_many(void *arg)
{
    struct racer *r = arg;
    const struct backend_ops *ops = test_backend->ops;
    for (unsigned i = 0; i < 40 && !r->rc; i++) {
        char key[KEY_MAX];
        struct backend_upload *up;
        snprintf(key, sizeof(key), "packs/%02x/%u-%u", i % 3, r->n, i);
        r->rc = ops->upload_new(test_backend, NULL, &up, &r->err);
        if (r->rc)
            break;
        r->torn |= util_pwrite_full(up->fd, key, sizeof(key), 0) != sizeof(key);
        if (i % 5 == 4)
            ops->upload_abort(up);
        else
            r->rc = ops->upload_commit(up, NULL, key, strlen(key), &r->err);
    }
    return NULL;
}

CONTRACT_TEST(test_backend_bounds__uploads_of_many_threads_stay_apart)
{
    struct racer r[4];
    start(r, 4, upload_many, NULL);
    join(r, 4);
    char key[KEY_MAX];
    for (unsigned n = 0; n < 4; n++)
        for (unsigned i = 0; i < 40; i++) {
            snprintf(key, sizeof(key), "packs/%02x/%u-%u", i % 3, n, i);
            const char *text = get_text(key);
            if (i % 5 == 4)
                ck_assert_ptr_null(text);
            else
                ck_assert_str_eq(text, key);
        }
    ck_assert_str_eq(keys_of(LAYOUT_TMP, ""), "");
}

TESTING_MAIN(backend_bounds, test_backend_bounds__a_spent_deadline_does_nothing,
             test_backend_bounds__a_fired_token_does_nothing,
             test_backend_bounds__readers_see_whole_objects,
             test_backend_bounds__one_commit_of_many_is_the_one,
             test_backend_bounds__a_lock_has_one_holder_while_its_folder_comes_and_goes,
             test_backend_bounds__uploads_of_many_threads_stay_apart)
