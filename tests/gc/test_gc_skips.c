/* What a sweep need not do again because an earlier one did: read a tombstone, copy for a record
 * that cannot be moved. In memory. */
#include "store/sweep_db.h"
#include "store/tomb.h"
#include "tests/gc/world.h"

#include <string.h>

/* Reads of tombstones by one sweep. */
static unsigned tombs_read(struct world *w)
{
    struct cairn_error err;
    struct fault_plan count = {.op = FAULT_GET, .kind = FAULT_DELAY, .nth = 1u << 30};
    backend_fault_clear(w->b);
    ck_ok(backend_fault_add(w->b, &count, &err));
    world_sweep(w);
    return backend_fault_calls(w->b, FAULT_GET) - 1; /* beside format.json */
}

START_TEST(test_gc_skips__a_tombstone_is_read_once)
{
    struct world w;
    world_init_mem(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_publish(&w, CK_C, NULL, 3, 50000);
    world_delete(&w, CK_A);
    world_delete(&w, CK_B);
    world_advance(&w, HOUR);
    ck_assert_uint_eq(tombs_read(&w), 2 + 2);
    ck_assert_uint_eq(tombs_read(&w), 0);
    /* One that was published again has both, and nothing is read for that either. */
    world_publish(&w, CK_A, "again", 4, 50000);
    world_advance(&w, HOUR);
    world_sweep(&w);
    ck_assert_uint_eq(tombs_read(&w), 0);
    world_is(&w, CK_A, 4, 50000);
    /* One that changed is read, and acted upon. */
    struct tomb t = {0};
    struct cairn_error err;
    char gen[GEN_TEXT];
    world_gen("again", gen);
    ck_ok(tomb_add_gen(&t, gen, &err));
    ck_ok(tomb_put(w.s, NULL, CK_A, &t, &err));
    tomb_release(&t);
    world_advance(&w, HOUR);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.records, 2);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.records, 1);
    world_verify(&w);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_skips__a_tombstone_written_just_now_is_not_remembered)
{
    struct world w;
    world_init_mem(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_advance(&w, HOUR);
    world_sweep(&w);
    world_delete(&w, CK_A);
    ck_assert_uint_eq(tombs_read(&w), 1);
    ck_assert_uint_eq(tombs_read(&w), 1);
    world_release(&w);
}
END_TEST

/* Two records need small parts of one pack; the first part of the one cannot be read any more. */
static void about_to_move(struct world *w, char pack[KEY_MAX])
{
    world_init_mem(w);
    world_publish_two(w, CK_A, NULL, 1, 140000, 2, 800000);
    world_key(w, LAYOUT_PACKS, 0, pack);
    world_publish(w, CK_B, NULL, 1, 140000);
    world_delete(w, CK_A);
    world_advance(w, DAY);
    world_sweep(w);
    ck_assert_uint_eq(w->result.packs_closed, 1);
    world_advance(w, SIGMA);
    /* Behind a chunk that is whole. */
    world_damage(w, pack, 4096 + 65536 + 100, 1);
}

START_TEST(test_gc_skips__what_cannot_be_moved_is_not_copied_again_for_a_day)
{
    struct world w;
    char pack[KEY_MAX];
    about_to_move(&w, pack);
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_CORRUPT);
    size_t packs = world_count(&w, LAYOUT_PACKS);
    ck_assert_uint_eq(packs, 2); /* the chunk that could be read, for nothing */
    for (int i = 0; i < 3; i++) {
        world_advance(&w, HOUR);
        backend_fault_clear(w.b);
        /* It is told all the same, with the object. */
        ck_assert_int_eq(world_try_sweep(&w), CAIRN_CORRUPT);
        ck_assert_ptr_nonnull(strstr(w.err.message, CK_B));
        ck_assert_uint_eq(backend_fault_calls(w.b, FAULT_READ), 0);
        ck_assert_uint_eq(backend_fault_calls(w.b, FAULT_UPLOAD_NEW), 0);
        ck_assert_uint_eq(world_count(&w, LAYOUT_PACKS), packs);
    }
    /* A record that comes later and can be moved is. */
    ck_assert(world_has(&w, pack));
    world_advance(&w, DAY);
    world_damage(&w, pack, 4096 + 65536 + 100, 1);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_repacked, 1);
    world_is(&w, CK_B, 1, 140000);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_skips__a_manifest_that_was_replaced_is_tried_at_once)
{
    struct world w;
    char pack[KEY_MAX], key[KEY_MAX], gen[GEN_TEXT];
    struct cairn_error err;
    about_to_move(&w, pack);
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_CORRUPT);
    world_damage(&w, pack, 4096 + 65536 + 100, 1);
    world_advance(&w, HOUR);
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_CORRUPT);
    struct buf data = BUF_INIT(1 << 20);
    world_gen("meta", gen);
    layout_export(CK_B, gen, key);
    ck_ok(w.inner->ops->get(w.inner, NULL, key, 1 << 20, &data, NULL, &err));
    world_put(&w, key, data.data, data.len);
    buf_release(&data);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_repacked, 1);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_skips__one_that_cannot_be_moved_keeps_no_other)
{
    struct world w;
    char pack[KEY_MAX];
    world_init_mem(&w);
    world_publish_two(&w, CK_A, NULL, 1, 40000, 2, 800000);
    world_key(&w, LAYOUT_PACKS, 0, pack);
    world_publish(&w, CK_B, NULL, 1, 40000);
    world_publish(&w, CK_C, NULL, 2, 100);
    world_delete(&w, CK_A);
    world_advance(&w, DAY);
    world_sweep(&w);
    world_advance(&w, SIGMA);
    world_damage(&w, pack, 4096 + 100, 1);
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_CORRUPT);
    world_is(&w, CK_C, 2, 100);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_skips__the_memory_of_it)
{
    struct world w;
    struct cairn_error err, got;
    struct sweep_db *db;
    struct tomb t = {0}, back;
    world_init_mem(&w);
    ck_ok(sweep_db_open(w.s, &db, &err));
    struct backend_stat st = {.size = 7, .mtime_ns = 99, .etag = "\"1\""}, other = st;
    error_set(&err, CAIRN_CORRUPT, 5, "%s", "so it is");
    sweep_db_begin(db);
    ck_assert(!sweep_db_find_tomb(db, "t", &st, &back));
    sweep_db_put_tomb(db, "t", &st, &t);
    ck_assert(sweep_db_find_tomb(db, "t", &st, &back));
    ck_assert_uint_eq(back.n, 0);
    ck_ok(tomb_add_gen(&t, "0011223344556677", &got));
    ck_ok(tomb_add_gen(&t, "8899aabbccddeeff", &got));
    sweep_db_put_tomb(db, "t", &st, &t);
    ck_assert(sweep_db_find_tomb(db, "t", &st, &back));
    ck_assert_uint_eq(back.n, 2);
    ck_assert(tomb_has_gen(&back, "8899aabbccddeeff"));
    tomb_release(&back);
    other.etag[1] = '2';
    ck_assert(!sweep_db_find_tomb(db, "t", &other, &back));
    /* Without etags nothing is remembered. */
    other.etag[0] = 0;
    sweep_db_put_tomb(db, "u", &other, &t);
    ck_assert(!sweep_db_find_tomb(db, "u", &other, &back));
    sweep_db_put_stuck(db, "m", &st, 1000, &err);
    ck_assert(sweep_db_find_stuck(db, "m", &st, 1000 + SWEEP_STUCK_NS - 1, &got));
    ck_assert_int_eq(got.error_class, CAIRN_CORRUPT);
    ck_assert_int_eq(got.sys_errno, 5);
    ck_assert_str_eq(got.message, "so it is");
    ck_assert(!sweep_db_find_stuck(db, "m", &st, 1000 + SWEEP_STUCK_NS, &got));
    ck_assert(!sweep_db_find_stuck(db, "m", &st, 999, &got)); /* the clock went back */
    ck_assert(!sweep_db_find_stuck(db, "m", &other, 1000, &got));
    /* Over sweeps that do not ask for it, until it is a day old. */
    for (int i = 0; i < 3; i++) {
        sweep_db_complete(db, 2000);
        sweep_db_begin(db);
    }
    ck_assert(sweep_db_find_stuck(db, "m", &st, 2000, &got));
    ck_assert(!sweep_db_find_tomb(db, "t", &st, &back)); /* no sweep met it */
    sweep_db_complete(db, 1000 + SWEEP_STUCK_NS);
    ck_assert(!sweep_db_find_stuck(db, "m", &st, 2000, &got));
    tomb_release(&t);
    sweep_db_close(db);
    world_release(&w);
}
END_TEST

WORLD_MAIN(gc_skips, test_gc_skips__a_tombstone_is_read_once,
           test_gc_skips__a_tombstone_written_just_now_is_not_remembered,
           test_gc_skips__what_cannot_be_moved_is_not_copied_again_for_a_day,
           test_gc_skips__a_manifest_that_was_replaced_is_tried_at_once,
           test_gc_skips__one_that_cannot_be_moved_keeps_no_other, test_gc_skips__the_memory_of_it)
