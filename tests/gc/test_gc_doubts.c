/* Whatever is in doubt ends a sweep before the first mark or delete, with the object's name. */
#include "base/util.h"
#include "store/pin.h"
#include "store/tomb.h"
#include "tests/gc/world.h"
#include "tests/lib/samples.h"

#include <limits.h>
#include <string.h>

/* A store with something due of every kind. */
static void all_due(struct world *w)
{
    struct cairn_error err;
    uint8_t id[PACK_ID_LEN];
    char key[KEY_MAX], node[LAYOUT_NODE_TEXT], gen[GEN_TEXT];
    world_init_mem(w);
    w->config.ttl_ns = 30 * DAY;
    world_publish(w, CK_A, NULL, 1, 50000);
    world_advance(w, 29 * DAY);
    world_publish(w, CK_B, NULL, 2, 50000);
    world_publish(w, CK_C, NULL, 3, 50000);
    world_publish(w, TP_A, "one", 4, 50000);
    world_advance(w, SECOND);
    world_publish(w, TP_A, "two", 5, 50000);
    world_delete(w, CK_C);
    world_gen("meta", gen);
    ck_ok(pin_node(w->s, node, &err));
    CLEANUP_PIN struct pin p;
    ck_ok(pin_init(&p, node, CK_B, gen, &err));
    ck_ok(pin_put(w->s, NULL, &p, &err));
    world_pack_id(w, 0, id);
    id[0] ^= 0xff;
    layout_closed(id, key); /* marks of a pack that is gone */
    world_put(w, key, "", 0);
    layout_dead(id, key);
    world_put(w, key, "", 0);
    world_advance(w, 2 * DAY);
    CLEANUP_PIN struct pin live;
    ck_ok(pin_init(&live, node, CK_B, gen, &err));
    ck_ok(pin_put(w->s, NULL, &live, &err));
    backend_fault_clear(w->b);
}

/* Only a sweep's own probe may have changed. */
static void aborts(struct world *w, int want, const char *object)
{
    CLEANUP_FREE char *before = world_picture(w);
    int rc = world_try_sweep(w);
    CLEANUP_FREE char *after = world_picture(w);
    ck_assert_msg(rc == want, "%s, not %s: %s", cairn_class_name(rc), cairn_class_name(want),
                  w->err.message);
    ck_assert(w->result.aborted);
    ck_assert_msg(!object || strstr(w->err.message, object), "no %s in: %s", object,
                  w->err.message);
    ck_assert_str_eq(before, after);
}

/* The number of calls of an operation that the scan makes. */
static unsigned calls_of_scan(enum fault_op op)
{
    struct world w;
    all_due(&w);
    w.options.dry_run = true;
    world_sweep(&w);
    unsigned n = backend_fault_calls(w.b, op);
    world_release(&w);
    return n;
}

/* Each k: that call of the scan goes wrong. */
static void each_call_aborts(enum fault_op op, enum fault_kind kind, int want)
{
    unsigned n = calls_of_scan(op);
    ck_assert_uint_gt(n, 0);
    for (unsigned k = 1; k <= n; k += world_stride(3)) {
        struct world w;
        struct cairn_error err;
        all_due(&w);
        struct fault_plan plan = {.op = op, .kind = kind, .nth = k};
        ck_ok(backend_fault_add(w.b, &plan, &err));
        CLEANUP_FREE char *before = world_picture(&w);
        int rc = world_try_sweep(&w);
        CLEANUP_FREE char *after = world_picture(&w);
        ck_assert_msg(backend_fault_fired(w.b) == 1, "%s %u did not happen",
                      backend_fault_op_name(op), k);
        ck_assert_msg(rc == want, "%s %u: %s, not %s: %s", backend_fault_op_name(op), k,
                      cairn_class_name(rc), cairn_class_name(want), w.err.message);
        ck_assert_msg(strcmp(before, after) == 0, "%s %u: the sweep changed something",
                      backend_fault_op_name(op), k);
        /* It was no more than that one call: the next sweep works. */
        backend_fault_clear(w.b);
        world_sweep(&w);
        ck_assert_uint_gt(w.result.packs_closed, 0);
        world_verify(&w);
        world_release(&w);
    }
}

START_TEST(test_gc_doubts__a_listing_that_cannot_begin)
{
    each_call_aborts(FAULT_LIST, FAULT_FAIL, CAIRN_TRANSIENT);
}
END_TEST

START_TEST(test_gc_doubts__a_page_that_cannot_be_had)
{
    each_call_aborts(FAULT_ITER_NEXT, FAULT_FAIL, CAIRN_TRANSIENT);
}
END_TEST

