#include "store/digest.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <stdlib.h>
#include <string.h>

/* count bytes of value, then the text tail. */
struct part {
    const char *path;
    uint64_t count;
    int value;
    const char *tail;
};

static void add_file(struct digest *d, const struct part *p)
{
    struct cairn_error err;
    size_t tail = strlen(p->tail);
    ck_ok(digest_file(d, p->path, strlen(p->path), p->count + tail, &err));
    static uint8_t block[100003]; /* no divisor of a piece */
    memset(block, p->value, sizeof(block));
    for (uint64_t left = p->count; left;) {
        size_t n = left < sizeof(block) ? (size_t)left : sizeof(block);
        ck_ok(digest_data(d, block, n, &err));
        left -= n;
    }
    ck_ok(digest_data(d, p->tail, tail, &err));
}

static void expect(const struct part *parts, size_t n, const char *want)
{
    struct cairn_error err;
    struct digest *d = NULL;
    uint8_t sha[SHA256_LEN];
    char text[DIGEST_TEXT];
    ck_ok(digest_new(&d, &err));
    for (size_t i = 0; i < n; i++)
        add_file(d, &parts[i]);
    ck_ok(digest_final(d, sha, &err));
    digest_text(sha, text);
    ck_assert_str_eq(text, want);
    digest_free(d);
}

#define EXPECT(want, ...)                                                                          \
    expect((const struct part[]){__VA_ARGS__},                                                     \
           sizeof((const struct part[]){__VA_ARGS__}) / sizeof(struct part), want)

/* The values that the sandbox daemons of this field compute for the same exports. */
START_TEST(test_digest__published_vectors)
{
    EXPECT("sha256:ad65b315de70e494c767969e65fc5de65c73846c4ebcdc7051abe08b056637ad",
           {"nested/a.bin", 0, 0, "a"}, {"z.bin", 0, 0, "z"});
    expect(NULL, 0, "sha256:d451f7060cefab8fe2518e1dc41bc14df1eef087b74b00846a41356c0859f71e");
    EXPECT("sha256:e3a1004a091d5fbaf95fb995f6999355a060a04949e1c3c9d8e886abcd933251",
           {"empty.bin", 0, 0, ""});
    EXPECT("sha256:c8b0e6c2646989f30a7c4be302cee636215f291d0716a03dd2dc958d06a82bd0",
           {"zeros.bin", 16777217, 0, ""});
    EXPECT("sha256:dca4e1ba8c0c8964e0b47f33b7754b67f41e7dfcc6bda3342b8a964daac015de",
           {"zeros.bin", 16777216, 0, ""});
    EXPECT("sha256:d6aba4c9ea1dfbace830a37704633339e4e485654542569c878e70b7cf088bff",
           {"big.bin", 16777216, 'a', "b"});
    EXPECT("sha256:9463427f8626e0b65863b401d333d32ad8e0b11efb34db7f502798aea753fc7e",
           {"boundary.bin", 16777215, 'x', ""});
    EXPECT("sha256:20ef154fac2fa87246572b15e008adfef78fc47ce93e479c367112ea750006c6",
           {"boundary.bin", 16777216, 'x', ""});
    EXPECT("sha256:da8dd289e7d66408bd7d202642f180f2c22bc508cf0fe1d6e9f0e0b7967f6a5e",
           {"boundary.bin", 16777216, 'x', "y"});
    EXPECT("sha256:fb111027ca558c098a859af0bed5d44c43c555ff029443784893e84e6571b380",
           {"config.json", 0, 0, "{}"}, {"cow.raw", 4096, 0, ""},
           {"memory-ranges", 0, 0, "guest-pages"}, {"snapshot.json", 0, 0, "{\"version\":1}\n"},
           {"state.json", 0, 0, ""});
}
END_TEST

static void zeros_are(const uint64_t *runs, size_t n, uint64_t size, const char *want)
{
    struct cairn_error err;
    struct digest *d = NULL;
    uint8_t sha[SHA256_LEN];
    char text[DIGEST_TEXT];
    ck_ok(digest_new(&d, &err));
    ck_ok(digest_file(d, "zeros.bin", 9, size, &err));
    for (size_t i = 0; i < n; i++)
        ck_ok(digest_zeros(d, runs[i], &err));
    ck_ok(digest_final(d, sha, &err));
    digest_text(sha, text);
    ck_assert_str_eq(text, want);
    digest_free(d);
}

