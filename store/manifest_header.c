#include "store/manifest_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void manifest_layout_of(const struct manifest_info *info, uint32_t names_len,
                        struct manifest_layout *out)
{
    /* No sum can overflow: five terms, each below 2^38. */
    out->files = MANIFEST_HEADER_LEN;
    out->extents = out->files + (uint64_t)info->n_files * MANIFEST_FILE_LEN;
    out->chunks = out->extents + (uint64_t)info->n_extents * MANIFEST_EXTENT_LEN;
    out->packs = out->chunks + (uint64_t)info->n_chunks * MANIFEST_CHUNK_LEN;
    out->names = out->packs + (uint64_t)info->n_packs * MANIFEST_PACK_LEN;
    out->trailer = align_up(out->names + names_len, 8);
    out->total = out->trailer + MANIFEST_TRAILER_LEN;
}

uint32_t manifest_writer_version(void)
{
    unsigned major = 0, minor = 0, patch = 0;
    if (sscanf(CAIRN_VERSION, "%u.%u.%u", &major, &minor, &patch) != 3)
        return 0;
    return major << 16 | (minor & 0xff) << 8 | (patch & 0xff);
}

/* ---- Encoding -------------------------------------------------------------------------------- */

static int put_names(const struct manifest_info *info, uint8_t *h, uint32_t *flags,
                     struct cairn_error *err)
{
    if (!id_is_valid(info->id) || !util_unhex(info->gen, h + MH_GEN, GEN_LEN))
        return error_set(err, CAIRN_INVALID, EINVAL, "manifest: id or generation is none");
    memcpy(h + MH_ID, info->id, strlen(info->id));
    if (!info->parent_id[0] && !info->parent_gen[0])
        return CAIRN_OK;
    if (!id_is_valid(info->parent_id) || !util_unhex(info->parent_gen, h + MH_PARENT_GEN, GEN_LEN))
        return error_set(err, CAIRN_INVALID, EINVAL, "manifest of %s: parent is none", info->id);
    memcpy(h + MH_PARENT_ID, info->parent_id, strlen(info->parent_id));
    *flags |= MANIFEST_HAS_PARENT;
    return CAIRN_OK;
}

int manifest_header_encode(const struct manifest_info *info, uint32_t names_len,
                           uint8_t out[MANIFEST_HEADER_LEN], struct cairn_error *err)
{
    struct manifest_layout at;
    manifest_layout_of(info, names_len, &at);
    uint32_t flags = 0;
    memset(out, 0, MANIFEST_HEADER_LEN);
    memcpy(out + MH_MAGIC, MANIFEST_MAGIC, 8);
    put_le32(out + MH_VERSION, MANIFEST_VERSION);
    put_le32(out + MH_HEADER_LEN, MANIFEST_HEADER_LEN);
    put_le32(out + MH_CHUNK_SIZE, info->chunk_size);
    put_le64(out + MH_TOTAL_LEN, at.total);
    put_le64(out + MH_CREATED, (uint64_t)info->created_ns);
    put_le64(out + MH_LOGICAL, info->logical_bytes);
    put_le64(out + MH_DATA, info->data_bytes);
    put_le64(out + MH_STORED, info->stored_bytes);
    put_le32(out + MH_N_FILES, info->n_files);
    put_le32(out + MH_N_EXTENTS, info->n_extents);
    put_le32(out + MH_N_CHUNKS, info->n_chunks);
    put_le32(out + MH_N_PACKS, info->n_packs);
    put_le64(out + MH_FILES_OFF, at.files);
    put_le64(out + MH_EXTENTS_OFF, at.extents);
    put_le64(out + MH_CHUNKS_OFF, at.chunks);
    put_le64(out + MH_PACKS_OFF, at.packs);
    put_le64(out + MH_NAMES_OFF, at.names);
    put_le64(out + MH_NAMES_LEN, names_len);
    if (info->has_digest) {
        memcpy(out + MH_DIGEST, info->digest, SHA256_LEN);
        flags |= MANIFEST_HAS_DIGEST;
    }
    int rc = put_names(info, out, &flags, err);
    if (rc)
        return rc;
    put_le32(out + MH_FLAGS, flags);
    put_le32(out + MH_WRITER, info->writer_version);
    return hash_sha256(out, MH_SHA, out + MH_SHA, err);
}

int manifest_seal(uint8_t *data, size_t len, struct cairn_error *err)
{
    size_t body = len - MANIFEST_TRAILER_LEN;
    return hash_sha256(data, body, data + body, err);
}

/* ---- Decoding -------------------------------------------------------------------------------- */

static bool get_id(const uint8_t *p, char out[ID_MAX + 1])
{
    if (!util_is_zero(p + ID_MAX, MH_ID_LEN - ID_MAX))
        return false;
    memcpy(out, p, ID_MAX);
    out[ID_MAX] = 0;
    size_t n = strlen(out);
    return util_is_zero(p + n, MH_ID_LEN - n);
}

