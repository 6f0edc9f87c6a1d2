/* Repacking: mostly dead packs and many small ones. */
#include "base/util.h"
#include "tests/gc/world.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define BIG ((size_t)400000)

/* A record of big and small pieces, of which another one shares the small one; the first is then
 * removed: its pack is mostly dead. */
static void sparse(struct world *w, char pack[KEY_MAX])
{
    world_init_mem(w);
    world_publish_two(w, CK_A, NULL, 1, 40000, 2, BIG);
    world_key(w, LAYOUT_PACKS, 0, pack);
    world_publish(w, CK_B, NULL, 1, 40000);
    world_publish(w, CK_C, NULL, 1, 40000);
    ck_assert_uint_eq(world_count(w, LAYOUT_PACKS), 1);
    world_delete(w, CK_A);
    world_advance(w, DAY);
}

START_TEST(test_gc_repack__a_mostly_dead_pack_is_closed_moved_and_deleted)
{
    struct world w;
    char pack[KEY_MAX];
    sparse(&w, pack);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 1);
    ck_assert_uint_eq(w.result.packs_repacked, 0);
    world_advance(&w, SIGMA);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_repacked, 1);
    /* Two records, one copy of their chunks. */
    ck_assert_uint_eq(world_count(&w, LAYOUT_PACKS), 2);
    ck_assert(world_has(&w, pack));
    world_is(&w, CK_B, 1, 40000);
    world_is(&w, CK_C, 1, 40000);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_dead, 1);
    world_advance(&w, GAMMA);
    world_sweep(&w);
    ck_assert(!world_has(&w, pack));
    ck_assert_uint_eq(world_count(&w, LAYOUT_PACKS), 1);
    world_is(&w, CK_B, 1, 40000);
    world_is(&w, CK_C, 1, 40000);
    world_verify(&w);
    /* Where marks are seen late the pins stay until they have lost their holder. */
    ck_assert_uint_eq(world_count(&w, LAYOUT_PINS), 2);
    world_advance(&w, 2 * HOUR);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_PINS), 0);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_repack__can_be_switched_off)
{
    struct world w;
    char pack[KEY_MAX];
    sparse(&w, pack);
    w.config.no_repack = true;
    for (int i = 0; i < 3; i++) {
        world_sweep(&w);
        world_advance(&w, GAMMA);
    }
    ck_assert_uint_eq(world_count(&w, LAYOUT_CLOSED), 0);
    ck_assert(world_has(&w, pack));
    world_release(&w);
}
END_TEST

