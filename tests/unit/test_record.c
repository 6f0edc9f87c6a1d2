#include "store/record.h"

#include "base/util.h"
#include "tests/lib/backend_fault.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct cairn_error err;
static struct kit k;

#define CS   4096u
#define SIZE ((size_t)10 * CS + 100)

/* Data and holes in turn, a zero chunk, a short end: the bytes are in `bytes`. */
static uint8_t bytes[SIZE];

static void stage(void)
{
    static const uint8_t data[] = {0, 1, 4, 5, 6, 9, 10}; /* chunks that are not holes */
    memset(bytes, 0, sizeof(bytes));
    kit_truncate(&k, "one", "f", SIZE);
    for (size_t i = 0; i < sizeof(data); i++) {
        size_t len = data[i] == 10 ? 100 : CS, off = (size_t)data[i] * CS;
        if (data[i] != 5) /* written zeros */
            testing_fill(bytes + off, len, data[i] + 1u);
        kit_write(&k, "one", "f", bytes + off, len, off);
    }
    kit_truncate(&k, "one", "empty", 0);
}

static struct cairn_record *open_record(const char *id)
{
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, id, &r, &err));
    return r;
}

static void every_range(const struct kit_options *shape)
{
    static const size_t lens[] = {0, 1, 2, 99, CS - 1, CS, CS + 1, 3 * CS, SIZE, SIZE + 5};
    static uint8_t is[2 * SIZE];
    kit_start(&k, shape);
    stage();
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    int64_t f = cairn_record_find(r, "f");
    ck_assert_int_ge(f, 0);
    for (size_t c = 0; c <= 11; c++)
        for (int d = -2; d <= 2; d++) {
            int64_t off = (int64_t)(c * CS) + d;
            for (size_t l = 0; off >= 0 && l < ARRAY_SIZE(lens); l++) {
                size_t got = 77, want = (uint64_t)off >= SIZE          ? 0
                                        : lens[l] > SIZE - (size_t)off ? SIZE - (size_t)off
                                                                       : lens[l];
                memset(is, 0xee, sizeof(is));
                ck_ok(cairn_record_pread(r, NULL, (uint64_t)f, is, lens[l], (uint64_t)off, &got,
                                         &err));
                ck_assert_uint_eq(got, want);
                ck_assert(want == 0 || memcmp(is, bytes + off, want) == 0);
                ck_assert_uint_eq(is[want], 0xee);
            }
        }
    size_t got;
    ck_ok(cairn_record_pread(r, NULL, (uint64_t)f, is, 10, UINT64_MAX, &got, &err));
    ck_assert_uint_eq(got, 0);
    ck_ok(cairn_record_pread(r, NULL, (uint64_t)f, is, SIZE_MAX, SIZE - 3, &got, &err));
    ck_assert_uint_eq(got, 3);
    ck_ok(cairn_record_pread(r, NULL, (uint64_t)cairn_record_find(r, "empty"), is, 10, 0, &got,
                             &err));
    ck_assert_uint_eq(got, 0);
    ck_fails(cairn_record_pread(r, NULL, 2, is, 10, 0, &got, &err), CAIRN_INVALID);
    ck_fails(cairn_record_pread(r, NULL, UINT64_MAX, is, 10, 0, &got, &err), CAIRN_INVALID);
    cairn_record_close(r);
    kit_stop(&k);
}

START_TEST(test_record__pread_is_right_at_every_border)
{
    every_range(&(struct kit_options){.chunk_size = CS});
    every_range(&(struct kit_options){.chunk_size = CS, .mem = true});
    every_range(&(struct kit_options){.chunk_size = CS, .compression = CAIRN_COMPRESSION_NONE});
    every_range(&(struct kit_options){.chunk_size = 65536});
}
END_TEST