START_TEST(test_digest__zeros_given_as_runs_are_the_same_bytes)
{
    static const uint64_t one[] = {16777216}, pieces[] = {65536, 1, 16711679},
                          over[] = {16777215, 2}, whole[] = {16777217};
    static const char full[] =
        "sha256:dca4e1ba8c0c8964e0b47f33b7754b67f41e7dfcc6bda3342b8a964daac015de";
    static const char more[] =
        "sha256:c8b0e6c2646989f30a7c4be302cee636215f291d0716a03dd2dc958d06a82bd0";
    zeros_are(one, 1, 16777216, full);
    zeros_are(pieces, 3, 16777216, full);
    zeros_are(over, 2, 16777217, more);
    zeros_are(whole, 1, 16777217, more);
}
END_TEST

/* Data and zeros in any mixture, against the same bytes given as data only. */
START_TEST(test_digest__how_the_bytes_are_cut_does_not_matter)
{
    enum { SIZE = 40 * 1024 * 1024 + 12345 };
    uint8_t *bytes CLEANUP_FREE = calloc(1, SIZE);
    ck_assert_ptr_nonnull(bytes);
    uint64_t seed = 7, got[2];
    uint8_t sha[2][SHA256_LEN];
    for (size_t off = 0; off < SIZE;) {
        size_t n = 1 + testing_random(&seed) % 3000000;
        if (n > SIZE - off)
            n = SIZE - off;
        if (testing_random(&seed) % 3 == 0)
            testing_fill(bytes + off, n, seed);
        off += n;
    }
    for (int pass = 0; pass < 2; pass++) {
        struct cairn_error err;
        struct digest *d = NULL;
        got[pass] = 0;
        ck_ok(digest_new(&d, &err));
        ck_ok(digest_file(d, "f", 1, SIZE, &err));
        for (size_t off = 0; off < SIZE;) {
            size_t n = pass ? 1 + testing_random(&seed) % 200000 : SIZE;
            if (n > SIZE - off)
                n = SIZE - off;
            if (pass && util_is_zero(bytes + off, n)) {
                ck_ok(digest_zeros(d, n, &err));
                got[pass]++;
            } else {
                ck_ok(digest_data(d, bytes + off, n, &err));
            }
            off += n;
        }
        ck_ok(digest_final(d, sha[pass], &err));
        digest_free(d);
    }
    ck_assert_uint_gt(got[1], 10);
    ck_assert_mem_eq(sha[0], sha[1], SHA256_LEN);
}
END_TEST

START_TEST(test_digest__a_sparse_tebibyte_is_quick)
{
    struct cairn_error err;
    struct digest *d = NULL;
    uint8_t sha[SHA256_LEN];
    ck_ok(digest_new(&d, &err));
    ck_ok(digest_file(d, "f", 1, (uint64_t)1 << 40, &err));
    ck_ok(digest_zeros(d, (uint64_t)1 << 40, &err)); /* hashed in full: ten minutes */
    ck_ok(digest_final(d, sha, &err));
    digest_free(d);
}
END_TEST

START_TEST(test_digest__missing_and_surplus_bytes_are_refused)
{
    struct cairn_error err;
    struct digest *d = NULL;
    uint8_t sha[SHA256_LEN];
    ck_ok(digest_new(&d, &err));
    ck_fails(digest_data(d, "x", 1, &err), CAIRN_INTERNAL);
    ck_ok(digest_file(d, "a", 1, 3, &err));
    ck_ok(digest_data(d, "xy", 2, &err));
    ck_fails(digest_file(d, "b", 1, 0, &err), CAIRN_INTERNAL);
    ck_fails(digest_final(d, sha, &err), CAIRN_INTERNAL);
    ck_fails(digest_zeros(d, 2, &err), CAIRN_INTERNAL);
    ck_ok(digest_zeros(d, 1, &err));
    ck_ok(digest_final(d, sha, &err));
    digest_free(d);
}
END_TEST

TESTING_MAIN(digest, test_digest__published_vectors,
             test_digest__zeros_given_as_runs_are_the_same_bytes,
             test_digest__how_the_bytes_are_cut_does_not_matter,
             test_digest__a_sparse_tebibyte_is_quick,
             test_digest__missing_and_surplus_bytes_are_refused)
