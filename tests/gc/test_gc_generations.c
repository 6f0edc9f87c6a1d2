/* Generations, removals, retention and leftovers. */
#include "base/util.h"
#include "store/pin.h"
#include "store/tomb.h"
#include "tests/gc/world.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void export_key(const char *id, const char *meta, char key[KEY_MAX])
{
    char gen[GEN_TEXT];
    world_gen(meta, gen);
    layout_export(id, gen, key);
}

/* Copy the manifest at one key, renamed, to another generation's: a publish that got no further. */
static void uncommitted(struct world *w, const char *id, const char *meta)
{
    struct cairn_error err;
    char key[KEY_MAX], gen[GEN_TEXT];
    struct manifest *m = NULL;
    struct manifest_info info = {0};
    uint8_t *data;
    size_t len;
    world_gen("meta", gen);
    ck_ok(store_load_manifest(w->s, NULL, CK_B, gen, &m, &err));
    world_gen(meta, info.gen);
    memcpy(info.id, id, strlen(id) + 1);
    ck_ok(manifest_rename(m, &info, &data, &len, &err));
    export_key(id, meta, key);
    world_put(w, key, data, len);
    free(data);
    manifest_free(m);
}

/* ---- Where nothing can lock ---- */

START_TEST(test_gc_generations__superseded_ones_go_after_the_grace)
{
    struct world w;
    char one[KEY_MAX], two[KEY_MAX];
    world_init_mem(&w);
    export_key(TP_A, "one", one);
    export_key(TP_A, "two", two);
    world_publish(&w, TP_A, "one", 1, 50000);
    world_advance(&w, 10 * DAY);
    world_publish(&w, TP_A, "two", 2, 50000);
    world_advance(&w, HOUR - 1);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_INTENT), 0);
    world_advance(&w, 1);
    world_sweep(&w); /* says so first */
    ck_assert_uint_eq(world_count(&w, LAYOUT_INTENT), 1);
    ck_assert(world_has(&w, one));
    world_advance(&w, SIGMA + 600 * SECOND - 1);
    world_sweep(&w);
    ck_assert(world_has(&w, one));
    world_advance(&w, 1);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.generations_deleted, 1);
    ck_assert(!world_has(&w, one) && world_has(&w, two));
    ck_assert_uint_eq(world_count(&w, LAYOUT_INTENT), 0);
    world_is(&w, TP_A, 2, 50000);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__a_writer_of_an_announced_generation_is_told_busy)
{
    struct world w;
    char one[KEY_MAX];
    struct cairn_error err;
    world_init_mem(&w);
    export_key(TP_A, "one", one);
    world_publish(&w, TP_A, "one", 1, 50000);
    world_advance(&w, SECOND);
    world_publish(&w, TP_A, "two", 2, 50000);
    world_advance(&w, HOUR);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_INTENT), 1);
    ck_fails(world_try_publish(&w, TP_A, "one", 1, 50000, &err), CAIRN_BUSY);
    /* Another generation is nobody's business. */
    world_publish(&w, TP_A, "three", 3, 50000);
    /* The manifest that the writer has put is a new one: it is not what was announced. */
    world_advance(&w, SIGMA + 600 * SECOND);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.generations_deleted, 0);
    ck_assert(world_has(&w, one));
    world_is(&w, TP_A, 3, 50000);
    world_release(&w);
}
END_TEST