START_TEST(test_record__seek_finds_data_and_holes)
{
    kit_start(&k, &(struct kit_options){.chunk_size = CS});
    stage();
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    uint64_t f = (uint64_t)cairn_record_find(r, "f");
    static const bool data[11] = {1, 1, 0, 0, 1, 0, 1, 0, 0, 1, 1};
    for (uint64_t off = 0; off < SIZE; off += 1000) {
        uint64_t d = off, h = off;
        while (d < SIZE && !data[d / CS])
            d = (d / CS + 1) * CS;
        while (h < SIZE && data[h / CS])
            h = (h / CS + 1) * CS;
        ck_assert_uint_eq(cairn_record_seek(r, f, off, false), d < SIZE ? d : SIZE);
        ck_assert_uint_eq(cairn_record_seek(r, f, off, true), h < SIZE ? h : SIZE);
    }
    ck_assert_uint_eq(cairn_record_seek(r, f, SIZE, false), SIZE);
    ck_assert_uint_eq(cairn_record_seek(r, f, UINT64_MAX, true), SIZE);
    ck_assert_uint_eq(cairn_record_seek(r, (uint64_t)cairn_record_find(r, "empty"), 0, true), 0);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

START_TEST(test_record__info_and_files)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    kit_fill(&k, "one", "a/\xff", 3, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", "the meta", NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    struct cairn_record_info info;
    cairn_record_info(r, &info);
    ck_assert_str_eq(info.id, CK_A);
    ck_assert_str_eq(info.gen, k.result.gen);
    ck_assert_str_eq(info.parent_id, "");
    ck_assert_str_eq(info.digest, "");
    ck_assert_uint_eq(info.meta_len, 8);
    ck_assert_int_eq(memcmp(info.meta, "the meta", 8), 0);
    ck_assert_uint_eq(info.files, 5);
    ck_assert_uint_eq(info.logical_bytes, k.result.logical_bytes);
    ck_assert_uint_eq(info.data_bytes, k.result.data_bytes);
    ck_assert_uint_eq(info.stored_bytes, k.result.stored_bytes);
    for (uint64_t i = 0; i < info.files; i++) {
        struct cairn_file f;
        cairn_record_file(r, i, &f);
        ck_assert_int_eq(cairn_record_find(r, f.path), (int64_t)i);
    }
    static const char *const none[] = {"", "a", "a/", "disks", "memory/", "/memory", "memor", "zz"};
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        ck_assert_int_eq(cairn_record_find(r, none[i]), -1);
    cairn_record_close(r);
    cairn_record_close(NULL);
    kit_stop(&k);
}
END_TEST

START_TEST(test_record__what_cannot_be_opened)
{
    kit_start(&k, NULL);
    kit_sample(&k, "one", 1);
    struct cairn_record *r = NULL;
    ck_fails(cairn_record_open(k.s, NULL, CK_A, &r, &err), CAIRN_NOT_FOUND);
    ck_fails(cairn_record_open(k.s, NULL, "../x", &r, &err), CAIRN_INVALID);
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    struct cairn_op op;
    cairn_op_init(&op, 0, NULL);
    ck_fails(cairn_record_open(k.s, &op, CK_A, &r, &err), CAIRN_TIMEOUT);
    char key[KEY_MAX];
    kit_export_key(CK_A, "1", key);
    /* Any byte of the manifest. */
    CLEANUP_BUF struct buf manifest = BUF_INIT(1 << 20);
    kit_get(&k, key, &manifest);
    for (size_t off = 0; off < manifest.len; off += 7) {
        kit_damage(&k, key, off);
        ck_fails(cairn_record_open(k.s, NULL, CK_A, &r, &err), CAIRN_CORRUPT);
        ck_assert_ptr_nonnull(strstr(err.message, key));
        kit_damage(&k, key, off);
    }
    ck_ok(kit_opens(&k, CK_A));
    /* Another record's manifest. */
    ck_ok(kit_publish(&k, CK_B, "one", "1", NULL, &err));
    char other[KEY_MAX];
    kit_export_key(CK_B, "1", other);
    kit_put(&k, other, manifest.data, manifest.len);
    ck_fails(cairn_record_open(k.s, NULL, CK_B, &r, &err), CAIRN_CORRUPT);
    kit_remove(&k, key);
    ck_fails(cairn_record_open(k.s, NULL, CK_A, &r, &err), CAIRN_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.message, "no export"));
    ck_assert_ptr_null(r);
    kit_stop(&k);
}
END_TEST

