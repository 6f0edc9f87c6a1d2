/* Manifests that are damaged, and manifests that lie with right checksums. */
#include "base/clock.h"
#include "store/manifest_private.h"
#include "tests/lib/samples.h"
#include "tests/lib/testing.h"

#include <string.h>

static int decode_copy(const uint8_t *data, size_t len, struct manifest **out,
                       struct cairn_error *err)
{
    /* exactly len bytes, so that a sanitizer sees every step past them */
    uint8_t *copy = malloc(len ? len : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, data, len);
    *out = NULL;
    return manifest_decode(copy, len, NULL, NULL, out, err);
}

static void refused(const uint8_t *data, size_t len)
{
    struct cairn_error err;
    struct manifest *m;
    ck_fails(decode_copy(data, len, &m, &err), CAIRN_CORRUPT);
}

/* ---- Damage ---------------------------------------------------------------------------------- */

static void every_bit(void (*sample)(uint8_t **data, size_t *len))
{
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    sample(&data, &len);
    for (size_t i = 0; i < len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            data[i] ^= (uint8_t)(1 << bit);
            refused(data, len);
            data[i] ^= (uint8_t)(1 << bit);
        }
    }
}

START_TEST(test_manifest_check__every_changed_bit_is_corrupt)
{
    every_bit(sample_manifest);
    every_bit(sample_empty_manifest);
}
END_TEST

START_TEST(test_manifest_check__any_other_length_is_corrupt)
{
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    sample_manifest(&data, &len);
    data = realloc(data, len + 16);
    ck_assert_ptr_nonnull(data);
    memset(data + len, 0, 16);
    for (size_t n = 0; n <= len + 16; n++)
        if (n != len)
            refused(data, n);
    for (size_t n = MANIFEST_HEADER_LEN + SHA256_LEN; n < len; n++) {
        CLEANUP_FREE uint8_t *cut = malloc(n);
        ck_assert_ptr_nonnull(cut);
        memcpy(cut, data, n);
        put_le64(cut + MH_TOTAL_LEN, n);
        sample_reseal_manifest(cut, n);
        refused(cut, n);
    }
}
END_TEST

START_TEST(test_manifest_check__header_decode_sees_every_changed_bit)
{
    struct cairn_error err;
    struct manifest_info info;
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    sample_manifest(&data, &len);
    for (size_t i = 0; i < MANIFEST_HEADER_LEN; i++) {
        data[i] ^= 0x10;
        ck_fails(manifest_header_decode(data, &info, &err), CAIRN_CORRUPT);
        data[i] ^= 0x10;
    }
}
END_TEST

START_TEST(test_manifest_check__a_newer_version_is_named)
{
    struct cairn_error err;
    struct manifest *m;
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    sample_manifest(&data, &len);
    put_le32(data + MH_VERSION, 2);
    sample_reseal_manifest(data, len);
    ck_fails(decode_copy(data, len, &m, &err), CAIRN_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.message, "version 2 is newer than this program"));
}
END_TEST

/* ---- Lies ------------------------------------------------------------------------------------ */

/* The sample (tests/lib/samples.c) has these entries:
 *   files    0 config.json  1 disk/…  2 empty  3 memory  4 memory-2  5 nested/deep/a.bin
 *   extents  0: 0 of file 0; 1-3: file 1; 4-7: file 3; 8: file 5
 *   chunks   0 raw, 2 bytes  1 raw  2, 3 zstd (3 at a short place)  4 raw  5, 6 based on 7, 10
 *            7 raw  8 raw  9 raw, 1 byte  10 raw, a base only */
enum where { HEADER, FILES, EXTENTS, CHUNKS, PACKS };

struct lie {
    enum where where;
    uint32_t i, field;
    uint64_t value;
    const char *says; /* part of the message */
};

