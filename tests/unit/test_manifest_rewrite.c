#include "base/util.h"
#include "store/manifest.h"
#include "tests/lib/samples.h"
#include "tests/lib/testing.h"

#include <string.h>

static struct manifest *decoded(uint8_t *data, size_t len)
{
    struct cairn_error err;
    struct manifest *m;
    ck_ok(manifest_decode(data, len, NULL, NULL, &m, &err));
    ck_ok(manifest_check_content(m, NULL, &err));
    return m;
}

static struct manifest *sample(void)
{
    uint8_t *data;
    size_t len;
    sample_manifest(&data, &len);
    return decoded(data, len);
}

/* ---- Renaming -------------------------------------------------------------------------------- */

START_TEST(test_manifest_rewrite__rename_changes_the_name_and_nothing_else)
{
    struct cairn_error err;
    CLEANUP_MANIFEST struct manifest *m = sample();
    const struct manifest_info info = {.id = "ck_1111111111111111",
                                       .gen = "2222222222222222",
                                       .parent_id = "tp_000102030405060708090a0b0c0d0e0f",
                                       .parent_gen = "66e99f116e8d369c",
                                       .created_ns = 42};
    uint8_t *data;
    size_t len, len_m;
    ck_ok(manifest_rename(m, &info, &data, &len, &err));
    CLEANUP_MANIFEST struct manifest *r = decoded(data, len);
    const struct manifest_info *i = manifest_info(r), *was = manifest_info(m);
    ck_assert_str_eq(i->id, info.id);
    ck_assert_str_eq(i->gen, info.gen);
    ck_assert_str_eq(i->parent_id, info.parent_id);
    ck_assert_str_eq(i->parent_gen, info.parent_gen);
    ck_assert_int_eq(i->created_ns, 42);
    ck_assert_uint_ne(i->writer_version, 0);
    ck_assert(i->has_digest);
    ck_assert_mem_eq(i->digest, was->digest, SHA256_LEN);
    ck_assert_uint_eq(i->logical_bytes, was->logical_bytes);
    ck_assert_uint_eq(i->data_bytes, was->data_bytes);
    ck_assert_uint_eq(i->stored_bytes, was->stored_bytes);
    const uint8_t *a = manifest_bytes(m, &len_m), *b = manifest_bytes(r, &len);
    ck_assert_uint_eq(len, len_m);
    ck_assert_mem_eq(a + MANIFEST_HEADER_LEN, b + MANIFEST_HEADER_LEN,
                     len - MANIFEST_HEADER_LEN - SHA256_LEN);
}
END_TEST

START_TEST(test_manifest_rewrite__rename_can_drop_the_parent_and_set_a_digest)
{
    struct cairn_error err;
    CLEANUP_MANIFEST struct manifest *m = sample();
    struct manifest_info info = {
        .id = "ck_1111111111111111", .gen = "2222222222222222", .has_digest = true};
    memset(info.digest, 0x77, SHA256_LEN);
    uint8_t *data;
    size_t len;
    ck_ok(manifest_rename(m, &info, &data, &len, &err));
    CLEANUP_MANIFEST struct manifest *r = decoded(data, len);
    ck_assert_str_eq(manifest_info(r)->parent_id, "");
    ck_assert_str_eq(manifest_info(r)->parent_gen, "");
    ck_assert_mem_eq(manifest_info(r)->digest, info.digest, SHA256_LEN);
}
END_TEST

START_TEST(test_manifest_rewrite__rename_to_no_id_is_invalid)
{
    struct cairn_error err;
    CLEANUP_MANIFEST struct manifest *m = sample();
    struct manifest_info info = {.id = "ck_111111111111111", .gen = "2222222222222222"};
    uint8_t *data;
    size_t len;
    ck_fails(manifest_rename(m, &info, &data, &len, &err), CAIRN_INVALID);
}
END_TEST

/* ---- Relocating ------------------------------------------------------------------------------ */

/* The locations as they are. */
static struct chunk_loc *locations(const struct manifest *m)
{
    struct chunk_loc *locs = calloc(manifest_info(m)->n_chunks, sizeof(*locs));
    ck_assert_ptr_nonnull(locs);
    for (uint32_t i = 0; i < manifest_info(m)->n_chunks; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        locs[i] = c.loc;
    }
    return locs;
}