START_TEST(test_gc_repack__more_than_half_alive_is_left_alone)
{
    struct world w;
    world_init_mem(&w);
    world_publish_two(&w, CK_A, NULL, 1, 300000, 2, 200000);
    world_publish(&w, CK_B, NULL, 1, 300000);
    world_delete(&w, CK_A);
    world_advance(&w, DAY);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 0);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_repack__small_pieces_do_not_look_dead)
{
    struct world w;
    char folder[300], path[400], name[16];
    struct cairn_error err;
    world_init_now(&w);
    snprintf(folder, sizeof(folder), "%s/tiny", w.root);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    for (int i = 0; i < 300; i++) {
        uint8_t data[100];
        testing_fill(data, sizeof(data), (uint64_t)i + 1000);
        snprintf(name, sizeof(name), "%d", i);
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_eq(util_pwrite_full(fd, data, sizeof(data), 0), sizeof(data));
    }
    struct cairn_publish_options options = {.from = folder};
    struct cairn_publish_result result;
    ck_ok(cairn_publish(w.s, NULL, CK_A, &options, &result, &err));
    world_publish(&w, CK_B, NULL, 1, 10);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 0);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_repack__halves_that_overlap_are_counted_once)
{
    struct world w;
    world_init_mem(&w);
    /* Two records need the same third: in sum more than half. */
    world_publish_two(&w, CK_A, NULL, 1, 150000, 2, 300000);
    world_publish(&w, CK_B, NULL, 1, 150000);
    world_publish(&w, CK_C, NULL, 1, 150000);
    world_delete(&w, CK_A);
    world_advance(&w, DAY);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 1);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_repack__halves_that_do_not_overlap_add_up)
{
    struct world w;
    world_init_mem(&w);
    world_publish_two(&w, CK_A, NULL, 1, 200000, 2, 200000);
    world_publish(&w, CK_B, NULL, 1, 180000);
    world_publish(&w, CK_C, NULL, 2, 180000);
    world_delete(&w, CK_A);
    world_advance(&w, DAY);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_closed, 0);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_repack__many_small_packs_become_one)
{
    struct world w;
    char id[ID_MAX + 1];
    world_init_now(&w);
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof(id), "ck_%016d", i);
        world_publish(&w, id, NULL, 100 + (uint64_t)i, 50000);
        if (i == 6) {
            world_sweep(&w);
            ck_assert_uint_eq(world_count(&w, LAYOUT_PACKS), 7);
        }
    }
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_repacked, 8);
    ck_assert_uint_eq(world_count(&w, LAYOUT_PACKS), 1);
    ck_assert_uint_eq(world_count(&w, LAYOUT_PINS), 0);
    ck_assert_uint_eq(world_count(&w, LAYOUT_CLOSED) + world_count(&w, LAYOUT_DEAD), 0);
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof(id), "ck_%016d", i);
        world_is(&w, id, 100 + (uint64_t)i, 50000);
    }
    world_verify(&w);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_repack__an_open_record_follows_its_chunks)
{
    struct world w;
    char pack[KEY_MAX];
    struct cairn_error err;
    struct cairn_record *r;
    sparse(&w, pack);
    ck_ok(cairn_record_open(w.s, NULL, CK_B, &r, &err));
    world_sweep(&w);
    world_advance(&w, SIGMA);
    world_sweep(&w);
    world_sweep(&w);
    world_advance(&w, GAMMA);
    world_sweep(&w);
    ck_assert(!world_has(&w, pack));
    CLEANUP_FREE uint8_t *got = malloc(40000), *want = malloc(40000);
    size_t len;
    testing_fill(want, 40000, 1);
    ck_ok(cairn_record_pread(r, NULL, 0, got, 40000, 0, &len, &err));
    ck_assert_uint_eq(len, 40000);
    ck_assert_mem_eq(got, want, 40000);
    cairn_record_close(r);
    world_release(&w);
}
END_TEST

/* Bring the store to where the next sweep moves chunks. */
static void about_to_move(struct world *w, char pack[KEY_MAX])
{
    sparse(w, pack);
    world_sweep(w);
    world_advance(w, SIGMA);
}

START_TEST(test_gc_repack__a_damaged_chunk_stays_where_it_is_and_is_told)
{
    struct world w;
    char pack[KEY_MAX];
    about_to_move(&w, pack);
    world_damage(&w, pack, 4096 + 100, 1);
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_CORRUPT);
    ck_assert(!w.result.aborted);
    ck_assert_uint_eq(w.result.packs_repacked, 0);
    world_advance(&w, GAMMA);
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_CORRUPT);
    world_advance(&w, DAY); /* it is tried once a day */
    ck_assert(world_has(&w, pack));
    world_damage(&w, pack, 4096 + 100, 1);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.packs_repacked, 1);
    world_is(&w, CK_B, 1, 40000);
    world_release(&w);
}
END_TEST

/* Any one call of the sweep that moves fails, in both ways: nothing is lost, the next one does it.
 */
