#include "base/util.h"
#include "store/manifest.h"
#include "tests/lib/samples.h"
#include "tests/lib/testing.h"

#include <stdio.h>
#include <string.h>

#define CHUNK 4096u

static struct manifest_builder *builder(uint32_t chunk_size)
{
    struct cairn_error err;
    struct manifest_builder *b;
    ck_ok(manifest_builder_new(chunk_size, &b, &err));
    return b;
}

static void begin(struct manifest_builder *b, const char *path, uint64_t size)
{
    struct cairn_error err;
    ck_ok(manifest_builder_file_begin(b, path, strlen(path), size, &err));
}

static void end(struct manifest_builder *b)
{
    struct cairn_error err;
    ck_ok(manifest_builder_file_end(b, &err));
}

static void add(struct manifest_builder *b, uint64_t no, uint32_t n, uint32_t len)
{
    struct cairn_error err;
    struct chunk c;
    uint8_t xxh[XXH3_LEN];
    sample_chunk(n, n % 3, len, &c, xxh);
    ck_ok(manifest_builder_chunk(b, no, &c, xxh, &err));
}

static void add_chunk(struct manifest_builder *b, uint64_t no, const struct chunk *c)
{
    struct cairn_error err;
    uint8_t xxh[XXH3_LEN] = {1};
    ck_ok(manifest_builder_chunk(b, no, c, xxh, &err));
}

/* Encode, free the builder, decode. */
static struct manifest *finish(struct manifest_builder *b)
{
    struct cairn_error err;
    struct manifest_info info;
    struct manifest *m;
    uint8_t *data;
    size_t len;
    sample_info(&info);
    ck_ok(manifest_builder_encode(b, &info, &data, &len, &err));
    manifest_builder_free(b);
    ck_ok(manifest_decode(data, len, NULL, NULL, &m, &err));
    ck_ok(manifest_check_content(m, NULL, &err));
    return m;
}

static size_t length(const struct manifest *m)
{
    size_t len;
    manifest_bytes(m, &len);
    return len;
}

/* ---- Size ------------------------------------------------------------------------------------ */

START_TEST(test_manifest_builder__64_gib_with_three_writes_take_less_than_1_kib)
{
    static const uint32_t sizes[] = {4096, 65536, 1u << 20};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct manifest_builder *b = builder(sizes[i]);
        begin(b, "disk.raw", 1ull << 36);
        add(b, 0, 1, sizes[i]);
        add(b, 123456789012 / sizes[i] / 2, 2, sizes[i]);
        add(b, (1ull << 36) / sizes[i] - 1, 3, sizes[i]);
        end(b);
        CLEANUP_MANIFEST struct manifest *m = finish(b);
        ck_assert_uint_lt(length(m), 1024);
        ck_assert_uint_eq(manifest_info(m)->data_bytes, 3 * sizes[i]);
    }
}
END_TEST

START_TEST(test_manifest_builder__a_chunk_takes_64_bytes)
{
    enum { N = 300000 };
    struct manifest_builder *b = builder(65536);
    begin(b, "memory", (uint64_t)N * 65536);
    for (uint32_t i = 0; i < N; i++)
        add(b, i, i, 65536);
    end(b);
    CLEANUP_MANIFEST struct manifest *m = finish(b);
    ck_assert_uint_eq(manifest_info(m)->n_extents, 1);
    ck_assert_uint_eq(manifest_info(m)->n_chunks, N);
    ck_assert_uint_eq(length(m), 320 + 48 + 16 + (size_t)N * 64 + 3 * 16 + 8 + 32);
    struct manifest_file f;
    struct chunk c, want;
    uint8_t xxh[XXH3_LEN];
    uint32_t i;
    uint64_t run;
    manifest_file(m, 0, &f);
    ck_assert(manifest_lookup(m, &f, N - 2, &i, &run));
    ck_assert_uint_eq(run, 2);
    manifest_chunk(m, i, &c);
    sample_chunk(N - 2, (N - 2) % 3, 65536, &want, xxh);
    ck_assert_mem_eq(c.sha, want.sha, SHA256_LEN);
}
END_TEST

