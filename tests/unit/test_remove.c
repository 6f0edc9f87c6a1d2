/* Removing, tombstones and holds. */
#include "base/util.h"
#include "store/remove.h"
#include "store/tomb.h"
#include "tests/lib/kit.h"

#include <stdio.h>
#include <string.h>

static struct cairn_error err;
static struct kit k;

static void start(bool mem)
{
    kit_start(&k, &(struct kit_options){.mem = mem, .faulty = true});
    kit_sample(&k, "one", 1);
    kit_sample(&k, "two", 2);
}

static uint64_t left_of(const char *id)
{
    char key[KEY_MAX];
    layout_record(id, key);
    return kit_objects(&k, key);
}

static void gone(bool mem)
{
    start(mem);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_ok(kit_publish(&k, CK_B, "one", NULL, NULL, &err));
    uint64_t packs = kit_objects(&k, LAYOUT_PACKS);
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_assert_uint_eq(left_of(CK_A), 0);
    ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_NOT_FOUND);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PACKS), packs);
    kit_same(&k, CK_B, "one");
    struct tomb t;
    ck_ok(tomb_get(k.s, NULL, CK_A, &t, &err));
    ck_assert_uint_eq(t.n, 1);
    tomb_release(&t);
    /* Absent is success, and leaves nothing behind. */
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_ok(cairn_delete(k.s, NULL, CK_C, &err));
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), 1);
    ck_fails(cairn_delete(k.s, NULL, "ck_x", &err), CAIRN_INVALID);
    struct cairn_op op;
    cairn_op_init(&op, 0, NULL);
    ck_fails(cairn_delete(k.s, &op, CK_B, &err), CAIRN_TIMEOUT);
    kit_same(&k, CK_B, "one");
    kit_stop(&k);
}

START_TEST(test_remove__the_record_goes_and_its_packs_stay)
{
    gone(false);
    gone(true);
}
END_TEST

START_TEST(test_remove__every_generation_and_leftover_goes)
{
    start(false);
    ck_ok(kit_publish(&k, TP_A, "one", "1", NULL, &err));
    ck_ok(kit_publish(&k, TP_A, "two", "2", NULL, &err));
    char key[KEY_MAX], gen[GEN_TEXT];
    kit_export_key(TP_A, "uncommitted", key);
    kit_put(&k, key, "x", 1);
    ck_ok(gen_of_meta("staged", 6, gen, &err));
    layout_staged(TP_A, gen, key);
    kit_put(&k, key, "x", 1);
    ck_ok(gen_of_meta("2", 1, gen, &err));
    layout_trace(TP_A, gen, key);
    kit_put(&k, key, "{}", 2);
    ck_ok(gen_of_meta("gone", 4, gen, &err));
    layout_trace(TP_A, gen, key);
    kit_put(&k, key, "{}", 2);
    ck_ok(cairn_delete(k.s, NULL, TP_A, &err));
    ck_assert_uint_eq(left_of(TP_A), 0);
    struct tomb t;
    ck_ok(tomb_get(k.s, NULL, TP_A, &t, &err));
    ck_assert_uint_eq(t.n, 4);
    tomb_release(&t);
    /* What is not ours stays where it is. */
    ck_ok(kit_publish(&k, TP_A, "one", "1", NULL, &err));
    kit_put(&k, "records/" TP_A "/notes", "x", 1);
    ck_ok(cairn_delete(k.s, NULL, TP_A, &err));
    ck_assert_uint_eq(left_of(TP_A), 1);
    ck_ok(kit_publish(&k, TP_A, "two", "2", NULL, &err));
    kit_same(&k, TP_A, "two");
    kit_stop(&k);
}
END_TEST

/* A bucket deletes by prefix; an id that begins like another one must not reach it. */
static void neighbours(bool mem)
{
    static const char *const ids[] = {"ck_00000000000000a0", "ck_00000000000000a1",
                                      "tp_00000000000000000000000000000000",
                                      "tp_00000000000000000000000000000001"};
    start(mem);
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        ck_ok(kit_publish(&k, ids[i], "one", NULL, NULL, &err));
    /* Not records of ours, but what a listing by prefix would give. */
    kit_put(&k, "records/ck_00000000000000a0-backup/meta.json", "x", 1);
    kit_put(&k, "records/ck_00000000000000a00/meta.json", "x", 1);
    ck_ok(cairn_delete(k.s, NULL, ids[0], &err));
    ck_ok(cairn_delete(k.s, NULL, ids[2], &err));
    kit_same(&k, ids[1], "one");
    kit_same(&k, ids[3], "one");
    ck_assert(kit_has(&k, "records/ck_00000000000000a0-backup/meta.json"));
    ck_assert(kit_has(&k, "records/ck_00000000000000a00/meta.json"));
    kit_stop(&k);
}

