#include "store/codec.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <string.h>
#include <zstd.h>

static const size_t sizes[] = {
    1,    2,     3,     7,     8,      9,      100,    255,    256,     4095,    4096,
    4097, 65535, 65536, 65537, 131071, 131072, 131073, 262144, 1000000, 1048575, CHUNK_SIZE_MAX};

struct fixture {
    struct codec *codec;
    uint8_t *plain, *base, *out, *back; /* CHUNK_SIZE_MAX each, out codec_bound of it */
    struct cairn_error err;
};

static uint8_t *room(size_t n)
{
    uint8_t *p = malloc(n ? n : 1);
    ck_assert_ptr_nonnull(p);
    return p;
}

static void begin(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    ck_assert_int_eq(codec_new(&f->codec, &f->err), CAIRN_OK);
    f->plain = room(CHUNK_SIZE_MAX);
    f->base = room(CHUNK_SIZE_MAX);
    f->back = room(CHUNK_SIZE_MAX);
    f->out = room(codec_bound(CHUNK_SIZE_MAX));
}

static void end(struct fixture *f)
{
    codec_free(f->codec);
    free(f->plain);
    free(f->base);
    free(f->back);
    free(f->out);
}

/* Like a page of a program's memory: words of few kinds. */
static void fill_soft(uint8_t *p, size_t n, uint64_t seed)
{
    uint64_t words[16];
    for (int i = 0; i < 16; i++)
        words[i] = testing_random(&seed) & 0xff00ff;
    for (size_t i = 0; i < n; i++)
        p[i] = i % 64 ? ((const uint8_t *)&words[(i / 8 * 7) % 16])[i % 8]
                      : (uint8_t)testing_random(&seed);
}

#define ANY_ENCODING (-1)

static void round_trip(struct fixture *f, size_t n, size_t base_len, int want, size_t *stored)
{
    struct cairn_error err;
    enum chunk_encoding enc;
    size_t len, back = 0;
    ck_ok(codec_encode(f->codec, f->plain, n, f->base, base_len, f->out, &enc, &len, &err));
    if (want != ANY_ENCODING)
        ck_assert_int_eq((int)enc, want);
    if (enc == CHUNK_RAW) {
        ck_assert_uint_eq(len, n);
        memcpy(f->out, f->plain, n);
    } else {
        ck_assert_uint_le(len * 8, n * 7);
    }
    memset(f->back, 0x5a, n);
    ck_ok(codec_decode(f->codec, (uint8_t)enc, f->out, len, f->base, base_len, f->back, n, n, &back,
                       &err));
    ck_assert_uint_eq(back, n);
    ck_assert(memcmp(f->back, f->plain, n) == 0);
    back = 0;
    ck_ok(codec_decode(f->codec, (uint8_t)enc, f->out, len, f->base, base_len, f->back,
                       CHUNK_SIZE_MAX, 0, &back, &err));
    ck_assert_uint_eq(back, n);
    if (stored)
        *stored = len;
}

START_TEST(test_codec__every_size_comes_back)
{
    struct fixture f;
    begin(&f);
    fill_soft(f.plain, CHUNK_SIZE_MAX, 1);
    testing_fill(f.base, CHUNK_SIZE_MAX, 2);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        round_trip(&f, sizes[i], 0, sizes[i] < 256 ? ANY_ENCODING : CHUNK_ZSTD, NULL);
    for (size_t n = 1; n < 1000; n++)
        round_trip(&f, n, 0, n < 16 ? CHUNK_RAW : ANY_ENCODING, NULL);
    end(&f);
}
END_TEST

START_TEST(test_codec__noise_stays_raw)
{
    struct fixture f;
    begin(&f);
    testing_fill(f.plain, CHUNK_SIZE_MAX, 3);
    testing_fill(f.base, CHUNK_SIZE_MAX, 4);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        round_trip(&f, sizes[i], 0, CHUNK_RAW, NULL);
        round_trip(&f, sizes[i], CHUNK_SIZE_MAX, CHUNK_RAW, NULL);
    }
    end(&f);
}
END_TEST

/* What must be saved is an eighth: noise with a run of zeros a little longer or shorter. */
START_TEST(test_codec__an_eighth_is_the_line)
{
    struct fixture f;
    begin(&f);
    testing_fill(f.plain, 65536, 3);
    memset(f.plain, 0, 8192 + 256);
    round_trip(&f, 65536, 0, CHUNK_ZSTD, NULL);
    testing_fill(f.plain, 65536, 3);
    memset(f.plain, 0, 8192 - 256);
    round_trip(&f, 65536, 0, CHUNK_RAW, NULL);
    end(&f);
}
END_TEST