static uint8_t *place(uint8_t *data, enum where where, uint32_t i)
{
    static const uint32_t entry[] = {0, MANIFEST_FILE_LEN, MANIFEST_EXTENT_LEN, MANIFEST_CHUNK_LEN,
                                     MANIFEST_PACK_LEN};
    static const uint32_t table[] = {0, MH_FILES_OFF, MH_EXTENTS_OFF, MH_CHUNKS_OFF, MH_PACKS_OFF};
    uint64_t off = where == HEADER ? 0 : get_le64(data + table[where]);
    return data + off + (uint64_t)i * entry[where];
}

static void lies32(const struct lie *lies, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        struct cairn_error err;
        struct manifest *m;
        CLEANUP_FREE uint8_t *data = NULL;
        size_t len;
        sample_manifest(&data, &len);
        uint8_t *p = place(data, lies[k].where, lies[k].i) + lies[k].field;
        ck_assert_msg(get_le32(p) != lies[k].value, "lie %zu is the truth", k);
        put_le32(p, (uint32_t)lies[k].value);
        sample_reseal_manifest(data, len);
        ck_fails(decode_copy(data, len, &m, &err), CAIRN_CORRUPT);
        ck_assert_msg(strstr(err.message, lies[k].says) != NULL, "lie %zu: %s, not %s", k,
                      err.message, lies[k].says);
    }
}

START_TEST(test_manifest_check__lies_in_the_header_are_corrupt)
{
    static const struct lie lies[] = {
        {HEADER, 0, MH_VERSION, 0, "no version 0"},
        {HEADER, 0, MH_HEADER_LEN, 319, "another length"},
        {HEADER, 0, MH_HEADER_LEN, 328, "another length"},
        {HEADER, 0, MH_CHUNK_SIZE, 0, "chunk size"},
        {HEADER, 0, MH_CHUNK_SIZE, 2048, "chunk size"},
        {HEADER, 0, MH_CHUNK_SIZE, 2u << 20, "chunk size"},
        {HEADER, 0, MH_CHUNK_SIZE, 4097, "chunk size"},
        {HEADER, 0, MH_CHUNK_SIZE, 8192, ""},
        {HEADER, 0, MH_FLAGS, 0, "without its flag"},
        {HEADER, 0, MH_FLAGS, 1, "parent without"},
        {HEADER, 0, MH_FLAGS, 2, "digest without"},
        {HEADER, 0, MH_FLAGS, 7, "flags"},
        {HEADER, 0, MH_FLAGS, 0x80000003, "flags"},
        {HEADER, 0, MH_TOTAL_LEN, 0, "tables"},
        {HEADER, 0, MH_TOTAL_LEN + 4, 1, "tables"},
        {HEADER, 0, MH_LOGICAL, 7, "sums"},
        {HEADER, 0, MH_DATA, 7, "sums"},
        {HEADER, 0, MH_STORED, 7, "sums"},
        {HEADER, 0, MH_N_FILES, 0, "tables"},
        {HEADER, 0, MH_N_FILES, UINT32_MAX, "tables"},
        {HEADER, 0, MH_N_EXTENTS, UINT32_MAX, "tables"},
        {HEADER, 0, MH_N_CHUNKS, UINT32_MAX, "tables"},
        {HEADER, 0, MH_N_PACKS, UINT32_MAX, "tables"},
        {HEADER, 0, MH_FILES_OFF, 328, "tables"},
        {HEADER, 0, MH_FILES_OFF + 4, 1, "tables"},
        {HEADER, 0, MH_EXTENTS_OFF, 320, "tables"},
        {HEADER, 0, MH_CHUNKS_OFF, 320, "tables"},
        {HEADER, 0, MH_PACKS_OFF, 320, "tables"},
        {HEADER, 0, MH_NAMES_OFF, 320, "tables"},
        {HEADER, 0, MH_NAMES_LEN, 0, "tables"},
        {HEADER, 0, MH_NAMES_LEN, UINT32_MAX, "tables"},
        {HEADER, 0, MH_NAMES_LEN + 4, 1, "tables"},
        {HEADER, 0, MH_ID, 0, "id is none"},
        {HEADER, 0, MH_ID + 36, 1, "id is none"},
        {HEADER, 0, MH_PARENT_ID, 0, "parent's id"},
        {HEADER, 0, MH_PARENT_ID + 20, 0x61, "parent's id"},
        {HEADER, 0, MH_RESERVED, 1, "reserved"},
        {HEADER, 0, MH_SHA - 4, 1u << 31, "reserved"},
    };
    lies32(lies, ARRAY_SIZE(lies));
}
END_TEST

