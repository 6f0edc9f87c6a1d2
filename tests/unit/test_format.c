#include "base/util.h"
#include "tests/lib/samples.h"
#include "tests/lib/testing.h"

#include <stdio.h>
#include <string.h>

START_TEST(test_format__decodes_to_what_was_encoded)
{
    struct cairn_error err;
    struct store_format f, g;
    CLEANUP_BUF struct buf text = BUF_INIT(FORMAT_MAX);
    ck_ok(format_new(1u << 20, FORMAT_NONE, &f, &err));
    ck_ok(buf_addf(&text, &err, "before"));
    ck_ok(format_encode(&f, &text, &err));
    ck_ok(format_decode(text.data + 6, text.len - 6, &g, &err));
    ck_assert_mem_eq(&f, &g, sizeof(f));
}
END_TEST

START_TEST(test_format__every_new_store_has_its_own_id_and_secret)
{
    struct cairn_error err;
    struct store_format f, g;
    ck_ok(format_new(4096, FORMAT_ZSTD, &f, &err));
    ck_ok(format_new(4096, FORMAT_ZSTD, &g, &err));
    ck_assert_str_ne(f.store_id, g.store_id);
    ck_assert_uint_eq(strlen(f.store_id), FORMAT_STORE_ID);
    ck_assert_mem_ne(f.secret, g.secret, sizeof(f.secret));
    ck_assert(!util_is_zero(f.secret + sizeof(f.secret) - 16, 16));
}
END_TEST

START_TEST(test_format__bad_chunk_sizes_are_invalid)
{
    static const uint32_t sizes[] = {0, 1, 2048, 4095, 4097, 12288, 2u << 20, 1u << 31, UINT32_MAX};
    struct cairn_error err;
    struct store_format f;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        ck_fails(format_new(sizes[i], FORMAT_ZSTD, &f, &err), CAIRN_INVALID);
    ck_fails(format_new(4096, (enum format_compression)2, &f, &err), CAIRN_INVALID);
}
END_TEST

START_TEST(test_format__every_changed_byte_is_corrupt)
{
    struct cairn_error err;
    struct store_format f, g;
    CLEANUP_BUF struct buf text = BUF_INIT(FORMAT_MAX);
    sample_format(&f);
    ck_ok(format_encode(&f, &text, &err));
    for (size_t i = 0; i < text.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            text.data[i] ^= (uint8_t)(1 << bit);
            ck_fails(format_decode(text.data, text.len, &g, &err), CAIRN_CORRUPT);
            text.data[i] ^= (uint8_t)(1 << bit);
        }
    }
    for (size_t len = 0; len < text.len; len++)
        ck_fails(format_decode(text.data, len, &g, &err), CAIRN_CORRUPT);
    ck_ok(buf_addf(&text, &err, "\n"));
    ck_fails(format_decode(text.data, text.len, &g, &err), CAIRN_CORRUPT);
}
END_TEST

/* The sample with one piece of its text replaced, and its checksum made right. */
static int decode_with(const char *from, const char *to, struct store_format *out,
                       struct cairn_error *why)
{
    struct cairn_error err;
    struct store_format f;
    CLEANUP_BUF struct buf text = BUF_INIT(FORMAT_MAX);
    CLEANUP_BUF struct buf other = BUF_INIT(FORMAT_MAX);
    sample_format(&f);
    ck_ok(format_encode(&f, &text, &err));
    ck_ok(buf_add(&text, "", 1, &err));
    const char *at = strstr((char *)text.data, from);
    ck_assert_ptr_nonnull(at);
    ck_ok(buf_addf(&other, &err, "%.*s%s%s", (int)(at - (char *)text.data), (char *)text.data, to,
                   at + strlen(from)));
    sample_reseal_format(other.data, other.len);
    return format_decode(other.data, other.len, out, why);
}

START_TEST(test_format__resealed_nonsense_is_corrupt)
{
    static const char *const swaps[][2] = {
        {"checkpoint store", "archive"},
        {"\"format\":1", "\"format\":0"},
        {"\"format\":1", "\"format\":-1"},
        {"\"format\":1", "\"format\":\"1\""},
        {"\"format\":1", "\"format\":1.0"},
        {"\"format\":1", "\"format\":4294967296"},
        {"\"format\":1", "\"farmat\":1"},
        {"\"min_reader\":1", "\"min_reader\":0"},
        {"\"min_writer\":1", "\"min_writer\":null"},
        {"\"min_sweeper\":1", "\"min_sweeper\":[1]"},
        {"65536", "65537"},
        {"65536", "2097152"},
        {"65536", "0"},
        {"\"zstd\"", "\"lz4\""},
        {"\"zstd\"", "0"},
        {"ccddeeff", "ccddeefF"},
        {"ccddeeff", "ccddee"},
        {"ccddeeff", "ccddeeff00"},
        {"\"secret\":\"", "\"secret\":\"00"},
        {"\"secret\":\"", "\"sacret\":\""},
        {"{\"cairn\"", "[\"cairn\""},
        {"\"format\":1", "\"format\":1,\"format\":1"},
        {"\"format\":1,", ""},
        {"{", ""},
    };
    struct cairn_error err;
    struct store_format g;
    for (size_t i = 0; i < ARRAY_SIZE(swaps); i++)
        ck_fails(decode_with(swaps[i][0], swaps[i][1], &g, &err), CAIRN_CORRUPT);
}
END_TEST

START_TEST(test_format__newer_ones_are_refused_in_words)
{
    struct cairn_error err;
    struct store_format g;
    ck_fails(decode_with("\"format\":1", "\"format\":2", &g, &err), CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, "format 2"));
    ck_fails(decode_with("\"min_reader\":1", "\"min_reader\":3", &g, &err), CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, "at least 3"));
}
END_TEST

START_TEST(test_format__unknown_members_and_newer_writers_are_readable)
{
    struct cairn_error err;
    struct store_format g;
    ck_ok(decode_with("\"format\":1", "\"format\":1,\"note\":{\"a\":[]}", &g, &err));
    ck_ok(decode_with("\"min_writer\":1", "\"min_writer\":2", &g, &err));
    ck_assert_uint_eq(g.min_writer, 2);
    ck_ok(decode_with("\"min_sweeper\":1", "\"min_sweeper\":9", &g, &err));
    ck_assert_uint_eq(g.min_sweeper, 9);
}
END_TEST

TESTING_MAIN(format, test_format__decodes_to_what_was_encoded,
             test_format__every_new_store_has_its_own_id_and_secret,
             test_format__bad_chunk_sizes_are_invalid, test_format__every_changed_byte_is_corrupt,
             test_format__resealed_nonsense_is_corrupt,
             test_format__newer_ones_are_refused_in_words,
             test_format__unknown_members_and_newer_writers_are_readable)
