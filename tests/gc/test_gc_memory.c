/* What sweeps remember (store/sweep_db.h), and pins (store/pin.h). */
#include "base/util.h"
#include "store/pin.h"
#include "store/sweep_db.h"
#include "tests/gc/world.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static void db_path(const struct world *w, char path[400])
{
    snprintf(path, 400, "%s/sweep.db", w->s->state);
}

static void three_records(struct world *w)
{
    world_init_mem(w);
    world_publish(w, CK_A, NULL, 1, 50000);
    world_publish(w, CK_B, NULL, 2, 50000);
    world_publish(w, TP_A, "one", 3, 50000);
    world_advance(w, HOUR);
    backend_fault_clear(w->b);
}

/* Of a sweep, beside format.json. */
static unsigned reads(struct world *w)
{
    backend_fault_clear(w->b);
    world_sweep(w);
    return backend_fault_calls(w->b, FAULT_GET) - 1;
}

START_TEST(test_gc_memory__a_known_object_is_not_read_again)
{
    struct world w;
    three_records(&w);
    ck_assert_uint_eq(reads(&w), 6);
    ck_assert_uint_eq(reads(&w), 0);
    /* One that changed is. */
    world_advance(&w, HOUR);
    world_publish(&w, TP_A, "two", 4, 50000);
    world_advance(&w, HOUR / 2);
    ck_assert_uint_eq(reads(&w), 2);
    ck_assert_uint_eq(reads(&w), 0);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_memory__each_prefix_is_listed_once)
{
    struct world w;
    three_records(&w);
    backend_fault_clear(w.b);
    w.options.dry_run = true;
    world_sweep(&w);
    ck_assert_uint_eq(backend_fault_calls(w.b, FAULT_LIST), 9);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_memory__what_was_written_just_now_is_not_remembered)
{
    struct world w;
    three_records(&w);
    world_sweep(&w);
    world_publish(&w, CK_C, NULL, 4, 50000);
    ck_assert_uint_eq(reads(&w), 2);
    ck_assert_uint_eq(reads(&w), 2);
    world_advance(&w, 2 * SECOND);
    ck_assert_uint_eq(reads(&w), 2);
    ck_assert_uint_eq(reads(&w), 0);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_memory__on_a_directory_the_trailer_is_compared)
{
    struct world w;
    struct cairn_error err;
    char key[KEY_MAX], gen[GEN_TEXT], path[600];
    world_init_dir(&w);
    world_publish(&w, CK_A, NULL, 1, 50000);
    world_gen("meta", gen);
    layout_export(CK_A, gen, key);
    snprintf(path, sizeof(path), "%s/store/%s", w.root, key);
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    world_sweep(&w);
    /* The same size and time, and other bytes: they are read, and found to be no manifest. */
    struct buf data = BUF_INIT(1 << 20);
    ck_ok(w.inner->ops->get(w.inner, NULL, key, 1 << 20, &data, NULL, &err));
    data.data[data.len - 1] ^= 1;
    world_put(&w, key, data.data, data.len);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    ck_assert_int_eq(world_try_sweep(&w), CAIRN_CORRUPT);
    ck_assert(w.result.aborted);
    buf_release(&data);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_memory__a_damaged_file_is_replaced_and_deletes_nothing)
{
    struct world w;
    char path[400];
    three_records(&w);
    world_sweep(&w);
    db_path(&w, path);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    for (int how = 0; how < 3; how++) {
        CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        if (how < 2)
            ck_assert_int_eq(ftruncate(fd, how ? st.st_size / 2 : 0), 0);
        uint8_t junk[4096];
        testing_fill(junk, sizeof(junk), 7);
        if (how == 2)
            ck_assert_int_eq(util_pwrite_full(fd, junk, sizeof(junk), 0), sizeof(junk));
        world_advance(&w, DAY);
        CLEANUP_FREE char *before = world_picture(&w);
        world_sweep(&w);
        CLEANUP_FREE char *after = world_picture(&w);
        ck_assert_str_eq(before, after);
        ck_assert_uint_eq(w.result.records, 3);
        ck_assert_uint_eq(reads(&w), 0);
    }
    world_verify(&w);
    world_release(&w);
}
END_TEST