START_TEST(test_manifest_check__lies_about_files_are_corrupt)
{
    static const struct lie lies[] = {
        {FILES, 0, MF_SIZE, 3, "data length"},
        {FILES, 0, MF_SIZE, 0, "past its file"},
        {FILES, 0, MF_SIZE, 4096, "data length"},
        {FILES, 1, MF_SIZE, 4 * 4096, "past its file"},
        {FILES, 2, MF_SIZE + 4, 1u << 31, "too large"},
        {FILES, 2, MF_SIZE + 4, INT32_MAX, "too large"}, /* with the others' sizes */
        {FILES, 2, MF_SIZE, 9, "sums"},
        {FILES, 3, MF_DATA, 7, "data length"},
        {FILES, 3, MF_DATA + 4, 1, "data length"},
        {FILES, 0, MF_NAME_OFF, 1, "path lies"},
        {FILES, 1, MF_NAME_OFF, 0, "path lies"},
        {FILES, 1, MF_NAME_OFF, UINT32_MAX, "path lies"},
        {FILES, 0, MF_NAME_LEN, 0, "no path"},
        {FILES, 0, MF_NAME_LEN, UINT32_MAX, "path lies"},
        {FILES, 0, MF_NAME_LEN, 70, "path lies"},
        {FILES, 5, MF_NAME_LEN, 16, "paths or extents"},
        {FILES, 5, MF_NAME_LEN, 18, "path lies"},
        {FILES, 0, MF_FIRST_EXTENT, 1, "extents lie"},
        {FILES, 2, MF_FIRST_EXTENT, 0, "extents lie"},
        {FILES, 0, MF_N_EXTENTS, 0, "data length"},
        {FILES, 0, MF_N_EXTENTS, 10, "extents lie"},
        {FILES, 0, MF_N_EXTENTS, UINT32_MAX, "extents lie"},
        {FILES, 5, MF_N_EXTENTS, 0, "data length"},
        {FILES, 5, MF_N_EXTENTS, 2, "extents lie"},
    };
    lies32(lies, ARRAY_SIZE(lies));
}
END_TEST

START_TEST(test_manifest_check__lies_about_extents_are_corrupt)
{
    static const struct lie lies[] = {
        {EXTENTS, 0, ME_CHUNK_NO, 1, "past its file"},
        {EXTENTS, 0, ME_CHUNK_NO + 4, UINT32_MAX, "past its file"},
        {EXTENTS, 2, ME_CHUNK_NO, 1, "out of order"},
        {EXTENTS, 3, ME_CHUNK_NO, 3, "out of order"},
        {EXTENTS, 7, ME_CHUNK_NO, 0, "out of order"},
        {EXTENTS, 7, ME_CHUNK_NO, 1u << 24, "past its file"},
        {EXTENTS, 0, ME_COUNT, 0, "past its file"},
        {EXTENTS, 0, ME_COUNT, 2, "past its file"},
        {EXTENTS, 0, ME_COUNT, UINT32_MAX, "past its file"},
        {EXTENTS, 1, ME_COUNT, 4, "out of order"},
        {EXTENTS, 4, ME_COUNT, 8, "past the chunks"},
        {EXTENTS, 4, ME_COUNT, UINT32_MAX, "past its file"},
        {EXTENTS, 0, ME_FIRST, 11, "past the chunks"},
        {EXTENTS, 0, ME_FIRST, UINT32_MAX, "past the chunks"},
        {EXTENTS, 8, ME_FIRST, 10, "past the chunks"},
        {EXTENTS, 0, ME_FIRST, 4, "chunk 0: is not used"},
        {EXTENTS, 0, ME_FIRST, 9, "two lengths"},
        {EXTENTS, 4, ME_FIRST, 0, "two lengths"},
        {EXTENTS, 4, ME_FIRST, 5, "chunk 4: is not used"},
    };
    lies32(lies, ARRAY_SIZE(lies));
}
END_TEST