/* ---- Damage ---- */

static void chunk_at(const char *id, uint32_t i, struct chunk *c)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT];
    CLEANUP_MANIFEST struct manifest *m = NULL;
    ck_ok(store_load(k.s, NULL, id, &meta, gen, &m, &err));
    manifest_chunk(m, i, c);
}

static void damaged_chunk(bool mem)
{
    kit_start(&k, &(struct kit_options){.chunk_size = CS, .mem = mem, .no_cache = true});
    kit_fill(&k, "one", "f", 8 * CS, 0, 1);
    memset(bytes, 'z', CS); /* a chunk that is encoded */
    kit_write(&k, "one", "f", bytes, CS, 5 * CS);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    for (uint32_t i = 3; i <= 5; i += 2) {
        struct chunk c;
        char pack[KEY_MAX], text[64], sha[2 * SHA256_LEN + 1];
        chunk_at(CK_A, i, &c);
        ck_assert_int_eq(c.loc.encoding, i == 5 ? CHUNK_ZSTD : CHUNK_RAW);
        layout_pack(c.loc.pack, pack);
        kit_damage(&k, pack, c.loc.offset + c.loc.stored_len / 2);
        struct cairn_record *r = open_record(CK_A);
        static uint8_t is[8 * CS];
        size_t got;
        ck_fails(cairn_record_pread(r, NULL, 0, is, sizeof(is), 0, &got, &err), CAIRN_CORRUPT);
        ck_assert_uint_eq(got, i * CS);
        snprintf(text, sizeof(text), "offset %u", c.loc.offset);
        util_hex(c.sha, SHA256_LEN, sha);
        ck_assert_msg(strstr(err.message, pack) && strstr(err.message, text) &&
                          strstr(err.message, sha) && strstr(err.message, CK_A),
                      "%s", err.message);
        ck_ok(cairn_record_pread(r, NULL, 0, is, 2 * CS, 6 * CS, &got, &err));
        ck_assert_uint_eq(got, 2 * CS);
        kit_damage(&k, pack, c.loc.offset + c.loc.stored_len / 2);
        ck_ok(cairn_record_pread(r, NULL, 0, is, sizeof(is), 0, &got, &err));
        cairn_record_close(r);
    }
    kit_stop(&k);
}

START_TEST(test_record__a_damaged_chunk_is_named_and_the_others_are_read)
{
    damaged_chunk(false);
    damaged_chunk(true);
}
END_TEST

