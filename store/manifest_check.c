/* Whether the tables of a manifest hold together. Linear in its length, whatever it claims: one
 * extent may name any number of chunks, so runs are counted by their two ends. */
#include "store/manifest_private.h"

#include <string.h>

/* In plain[]: this chunk is the base of another. Plain lengths stay far below. */
#define IS_BASE 0x80000000u

struct check {
    const struct manifest *m;
    /* For each chunk: by how much the number of extents that hold it at full length differs from
     * that of the chunk before (modulo 2^32). n_chunks + 1. */
    uint32_t *step;
    uint32_t *plain; /* for each chunk: its length at the end of a file, 0: none; IS_BASE */
    uint8_t *pack_named;
    struct path_order *order;
    uint64_t logical, data, stored;
};

static int fault(struct cairn_error *err, const char *table, uint32_t i, const char *what)
{
    return error_set(err, CAIRN_CORRUPT, 0, "manifest: %s %u: %s", table, i, what);
}

const char *manifest_loc_fault(uint32_t offset, uint32_t stored_len, uint8_t encoding,
                               uint32_t chunk_size)
{
    if (encoding > CHUNK_ZSTD_BASE)
        return "unknown encoding";
    if (stored_len == 0 || stored_len > chunk_size)
        return "bad stored length";
    if (offset < PACK_HEADER_LEN || offset > PACK_SIZE_MAX - stored_len)
        return "lies outside of its pack";
    if (encoding == CHUNK_RAW && offset % PACK_RAW_ALIGN != 0)
        return "raw, but not aligned";
    return NULL;
}

/* ---- Files and extents ----------------------------------------------------------------------- */

static const char *check_extent(struct check *c, const uint8_t *e, uint64_t size, uint64_t *next,
                                uint64_t *data)
{
    const struct manifest_info *info = &c->m->info;
    uint64_t no = get_le64(e + ME_CHUNK_NO), n = manifest_file_chunks(size, info->chunk_size);
    uint32_t count = get_le32(e + ME_COUNT), first = get_le32(e + ME_FIRST);
    if (no < *next)
        return "out of order";
    if (count == 0 || no >= n || count > n - no)
        return "reaches past its file";
    if (first >= info->n_chunks || count > info->n_chunks - first)
        return "reaches past the chunks";
    *next = no + count;
    *data += (uint64_t)count * info->chunk_size;
    uint32_t full = count, tail = manifest_plain_len(size, info->chunk_size, *next - 1);
    if (tail < info->chunk_size) {
        full--;
        *data -= info->chunk_size - tail;
        uint32_t *plain = &c->plain[first + full];
        if (*plain && *plain != tail)
            return "a chunk of two lengths";
        *plain = tail;
    }
    c->step[first]++;
    c->step[first + full]--;
    return NULL;
}

static int check_file(struct check *c, uint32_t i, uint32_t *name_off, uint32_t *extent,
                      struct cairn_error *err)
{
    const struct manifest *m = c->m;
    const uint8_t *f = m->files + (size_t)i * MANIFEST_FILE_LEN;
    uint32_t name_len = get_le32(f + MF_NAME_LEN), n = get_le32(f + MF_N_EXTENTS);
    uint64_t size = get_le64(f + MF_SIZE), next = 0, data = 0;
    if (get_le32(f + MF_NAME_OFF) != *name_off || name_len > m->names_len - *name_off)
        return fault(err, "file", i, "its path lies elsewhere");
    const char *bad = path_order_next(c->order, m->names, *name_off, name_len);
    if (bad)
        return fault(err, "file", i, bad);
    *name_off += name_len;
    if (size > INT64_MAX || c->logical > INT64_MAX - size)
        return fault(err, "file", i, "too large");
    c->logical += size;
    if (get_le32(f + MF_FIRST_EXTENT) != *extent || n > m->info.n_extents - *extent)
        return fault(err, "file", i, "its extents lie elsewhere");
    for (uint32_t end = *extent + n; *extent < end; ++*extent) {
        const uint8_t *e = m->extents + (size_t)*extent * MANIFEST_EXTENT_LEN;
        bad = check_extent(c, e, size, &next, &data);
        if (bad)
            return fault(err, "extent", *extent, bad);
    }
    if (data != get_le64(f + MF_DATA))
        return fault(err, "file", i, "its data length is not that of its extents");
    c->data += data;
    return CAIRN_OK;
}

static int check_files(struct check *c, struct cairn_error *err)
{
    const struct manifest *m = c->m;
    uint32_t name_off = 0, extent = 0;
    for (uint32_t i = 0; i < m->info.n_files; i++) {
        int rc = check_file(c, i, &name_off, &extent, err);
        if (rc)
            return rc;
    }
    if (name_off != m->names_len || extent != m->info.n_extents)
        return error_set(err, CAIRN_CORRUPT, 0, "manifest: paths or extents of no file");
    const uint8_t *pad = m->names + m->names_len;
    const uint8_t *trailer = m->data + m->len - MANIFEST_TRAILER_LEN;
    if (!util_is_zero(pad, (size_t)(trailer - pad)))
        return error_set(err, CAIRN_CORRUPT, 0, "manifest: padding is not zero");
    return CAIRN_OK;
}

/* ---- Chunks and packs ------------------------------------------------------------------------ */

static const char *check_base(struct check *c, uint32_t i, uint8_t encoding)
{
    const struct manifest *m = c->m;
    uint32_t base = manifest_chunk_base(m, i);
    if (encoding != CHUNK_ZSTD_BASE)
        return base == MANIFEST_NO_BASE ? NULL : "has a base that it does not need";
    if (base >= m->info.n_chunks)
        return "has no base";
    if (m->chunks[(size_t)base * MANIFEST_CHUNK_LEN + MC_STORED + 3] == CHUNK_ZSTD_BASE)
        return "its base has a base";
    c->plain[base] |= IS_BASE;
    return NULL;
}

