#include "store/digest.h"

#include "base/util.h"

#include <pthread.h>
#include <string.h>

static const char PREFIX[] = "sandbox-template-export-v2"; /* its NUL is hashed too */

/* zeros counts the zero bytes that were given last and are not hashed yet: a piece that turns out
 * to be nothing else has a known hash. */
struct digest {
    struct sha256 *whole, *piece; /* owned */
    uint64_t left;                /* bytes of the current file still to come */
    uint64_t fill;                /* bytes of the current piece so far, < DIGEST_PIECE */
    uint64_t zeros;               /* of them at the end, not hashed yet */
};

static const uint8_t zero_bytes[65536];

static pthread_once_t zero_once = PTHREAD_ONCE_INIT;
static uint8_t zero_piece[SHA256_LEN]; /* of DIGEST_PIECE zero bytes */
static int zero_rc;

static int hash_zeros(struct sha256 *h, uint64_t len, struct cairn_error *err)
{
    while (len) {
        size_t n = len < sizeof(zero_bytes) ? (size_t)len : sizeof(zero_bytes);
        int rc = sha256_update(h, zero_bytes, n, err);
        if (rc)
            return rc;
        len -= n;
    }
    return CAIRN_OK;
}

static void make_zero_piece(void)
{
    struct sha256 *h CLEANUP_SHA256 = NULL;
    zero_rc = sha256_new(&h, NULL);
    if (!zero_rc)
        zero_rc = hash_zeros(h, DIGEST_PIECE, NULL);
    if (!zero_rc)
        zero_rc = sha256_final(h, zero_piece, NULL);
}

int digest_new(struct digest **out, struct cairn_error *err)
{
    struct digest *d = calloc(1, sizeof(*d));
    if (!d)
        return error_oom(err, "digest");
    int rc = sha256_new(&d->whole, err);
    if (!rc)
        rc = sha256_new(&d->piece, err);
    if (!rc)
        rc = sha256_update(d->whole, PREFIX, sizeof(PREFIX), err);
    if (rc) {
        digest_free(d);
        return rc;
    }
    *out = d;
    return CAIRN_OK;
}

void digest_free(struct digest *d)
{
    if (!d)
        return;
    sha256_free(d->whole);
    sha256_free(d->piece);
    free(d);
}

static int check_complete(const struct digest *d, struct cairn_error *err)
{
    if (d->left)
        return error_set(err, CAIRN_INTERNAL, 0, "digest: %llu bytes of a file were not given",
                         (unsigned long long)d->left);
    return CAIRN_OK;
}

int digest_file(struct digest *d, const char *path, size_t len, uint64_t size,
                struct cairn_error *err)
{
    uint8_t head[1 + 8] = {'f'}, tail[8 + 8];
    put_be64(head + 1, len);
    put_be64(tail, size);
    put_be64(tail + 8, size / DIGEST_PIECE + (size % DIGEST_PIECE != 0));
    int rc = check_complete(d, err);
    if (!rc)
        rc = sha256_update(d->whole, head, sizeof(head), err);
    if (!rc)
        rc = sha256_update(d->whole, path, len, err);
    if (!rc)
        rc = sha256_update(d->whole, tail, sizeof(tail), err);
    if (!rc)
        d->left = size;
    return rc;
}

static int hash_pending_zeros(struct digest *d, struct cairn_error *err)
{
    int rc = hash_zeros(d->piece, d->zeros, err);
    d->zeros = 0;
    return rc;
}

/* The current piece is full, or the last one of its file. */
static int end_piece(struct digest *d, struct cairn_error *err)
{
    uint8_t sha[SHA256_LEN];
    int rc = CAIRN_OK;
    if (d->zeros == DIGEST_PIECE) {
        pthread_once(&zero_once, make_zero_piece);
        if (zero_rc)
            return error_set(err, zero_rc, 0, "digest: hashing zeros failed");
        memcpy(sha, zero_piece, sizeof(sha));
        d->zeros = 0;
    } else {
        rc = hash_pending_zeros(d, err);
        if (!rc)
            rc = sha256_final(d->piece, sha, err);
    }
    d->fill = 0;
    return rc ? rc : sha256_update(d->whole, sha, sizeof(sha), err);
}

/* data is NULL for zeros. */
static int add(struct digest *d, const uint8_t *data, uint64_t len, struct cairn_error *err)
{
    if (len > d->left)
        return error_set(err, CAIRN_INTERNAL, 0, "digest: more bytes than the file has");
    while (len) {
        uint64_t n = DIGEST_PIECE - d->fill;
        if (n > len)
            n = len;
        int rc = CAIRN_OK;
        if (data) {
            rc = hash_pending_zeros(d, err);
            if (!rc)
                rc = sha256_update(d->piece, data, (size_t)n, err);
        } else {
            d->zeros += n;
        }
        if (rc)
            return rc;
        d->fill += n;
        d->left -= n;
        len -= n;
        if (data)
            data += n;
        if (d->fill == DIGEST_PIECE || !d->left)
            rc = end_piece(d, err);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

int digest_data(struct digest *d, const void *data, size_t len, struct cairn_error *err)
{
    return add(d, data, len, err);
}

int digest_zeros(struct digest *d, uint64_t len, struct cairn_error *err)
{
    return add(d, NULL, len, err);
}

int digest_final(struct digest *d, uint8_t out[SHA256_LEN], struct cairn_error *err)
{
    int rc = check_complete(d, err);
    return rc ? rc : sha256_final(d->whole, out, err);
}

void digest_text(const uint8_t digest[SHA256_LEN], char out[DIGEST_TEXT])
{
    memcpy(out, "sha256:", 7);
    util_hex(digest, SHA256_LEN, out + 7);
}
