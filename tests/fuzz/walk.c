#include "tests/fuzz/walk.h"

#include "base/util.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static uint8_t *copy_of(const uint8_t *data, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    FUZZ_CHECK(copy);
    if (len)
        memcpy(copy, data, len);
    return copy;
}

/* ---- Manifests ------------------------------------------------------------------------------- */

/* The answers of lookup along the file are those of its extents; bounded, since a few bytes can
 * claim very many chunks. */
static void walk_file(const struct manifest *m, const struct manifest_file *f,
                      uint64_t *next_extent)
{
    const struct manifest_info *info = manifest_info(m);
    uint64_t n = f->size / info->chunk_size + (f->size % info->chunk_size != 0), no = 0;
    FUZZ_CHECK(manifest_path_is_valid(f->path, f->path_len));
    FUZZ_CHECK(f->data_bytes <= f->size);
    FUZZ_CHECK(f->first_extent == *next_extent && f->n_extents <= info->n_extents);
    *next_extent += f->n_extents;
    for (uint32_t i = 0; i < f->n_extents; i++) {
        struct manifest_extent e;
        uint32_t chunk;
        uint64_t run;
        manifest_extent(m, f->first_extent + i, &e);
        FUZZ_CHECK(e.chunk_no >= no && e.count && e.chunk_no + e.count <= n);
        FUZZ_CHECK((uint64_t)e.first + e.count <= info->n_chunks);
        if (e.chunk_no > no) {
            FUZZ_CHECK(!manifest_lookup(m, f, no, &chunk, &run));
            FUZZ_CHECK(run == e.chunk_no - no);
            FUZZ_CHECK(!manifest_lookup(m, f, e.chunk_no - 1, &chunk, &run) && run == 1);
        }
        FUZZ_CHECK(manifest_lookup(m, f, e.chunk_no, &chunk, &run));
        FUZZ_CHECK(chunk == e.first && run == e.count);
        no = e.chunk_no + e.count;
        FUZZ_CHECK(manifest_lookup(m, f, no - 1, &chunk, &run));
        FUZZ_CHECK(chunk == e.first + e.count - 1 && run == 1);
    }
    uint32_t chunk;
    uint64_t run;
    FUZZ_CHECK(!manifest_lookup(m, f, n, &chunk, &run) && run);
    FUZZ_CHECK(!manifest_lookup(m, f, UINT64_MAX, &chunk, &run) && run);
}

static void walk_chunk(const struct manifest *m, uint32_t i)
{
    const struct manifest_info *info = manifest_info(m);
    struct chunk c;
    manifest_chunk(m, i, &c);
    uint32_t base = manifest_chunk_base(m, i);
    FUZZ_CHECK(c.loc.encoding <= CHUNK_ZSTD_BASE);
    FUZZ_CHECK(c.loc.stored_len && c.loc.stored_len <= info->chunk_size);
    FUZZ_CHECK((uint64_t)c.loc.offset + c.loc.stored_len <= PACK_SIZE_MAX);
    FUZZ_CHECK(manifest_chunk_pack(m, i) < info->n_packs);
    FUZZ_CHECK((base != UINT32_MAX) == (c.loc.encoding == CHUNK_ZSTD_BASE));
    FUZZ_CHECK(base == UINT32_MAX || manifest_chunk_base(m, base) == UINT32_MAX);
    uint8_t any = 0;
    for (int k = 0; k < XXH3_LEN; k++)
        any |= manifest_chunk_xxh(m, i)[k];
    (void)any;
}

static void rewrite(const struct manifest *m)
{
    struct cairn_error err;
    uint8_t *data;
    size_t len;
    struct manifest *r;
    const struct manifest_info *info = manifest_info(m);
    FUZZ_CHECK(manifest_rename(m, info, &data, &len, &err) == CAIRN_OK);
    FUZZ_CHECK(manifest_decode(data, len, info->id, info->gen, &r, &err) == CAIRN_OK);
    manifest_free(r);
    CLEANUP_FREE struct chunk_loc *locs = calloc((size_t)info->n_chunks + 1, sizeof(*locs));
    FUZZ_CHECK(locs);
    for (uint32_t i = 0; i < info->n_chunks; i++) {
        struct chunk c;
        manifest_chunk(m, i, &c);
        locs[i] = c.loc;
        if (i % 2 && c.loc.encoding == CHUNK_ZSTD_BASE)
            locs[i].encoding = CHUNK_ZSTD;
    }
    FUZZ_CHECK(manifest_relocate(m, locs, &data, &len, &err) == CAIRN_OK);
    FUZZ_CHECK(manifest_decode(data, len, info->id, info->gen, &r, &err) == CAIRN_OK);
    FUZZ_CHECK(manifest_info(r)->data_bytes == info->data_bytes);
    manifest_free(r);
}