/* Noise against the same noise with one page changed: the page is about all that is stored, however
 * large the chunk is and wherever the page lies. */
START_TEST(test_codec__a_dirty_page_against_its_base_is_about_a_page)
{
    static const size_t chunk[] = {16384, 65536, 262144, CHUNK_SIZE_MAX};
    struct fixture f;
    begin(&f);
    for (size_t i = 0; i < ARRAY_SIZE(chunk); i++) {
        for (int where = 0; where < 3; where++) {
            testing_fill(f.base, chunk[i], 5);
            memcpy(f.plain, f.base, chunk[i]);
            testing_fill(f.plain + where * (chunk[i] - 4096) / 2, 4096, 6);
            size_t stored;
            round_trip(&f, chunk[i], chunk[i], CHUNK_ZSTD_BASE, &stored);
            ck_assert_uint_le(stored, 4096 + 256);
        }
    }
    end(&f);
}
END_TEST

/* A last chunk of a file that grew or shrank; and based and plain ones in turn, as in one publish.
 */
START_TEST(test_codec__base_and_plain_may_differ_in_length)
{
    struct fixture f;
    begin(&f);
    testing_fill(f.base, CHUNK_SIZE_MAX, 7);
    memcpy(f.plain, f.base, CHUNK_SIZE_MAX);
    round_trip(&f, 65536, 1000, CHUNK_RAW, NULL);
    round_trip(&f, 1000, 65536, CHUNK_ZSTD_BASE, NULL);
    round_trip(&f, 65536, 60000, CHUNK_ZSTD_BASE, NULL);
    round_trip(&f, 65536, 0, CHUNK_RAW, NULL);
    round_trip(&f, CHUNK_SIZE_MAX, CHUNK_SIZE_MAX, CHUNK_ZSTD_BASE, NULL);
    round_trip(&f, 4096, 4096, CHUNK_ZSTD_BASE, NULL);
    end(&f);
}
END_TEST

static void refuse(struct fixture *f, int encoding, const void *stored, size_t len, size_t base_len,
                   size_t cap, size_t expect)
{
    struct cairn_error err;
    size_t n = 0;
    ck_fails(codec_decode(f->codec, (uint8_t)encoding, stored, len, f->base, base_len, f->back, cap,
                          expect, &n, &err),
             CAIRN_CORRUPT);
}

START_TEST(test_codec__lengths_must_agree)
{
    struct fixture f;
    begin(&f);
    fill_soft(f.plain, 65536, 1);
    enum chunk_encoding enc;
    size_t n;
    struct cairn_error err;
    ck_ok(codec_encode(f.codec, f.plain, 65536, NULL, 0, f.out, &enc, &n, &err));
    refuse(&f, CHUNK_ZSTD, f.out, n, 0, 65535, 0);
    refuse(&f, CHUNK_ZSTD, f.out, n, 0, 65536, 65535);
    refuse(&f, CHUNK_ZSTD, f.out, n, 0, CHUNK_SIZE_MAX, 65537);
    refuse(&f, CHUNK_RAW, f.plain, 65536, 0, 65535, 0);
    refuse(&f, CHUNK_RAW, f.plain, 65536, 0, CHUNK_SIZE_MAX, 65535);
    refuse(&f, 3, f.plain, 65536, 0, CHUNK_SIZE_MAX, 0);
    refuse(&f, 255, f.plain, 65536, 0, CHUNK_SIZE_MAX, 0);
    end(&f);
}
END_TEST

/* What zstd itself would take: several frames, skippable ones, none at all, one that needs a
 * dictionary, one that does not say its size. */
