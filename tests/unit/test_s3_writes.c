/* The backend under faults while it writes, deletes and commits. */
#include "base/util.h"
#include "tests/s3/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BODY_LEN 100000

static uint8_t body[BODY_LEN];

/* ---- Writing --------------------------------------------------------------------------------- */

static const char *const put_faults[] = {
    "PUT times=1 do status=500 code=InternalError",
    "PUT times=1 do inner=InternalError",
    "PUT times=1 do reset",
    "PUT times=1 do nothing",
    "PUT times=1 do nothing stored",
    "PUT times=1 do status=500 stored",
    "PUT times=1 do hole",
    "PUT times=1 do deaf",
    "PUT times=1 do status=503 early",
    "PUT times=1 do status=503 code=SlowDown",
};

START_TEST(test_s3_writes__a_put_that_failed_is_sent_again_in_full)
{
    struct cairn_error err;
    FOR_EACH_SIGNATURE(v)
    {
        testing_fill(body, sizeof(body), 9);
        for (size_t i = 0; i < ARRAY_SIZE(put_faults); i++) {
            CLEANUP_BUF struct buf out = BUF_INIT(1 << 20);
            char key[32];
            snprintf(key, sizeof(key), "put/%zu", i);
            s3fs_clear(fs);
            rule(put_faults[i]);
            int rc = store->ops->put(store, NULL, key, body, sizeof(body), &err);
            ck_assert_msg(!rc, "v%d, %s: %s", v ? 2 : 4, put_faults[i], err.message);
            ck_ok(get(NULL, key, &out, &err));
            ck_assert(out.len == sizeof(body) && memcmp(out.data, body, out.len) == 0);
        }
        s3fs_clear(fs);
        rule("PUT do inner=InternalError");
        ck_fails(put(NULL, "never", "x", &err), CAIRN_TRANSIENT);
        ck_assert(!s3fs_has(fs, "pre/fix/never"));
    }
}
END_TEST

static void upload(const char *key, size_t len, int want, const char *fault)
{
    struct cairn_error err;
    struct backend_upload *up;
    CLEANUP_FREE uint8_t *data = malloc(len);
    testing_fill(data, len, len);
    ck_ok(store->ops->upload_new(store, NULL, &up, &err));
    ck_assert_int_eq(util_pwrite_full(up->fd, data + len / 2, len - len / 2, len / 2),
                     (ssize_t)(len - len / 2));
    ck_assert_int_eq(util_pwrite_full(up->fd, data, len / 2, 0), (ssize_t)(len / 2));
    if (fault)
        rule(fault);
    int rc = store->ops->upload_commit(up, NULL, key, len, &err);
    ck_assert_msg(rc == want, "%s: %s", cairn_class_name(rc), err.message);
    if (rc)
        return;
    CLEANUP_BUF struct buf out = BUF_INIT(64 << 20);
    ck_ok(store->ops->get(store, NULL, key, len, &out, NULL, &err));
    ck_assert(out.len == len && memcmp(out.data, data, len) == 0);
}

START_TEST(test_s3_writes__an_upload_appears_whole_or_not_at_all)
{
    FOR_EACH_SIGNATURE(v)
    {
        upload("packs/aa/1", 5 << 20, CAIRN_OK, NULL);
        upload("packs/aa/2", 5 << 20, CAIRN_OK, "PUT key=aa/2 times=1 do nothing");
        upload("packs/aa/3", 5 << 20, CAIRN_OK, "PUT key=aa/3 times=1 do status=503 early");
        upload("packs/aa/4", 5 << 20, CAIRN_OK, "PUT key=aa/4 times=1 do deaf");
        upload("packs/aa/5", 2 << 20, CAIRN_PERMANENT,
               "PUT key=aa/5 do status=403 code=AccessDenied");
        ck_assert(!s3fs_has(fs, "pre/fix/packs/aa/5"));
        struct cairn_error err;
        struct backend_upload *up;
        ck_ok(store->ops->upload_new(store, NULL, &up, &err));
        ck_assert_int_eq(util_pwrite_full(up->fd, "short", 5, 0), 5);
        ck_fails(store->ops->upload_commit(up, NULL, "packs/aa/6", 6, &err), CAIRN_INTERNAL);
        ck_ok(store->ops->upload_new(store, NULL, &up, &err));
        store->ops->upload_abort(up);
        ck_assert(!s3fs_has(fs, "pre/fix/packs/aa/6"));
    }
}
END_TEST