bool walk_manifest(const uint8_t *data, size_t len)
{
    struct cairn_error err;
    struct manifest_info head;
    CLEANUP_MANIFEST struct manifest *m = NULL;
    int rc = manifest_decode(copy_of(data, len), len, NULL, NULL, &m, &err);
    if (rc) {
        FUZZ_CHECK_ERROR(rc, &err, CAIRN_CORRUPT);
        return false;
    }
    const struct manifest_info *info = manifest_info(m);
    FUZZ_CHECK(manifest_header_decode(data, &head, &err) == CAIRN_OK);
    FUZZ_CHECK(memcmp(&head, info, sizeof(head)) == 0);
    uint64_t logical = 0, next_extent = 0;
    for (uint32_t i = 0; i < info->n_files; i++) {
        struct manifest_file f;
        manifest_file(m, i, &f);
        FUZZ_CHECK(manifest_find(m, f.path, f.path_len) == i);
        walk_file(m, &f, &next_extent);
        logical += f.size;
    }
    FUZZ_CHECK(logical == info->logical_bytes && next_extent == info->n_extents);
    for (uint32_t i = 0; i < info->n_chunks; i++)
        walk_chunk(m, i);
    rewrite(m);
    return true;
}

/* ---- Packs ----------------------------------------------------------------------------------- */

bool walk_pack(const uint8_t *data, size_t len)
{
    struct cairn_error err;
    CLEANUP_FREE struct pack_entry *list = NULL;
    uint64_t off;
    uint32_t n, chunk_size;
    if (len < PACK_HEADER_LEN + PACK_TRAILER_LEN)
        return false;
    const uint8_t *trailer = data + len - PACK_TRAILER_LEN;
    int rc = pack_trailer_decode(trailer, len, &off, &n, &err);
    if (!rc)
        rc = pack_index_decode(data + 16, data, data + off, off, n, trailer, &list, &chunk_size,
                               &err);
    if (rc) {
        FUZZ_CHECK_ERROR(rc, &err, CAIRN_CORRUPT);
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        FUZZ_CHECK(list[i].offset >= PACK_HEADER_LEN);
        FUZZ_CHECK((uint64_t)list[i].offset + list[i].stored_len <= off);
        FUZZ_CHECK(list[i].plain_len && list[i].plain_len <= chunk_size);
    }
    /* What decodes is what the encoder writes. */
    CLEANUP_BUF struct buf again = BUF_INIT(len);
    FUZZ_CHECK(pack_index_encode(data, off, list, n, &again, &err) == CAIRN_OK);
    FUZZ_CHECK(again.len == len - off && memcmp(again.data, data + off, again.len) == 0);
    return true;
}

/* ---- format.json ----------------------------------------------------------------------------- */

bool walk_format(const uint8_t *data, size_t len)
{
    struct cairn_error err;
    struct store_format f, g;
    int rc = format_decode(data, len, &f, &err);
    if (rc) {
        FUZZ_CHECK_ERROR(rc, &err, rc == CAIRN_PERMANENT ? CAIRN_PERMANENT : CAIRN_CORRUPT);
        return false;
    }
    CLEANUP_BUF struct buf text = BUF_INIT(FORMAT_MAX);
    FUZZ_CHECK(format_encode(&f, &text, &err) == CAIRN_OK);
    FUZZ_CHECK(format_decode(text.data, text.len, &g, &err) == CAIRN_OK);
    FUZZ_CHECK(memcmp(&f, &g, sizeof(f)) == 0);
    return true;
}