/* The writer's manifest is young, so nothing is to be deleted, and nothing to be announced. */
START_TEST(test_gc_generations__a_writer_that_was_told_busy_gets_on_after_the_next_sweep)
{
    struct world w;
    char one[KEY_MAX];
    struct cairn_error err;
    world_init_mem(&w);
    export_key(CK_A, "one", one);
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_publish(&w, CK_A, "one", 1, 50000);
    char meta[KEY_MAX];
    layout_meta(CK_A, meta);
    ck_ok(backend_remove_one(w.inner, NULL, meta, &err));
    world_advance(&w, DAY);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_INTENT), 1);
    ck_fails(world_try_publish(&w, CK_A, "one", 1, 50000, &err), CAIRN_BUSY);
    world_advance(&w, SECOND);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.generations_deleted, 0);
    world_publish(&w, CK_A, "one", 1, 50000);
    world_is(&w, CK_A, 1, 50000);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__published_again_before_the_announcement_stays)
{
    struct world w;
    world_init_mem(&w);
    world_publish(&w, TP_A, "one", 1, 50000);
    world_advance(&w, SECOND);
    world_publish(&w, TP_A, "two", 2, 50000);
    world_advance(&w, 2 * HOUR);
    world_publish(&w, TP_A, "one", 1, 50000);
    world_advance(&w, SECOND);
    world_sweep(&w);
    world_advance(&w, HOUR);
    world_sweep(&w);
    world_advance(&w, HOUR);
    world_sweep(&w);
    world_is(&w, TP_A, 1, 50000);
    char two[KEY_MAX];
    export_key(TP_A, "two", two);
    ck_assert(!world_has(&w, two));
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__the_grace_counts_from_when_it_was_first_seen_superseded)
{
    struct world w;
    char one[KEY_MAX], meta[32];
    world_init_mem(&w);
    export_key(TP_A, "one", one);
    world_publish(&w, TP_A, "one", 1, 20000);
    /* A template that is published every half hour does not keep all its past. */
    for (int i = 0; i < 5; i++) {
        world_advance(&w, HOUR / 2);
        snprintf(meta, sizeof(meta), "later %d", i);
        world_publish(&w, TP_A, meta, 10 + (uint64_t)i, 20000);
        world_sweep(&w);
    }
    ck_assert(!world_has(&w, one));
    world_is(&w, TP_A, 14, 20000);
    world_release(&w);
}
END_TEST

/* A clock that went back for a while must not make it look superseded since then. */
START_TEST(test_gc_generations__a_clock_that_was_wrong_for_a_while_does_not_shorten_the_grace)
{
    struct world w;
    world_init_mem(&w);
    world_publish(&w, TP_A, "one", 1, 20000);
    world_advance(&w, 2 * HOUR);
    world_publish(&w, TP_A, "two", 2, 20000);
    world_advance(&w, -DAY);
    world_sweep(&w);
    world_advance(&w, DAY + 10 * SECOND);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_INTENT), 0);
    world_advance(&w, HOUR);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_INTENT), 1);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__a_pin_keeps_a_superseded_one)
{
    struct world w;
    char one[KEY_MAX], node[LAYOUT_NODE_TEXT], gen[GEN_TEXT];
    struct cairn_error err;
    world_init_mem(&w);
    export_key(TP_A, "one", one);
    world_publish(&w, TP_A, "one", 1, 50000);
    world_advance(&w, SECOND);
    world_publish(&w, TP_A, "two", 2, 50000);
    CLEANUP_PIN struct pin p;
    world_gen("one", gen);
    ck_ok(pin_node(w.s, node, &err));
    ck_ok(pin_init(&p, node, TP_A, gen, &err));
    for (int i = 0; i < 6; i++) {
        ck_ok(pin_put(w.s, NULL, &p, &err));
        world_advance(&w, HOUR);
        world_sweep(&w);
    }
    ck_assert(world_has(&w, one));
    ck_ok(pin_remove(w.s, NULL, &p, &err));
    world_sweep(&w);
    world_advance(&w, HOUR);
    world_sweep(&w);
    ck_assert(!world_has(&w, one));
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__uncommitted_ones_go_when_they_are_old)
{
    struct world w;
    char alone[KEY_MAX], beside[KEY_MAX];
    world_init_mem(&w);
    world_publish(&w, CK_B, NULL, 1, 50000);
    world_publish(&w, TP_A, "one", 1, 50000);
    export_key(CK_C, "lost", alone);
    export_key(TP_A, "next", beside);
    uncommitted(&w, CK_C, "lost");
    uncommitted(&w, TP_A, "next");
    world_advance(&w, DAY - 1);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_INTENT), 0);
    world_advance(&w, 1);
    world_sweep(&w);
    world_advance(&w, HOUR);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.generations_deleted, 2);
    ck_assert(!world_has(&w, alone) && !world_has(&w, beside));
    world_is(&w, TP_A, 1, 50000);
    world_release(&w);
}
END_TEST

