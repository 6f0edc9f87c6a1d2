#include "base/util.h"
#include "tests/lib/kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static struct cairn_error err;
static struct kit k;

#define MOST 64
static struct {
    char id[40], gen[GEN_TEXT], digest[CAIRN_DIGEST_TEXT], message[CAIRN_ERROR_MESSAGE_MAX];
    int error_class;
    uint64_t logical, stored, files;
    int64_t created_ns;
} seen[MOST];
static size_t n_seen, stop_after;

static int see(void *ctx, const struct cairn_list_entry *e)
{
    (void)ctx;
    ck_assert_uint_lt(n_seen, MOST);
    snprintf(seen[n_seen].id, sizeof(seen[0].id), "%s", e->id);
    snprintf(seen[n_seen].gen, sizeof(seen[0].gen), "%s", e->gen);
    snprintf(seen[n_seen].digest, sizeof(seen[0].digest), "%s", e->digest);
    snprintf(seen[n_seen].message, sizeof(seen[0].message), "%s", e->error_message);
    seen[n_seen].error_class = e->error_class;
    seen[n_seen].logical = e->logical_bytes;
    seen[n_seen].stored = e->stored_bytes;
    seen[n_seen].files = e->files;
    seen[n_seen].created_ns = e->created_ns;
    n_seen++;
    return stop_after && n_seen == stop_after;
}

static int list(const char *prefix, const char *after, uint64_t limit)
{
    struct cairn_list_options o = {.prefix = prefix, .after = after, .limit = limit};
    n_seen = 0;
    return cairn_list(k.s, NULL, &o, see, NULL, &err);
}

static const char *const ids[] = {"ck_0000000000000001",
                                  "ck_0000000000000002",
                                  "ck_00000000000000ff",
                                  "ck_0100000000000000",
                                  "ck_ffffffffffffffff",
                                  "tp_00000000000000000000000000000000",
                                  "tp_0000000000000000000000000000000f",
                                  "tp_ffffffffffffffffffffffffffffffff"};

static void fill(void)
{
    kit_sample(&k, "one", 1);
    for (size_t i = ARRAY_SIZE(ids); i-- > 0;)
        ck_ok(kit_publish(&k, ids[i], "one", ids[i], NULL, &err));
}

static void start(bool mem)
{
    kit_start(&k, &(struct kit_options){.mem = mem, .faulty = mem});
    fill();
}

/* What was listed are ids[from] to ids[to - 1]. */
static void listed(size_t from, size_t to)
{
    ck_assert_uint_eq(n_seen, to - from);
    for (size_t i = 0; i < n_seen; i++) {
        ck_assert_str_eq(seen[i].id, ids[from + i]);
        ck_assert_int_eq(seen[i].error_class, CAIRN_OK);
        ck_assert_uint_eq(seen[i].files, 4);
        ck_assert_uint_eq(seen[i].logical, k.result.logical_bytes);
        ck_assert_uint_gt(seen[i].stored, 0);
        ck_assert_int_gt(seen[i].created_ns, 0);
        ck_assert(gen_is_valid(seen[i].gen));
        ck_assert_str_eq(seen[i].message, "");
    }
}

static void pages(bool mem)
{
    start(mem);
    n_seen = 0;
    ck_ok(cairn_list(k.s, NULL, NULL, see, NULL, &err));
    listed(0, 8);
    ck_ok(list("ck_", NULL, 0));
    listed(0, 5);
    ck_ok(list("ck_00", NULL, 0));
    listed(0, 3);
    ck_ok(list("tp_", NULL, 0));
    listed(5, 8);
    ck_ok(list("ck_0000000000000001", NULL, 0));
    listed(0, 1);
    ck_ok(list("ck_00000000000000001", NULL, 0));
    listed(0, 0);
    ck_ok(list("x", NULL, 0));
    listed(0, 0);
    ck_ok(list("", "", 0));
    listed(0, 8);
    ck_ok(list(NULL, "ck_0000000000000002", 0));
    listed(2, 8);
    /* Neither a record nor even an id. */
    ck_ok(list(NULL, "ck_0000000000000003", 0));
    listed(2, 8);
    ck_ok(list(NULL, "ck_00000000000000", 0));
    listed(0, 8);
    ck_ok(list(NULL, "d", 0));
    listed(5, 8);
    ck_ok(list(NULL, "tp_ffffffffffffffffffffffffffffffff", 0));
    listed(0, 0);
    ck_ok(list("ck_", "ck_0100000000000000", 0));
    listed(4, 5);
    ck_ok(list(NULL, NULL, 3));
    listed(0, 3);
    ck_ok(list("tp_", "tp_00000000000000000000000000000000", 1));
    listed(6, 7);
    ck_fails(list("ck_/", NULL, 0), CAIRN_INVALID);
    ck_fails(list(NULL, "../", 0), CAIRN_INVALID);
    ck_fails(list(NULL, "tp_ffffffffffffffffffffffffffffffff0", 0), CAIRN_INVALID);
    ck_ok(list("tp_ffffffffffffffffffffffffffffffff0", NULL, 0));
    listed(0, 0);
    /* Page by page, each record once. */
    char after[40] = "";
    size_t total = 0;
    do {
        ck_ok(list(NULL, after, 3));
        for (size_t i = 0; i < n_seen; i++)
            ck_assert_str_eq(seen[i].id, ids[total++]);
        if (n_seen)
            snprintf(after, sizeof(after), "%s", seen[n_seen - 1].id);
    } while (n_seen);
    ck_assert_uint_eq(total, 8);
    stop_after = 2;
    ck_ok(list(NULL, NULL, 0));
    listed(0, 2);
    kit_stop(&k);
    stop_after = 0;
}