static const char *check_chunk(struct check *c, uint32_t i)
{
    const struct manifest_info *info = &c->m->info;
    const uint8_t *e = c->m->chunks + (size_t)i * MANIFEST_CHUNK_LEN;
    uint32_t pack = get_le32(e + MC_PACK), stored = get_le32(e + MC_STORED);
    uint8_t encoding = (uint8_t)(stored >> 24);
    stored &= 0xffffff;
    if (pack >= info->n_packs)
        return "lies in no pack";
    c->pack_named[pack] = 1;
    c->stored += stored;
    const char *bad =
        manifest_loc_fault(get_le32(e + MC_OFFSET), stored, encoding, info->chunk_size);
    return bad ? bad : check_base(c, i, encoding);
}

/* After all extents and bases: that each chunk is used, with one length, and raw ones with theirs.
 */
static const char *check_use(const struct check *c, uint32_t i, bool is_full)
{
    const uint8_t *e = c->m->chunks + (size_t)i * MANIFEST_CHUNK_LEN;
    uint32_t stored = get_le32(e + MC_STORED), tail = c->plain[i] & ~IS_BASE;
    if (!is_full && !c->plain[i])
        return "is not used";
    if (is_full && tail)
        return "a chunk of two lengths";
    uint32_t plain = is_full ? c->m->info.chunk_size : tail;
    if (stored >> 24 == CHUNK_RAW && plain && stored != plain)
        return "raw, but not as long as its place in the file";
    return NULL;
}

static int check_chunks(struct check *c, struct cairn_error *err)
{
    uint32_t n = c->m->info.n_chunks, holders = 0;
    const char *bad = NULL;
    for (uint32_t i = 0; i < n && !bad; i++) {
        bad = check_chunk(c, i);
        if (bad)
            return fault(err, "chunk", i, bad);
    }
    for (uint32_t i = 0; i < n; i++) {
        holders += c->step[i];
        bad = check_use(c, i, holders != 0);
        if (bad)
            return fault(err, "chunk", i, bad);
    }
    return CAIRN_OK;
}

static int check_packs(const struct check *c, struct cairn_error *err)
{
    for (uint32_t i = 0; i < c->m->info.n_packs; i++) {
        if (i && memcmp(manifest_pack(c->m, i - 1), manifest_pack(c->m, i), PACK_ID_LEN) >= 0)
            return fault(err, "pack", i, "not greater than the one before it");
        if (!c->pack_named[i])
            return fault(err, "pack", i, "holds no chunk");
    }
    return CAIRN_OK;
}

int manifest_check_tables(const struct manifest *m, struct cairn_error *err)
{
    /* The length is the one that these numbers make, so they are no larger than the data. */
    CLEANUP_FREE uint32_t *step = calloc((size_t)m->info.n_chunks + 1, sizeof(*step));
    CLEANUP_FREE uint32_t *plain = calloc((size_t)m->info.n_chunks + 1, sizeof(*plain));
    CLEANUP_FREE uint8_t *pack_named = calloc((size_t)m->info.n_packs + 1, 1);
    CLEANUP_FREE struct path_order *order = malloc(sizeof(*order));
    if (!step || !plain || !pack_named || !order)
        return error_oom(err, "checking a manifest");
    order->n = 0;
    struct check c = {
        .m = m, .step = step, .plain = plain, .pack_named = pack_named, .order = order};
    int rc = check_files(&c, err);
    if (!rc)
        rc = check_chunks(&c, err);
    if (!rc)
        rc = check_packs(&c, err);
    if (rc)
        return rc;
    if (c.logical != m->info.logical_bytes || c.data != m->info.data_bytes ||
        c.stored != m->info.stored_bytes)
        return error_set(err, CAIRN_CORRUPT, 0, "manifest: its sums are wrong");
    return CAIRN_OK;
}

/* ---- Content keys ---------------------------------------------------------------------------- */

static int check_content(const struct manifest *m, const struct cairn_op *op, struct sha256 *h,
                         uint32_t i, struct cairn_error *err)
{
    struct manifest_file f;
    manifest_file(m, i, &f);
    uint8_t item[8 + SHA256_LEN], sha[SHA256_LEN];
    put_le64(item, f.size);
    int rc = sha256_update(h, item, 8, err);
    for (uint32_t x = 0; !rc && x < f.n_extents; x++) {
        struct manifest_extent e;
        manifest_extent(m, f.first_extent + x, &e);
        /* Each of many extents may name all the chunks. */
        rc = op_check(op, "checking a manifest", err);
        for (uint32_t k = 0; !rc && k < e.count; k++) {
            put_le64(item, e.chunk_no + k);
            memcpy(item + 8, m->chunks + ((size_t)e.first + k) * MANIFEST_CHUNK_LEN, SHA256_LEN);
            rc = sha256_update(h, item, sizeof(item), err);
        }
    }
    if (!rc)
        rc = sha256_final(h, sha, err);
    if (!rc && memcmp(sha, f.content, MANIFEST_CONTENT_LEN) != 0)
        rc = fault(err, "file", i, "its content key is wrong");
    return rc;
}

int manifest_check_content(const struct manifest *m, const struct cairn_op *op,
                           struct cairn_error *err)
{
    CLEANUP_SHA256 struct sha256 *h = NULL;
    int rc = sha256_new(&h, err);
    for (uint32_t i = 0; !rc && i < m->info.n_files; i++)
        rc = check_content(m, op, h, i, err);
    return rc;
}