START_TEST(test_gc_doubts__a_page_that_never_comes)
{
    each_call_aborts(FAULT_ITER_NEXT, FAULT_DELAY, CAIRN_TIMEOUT);
}
END_TEST

START_TEST(test_gc_doubts__an_object_that_cannot_be_read)
{
    each_call_aborts(FAULT_GET, FAULT_FAIL, CAIRN_TRANSIENT);
}
END_TEST

START_TEST(test_gc_doubts__an_object_that_never_comes)
{
    each_call_aborts(FAULT_GET, FAULT_DELAY, CAIRN_TIMEOUT);
}
END_TEST

START_TEST(test_gc_doubts__a_time_that_cannot_be_told)
{
    each_call_aborts(FAULT_PUT, FAULT_FAIL, CAIRN_TRANSIENT);
    each_call_aborts(FAULT_STAT, FAULT_FAIL, CAIRN_TRANSIENT);
}
END_TEST

/* Half of each object that is read: none passes for "refers to nothing". */
START_TEST(test_gc_doubts__an_object_that_is_cut)
{
    unsigned n = calls_of_scan(FAULT_GET);
    for (unsigned k = 1; k <= n; k += world_stride(3)) {
        struct world w;
        struct cairn_error err;
        all_due(&w);
        struct fault_plan plan = {.op = FAULT_GET, .kind = FAULT_SHORT, .nth = k};
        ck_ok(backend_fault_add(w.b, &plan, &err));
        CLEANUP_FREE char *before = world_picture(&w);
        int rc = world_try_sweep(&w);
        CLEANUP_FREE char *after = world_picture(&w);
        /* A cut meta.json is another meta.json, to all appearances, but its manifest is missing. */
        ck_assert_str_eq(before, after);
        ck_assert(rc == CAIRN_CORRUPT || rc == CAIRN_TRANSIENT);
        backend_fault_clear(w.b);
        for (int i = 0; i < 5; i++) {
            world_advance(&w, GAMMA);
            world_sweep(&w);
        }
        world_is(&w, CK_B, 2, 50000);
        world_is(&w, TP_A, 5, 50000);
        world_verify(&w);
        world_release(&w);
    }
}
END_TEST

/* ---- Damage ---- */

START_TEST(test_gc_doubts__damaged_manifests)
{
    struct world w;
    char key[KEY_MAX], gen[GEN_TEXT];
    struct cairn_error err;
    all_due(&w);
    world_gen("meta", gen);
    layout_export(CK_B, gen, key);
    struct buf good = BUF_INIT(1 << 20);
    ck_ok(w.inner->ops->get(w.inner, NULL, key, 1 << 20, &good, NULL, &err));
    world_put(&w, key, "", 0);
    aborts(&w, CAIRN_CORRUPT, key);
    world_put(&w, key, good.data, good.len / 2);
    aborts(&w, CAIRN_CORRUPT, key);
    for (size_t i = 0; i < good.len; i += 13 * world_stride(7)) {
        good.data[i] ^= 0x10;
        world_put(&w, key, good.data, good.len);
        aborts(&w, CAIRN_CORRUPT, key);
        good.data[i] ^= 0x10;
    }
    buf_release(&good);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_doubts__a_manifest_of_a_newer_version)
{
    struct world w;
    char key[KEY_MAX], gen[GEN_TEXT];
    struct cairn_error err;
    all_due(&w);
    world_gen("meta", gen);
    layout_export(CK_B, gen, key);
    struct buf data = BUF_INIT(1 << 20);
    ck_ok(w.inner->ops->get(w.inner, NULL, key, 1 << 20, &data, NULL, &err));
    put_le32(data.data + 8, MANIFEST_VERSION + 1);
    sample_reseal_manifest(data.data, data.len);
    world_put(&w, key, data.data, data.len);
    aborts(&w, CAIRN_CORRUPT, key);
    buf_release(&data);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_doubts__damaged_pins_and_tombstones)
{
    static const char *const keys[] = {"pins/node/nonce", "gc/tomb/" CK_C};
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{\"id\":\"" CK_C "\"}",
        "{\"id\":\"" CK_C "\",\"gen\":\"0011223344556677\",\"packs\":[\"xx\"],\"gens\":[7]}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        struct world w;
        all_due(&w);
        for (size_t k = 0; k < ARRAY_SIZE(texts); k++) {
            world_put(&w, keys[i], texts[k], strlen(texts[k]));
            aborts(&w, CAIRN_CORRUPT, keys[i]);
        }
        world_release(&w);
    }
}
END_TEST