static const char *get_names(const uint8_t *h, uint32_t flags, struct manifest_info *out)
{
    if (!get_id(h + MH_ID, out->id) || !id_is_valid(out->id))
        return "its id is none";
    util_hex(h + MH_GEN, GEN_LEN, out->gen);
    if (!(flags & MANIFEST_HAS_PARENT))
        return util_is_zero(h + MH_PARENT_ID, MH_ID_LEN) && util_is_zero(h + MH_PARENT_GEN, GEN_LEN)
                   ? NULL
                   : "a parent without its flag";
    if (!get_id(h + MH_PARENT_ID, out->parent_id) || !id_is_valid(out->parent_id))
        return "its parent's id is none";
    util_hex(h + MH_PARENT_GEN, GEN_LEN, out->parent_gen);
    return NULL;
}

static bool layout_is_canonical(const uint8_t *h, const struct manifest_info *info)
{
    uint64_t names_len = get_le64(h + MH_NAMES_LEN);
    if (names_len > UINT32_MAX)
        return false;
    struct manifest_layout at;
    manifest_layout_of(info, (uint32_t)names_len, &at);
    return get_le64(h + MH_FILES_OFF) == at.files && get_le64(h + MH_EXTENTS_OFF) == at.extents &&
           get_le64(h + MH_CHUNKS_OFF) == at.chunks && get_le64(h + MH_PACKS_OFF) == at.packs &&
           get_le64(h + MH_NAMES_OFF) == at.names && info->total_len == at.total;
}

static const char *get_fields(const uint8_t *h, struct manifest_info *out)
{
    uint32_t flags = get_le32(h + MH_FLAGS);
    if (get_le32(h + MH_HEADER_LEN) != MANIFEST_HEADER_LEN)
        return "header of another length";
    if (flags & ~(uint32_t)(MANIFEST_HAS_DIGEST | MANIFEST_HAS_PARENT))
        return "unknown flags";
    if (!util_is_zero(h + MH_RESERVED, MH_SHA - MH_RESERVED))
        return "reserved bytes are not zero";
    out->chunk_size = get_le32(h + MH_CHUNK_SIZE);
    if (!chunk_size_is_valid(out->chunk_size))
        return "bad chunk size";
    out->total_len = get_le64(h + MH_TOTAL_LEN);
    out->created_ns = (int64_t)get_le64(h + MH_CREATED);
    out->logical_bytes = get_le64(h + MH_LOGICAL);
    out->data_bytes = get_le64(h + MH_DATA);
    out->stored_bytes = get_le64(h + MH_STORED);
    out->n_files = get_le32(h + MH_N_FILES);
    out->n_extents = get_le32(h + MH_N_EXTENTS);
    out->n_chunks = get_le32(h + MH_N_CHUNKS);
    out->n_packs = get_le32(h + MH_N_PACKS);
    out->writer_version = get_le32(h + MH_WRITER);
    out->has_digest = flags & MANIFEST_HAS_DIGEST;
    memcpy(out->digest, h + MH_DIGEST, SHA256_LEN);
    if (!out->has_digest && !util_is_zero(out->digest, SHA256_LEN))
        return "a digest without its flag";
    if (!layout_is_canonical(h, out))
        return "its tables do not lie where they must";
    return get_names(h, flags, out);
}

int manifest_header_decode(const uint8_t header[MANIFEST_HEADER_LEN], struct manifest_info *out,
                           struct cairn_error *err)
{
    memset(out, 0, sizeof(*out));
    if (memcmp(header + MH_MAGIC, MANIFEST_MAGIC, 8) != 0)
        return error_set(err, CAIRN_CORRUPT, 0, "no manifest: it begins otherwise");
    uint32_t version = get_le32(header + MH_VERSION);
    if (version > MANIFEST_VERSION)
        return error_set(err, CAIRN_CORRUPT, 0,
                         "manifest: version %u is newer than this program, which knows %d", version,
                         MANIFEST_VERSION);
    if (version != MANIFEST_VERSION)
        return error_set(err, CAIRN_CORRUPT, 0, "manifest: there is no version %u", version);
    uint8_t sha[SHA256_LEN];
    int rc = hash_sha256(header, MH_SHA, sha, err);
    if (rc)
        return rc;
    if (memcmp(sha, header + MH_SHA, SHA256_LEN) != 0)
        return error_set(err, CAIRN_CORRUPT, 0, "manifest: the header's checksum does not match");
    const char *fault = get_fields(header, out);
    if (fault)
        return error_set(err, CAIRN_CORRUPT, 0, "manifest: %s", fault);
    return CAIRN_OK;
}