START_TEST(test_manifest_builder__16_tib_files_and_chunk_numbers_past_32_bits)
{
    struct manifest_builder *b = builder(CHUNK);
    begin(b, "a", 1ull << 44);
    add(b, (1ull << 32) - 1, 1, CHUNK);
    end(b);
    begin(b, "b", (1ull << 45) + 1);
    add(b, 1ull << 33, 2, 1);
    end(b);
    CLEANUP_MANIFEST struct manifest *m = finish(b);
    struct manifest_file f;
    uint32_t i;
    uint64_t run;
    manifest_file(m, 0, &f);
    ck_assert(!manifest_lookup(m, &f, 0, &i, &run));
    ck_assert_uint_eq(run, (1ull << 32) - 1);
    ck_assert(manifest_lookup(m, &f, (1ull << 32) - 1, &i, &run));
    manifest_file(m, 1, &f);
    ck_assert(manifest_lookup(m, &f, 1ull << 33, &i, &run));
    ck_assert(!manifest_lookup(m, &f, 1, &i, &run));
    ck_assert_uint_eq(run, (1ull << 33) - 1);
    ck_assert_uint_eq(manifest_info(m)->data_bytes, CHUNK + 1);
}
END_TEST

START_TEST(test_manifest_builder__files_as_large_as_off_t_and_no_larger)
{
    struct cairn_error err;
    struct manifest_builder *b = builder(CHUNK);
    ck_fails(manifest_builder_file_begin(b, "a", 1, 1ull << 63, &err), CAIRN_INVALID);
    begin(b, "a", INT64_MAX);
    add(b, INT64_MAX / CHUNK, 1, CHUNK - 1);
    end(b);
    ck_fails(manifest_builder_file_begin(b, "b", 1, 1, &err), CAIRN_INVALID);
    begin(b, "b", 0);
    end(b);
    CLEANUP_MANIFEST struct manifest *m = finish(b);
    ck_assert_uint_eq(manifest_info(m)->logical_bytes, INT64_MAX);
}
END_TEST

/* ---- Chunks ---------------------------------------------------------------------------------- */

START_TEST(test_manifest_builder__equal_chunks_are_stored_once_where_they_were_first)
{
    struct manifest_builder *b = builder(CHUNK);
    struct chunk first, again, found;
    uint8_t xxh[XXH3_LEN];
    sample_chunk(1, 1, CHUNK, &first, xxh);
    again = first;
    again.loc.offset += CHUNK;
    sample_pack_id(9, again.loc.pack);
    ck_assert(!manifest_builder_find(b, first.sha, &found));
    begin(b, "a", 8 * CHUNK);
    add_chunk(b, 0, &first);
    add(b, 1, 2, CHUNK);
    add_chunk(b, 2, &again); /* 1, 2, 1: no run */
    add(b, 3, 2, CHUNK);     /* 1, 2 again: a run */
    add(b, 5, 3, CHUNK);     /* behind a hole */
    end(b);
    ck_assert(manifest_builder_find(b, first.sha, &found));
    ck_assert_mem_eq(found.loc.pack, first.loc.pack, PACK_ID_LEN);
    ck_assert_uint_eq(found.loc.offset, first.loc.offset);
    CLEANUP_MANIFEST struct manifest *m = finish(b);
    ck_assert_uint_eq(manifest_info(m)->n_chunks, 3);
    ck_assert_uint_eq(manifest_info(m)->n_extents, 3);
    ck_assert_uint_eq(manifest_info(m)->n_packs, 3); /* not 9 */
    ck_assert_uint_eq(manifest_info(m)->data_bytes, 5 * CHUNK);
    ck_assert_uint_eq(manifest_info(m)->stored_bytes, 3 * CHUNK);
}
END_TEST

START_TEST(test_manifest_builder__content_tells_files_with_equal_bytes)
{
    struct manifest_builder *b = builder(CHUNK);
    static const struct {
        const char *path;
        uint64_t size, no;
        uint32_t n;
    } files[] = {{"a", 2 * CHUNK, 0, 1},
                 {"b", 2 * CHUNK, 0, 1},
                 {"c", 2 * CHUNK, 1, 1},
                 {"d", 2 * CHUNK, 0, 2},
                 {"e", 3 * CHUNK, 0, 1}};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        begin(b, files[i].path, files[i].size);
        add(b, files[i].no, files[i].n, CHUNK);
        end(b);
    }
    CLEANUP_MANIFEST struct manifest *m = finish(b);
    struct manifest_file a, f;
    manifest_file(m, 0, &a);
    for (uint32_t i = 1; i < ARRAY_SIZE(files); i++) {
        manifest_file(m, i, &f);
        ck_assert_int_eq(memcmp(a.content, f.content, MANIFEST_CONTENT_LEN) == 0, i == 1);
    }
}
END_TEST

