#include "store/manifest_private.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct manifest_builder {
    uint32_t chunk_size;
    struct buf files, extents, names; /* in the encoded form */
    /* In the encoded form too, but the pack is a number in packs, and the base one in bases. */
    struct manifest_table chunks, bases, packs;
    struct path_order order;
    struct sha256 *content; /* of the open file */
    uint64_t logical, data;
    /* the open file */
    bool open;
    uint64_t size, file_data, next; /* next: lowest chunk_no that may come */
    uint32_t name_off, first_extent;
};

int manifest_builder_new(uint32_t chunk_size, struct manifest_builder **out,
                         struct cairn_error *err)
{
    if (!chunk_size_is_valid(chunk_size))
        return error_set(err, CAIRN_INVALID, EINVAL, "manifest: bad chunk size %" PRIu32,
                         chunk_size);
    struct manifest_builder *b = calloc(1, sizeof(*b));
    if (!b)
        return error_oom(err, "manifest");
    b->chunk_size = chunk_size;
    b->files = BUF_INIT((size_t)UINT32_MAX * MANIFEST_FILE_LEN);
    b->extents = BUF_INIT((size_t)UINT32_MAX * MANIFEST_EXTENT_LEN);
    b->names = BUF_INIT(UINT32_MAX);
    int rc = manifest_table_init(&b->chunks, MANIFEST_CHUNK_LEN, SHA256_LEN, err);
    if (!rc)
        rc = manifest_table_init(&b->bases, MANIFEST_CHUNK_LEN, SHA256_LEN, err);
    if (!rc)
        rc = manifest_table_init(&b->packs, MANIFEST_PACK_LEN, PACK_ID_LEN, err);
    if (!rc)
        rc = sha256_new(&b->content, err);
    if (rc) {
        manifest_builder_free(b);
        return rc;
    }
    *out = b;
    return CAIRN_OK;
}

void manifest_builder_free(struct manifest_builder *b)
{
    if (!b)
        return;
    buf_release(&b->files);
    buf_release(&b->extents);
    buf_release(&b->names);
    manifest_table_release(&b->chunks);
    manifest_table_release(&b->bases);
    manifest_table_release(&b->packs);
    sha256_free(b->content);
    free(b);
}

/* ---- Files ----------------------------------------------------------------------------------- */

int manifest_builder_file_begin(struct manifest_builder *b, const char *path, size_t len,
                                uint64_t size, struct cairn_error *err)
{
    if (b->open)
        return error_set(err, CAIRN_INTERNAL, EINVAL, "manifest: a file inside a file");
    if (len > MANIFEST_PATH_MAX)
        return error_set(err, CAIRN_INVALID, ENAMETOOLONG, "path of %zu bytes: at most %d", len,
                         MANIFEST_PATH_MAX);
    if (size > INT64_MAX || b->logical > INT64_MAX - size)
        return error_set(err, CAIRN_INVALID, EFBIG, "%.*s: too large", len < 255 ? (int)len : 255,
                         path);
    uint32_t off = (uint32_t)b->names.len;
    int rc = buf_add(&b->names, path, len, err);
    if (rc) {
        error_wrap(err, "paths of a manifest");
        return rc;
    }
    /* An empty first path leaves no buffer. */
    const char *bad = b->names.data ? path_order_next(&b->order, b->names.data, off, (uint32_t)len)
                                    : "is no path of an export";
    uint8_t le_size[8];
    put_le64(le_size, size);
    if (bad)
        rc = error_set(err, CAIRN_INVALID, EINVAL, "path \"%.*s\" %s", len < 255 ? (int)len : 255,
                       path, bad);
    else
        rc = sha256_update(b->content, le_size, sizeof(le_size), err);
    if (rc) {
        b->names.len = off;
        return rc;
    }
    b->open = true;
    b->size = size;
    b->file_data = b->next = 0;
    b->name_off = off;
    b->first_extent = (uint32_t)(b->extents.len / MANIFEST_EXTENT_LEN);
    return CAIRN_OK;
}

