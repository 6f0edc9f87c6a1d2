/* What a failing publish leaves in packs and index is as true as what a good one leaves: the next
 * publish builds on it. */
#include "store/ingest.h"

#include "base/util.h"
#include "tests/lib/kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

static struct cairn_error err;
static struct kit k;

struct cut {
    uint64_t at, to;
};

static void cut_file(void *ctx, uint64_t done, uint64_t total)
{
    struct cut *c = ctx;
    (void)total;
    if (c->to && done >= c->at) {
        kit_truncate(&k, "one", "memory", c->to);
        c->to = 0;
    }
}

#define WHOLE (84 * MIB)

/* Bytes that zstd has its work with and cannot make shorter by an eighth: stored raw. */
static void fill_slow(const char *path, uint64_t seed)
{
    uint8_t *data = malloc(WHOLE);
    ck_assert_ptr_nonnull(data);
    testing_fill(data, WHOLE, seed);
    for (uint64_t i = 0; i < WHOLE; i++)
        data[i] &= 127;
    kit_write(&k, "one", path, data, WHOLE, 0);
    free(data);
}

/* The number of the first chunk that lies in a second pack. */
static uint32_t first_of_second_pack(void)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT];
    CLEANUP_MANIFEST struct manifest *m = NULL;
    ck_ok(store_load(k.s, NULL, CK_A, &meta, gen, &m, &err));
    uint32_t i = 0;
    while (manifest_chunk_pack(m, i) == manifest_chunk_pack(m, 0))
        i++;
    return i;
}

static void remove_packs(void)
{
    while (kit_first(&k, LAYOUT_PACKS))
        kit_remove(&k, kit_first(&k, LAYOUT_PACKS));
    ck_ok(index_clear(k.s->index, &err));
}

/* Workers that are told to stop leave batches half done. A pack that is sealed between the failure
 * and its being noticed must not hold what such a batch had from its last use. */
START_TEST(test_ingest__a_batch_stopped_half_way_never_reaches_a_pack)
{
    kit_start(&k, &(struct kit_options){.chunk_size = 4096, .workers = 8});
    fill_slow("memory", 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    uint64_t roll = first_of_second_pack() * (uint64_t)4096 / MIB;
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    remove_packs();
    int sealed = 0;
    /* Right behind the pack's end, and further away than batches can be on their way. */
    static const uint64_t behind[] = {1, 4, 20};
    for (size_t i = 0; i < ARRAY_SIZE(behind); i++) {
        uint64_t mib = roll + behind[i];
        fill_slow("memory", 1);
        struct cut cut = {.at = 20 * MIB, .to = mib * MIB + 1};
        struct cairn_publish_options o = {.from = kit_path(&k, "one", NULL),
                                          .progress = {cut_file, &cut}};
        ck_fails(cairn_publish(k.s, NULL, CK_A, &o, &k.result, &err), CAIRN_BUSY);
        ck_assert_uint_eq(cut.to, 0);
        sealed += kit_first(&k, LAYOUT_PACKS) != NULL;
        kit_verify(&k);
        remove_packs();
    }
    ck_assert_int_gt(sealed, 0);
    kit_stop(&k);
}
END_TEST

/* ---- Straight calls ---- */

static struct walk files;

static void list(void)
{
    ck_ok(walk_run(kit_path(&k, "one", NULL), NULL, &files, &err));
}

START_TEST(test_ingest__nothing_but_holes_and_zeros_makes_no_chunk)
{
    kit_start(&k, NULL);
    static uint8_t zeros[300000];
    kit_write(&k, "one", "zeros", zeros, sizeof(zeros), 0);
    kit_truncate(&k, "one", "hole", (uint64_t)1 << 40);
    kit_truncate(&k, "one", "empty", 0);
    list();
    struct ingest_options o = {.files = &files};
    struct ingest_result r;
    ck_ok(ingest_run(k.s, NULL, &o, &r, &err));
    ck_assert_uint_eq(r.chunks, 0);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PACKS), 0);
    manifest_builder_free(r.builder);
    walk_release(&files);
    kit_stop(&k);
}
END_TEST