/* Chunk n of a file at chunk_no 0.., raw or based, for the tests of bases below. */
static struct chunk raw(uint32_t n)
{
    struct chunk c;
    uint8_t xxh[XXH3_LEN];
    sample_chunk(n, 1, CHUNK, &c, xxh);
    return c;
}

static struct chunk based(uint32_t n, uint32_t base)
{
    struct chunk c;
    uint8_t xxh[XXH3_LEN];
    sample_based(n, 0, 50 + n, base, CHUNK, &c, xxh);
    return c;
}

static void check_base(const struct manifest *m, uint32_t i, bool has)
{
    uint32_t base = manifest_chunk_base(m, i);
    ck_assert_int_eq(base != UINT32_MAX, has);
    if (has)
        ck_assert_uint_eq(manifest_chunk_base(m, base), UINT32_MAX);
}

START_TEST(test_manifest_builder__bases_stand_behind_and_once)
{
    struct manifest_builder *b = builder(CHUNK);
    const struct chunk c[] = {based(1, 10), based(2, 11), based(3, 10), raw(4), based(5, 4)};
    begin(b, "a", 5 * CHUNK);
    for (size_t i = 0; i < ARRAY_SIZE(c); i++)
        add_chunk(b, i, &c[i]);
    struct chunk found;
    ck_assert(manifest_builder_find(b, c[1].sha, &found));
    ck_assert_mem_eq(found.base_sha, c[1].base_sha, SHA256_LEN);
    ck_assert_mem_eq(&found.base, &c[1].base, sizeof(found.base));
    end(b);
    CLEANUP_MANIFEST struct manifest *m = finish(b);
    ck_assert_uint_eq(manifest_info(m)->n_chunks, 7);
    ck_assert_uint_eq(manifest_info(m)->n_extents, 1);
    ck_assert_uint_eq(manifest_chunk_base(m, 0), 5);
    ck_assert_uint_eq(manifest_chunk_base(m, 1), 6);
    ck_assert_uint_eq(manifest_chunk_base(m, 2), 5);
    ck_assert_uint_eq(manifest_chunk_base(m, 4), 3);
    ck_assert_uint_eq(manifest_info(m)->stored_bytes, 51 + 52 + 53 + 55 + 3 * CHUNK);
}
END_TEST

START_TEST(test_manifest_builder__a_base_that_is_based_elsewhere_is_taken_where_it_is_not)
{
    /* 1 on 2 and 2 on 1, and 3 on 1: each base is said to lie unbased somewhere */
    struct manifest_builder *b = builder(CHUNK);
    const struct chunk c[] = {based(1, 2), based(2, 1), based(3, 1), based(4, 20)};
    begin(b, "a", 4 * CHUNK);
    for (size_t i = 0; i < ARRAY_SIZE(c); i++)
        add_chunk(b, i, &c[i]);
    end(b);
    CLEANUP_MANIFEST struct manifest *m = finish(b);
    /* 2 moved (base of 1), then 1 (base of 3); 20 was added */
    ck_assert_uint_eq(manifest_info(m)->n_chunks, 5);
    check_base(m, 0, false);
    check_base(m, 1, false);
    check_base(m, 2, true);
    check_base(m, 3, true);
    struct chunk got;
    manifest_chunk(m, 0, &got);
    ck_assert_int_eq(got.loc.encoding, CHUNK_RAW);
    ck_assert_uint_eq(got.loc.offset, c[1].base.offset);
}
END_TEST

START_TEST(test_manifest_builder__bases_that_are_no_more_needed_are_left_out)
{
    /* 1 is based on 7, but as the base of 2 it moves to its raw place: nobody needs 7 */
    struct manifest_builder *b = builder(CHUNK);
    const struct chunk c[] = {based(1, 7), based(2, 1)};
    begin(b, "a", 2 * CHUNK);
    add_chunk(b, 0, &c[0]);
    add_chunk(b, 1, &c[1]);
    end(b);
    CLEANUP_MANIFEST struct manifest *m = finish(b);
    ck_assert_uint_eq(manifest_info(m)->n_chunks, 2);
    ck_assert_uint_eq(manifest_chunk_base(m, 1), 0);
}
END_TEST