START_TEST(test_list__prefix_after_and_limit)
{
    pages(false);
    pages(true);
}
END_TEST

START_TEST(test_list__one_bad_record_hides_no_other)
{
    start(false);
    char key[KEY_MAX];
    kit_export_key(ids[1], ids[1], key);
    kit_damage(&k, key, 40);
    kit_export_key(ids[2], ids[2], key); /* a removal cut short */
    kit_remove(&k, key);
    kit_export_key(ids[3], ids[3], key);
    kit_put(&k, key, "short", 5);
    layout_meta(ids[4], key);
    CLEANUP_FREE char *big = calloc(1, META_MAX + 1);
    kit_put(&k, key, big, META_MAX + 1);
    layout_meta(ids[5], key); /* what is left is an uncommitted manifest */
    kit_remove(&k, key);
    ck_ok(list(NULL, NULL, 0));
    ck_assert_uint_eq(n_seen, 7);
    static const int want[] = {CAIRN_OK,      CAIRN_CORRUPT, CAIRN_NOT_FOUND, CAIRN_CORRUPT,
                               CAIRN_CORRUPT, CAIRN_OK,      CAIRN_OK};
    for (size_t i = 0; i < n_seen; i++) {
        ck_assert_str_eq(seen[i].id, ids[i < 5 ? i : i + 1]);
        ck_assert_int_eq(seen[i].error_class, want[i]);
        ck_assert_int_eq(seen[i].message[0] != 0, want[i] != CAIRN_OK);
        ck_assert_uint_eq(seen[i].files, want[i] ? 0 : 4);
        ck_assert_uint_eq(seen[i].logical != 0, !want[i]);
        ck_assert_str_eq(seen[i].digest, "");
    }
    struct cairn_stats st;
    ck_ok(cairn_stats(k.s, NULL, &st, &err));
    ck_assert_uint_eq(st.records, 7);
    ck_assert_uint_eq(st.generations, 7);
    ck_assert_uint_eq(st.logical_bytes, 3 * k.result.logical_bytes);
    kit_stop(&k);
}
END_TEST

START_TEST(test_list__failures_of_the_backend)
{
    /* Without a memory: everything is read each time. */
    kit_start(&k, &(struct kit_options){.mem = true, .faulty = true, .no_index = true});
    fill();
    struct backend *b = k.s->backend;
    /* Of one record: told for it, and the others come. */
    struct fault_plan p = {
        .op = FAULT_GET, .nth = 1, .key_part = ids[1], .error_class = CAIRN_TRANSIENT};
    ck_ok(backend_fault_add(b, &p, &err));
    ck_ok(list(NULL, NULL, 0));
    ck_assert_uint_eq(n_seen, 8);
    ck_assert_int_eq(seen[1].error_class, CAIRN_TRANSIENT);
    ck_assert_int_eq(seen[2].error_class, CAIRN_OK);
    backend_fault_clear(b);
    /* Of the listing: an error, never a short list that looks whole. */
    p = (struct fault_plan){.op = FAULT_ITER_NEXT, .nth = 5, .error_class = CAIRN_PERMANENT};
    ck_ok(backend_fault_add(b, &p, &err));
    ck_fails(list(NULL, NULL, 0), CAIRN_PERMANENT);
    backend_fault_clear(b);
    p = (struct fault_plan){.op = FAULT_LIST, .nth = 1};
    ck_ok(backend_fault_add(b, &p, &err));
    ck_fails(list(NULL, NULL, 0), CAIRN_TRANSIENT);
    ck_assert_uint_eq(n_seen, 0);
    backend_fault_clear(b);
    /* Removed between the listing and the reading: not there, whichever object went first. */
    p = (struct fault_plan){
        .op = FAULT_GET, .nth = 1, .times = 2, .key_part = ids[2], .error_class = CAIRN_NOT_FOUND};
    ck_ok(backend_fault_add(b, &p, &err));
    ck_ok(list(NULL, NULL, 0));
    ck_assert_uint_eq(n_seen, 7);
    ck_assert_str_eq(seen[2].id, ids[3]);
    backend_fault_clear(b);
    p = (struct fault_plan){
        .op = FAULT_READ, .nth = 1, .key_part = ids[0], .error_class = CAIRN_NOT_FOUND};
    ck_ok(backend_fault_add(b, &p, &err));
    p = (struct fault_plan){
        .op = FAULT_GET, .nth = 2, .key_part = ids[0], .error_class = CAIRN_NOT_FOUND};
    ck_ok(backend_fault_add(b, &p, &err));
    ck_ok(list(NULL, NULL, 0));
    ck_assert_uint_eq(n_seen, 7);
    ck_assert_str_eq(seen[0].id, ids[1]);
    backend_fault_clear(b);
    kit_stop(&k);
}
END_TEST

