/* A manifest made from another: under another name, or with its chunks elsewhere. */
#include "store/manifest_private.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int manifest_rename(const struct manifest *m, const struct manifest_info *info, uint8_t **data,
                    size_t *len, struct cairn_error *err)
{
    struct manifest_info all = m->info;
    memcpy(all.id, info->id, sizeof(all.id));
    memcpy(all.gen, info->gen, sizeof(all.gen));
    memcpy(all.parent_id, info->parent_id, sizeof(all.parent_id));
    memcpy(all.parent_gen, info->parent_gen, sizeof(all.parent_gen));
    all.created_ns = info->created_ns;
    all.writer_version = info->writer_version ? info->writer_version : manifest_writer_version();
    if (info->has_digest) {
        all.has_digest = true;
        memcpy(all.digest, info->digest, SHA256_LEN);
    }
    CLEANUP_FREE uint8_t *out = malloc(m->len);
    if (!out)
        return error_oom(err, "manifest");
    memcpy(out, m->data, m->len);
    int rc = manifest_header_encode(&all, m->names_len, out, err);
    if (!rc)
        rc = manifest_seal(out, m->len, err);
    if (rc)
        return rc;
    *data = util_steal(&out);
    *len = m->len;
    return CAIRN_OK;
}

/* ---- Relocating ------------------------------------------------------------------------------ */

/* Mark the chunks that are still needed: those of extents, and the bases of those that stay based.
 * Runs are counted by their ends, so that this is linear. */
static void mark_needed(const struct manifest *m, const struct chunk_loc *locs, uint32_t *step,
                        uint8_t *needed)
{
    for (uint32_t i = 0; i < m->info.n_extents; i++) {
        struct manifest_extent e;
        manifest_extent(m, i, &e);
        step[e.first]++;
        step[e.first + e.count]--;
    }
    uint32_t holders = 0;
    for (uint32_t i = 0; i < m->info.n_chunks; i++) {
        holders += step[i];
        if (!holders)
            continue;
        needed[i] = 1;
        uint32_t base = manifest_chunk_base(m, i);
        if (base != MANIFEST_NO_BASE && locs[i].encoding == CHUNK_ZSTD_BASE)
            needed[base] = 1;
    }
}

static int move_chunk(const struct manifest *m, uint32_t i, const struct chunk_loc *loc,
                      struct manifest_table *packs, uint8_t *e, struct cairn_error *err)
{
    uint32_t pack;
    bool added;
    const char *bad =
        manifest_loc_fault(loc->offset, loc->stored_len, loc->encoding, m->info.chunk_size);
    if (!bad && loc->encoding == CHUNK_ZSTD_BASE && manifest_chunk_base(m, i) == MANIFEST_NO_BASE)
        bad = "it has no base";
    if (bad)
        return error_set(err, CAIRN_INTERNAL, EINVAL, "manifest: chunk %" PRIu32 " to move: %s", i,
                         bad);
    int rc = manifest_table_intern(packs, loc->pack, &pack, &added, err);
    if (rc)
        return rc;
    memcpy(e, m->chunks + (size_t)i * MANIFEST_CHUNK_LEN, MANIFEST_CHUNK_LEN);
    put_le32(e + MC_PACK, pack);
    put_le32(e + MC_OFFSET, loc->offset);
    put_le32(e + MC_STORED, loc->stored_len | (uint32_t)loc->encoding << 24);
    if (loc->encoding != CHUNK_ZSTD_BASE)
        put_le32(e + MC_BASE, MANIFEST_NO_BASE);
    return CAIRN_OK;
}

/* The needed chunks at their new places, numbered anew: number[i] is that of chunk i. */
static int move_chunks(const struct manifest *m, const struct chunk_loc *locs,
                       const uint8_t *needed, struct manifest_table *packs, uint8_t *chunks,
                       uint32_t *number, uint32_t *n, struct cairn_error *err)
{
    *n = 0;
    for (uint32_t i = 0; i < m->info.n_chunks; i++) {
        number[i] = *n;
        if (!needed[i])
            continue;
        uint8_t *e = chunks + (size_t)*n * MANIFEST_CHUNK_LEN;
        int rc = move_chunk(m, i, &locs[i], packs, e, err);
        if (rc)
            return rc;
        ++*n;
    }
    for (uint32_t i = 0; i < *n; i++) {
        uint8_t *base = chunks + (size_t)i * MANIFEST_CHUNK_LEN + MC_BASE;
        if (get_le32(base) != MANIFEST_NO_BASE)
            put_le32(base, number[get_le32(base)]);
    }
    return CAIRN_OK;
}

int manifest_relocate(const struct manifest *m, const struct chunk_loc *locs, uint8_t **data,
                      size_t *len, struct cairn_error *err)
{
    struct manifest_info info = m->info;
    size_t n = info.n_chunks, extents_len = (size_t)info.n_extents * MANIFEST_EXTENT_LEN;
    CLEANUP_FREE uint32_t *number = calloc(n + 1, sizeof(*number));
    CLEANUP_FREE uint8_t *needed = calloc(n + 1, 1);
    CLEANUP_FREE uint8_t *chunks = malloc(n * MANIFEST_CHUNK_LEN + 1);
    CLEANUP_FREE uint8_t *extents = malloc(extents_len + 1);
    if (!number || !needed || !chunks || !extents)
        return error_oom(err, "manifest to move");
    CLEANUP_MANIFEST_TABLE struct manifest_table packs;
    int rc = manifest_table_init(&packs, MANIFEST_PACK_LEN, PACK_ID_LEN, err);
    if (rc)
        return rc;
    mark_needed(m, locs, number, needed);
    rc = move_chunks(m, locs, needed, &packs, chunks, number, &info.n_chunks, err);
    if (rc)
        return rc;
    memcpy(extents, m->extents, extents_len);
    for (uint32_t i = 0; i < info.n_extents; i++) {
        /* Only bases go, and none lies inside a run, so runs stay runs. */
        uint8_t *first = extents + (size_t)i * MANIFEST_EXTENT_LEN + ME_FIRST;
        put_le32(first, number[get_le32(first)]);
    }
    info.n_packs = packs.n;
    info.writer_version = 0;
    struct manifest_parts parts = {.files = m->files,
                                   .extents = extents,
                                   .chunks = chunks,
                                   .packs = packs.entries,
                                   .names = m->names,
                                   .names_len = m->names_len};
    return manifest_assemble(&info, &parts, data, len, err);
}
