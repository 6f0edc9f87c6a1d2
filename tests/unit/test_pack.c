#include "base/util.h"
#include "store/pack.h"
#include "tests/lib/samples.h"
#include "tests/lib/testing.h"

#include <string.h>

/* Decode a whole pack object as a reader would. */
static int decode(const uint8_t *data, size_t len, const uint8_t pack[PACK_ID_LEN],
                  struct pack_entry **entries, uint32_t *n, struct cairn_error *err)
{
    uint64_t off;
    uint32_t chunk_size;
    *entries = NULL;
    if (len < PACK_HEADER_LEN + PACK_TRAILER_LEN)
        return error_set(err, CAIRN_CORRUPT, 0, "too short to look at");
    const uint8_t *trailer = data + len - PACK_TRAILER_LEN;
    int rc = pack_trailer_decode(trailer, len, &off, n, err);
    if (rc)
        return rc;
    return pack_index_decode(pack, data, data + off, off, *n, trailer, entries, &chunk_size, err);
}

struct fixture {
    struct buf data;
    uint8_t pack[PACK_ID_LEN];
    struct pack_entry entries[SAMPLE_PACK_ENTRIES];
};

static void setup(struct fixture *f)
{
    sample_pack(&f->data, f->pack, f->entries);
}

static void fails(const struct fixture *f)
{
    struct cairn_error err;
    struct pack_entry *list;
    uint32_t n;
    ck_fails(decode(f->data.data, f->data.len, f->pack, &list, &n, &err), CAIRN_CORRUPT);
}

START_TEST(test_pack__index_decodes_to_what_was_encoded)
{
    struct cairn_error err;
    struct fixture f;
    CLEANUP_FREE struct pack_entry *list = NULL;
    uint32_t n;
    setup(&f);
    ck_ok(decode(f.data.data, f.data.len, f.pack, &list, &n, &err));
    ck_assert_uint_eq(n, SAMPLE_PACK_ENTRIES);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_mem_eq(list[i].sha, f.entries[i].sha, SHA256_LEN);
        ck_assert_mem_eq(list[i].base_sha, f.entries[i].base_sha, SHA256_LEN);
        ck_assert_uint_eq(list[i].offset, f.entries[i].offset);
        ck_assert_uint_eq(list[i].stored_len, f.entries[i].stored_len);
        ck_assert_uint_eq(list[i].plain_len, f.entries[i].plain_len);
        ck_assert_uint_eq(list[i].encoding, f.entries[i].encoding);
    }
    buf_release(&f.data);
}
END_TEST

START_TEST(test_pack__every_changed_byte_of_header_index_and_trailer_is_corrupt)
{
    struct fixture f;
    setup(&f);
    size_t index = f.data.len - PACK_TRAILER_LEN - SAMPLE_PACK_ENTRIES * PACK_ENTRY_LEN;
    for (size_t i = 0; i < f.data.len; i++) {
        if (i == PACK_HEADER_LEN)
            i = index;
        for (int bit = 0; bit < 8; bit++) {
            f.data.data[i] ^= (uint8_t)(1 << bit);
            fails(&f);
            f.data.data[i] ^= (uint8_t)(1 << bit);
        }
    }
    buf_release(&f.data);
}
END_TEST

START_TEST(test_pack__cut_at_any_length_is_corrupt)
{
    struct fixture f;
    setup(&f);
    for (f.data.len--; f.data.len; f.data.len--)
        fails(&f);
    buf_release(&f.data);
}
END_TEST

START_TEST(test_pack__under_another_name_is_corrupt)
{
    struct fixture f;
    setup(&f);
    f.pack[PACK_ID_LEN - 1] ^= 1;
    fails(&f);
    buf_release(&f.data);
}
END_TEST

START_TEST(test_pack__a_newer_version_is_named)
{
    struct cairn_error err;
    struct fixture f;
    struct pack_entry *list;
    uint32_t n;
    setup(&f);
    put_le32(f.data.data + 8, 2);
    sample_reseal_pack(f.data.data, f.data.len);
    ck_fails(decode(f.data.data, f.data.len, f.pack, &list, &n, &err), CAIRN_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.message, "version 2 is newer than this program"));
    buf_release(&f.data);
    setup(&f);
    put_le32(f.data.data + f.data.len - PACK_TRAILER_LEN + 8, 3);
    sample_reseal_pack(f.data.data, f.data.len);
    ck_fails(decode(f.data.data, f.data.len, f.pack, &list, &n, &err), CAIRN_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.message, "version 3 is newer than this program"));
    buf_release(&f.data);
}
END_TEST

/* Set a 32-bit field, make the checksum right, and it must be refused. */
static void refused(size_t off, bool from_end, uint32_t value)
{
    struct fixture f;
    setup(&f);
    uint8_t *p = f.data.data + (from_end ? f.data.len - off : off);
    ck_assert_uint_ne(get_le32(p), value);
    put_le32(p, value);
    sample_reseal_pack(f.data.data, f.data.len);
    fails(&f);
    buf_release(&f.data);
}

