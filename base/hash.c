#include "base/hash.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256_md; /* fetched once: a fetch costs more than hashing a chunk */

static void fetch_md(void)
{
    sha256_md = EVP_MD_fetch(NULL, "SHA256", NULL);
}

static const EVP_MD *get_md(void)
{
    pthread_once(&once, fetch_md);
    return sha256_md ? sha256_md : EVP_sha256();
}

static int failed(struct cairn_error *err)
{
    return error_set(err, CAIRN_INTERNAL, 0, "SHA-256 by OpenSSL failed");
}

int hash_sha256(const void *data, size_t len, uint8_t out[SHA256_LEN], struct cairn_error *err)
{
    return EVP_Digest(data, len, out, NULL, get_md(), NULL) == 1 ? CAIRN_OK : failed(err);
}

struct sha256 {
    EVP_MD_CTX *ctx;
};

int sha256_new(struct sha256 **out, struct cairn_error *err)
{
    struct sha256 *h = calloc(1, sizeof(*h));
    if (!h)
        return error_oom(err, "SHA-256");
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx || EVP_DigestInit_ex(h->ctx, get_md(), NULL) != 1) {
        sha256_free(h);
        return failed(err);
    }
    *out = h;
    return CAIRN_OK;
}

int sha256_update(struct sha256 *h, const void *data, size_t len, struct cairn_error *err)
{
    return EVP_DigestUpdate(h->ctx, data, len) == 1 ? CAIRN_OK : failed(err);
}

int sha256_final(struct sha256 *h, uint8_t out[SHA256_LEN], struct cairn_error *err)
{
    if (EVP_DigestFinal_ex(h->ctx, out, NULL) != 1 ||
        EVP_DigestInit_ex(h->ctx, get_md(), NULL) != 1)
        return failed(err);
    return CAIRN_OK;
}

void sha256_free(struct sha256 *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

void sha256_freep(struct sha256 **h)
{
    sha256_free(*h);
}

void hash_xxh3(const uint8_t secret[XXH3_SECRET_LEN], const void *data, size_t len,
               uint8_t out[XXH3_LEN])
{
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits_withSecret(data, len, secret, XXH3_SECRET_LEN));
    memcpy(out, c.digest, XXH3_LEN);
}
