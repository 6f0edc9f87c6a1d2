/* The life of packs, on a store with the default times whose clock is moved by hand. */
#include "base/util.h"
#include "gc/plan.h"
#include "store/pin.h"
#include "tests/gc/world.h"

#include <string.h>

/* A record that stays, and garbage of one pack; both old enough. */
static void with_garbage(struct world *w, uint8_t garbage[PACK_ID_LEN])
{
    world_init_mem(w);
    world_publish(w, CK_A, NULL, 1, 50000);
    world_pack_id(w, 0, garbage);
    world_publish(w, CK_B, NULL, 2, 50000);
    world_delete(w, CK_A);
    world_advance(w, DAY);
}

START_TEST(test_gc_packs__garbage_is_closed_then_dead_then_deleted_then_forgotten)
{
    struct world w;
    uint8_t id[PACK_ID_LEN];
    char pack[KEY_MAX], closed[KEY_MAX], dead[KEY_MAX];
    with_garbage(&w, id);
    layout_pack(id, pack);
    layout_closed(id, closed);
    layout_dead(id, dead);

    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 1);
    ck_assert_uint_eq(w.result.waiting_closed, 1);
    ck_assert_int_eq(w.result.next_ns, SIGMA);
    ck_assert(world_has(&w, closed) && !world_has(&w, dead));
    world_advance(&w, SIGMA - 1);
    world_sweep(&w);
    ck_assert(!world_has(&w, dead));

    world_advance(&w, 1);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_dead, 1);
    ck_assert_uint_eq(w.result.waiting_dead, 1);
    ck_assert(world_has(&w, dead) && world_has(&w, pack));
    world_advance(&w, GAMMA - 1);
    world_sweep(&w);
    ck_assert(world_has(&w, pack));

    world_advance(&w, 1);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_deleted, 1);
    ck_assert_uint_gt(w.result.bytes_freed, 50000);
    ck_assert(!world_has(&w, pack) && world_has(&w, closed) && world_has(&w, dead));

    /* Marks stay until nobody can be told any more that the pack is there. */
    world_advance(&w, SIGMA);
    world_sweep(&w);
    ck_assert(world_has(&w, closed));
    world_advance(&w, SIGMA);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_CLOSED) + world_count(&w, LAYOUT_DEAD), 0);
    world_is(&w, CK_B, 2, 50000);
    world_verify(&w);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_packs__what_is_young_is_left_alone)
{
    struct world w;
    world_init_mem(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_delete(&w, CK_A);
    world_advance(&w, DAY - 1);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 0);
    ck_assert_uint_eq(world_count(&w, LAYOUT_CLOSED), 0);
    world_advance(&w, 1);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 1);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_packs__dry_run_tells_and_changes_nothing)
{
    struct world w;
    uint8_t id[PACK_ID_LEN];
    with_garbage(&w, id);
    CLEANUP_FREE char *before = world_picture(&w);
    w.options.dry_run = true;
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 1);
    CLEANUP_FREE char *after = world_picture(&w);
    ck_assert_str_eq(before, after);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_packs__a_reference_that_turns_up_after_the_mark_saves_the_pack)
{
    struct world w;
    uint8_t id[PACK_ID_LEN];
    char gen[GEN_TEXT];
    char pack[KEY_MAX], key[KEY_MAX];
    with_garbage(&w, id);
    layout_pack(id, pack);
    CLEANUP_BUF struct buf manifest = BUF_INIT(1 << 20);
    struct cairn_error err;
    /* The manifest of a writer that was quicker than the mark and has not committed yet. */
    world_gen("meta", gen);
    layout_export(CK_B, gen, key);
    ck_ok(w.inner->ops->get(w.inner, NULL, key, 1 << 20, &manifest, NULL, &err));
    world_sweep(&w);
    world_publish(&w, CK_C, NULL, 3, 1000);
    ck_assert(world_has(&w, pack));
    /* Named by a pin. */
    CLEANUP_PIN struct pin p;
    char node[LAYOUT_NODE_TEXT];
    ck_ok(pin_node(w.s, node, &err));
    ck_ok(pin_init(&p, node, CK_B, gen, &err));
    ck_ok(pack_set_add(&p.packs, id, &err));
    world_advance(&w, SIGMA);
    ck_ok(pin_put(w.s, NULL, &p, &err));
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_dead, 0);
    world_advance(&w, GAMMA - SECOND);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_dead, 0);
    ck_ok(pin_remove(w.s, NULL, &p, &err));
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_dead, 1);
    /* Even a dead pack is not deleted while something names it. */
    world_advance(&w, GAMMA);
    ck_ok(pin_put(w.s, NULL, &p, &err));
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_deleted, 0);
    ck_assert(world_has(&w, pack));
    world_release(&w);
}
END_TEST