START_TEST(test_pack__resealed_nonsense_is_corrupt)
{
    /* of the trailer, from the end */
    static const struct {
        size_t off;
        uint32_t value;
    } trailer[] = {{56, 0},    {52, 0},          {52, 2}, {52, 4}, {52, UINT32_MAX}, {48, 0},
                   {48, 8241}, {48, UINT32_MAX}, {44, 1}, {40, 1}, {36, 1}};
    static const struct {
        size_t off;
        uint32_t value;
    } header[] = {{8, 0}, {12, 0}, {12, 4097}, {12, 2048}, {12, 2u << 20}, {32, 1}, {60, 1}};
    for (size_t i = 0; i < ARRAY_SIZE(trailer); i++)
        refused(trailer[i].off, true, trailer[i].value);
    for (size_t i = 0; i < ARRAY_SIZE(header); i++)
        refused(header[i].off, false, header[i].value);
}
END_TEST

START_TEST(test_pack__resealed_bad_entries_are_corrupt)
{
    enum { RAW, ZSTD, BASED };
    static const struct {
        int entry;
        size_t off;
        uint32_t value;
    } fields[] = {
        {RAW, 32, 1},
        {RAW, 64, 0},
        {RAW, 64, 4097},
        {RAW, 64, 8192},
        {RAW, 64, UINT32_MAX},
        {RAW, 68, 0},
        {RAW, 68, 4095},
        {RAW, 68, 3u << 24 | 4096},
        {RAW, 68, 0xff001000},
        {RAW, 72, 0},
        {RAW, 72, 4095},
        {RAW, 72, 4097},
        {RAW, 76, 1},
        {ZSTD, 32, 1},
        {ZSTD, 64, 63},
        {ZSTD, 64, 8210},
        {ZSTD, 68, 1u << 24},
        {ZSTD, 68, 1u << 24 | 4097},
        {ZSTD, 72, 0},
        {ZSTD, 72, 4097},
        {BASED, 64, 8226},
        {BASED, 72, 8192},
        {BASED, 72, UINT32_MAX},
    };
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        size_t entry = (size_t)fields[i].entry * PACK_ENTRY_LEN;
        size_t index = PACK_TRAILER_LEN + SAMPLE_PACK_ENTRIES * PACK_ENTRY_LEN - entry;
        refused(index - fields[i].off, true, fields[i].value);
    }
}
END_TEST

START_TEST(test_pack__its_own_base_is_corrupt)
{
    struct fixture f;
    setup(&f);
    uint8_t *entry = f.data.data + f.data.len - PACK_TRAILER_LEN - PACK_ENTRY_LEN;
    memcpy(entry + 32, entry, SHA256_LEN);
    sample_reseal_pack(f.data.data, f.data.len);
    fails(&f);
    buf_release(&f.data);
}
END_TEST

START_TEST(test_pack__encode_refuses_what_decode_would)
{
    struct cairn_error err;
    struct fixture f;
    uint8_t header[PACK_HEADER_LEN];
    CLEANUP_BUF struct buf out = BUF_INIT(1024);
    setup(&f);
    memcpy(header, f.data.data, sizeof(header));
    ck_fails(pack_index_encode(header, 8241, f.entries, SAMPLE_PACK_ENTRIES, &out, &err),
             CAIRN_INTERNAL);
    ck_fails(pack_index_encode(header, 63, NULL, 0, &out, &err), CAIRN_INTERNAL);
    ck_fails(pack_index_encode(header, PACK_SIZE_MAX - PACK_TRAILER_LEN + 1, NULL, 0, &out, &err),
             CAIRN_INTERNAL);
    ck_fails(pack_index_encode(header, UINT64_MAX, NULL, 0, &out, &err), CAIRN_INTERNAL);
    ck_assert_uint_eq(out.len, 0);
    ck_ok(pack_index_encode(header, PACK_SIZE_MAX - PACK_TRAILER_LEN, NULL, 0, &out, &err));
    uint64_t off;
    uint32_t n;
    ck_ok(pack_trailer_decode(out.data, PACK_SIZE_MAX, &off, &n, &err));
    ck_fails(pack_trailer_decode(out.data, (uint64_t)PACK_SIZE_MAX + 1, &off, &n, &err),
             CAIRN_CORRUPT);
    buf_release(&f.data);
}
END_TEST

TESTING_MAIN(pack, test_pack__index_decodes_to_what_was_encoded,
             test_pack__every_changed_byte_of_header_index_and_trailer_is_corrupt,
             test_pack__cut_at_any_length_is_corrupt, test_pack__under_another_name_is_corrupt,
             test_pack__a_newer_version_is_named, test_pack__resealed_nonsense_is_corrupt,
             test_pack__resealed_bad_entries_are_corrupt, test_pack__its_own_base_is_corrupt,
             test_pack__encode_refuses_what_decode_would)