/* ---- With locks ---- */

START_TEST(test_gc_generations__a_directory_needs_no_announcement)
{
    struct world w;
    char one[KEY_MAX];
    world_init_dir(&w);
    export_key(TP_A, "one", one);
    world_publish(&w, TP_A, "one", 1, 50000);
    world_publish(&w, TP_A, "two", 2, 50000);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.generations_deleted, 1);
    ck_assert(!world_has(&w, one));
    ck_assert_uint_eq(world_count(&w, LAYOUT_INTENT), 0);
    ck_assert_uint_eq(world_count(&w, LAYOUT_PACKS), 1);
    world_is(&w, TP_A, 2, 50000);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__a_locked_record_is_left_to_the_next_sweep)
{
    struct world w;
    struct cairn_error err;
    char one[KEY_MAX];
    int lock = -1;
    world_init_dir(&w);
    export_key(TP_A, "one", one);
    world_publish(&w, TP_A, "one", 1, 50000);
    world_publish(&w, TP_A, "two", 2, 50000);
    ck_ok(w.inner->ops->lock(w.inner, NULL, TP_A, &lock, &err));
    world_sweep(&w);
    ck_assert_uint_eq(w.result.generations_deleted, 0);
    ck_assert(world_has(&w, one));
    w.inner->ops->unlock(w.inner, TP_A, lock);
    world_sweep(&w);
    ck_assert(!world_has(&w, one));
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__an_old_writer_is_fenced_before_its_manifest_goes)
{
    struct world w;
    struct cairn_error err;
    char key[KEY_MAX], staged[KEY_MAX], gen[GEN_TEXT];
    world_init_dir(&w);
    world_publish(&w, CK_B, NULL, 1, 50000);
    world_gen("lost", gen);
    ck_ok(w.inner->ops->stage(w.inner, NULL, CK_C, gen, "lost", 4, &err));
    uncommitted(&w, CK_C, "lost");
    layout_export(CK_C, gen, key);
    layout_staged(CK_C, gen, staged);
    /* If the manifest cannot be deleted, the fence stands. */
    struct fault_plan plan = {.op = FAULT_REMOVE, .nth = 1, .key_part = "export-"};
    ck_ok(backend_fault_add(w.b, &plan, &err));
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_TRANSIENT);
    ck_assert(!w.result.aborted);
    ck_assert_uint_eq(w.result.failed, 1);
    ck_assert(world_has(&w, key) && !world_has(&w, staged));
    ck_fails(w.inner->ops->commit(w.inner, NULL, CK_C, gen, "lost", 4, true, &err), CAIRN_BUSY);
    ck_assert_int_eq(err.sys_errno, ENOENT);
    backend_fault_clear(w.b);
    world_sweep(&w);
    ck_assert(!world_has(&w, key));
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__staged_metas_and_temporary_files_of_the_dead_go)
{
    struct world w;
    struct cairn_error err;
    char staged[KEY_MAX], gen[GEN_TEXT];
    world_init_dir(&w);
    world_publish(&w, CK_B, NULL, 1, 50000);
    world_gen("lost", gen);
    ck_ok(w.inner->ops->stage(w.inner, NULL, CK_C, gen, "lost", 4, &err));
    layout_staged(CK_C, gen, staged);
    world_put(&w, "tmp/left-behind", "x", 1);
    struct backend_upload *up;
    ck_ok(w.inner->ops->upload_new(w.inner, NULL, &up, &err));
    world_sweep(&w);
    ck_assert(!world_has(&w, staged));
    ck_assert(!world_has(&w, "tmp/left-behind"));
    ck_assert_msg(world_has(&w, up->tmp_name), "a pack that is being written was deleted");
    w.inner->ops->upload_abort(up);
    world_release(&w);
}
END_TEST