static struct manifest *relocated(const struct manifest *m, const struct chunk_loc *locs)
{
    struct cairn_error err;
    uint8_t *data;
    size_t len;
    ck_ok(manifest_relocate(m, locs, &data, &len, &err));
    return decoded(data, len);
}

/* Every file of both has the same chunks and hashes at the same places. */
static void same_files(const struct manifest *a, const struct manifest *b)
{
    ck_assert_uint_eq(manifest_info(a)->n_files, manifest_info(b)->n_files);
    for (uint32_t i = 0; i < manifest_info(a)->n_files; i++) {
        struct manifest_file f, g;
        manifest_file(a, i, &f);
        manifest_file(b, i, &g);
        ck_assert_uint_eq(f.size, g.size);
        ck_assert_mem_eq(f.content, g.content, MANIFEST_CONTENT_LEN);
        for (uint32_t e = 0; e < f.n_extents; e++) {
            struct manifest_extent x;
            manifest_extent(a, f.first_extent + e, &x);
            for (uint32_t k = 0; k < x.count; k++) {
                uint32_t j;
                uint64_t run;
                struct chunk c, d;
                ck_assert(manifest_lookup(b, &g, x.chunk_no + k, &j, &run));
                manifest_chunk(a, x.first + k, &c);
                manifest_chunk(b, j, &d);
                ck_assert_mem_eq(c.sha, d.sha, SHA256_LEN);
                ck_assert_mem_eq(manifest_chunk_xxh(a, x.first + k), manifest_chunk_xxh(b, j),
                                 XXH3_LEN);
            }
        }
    }
}

START_TEST(test_manifest_rewrite__relocate_to_the_same_places_changes_nothing)
{
    CLEANUP_MANIFEST struct manifest *m = sample();
    CLEANUP_FREE struct chunk_loc *locs = locations(m);
    CLEANUP_MANIFEST struct manifest *r = relocated(m, locs);
    size_t len, len_r;
    const uint8_t *a = manifest_bytes(m, &len), *b = manifest_bytes(r, &len_r);
    ck_assert_uint_eq(len, len_r);
    ck_assert_mem_eq(a + MANIFEST_HEADER_LEN, b + MANIFEST_HEADER_LEN,
                     len - MANIFEST_HEADER_LEN - SHA256_LEN);
    ck_assert_str_eq(manifest_info(r)->gen, manifest_info(m)->gen);
    ck_assert_str_eq(manifest_info(r)->parent_gen, manifest_info(m)->parent_gen);
    ck_assert_int_eq(manifest_info(r)->created_ns, manifest_info(m)->created_ns);
}
END_TEST

START_TEST(test_manifest_rewrite__relocate_moves_all_chunks_of_a_pack)
{
    CLEANUP_MANIFEST struct manifest *m = sample();
    CLEANUP_FREE struct chunk_loc *locs = locations(m);
    uint8_t from[PACK_ID_LEN], to[PACK_ID_LEN];
    memcpy(from, manifest_pack(m, 0), PACK_ID_LEN);
    memset(to, 0xff, PACK_ID_LEN);
    uint32_t moved = 0, n = manifest_info(m)->n_chunks;
    for (uint32_t i = 0; i < n; i++) {
        if (memcmp(locs[i].pack, from, PACK_ID_LEN) != 0)
            continue;
        memcpy(locs[i].pack, to, PACK_ID_LEN);
        locs[i].offset = 4096 * (10 + moved++);
    }
    ck_assert_uint_gt(moved, 1);
    CLEANUP_MANIFEST struct manifest *r = relocated(m, locs);
    same_files(m, r);
    ck_assert_uint_eq(manifest_info(r)->n_packs, manifest_info(m)->n_packs);
    for (uint32_t i = 0; i < manifest_info(r)->n_packs; i++)
        ck_assert_mem_ne(manifest_pack(r, i), from, PACK_ID_LEN);
    for (uint32_t i = 0; i < n; i++) {
        struct chunk c;
        manifest_chunk(r, i, &c);
        ck_assert_mem_eq(&c.loc, &locs[i], sizeof(c.loc));
        ck_assert_uint_eq(manifest_chunk_base(r, i), manifest_chunk_base(m, i));
    }
}
END_TEST