START_TEST(test_manifest_check__lies_about_chunks_are_corrupt)
{
    static const struct lie lies[] = {
        {CHUNKS, 0, MC_PACK, 3, "no pack"},
        {CHUNKS, 0, MC_PACK, UINT32_MAX, "no pack"},
        {CHUNKS, 0, MC_OFFSET, 0, "outside of its pack"},
        {CHUNKS, 0, MC_OFFSET, 4095, "not aligned"},
        {CHUNKS, 0, MC_OFFSET, PACK_SIZE_MAX, "outside of its pack"},
        {CHUNKS, 1, MC_OFFSET, PACK_SIZE_MAX - 4095, "outside of its pack"},
        {CHUNKS, 1, MC_OFFSET, UINT32_MAX, "outside of its pack"},
        {CHUNKS, 2, MC_OFFSET, 63, "outside of its pack"},
        {CHUNKS, 0, MC_STORED, 0, "stored length"},
        {CHUNKS, 0, MC_STORED, 1, "not as long as its place"},
        {CHUNKS, 1, MC_STORED, 4095, "not as long as its place"},
        {CHUNKS, 1, MC_STORED, 4097, "stored length"},
        {CHUNKS, 1, MC_STORED, 0xffffff, "stored length"},
        {CHUNKS, 1, MC_STORED, 3u << 24 | 4096, "encoding"},
        {CHUNKS, 1, MC_STORED, UINT32_MAX, "encoding"},
        {CHUNKS, 2, MC_STORED, 1u << 24, "stored length"},
        {CHUNKS, 2, MC_STORED, 700, "not aligned"},
        {CHUNKS, 1, MC_STORED, 2u << 24 | 4096, "has no base"},
        {CHUNKS, 5, MC_STORED, 1u << 24 | 60, "a base that it does not need"},
        {CHUNKS, 7, MC_STORED, 2u << 24 | 60, "base has a base"},
        {CHUNKS, 5, MC_BASE, 11, "has no base"},
        {CHUNKS, 5, MC_BASE, UINT32_MAX, "has no base"},
        {CHUNKS, 5, MC_BASE, 5, "base has a base"},
        {CHUNKS, 5, MC_BASE, 6, "base has a base"},
        {CHUNKS, 6, MC_BASE, 7, "is not used"},
        {CHUNKS, 0, MC_BASE, 1, "a base that it does not need"},
        {CHUNKS, 4, MC_BASE, 11, "a base that it does not need"},
        {PACKS, 0, 0, UINT32_MAX, "not greater"},
        {PACKS, 2, 0, 0, "not greater"},
    };
    lies32(lies, ARRAY_SIZE(lies));
}
END_TEST