START_TEST(test_codec__exactly_one_plain_frame_is_taken)
{
    struct fixture f;
    begin(&f);
    fill_soft(f.plain, 8192, 1);
    uint8_t two[16384] = {0};
    size_t n = ZSTD_compress(two, 8000, f.plain, 4096, 1);
    size_t m = ZSTD_compress(two + n, 8000, f.plain, 4096, 1);
    ck_assert(!ZSTD_isError(n) && !ZSTD_isError(m));
    ck_assert_uint_eq(ZSTD_decompress(f.back, 8192, two, n + m), 8192);
    refuse(&f, CHUNK_ZSTD, two, n + m, 0, 8192, 0);
    refuse(&f, CHUNK_ZSTD, two, n + 1, 0, 8192, 0);

    static const uint8_t skip[12] = {0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
    ck_assert_uint_eq(ZSTD_decompress(f.back, 8192, skip, sizeof(skip)), 0);
    refuse(&f, CHUNK_ZSTD, skip, sizeof(skip), 0, 8192, 0);
    memmove(two + sizeof(skip), two, n);
    memcpy(two, skip, sizeof(skip));
    ck_assert_uint_eq(ZSTD_decompress(f.back, 8192, two, n + sizeof(skip)), 4096);
    refuse(&f, CHUNK_ZSTD, two, n + sizeof(skip), 0, 8192, 0);
    n = ZSTD_compress(two, 8000, f.plain, 4096, 1);
    memcpy(two + n, skip, sizeof(skip));
    ck_assert_uint_eq(ZSTD_decompress(f.back, 4096, two, n + sizeof(skip)), 4096);
    refuse(&f, CHUNK_ZSTD, two, n + sizeof(skip), 0, 4096, 4096);
    refuse(&f, CHUNK_ZSTD_BASE, two, n, 0, 4096, 4096); /* though it needs no base */
    refuse(&f, CHUNK_ZSTD, two, 0, 0, 8192, 0);
    refuse(&f, CHUNK_ZSTD, NULL, 0, 0, 8192, 0);

    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
    n = ZSTD_compress2(c, two, sizeof(two), f.plain, 4096);
    ck_assert_uint_eq(ZSTD_decompress(f.back, 8192, two, n), 4096);
    refuse(&f, CHUNK_ZSTD, two, n, 0, 8192, 0);
    ZSTD_freeCCtx(c);

    /* An empty frame, and one whose header wants dictionary 7 (RFC 8878, 3.1.1.1). */
    n = ZSTD_compress(two, sizeof(two), "", 0, 1);
    refuse(&f, CHUNK_ZSTD, two, n, 0, 8192, 0);
    static const uint8_t wants[] = {0x28, 0xb5, 0x2f, 0xfd, 0x21, 7, 1, 0x09, 0, 0, 'x'};
    ck_assert_uint_eq(ZSTD_getDictID_fromFrame(wants, sizeof(wants)), 7);
    refuse(&f, CHUNK_ZSTD, wants, sizeof(wants), 0, 8192, 0);
    static const uint8_t plain[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 1, 0x09, 0, 0, 'x'};
    size_t got = 0;
    struct cairn_error err;
    ck_ok(
        codec_decode(f.codec, CHUNK_ZSTD, plain, sizeof(plain), NULL, 0, f.back, 1, 1, &got, &err));
    ck_assert_int_eq(f.back[0], 'x');
    end(&f);
}
END_TEST

START_TEST(test_codec__a_huge_content_size_is_refused)
{
    static const uint64_t huge[] = {CHUNK_SIZE_MAX + 1, (uint64_t)1 << 32, UINT64_MAX - 2};
    struct fixture f;
    begin(&f);
    for (size_t i = 0; i < ARRAY_SIZE(huge); i++) {
        uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0b, 0, 0, 'x'};
        put_le64(frame + 5, huge[i]);
        refuse(&f, CHUNK_ZSTD, frame, sizeof(frame), 0, CHUNK_SIZE_MAX, 0);
    }
    end(&f);
}
END_TEST

START_TEST(test_codec__a_missing_or_wrong_base_gives_no_right_bytes)
{
    struct fixture f;
    begin(&f);
    testing_fill(f.base, 65536, 5);
    memcpy(f.plain, f.base, 65536);
    f.plain[5] ^= 1;
    enum chunk_encoding enc;
    size_t n, got = 0;
    struct cairn_error err;
    ck_ok(codec_encode(f.codec, f.plain, 65536, f.base, 65536, f.out, &enc, &n, &err));
    ck_assert_int_eq(enc, CHUNK_ZSTD_BASE);
    refuse(&f, CHUNK_ZSTD_BASE, f.out, n, 0, 65536, 65536);
    refuse(&f, CHUNK_ZSTD, f.out, n, 65536, 65536, 65536);
    refuse(&f, CHUNK_ZSTD_BASE, f.out, n, 100, 65536, 65536);
    /* Another base of the same length: other bytes, which is for their hash to find. */
    testing_fill(f.base, 65536, 6);
    ck_ok(codec_decode(f.codec, CHUNK_ZSTD_BASE, f.out, n, f.base, 65536, f.back, 65536, 65536,
                       &got, &err));
    ck_assert(memcmp(f.back, f.plain, 65536) != 0);
    end(&f);
}
END_TEST