/* ---- Removals ---- */

static void trace_key(const char *id, const char *meta, char key[KEY_MAX])
{
    char gen[GEN_TEXT];
    world_gen(meta, gen);
    layout_trace(id, gen, key);
}

#define TOMB_C "{\"id\":\"" CK_C "\",\"gens\":[]}"
#define TRACE  "{\"files\":[],\"touched\":[]}"

START_TEST(test_gc_generations__a_trace_goes_with_its_generation)
{
    struct world w;
    char one[KEY_MAX], two[KEY_MAX];
    world_init_mem(&w);
    trace_key(TP_A, "one", one);
    trace_key(TP_A, "two", two);
    world_publish(&w, TP_A, "one", 1, 50000);
    world_put(&w, one, TRACE, strlen(TRACE));
    world_advance(&w, 10 * DAY);
    world_publish(&w, TP_A, "two", 2, 50000);
    world_put(&w, two, "no trace at all", 15); /* is nobody's doubt */
    world_advance(&w, HOUR);
    world_sweep(&w);
    ck_assert(world_has(&w, one));
    world_advance(&w, SIGMA + 600 * SECOND);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.generations_deleted, 1);
    ck_assert(!world_has(&w, one) && world_has(&w, two));
    world_advance(&w, 100 * DAY);
    world_sweep(&w);
    ck_assert(world_has(&w, two));
    world_is(&w, TP_A, 2, 50000);
    world_release(&w);
}
END_TEST

/* Beside a record that is there, or all that is left of one. */
static void a_stray_trace(const char *id)
{
    struct world w;
    char key[KEY_MAX], other[KEY_MAX];
    world_init_mem(&w);
    trace_key(id, "gone", key);
    layout_tomb(CK_C, other);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_put(&w, other, TOMB_C, strlen(TOMB_C));
    world_put(&w, key, TRACE, strlen(TRACE));
    world_advance(&w, DAY - 1);
    world_sweep(&w);
    ck_assert(world_has(&w, key));
    world_advance(&w, 1);
    w.options.dry_run = true;
    world_sweep(&w);
    ck_assert(world_has(&w, key));
    w.options.dry_run = false;
    world_sweep(&w);
    ck_assert(!world_has(&w, key));
    /* It is not a record that a sweep would miss, nor one that a tombstone could be kept for. */
    world_put(&w, key, TRACE, strlen(TRACE));
    world_advance(&w, 8 * DAY);
    world_sweep(&w);
    ck_assert(!world_has(&w, key) && !world_has(&w, other));
    world_is(&w, CK_A, 1, 50000);
    world_release(&w);
}

START_TEST(test_gc_generations__a_stray_trace_goes_when_it_is_old)
{
    a_stray_trace(CK_A);
    a_stray_trace(CK_C);
    a_stray_trace(TP_A);
}
END_TEST

START_TEST(test_gc_generations__in_a_directory_a_stray_trace_takes_its_folder_along)
{
    struct world w;
    char key[KEY_MAX], path[512];
    world_init_dir(&w);
    trace_key(CK_B, "gone", key);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_put(&w, key, TRACE, strlen(TRACE));
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, "records/" CK_B "/"), 0);
    snprintf(path, sizeof(path), "%s/store/records/" CK_B, w.root);
    ck_assert_int_eq(access(path, F_OK), -1);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__a_removal_cut_short_is_finished)
{
    static const unsigned cuts[] = {1, 2};
    for (size_t i = 0; i < ARRAY_SIZE(cuts); i++) {
        struct world w;
        struct cairn_error err;
        world_init_now(&w);
        world_publish(&w, CK_A, NULL, 1, 50000);
        world_publish(&w, CK_B, NULL, 2, 50000);
        struct fault_plan plan = {.op = FAULT_REMOVE, .nth = cuts[i]};
        ck_ok(backend_fault_add(w.b, &plan, &err));
        ck_fails(cairn_delete(w.s, NULL, CK_A, &err), CAIRN_TRANSIENT);
        backend_fault_clear(w.b);
        world_sweep(&w);
        ck_assert_uint_eq(world_count(&w, "records/" CK_A "/"), 0);
        ck_assert_uint_eq(world_count(&w, LAYOUT_PACKS), 1);
        ck_assert_uint_eq(world_count(&w, LAYOUT_TOMB), 1);
        world_is(&w, CK_B, 2, 50000);
        world_release(&w);
    }
}
END_TEST

