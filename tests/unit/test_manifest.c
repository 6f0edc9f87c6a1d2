#include "base/util.h"
#include "store/manifest.h"
#include "tests/lib/samples.h"
#include "tests/lib/testing.h"

#include <string.h>

static struct manifest *sample(void)
{
    struct cairn_error err;
    struct manifest *m;
    uint8_t *data;
    size_t len;
    sample_manifest(&data, &len);
    ck_ok(manifest_decode(data, len, "tp_000102030405060708090a0b0c0d0e0f", "66e99f116e8d369c", &m,
                          &err));
    return m;
}

START_TEST(test_manifest__info_is_what_was_encoded)
{
    CLEANUP_MANIFEST struct manifest *m = sample();
    const struct manifest_info *i = manifest_info(m);
    struct manifest_info want;
    sample_info(&want);
    ck_assert_str_eq(i->id, want.id);
    ck_assert_str_eq(i->gen, want.gen);
    ck_assert_str_eq(i->parent_id, want.parent_id);
    ck_assert_str_eq(i->parent_gen, want.parent_gen);
    ck_assert_int_eq(i->created_ns, want.created_ns);
    ck_assert(i->has_digest);
    ck_assert_mem_eq(i->digest, want.digest, SHA256_LEN);
    ck_assert_uint_eq(i->chunk_size, 4096);
    ck_assert_uint_eq(i->writer_version, 0x000100);
    ck_assert_uint_eq(i->n_files, 6);
    ck_assert_uint_eq(i->logical_bytes, 2 + 5 * 4096 - 96 + (1ull << 36) + (1ull << 44) + 4096 + 1);
    ck_assert_uint_eq(i->data_bytes, 2 + 4 * 4096 - 96 + 7 * 4096 + 4097);
    /* chunks 1..9, 106 which is a base too, and the base 107 */
    ck_assert_uint_eq(i->n_chunks, 11);
    ck_assert_uint_eq(i->stored_bytes,
                      2 + 4096 + 700 + 100 + 4096 + 60 + 61 + 4096 + 4096 + 1 + 4096);
}
END_TEST

START_TEST(test_manifest__header_alone_gives_the_same_info)
{
    struct cairn_error err;
    CLEANUP_MANIFEST struct manifest *m = sample();
    size_t len;
    const uint8_t *data = manifest_bytes(m, &len);
    struct manifest_info info;
    ck_ok(manifest_header_decode(data, &info, &err));
    ck_assert_mem_eq(&info, manifest_info(m), sizeof(info));
    ck_assert_uint_eq(info.total_len, len);
}
END_TEST

START_TEST(test_manifest__find_finds_each_path_and_no_other)
{
    CLEANUP_MANIFEST struct manifest *m = sample();
    struct manifest_file f;
    for (uint32_t i = 0; i < manifest_info(m)->n_files; i++) {
        manifest_file(m, i, &f);
        ck_assert_int_eq(manifest_find(m, f.path, f.path_len), i);
        ck_assert_int_eq(manifest_find(m, f.path, f.path_len - 1), -1);
    }
    ck_assert_int_eq(manifest_find(m, "disk/\xff\xfe.raw", 11), 1);
    ck_assert_int_eq(manifest_find(m, "disk/\xff\xfe.rax", 11), -1);
    ck_assert_int_eq(manifest_find(m, "", 0), -1);
    ck_assert_int_eq(manifest_find(m, "zzz", 3), -1);
}
END_TEST

/* The chunk of the sample that has this sha must be what lookup gives. */
static void at(const struct manifest *m, const struct manifest_file *f, uint64_t no, uint32_t n,
               uint64_t want_run)
{
    uint32_t chunk;
    uint64_t run;
    struct chunk c, want;
    uint8_t xxh[XXH3_LEN];
    ck_assert(manifest_lookup(m, f, no, &chunk, &run));
    ck_assert_uint_eq(run, want_run);
    manifest_chunk(m, chunk, &c);
    sample_chunk(n, n % 3, 1, &want, xxh);
    ck_assert_mem_eq(c.sha, want.sha, SHA256_LEN);
    ck_assert_mem_eq(c.loc.pack, want.loc.pack, PACK_ID_LEN);
}

static void hole(const struct manifest *m, const struct manifest_file *f, uint64_t no,
                 uint64_t want_run)
{
    uint32_t chunk;
    uint64_t run;
    ck_assert(!manifest_lookup(m, f, no, &chunk, &run));
    ck_assert_uint_eq(run, want_run);
}