int manifest_builder_file_end(struct manifest_builder *b, struct cairn_error *err)
{
    if (!b->open)
        return error_set(err, CAIRN_INTERNAL, EINVAL, "manifest: the end of no file");
    uint8_t f[MANIFEST_FILE_LEN], sha[SHA256_LEN];
    int rc = sha256_final(b->content, sha, err);
    if (rc)
        return rc;
    uint32_t n_extents = (uint32_t)(b->extents.len / MANIFEST_EXTENT_LEN) - b->first_extent;
    put_le64(f + MF_SIZE, b->size);
    put_le64(f + MF_DATA, b->file_data);
    put_le32(f + MF_NAME_OFF, b->name_off);
    put_le32(f + MF_NAME_LEN, (uint32_t)b->names.len - b->name_off);
    put_le32(f + MF_FIRST_EXTENT, b->first_extent);
    put_le32(f + MF_N_EXTENTS, n_extents);
    memcpy(f + MF_CONTENT, sha, MANIFEST_CONTENT_LEN);
    rc = buf_add(&b->files, f, sizeof(f), err);
    if (rc) {
        error_wrap(err, "files of a manifest");
        return rc;
    }
    b->open = false;
    b->logical += b->size;
    b->data += b->file_data;
    return CAIRN_OK;
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static void put_loc(uint8_t *e, uint32_t pack, const struct chunk_loc *loc)
{
    put_le32(e + MC_PACK, pack);
    put_le32(e + MC_OFFSET, loc->offset);
    put_le32(e + MC_STORED, loc->stored_len | (uint32_t)loc->encoding << 24);
    put_le32(e + MC_BASE, MANIFEST_NO_BASE);
}

static void get_loc(const struct manifest_builder *b, const uint8_t *e, struct chunk_loc *out)
{
    uint32_t stored = get_le32(e + MC_STORED);
    memcpy(out->pack, manifest_table_at(&b->packs, get_le32(e + MC_PACK)), PACK_ID_LEN);
    out->offset = get_le32(e + MC_OFFSET);
    out->stored_len = stored & 0xffffff;
    out->encoding = (uint8_t)(stored >> 24);
}

bool manifest_builder_find(const struct manifest_builder *b, const uint8_t sha[SHA256_LEN],
                           struct chunk *out)
{
    uint32_t i = manifest_table_find(&b->chunks, sha);
    if (i == UINT32_MAX)
        return false;
    const uint8_t *e = manifest_table_at(&b->chunks, i);
    *out = (struct chunk){0};
    memcpy(out->sha, sha, SHA256_LEN);
    get_loc(b, e, &out->loc);
    uint32_t base = get_le32(e + MC_BASE);
    if (base != MANIFEST_NO_BASE) {
        e = manifest_table_at(&b->bases, base);
        memcpy(out->base_sha, e + MC_SHA, SHA256_LEN);
        get_loc(b, e, &out->base);
    }
    return true;
}

static const char *chunk_fault(const struct manifest_builder *b, const struct chunk *chunk,
                               uint32_t plain)
{
    const struct chunk_loc *loc = &chunk->loc, *base = &chunk->base;
    const char *bad =
        manifest_loc_fault(loc->offset, loc->stored_len, loc->encoding, b->chunk_size);
    if (bad)
        return bad;
    if ((loc->plain_len && loc->plain_len != plain) ||
        (loc->encoding == CHUNK_RAW && loc->stored_len != plain))
        return "not as long as its place in the file";
    if (loc->encoding != CHUNK_ZSTD_BASE)
        return NULL;
    if (base->encoding == CHUNK_ZSTD_BASE || memcmp(chunk->sha, chunk->base_sha, SHA256_LEN) == 0)
        return "its base has a base";
    return manifest_loc_fault(base->offset, base->stored_len, base->encoding, b->chunk_size);
}

/* Intern a chunk at loc; one that is there already keeps its location. */
static int add_chunk(struct manifest_builder *b, struct manifest_table *t,
                     const uint8_t sha[SHA256_LEN], const struct chunk_loc *loc, uint32_t *number,
                     bool *added, struct cairn_error *err)
{
    uint32_t pack;
    int rc = manifest_table_intern(&b->packs, loc->pack, &pack, added, err);
    if (!rc)
        rc = manifest_table_intern(t, sha, number, added, err);
    if (!rc && *added)
        put_loc(manifest_table_at(t, *number), pack, loc);
    return rc;
}

static int new_chunk(struct manifest_builder *b, const struct chunk *chunk,
                     const uint8_t xxh[XXH3_LEN], uint32_t plain, uint32_t *number,
                     struct cairn_error *err)
{
    const char *bad = chunk_fault(b, chunk, plain);
    if (bad)
        return error_set(err, CAIRN_INTERNAL, EINVAL, "manifest: chunk at offset %" PRIu32 ": %s",
                         chunk->loc.offset, bad);
    uint32_t base = MANIFEST_NO_BASE;
    bool added;
    int rc = CAIRN_OK;
    if (chunk->loc.encoding == CHUNK_ZSTD_BASE)
        rc = add_chunk(b, &b->bases, chunk->base_sha, &chunk->base, &base, &added, err);
    if (!rc)
        rc = add_chunk(b, &b->chunks, chunk->sha, &chunk->loc, number, &added, err);
    if (rc)
        return rc;
    uint8_t *e = manifest_table_at(&b->chunks, *number);
    memcpy(e + MC_XXH, xxh, XXH3_LEN);
    put_le32(e + MC_BASE, base);
    return CAIRN_OK;
}

/* The next chunk of the file is number: make the last extent longer, or begin one. */
static int add_to_extents(struct manifest_builder *b, uint64_t chunk_no, uint32_t number,
                          struct cairn_error *err)
{
    if (b->extents.len / MANIFEST_EXTENT_LEN > b->first_extent) {
        uint8_t *last = b->extents.data + b->extents.len - MANIFEST_EXTENT_LEN;
        uint32_t count = get_le32(last + ME_COUNT);
        if (get_le64(last + ME_CHUNK_NO) + count == chunk_no &&
            (uint64_t)get_le32(last + ME_FIRST) + count == number) {
            put_le32(last + ME_COUNT, count + 1);
            return CAIRN_OK;
        }
    }
    uint8_t e[MANIFEST_EXTENT_LEN];
    put_le64(e + ME_CHUNK_NO, chunk_no);
    put_le32(e + ME_COUNT, 1);
    put_le32(e + ME_FIRST, number);
    int rc = buf_add(&b->extents, e, sizeof(e), err);
    if (rc)
        error_wrap(err, "extents of a manifest");
    return rc;
}

int manifest_builder_chunk(struct manifest_builder *b, uint64_t chunk_no, const struct chunk *chunk,
                           const uint8_t xxh[XXH3_LEN], struct cairn_error *err)
{
    if (!b->open || chunk_no < b->next || chunk_no >= manifest_file_chunks(b->size, b->chunk_size))
        return error_set(err, CAIRN_INTERNAL, EINVAL,
                         "manifest: chunk %" PRIu64 " out of order or past its file", chunk_no);
    uint32_t plain = manifest_plain_len(b->size, b->chunk_size, chunk_no);
    uint32_t number = manifest_table_find(&b->chunks, chunk->sha);
    int rc = CAIRN_OK;
    if (number == UINT32_MAX)
        rc = new_chunk(b, chunk, xxh, plain, &number, err);
    if (!rc)
        rc = add_to_extents(b, chunk_no, number, err);
    if (rc)
        return rc;
    uint8_t item[8 + SHA256_LEN];
    put_le64(item, chunk_no);
    memcpy(item + 8, chunk->sha, SHA256_LEN);
    b->next = chunk_no + 1;
    b->file_data += plain;
    return sha256_update(b->content, item, sizeof(item), err);
}

/* ---- Encoding -------------------------------------------------------------------------------- */

static bool is_based(const uint8_t *entry)
{
    return entry[MC_STORED + 3] == CHUNK_ZSTD_BASE;
}

/* A base may be a chunk of the export as well, at another location where it is based itself. Its
 * bytes are the same, so that chunk moves to the location which is not. */
static void settle_bases(struct manifest_builder *b)
{
    for (uint32_t i = 0; i < b->chunks.n; i++) {
        const uint8_t *e = manifest_table_at(&b->chunks, i);
        if (!is_based(e))
            continue;
        const uint8_t *base = manifest_table_at(&b->bases, get_le32(e + MC_BASE));
        uint32_t same = manifest_table_find(&b->chunks, base);
        if (same == UINT32_MAX || !is_based(manifest_table_at(&b->chunks, same)))
            continue;
        uint8_t *moved = manifest_table_at(&b->chunks, same);
        memcpy(moved + MC_PACK, base + MC_PACK, MANIFEST_CHUNK_LEN - MC_PACK);
    }
}

/* Give each base its number among the chunks; those that no file has go behind the others. */
static int number_bases(struct manifest_builder *b, struct cairn_error *err)
{
    settle_bases(b);
    for (uint32_t i = 0, n = b->chunks.n; i < n; i++) {
        const uint8_t *e = manifest_table_at(&b->chunks, i);
        if (!is_based(e))
            continue;
        const uint8_t *base = manifest_table_at(&b->bases, get_le32(e + MC_BASE));
        uint32_t number;
        bool added;
        int rc = manifest_table_intern(&b->chunks, base, &number, &added, err);
        if (rc)
            return rc;
        if (added)
            memcpy(manifest_table_at(&b->chunks, number), base, MANIFEST_CHUNK_LEN);
        put_le32(manifest_table_at(&b->chunks, i) + MC_BASE, number);
    }
    return CAIRN_OK;
}

int manifest_builder_encode(struct manifest_builder *b, const struct manifest_info *info,
                            uint8_t **data, size_t *len, struct cairn_error *err)
{
    if (b->open)
        return error_set(err, CAIRN_INTERNAL, EINVAL, "manifest: its last file is not ended");
    int rc = number_bases(b, err);
    if (rc)
        return rc;
    struct manifest_info all = *info;
    all.chunk_size = b->chunk_size;
    all.logical_bytes = b->logical;
    all.data_bytes = b->data;
    all.n_files = (uint32_t)(b->files.len / MANIFEST_FILE_LEN);
    all.n_extents = (uint32_t)(b->extents.len / MANIFEST_EXTENT_LEN);
    all.n_chunks = b->chunks.n;
    all.n_packs = b->packs.n;
    struct manifest_parts parts = {.files = b->files.data,
                                   .extents = b->extents.data,
                                   .chunks = b->chunks.entries,
                                   .packs = b->packs.entries,
                                   .names = b->names.data,
                                   .names_len = (uint32_t)b->names.len};
    return manifest_assemble(&all, &parts, data, len, err);
}