START_TEST(test_gc_generations__an_old_tombstone_does_not_reach_a_later_record)
{
    struct world w;
    struct cairn_error err;
    world_init_mem(&w);
    world_publish(&w, CK_A, "old", 1, 50000);
    world_delete(&w, CK_A);
    world_publish(&w, CK_A, "new", 2, 50000);
    CLEANUP_TOMB struct tomb t = {0};
    char gen[GEN_TEXT];
    world_gen("old", gen);
    ck_ok(tomb_add_gen(&t, gen, &err));
    ck_ok(tomb_put(w.s, NULL, CK_A, &t, &err));
    world_sweep(&w);
    world_is(&w, CK_A, 2, 50000);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__tombstones_are_kept_for_a_week)
{
    struct world w;
    world_init_mem(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_publish(&w, CK_B, NULL, 1, 50000);
    world_delete(&w, CK_A);
    world_advance(&w, 7 * DAY - 1);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_TOMB), 1);
    world_advance(&w, 1);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_TOMB), 0);
    world_release(&w);
}
END_TEST

/* The record was published and removed again while the sweep went by. */
static void put_again(void *ctx, const char *verb, const char *object, const char *reason)
{
    (void)verb;
    (void)reason;
    world_put(ctx, object, "{\"gens\":[]}", 11);
}