START_TEST(test_manifest__lookup_gives_chunks_holes_and_runs)
{
    CLEANUP_MANIFEST struct manifest *m = sample();
    struct manifest_file f;
    manifest_file(m, 3, &f);
    ck_assert_uint_eq(f.size, 1ull << 36);
    at(m, &f, 0, 5, 1);
    hole(m, &f, 1, 4);
    hole(m, &f, 4, 1);
    at(m, &f, 5, 6, 3); /* bases stand behind, so the run is not broken */
    at(m, &f, 7, 106, 1);
    hole(m, &f, 8, 1);
    at(m, &f, 9, 2, 2); /* chunks of another file, in its order */
    at(m, &f, 10, 3, 1);
    hole(m, &f, 11, (1u << 24) - 1 - 11);
    at(m, &f, (1u << 24) - 1, 3, 1);
    hole(m, &f, 1u << 24, 1); /* past the end */
    hole(m, &f, UINT64_MAX, 1);
    manifest_file(m, 4, &f);
    hole(m, &f, 0, 1ull << 32);
    manifest_file(m, 2, &f);
    hole(m, &f, 0, 1);
}
END_TEST

START_TEST(test_manifest__chunk_has_its_location_and_base)
{
    CLEANUP_MANIFEST struct manifest *m = sample();
    struct manifest_file f;
    uint32_t i;
    uint64_t run;
    struct chunk c, want;
    uint8_t xxh[XXH3_LEN];
    manifest_file(m, 3, &f);
    ck_assert(manifest_lookup(m, &f, 6, &i, &run));
    manifest_chunk(m, i, &c);
    sample_based(7, 1, 61, 107, 4096, &want, xxh);
    want.loc.plain_len = 0;
    ck_assert_mem_eq(&c, &want, sizeof(c));
    ck_assert_mem_eq(manifest_chunk_xxh(m, i), xxh, XXH3_LEN);
    uint32_t base = manifest_chunk_base(m, i);
    ck_assert_uint_lt(base, manifest_info(m)->n_chunks);
    ck_assert(util_is_zero(manifest_chunk_xxh(m, base), XXH3_LEN));
    ck_assert_uint_eq(manifest_chunk_base(m, base), UINT32_MAX);
    ck_assert_mem_eq(manifest_pack(m, manifest_chunk_pack(m, i)), want.loc.pack, PACK_ID_LEN);
}
END_TEST

START_TEST(test_manifest__an_export_may_be_empty)
{
    struct cairn_error err;
    CLEANUP_MANIFEST struct manifest *m = NULL;
    uint8_t *data;
    size_t len;
    sample_empty_manifest(&data, &len);
    ck_assert_uint_eq(len, MANIFEST_HEADER_LEN + SHA256_LEN);
    ck_ok(manifest_decode(data, len, NULL, NULL, &m, &err));
    ck_assert_uint_eq(manifest_info(m)->n_files, 0);
    ck_assert_str_eq(manifest_info(m)->parent_id, "");
    ck_assert_str_eq(manifest_info(m)->parent_gen, "");
    ck_assert(!manifest_info(m)->has_digest);
    ck_assert_int_eq(manifest_find(m, "a", 1), -1);
    ck_ok(manifest_check_content(m, NULL, &err));
}
END_TEST

START_TEST(test_manifest__of_another_key_is_corrupt)
{
    struct cairn_error err;
    struct manifest *m;
    uint8_t *data;
    size_t len;
    sample_manifest(&data, &len);
    ck_fails(manifest_decode(data, len, "ck_00000000000000aa", NULL, &m, &err), CAIRN_CORRUPT);
    sample_manifest(&data, &len);
    ck_fails(manifest_decode(data, len, NULL, "66e99f116e8d369d", &m, &err), CAIRN_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.message, "66e99f116e8d369c"));
}
END_TEST

START_TEST(test_manifest__paths_follow_the_rules)
{
    static const char *const good[] = {"a", "a/b", "...", ".a", "a.", "..a", "a b", "\xff", "a/.b"};
    static const char *const bad[] = {"",   "/",   "/a",   "a/",    "a//b",   ".",
                                      "..", "./a", "a/..", "a/./b", "../../a"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_assert_msg(manifest_path_is_valid(good[i], strlen(good[i])), "%s", good[i]);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!manifest_path_is_valid(bad[i], strlen(bad[i])), "%s", bad[i]);
    ck_assert(!manifest_path_is_valid("a\0b", 3));
    char longest[MANIFEST_PATH_MAX + 2];
    memset(longest, 'x', sizeof(longest));
    ck_assert(manifest_path_is_valid(longest, 255));
    ck_assert(!manifest_path_is_valid(longest, 256));
    for (size_t i = 200; i < sizeof(longest); i += 200)
        longest[i] = '/';
    ck_assert(manifest_path_is_valid(longest, MANIFEST_PATH_MAX));
    ck_assert(!manifest_path_is_valid(longest, MANIFEST_PATH_MAX + 1));
}
END_TEST

TESTING_MAIN(manifest, test_manifest__info_is_what_was_encoded,
             test_manifest__header_alone_gives_the_same_info,
             test_manifest__find_finds_each_path_and_no_other,
             test_manifest__lookup_gives_chunks_holes_and_runs,
             test_manifest__chunk_has_its_location_and_base, test_manifest__an_export_may_be_empty,
             test_manifest__of_another_key_is_corrupt, test_manifest__paths_follow_the_rules)
