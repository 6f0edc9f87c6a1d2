#include "base/hash.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <string.h>

static void expect_sha(const void *data, size_t len, const char *want)
{
    struct cairn_error err;
    uint8_t sha[SHA256_LEN];
    char text[2 * SHA256_LEN + 1];
    ck_ok(hash_sha256(data, len, sha, &err));
    util_hex(sha, sizeof(sha), text);
    ck_assert_str_eq(text, want);
}

/* NIST's examples for FIPS 180-4. */
START_TEST(test_hash__sha256_examples_of_fips_180)
{
    expect_sha("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_sha("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    size_t n = 1000000;
    char *as CLEANUP_FREE = malloc(n);
    memset(as, 'a', n);
    expect_sha(as, n, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
END_TEST

START_TEST(test_hash__sha256_in_pieces_is_the_same_and_can_begin_again)
{
    struct cairn_error err;
    struct sha256 *h CLEANUP_SHA256 = NULL;
    static uint8_t data[10000];
    testing_fill(data, sizeof(data), 1);
    ck_ok(sha256_new(&h, &err));
    for (int round = 0; round < 3; round++) {
        uint8_t whole[SHA256_LEN], pieces[SHA256_LEN];
        size_t len = sizeof(data) - (size_t)round * 777;
        ck_ok(hash_sha256(data, len, whole, &err));
        for (size_t off = 0; off < len;) {
            size_t n = 1 + off % 129;
            if (n > len - off)
                n = len - off;
            ck_ok(sha256_update(h, data + off, n, &err));
            off += n;
        }
        ck_ok(sha256_update(h, data, 0, &err));
        ck_ok(sha256_final(h, pieces, &err));
        ck_assert_mem_eq(whole, pieces, SHA256_LEN);
    }
    sha256_free(NULL);
}
END_TEST

static void keyed(uint64_t seed, const void *data, size_t len, uint8_t out[XXH3_LEN])
{
    uint8_t secret[XXH3_SECRET_LEN];
    testing_fill(secret, sizeof(secret), seed);
    hash_xxh3(secret, data, len, out);
}

START_TEST(test_hash__xxh3_depends_on_data_and_secret_only)
{
    static const size_t lens[] = {0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 4096, 65536};
    static uint8_t data[65536], copy[65536 + 1];
    testing_fill(data, sizeof(data), 1);
    memcpy(copy + 1, data, sizeof(data)); /* not aligned */
    for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
        uint8_t a[XXH3_LEN], b[XXH3_LEN];
        keyed(1, data, lens[i], a);
        keyed(1, copy + 1, lens[i], b);
        ck_assert_mem_eq(a, b, XXH3_LEN);
        keyed(2, data, lens[i], b);
        ck_assert_mem_ne(a, b, XXH3_LEN);
        if (!lens[i])
            continue;
        data[lens[i] / 2] ^= 1;
        keyed(1, data, lens[i], b);
        data[lens[i] / 2] ^= 1;
        ck_assert_mem_ne(a, b, XXH3_LEN);
    }
}
END_TEST

/* Manifests hold these values: they are the same on every machine and with every version. Computed
 * with the xxhash 0.8.1 of Debian 12. */
START_TEST(test_hash__xxh3_values_are_for_ever)
{
    static const struct {
        size_t len;
        const char *want;
    } cases[] = {
        {0, "19578236fb0cdcb8c627cb05efa58308"},     {1, "14212fc43deb4c2bf0b9d4719d0dd9ff"},
        {100, "3e53de82b9060eb42e1b7c1d4c77edbb"},   {200, "7c484b397e221f9c0b1148a54dce08f7"},
        {65536, "fad4e190b8c7ca971e8c47f333ca9733"},
    };
    static uint8_t data[65536];
    testing_fill(data, sizeof(data), 3);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint8_t out[XXH3_LEN];
        char text[2 * XXH3_LEN + 1];
        keyed(4, data, cases[i].len, out);
        util_hex(out, sizeof(out), text);
        ck_assert_str_eq(text, cases[i].want);
    }
}
END_TEST

TESTING_MAIN(hash, test_hash__sha256_examples_of_fips_180,
             test_hash__sha256_in_pieces_is_the_same_and_can_begin_again,
             test_hash__xxh3_depends_on_data_and_secret_only, test_hash__xxh3_values_are_for_ever)