START_TEST(test_remove__neighbours_are_not_touched)
{
    neighbours(false);
    neighbours(true);
}
END_TEST

/* Fail the nth call of the backend, for every n: the record is then whole or gone for readers, and
 * a second removal ends it. */
static void interrupted(bool mem, enum fault_kind kind, int error_class)
{
    start(mem);
    bool failed = true;
    for (unsigned nth = 1; failed; nth++) {
        ck_assert_uint_lt(nth, 100);
        ck_ok(kit_publish(&k, TP_A, "one", "1", NULL, &err));
        ck_ok(kit_publish(&k, TP_A, "two", "2", NULL, &err));
        struct fault_plan p = {
            .op = FAULT_ANY, .kind = kind, .nth = nth, .error_class = error_class};
        backend_fault_clear(k.s->backend);
        ck_ok(backend_fault_add(k.s->backend, &p, &err));
        int rc = cairn_delete(k.s, NULL, TP_A, &err);
        failed = backend_fault_fired(k.s->backend) > 0;
        backend_fault_clear(k.s->backend);
        if (rc) {
            ck_assert(failed);
            ck_assert_int_eq(rc, error_class);
            ck_assert_int_eq(err.error_class, rc);
            if (kit_opens(&k, TP_A) == CAIRN_OK)
                kit_same(&k, TP_A, "two");
            else
                ck_assert_int_eq(kit_opens(&k, TP_A), CAIRN_NOT_FOUND);
        }
        if (kind != FAULT_TEAR) /* a torn tombstone is damage, until somebody writes it again */
            kit_verify(&k);
        /* Every second time somebody publishes the id instead of removing it again. */
        if (rc && nth % 2) {
            ck_ok(kit_publish(&k, TP_A, "two", "2", NULL, &err));
            kit_same(&k, TP_A, "two");
            ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), 0);
        }
        ck_ok(cairn_delete(k.s, NULL, TP_A, &err));
        ck_assert_uint_eq(left_of(TP_A), 0);
        kit_verify(&k);
    }
    kit_stop(&k);
}

START_TEST(test_remove__a_failure_anywhere_is_finished_by_the_next)
{
    for (int mem = 0; mem < 2; mem++) {
        interrupted(mem, FAULT_FAIL, CAIRN_TRANSIENT);
        interrupted(mem, FAULT_FAIL, CAIRN_PERMANENT);
        interrupted(mem, FAULT_LOST, CAIRN_TIMEOUT);
        interrupted(mem, FAULT_TEAR, CAIRN_TRANSIENT);
    }
}
END_TEST

/* ---- Tombstones ---- */

START_TEST(test_remove__a_damaged_tombstone_does_not_keep_a_record_for_ever)
{
    start(false);
    char tomb[KEY_MAX];
    layout_tomb(CK_A, tomb);
    static const char *const bad[] = {"",
                                      "garbage",
                                      "{}",
                                      "{\"gens\":1}",
                                      "{\"gens\":[1]}",
                                      "{\"gens\":[\"0123\"]}",
                                      "{\"gens\":[\"0123456789abcdeF\"]}"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
        kit_put(&k, tomb, bad[i], strlen(bad[i]));
        struct tomb t;
        ck_fails(tomb_get(k.s, NULL, CK_A, &t, &err), CAIRN_CORRUPT);
        kit_same(&k, CK_A, "one");
        ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
        ck_assert_uint_eq(left_of(CK_A), 0);
        ck_ok(tomb_get(k.s, NULL, CK_A, &t, &err));
        ck_assert_uint_eq(t.n, 1);
        tomb_release(&t);
    }
    kit_stop(&k);
}
END_TEST