/* Every prefix and every flipped byte, into and out of buffers of exactly the right size, so that
 * the sanitizer sees a byte too far. Decoding may succeed with wrong bytes, never with more. */
START_TEST(test_codec__damaged_frames_stay_in_their_bounds)
{
    struct fixture f;
    begin(&f);
    fill_soft(f.plain, 20000, 9);
    testing_fill(f.plain + 3000, 600, 1);
    memcpy(f.base, f.plain, 20000);
    testing_fill(f.base + 9000, 300, 2);
    for (int based = 0; based < 2; based++) {
        enum chunk_encoding enc;
        size_t n;
        struct cairn_error err;
        ck_ok(codec_encode(f.codec, f.plain, 20000, f.base, based ? 20000 : 0, f.out, &enc, &n,
                           &err));
        ck_assert_int_eq(enc, based ? CHUNK_ZSTD_BASE : CHUNK_ZSTD);
        uint8_t *plain CLEANUP_FREE = room(20000), *base CLEANUP_FREE = room(20000);
        memcpy(base, f.base, 20000);
        for (size_t len = 0; len < n; len++) {
            uint8_t *cut CLEANUP_FREE = room(len);
            memcpy(cut, f.out, len);
            size_t got = 0;
            ck_fails(codec_decode(f.codec, (uint8_t)enc, cut, len, base, 20000, plain, 20000, 20000,
                                  &got, &err),
                     CAIRN_CORRUPT);
        }
        unsigned survived = 0;
        uint8_t *bad CLEANUP_FREE = room(n);
        for (size_t i = 0; i < 4 * n; i++) {
            memcpy(bad, f.out, n);
            bad[i / 4] ^= (uint8_t)(i % 4 == 0 ? 0xff : 1 << (i * 7 % 8));
            size_t got = 0;
            int rc = codec_decode(f.codec, (uint8_t)enc, bad, n, base, 20000, plain, 20000, 0, &got,
                                  &err);
            ck_assert(rc == CAIRN_CORRUPT || (rc == CAIRN_OK && got <= 20000));
            survived += rc == CAIRN_OK;
        }
        ck_assert_uint_lt(survived, 4 * n);
        /* And the codec is as good as before. */
        round_trip(&f, 20000, based ? 20000 : 0, (int)enc, NULL);
    }
    end(&f);
}
END_TEST

START_TEST(test_codec__the_frame_says_no_more_than_it_needs)
{
    struct fixture f;
    begin(&f);
    fill_soft(f.plain, 65536, 1);
    enum chunk_encoding enc;
    size_t n;
    struct cairn_error err;
    ck_ok(codec_encode(f.codec, f.plain, 65536, NULL, 0, f.out, &enc, &n, &err));
    ck_assert_uint_eq(ZSTD_getFrameContentSize(f.out, n), 65536);
    ck_assert_uint_eq(ZSTD_getDictID_fromFrame(f.out, n), 0);
    ck_assert_int_eq(f.out[4] & 4, 0); /* Content_Checksum_flag */
    end(&f);
}
END_TEST

START_TEST(test_codec__no_chunk_is_empty_or_beyond_the_maximum)
{
    struct fixture f;
    begin(&f);
    enum chunk_encoding enc;
    size_t n;
    struct cairn_error err;
    ck_fails(codec_encode(f.codec, f.plain, 0, NULL, 0, f.out, &enc, &n, &err), CAIRN_INTERNAL);
    ck_fails(codec_encode(f.codec, f.plain, CHUNK_SIZE_MAX + 1, NULL, 0, f.out, &enc, &n, &err),
             CAIRN_INTERNAL);
    ck_fails(codec_encode(f.codec, f.plain, 1, f.base, CHUNK_SIZE_MAX + 1, f.out, &enc, &n, &err),
             CAIRN_INTERNAL);
    end(&f);
}
END_TEST

TESTING_MAIN(codec, test_codec__every_size_comes_back, test_codec__noise_stays_raw,
             test_codec__an_eighth_is_the_line,
             test_codec__a_dirty_page_against_its_base_is_about_a_page,
             test_codec__base_and_plain_may_differ_in_length, test_codec__lengths_must_agree,
             test_codec__exactly_one_plain_frame_is_taken,
             test_codec__a_huge_content_size_is_refused,
             test_codec__a_missing_or_wrong_base_gives_no_right_bytes,
             test_codec__damaged_frames_stay_in_their_bounds,
             test_codec__the_frame_says_no_more_than_it_needs,
             test_codec__no_chunk_is_empty_or_beyond_the_maximum)
