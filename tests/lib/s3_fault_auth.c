/* Checks signatures from the bytes that came, in another way than s3/sigv4.c makes them: the
 * canonical request is put together from what was received, and what was received must already be
 * in canonical form. */
#include "tests/lib/s3_fault_private.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLOCK_TOLERANCE 900

int64_t server_now(const struct s3fs *fs)
{
    return (int64_t)time(NULL) + fs->skew;
}

static void hex(const unsigned char *data, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++)
        snprintf(out + 2 * i, 3, "%02x", data[i]);
}

static void sha256_hex(const void *data, size_t len, char out[65])
{
    unsigned char md[32];
    EVP_Digest(data, len, md, NULL, EVP_sha256(), NULL);
    hex(md, 32, out);
}

static void chain(unsigned char key[32], const void *key_in, size_t key_len, const char *text)
{
    unsigned n = 32;
    unsigned char out[32];
    HMAC(EVP_sha256(), key_in, (int)key_len, (const unsigned char *)text, strlen(text), out, &n);
    memcpy(key, out, 32);
}

/* ";a;b;" holds ";name;". */
static bool listed(const char *names, const char *name)
{
    char probe[160];
    snprintf(probe, sizeof(probe), ";%s;", name);
    return strstr(names, probe) != NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void canonical_query(const char *raw, struct text *out)
{
    char *parts[64], *copy = strdup(raw), *save = NULL;
    size_t n = 0;
    if (!copy)
        abort();
    for (char *p = strtok_r(copy, "&", &save); p && n < 64; p = strtok_r(NULL, "&", &save)) {
        struct text one = {0};
        char *eq = strchr(p, '='), *buf = malloc(strlen(p) + 1);
        if (!buf)
            abort();
        size_t name = eq ? (size_t)(eq - p) : strlen(p);
        escape(&one, buf, unescape(p, name, false, buf), false);
        text_add(&one, "=", 1);
        if (eq)
            escape(&one, buf, unescape(eq + 1, strlen(eq + 1), false, buf), false);
        free(buf);
        parts[n++] = one.p;
    }
    qsort(parts, n, sizeof(parts[0]), by_text);
    for (size_t i = 0; i < n; i++) {
        text_addf(out, "%s%s", i ? "&" : "", parts[i]);
        free(parts[i]);
    }
    free(copy);
}

static void canonical_headers(const struct request *r, const char *names, struct text *out)
{
    char *copy = strdup(names), *save = NULL;
    if (!copy)
        abort();
    for (char *n = strtok_r(copy, ";", &save); n; n = strtok_r(NULL, ";", &save)) {
        const char *v = header_of(r, n);
        text_addf(out, "%s:%s\n", n, v ? v : "(missing)");
    }
    free(copy);
}

/* "20130524T000000Z" */
static bool amz_time(const char *text, int64_t *out)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y%m%dT%H%M%SZ", &tm);
    *out = end ? timegm(&tm) : 0;
    return end && !*end;
}

static const char *check_key(const struct s3fs *fs, const char *id, int *status)
{
    *status = 403;
    if (strcmp(id, fs->access_key) == 0)
        return NULL;
    for (unsigned i = 0; i < fs->n_old; i++)
        if (strcmp(id, fs->old_keys[i]) == 0) {
            *status = 400;
            return "ExpiredToken";
        }
    return "InvalidAccessKeyId";
}

