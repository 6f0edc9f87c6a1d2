#include "store/pack.h"

#include "base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define HEADER_MAGIC  "CAIRNPK1"
#define TRAILER_MAGIC "CAIRNPKE"

/* Byte offsets inside header, entry and trailer. */
enum {
    H_VERSION = 8,
    H_CHUNK_SIZE = 12,
    H_PACK = 16,
    H_RESERVED = 32,
    E_BASE_SHA = 32,
    E_OFFSET = 64,
    E_STORED = 68, /* stored length, low 24 bits; encoding, high 8 */
    E_PLAIN = 72,
    E_RESERVED = 76,
    T_VERSION = 8,
    T_N = 12,
    T_INDEX_OFF = 16,
    T_RESERVED = 24,
    T_SHA = 32,
};

/* NULL, or what is wrong with an entry of a pack whose chunks end at index_off. */
static const char *entry_fault(const struct pack_entry *e, uint64_t index_off, uint32_t chunk_size)
{
    if (e->encoding > CHUNK_ZSTD_BASE)
        return "unknown encoding";
    if (e->plain_len == 0 || e->plain_len > chunk_size)
        return "bad plain length";
    if (e->stored_len == 0 || e->stored_len > chunk_size)
        return "bad stored length";
    if (e->offset < PACK_HEADER_LEN || (uint64_t)e->offset + e->stored_len > index_off)
        return "lies outside of the pack's data";
    if (e->encoding == CHUNK_RAW && e->stored_len != e->plain_len)
        return "raw, of two lengths";
    if (e->encoding == CHUNK_RAW && e->offset % PACK_RAW_ALIGN != 0)
        return "raw, but not aligned";
    if (e->encoding != CHUNK_ZSTD_BASE && !util_is_zero(e->base_sha, SHA256_LEN))
        return "has a base that it does not need";
    if (e->encoding == CHUNK_ZSTD_BASE && memcmp(e->sha, e->base_sha, SHA256_LEN) == 0)
        return "is its own base";
    return NULL;
}

static int checksum(const uint8_t header[PACK_HEADER_LEN], const uint8_t *index, size_t index_len,
                    const uint8_t trailer[PACK_TRAILER_LEN], uint8_t out[SHA256_LEN],
                    struct cairn_error *err)
{
    CLEANUP_SHA256 struct sha256 *h = NULL;
    int rc = sha256_new(&h, err);
    if (!rc)
        rc = sha256_update(h, header, PACK_HEADER_LEN, err);
    if (!rc)
        rc = sha256_update(h, index, index_len, err);
    if (!rc)
        rc = sha256_update(h, trailer, T_SHA, err);
    return rc ? rc : sha256_final(h, out, err);
}

/* ---- Encoding -------------------------------------------------------------------------------- */

void pack_header_encode(const uint8_t pack[PACK_ID_LEN], uint32_t chunk_size,
                        uint8_t out[PACK_HEADER_LEN])
{
    memset(out, 0, PACK_HEADER_LEN);
    memcpy(out, HEADER_MAGIC, 8);
    put_le32(out + H_VERSION, PACK_VERSION);
    put_le32(out + H_CHUNK_SIZE, chunk_size);
    memcpy(out + H_PACK, pack, PACK_ID_LEN);
}

static void entry_encode(const struct pack_entry *e, uint8_t out[PACK_ENTRY_LEN])
{
    memcpy(out, e->sha, SHA256_LEN);
    memcpy(out + E_BASE_SHA, e->base_sha, SHA256_LEN);
    put_le32(out + E_OFFSET, e->offset);
    put_le32(out + E_STORED, e->stored_len | (uint32_t)e->encoding << 24);
    put_le32(out + E_PLAIN, e->plain_len);
    put_le32(out + E_RESERVED, 0);
}

int pack_index_encode(const uint8_t header[PACK_HEADER_LEN], uint64_t index_off,
                      const struct pack_entry *entries, uint32_t n, struct buf *out,
                      struct cairn_error *err)
{
    uint64_t len = (uint64_t)n * PACK_ENTRY_LEN + PACK_TRAILER_LEN;
    if (index_off < PACK_HEADER_LEN || index_off > PACK_SIZE_MAX || len > PACK_SIZE_MAX - index_off)
        return error_set(err, CAIRN_INTERNAL, EFBIG,
                         "pack: an index of %" PRIu32 " chunks at %" PRIu64 " does not fit", n,
                         index_off);
    for (uint32_t i = 0; i < n; i++) {
        const char *bad = entry_fault(&entries[i], index_off, get_le32(header + H_CHUNK_SIZE));
        if (bad)
            return error_set(err, CAIRN_INTERNAL, EINVAL, "pack: new chunk %" PRIu32 ": %s", i,
                             bad);
    }
    int rc = buf_reserve(out, (size_t)len, err);
    if (rc) {
        error_wrap(err, "index of a pack");
        return rc;
    }
    uint8_t *index = out->data + out->len, *trailer = index + (size_t)n * PACK_ENTRY_LEN;
    for (uint32_t i = 0; i < n; i++)
        entry_encode(&entries[i], index + (size_t)i * PACK_ENTRY_LEN);
    memset(trailer, 0, PACK_TRAILER_LEN);
    memcpy(trailer, TRAILER_MAGIC, 8);
    put_le32(trailer + T_VERSION, PACK_VERSION);
    put_le32(trailer + T_N, n);
    put_le64(trailer + T_INDEX_OFF, index_off);
    rc = checksum(header, index, (size_t)n * PACK_ENTRY_LEN, trailer, trailer + T_SHA, err);
    if (!rc)
        out->len += (size_t)len;
    return rc;
}

/* ---- Decoding -------------------------------------------------------------------------------- */

