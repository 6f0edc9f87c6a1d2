#include "s3/sigv4.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 16

/* Of a canonical request and the like: a query of two encoded keys fits many times. */
#define TEXT_MAX ((size_t)64 * 1024)

static bool is_unreserved(uint8_t c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

int sigv4_encode(const void *data, size_t len, bool slash, struct buf *out, struct cairn_error *err)
{
    static const char digit[] = "0123456789ABCDEF";
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++) {
        char text[3] = {(char)p[i]};
        size_t n = 1;
        if (!is_unreserved(p[i]) && !(slash && p[i] == '/')) {
            text[0] = '%';
            text[1] = digit[p[i] >> 4];
            text[2] = digit[p[i] & 15];
            n = 3;
        }
        int rc = buf_add(out, text, n, err);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

struct encoded {
    struct buf name, value;
};

static int compare_bytes(const struct buf *a, const struct buf *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    int d = n ? memcmp(a->data, b->data, n) : 0;
    return d ? d : (a->len > b->len) - (a->len < b->len);
}

static int compare_encoded(const void *va, const void *vb)
{
    const struct encoded *a = va, *b = vb;
    int d = compare_bytes(&a->name, &b->name);
    return d ? d : compare_bytes(&a->value, &b->value);
}

static int too_many(struct cairn_error *err, const char *what)
{
    return error_set(err, CAIRN_INTERNAL, E2BIG, "signature: more than %d %s", MAX_ITEMS, what);
}

int sigv4_query(const struct sigv4_param *params, size_t n, struct buf *out,
                struct cairn_error *err)
{
    struct encoded e[MAX_ITEMS];
    if (n > MAX_ITEMS)
        return too_many(err, "query parameters");
    int rc = CAIRN_OK;
    for (size_t i = 0; i < n; i++)
        e[i] = (struct encoded){.name = BUF_INIT(TEXT_MAX), .value = BUF_INIT(TEXT_MAX)};
    for (size_t i = 0; i < n && !rc; i++) {
        rc = sigv4_encode(params[i].name, strlen(params[i].name), false, &e[i].name, err);
        if (!rc)
            rc = sigv4_encode(params[i].value, strlen(params[i].value), false, &e[i].value, err);
    }
    if (!rc && n)
        qsort(e, n, sizeof(e[0]), compare_encoded);
    for (size_t i = 0; i < n && !rc; i++) {
        if (i)
            rc = buf_add(out, "&", 1, err);
        if (!rc)
            rc = buf_add(out, e[i].name.data, e[i].name.len, err);
        if (!rc)
            rc = buf_add(out, "=", 1, err);
        if (!rc)
            rc = buf_add(out, e[i].value.data, e[i].value.len, err);
    }
    for (size_t i = 0; i < n; i++) {
        buf_release(&e[i].name);
        buf_release(&e[i].value);
    }
    return rc;
}

static int compare_headers(const void *va, const void *vb)
{
    const struct sigv4_header *const *a = va, *const *b = vb;
    return strcasecmp((*a)->name, (*b)->name);
}

/* Lower-case name. */
static int add_name(const char *name, struct buf *out, struct cairn_error *err)
{
    for (const char *p = name; *p; p++) {
        char c = *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p;
        int rc = buf_add(out, &c, 1, err);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

/* Without spaces at either end, and with one in place of several. */
static int add_value(const char *value, struct buf *out, struct cairn_error *err)
{
    bool space = false, any = false;
    for (const char *p = value; *p; p++) {
        if (*p == ' ' || *p == '\t') {
            space = true;
            continue;
        }
        int rc = CAIRN_OK;
        if (space && any)
            rc = buf_add(out, " ", 1, err);
        if (!rc)
            rc = buf_add(out, p, 1, err);
        if (rc)
            return rc;
        space = false;
        any = true;
    }
    return CAIRN_OK;
}

int sigv4_canonical(const struct sigv4_request *r, struct buf *canonical,
                    struct buf *signed_headers, struct cairn_error *err)
{
    const struct sigv4_header *sorted[MAX_ITEMS];
    if (r->n_headers > MAX_ITEMS)
        return too_many(err, "headers");
    for (size_t i = 0; i < r->n_headers; i++)
        sorted[i] = &r->headers[i];
    if (r->n_headers)
        qsort(sorted, r->n_headers, sizeof(sorted[0]), compare_headers);
    int rc = buf_addf(canonical, err, "%s\n%s\n%s\n", r->method, r->path, r->query);
    for (size_t i = 0; i < r->n_headers && !rc; i++) {
        rc = add_name(sorted[i]->name, canonical, err);
        if (!rc)
            rc = buf_add(canonical, ":", 1, err);
        if (!rc)
            rc = add_value(sorted[i]->value, canonical, err);
        if (!rc)
            rc = buf_add(canonical, "\n", 1, err);
        if (!rc && i)
            rc = buf_add(signed_headers, ";", 1, err);
        if (!rc)
            rc = add_name(sorted[i]->name, signed_headers, err);
    }
    if (rc)
        return rc;
    return buf_addf(canonical, err, "\n%.*s\n%s", (int)signed_headers->len,
                    signed_headers->len ? (const char *)signed_headers->data : "", r->payload_hash);
}

/* "20130524/us-east-1/s3/aws4_request" */
static int add_scope(const struct sigv4_request *r, struct buf *out, struct cairn_error *err)
{
    return buf_addf(out, err, "%.8s/%s/%s/aws4_request", r->amz_date, r->region, r->service);
}

static int string_to_sign(const struct sigv4_request *r, const struct buf *canonical,
                          struct buf *out, struct cairn_error *err)
{
    uint8_t hash[SHA256_LEN];
    char hex[SIGV4_HASH_TEXT];
    int rc = hash_sha256(canonical->data, canonical->len, hash, err);
    if (rc)
        return rc;
    util_hex(hash, sizeof(hash), hex);
    rc = buf_addf(out, err, "AWS4-HMAC-SHA256\n%s\n", r->amz_date);
    if (!rc)
        rc = add_scope(r, out, err);
    return rc ? rc : buf_addf(out, err, "\n%s", hex);
}

/* HMAC-SHA-256, RFC 2104. */
static int hmac(const void *key, size_t key_len, const void *data, size_t len,
                uint8_t out[SHA256_LEN], struct cairn_error *err)
{
    CLEANUP_SHA256 struct sha256 *h = NULL;
    uint8_t block[64] = {0}, inner[SHA256_LEN];
    int rc = sha256_new(&h, err);
    if (rc)
        return rc;
    if (key_len > sizeof(block)) {
        rc = hash_sha256(key, key_len, block, err);
        if (rc)
            return rc;
    } else if (key_len) {
        memcpy(block, key, key_len);
    }
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] ^= 0x36;
    rc = sha256_update(h, block, sizeof(block), err);
    if (!rc)
        rc = sha256_update(h, data, len, err);
    if (!rc)
        rc = sha256_final(h, inner, err);
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] ^= 0x36 ^ 0x5c;
    if (!rc)
        rc = sha256_update(h, block, sizeof(block), err);
    if (!rc)
        rc = sha256_update(h, inner, sizeof(inner), err);
    if (!rc)
        rc = sha256_final(h, out, err);
    explicit_bzero(block, sizeof(block));
    return rc;
}

static int signing_key(const struct sigv4_request *r, uint8_t key[SHA256_LEN],
                       struct cairn_error *err)
{
    struct buf secret = BUF_INIT(TEXT_MAX);
    int rc = buf_addf(&secret, err, "AWS4%s", r->secret);
    if (!rc)
        rc = hmac(secret.data, secret.len, r->amz_date, 8, key, err);
    if (secret.data)
        explicit_bzero(secret.data, secret.cap);
    buf_release(&secret);
    if (!rc)
        rc = hmac(key, SHA256_LEN, r->region, strlen(r->region), key, err);
    if (!rc)
        rc = hmac(key, SHA256_LEN, r->service, strlen(r->service), key, err);
    return rc ? rc : hmac(key, SHA256_LEN, "aws4_request", 12, key, err);
}

int sigv4_authorization(const struct sigv4_request *r, struct buf *out, struct cairn_error *err)
{
    CLEANUP_BUF struct buf canonical = BUF_INIT(TEXT_MAX);
    CLEANUP_BUF struct buf names = BUF_INIT(TEXT_MAX);
    CLEANUP_BUF struct buf to_sign = BUF_INIT(TEXT_MAX);
    uint8_t key[SHA256_LEN], signature[SHA256_LEN];
    char hex[SIGV4_HASH_TEXT];
    int rc = sigv4_canonical(r, &canonical, &names, err);
    if (!rc)
        rc = string_to_sign(r, &canonical, &to_sign, err);
    if (!rc)
        rc = signing_key(r, key, err);
    if (!rc)
        rc = hmac(key, sizeof(key), to_sign.data, to_sign.len, signature, err);
    explicit_bzero(key, sizeof(key));
    if (rc)
        return rc;
    util_hex(signature, sizeof(signature), hex);
    rc = buf_addf(out, err, "AWS4-HMAC-SHA256 Credential=%s/", r->access_key);
    if (!rc)
        rc = add_scope(r, out, err);
    return rc ? rc
              : buf_addf(out, err, ", SignedHeaders=%.*s, Signature=%s", (int)names.len,
                         (const char *)names.data, hex);
}