static const char *check_v4(const struct s3fs *fs, const struct request *r, const char *auth,
                            int *status)
{
    char id[128], day[16], region[64], names[512], given[80], listing[520], hash[65], wanted[65];
    int64_t when;
    *status = 400;
    if (sscanf(auth,
               "AWS4-HMAC-SHA256 Credential=%127[^/]/%15[^/]/%63[^/]/s3/aws4_request, "
               "SignedHeaders=%511[^,], Signature=%79s",
               id, day, region, names, given) != 5)
        return "AuthorizationHeaderMalformed";
    if (strcmp(region, fs->region) != 0)
        return "AuthorizationHeaderMalformed";
    const char *why = check_key(fs, id, status);
    if (why)
        return why;
    const char *date = header_of(r, "x-amz-date"), *token = header_of(r, "x-amz-security-token");
    const char *body_hash = header_of(r, "x-amz-content-sha256");
    *status = 403;
    if (strcmp(token ? token : "", fs->token) != 0)
        return "InvalidToken";
    if (!date || !body_hash || !amz_time(date, &when) || strncmp(date, day, 8) != 0)
        return "AccessDenied";
    if (llabs(when - server_now(fs)) > CLOCK_TOLERANCE)
        return "RequestTimeTooSkewed";
    /* Everything that carries meaning must be signed. */
    snprintf(listing, sizeof(listing), ";%s;", names);
    for (size_t i = 0; i < r->n_headers; i++) {
        const char *n = r->headers[i].name;
        if ((strncmp(n, "x-amz-", 6) == 0 || strcmp(n, "host") == 0 || strcmp(n, "range") == 0 ||
             strcmp(n, "content-md5") == 0) &&
            !listed(listing, n))
            return "SignatureDoesNotMatch";
    }
    struct text canonical = {0}, path = {0};
    char *decoded = strdup(r->raw_path);
    if (!decoded)
        abort();
    escape(&path, decoded, unescape(r->raw_path, strlen(r->raw_path), false, decoded), true);
    bool once = strcmp(path.p, r->raw_path) == 0;
    text_addf(&canonical, "%s\n%s\n", r->method, r->raw_path);
    canonical_query(r->raw_query, &canonical);
    text_add(&canonical, "\n", 1);
    canonical_headers(r, names, &canonical);
    text_addf(&canonical, "\n%s\n%s", names, body_hash);
    sha256_hex(canonical.p, canonical.len, hash);
    text_free(&canonical);
    text_free(&path);
    free(decoded);
    if (!once)
        return "SignatureDoesNotMatch";

    struct text to_sign = {0}, secret = {0};
    unsigned char key[32];
    text_addf(&to_sign, "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", date, day, region, hash);
    text_addf(&secret, "AWS4%s", fs->secret);
    chain(key, secret.p, secret.len, day);
    chain(key, key, 32, region);
    chain(key, key, 32, "s3");
    chain(key, key, 32, "aws4_request");
    chain(key, key, 32, to_sign.p);
    hex(key, 32, wanted);
    text_free(&to_sign);
    text_free(&secret);
    if (strcmp(wanted, given) != 0)
        return "SignatureDoesNotMatch";
    sha256_hex(r->body, r->body_len, hash);
    *status = 400;
    return strcmp(hash, body_hash) == 0 ? NULL : "XAmzContentSHA256Mismatch";
}

static void amz_headers_v2(const struct request *r, struct text *out)
{
    char *lines[HEADERS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < r->n_headers; i++)
        if (strncmp(r->headers[i].name, "x-amz-", 6) == 0) {
            struct text one = {0};
            text_addf(&one, "%s:%s\n", r->headers[i].name, r->headers[i].value);
            lines[n++] = one.p;
        }
    qsort(lines, n, sizeof(lines[0]), by_text);
    for (size_t i = 0; i < n; i++) {
        text_addf(out, "%s", lines[i]);
        free(lines[i]);
    }
}

static const char *check_v2(const struct s3fs *fs, const struct request *r, const char *auth,
                            int *status)
{
    char id[128], given[64];
    if (sscanf(auth, "AWS %127[^:]:%63s", id, given) != 2)
        return "AccessDenied";
    const char *why = check_key(fs, id, status);
    if (why)
        return why;
    const char *md5 = header_of(r, "content-md5"), *type = header_of(r, "content-type");
    struct text t = {0};
    text_addf(&t, "%s\n%s\n%s\n\n", r->method, md5 ? md5 : "", type ? type : "");
    amz_headers_v2(r, &t);
    const char *host = header_of(r, "host");
    size_t n = strlen(fs->bucket);
    if (host && strncmp(host, fs->bucket, n) == 0 && host[n] == '.')
        text_addf(&t, "/%s", fs->bucket);
    text_addf(&t, "%s", r->raw_path);
    unsigned char mac[20], b64[40];
    unsigned mac_len = 20;
    HMAC(EVP_sha1(), fs->secret, (int)strlen(fs->secret), (unsigned char *)t.p, t.len, mac,
         &mac_len);
    EVP_EncodeBlock(b64, mac, 20);
    text_free(&t);
    *status = 403;
    if (strcmp((char *)b64, given) != 0)
        return "SignatureDoesNotMatch";
    if (md5) {
        unsigned char sum[16], text[32];
        EVP_Digest(r->body, r->body_len, sum, NULL, EVP_md5(), NULL);
        EVP_EncodeBlock(text, sum, 16);
        *status = 400;
        if (strcmp((char *)text, md5) != 0)
            return "BadDigest";
    }
    return NULL;
}

const char *check_signature(const struct s3fs *fs, const struct request *r, int *status)
{
    const char *auth = header_of(r, "authorization");
    *status = 403;
    if (!auth)
        return "AccessDenied";
    return strncmp(auth, "AWS4", 4) == 0 ? check_v4(fs, r, auth, status)
                                         : check_v2(fs, r, auth, status);
}