/* ---- Refusals -------------------------------------------------------------------------------- */

START_TEST(test_manifest_builder__bad_chunks_are_refused_and_do_no_harm)
{
    struct cairn_error err;
    struct manifest_builder *b = builder(CHUNK);
    uint8_t xxh[XXH3_LEN] = {0};
    struct chunk c = raw(1);
    ck_fails(manifest_builder_chunk(b, 0, &c, xxh, &err), CAIRN_INTERNAL); /* no file */
    begin(b, "a", 3 * CHUNK + 1);
    struct chunk bad[10];
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        bad[i] = i < 7 ? raw(2) : based(2, 3);
    bad[0].loc.offset = 0;
    bad[1].loc.offset = CHUNK + 1;
    bad[2].loc.offset = PACK_SIZE_MAX;
    bad[3].loc.stored_len = bad[3].loc.plain_len = CHUNK - 1;
    bad[4].loc.stored_len = 0;
    bad[5].loc.encoding = 3;
    bad[6].loc.plain_len = CHUNK - 1;
    bad[7].base.encoding = CHUNK_ZSTD_BASE;
    bad[8].base.stored_len = 2 * CHUNK;
    memcpy(bad[9].base_sha, bad[9].sha, SHA256_LEN);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_fails(manifest_builder_chunk(b, 0, &bad[i], xxh, &err), CAIRN_INTERNAL);
    add(b, 1, 4, CHUNK);
    ck_fails(manifest_builder_chunk(b, 1, &c, xxh, &err), CAIRN_INTERNAL); /* the same place */
    ck_fails(manifest_builder_chunk(b, 0, &c, xxh, &err), CAIRN_INTERNAL); /* before */
    ck_fails(manifest_builder_chunk(b, 4, &c, xxh, &err), CAIRN_INTERNAL); /* past the file */
    ck_fails(manifest_builder_chunk(b, 3, &c, xxh, &err), CAIRN_INTERNAL); /* too long there */
    add(b, 3, 5, 1);
    end(b);
    CLEANUP_MANIFEST struct manifest *m = finish(b);
    ck_assert_uint_eq(manifest_info(m)->n_chunks, 2);
}
END_TEST

START_TEST(test_manifest_builder__what_would_not_decode_is_not_encoded)
{
    /* a chunk known at full length stands for the one byte at the end */
    struct cairn_error err;
    struct manifest_builder *b = builder(CHUNK);
    struct manifest_info info;
    uint8_t *data;
    size_t len;
    begin(b, "a", CHUNK + 1);
    add(b, 0, 1, CHUNK);
    add(b, 1, 1, 1);
    end(b);
    sample_info(&info);
    ck_fails(manifest_builder_encode(b, &info, &data, &len, &err), CAIRN_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.message, "two lengths"));
    manifest_builder_free(b);
}
END_TEST

START_TEST(test_manifest_builder__calls_out_of_order_and_bad_names_are_refused)
{
    struct cairn_error err;
    struct manifest_builder *b = builder(CHUNK);
    struct manifest_info info, bad;
    uint8_t *data;
    size_t len;
    sample_info(&info);
    ck_fails(manifest_builder_file_end(b, &err), CAIRN_INTERNAL);
    begin(b, "a", 0);
    ck_fails(manifest_builder_file_begin(b, "b", 1, 0, &err), CAIRN_INTERNAL);
    ck_fails(manifest_builder_encode(b, &info, &data, &len, &err), CAIRN_INTERNAL);
    end(b);
    bad = info;
    bad.id[0] = 'x';
    ck_fails(manifest_builder_encode(b, &bad, &data, &len, &err), CAIRN_INVALID);
    bad = info;
    bad.gen[15] = 0;
    ck_fails(manifest_builder_encode(b, &bad, &data, &len, &err), CAIRN_INVALID);
    bad = info;
    bad.parent_id[0] = 0;
    ck_fails(manifest_builder_encode(b, &bad, &data, &len, &err), CAIRN_INVALID);
    bad = info;
    bad.parent_gen[0] = 0;
    ck_fails(manifest_builder_encode(b, &bad, &data, &len, &err), CAIRN_INVALID);
    manifest_builder_free(b);
    manifest_builder_free(NULL);
    ck_fails(manifest_builder_new(5000, &b, &err), CAIRN_INVALID);
}
END_TEST