/* ---- What is remembered ---- */

/* Objects that a listing of all reads. */
static unsigned reads(void)
{
    backend_fault_clear(k.s->backend);
    ck_ok(list(NULL, NULL, 0));
    return backend_fault_calls(k.s->backend, FAULT_GET) +
           backend_fault_calls(k.s->backend, FAULT_READ);
}

START_TEST(test_list__what_is_known_is_not_read_again)
{
    start(true);
    ck_assert_uint_eq(reads(), 2 * 8);
    listed(0, 8);
    ck_assert_uint_eq(reads(), 0);
    listed(0, 8);
    ck_assert_uint_eq(backend_fault_calls(k.s->backend, FAULT_STAT), 0);
    ck_assert_uint_eq(backend_fault_calls(k.s->backend, FAULT_LIST), 2);
    /* Not by another process either. */
    kit_reopen(&k);
    ck_assert_uint_eq(reads(), 0);
    listed(0, 8);
    /* What changed is, and nothing else. */
    ck_ok(kit_publish(&k, ids[6], "one", "another", NULL, &err));
    char gen[GEN_TEXT];
    ck_ok(gen_of_meta("another", 7, gen, &err));
    ck_assert_uint_eq(reads(), 2);
    ck_assert_str_eq(seen[6].gen, gen);
    ck_assert_uint_eq(reads(), 0);
    ck_assert_str_eq(seen[6].gen, gen);
    ck_ok(cairn_delete(k.s, NULL, ids[0], &err));
    ck_assert_uint_eq(reads(), 0);
    ck_assert_uint_eq(n_seen, 7);
    ck_assert_str_eq(seen[0].id, ids[1]);
    kit_stop(&k);
}
END_TEST

START_TEST(test_list__what_is_wrong_is_looked_at_each_time)
{
    start(true);
    char key[KEY_MAX];
    ck_assert_uint_eq(reads(), 2 * 8);
    kit_export_key(ids[2], ids[2], key);
    CLEANUP_BUF struct buf was = BUF_INIT(1 << 20);
    kit_get(&k, key, &was);
    /* Its export is gone: known is what was there. */
    kit_remove(&k, key);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_gt(reads(), 0);
        ck_assert_uint_eq(n_seen, 8);
        ck_assert_int_eq(seen[2].error_class, CAIRN_NOT_FOUND);
        ck_assert_str_eq(seen[2].gen, "");
        ck_assert_int_eq(seen[3].error_class, CAIRN_OK);
    }
    /* An older one that still stands is not taken for it. */
    kit_export_key(ids[2], "no meta of that", key);
    kit_put(&k, key, was.data, was.len);
    ck_assert_uint_gt(reads(), 0);
    ck_assert_int_eq(seen[2].error_class, CAIRN_NOT_FOUND);
    kit_export_key(ids[2], ids[2], key);
    kit_put(&k, key, was.data, was.len);
    ck_assert_uint_gt(reads(), 0);
    listed(0, 8);
    ck_assert_uint_eq(reads(), 0);
    kit_stop(&k);
}
END_TEST

/* Read all of what is asked for and not more, however many are read at once. */
START_TEST(test_list__a_page_reads_its_own_records)
{
    start(true);
    backend_fault_clear(k.s->backend);
    ck_ok(list(NULL, NULL, 3));
    listed(0, 3);
    ck_assert_uint_eq(backend_fault_calls(k.s->backend, FAULT_GET), 3);
    ck_assert_uint_eq(reads(), 2 * 5);
    listed(0, 8);
    kit_stop(&k);
}
END_TEST