START_TEST(test_remove__tombstones_round_trip)
{
    start(true);
    struct tomb t = {0}, back;
    char gen[GEN_TEXT];
    for (unsigned i = 0; i < 100; i++) {
        snprintf(gen, sizeof(gen), "%016x", i % 50);
        ck_ok(tomb_add_gen(&t, gen, &err));
    }
    ck_assert_uint_eq(t.n, 50);
    ck_ok(tomb_put(k.s, NULL, CK_A, &t, &err));
    ck_ok(tomb_get(k.s, NULL, CK_A, &back, &err));
    ck_assert_uint_eq(back.n, 50);
    for (unsigned i = 0; i < 100; i++) {
        snprintf(gen, sizeof(gen), "%016x", i);
        ck_assert_int_eq(tomb_has_gen(&back, gen), i < 50);
    }
    tomb_release(&t);
    tomb_release(&back);
    ck_fails(tomb_get(k.s, NULL, CK_B, &t, &err), CAIRN_NOT_FOUND);
    ck_assert_ptr_null(t.gens);
    kit_stop(&k);
}
END_TEST

/* A removal cut short, and then the id published anew: the old tombstone must not reach it. */
START_TEST(test_remove__a_tombstone_never_reaches_a_later_life)
{
    start(false);
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), 1);
    /* The commit succeeds, but the tombstone cannot be taken away behind it. */
    struct fault_plan p = {.op = FAULT_REMOVE, .nth = 1, .times = 100, .key_part = LAYOUT_TOMB};
    ck_ok(backend_fault_add(k.s->backend, &p, &err));
    ck_ok(kit_publish(&k, CK_A, "two", "1", NULL, &err));
    backend_fault_clear(k.s->backend);
    struct tomb t;
    ck_ok(tomb_get(k.s, NULL, CK_A, &t, &err));
    ck_assert_uint_eq(t.n, 0);
    tomb_release(&t);
    kit_same(&k, CK_A, "two");
    ck_ok(kit_publish(&k, CK_A, "two", "1", NULL, &err));
    kit_same(&k, CK_A, "two");
    kit_stop(&k);
}
END_TEST

/* The same, but the record is whole, and is published (or forked) again as it is: that is a life of
 * its own, which the sweep that finishes the removal must leave alone. */
START_TEST(test_remove__what_is_published_again_is_not_removed_any_more)
{
    start(false);
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    ck_ok(kit_fork(&k, CK_A, CK_B, "2", &err));
    for (int i = 0; i < 2; i++) {
        const char *id = i ? CK_B : CK_A;
        struct fault_plan p = {.op = FAULT_REMOVE, .nth = 1};
        ck_ok(backend_fault_add(k.s->backend, &p, &err));
        ck_fails(cairn_delete(k.s, NULL, id, &err), CAIRN_TRANSIENT);
        backend_fault_clear(k.s->backend);
        ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), 1);
        ck_ok(i ? kit_fork(&k, CK_A, CK_B, "2", &err)
                : kit_publish(&k, CK_A, "one", "1", NULL, &err));
        ck_ok(remove_finish(k.s, NULL, id, &err));
        kit_same(&k, id, "one");
        ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), 0);
    }
    kit_stop(&k);
}
END_TEST

START_TEST(test_remove__a_sweep_finishes_what_nobody_published_again)
{
    start(false);
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    struct fault_plan p = {.op = FAULT_REMOVE, .nth = 2};
    ck_ok(backend_fault_add(k.s->backend, &p, &err));
    ck_fails(cairn_delete(k.s, NULL, CK_A, &err), CAIRN_TRANSIENT);
    ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_NOT_FOUND);
    ck_assert_uint_eq(left_of(CK_A), 1);
    ck_ok(remove_finish(k.s, NULL, CK_A, &err));
    ck_assert_uint_eq(left_of(CK_A), 0);
    ck_ok(remove_finish(k.s, NULL, CK_B, &err));
    kit_stop(&k);
}
END_TEST

/* ---- Holds ---- */

static void holds(bool mem)
{
    start(mem);
    ck_fails(cairn_hold(k.s, NULL, CK_A, &err), CAIRN_NOT_FOUND);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_HOLDS), 0);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_ok(cairn_hold(k.s, NULL, CK_A, &err));
    ck_ok(cairn_hold(k.s, NULL, CK_A, &err));
    ck_fails(cairn_delete(k.s, NULL, CK_A, &err), CAIRN_BUSY);
    ck_assert_ptr_nonnull(strstr(err.message, "held"));
    kit_same(&k, CK_A, "one");
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), 0);
    /* Whether it is held cannot be found out: it stays. */
    ck_ok(cairn_release(k.s, NULL, CK_A, &err));
    struct fault_plan p = {.op = FAULT_STAT, .nth = 1, .key_part = LAYOUT_HOLDS};
    ck_ok(backend_fault_add(k.s->backend, &p, &err));
    ck_fails(cairn_delete(k.s, NULL, CK_A, &err), CAIRN_TRANSIENT);
    backend_fault_clear(k.s->backend);
    kit_same(&k, CK_A, "one");
    ck_ok(cairn_release(k.s, NULL, CK_A, &err));
    ck_ok(cairn_release(k.s, NULL, CK_B, &err));
    ck_fails(cairn_hold(k.s, NULL, "x", &err), CAIRN_INVALID);
    ck_fails(cairn_release(k.s, NULL, "x", &err), CAIRN_INVALID);
    struct cairn_op op;
    cairn_op_init(&op, 0, NULL);
    ck_fails(cairn_hold(k.s, &op, CK_A, &err), CAIRN_TIMEOUT);
    ck_fails(cairn_release(k.s, &op, CK_A, &err), CAIRN_TIMEOUT);
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    kit_stop(&k);
}

