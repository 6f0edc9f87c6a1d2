/* The contract of store/backend.h on listings: order, prefix, after, completeness. */
#include "base/util.h"
#include "tests/contract/factory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* In the order of their bytes, which is not that of a directory's names. */
static const char *const sorted[] = {
    "a",    "b!/x",   "b-/x",        "b.", "b.c/d", "b/0",      "b/a.b", "b/a/deep", "b/a/deep2",
    "b/a0", "b/aa/x", "b/b/c/d/e/f", "b0", "ba/z",  "format.x", "z",     "z\x7f",    "z\xc3\xa9",
};

static void plant_sorted(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(sorted); i++) {
        const char *key = sorted[(i * 7 + 3) % ARRAY_SIZE(sorted)];
        put_text(key, key);
    }
}

static void expect_from(const char *prefix, const char *after)
{
    char want[4096] = "";
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(sorted); i++)
        if (strncmp(sorted[i], prefix, strlen(prefix)) == 0 && strcmp(sorted[i], after) > 0)
            n += (size_t)snprintf(want + n, sizeof(want) - n, "%s%s", n ? " " : "", sorted[i]);
    const char *got = keys_of(prefix, after);
    ck_assert_msg(strcmp(got, want) == 0, "prefix \"%s\" after \"%s\": got \"%s\", want \"%s\"",
                  prefix, after, got, want);
}

CONTRACT_TEST(test_backend_listing__is_in_the_order_of_bytes_whatever_prefix_and_after)
{
    plant_sorted();
    static const char *const afters[] = {"",           "!",     "b",      "b.zzz", "b/a/",
                                         "b/a/deep/x", "b/a/z", "c/d",    "zz",    "\xff",
                                         "b.c",        "b.c/",  "b.c/d/e"};
    static const char *const prefixes[] = {"",   "b",    "b/",   "b/a",   "b/a/",     "b/a/d", "z",
                                           "b.", "b.c/", "none", "none/", "b/a/deep", "none/x"};
    for (size_t p = 0; p < ARRAY_SIZE(prefixes); p++) {
        for (size_t a = 0; a < ARRAY_SIZE(afters); a++)
            expect_from(prefixes[p], afters[a]);
        for (size_t a = 0; a < ARRAY_SIZE(sorted); a++)
            expect_from(prefixes[p], sorted[a]);
    }
}

CONTRACT_TEST(test_backend_listing__of_an_empty_store_is_empty_and_stays_complete)
{
    struct cairn_error err;
    static const char *const prefixes[] = {"", "records/", "packs/ab/", "x"};
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
        struct backend_entry e = {.key = "x"};
        ck_ok(test_backend->ops->list(test_backend, NULL, prefixes[i], "", &it, &err));
        for (int again = 0; again < 3; again++) {
            ck_ok(it->ops->iter_next(it, NULL, &e, &err));
            ck_assert_ptr_null(e.key);
        }
    }
}

CONTRACT_TEST(test_backend_listing__tells_what_stat_tells)
{
    struct cairn_error err;
    put_text("records/" ID_A "/meta.json", "12345");
    put_text("records/" ID_B "/meta.json", "");
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    ck_ok(test_backend->ops->list(test_backend, NULL, LAYOUT_RECORDS, "", &it, &err));
    for (int i = 0; i < 2; i++) {
        struct backend_entry e;
        struct backend_stat st;
        ck_ok(it->ops->iter_next(it, NULL, &e, &err));
        ck_assert_ptr_nonnull(e.key);
        ck_ok(test_backend->ops->stat(test_backend, NULL, e.key, &st, &err));
        ck_assert_uint_eq(e.stat.size, i ? 0 : 5);
        ck_assert_uint_eq(e.stat.size, st.size);
        ck_assert_int_eq(e.stat.mtime_ns, st.mtime_ns);
        ck_assert_str_eq(e.stat.etag, st.etag);
    }
}

CONTRACT_TEST(test_backend_listing__of_one_record_leaves_its_neighbour_alone)
{
    struct cairn_error err;
    put_text("records/" ID_A "/meta.json", "1");
    put_text("records/" ID_A "/export-" GEN1, "1");
    put_text("records/" ID_A "b/meta.json", "1");
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    struct backend_entry e;
    char key[KEY_MAX];
    layout_record(ID_A, key);
    ck_ok(test_backend->ops->list(test_backend, NULL, key, "", &it, &err));
    for (;;) {
        ck_ok(it->ops->iter_next(it, NULL, &e, &err));
        if (!e.key)
            break;
        snprintf(key, sizeof(key), "%s", e.key);
        ck_ok(backend_remove_one(test_backend, NULL, key, &err));
    }
    ck_assert_str_eq(keys_of("", ""), "records/" ID_A "b/meta.json");
}