START_TEST(test_manifest_check__lies_of_several_fields_are_corrupt)
{
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    sample_manifest(&data, &len);
    /* the same pack twice */
    uint8_t keep[MANIFEST_PACK_LEN];
    memcpy(keep, place(data, PACKS, 1), sizeof(keep));
    memcpy(place(data, PACKS, 1), place(data, PACKS, 0), sizeof(keep));
    sample_reseal_manifest(data, len);
    refused(data, len);
    memcpy(place(data, PACKS, 1), keep, sizeof(keep));
    /* two paths that are the same, one that has a NUL, one below a file; all as long as before */
    uint8_t *names = data + get_le64(data + MH_NAMES_OFF);
    ck_assert_int_eq(memcmp(names, "config.jsondisk/\xff\xfe.rawemptymemorymemory-2", 41), 0);
    /* The NUL in octal with all three digits, or it would take the digit behind it. */
    static const char *const bad[] = {"memory-2", "memory/2", "memory\0002", "memor//2",
                                      "memora-2"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        memcpy(names + 33, bad[i], 8);
        sample_reseal_manifest(data, len);
        if (i)
            refused(data, len);
        else { /* the bytes as they were: the test can tell */
            struct cairn_error err;
            CLEANUP_MANIFEST struct manifest *m = NULL;
            ck_ok(decode_copy(data, len, &m, &err));
        }
    }
}
END_TEST

START_TEST(test_manifest_check__padding_is_zero)
{
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    sample_manifest(&data, &len);
    uint64_t end = get_le64(data + MH_NAMES_OFF) + get_le64(data + MH_NAMES_LEN);
    ck_assert_uint_lt(end, len - SHA256_LEN);
    for (; end < len - SHA256_LEN; end++) {
        data[end] = 1;
        sample_reseal_manifest(data, len);
        refused(data, len);
        data[end] = 0;
    }
}
END_TEST

/* Whatever decodes must be safe to walk. */
static void walk(const struct manifest *m)
{
    const struct manifest_info *info = manifest_info(m);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < info->n_files; i++) {
        struct manifest_file f;
        manifest_file(m, i, &f);
        ck_assert_int_eq(manifest_find(m, f.path, f.path_len), i);
        uint64_t run;
        uint32_t chunk;
        for (uint64_t no = 0, k = 0; k < 64; k++, no += run) {
            if (manifest_lookup(m, &f, no, &chunk, &run))
                ck_assert_uint_le(chunk + run, info->n_chunks);
            ck_assert_uint_ge(run, 1);
        }
        sum += f.size;
    }
    ck_assert_uint_eq(sum, info->logical_bytes);
    for (uint32_t i = 0; i < info->n_chunks; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        ck_assert_uint_le(c.loc.offset + c.loc.stored_len, PACK_SIZE_MAX);
    }
}

START_TEST(test_manifest_check__no_value_of_any_word_does_harm)
{
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len, accepted = 0, tried = 0;
    sample_manifest(&data, &len);
    for (size_t i = 0; i + 4 <= len - SHA256_LEN; i += 4) {
        uint32_t was = get_le32(data + i);
        const uint32_t values[] = {0,       1,       was + 1,    was - 1,    was ^ 0x80000000u,
                                   4095,    4096,    0x7fffffff, 0x80000000, UINT32_MAX,
                                   was * 2, was / 2, was << 24};
        for (size_t k = 0; k < ARRAY_SIZE(values); k++) {
            struct cairn_error err;
            CLEANUP_MANIFEST struct manifest *m = NULL;
            put_le32(data + i, values[k]);
            sample_reseal_manifest(data, len);
            int rc = decode_copy(data, len, &m, &err);
            ck_assert_int_eq(rc, rc ? CAIRN_CORRUPT : CAIRN_OK);
            tried++;
            if (!rc) {
                walk(m);
                accepted++;
            }
        }
        put_le32(data + i, was);
    }
    /* hashes, times and the like may be anything; nothing else may */
    ck_assert_uint_gt(accepted, 0);
    ck_assert_uint_lt(accepted, tried / 10 * 8);
}
END_TEST

/* ---- Time and content ------------------------------------------------------------------------ */