START_TEST(test_record__a_passing_flip_is_healed_by_a_second_read)
{
    kit_start(
        &k, &(struct kit_options){.chunk_size = CS, .mem = true, .faulty = true, .no_cache = true});
    kit_fill(&k, "one", "f", 8 * CS, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    static uint8_t is[8 * CS];
    size_t got;
    /* One read fetches all eight chunks; the chunk it spoils is read again by itself. */
    struct fault_plan p = {.op = FAULT_READ,
                           .kind = FAULT_FLIP,
                           .nth = 1,
                           .key_part = "packs/",
                           .keep = 8 * (2 * CS + 100)};
    ck_ok(backend_fault_add(k.s->backend, &p, &err));
    ck_ok(cairn_record_pread(r, NULL, 0, is, sizeof(is), 0, &got, &err));
    ck_assert_uint_eq(got, sizeof(is));
    ck_assert_uint_eq(backend_fault_fired(k.s->backend), 1);
    testing_fill(bytes, 8 * CS, 1);
    ck_assert_int_eq(memcmp(is, bytes, sizeof(is)), 0);
    /* Twice is damage. */
    backend_fault_clear(k.s->backend);
    p.times = 2;
    ck_ok(backend_fault_add(k.s->backend, &p, &err));
    ck_fails(cairn_record_pread(r, NULL, 0, is, sizeof(is), 0, &got, &err), CAIRN_CORRUPT);
    ck_assert_uint_eq(got, 2 * CS);
    backend_fault_clear(k.s->backend);
    /* Other failures keep their class and are not sticky. */
    for (int c = CAIRN_TRANSIENT; c <= CAIRN_PERMANENT; c++) {
        p = (struct fault_plan){.op = FAULT_READ, .nth = 1, .error_class = c};
        ck_ok(backend_fault_add(k.s->backend, &p, &err));
        ck_fails(cairn_record_pread(r, NULL, 0, is, sizeof(is), 0, &got, &err), c);
        ck_ok(cairn_record_pread(r, NULL, 0, is, sizeof(is), 0, &got, &err));
        backend_fault_clear(k.s->backend);
    }
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* ---- Chunks that move ---- */

/* Copy the record's pack under another name and make its manifest say so, as a collector does. */
static void move_pack(const char *id, const char *meta)
{
    char key[KEY_MAX], pack[KEY_MAX], gen[GEN_TEXT];
    kit_export_key(id, meta, key);
    CLEANUP_BUF struct buf m_meta = BUF_INIT(META_MAX), data = BUF_INIT(64 << 20);
    CLEANUP_MANIFEST struct manifest *m = NULL;
    ck_ok(store_load(k.s, NULL, id, &m_meta, gen, &m, &err));
    ck_assert_uint_eq(manifest_info(m)->n_packs, 1);
    layout_pack(manifest_pack(m, 0), pack);
    kit_get(&k, pack, &data);
    uint32_t n = manifest_info(m)->n_chunks;
    CLEANUP_FREE struct chunk_loc *locs = calloc(n, sizeof(*locs));
    uint8_t other[PACK_ID_LEN];
    testing_fill(other, sizeof(other), 99);
    for (uint32_t i = 0; i < n; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        locs[i] = c.loc;
        memcpy(locs[i].pack, other, PACK_ID_LEN);
    }
    uint8_t *moved;
    size_t len;
    ck_ok(manifest_relocate(m, locs, &moved, &len, &err));
    char to[KEY_MAX];
    layout_pack(other, to);
    kit_put(&k, to, data.data, data.len);
    kit_put(&k, key, moved, len);
    free(moved);
    kit_remove(&k, pack);
}

struct reader {
    pthread_t thread;
    struct cairn_record *r;
    int rc;
};

static void *read_all(void *arg)
{
    struct reader *x = arg;
    uint8_t is[3 * CS];
    size_t got;
    struct cairn_error e;
    for (uint64_t off = 0; !x->rc && off < 8 * CS; off += CS)
        x->rc = cairn_record_pread(x->r, NULL, 0, is, sizeof(is), off, &got, &e);
    return NULL;
}

static void follows(bool mem)
{
    kit_start(&k, &(struct kit_options){.chunk_size = CS, .mem = mem, .no_cache = true});
    kit_fill(&k, "one", "f", 8 * CS, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", "1", NULL, &err));
    kit_reopen(&k); /* no pack is open */
    struct cairn_record *r = open_record(CK_A);
    struct cairn_file before, after;
    cairn_record_file(r, 0, &before);
    move_pack(CK_A, "1");
    struct reader readers[4] = {{.r = r}, {.r = r}, {.r = r}, {.r = r}};
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, read_all, &readers[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(readers[i].thread, NULL);
        ck_assert_int_eq(readers[i].rc, CAIRN_OK);
    }
    kit_same_folder(r, kit_path(&k, "one", NULL));
    cairn_record_file(r, 0, &after);
    ck_assert_str_eq(before.path, after.path);
    struct cairn_fetch_result f;
    ck_ok(cairn_record_fetch(r, NULL, kit_path(&k, "out", NULL), NULL, &f, &err));
    cairn_record_close(r);
    /* Gone, with a manifest that still names it: corrupt; with its manifest: not found. */
    kit_reopen(&k);
    r = open_record(CK_A);
    kit_remove(&k, kit_first(&k, LAYOUT_PACKS));
    uint8_t is[CS];
    size_t got;
    ck_fails(cairn_record_pread(r, NULL, 0, is, sizeof(is), 0, &got, &err), CAIRN_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.message, "gone"));
    ck_fails(cairn_record_fetch(r, NULL, kit_path(&k, "out2", NULL), NULL, &f, &err),
             CAIRN_CORRUPT);
    char key[KEY_MAX];
    kit_export_key(CK_A, "1", key);
    kit_remove(&k, key);
    ck_fails(cairn_record_pread(r, NULL, 0, is, sizeof(is), 0, &got, &err), CAIRN_NOT_FOUND);
    ck_fails(cairn_record_fetch(r, NULL, kit_path(&k, "out2", NULL), NULL, &f, &err),
             CAIRN_NOT_FOUND);
    ck_assert_int_ne(access(kit_path(&k, "out2", NULL), F_OK), 0);
    cairn_record_close(r);
    kit_stop(&k);
}

START_TEST(test_record__a_reader_follows_moved_chunks)
{
    follows(false);
    follows(true);
}
END_TEST

START_TEST(test_record__a_spent_op_reads_nothing)
{
    kit_start(&k, &(struct kit_options){.chunk_size = CS, .mem = true, .faulty = true});
    kit_fill(&k, "one", "f", 8 * CS, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    backend_fault_clear(k.s->backend);
    uint8_t is[CS];
    size_t got = 1;
    struct cairn_op op;
    cairn_op_init(&op, 0, NULL);
    ck_fails(cairn_record_pread(r, &op, 0, is, sizeof(is), 0, &got, &err), CAIRN_TIMEOUT);
    ck_assert_uint_eq(got, 0);
    struct cairn_cancel *cancel = NULL;
    ck_ok(cairn_cancel_new(&cancel, &err));
    cairn_cancel_fire(cancel);
    cairn_op_init(&op, 100, cancel);
    ck_fails(cairn_record_pread(r, &op, 0, is, sizeof(is), 0, &got, &err), CAIRN_CANCELLED);
    ck_assert_uint_eq(backend_fault_calls(k.s->backend, FAULT_ANY), 0);
    /* A backend that hangs is left when the time is over. */
    struct fault_plan p = {.op = FAULT_READ, .kind = FAULT_DELAY, .nth = 1, .times = UINT_MAX};
    ck_ok(backend_fault_add(k.s->backend, &p, &err));
    cairn_op_init(&op, 0.05, NULL);
    ck_fails(cairn_record_pread(r, &op, 0, is, sizeof(is), 0, &got, &err), CAIRN_TIMEOUT);
    cairn_cancel_free(cancel);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* More packs than are kept open at a time. */
START_TEST(test_record__more_packs_than_descriptors_for_them)
{
    kit_start(&k, &(struct kit_options){.chunk_size = CS});
    for (unsigned i = 0; i < 150; i++) {
        kit_fill(&k, "one", "f", CS, (uint64_t)i * CS, i);
        char id[32];
        snprintf(id, sizeof(id), "ck_%016x", i);
        ck_ok(kit_publish(&k, id, "one", NULL, NULL, &err));
    }
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PACKS), 150);
    size_t before = kit_descriptors();
    for (int i = 0; i < 3; i++)
        kit_same(&k, "ck_0000000000000095", "one");
    ck_assert_uint_le(kit_descriptors(), before + 130);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(record, test_record__pread_is_right_at_every_border,
             test_record__seek_finds_data_and_holes, test_record__info_and_files,
             test_record__what_cannot_be_opened,
             test_record__a_damaged_chunk_is_named_and_the_others_are_read,
             test_record__a_passing_flip_is_healed_by_a_second_read,
             test_record__a_reader_follows_moved_chunks, test_record__a_spent_op_reads_nothing,
             test_record__more_packs_than_descriptors_for_them)