START_TEST(test_remove__a_held_record_stays)
{
    holds(false);
    holds(true);
}
END_TEST

/* The tombstone finds room where the manifests were; else a record could not be removed just when
 * that is needed. */
START_TEST(test_remove__a_full_disk_does_not_keep_records)
{
    char key[KEY_MAX];
    layout_tomb(CK_A, key);
    for (unsigned times = 1; times <= 2; times++) {
        start(false);
        ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
        struct fault_plan plan = {.op = FAULT_PUT,
                                  .key_part = LAYOUT_TOMB,
                                  .nth = 1,
                                  .times = times,
                                  .error_class = CAIRN_NO_SPACE};
        backend_fault_clear(k.s->backend);
        ck_ok(backend_fault_add(k.s->backend, &plan, &err));
        if (times == 2) {
            ck_fails(cairn_delete(k.s, NULL, CK_A, &err), CAIRN_NO_SPACE);
            ck_assert_uint_eq(left_of(CK_A), 1);
            ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_NOT_FOUND);
        }
        ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
        ck_assert_uint_eq(left_of(CK_A), 0);
        ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), 1);
        kit_stop(&k);
    }
}
END_TEST

/* Who removes what is committed, and waits for a publish, does not remove what that has committed.
 */
static void only_what_is_committed_still(bool mem)
{
    char one[GEN_TEXT], two[GEN_TEXT];
    bool other = false;
    start(mem);
    ck_ok(gen_of_meta("1", 1, one, &err));
    ck_ok(gen_of_meta("2", 1, two, &err));
    ck_ok(kit_publish(&k, TP_A, "one", "1", NULL, &err));
    ck_ok(kit_publish(&k, TP_A, "one", "2", NULL, &err));
    ck_ok(remove_if_committed(k.s, NULL, TP_A, one, &other, &err));
    ck_assert(other);
    ck_ok(remove_if_committed(k.s, NULL, TP_A, "", &other, &err));
    ck_assert(other);
    kit_same(&k, TP_A, "one");
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), 0);
    ck_ok(cairn_hold(k.s, NULL, TP_A, &err));
    ck_fails(remove_if_committed(k.s, NULL, TP_A, two, &other, &err), CAIRN_BUSY);
    ck_ok(cairn_release(k.s, NULL, TP_A, &err));
    ck_ok(remove_if_committed(k.s, NULL, TP_A, two, &other, &err));
    ck_assert(!other);
    ck_assert_uint_eq(left_of(TP_A), 0);
    ck_ok(remove_if_committed(k.s, NULL, TP_A, two, &other, &err));
    ck_assert(other);
    ck_ok(remove_if_committed(k.s, NULL, TP_A, "", &other, &err));
    ck_assert(!other);
    kit_stop(&k);
}

START_TEST(test_remove__only_what_is_committed_still)
{
    only_what_is_committed_still(false);
    only_what_is_committed_still(true);
}
END_TEST

TESTING_MAIN(
    remove, test_remove__only_what_is_committed_still,
    test_remove__a_full_disk_does_not_keep_records, test_remove__the_record_goes_and_its_packs_stay,
    test_remove__every_generation_and_leftover_goes, test_remove__neighbours_are_not_touched,
    test_remove__a_failure_anywhere_is_finished_by_the_next,
    test_remove__a_damaged_tombstone_does_not_keep_a_record_for_ever,
    test_remove__tombstones_round_trip, test_remove__a_tombstone_never_reaches_a_later_life,
    test_remove__what_is_published_again_is_not_removed_any_more,
    test_remove__a_sweep_finishes_what_nobody_published_again, test_remove__a_held_record_stays)
