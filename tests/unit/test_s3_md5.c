#include "base/util.h"
#include "s3/md5.h"
#include "tests/lib/testing.h"

#include <string.h>

/* Appendix A.5 of RFC 1321. */
static const struct {
    const char *text, *hex;
} vectors[] = {
    {"", "d41d8cd98f00b204e9800998ecf8427e"},
    {"a", "0cc175b9c0f1b6a831c399e269772661"},
    {"abc", "900150983cd24fb0d6963f7d28e17f72"},
    {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
    {"abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"},
    {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
     "d174ab98d277d9f5a5611c2c9f419d9f"},
    {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
     "57edf4a22be3c955ac49da2e2107b67a"},
};

START_TEST(test_s3_md5__is_that_of_rfc1321)
{
    for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
        uint8_t out[MD5_LEN];
        char hex[2 * MD5_LEN + 1];
        struct md5 m;
        md5_init(&m);
        md5_update(&m, vectors[i].text, strlen(vectors[i].text));
        md5_final(&m, out);
        util_hex(out, MD5_LEN, hex);
        ck_assert_str_eq(hex, vectors[i].hex);
    }
}
END_TEST

START_TEST(test_s3_md5__does_not_depend_on_the_pieces)
{
    uint8_t data[1000], whole[MD5_LEN], pieces[MD5_LEN];
    testing_fill(data, sizeof(data), 1);
    for (size_t len = 0; len < 200; len++)
        for (size_t step = 1; step < 70; step += 7) {
            struct md5 m;
            md5_init(&m);
            md5_update(&m, data, len);
            md5_final(&m, whole);
            md5_init(&m);
            for (size_t at = 0; at < len; at += step)
                md5_update(&m, data + at, len - at < step ? len - at : step);
            md5_final(&m, pieces);
            ck_assert(memcmp(whole, pieces, MD5_LEN) == 0);
        }
}
END_TEST

START_TEST(test_s3_md5__base64_is_that_of_content_md5)
{
    uint8_t out[MD5_LEN];
    char text[MD5_BASE64];
    struct md5 m;
    md5_init(&m);
    md5_final(&m, out);
    md5_base64(out, text);
    ck_assert_str_eq(text, "1B2M2Y8AsgTpgAmY7PhCfg==");
}
END_TEST

TESTING_MAIN(s3_md5, test_s3_md5__is_that_of_rfc1321, test_s3_md5__does_not_depend_on_the_pieces,
             test_s3_md5__base64_is_that_of_content_md5)