/* Remove what a listing of "gc/x/" yields while it runs: every object was seen, none twice. */
CONTRACT_TEST(test_backend_listing__survives_removing_what_it_yields)
{
    struct cairn_error err;
    char key[64], last[64] = "";
    for (int i = 0; i < 120; i++) {
        snprintf(key, sizeof(key), "gc/x/%d/%03d", i % 3, i);
        put_text(key, "x");
    }
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    struct backend_entry e;
    int seen = 0;
    ck_ok(test_backend->ops->list(test_backend, NULL, "gc/x/", "", &it, &err));
    for (;; seen++) {
        ck_ok(it->ops->iter_next(it, NULL, &e, &err));
        if (!e.key)
            break;
        ck_assert_str_gt(e.key, last);
        snprintf(last, sizeof(last), "%s", e.key);
        ck_ok(backend_remove_one(test_backend, NULL, last, &err));
    }
    ck_assert_int_eq(seen, 120);
    ck_assert_str_eq(keys_of("", ""), "");
}

enum { N_RECORDS = 2500, N_PLANTERS = 16 };

struct planter {
    pthread_t thread;
    unsigned n;
    int rc;
    struct cairn_error err;
};

static void *plant_records(void *arg)
{
    struct planter *p = arg;
    char key[KEY_MAX], id[ID_MAX + 1];
    for (unsigned i = p->n; i < N_RECORDS && !p->rc; i += N_PLANTERS) {
        snprintf(id, sizeof(id), "ck_%016x", i * 7919 % N_RECORDS);
        layout_meta(id, key);
        p->rc = test_backend->ops->put(test_backend, NULL, key, "{}", 2, &p->err);
    }
    return NULL;
}

CONTRACT_TEST(test_backend_listing__of_2500_records_is_complete)
{
    struct cairn_error err;
    static bool seen[N_RECORDS];
    struct planter planters[N_PLANTERS];
    char key[KEY_MAX];
    for (unsigned i = 0; i < N_PLANTERS; i++) {
        planters[i] = (struct planter){.n = i};
        ck_assert_int_eq(pthread_create(&planters[i].thread, NULL, plant_records, &planters[i]), 0);
    }
    for (unsigned i = 0; i < N_PLANTERS; i++) {
        pthread_join(planters[i].thread, NULL);
        err = planters[i].err;
        ck_ok(planters[i].rc);
    }
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    struct backend_entry e;
    int n = 0;
    ck_ok(test_backend->ops->list(test_backend, NULL, LAYOUT_RECORDS, "", &it, &err));
    for (;; n++) {
        ck_ok(it->ops->iter_next(it, NULL, &e, &err));
        if (!e.key)
            break;
        struct layout_key k;
        layout_parse(e.key, &k);
        ck_assert_int_eq(k.kind, LAYOUT_KIND_META);
        unsigned long i = strtoul(k.id + 3, NULL, 16);
        ck_assert(i < N_RECORDS && !seen[i]);
        seen[i] = true;
    }
    ck_assert_int_eq(n, N_RECORDS);
    /* A page in the middle, as a service asks for it. */
    layout_meta("ck_0000000000000800", key);
    const char *next = keys_of("records/ck_000000000000080", key);
    ck_assert_int_eq(strncmp(next, "records/ck_0000000000000801/meta.json records/", 46), 0);
}

struct churn {
    atomic_bool stop;
    int rc;
    struct cairn_error err;
};

/* Replaces the stable objects, makes and removes others beside them. */
static void *churn(void *arg)
{
    struct churn *c = arg;
    const struct backend_ops *ops = test_backend->ops;
    char key[64];
    for (int i = 0; !c->rc && !atomic_load(&c->stop); i++) {
        snprintf(key, sizeof(key), "gc/dead/%02d", i % 40);
        c->rc = ops->put(test_backend, NULL, key, "again", 5, &c->err);
        snprintf(key, sizeof(key), "gc/dead/%02d-new", i % 64);
        if (!c->rc)
            c->rc = i % 128 < 64 ? ops->put(test_backend, NULL, key, "n", 1, &c->err)
                                 : backend_remove_one(test_backend, NULL, key, &c->err);
    }
    return NULL;
}

CONTRACT_TEST(test_backend_listing__yields_what_stays_once_while_others_come_and_go)
{
    struct cairn_error err;
    char key[64];
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof(key), "gc/dead/%02d", i);
        put_text(key, "first");
    }
    struct churn c = {.rc = 0};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, churn, &c), 0);
    for (int round = 0; round < 100; round++) {
        CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
        struct backend_entry e;
        char last[64] = "";
        int stable = 0;
        ck_ok(test_backend->ops->list(test_backend, NULL, LAYOUT_DEAD, "", &it, &err));
        for (;;) {
            ck_ok(it->ops->iter_next(it, NULL, &e, &err));
            if (!e.key)
                break;
            ck_assert_str_gt(e.key, last);
            snprintf(last, sizeof(last), "%s", e.key);
            stable += strlen(e.key) == strlen("gc/dead/00");
        }
        ck_assert_int_eq(stable, 40);
    }
    atomic_store(&c.stop, true);
    pthread_join(thread, NULL);
    err = c.err;
    ck_ok(c.rc);
}

TESTING_MAIN(backend_listing,
             test_backend_listing__is_in_the_order_of_bytes_whatever_prefix_and_after,
             test_backend_listing__of_an_empty_store_is_empty_and_stays_complete,
             test_backend_listing__tells_what_stat_tells,
             test_backend_listing__of_one_record_leaves_its_neighbour_alone,
             test_backend_listing__survives_removing_what_it_yields,
             test_backend_listing__of_2500_records_is_complete,
             test_backend_listing__yields_what_stays_once_while_others_come_and_go)