START_TEST(test_gc_packs__a_pin_lives_for_twice_the_grace)
{
    struct world w;
    uint8_t id[PACK_ID_LEN];
    char gen[GEN_TEXT], node[LAYOUT_NODE_TEXT];
    struct cairn_error err;
    with_garbage(&w, id);
    world_gen("meta", gen);
    CLEANUP_PIN struct pin p;
    ck_ok(pin_node(w.s, node, &err));
    ck_ok(pin_init(&p, node, CK_B, gen, &err));
    ck_ok(pack_set_add(&p.packs, id, &err));
    ck_ok(pin_put(w.s, NULL, &p, &err));
    world_advance(&w, 2 * HOUR - 1);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 0);
    ck_assert(world_has(&w, p.key));
    world_advance(&w, 1);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 1);
    ck_assert(!world_has(&w, p.key));
    world_release(&w);
}
END_TEST

START_TEST(test_gc_packs__marks_that_make_no_sense_delete_nothing)
{
    struct world w;
    uint8_t id[PACK_ID_LEN];
    char pack[KEY_MAX], key[KEY_MAX];
    with_garbage(&w, id);
    layout_pack(id, pack);
    layout_dead(id, key);
    world_put(&w, key, "", 0);
    world_advance(&w, 10 * DAY);
    world_sweep(&w);
    ck_assert_msg(world_has(&w, pack), "dead without having been closed");
    ck_assert_uint_eq(w.result.packs_closed, 1);
    world_advance(&w, SIGMA);
    world_sweep(&w);
    ck_assert_msg(world_has(&w, pack), "dead before it was closed");
    ck_assert_uint_eq(w.result.packs_dead, 1);
    world_advance(&w, GAMMA);
    world_sweep(&w);
    ck_assert(!world_has(&w, pack));
    world_verify(&w);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_packs__a_publish_does_not_use_a_closed_pack)
{
    struct world w;
    uint8_t id[PACK_ID_LEN];
    with_garbage(&w, id);
    world_sweep(&w);
    world_publish(&w, CK_C, NULL, 1, 50000);
    for (int i = 0; i < 4; i++) {
        world_advance(&w, GAMMA);
        world_sweep(&w);
    }
    char pack[KEY_MAX];
    layout_pack(id, pack);
    ck_assert(!world_has(&w, pack));
    world_is(&w, CK_C, 1, 50000);
    world_verify(&w);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_packs__one_call_does_all_in_a_directory_without_waits)
{
    struct world w;
    world_init_now(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_delete(&w, CK_A);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_deleted, 1);
    ck_assert_uint_eq(world_count(&w, LAYOUT_PACKS), 1);
    ck_assert_uint_eq(world_count(&w, LAYOUT_CLOSED) + world_count(&w, LAYOUT_DEAD), 0);
    world_is(&w, CK_B, 2, 50000);
    world_release(&w);
}
END_TEST

