/* MD5 (RFC 1321), which S3 wants in Content-MD5 and gives as the ETag of a plain PUT. No safety
 * rests on it, and it is here so that a host whose OpenSSL refuses MD5 (FIPS) can still talk to S3.
 * Not thread-safe a context; contexts are independent. */
#ifndef CAIRN_S3_MD5_H
#define CAIRN_S3_MD5_H

#include <stddef.h>
#include <stdint.h>

#define MD5_LEN    16
#define MD5_BASE64 25 /* 24 characters and a NUL */

struct md5 {
    uint32_t state[4];
    uint64_t len;
    uint8_t block[64];
};

void md5_init(struct md5 *m);
void md5_update(struct md5 *m, const void *data, size_t len);
void md5_final(struct md5 *m, uint8_t out[MD5_LEN]);

/* The text of Content-MD5. */
void md5_base64(const uint8_t digest[MD5_LEN], char out[MD5_BASE64]);

#endif