static void each_call(enum fault_op op, enum fault_kind kind)
{
    struct world w;
    char pack[KEY_MAX];
    about_to_move(&w, pack);
    backend_fault_clear(w.b);
    world_sweep(&w);
    unsigned n = backend_fault_calls(w.b, op);
    ck_assert_uint_gt(n, 0);
    world_release(&w);
    for (unsigned k = 1; k <= n; k += world_stride(4)) {
        struct cairn_error err;
        about_to_move(&w, pack);
        struct fault_plan plan = {.op = op, .kind = kind, .nth = k};
        backend_fault_clear(w.b);
        ck_ok(backend_fault_add(w.b, &plan, &err));
        (void)world_try_sweep(&w);
        backend_fault_clear(w.b);
        world_is(&w, CK_B, 1, 40000);
        world_is(&w, CK_C, 1, 40000);
        world_verify(&w);
        for (int i = 0; i < 12; i++) {
            world_advance(&w, 3 * HOUR);
            world_sweep(&w);
        }
        world_advance(&w, DAY);
        for (int i = 0; i < 5; i++) {
            world_advance(&w, 3 * HOUR);
            world_sweep(&w);
        }
        ck_assert_msg(!world_has(&w, pack), "%s %u: the old pack is still there",
                      backend_fault_op_name(op), k);
        /* One each, where the two were not moved by the same sweep. */
        ck_assert_uint_le(world_count(&w, LAYOUT_PACKS), 2);
        ck_assert_uint_eq(world_count(&w, LAYOUT_PINS), 0);
        ck_assert_uint_eq(world_count(&w, LAYOUT_CLOSED) + world_count(&w, LAYOUT_DEAD), 0);
        ck_assert_uint_eq(w.result.packs_closed + w.result.waiting_closed, 0);
        world_is(&w, CK_B, 1, 40000);
        world_is(&w, CK_C, 1, 40000);
        world_release(&w);
    }
}

START_TEST(test_gc_repack__any_write_may_fail)
{
    each_call(FAULT_PUT, FAULT_FAIL);
    each_call(FAULT_UPLOAD_NEW, FAULT_FAIL);
    each_call(FAULT_UPLOAD_COMMIT, FAULT_FAIL);
}
END_TEST

START_TEST(test_gc_repack__any_answer_may_get_lost)
{
    each_call(FAULT_PUT, FAULT_LOST);
    each_call(FAULT_UPLOAD_COMMIT, FAULT_LOST);
}
END_TEST

START_TEST(test_gc_repack__any_read_may_fail)
{
    each_call(FAULT_GET, FAULT_FAIL);
    each_call(FAULT_READ, FAULT_FAIL);
    each_call(FAULT_STAT, FAULT_FAIL);
    each_call(FAULT_LIST, FAULT_FAIL);
}
END_TEST

/* A write whose answer got lost may still arrive: until then only the pin keeps the fresh packs. */
START_TEST(test_gc_repack__the_pin_stays_when_the_answer_got_lost)
{
    struct world w;
    char pack[KEY_MAX];
    struct cairn_error err;
    about_to_move(&w, pack);
    struct fault_plan plan = {
        .op = FAULT_PUT, .kind = FAULT_LOST, .nth = 1, .key_part = "/export-"};
    ck_ok(backend_fault_add(w.b, &plan, &err));
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_TRANSIENT);
    ck_assert_uint_eq(world_count(&w, LAYOUT_PINS), 2);
    world_release(&w);
}
END_TEST

WORLD_MAIN(gc_repack, test_gc_repack__a_mostly_dead_pack_is_closed_moved_and_deleted,
           test_gc_repack__can_be_switched_off, test_gc_repack__more_than_half_alive_is_left_alone,
           test_gc_repack__small_pieces_do_not_look_dead,
           test_gc_repack__halves_that_overlap_are_counted_once,
           test_gc_repack__halves_that_do_not_overlap_add_up,
           test_gc_repack__many_small_packs_become_one,
           test_gc_repack__an_open_record_follows_its_chunks,
           test_gc_repack__a_damaged_chunk_stays_where_it_is_and_is_told,
           test_gc_repack__any_write_may_fail, test_gc_repack__any_answer_may_get_lost,
           test_gc_repack__any_read_may_fail,
           test_gc_repack__the_pin_stays_when_the_answer_got_lost)