START_TEST(test_gc_doubts__a_record_that_vanished)
{
    struct world w;
    struct cairn_error err;
    char prefix[KEY_MAX], key[KEY_MAX];
    all_due(&w);
    world_sweep(&w);
    layout_record(CK_B, prefix);
    while (world_count(&w, prefix)) {
        world_key(&w, prefix, 0, key);
        ck_ok(backend_remove_one(w.inner, NULL, key, &err));
    }
    world_advance(&w, HOUR);
    aborts(&w, CAIRN_CORRUPT, CK_B);
    /* And it goes on aborting: the doubt is not forgotten. */
    aborts(&w, CAIRN_CORRUPT, CK_B);
    world_advance(&w, 30 * DAY);
    aborts(&w, CAIRN_CORRUPT, CK_B);
    /* Until the record is there again. */
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_sweep(&w);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_doubts__a_memory_that_is_too_old_says_nothing)
{
    struct world w;
    struct cairn_error err;
    char prefix[KEY_MAX], key[KEY_MAX];
    all_due(&w);
    world_sweep(&w);
    layout_record(CK_B, prefix);
    while (world_count(&w, prefix)) {
        world_key(&w, prefix, 0, key);
        ck_ok(backend_remove_one(w.inner, NULL, key, &err));
    }
    /* Tombstones of that time may be gone. */
    world_advance(&w, 4 * DAY);
    world_sweep(&w);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_doubts__a_store_without_any_root)
{
    struct world w;
    struct cairn_error err;
    char key[KEY_MAX];
    world_init_mem(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    while (world_count(&w, LAYOUT_RECORDS)) {
        world_key(&w, LAYOUT_RECORDS, 0, key);
        ck_ok(backend_remove_one(w.inner, NULL, key, &err));
    }
    /* It may be a first publish that takes long, or died: no damage is told of, and none done. */
    world_advance(&w, DAY);
    aborts(&w, CAIRN_TRANSIENT, "records/");
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_sweep(&w);
    world_release(&w);
}
END_TEST

/* A meta.json that is not what it was names another generation, and the good manifest looks
 * superseded by it. */
START_TEST(test_gc_doubts__a_meta_whose_manifest_is_not_there)
{
    struct world w;
    struct cairn_error err;
    char meta[KEY_MAX], key[KEY_MAX], gen[GEN_TEXT];
    all_due(&w);
    layout_meta(CK_B, meta);
    world_gen("met", gen);
    layout_export(CK_B, gen, key);
    world_put(&w, meta, "met", 3);
    world_advance(&w, 2 * HOUR);
    aborts(&w, CAIRN_CORRUPT, key);
    world_put(&w, meta, "meta", 4);
    world_gen("meta", gen);
    layout_export(CK_B, gen, key);
    struct buf good = BUF_INIT(1 << 20);
    ck_ok(w.inner->ops->get(w.inner, NULL, key, 1 << 20, &good, NULL, &err));
    ck_ok(backend_remove_one(w.inner, NULL, key, &err));
    world_advance(&w, 2 * HOUR);
    aborts(&w, CAIRN_CORRUPT, key);
    world_put(&w, key, good.data, good.len);
    world_sweep(&w);
    world_is(&w, CK_B, 2, 50000);
    /* One that is to go leaves no doubt. */
    ck_ok(backend_remove_one(w.inner, NULL, key, &err));
    world_delete(&w, CK_B);
    world_sweep(&w);
    buf_release(&good);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_doubts__an_empty_store_and_one_that_was_emptied_are_swept)
{
    struct world w;
    world_init_mem(&w);
    world_sweep(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_delete(&w, CK_A);
    world_advance(&w, DAY);
    world_sweep(&w);
    world_advance(&w, SIGMA);
    world_sweep(&w);
    world_advance(&w, GAMMA);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_PACKS), 0);
    world_release(&w);
}
END_TEST

/* What one scan allowed is done by then: that is told, and not called "before any change". */
START_TEST(test_gc_doubts__a_later_scan_that_fails_ends_a_sweep_that_did_something)
{
    struct world w;
    struct cairn_error err;
    world_init_now(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_delete(&w, CK_A);
    backend_fault_clear(w.b);
    w.options.dry_run = true;
    world_sweep(&w);
    w.options.dry_run = false;
    struct fault_plan plan = {
        .op = FAULT_LIST, .nth = backend_fault_calls(w.b, FAULT_LIST) + 1, .times = UINT_MAX};
    backend_fault_clear(w.b);
    ck_ok(backend_fault_add(w.b, &plan, &err));
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_TRANSIENT);
    ck_assert_uint_eq(w.result.packs_closed, 1);
    ck_assert(!w.result.aborted);
    world_release(&w);
}
END_TEST