static int check_version(const char *part, uint32_t version, struct cairn_error *err)
{
    if (version > PACK_VERSION)
        return error_set(err, CAIRN_CORRUPT, 0,
                         "pack: %s: version %" PRIu32 " is newer than this program, which knows %d",
                         part, version, PACK_VERSION);
    if (version != PACK_VERSION)
        return error_set(err, CAIRN_CORRUPT, 0, "pack: %s: there is no version %" PRIu32, part,
                         version);
    return CAIRN_OK;
}

int pack_trailer_decode(const uint8_t trailer[PACK_TRAILER_LEN], uint64_t pack_size,
                        uint64_t *index_off, uint32_t *n, struct cairn_error *err)
{
    if (memcmp(trailer, TRAILER_MAGIC, 8) != 0)
        return error_set(err, CAIRN_CORRUPT, 0, "pack: it does not end in a trailer");
    int rc = check_version("trailer", get_le32(trailer + T_VERSION), err);
    if (rc)
        return rc;
    uint32_t count = get_le32(trailer + T_N);
    uint64_t off = get_le64(trailer + T_INDEX_OFF);
    if (!util_is_zero(trailer + T_RESERVED, T_SHA - T_RESERVED))
        return error_set(err, CAIRN_CORRUPT, 0, "pack: reserved bytes of its trailer are not zero");
    if (pack_size > PACK_SIZE_MAX)
        return error_set(err, CAIRN_CORRUPT, 0, "pack: %" PRIu64 " bytes are too many", pack_size);
    if (off < PACK_HEADER_LEN || off > pack_size ||
        pack_size - off != (uint64_t)count * PACK_ENTRY_LEN + PACK_TRAILER_LEN)
        return error_set(err, CAIRN_CORRUPT, 0,
                         "pack: an index of %" PRIu32 " chunks at %" PRIu64
                         " does not end a pack of %" PRIu64 " bytes",
                         count, off, pack_size);
    *index_off = off;
    *n = count;
    return CAIRN_OK;
}

static int check_header(const uint8_t pack[PACK_ID_LEN], const uint8_t header[PACK_HEADER_LEN],
                        struct cairn_error *err)
{
    if (memcmp(header, HEADER_MAGIC, 8) != 0)
        return error_set(err, CAIRN_CORRUPT, 0, "pack: it does not begin with a header");
    int rc = check_version("header", get_le32(header + H_VERSION), err);
    if (rc)
        return rc;
    if (!chunk_size_is_valid(get_le32(header + H_CHUNK_SIZE)))
        return error_set(err, CAIRN_CORRUPT, 0, "pack: bad chunk size");
    if (memcmp(header + H_PACK, pack, PACK_ID_LEN) != 0) {
        char other[PACK_TEXT];
        util_hex(header + H_PACK, PACK_ID_LEN, other);
        return error_set(err, CAIRN_CORRUPT, 0, "pack: it is %s under another name", other);
    }
    if (!util_is_zero(header + H_RESERVED, PACK_HEADER_LEN - H_RESERVED))
        return error_set(err, CAIRN_CORRUPT, 0, "pack: reserved bytes of its header are not zero");
    return CAIRN_OK;
}

static const char *entry_decode(const uint8_t *p, uint64_t index_off, uint32_t chunk_size,
                                struct pack_entry *out)
{
    uint32_t stored = get_le32(p + E_STORED);
    memcpy(out->sha, p, SHA256_LEN);
    memcpy(out->base_sha, p + E_BASE_SHA, SHA256_LEN);
    out->offset = get_le32(p + E_OFFSET);
    out->stored_len = stored & 0xffffff;
    out->encoding = (uint8_t)(stored >> 24);
    out->plain_len = get_le32(p + E_PLAIN);
    if (get_le32(p + E_RESERVED) != 0)
        return "reserved bytes are not zero";
    return entry_fault(out, index_off, chunk_size);
}

int pack_index_decode(const uint8_t pack[PACK_ID_LEN], const uint8_t header[PACK_HEADER_LEN],
                      const uint8_t *index, uint64_t index_off, uint32_t n,
                      const uint8_t trailer[PACK_TRAILER_LEN], struct pack_entry **entries,
                      uint32_t *chunk_size, struct cairn_error *err)
{
    uint8_t sha[SHA256_LEN];
    size_t index_len = (size_t)n * PACK_ENTRY_LEN;
    uint64_t trailer_off;
    uint32_t trailer_n;
    int rc = check_header(pack, header, err);
    if (!rc) /* the trailer again, which vouches for n and index_off */
        rc = pack_trailer_decode(trailer, index_off + index_len + PACK_TRAILER_LEN, &trailer_off,
                                 &trailer_n, err);
    if (!rc)
        rc = checksum(header, index, index_len, trailer, sha, err);
    if (rc)
        return rc;
    if (memcmp(sha, trailer + T_SHA, SHA256_LEN) != 0)
        return error_set(err, CAIRN_CORRUPT, 0, "pack: the checksum does not match");
    if (trailer_off != index_off || trailer_n != n)
        return error_set(err, CAIRN_CORRUPT, 0, "pack: its index was read from another place");
    uint32_t size = get_le32(header + H_CHUNK_SIZE);
    CLEANUP_FREE struct pack_entry *list = calloc((size_t)n + 1, sizeof(*list));
    if (!list)
        return error_oom(err, "index of a pack");
    for (uint32_t i = 0; i < n; i++) {
        const char *bad =
            entry_decode(index + (size_t)i * PACK_ENTRY_LEN, index_off, size, &list[i]);
        if (bad)
            return error_set(err, CAIRN_CORRUPT, 0, "pack: chunk %" PRIu32 ": %s", i, bad);
    }
    *entries = util_steal(&list);
    if (chunk_size)
        *chunk_size = size;
    return CAIRN_OK;
}