/* ---- Deleting -------------------------------------------------------------------------------- */

static int remove_many(const char *format, unsigned n, bool *failed, struct cairn_error *err)
{
    char(*names)[100] = malloc(n * sizeof(*names));
    const char **keys = malloc(n * sizeof(*keys));
    for (unsigned i = 0; i < n; i++) {
        snprintf(names[i], sizeof(names[i]), "%s%06u", format, i);
        keys[i] = names[i];
    }
    int rc = store->ops->remove(store, NULL, keys, n, failed, err);
    free(keys);
    free(names);
    return rc;
}

START_TEST(test_s3_writes__deletes_go_in_batches_and_each_key_is_answered_for)
{
    struct cairn_error err;
    bool failed[2500];
    /* A thousand keys may take the server its time, on a busy machine: that is no silence. */
    server_start();
    struct s3_config patient = store_config();
    patient.stall_ns = patient.answer_ns = 30 * NS_PER_S;
    store_open(&patient);
    plant_many("d/", 2500);
    ck_ok(remove_many("d/", 2500, failed, &err));
    ck_assert_uint_eq(s3fs_count(fs), 0);
    ck_assert_uint_eq(stats().post, 3);
    /* Told once that it failed, or told nothing: asked again. */
    plant_many("d/", 20);
    rule("POST times=1 do keep=d/000003");
    rule("POST times=1 do omit=d/000004");
    ck_ok(remove_many("d/", 20, failed, &err));
    ck_assert_uint_eq(s3fs_count(fs), 0);
    /* For good: the one key, by name. */
    plant_many("d/", 20);
    s3fs_clear(fs);
    rule("POST do keep=d/000007 code=AccessDenied");
    ck_fails(remove_many("d/", 20, failed, &err), CAIRN_PERMANENT);
    for (int i = 0; i < 20; i++)
        ck_assert(failed[i] == (i == 7));
    ck_assert_ptr_nonnull(strstr(err.message, "1 of 20"));
    ck_assert_ptr_nonnull(strstr(err.message, "d/000007"));
    ck_assert_uint_eq(s3fs_count(fs), 1);
    s3fs_clear(fs);
    rule("POST do omit=d/");
    ck_fails(remove_many("d/", 3, failed, &err), CAIRN_TRANSIENT);
    s3fs_clear(fs);
    rule("POST times=1 do inner=InternalError");
    rule("POST times=1 do cut=70");
    ck_ok(remove_many("d/", 20, failed, &err));
    ck_assert_uint_eq(s3fs_count(fs), 0);
    store_stop();
}
END_TEST

START_TEST(test_s3_writes__a_server_that_falls_over_many_is_asked_for_one)
{
    struct cairn_error err;
    bool failed[20];
    store_start(S3_SIGNATURE_V4);
    plant_many("d/", 20);
    rule("POST do reset");
    ck_ok(remove_many("d/", 20, failed, &err));
    ck_assert_uint_eq(s3fs_count(fs), 0);
    ck_assert_uint_eq(stats().post, 2);
    ck_assert_uint_eq(stats().delete_, 20);
    store_stop();
}
END_TEST

START_TEST(test_s3_writes__a_key_that_xml_cannot_hold_is_deleted_by_itself)
{
    struct cairn_error err;
    const char *keys[] = {"a\x01z", "b", "c\xff", "d"};
    bool failed[4];
    store_start(S3_SIGNATURE_V4);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        ck_ok(put(NULL, keys[i], "x", &err));
    ck_ok(store->ops->remove(store, NULL, keys, 4, failed, &err));
    ck_assert_uint_eq(s3fs_count(fs), 0);
    ck_assert_uint_eq(stats().post, 1);
    ck_assert_uint_eq(stats().delete_, 2);
    store_stop();
}
END_TEST