/* The record's folder looks as if nothing had happened in it for an hour. */
static void age(const char *id)
{
    char path[600];
    struct timespec t[2];
    clock_gettime(CLOCK_REALTIME, &t[0]);
    t[0].tv_sec -= 3600;
    t[1] = t[0];
    snprintf(path, sizeof(path), "%s/records/%s", k.root, id);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, t, 0), 0);
}

/* Damage to a manifest in place, which no folder's time tells of, shows whether it was read. */
START_TEST(test_list__in_a_directory_the_folders_time_tells)
{
    start(false);
    char key[KEY_MAX];
    for (size_t i = 0; i < 8; i++)
        if (i != 5)
            age(ids[i]);
    ck_ok(list(NULL, NULL, 0));
    listed(0, 8);
    for (size_t i = 4; i < 8; i++) {
        kit_export_key(ids[i], ids[i], key);
        kit_damage(&k, key, 40);
    }
    kit_reopen(&k);
    ck_ok(list(NULL, NULL, 0));
    ck_assert_uint_eq(n_seen, 8);
    for (size_t i = 0; i < 8; i++) /* what had changed just now was not remembered */
        ck_assert_int_eq(seen[i].error_class, i == 5 ? CAIRN_CORRUPT : CAIRN_OK);
    /* Every change by Cairn shows. */
    ck_ok(kit_publish(&k, ids[6], "one", "another", NULL, &err));
    ck_ok(cairn_delete(k.s, NULL, ids[0], &err));
    kit_export_key(ids[1], ids[1], key);
    kit_remove(&k, key);
    kit_export_key(ids[2], "of a publish under way", key);
    kit_put(&k, key, "x", 1);
    ck_ok(list(NULL, NULL, 0));
    ck_assert_uint_eq(n_seen, 7);
    static const int want[] = {CAIRN_NOT_FOUND, CAIRN_OK, CAIRN_OK, CAIRN_OK,
                               CAIRN_CORRUPT,   CAIRN_OK, CAIRN_OK};
    for (size_t i = 0; i < 7; i++)
        ck_assert_int_eq(seen[i].error_class, want[i]);
    char gen[GEN_TEXT];
    ck_ok(gen_of_meta("another", 7, gen, &err));
    ck_assert_str_eq(seen[5].gen, gen);
    kit_stop(&k);
}
END_TEST

START_TEST(test_list__stats_count)
{
    kit_start(&k, NULL);
    struct cairn_stats st;
    ck_ok(cairn_stats(k.s, NULL, &st, &err));
    ck_assert_uint_eq(st.records + st.generations + st.packs + st.chunks + st.logical_bytes, 0);
    kit_sample(&k, "one", 1);
    kit_sample(&k, "two", 2);
    ck_ok(kit_publish(&k, TP_A, "one", "1", NULL, &err));
    uint64_t chunks = k.result.new_chunks;
    ck_ok(kit_publish(&k, TP_A, "two", "2", NULL, &err));
    chunks += k.result.new_chunks;
    ck_ok(kit_fork(&k, TP_A, CK_A, NULL, &err));
    ck_ok(cairn_stats(k.s, NULL, &st, &err));
    ck_assert_uint_eq(st.records, 2);
    ck_assert_uint_eq(st.generations, 3);
    ck_assert_uint_eq(st.packs, 2);
    ck_assert_uint_eq(st.chunks, chunks);
    ck_assert_uint_eq(st.logical_bytes, 2 * k.result.logical_bytes);
    ck_assert_uint_eq(st.stored_bytes, kit_stored(&k));
    ck_assert_uint_gt(st.index_bytes, 0);
    /* A pack that is none counts as one without chunks. */
    char key[KEY_MAX];
    snprintf(key, sizeof(key), "%s", kit_first(&k, LAYOUT_PACKS));
    kit_put(&k, key, "x", 1);
    ck_ok(cairn_stats(k.s, NULL, &st, &err));
    ck_assert_uint_eq(st.packs, 2);
    ck_assert_uint_lt(st.chunks, chunks);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(list, test_list__prefix_after_and_limit, test_list__one_bad_record_hides_no_other,
             test_list__failures_of_the_backend, test_list__what_is_known_is_not_read_again,
             test_list__what_is_wrong_is_looked_at_each_time,
             test_list__a_page_reads_its_own_records,
             test_list__in_a_directory_the_folders_time_tells, test_list__stats_count)