START_TEST(test_manifest_check__is_linear_in_the_bytes_given)
{
    enum { N = 60000 }; /* extents, each of them over all N chunks: 3.6e9 references */
    struct cairn_error err;
    CLEANUP_FREE uint8_t *extents = calloc(N, MANIFEST_EXTENT_LEN);
    CLEANUP_FREE uint8_t *chunks = calloc(N, MANIFEST_CHUNK_LEN);
    uint8_t file[MANIFEST_FILE_LEN] = {0}, pack[PACK_ID_LEN] = {1}, *data;
    size_t len;
    ck_assert(extents && chunks);
    const uint64_t size = (uint64_t)N * N * 4096;
    for (uint32_t i = 0; i < N; i++) {
        uint8_t *e = extents + (size_t)i * MANIFEST_EXTENT_LEN;
        put_le64(e + ME_CHUNK_NO, (uint64_t)i * N);
        put_le32(e + ME_COUNT, N);
        uint8_t *c = chunks + (size_t)i * MANIFEST_CHUNK_LEN;
        put_le32(c + MC_SHA, i);
        put_le32(c + MC_OFFSET, 4096);
        put_le32(c + MC_STORED, 4096);
        put_le32(c + MC_BASE, MANIFEST_NO_BASE);
    }
    put_le64(file + MF_SIZE, size);
    put_le64(file + MF_DATA, size);
    put_le32(file + MF_NAME_LEN, 1);
    put_le32(file + MF_N_EXTENTS, N);
    struct manifest_info info;
    sample_info(&info);
    info.chunk_size = 4096;
    info.n_files = info.n_packs = 1;
    info.n_extents = info.n_chunks = N;
    info.logical_bytes = info.data_bytes = size;
    struct manifest_parts parts = {.files = file,
                                   .extents = extents,
                                   .chunks = chunks,
                                   .packs = pack,
                                   .names = (const uint8_t *)"a",
                                   .names_len = 1};
    CLEANUP_MANIFEST struct manifest *m = NULL;
    int64_t start = clock_monotonic();
    ck_ok(manifest_assemble(&info, &parts, &data, &len, &err));
    ck_ok(manifest_decode(data, len, NULL, NULL, &m, &err));
    ck_assert_int_lt(clock_monotonic() - start, 10 * NS_PER_S);
    ck_assert_uint_eq(manifest_info(m)->data_bytes, size);
}
END_TEST

START_TEST(test_manifest_check__content_keys_are_checked_when_asked)
{
    struct cairn_error err;
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    sample_manifest(&data, &len);
    for (uint32_t i = 0; i < get_le32(data + MH_N_FILES); i++) {
        CLEANUP_MANIFEST struct manifest *m = NULL, *lie = NULL;
        ck_ok(decode_copy(data, len, &m, &err));
        ck_ok(manifest_check_content(m, NULL, &err));
        place(data, FILES, i)[MF_CONTENT + MANIFEST_CONTENT_LEN - 1] ^= 1;
        sample_reseal_manifest(data, len);
        ck_ok(decode_copy(data, len, &lie, &err));
        ck_fails(manifest_check_content(lie, NULL, &err), CAIRN_CORRUPT);
        place(data, FILES, i)[MF_CONTENT + MANIFEST_CONTENT_LEN - 1] ^= 1;
        sample_reseal_manifest(data, len);
    }
}
END_TEST

TESTING_MAIN(manifest_check, test_manifest_check__every_changed_bit_is_corrupt,
             test_manifest_check__any_other_length_is_corrupt,
             test_manifest_check__header_decode_sees_every_changed_bit,
             test_manifest_check__a_newer_version_is_named,
             test_manifest_check__lies_in_the_header_are_corrupt,
             test_manifest_check__lies_about_files_are_corrupt,
             test_manifest_check__lies_about_extents_are_corrupt,
             test_manifest_check__lies_about_chunks_are_corrupt,
             test_manifest_check__lies_of_several_fields_are_corrupt,
             test_manifest_check__padding_is_zero,
             test_manifest_check__no_value_of_any_word_does_harm,
             test_manifest_check__is_linear_in_the_bytes_given,
             test_manifest_check__content_keys_are_checked_when_asked)