START_TEST(test_s3_writes__commit_once_looks_and_refuses)
{
    struct cairn_error err;
    store_start(S3_SIGNATURE_V4);
    const char *id = "ck_00000000000000aa", *gen = "0123456789abcdef";
    ck_ok(store->ops->commit(store, NULL, id, gen, "{}", 2, true, &err));
    ck_assert_uint_eq(stats().requests, 2);
    ck_fails(store->ops->commit(store, NULL, id, gen, "{1}", 3, true, &err), CAIRN_BUSY);
    ck_assert_int_eq(err.sys_errno, EEXIST);
    ck_ok(store->ops->commit(store, NULL, id, gen, "{2}", 3, false, &err));
    /* What cannot be looked at is not overwritten. */
    rule("GET do status=404 code=NoSuchBucket");
    ck_fails(store->ops->commit(store, NULL, id, gen, "{3}", 3, true, &err), CAIRN_PERMANENT);
    store_stop();
}
END_TEST

START_TEST(test_s3_writes__a_meta_that_came_after_the_look_is_not_replaced)
{
    struct cairn_error err;
    CLEANUP_BUF struct buf there = BUF_INIT(64);
    const char *id = "ck_00000000000000aa", *key = "records/ck_00000000000000aa/meta.json";
    const char *gen = "0123456789abcdef";
    store_start(S3_SIGNATURE_V4);
    ck_ok(store->ops->put(store, NULL, key, "{0}", 3, &err));
    ck_fails(store->ops->commit(store, NULL, id, gen, "{1}", 3, BACKEND_ONCE_LOOKED, &err),
             CAIRN_BUSY);
    ck_assert_int_eq(err.sys_errno, EEXIST);
    ck_ok(store->ops->get(store, NULL, key, 64, &there, NULL, &err));
    ck_assert_mem_eq(there.data, "{0}", 3);
    /* An attempt that was carried out, and whose answer got lost, is no other's. */
    ck_ok(backend_remove_one(store, NULL, key, &err));
    rule("PUT times=1 do reset stored");
    ck_ok(store->ops->commit(store, NULL, id, gen, "{1}", 3, BACKEND_ONCE_LOOKED, &err));
    s3fs_clear(fs);
    /* What cannot be told is not overwritten. */
    rule("GET do status=403 code=AccessDenied");
    ck_fails(store->ops->commit(store, NULL, id, gen, "{2}", 3, BACKEND_ONCE_LOOKED, &err),
             CAIRN_PERMANENT);
    store_stop();
}
END_TEST

START_TEST(test_s3_writes__a_server_without_conditions_is_written_to_all_the_same)
{
    struct cairn_error err;
    const char *id = "ck_00000000000000aa", *gen = "0123456789abcdef";
    const char *key = "records/ck_00000000000000aa/meta.json";
    struct backend_stat st;
    store_start(S3_SIGNATURE_V4);
    /* One that refuses what is not there. */
    rule("PUT times=1 do status=412 code=PreconditionFailed");
    ck_ok(store->ops->commit(store, NULL, id, gen, "{1}", 3, BACKEND_ONCE_LOOKED, &err));
    ck_ok(store->ops->stat(store, NULL, key, &st, &err));
    s3fs_clear(fs);
    /* One that refuses the header: asked once. */
    ck_ok(backend_remove_one(store, NULL, key, &err));
    rule("PUT times=1 do status=501 code=NotImplemented");
    ck_ok(store->ops->commit(store, NULL, id, gen, "{1}", 3, BACKEND_ONCE_LOOKED, &err));
    uint64_t before = stats().put;
    ck_ok(store->ops->commit(store, NULL, id, gen, "{2}", 3, BACKEND_ONCE_LOOKED, &err));
    ck_assert_uint_eq(stats().put - before, 1);
    store_stop();
}
END_TEST

TESTING_MAIN(s3_writes, test_s3_writes__a_put_that_failed_is_sent_again_in_full,
             test_s3_writes__an_upload_appears_whole_or_not_at_all,
             test_s3_writes__deletes_go_in_batches_and_each_key_is_answered_for,
             test_s3_writes__a_server_that_falls_over_many_is_asked_for_one,
             test_s3_writes__a_key_that_xml_cannot_hold_is_deleted_by_itself,
             test_s3_writes__commit_once_looks_and_refuses,
             test_s3_writes__a_meta_that_came_after_the_look_is_not_replaced,
             test_s3_writes__a_server_without_conditions_is_written_to_all_the_same)