/* Every byte of the file in turn: rows are bound to their objects by a checksum. */
START_TEST(test_gc_memory__a_flipped_bit_never_makes_garbage_of_what_is_needed)
{
    struct world w;
    char path[400];
    three_records(&w);
    world_sweep(&w);
    db_path(&w, path);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    world_advance(&w, DAY);
    for (off_t at = 0; at < st.st_size; at += 509 * world_stride(5)) {
        CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
        uint8_t b;
        if (fd >= 0 && util_pread_full(fd, &b, 1, (uint64_t)at) == 1) {
            b ^= 0x04;
            ck_assert_int_eq(util_pwrite_full(fd, &b, 1, (uint64_t)at), 1);
        }
        (void)world_try_sweep(&w);
        ck_assert_uint_eq(w.result.packs_closed, 0);
        ck_assert_uint_eq(w.result.generations_deleted, 0);
    }
    ck_assert_uint_eq(world_count(&w, LAYOUT_CLOSED), 0);
    world_verify(&w);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_memory__the_db_by_itself)
{
    struct world w;
    struct cairn_error err;
    struct sweep_db *db;
    world_init_mem(&w);
    ck_ok(sweep_db_open(w.s, &db, &err));
    struct backend_stat st = {.size = 7, .mtime_ns = 99, .etag = "\"1\""}, other = st;
    struct sweep_use uses[2] = {{.pack = {1}, .live = 5, .windows = {[7] = 3}},
                                {.pack = {2}, .live = 1}};
    struct sweep_manifest m = {.trailer = {9}, .uses = uses, .n_uses = 2}, got;
    int64_t when;
    ck_assert(!sweep_db_last(db, &when));
    sweep_db_begin(db);
    sweep_db_put_manifest(db, "a", &st, &m);
    ck_assert(sweep_db_find_manifest(db, "a", &st, &got));
    ck_assert_uint_eq(got.n_uses, 2);
    ck_assert_uint_eq(got.uses[0].live, 5);
    ck_assert_mem_eq(got.uses[0].windows, uses[0].windows, sizeof(uses[0].windows));
    ck_assert_mem_eq(got.trailer, m.trailer, SHA256_LEN);
    sweep_manifest_release(&got);
    other.size++;
    ck_assert(!sweep_db_find_manifest(db, "a", &other, &got));
    other = st;
    other.mtime_ns++;
    ck_assert(!sweep_db_find_manifest(db, "a", &other, &got));
    other = st;
    other.etag[1] = '2';
    ck_assert(!sweep_db_find_manifest(db, "a", &other, &got));
    ck_assert_int_eq(sweep_db_superseded(db, CK_A, "0011223344556677", 5, 100), 100);
    ck_assert_int_eq(sweep_db_superseded(db, CK_A, "0011223344556677", 5, 200), 100);
    ck_assert_int_eq(sweep_db_superseded(db, CK_A, "0011223344556677", 6, 300), 300);
    sweep_db_complete(db, 1234);
    sweep_db_close(db);
    /* Kept over a close; what a complete sweep does not meet is forgotten. */
    ck_ok(sweep_db_open(w.s, &db, &err));
    ck_assert(sweep_db_last(db, &when));
    ck_assert_int_eq(when, 1234);
    sweep_db_begin(db);
    sweep_db_abandon(db);
    ck_assert(sweep_db_find_manifest(db, "a", &st, &got));
    sweep_manifest_release(&got);
    sweep_db_begin(db);
    sweep_db_complete(db, 1235);
    sweep_db_begin(db);
    sweep_db_complete(db, 1236);
    ck_assert(!sweep_db_find_manifest(db, "a", &st, &got));
    sweep_db_close(db);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_memory__pins_are_read_back_as_they_were_put)
{
    struct world w;
    struct cairn_error err;
    char node[LAYOUT_NODE_TEXT], again[LAYOUT_NODE_TEXT];
    world_init_mem(&w);
    ck_ok(pin_node(w.s, node, &err));
    ck_ok(pin_node(w.s, again, &err));
    ck_assert_str_eq(node, again);
    CLEANUP_PIN struct pin p, q;
    ck_ok(pin_init(&p, node, TP_A, "0011223344556677", &err));
    uint8_t pack[PACK_ID_LEN] = {1, 2, 3};
    ck_ok(pack_set_add(&p.packs, pack, &err));
    pack[0] = 9;
    ck_ok(pack_set_add(&p.packs, pack, &err));
    ck_ok(pin_put(w.s, NULL, &p, &err));
    struct layout_key k;
    layout_parse(p.key, &k);
    ck_assert_int_eq(k.kind, LAYOUT_KIND_PIN);
    ck_ok(pin_get(w.s, NULL, p.key, &q, &err));
    ck_assert_str_eq(q.id, TP_A);
    ck_assert_str_eq(q.gen, "0011223344556677");
    ck_assert_uint_eq(q.packs.n, 2);
    ck_assert(pack_set_has(&q.packs, pack));
    ck_ok(pin_remove(w.s, NULL, &p, &err));
    ck_ok(pin_remove(w.s, NULL, &p, &err));
    CLEANUP_PIN struct pin none = {0};
    ck_fails(pin_get(w.s, NULL, p.key, &none, &err), CAIRN_NOT_FOUND);
    world_release(&w);
}
END_TEST

START_TEST(test_gc_memory__a_damaged_name_of_the_node_is_replaced)
{
    struct world w;
    struct cairn_error err;
    char node[LAYOUT_NODE_TEXT], again[LAYOUT_NODE_TEXT], path[400];
    world_init_mem(&w);
    ck_ok(pin_node(w.s, node, &err));
    snprintf(path, sizeof(path), "%s/node", w.s->state);
    ck_assert_int_eq(truncate(path, 5), 0);
    ck_ok(pin_node(w.s, again, &err));
    ck_assert_str_ne(node, again);
    ck_ok(pin_node(w.s, node, &err));
    ck_assert_str_eq(node, again);
    world_release(&w);
}
END_TEST

WORLD_MAIN(gc_memory, test_gc_memory__a_known_object_is_not_read_again,
           test_gc_memory__each_prefix_is_listed_once,
           test_gc_memory__what_was_written_just_now_is_not_remembered,
           test_gc_memory__on_a_directory_the_trailer_is_compared,
           test_gc_memory__a_damaged_file_is_replaced_and_deletes_nothing,
           test_gc_memory__a_flipped_bit_never_makes_garbage_of_what_is_needed,
           test_gc_memory__the_db_by_itself, test_gc_memory__pins_are_read_back_as_they_were_put,
           test_gc_memory__a_damaged_name_of_the_node_is_replaced)