START_TEST(test_manifest_rewrite__relocate_drops_bases_that_nobody_needs)
{
    CLEANUP_MANIFEST struct manifest *m = sample();
    CLEANUP_FREE struct chunk_loc *locs = locations(m);
    uint32_t n = manifest_info(m)->n_chunks, based = 0;
    uint8_t old[PACK_ID_LEN];
    for (uint32_t i = 0; i < n; i++) {
        if (manifest_chunk_base(m, i) == UINT32_MAX)
            continue;
        locs[i].encoding = CHUNK_ZSTD;
        locs[i].stored_len = 2000;
        based++;
    }
    ck_assert_uint_eq(based, 2);
    /* the base that is no chunk of a file goes, and so its pack must not stay */
    memset(old, 0xee, PACK_ID_LEN);
    memcpy(locs[n - 1].pack, old, PACK_ID_LEN);
    CLEANUP_MANIFEST struct manifest *r = relocated(m, locs);
    same_files(m, r);
    ck_assert_uint_eq(manifest_info(r)->n_chunks, n - 1);
    ck_assert_uint_eq(manifest_info(r)->n_packs, 3);
    for (uint32_t i = 0; i < n - 1; i++)
        ck_assert_uint_eq(manifest_chunk_base(r, i), UINT32_MAX);
    ck_assert_uint_eq(manifest_info(r)->stored_bytes,
                      manifest_info(m)->stored_bytes - 60 - 61 - 4096 + 2 * 2000);
}
END_TEST

START_TEST(test_manifest_rewrite__relocate_keeps_a_base_while_one_chunk_needs_it)
{
    CLEANUP_MANIFEST struct manifest *m = sample();
    CLEANUP_FREE struct chunk_loc *locs = locations(m);
    struct manifest_file f;
    uint32_t i;
    uint64_t run;
    manifest_file(m, 3, &f);
    ck_assert(manifest_lookup(m, &f, 5, &i, &run)); /* its base is chunk 7 of the file, too */
    locs[i].encoding = CHUNK_RAW;
    locs[i].stored_len = 4096;
    locs[i].offset = 8192;
    CLEANUP_MANIFEST struct manifest *r = relocated(m, locs);
    same_files(m, r);
    ck_assert_uint_eq(manifest_info(r)->n_chunks, manifest_info(m)->n_chunks);
    ck_assert_uint_eq(manifest_chunk_base(r, i), UINT32_MAX);
    ck_assert_uint_eq(manifest_chunk_base(r, i + 1), manifest_info(m)->n_chunks - 1);
}
END_TEST

START_TEST(test_manifest_rewrite__relocate_numbers_chunks_anew_when_one_goes_from_the_middle)
{
    /* A manifest that another writer made: the base stands before chunks of files. */
    struct cairn_error err;
    struct manifest_builder *b;
    struct manifest_info info;
    struct chunk base, c;
    uint8_t xxh[XXH3_LEN], *data;
    size_t len;
    ck_ok(manifest_builder_new(4096, &b, &err));
    ck_ok(manifest_builder_file_begin(b, "a", 1, 4 * 4096, &err));
    sample_chunk(102, 2, 4096, &base, xxh);
    sample_based(2, 1, 77, 102, 4096, &c, xxh);
    ck_ok(manifest_builder_chunk(b, 0, &c, xxh, &err));
    for (uint32_t n = 3; n < 6; n++) {
        sample_chunk(n, 0, 4096, &c, xxh);
        ck_ok(manifest_builder_chunk(b, n - 2, &c, xxh, &err));
    }
    ck_ok(manifest_builder_file_end(b, &err));
    sample_info(&info);
    ck_ok(manifest_builder_encode(b, &info, &data, &len, &err));
    manifest_builder_free(b);
    /* chunks: based, 3, 4, 5, base -> based, base, 3, 4, 5; one extent becomes two */
    CLEANUP_MANIFEST struct manifest *plain = decoded(data, len);
    CLEANUP_BUF struct buf out = BUF_INIT(65536);
    const uint8_t *bytes = manifest_bytes(plain, &len);
    const size_t extents = 320 + 48, chunks = extents + 16;
    uint8_t extent[16];
    memcpy(extent, bytes + extents, 16);
    ck_ok(buf_add(&out, bytes, extents, &err));
    put_le32(extent + 8, 1);
    ck_ok(buf_add(&out, extent, 16, &err));
    put_le64(extent, 1);
    put_le32(extent + 8, 3);
    put_le32(extent + 12, 2);
    ck_ok(buf_add(&out, extent, 16, &err));
    ck_ok(buf_add(&out, bytes + chunks, 64, &err));
    ck_ok(buf_add(&out, bytes + chunks + 4 * 64, 64, &err));
    ck_ok(buf_add(&out, bytes + chunks + 64, 3 * 64, &err));
    ck_ok(buf_add(&out, bytes + chunks + 5 * 64, len - chunks - 5 * 64, &err));
    put_le32(out.data + chunks + 16 + 60, 1);   /* base */
    put_le32(out.data + 320 + 28, 2);           /* extents of the file */
    put_le32(out.data + 68, 2);                 /* extents of all */
    put_le64(out.data + 24, out.len);           /* total */
    for (size_t off = 96; off <= 112; off += 8) /* chunks, packs, names */
        put_le64(out.data + off, get_le64(out.data + off) + 16);
    sample_reseal_manifest(out.data, out.len);
    uint8_t *copy = out.data;
    size_t copy_len = out.len;
    out = BUF_INIT(0);
    CLEANUP_MANIFEST struct manifest *m = decoded(copy, copy_len);
    CLEANUP_FREE struct chunk_loc *locs = locations(m);
    CLEANUP_MANIFEST struct manifest *same = relocated(m, locs);
    ck_assert_uint_eq(manifest_info(same)->n_chunks, 5);
    locs[0].encoding = CHUNK_ZSTD;
    CLEANUP_MANIFEST struct manifest *r = relocated(m, locs);
    same_files(m, r);
    ck_assert_uint_eq(manifest_info(r)->n_chunks, 4);
    ck_assert_uint_eq(manifest_info(r)->n_packs, 2);
}
END_TEST