/* A sweeper that runs for long learns that the store was changed under it. */
START_TEST(test_gc_doubts__a_store_that_now_forbids_this_sweeper)
{
    struct world w;
    struct cairn_error err;
    struct buf text = BUF_INIT(FORMAT_MAX);
    all_due(&w);
    struct store_format f = w.s->format;
    f.min_sweeper = FORMAT_VERSION + 1;
    ck_ok(format_encode(&f, &text, &err));
    world_put(&w, LAYOUT_FORMAT, text.data, text.len);
    aborts(&w, CAIRN_PERMANENT, "swept");
    world_put(&w, LAYOUT_FORMAT, text.data, text.len / 2);
    aborts(&w, CAIRN_CORRUPT, LAYOUT_FORMAT);
    ck_ok(backend_remove_one(w.inner, NULL, LAYOUT_FORMAT, &err));
    aborts(&w, CAIRN_CORRUPT, LAYOUT_FORMAT);
    buf_release(&text);
    world_release(&w);
}
END_TEST

/* ---- No space ---- */

START_TEST(test_gc_doubts__a_full_store_is_swept_as_far_as_deletes_go)
{
    struct world w;
    struct cairn_error err;
    uint8_t id[PACK_ID_LEN];
    char pack[KEY_MAX];
    world_init_mem(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_pack_id(&w, 0, id);
    layout_pack(id, pack);
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_delete(&w, CK_A);
    world_advance(&w, DAY);
    world_sweep(&w);
    world_advance(&w, SIGMA);
    world_sweep(&w);
    world_advance(&w, GAMMA);
    world_publish(&w, CK_C, NULL, 3, 50000);
    world_delete(&w, CK_C);
    /* Not even the probe can be written: the newest object tells a time that is not too late. */
    struct fault_plan plan = {
        .op = FAULT_PUT, .nth = 1, .times = UINT_MAX, .error_class = CAIRN_NO_SPACE};
    ck_ok(backend_fault_add(w.b, &plan, &err));
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_NO_SPACE);
    ck_assert(!w.result.aborted);
    ck_assert_uint_eq(w.result.packs_deleted, 1);
    ck_assert(!world_has(&w, pack));
    backend_fault_clear(w.b);
    /* The probe can, marks cannot. */
    world_advance(&w, DAY);
    plan.key_part = "gc/closed/";
    ck_ok(backend_fault_add(w.b, &plan, &err));
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_NO_SPACE);
    ck_assert_uint_eq(w.result.packs_closed, 0);
    backend_fault_clear(w.b);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 1);
    world_is(&w, CK_B, 2, 50000);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_doubts__a_newer_store_may_forbid_older_sweepers)
{
    struct world w;
    all_due(&w);
    w.s->format.min_sweeper = FORMAT_VERSION + 1;
    CLEANUP_FREE char *before = world_picture(&w);
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_PERMANENT);
    CLEANUP_FREE char *after = world_picture(&w);
    ck_assert_str_eq(before, after);
    world_release(&w);
}
END_TEST

WORLD_MAIN(gc_doubts, test_gc_doubts__a_listing_that_cannot_begin,
           test_gc_doubts__a_page_that_cannot_be_had, test_gc_doubts__a_page_that_never_comes,
           test_gc_doubts__an_object_that_cannot_be_read,
           test_gc_doubts__an_object_that_never_comes, test_gc_doubts__a_time_that_cannot_be_told,
           test_gc_doubts__an_object_that_is_cut, test_gc_doubts__damaged_manifests,
           test_gc_doubts__a_manifest_of_a_newer_version,
           test_gc_doubts__damaged_pins_and_tombstones, test_gc_doubts__a_record_that_vanished,
           test_gc_doubts__a_memory_that_is_too_old_says_nothing,
           test_gc_doubts__a_store_without_any_root,
           test_gc_doubts__a_meta_whose_manifest_is_not_there,
           test_gc_doubts__an_empty_store_and_one_that_was_emptied_are_swept,
           test_gc_doubts__a_later_scan_that_fails_ends_a_sweep_that_did_something,
           test_gc_doubts__a_store_that_now_forbids_this_sweeper,
           test_gc_doubts__a_full_store_is_swept_as_far_as_deletes_go,
           test_gc_doubts__a_newer_store_may_forbid_older_sweepers)