/* It waits for what refers to it to go, and nobody can say when that is. */
START_TEST(test_gc_packs__a_closed_pack_that_is_referred_to_waits_for_no_time)
{
    struct world w;
    uint8_t id[PACK_ID_LEN];
    char closed[KEY_MAX];
    world_init_mem(&w);
    world_publish(&w, TP_A, "one", 1, 50000);
    world_pack_id(&w, 0, id);
    world_advance(&w, SECOND);
    world_publish(&w, TP_A, "two", 2, 50000);
    layout_closed(id, closed);
    world_put(&w, closed, "", 0);
    world_advance(&w, SIGMA);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.waiting_closed, 1);
    ck_assert_int_eq(w.result.next_ns, -1);
    world_release(&w);
}
END_TEST

/* ---- The decision by itself ---- */

static enum plan_pack decide(const struct gc_run *run, struct roots_pack p)
{
    return plan_pack(run, &p, NULL);
}

START_TEST(test_gc_packs__decisions)
{
    struct gc_run run = {.now = 100, .t = {.young = 50, .visibility = 10, .dead = 20}};
    ck_assert_int_eq(decide(&run, (struct roots_pack){.present = true, .mtime_ns = 51}),
                     PLAN_PACK_KEEP);
    ck_assert_int_eq(decide(&run, (struct roots_pack){.present = true, .mtime_ns = 50}),
                     PLAN_PACK_CLOSE);
    ck_assert_int_eq(decide(&run, (struct roots_pack){.present = true, .mtime_ns = 0}),
                     PLAN_PACK_KEEP); /* no time is young */
    ck_assert_int_eq(decide(&run, (struct roots_pack){.present = true, .mtime_ns = 200}),
                     PLAN_PACK_KEEP); /* so is one to come */
    ck_assert_int_eq(decide(&run, (struct roots_pack){.present = true, .mtime_ns = 1, .refs = 1}),
                     PLAN_PACK_KEEP);
    ck_assert_int_eq(
        decide(&run, (struct roots_pack){.present = true, .closed = true, .closed_ns = 91}),
        PLAN_PACK_WAIT);
    ck_assert_int_eq(
        decide(&run, (struct roots_pack){.present = true, .closed = true, .closed_ns = 90}),
        PLAN_PACK_KILL);
    ck_assert_int_eq(
        decide(&run,
               (struct roots_pack){
                   .present = true, .closed = true, .closed_ns = 90, .refs = 1, .committed = true}),
        PLAN_PACK_REPACK);
    ck_assert_int_eq(
        decide(&run,
               (struct roots_pack){.present = true, .closed = true, .closed_ns = 90, .refs = 1}),
        PLAN_PACK_WAIT);
    struct roots_pack dead = {
        .present = true, .closed = true, .closed_ns = 1, .dead = true, .dead_ns = 81};
    ck_assert_int_eq(decide(&run, dead), PLAN_PACK_WAIT);
    dead.dead_ns = 80;
    ck_assert_int_eq(decide(&run, dead), PLAN_PACK_DELETE);
    dead.refs = 1;
    ck_assert_int_eq(decide(&run, dead), PLAN_PACK_WAIT);
    dead.refs = 0;
    dead.pinned = true;
    ck_assert_int_eq(decide(&run, dead), PLAN_PACK_WAIT);
    dead.pinned = false;
    dead.closed_ns = 85;
    ck_assert_int_eq(decide(&run, dead), PLAN_PACK_KILL);
    dead.closed = false;
    ck_assert_int_ne(decide(&run, dead), PLAN_PACK_DELETE);
}
END_TEST

WORLD_MAIN(gc_packs, test_gc_packs__garbage_is_closed_then_dead_then_deleted_then_forgotten,
           test_gc_packs__what_is_young_is_left_alone,
           test_gc_packs__dry_run_tells_and_changes_nothing,
           test_gc_packs__a_reference_that_turns_up_after_the_mark_saves_the_pack,
           test_gc_packs__a_pin_lives_for_twice_the_grace,
           test_gc_packs__marks_that_make_no_sense_delete_nothing,
           test_gc_packs__a_publish_does_not_use_a_closed_pack,
           test_gc_packs__one_call_does_all_in_a_directory_without_waits,
           test_gc_packs__a_closed_pack_that_is_referred_to_waits_for_no_time,
           test_gc_packs__decisions)
