/* Apart from samples.c: no macro of Check, so that fuzz targets can use it. */
#include "base/util.h"
#include "tests/lib/samples.h"

#include <string.h>

static void need(int rc)
{
    if (rc)
        abort();
}

static void hash(const void *data, size_t len, uint8_t *out)
{
    need(hash_sha256(data, len, out, NULL));
}

void sample_reseal_manifest(uint8_t *data, size_t len)
{
    if (len < MANIFEST_HEADER_LEN + SHA256_LEN)
        return;
    hash(data, MANIFEST_HEADER_LEN - SHA256_LEN, data + MANIFEST_HEADER_LEN - SHA256_LEN);
    hash(data, len - SHA256_LEN, data + len - SHA256_LEN);
}

void sample_reseal_pack(uint8_t *data, size_t len)
{
    if (len < PACK_HEADER_LEN + PACK_TRAILER_LEN)
        return;
    uint8_t *trailer = data + len - PACK_TRAILER_LEN;
    uint64_t n = get_le32(trailer + 12) * (uint64_t)PACK_ENTRY_LEN;
    uint64_t most = len - PACK_HEADER_LEN - PACK_TRAILER_LEN;
    size_t index_len = (size_t)(n < most ? n : most);
    CLEANUP_SHA256 struct sha256 *h = NULL;
    need(sha256_new(&h, NULL));
    need(sha256_update(h, data, PACK_HEADER_LEN, NULL));
    need(sha256_update(h, trailer - index_len, index_len + 32, NULL));
    need(sha256_final(h, trailer + 32, NULL));
}

void sample_reseal_format(uint8_t *data, size_t len)
{
    const size_t tail = 11 + 64 + 3; /* ,"sha256":" and the digits and "} and a line feed */
    if (len < tail)
        return;
    uint8_t sha[SHA256_LEN];
    char hex[65];
    hash(data, len - tail, sha);
    util_hex(sha, sizeof(sha), hex);
    memcpy(data + len - tail, ",\"sha256\":\"", 11);
    memcpy(data + len - tail + 11, hex, 64);
    memcpy(data + len - 3, "\"}\n", 3);
}