START_TEST(test_manifest_builder__refused_paths_say_why)
{
    static const struct {
        const char *path, *says;
    } bad[] = {{"", "no path"},           {"/x", "no path"},    {"x/../y", "no path"},
               {"m", "not greater"},      {"a", "not greater"}, {"m/x", "below another"},
               {"m-n/x", "below another"}};
    struct cairn_error err;
    struct manifest_builder *b = builder(CHUNK);
    char longest[MANIFEST_PATH_MAX + 1];
    memset(longest, 'z', sizeof(longest));
    begin(b, "m", 0);
    end(b);
    begin(b, "m-n", 0);
    end(b);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_fails(manifest_builder_file_begin(b, bad[i].path, strlen(bad[i].path), 0, &err),
                 CAIRN_INVALID);
        ck_assert_msg(strstr(err.message, bad[i].says) != NULL, "%s", err.message);
    }
    ck_fails(manifest_builder_file_begin(b, longest, sizeof(longest), 0, &err), CAIRN_INVALID);
    begin(b, "m-o/x", 0);
    end(b);
    begin(b, "m-o/x-y", 0);
    end(b);
    ck_fails(manifest_builder_file_begin(b, "m-o/x/z", 7, 0, &err), CAIRN_INVALID);
    begin(b, "n", 0); /* refused ones did no harm */
    end(b);
    CLEANUP_MANIFEST struct manifest *m = finish(b);
    ck_assert_uint_eq(manifest_info(m)->n_files, 5);
}
END_TEST

/* Whether p may follow the n paths taken before, found the slow way. */
static bool may_follow(char (*taken)[8], size_t n, const char *p)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(taken[i]);
        if (strcmp(taken[i], p) >= 0 || (strncmp(taken[i], p, len) == 0 && p[len] == '/'))
            return false;
    }
    return manifest_path_is_valid(p, strlen(p));
}

START_TEST(test_manifest_builder__takes_exactly_the_paths_that_may_follow)
{
    uint64_t seed = 1;
    size_t refused = 0;
    for (int round = 0; round < 3000; round++) {
        struct cairn_error err;
        struct manifest_builder *b = builder(CHUNK);
        char taken[64][8];
        size_t n = 0;
        for (int k = 0; k < 40; k++) {
            char p[8] = "";
            size_t len = 1 + testing_random(&seed) % 6;
            for (size_t i = 0; i < len; i++)
                p[i] = "a-/b"[testing_random(&seed) % 4];
            bool may = may_follow(taken, n, p);
            int rc = manifest_builder_file_begin(b, p, len, 0, &err);
            ck_assert_msg((rc == CAIRN_OK) == may, "%s: %d", p, rc);
            if (rc) {
                refused += strstr(err.message, "below") != NULL;
                continue;
            }
            end(b);
            memcpy(taken[n++], p, sizeof(p));
        }
        CLEANUP_MANIFEST struct manifest *m = finish(b);
        ck_assert_uint_eq(manifest_info(m)->n_files, n);
    }
    ck_assert_uint_gt(refused, 100);
}
END_TEST

TESTING_MAIN(manifest_builder, test_manifest_builder__64_gib_with_three_writes_take_less_than_1_kib,
             test_manifest_builder__a_chunk_takes_64_bytes,
             test_manifest_builder__16_tib_files_and_chunk_numbers_past_32_bits,
             test_manifest_builder__files_as_large_as_off_t_and_no_larger,
             test_manifest_builder__equal_chunks_are_stored_once_where_they_were_first,
             test_manifest_builder__content_tells_files_with_equal_bytes,
             test_manifest_builder__bases_stand_behind_and_once,
             test_manifest_builder__a_base_that_is_based_elsewhere_is_taken_where_it_is_not,
             test_manifest_builder__bases_that_are_no_more_needed_are_left_out,
             test_manifest_builder__bad_chunks_are_refused_and_do_no_harm,
             test_manifest_builder__what_would_not_decode_is_not_encoded,
             test_manifest_builder__calls_out_of_order_and_bad_names_are_refused,
             test_manifest_builder__refused_paths_say_why,
             test_manifest_builder__takes_exactly_the_paths_that_may_follow)