START_TEST(test_gc_generations__a_tombstone_that_was_put_again_stays)
{
    struct world w;
    world_init_mem(&w);
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_publish(&w, CK_A, NULL, 2, 50000);
    world_delete(&w, CK_A);
    world_advance(&w, 8 * DAY);
    w.options.action = put_again;
    w.options.ctx = &w;
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_TOMB), 1);
    w.options.action = NULL;
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_TOMB), 1);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__mapped_files_of_a_fetched_record_survive_its_end)
{
    struct world w;
    struct cairn_error err;
    struct cairn_record *r;
    struct cairn_fetch_result result;
    world_init_now(&w);
    world_publish(&w, CK_A, NULL, 1, 300000);
    world_publish(&w, CK_B, NULL, 2, 50000);
    char target[300], file[320];
    snprintf(target, sizeof(target), "%s/out", w.root);
    snprintf(file, sizeof(file), "%s/f", target);
    ck_ok(cairn_record_open(w.s, NULL, CK_A, &r, &err));
    ck_ok(cairn_record_fetch(r, NULL, target, NULL, &result, &err));
    CLEANUP_FD int fd = open(file, O_RDONLY | O_CLOEXEC);
    uint8_t *map = mmap(NULL, 300000, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    cairn_record_close(r);
    world_delete(&w, CK_A);
    world_sweep(&w);
    ck_assert_uint_eq(world_count(&w, LAYOUT_PACKS), 1);
    CLEANUP_FREE uint8_t *want = malloc(300000);
    testing_fill(want, 300000, 1);
    ck_assert_mem_eq(map, want, 300000);
    munmap(map, 300000);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__only_the_named_record_is_deleted)
{
    struct world w;
    world_init_now(&w);
    world_publish(&w, "ck_0000000000000000", NULL, 1, 20000);
    world_publish(&w, "ck_0000000000000001", NULL, 1, 20000);
    world_publish(&w, "tp_00000000000000000000000000000000", NULL, 1, 20000);
    world_delete(&w, "ck_0000000000000000");
    world_sweep(&w);
    world_is(&w, "ck_0000000000000001", 1, 20000);
    world_is(&w, "tp_00000000000000000000000000000000", 1, 20000);
    world_verify(&w);
    world_release(&w);
}
END_TEST

/* ---- Retention ---- */

START_TEST(test_gc_generations__records_expire_but_for_held_and_pinned_ones)
{
    struct world w;
    struct cairn_error err;
    char node[LAYOUT_NODE_TEXT], gen[GEN_TEXT];
    world_init_mem(&w);
    w.config.ttl_ns = 2 * DAY;
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_publish(&w, CK_B, NULL, 2, 50000);
    world_publish(&w, CK_C, NULL, 3, 50000);
    ck_ok(cairn_hold(w.s, NULL, CK_B, &err));
    world_advance(&w, 2 * DAY - 1);
    CLEANUP_PIN struct pin p;
    world_gen("meta", gen);
    ck_ok(pin_node(w.s, node, &err));
    ck_ok(pin_init(&p, node, CK_C, gen, &err));
    ck_ok(pin_put(w.s, NULL, &p, &err));
    world_sweep(&w);
    ck_assert_uint_eq(w.result.records_expired, 0);
    world_advance(&w, 1);
    world_sweep(&w);
    ck_assert_uint_eq(w.result.records_expired, 1);
    ck_assert_uint_eq(world_count(&w, "records/" CK_A "/"), 0);
    world_is(&w, CK_B, 2, 50000);
    world_is(&w, CK_C, 3, 50000);
    ck_ok(pin_remove(w.s, NULL, &p, &err));
    ck_ok(cairn_release(w.s, NULL, CK_B, &err));
    world_sweep(&w);
    ck_assert_uint_eq(w.result.records_expired, 2);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_generations__without_a_ttl_nothing_expires)
{
    struct world w;
    world_init_mem(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_advance(&w, 10000 * DAY);
    world_sweep(&w);
    world_is(&w, CK_A, 1, 50000);
    world_release(&w);
}
END_TEST

WORLD_MAIN(gc_generations, test_gc_generations__superseded_ones_go_after_the_grace,
           test_gc_generations__a_writer_of_an_announced_generation_is_told_busy,
           test_gc_generations__a_writer_that_was_told_busy_gets_on_after_the_next_sweep,
           test_gc_generations__published_again_before_the_announcement_stays,
           test_gc_generations__the_grace_counts_from_when_it_was_first_seen_superseded,
           test_gc_generations__a_clock_that_was_wrong_for_a_while_does_not_shorten_the_grace,
           test_gc_generations__a_pin_keeps_a_superseded_one,
           test_gc_generations__uncommitted_ones_go_when_they_are_old,
           test_gc_generations__a_directory_needs_no_announcement,
           test_gc_generations__a_locked_record_is_left_to_the_next_sweep,
           test_gc_generations__an_old_writer_is_fenced_before_its_manifest_goes,
           test_gc_generations__staged_metas_and_temporary_files_of_the_dead_go,
           test_gc_generations__a_trace_goes_with_its_generation,
           test_gc_generations__a_stray_trace_goes_when_it_is_old,
           test_gc_generations__in_a_directory_a_stray_trace_takes_its_folder_along,
           test_gc_generations__a_removal_cut_short_is_finished,
           test_gc_generations__an_old_tombstone_does_not_reach_a_later_record,
           test_gc_generations__tombstones_are_kept_for_a_week,
           test_gc_generations__a_tombstone_that_was_put_again_stays,
           test_gc_generations__mapped_files_of_a_fetched_record_survive_its_end,
           test_gc_generations__only_the_named_record_is_deleted,
           test_gc_generations__records_expire_but_for_held_and_pinned_ones,
           test_gc_generations__without_a_ttl_nothing_expires)