START_TEST(test_ingest__equal_chunks_are_stored_once)
{
    kit_start(&k, NULL);
    for (int i = 0; i < 40; i++)
        kit_fill(&k, "one", "same", 65536, (uint64_t)i * 65536, 7);
    kit_fill(&k, "one", "too", 65536, 0, 7);
    kit_fill(&k, "one", "too", 1, 65536, 7);
    list();
    struct ingest_options o = {.files = &files, .digest = true};
    struct ingest_result r;
    ck_ok(ingest_run(k.s, NULL, &o, &r, &err));
    ck_assert_uint_eq(r.chunks, 42);
    ck_assert_uint_eq(r.new_chunks, 2);
    ck_assert_uint_eq(r.new_bytes, 65537);
    manifest_builder_free(r.builder);
    /* Again: all is known. */
    ck_ok(ingest_run(k.s, NULL, &o, &r, &err));
    ck_assert_uint_eq(r.chunks, 42);
    ck_assert_uint_eq(r.new_chunks, 0);
    manifest_builder_free(r.builder);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PACKS), 1);
    /* Without what the index says of a banned pack: all is new. */
    struct layout_key pack;
    layout_parse(kit_first(&k, LAYOUT_PACKS), &pack);
    CLEANUP_PACK_SET struct pack_set banned = {0};
    ck_ok(pack_set_add(&banned, pack.pack, &err));
    o.banned = &banned;
    ck_ok(ingest_run(k.s, NULL, &o, &r, &err));
    ck_assert_uint_eq(r.new_chunks, 2);
    manifest_builder_free(r.builder);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PACKS), 2);
    walk_release(&files);
    kit_stop(&k);
}
END_TEST

START_TEST(test_ingest__more_files_than_descriptors)
{
    kit_start(&k, &(struct kit_options){.chunk_size = 4096});
    char name[64];
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "d%d/f%d", i % 7, i);
        kit_fill(&k, "one", name, (size_t)i % 3 * 1000, 0, (uint64_t)i);
    }
    (void)index_is_new(k.s->index); /* its files are opened by the first call */
    size_t before = kit_descriptors(), most = 0;
    list();
    struct ingest_options o = {.files = &files};
    struct ingest_result r;
    ck_ok(ingest_run(k.s, NULL, &o, &r, &err));
    ck_assert_uint_eq(r.chunks, 2000);
    manifest_builder_free(r.builder);
    walk_release(&files);
    most = kit_descriptors();
    ck_assert_uint_le(most, before);
    kit_stop(&k);
}
END_TEST

START_TEST(test_ingest__a_cancelled_run_leaves_nothing)
{
    kit_start(&k, NULL);
    kit_fill(&k, "one", "memory", 20 * MIB, 0, 1);
    list();
    struct cairn_cancel *cancel = NULL;
    ck_ok(cairn_cancel_new(&cancel, &err));
    cairn_cancel_fire(cancel);
    struct cairn_op op;
    cairn_op_init(&op, -1, cancel);
    struct ingest_options o = {.files = &files};
    struct ingest_result r;
    size_t before = kit_descriptors();
    ck_fails(ingest_run(k.s, &op, &o, &r, &err), CAIRN_CANCELLED);
    ck_assert_ptr_null(r.builder);
    cairn_op_init(&op, 0, NULL);
    ck_fails(ingest_run(k.s, &op, &o, &r, &err), CAIRN_TIMEOUT);
    ck_assert_uint_eq(kit_descriptors(), before);
    ck_assert_uint_eq(kit_objects(&k, ""), 1);
    cairn_cancel_free(cancel);
    walk_release(&files);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(ingest, test_ingest__a_batch_stopped_half_way_never_reaches_a_pack,
             test_ingest__nothing_but_holes_and_zeros_makes_no_chunk,
             test_ingest__equal_chunks_are_stored_once, test_ingest__more_files_than_descriptors,
             test_ingest__a_cancelled_run_leaves_nothing)
