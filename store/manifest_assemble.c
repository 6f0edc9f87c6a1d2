#include "store/manifest_private.h"

#include <errno.h>
#include <string.h>

static int compare_packs(const void *a, const void *b)
{
    const uint8_t *const *x = a, *const *y = b;
    return memcmp(*x, *y, PACK_ID_LEN);
}

/* The packs that chunks name, in order, and the new number of each old one. */
static int sort_packs(const struct manifest_parts *p, struct manifest_info *info,
                      const uint8_t ***sorted, uint32_t **number, struct cairn_error *err)
{
    CLEANUP_FREE uint32_t *new_of = calloc((size_t)info->n_packs + 1, sizeof(*new_of));
    CLEANUP_FREE const uint8_t **packs = calloc((size_t)info->n_packs + 1, sizeof(*packs));
    if (!new_of || !packs)
        return error_oom(err, "packs of a manifest");
    info->stored_bytes = 0;
    for (uint32_t i = 0; i < info->n_chunks; i++) {
        const uint8_t *e = p->chunks + (size_t)i * MANIFEST_CHUNK_LEN;
        new_of[get_le32(e + MC_PACK)] = 1;
        info->stored_bytes += get_le32(e + MC_STORED) & 0xffffff;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < info->n_packs; i++)
        if (new_of[i])
            packs[n++] = p->packs + (size_t)i * MANIFEST_PACK_LEN;
    if (n)
        qsort(packs, n, sizeof(*packs), compare_packs);
    for (uint32_t i = 0; i < n; i++)
        new_of[(size_t)(packs[i] - p->packs) / MANIFEST_PACK_LEN] = i;
    info->n_packs = n;
    *sorted = util_steal(&packs);
    *number = util_steal(&new_of);
    return CAIRN_OK;
}

static void put(uint8_t *to, const uint8_t *from, size_t len)
{
    if (len)
        memcpy(to, from, len);
}

static void put_tables(const struct manifest_info *info, const struct manifest_parts *p,
                       const struct manifest_layout *at, const uint8_t *const *packs,
                       const uint32_t *number, uint8_t *out)
{
    put(out + at->files, p->files, (size_t)(at->extents - at->files));
    put(out + at->extents, p->extents, (size_t)(at->chunks - at->extents));
    put(out + at->chunks, p->chunks, (size_t)(at->packs - at->chunks));
    for (uint32_t i = 0; i < info->n_chunks; i++) {
        uint8_t *pack = out + at->chunks + (size_t)i * MANIFEST_CHUNK_LEN + MC_PACK;
        put_le32(pack, number[get_le32(pack)]);
    }
    for (uint32_t i = 0; i < info->n_packs; i++)
        memcpy(out + at->packs + (size_t)i * MANIFEST_PACK_LEN, packs[i], PACK_ID_LEN);
    put(out + at->names, p->names, p->names_len);
    memset(out + at->names + p->names_len, 0, (size_t)(at->trailer - at->names) - p->names_len);
}

/* Nothing is handed out that could not be read again. */
static int check_result(const struct manifest_info *info, const struct manifest_layout *at,
                        uint32_t names_len, uint8_t *data, struct cairn_error *err)
{
    struct manifest m = {.data = data,
                         .len = (size_t)at->total,
                         .info = *info,
                         .files = data + at->files,
                         .extents = data + at->extents,
                         .chunks = data + at->chunks,
                         .packs = data + at->packs,
                         .names = data + at->names,
                         .names_len = names_len};
    struct cairn_error e;
    if (manifest_check_tables(&m, &e) == CAIRN_OK)
        return CAIRN_OK;
    return error_set(err, CAIRN_INTERNAL, e.sys_errno, "the new manifest of %s is wrong: %s",
                     info->id, e.message);
}

int manifest_assemble(const struct manifest_info *from, const struct manifest_parts *parts,
                      uint8_t **data, size_t *len, struct cairn_error *err)
{
    struct manifest_info info = *from;
    CLEANUP_FREE const uint8_t **packs = NULL;
    CLEANUP_FREE uint32_t *number = NULL;
    int rc = sort_packs(parts, &info, &packs, &number, err);
    if (rc)
        return rc;
    if (!info.writer_version)
        info.writer_version = manifest_writer_version();
    struct manifest_layout at;
    manifest_layout_of(&info, parts->names_len, &at);
    if (at.total > MANIFEST_MAX)
        return error_set(err, CAIRN_INVALID, EFBIG, "manifest of %s: more than %zu bytes", info.id,
                         MANIFEST_MAX);
    CLEANUP_FREE uint8_t *out = malloc((size_t)at.total);
    if (!out)
        return error_oom(err, "manifest");
    put_tables(&info, parts, &at, packs, number, out);
    rc = check_result(&info, &at, parts->names_len, out, err);
    if (!rc)
        rc = manifest_header_encode(&info, parts->names_len, out, err);
    if (!rc)
        rc = manifest_seal(out, (size_t)at.total, err);
    if (rc)
        return rc;
    *data = util_steal(&out);
    *len = (size_t)at.total;
    return CAIRN_OK;
}