START_TEST(test_manifest_rewrite__relocate_refuses_places_that_cannot_be)
{
    struct cairn_error err;
    CLEANUP_MANIFEST struct manifest *m = sample();
    CLEANUP_FREE struct chunk_loc *locs = locations(m);
    const struct chunk_loc was = locs[1];
    ck_assert_int_eq(was.encoding, CHUNK_RAW);
    uint8_t *data;
    size_t len;
    locs[1].encoding = CHUNK_ZSTD_BASE;
    ck_fails(manifest_relocate(m, locs, &data, &len, &err), CAIRN_INTERNAL);
    locs[1] = was;
    locs[1].offset = 1;
    ck_fails(manifest_relocate(m, locs, &data, &len, &err), CAIRN_INTERNAL);
    locs[1] = was;
    locs[1].stored_len--; /* raw, but shorter than its place */
    ck_fails(manifest_relocate(m, locs, &data, &len, &err), CAIRN_INTERNAL);
    locs[1] = was;
    locs[1].offset = PACK_SIZE_MAX;
    ck_fails(manifest_relocate(m, locs, &data, &len, &err), CAIRN_INTERNAL);
}
END_TEST

START_TEST(test_manifest_rewrite__an_empty_export_can_be_rewritten)
{
    struct cairn_error err;
    uint8_t *data;
    size_t len;
    sample_empty_manifest(&data, &len);
    CLEANUP_MANIFEST struct manifest *m = decoded(data, len);
    struct chunk_loc none;
    CLEANUP_MANIFEST struct manifest *r = relocated(m, &none);
    ck_assert_uint_eq(manifest_info(r)->n_chunks, 0);
    struct manifest_info info;
    sample_info(&info);
    ck_ok(manifest_rename(m, &info, &data, &len, &err));
    CLEANUP_MANIFEST struct manifest *n = decoded(data, len);
    ck_assert_str_eq(manifest_info(n)->id, info.id);
}
END_TEST

TESTING_MAIN(manifest_rewrite, test_manifest_rewrite__rename_changes_the_name_and_nothing_else,
             test_manifest_rewrite__rename_can_drop_the_parent_and_set_a_digest,
             test_manifest_rewrite__rename_to_no_id_is_invalid,
             test_manifest_rewrite__relocate_to_the_same_places_changes_nothing,
             test_manifest_rewrite__relocate_moves_all_chunks_of_a_pack,
             test_manifest_rewrite__relocate_drops_bases_that_nobody_needs,
             test_manifest_rewrite__relocate_keeps_a_base_while_one_chunk_needs_it,
             test_manifest_rewrite__relocate_numbers_chunks_anew_when_one_goes_from_the_middle,
             test_manifest_rewrite__relocate_refuses_places_that_cannot_be,
             test_manifest_rewrite__an_empty_export_can_be_rewritten)
