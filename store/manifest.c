#include "store/manifest_private.h"

#include <string.h>

/* ---- Decoding -------------------------------------------------------------------------------- */

static int check_trailer(const struct manifest *m, struct cairn_error *err)
{
    uint8_t sha[SHA256_LEN];
    size_t body = m->len - MANIFEST_TRAILER_LEN;
    int rc = hash_sha256(m->data, body, sha, err);
    if (!rc && memcmp(sha, m->data + body, SHA256_LEN) != 0)
        rc = error_set(err, CAIRN_CORRUPT, 0, "manifest: the checksum does not match");
    return rc;
}

/* made: by this process, just now: its checksum and tables were computed, not read. */
static int decode(struct manifest *m, const char *id, const char *gen, bool made,
                  struct cairn_error *err)
{
    if (m->len < MANIFEST_HEADER_LEN + MANIFEST_TRAILER_LEN)
        return error_set(err, CAIRN_CORRUPT, 0, "manifest: cut short at %zu bytes", m->len);
    struct manifest_info *info = &m->info;
    int rc = manifest_header_decode(m->data, info, err);
    if (rc)
        return rc;
    if (info->total_len != m->len)
        return error_set(err, CAIRN_CORRUPT, 0, "manifest: %zu bytes, and not the %llu it claims",
                         m->len, (unsigned long long)info->total_len);
    rc = made ? CAIRN_OK : check_trailer(m, err);
    if (rc)
        return rc;
    if ((id && strcmp(id, info->id) != 0) || (gen && strcmp(gen, info->gen) != 0))
        return error_set(err, CAIRN_CORRUPT, 0, "manifest: it is that of %s, generation %s",
                         info->id, info->gen);
    struct manifest_layout at;
    m->names_len = (uint32_t)get_le64(m->data + MH_NAMES_LEN);
    manifest_layout_of(info, m->names_len, &at);
    m->files = m->data + at.files;
    m->extents = m->data + at.extents;
    m->chunks = m->data + at.chunks;
    m->packs = m->data + at.packs;
    m->names = m->data + at.names;
    return made ? CAIRN_OK : manifest_check_tables(m, err);
}

static int new_manifest(uint8_t *data, size_t len, const char *id, const char *gen, bool made,
                        struct manifest **out, struct cairn_error *err)
{
    struct manifest *m = calloc(1, sizeof(*m));
    if (!m) {
        free(data);
        return error_oom(err, "manifest");
    }
    m->data = data;
    m->len = len;
    int rc = decode(m, id, gen, made, err);
    if (rc) {
        manifest_free(m);
        return rc;
    }
    *out = m;
    return CAIRN_OK;
}

int manifest_decode(uint8_t *data, size_t len, const char *id, const char *gen,
                    struct manifest **out, struct cairn_error *err)
{
    return new_manifest(data, len, id, gen, false, out, err);
}

int manifest_adopt(uint8_t *data, size_t len, struct manifest **out, struct cairn_error *err)
{
    return new_manifest(data, len, NULL, NULL, true, out, err);
}

void manifest_free(struct manifest *m)
{
    if (!m)
        return;
    free(m->data);
    free(m);
}

void manifest_freep(struct manifest **m)
{
    manifest_free(*m);
}

/* ---- Reading --------------------------------------------------------------------------------- */

const struct manifest_info *manifest_info(const struct manifest *m)
{
    return &m->info;
}

const uint8_t *manifest_bytes(const struct manifest *m, size_t *len)
{
    *len = m->len;
    return m->data;
}

void manifest_file(const struct manifest *m, uint32_t i, struct manifest_file *out)
{
    const uint8_t *f = m->files + (size_t)i * MANIFEST_FILE_LEN;
    out->path = (const char *)m->names + get_le32(f + MF_NAME_OFF);
    out->path_len = get_le32(f + MF_NAME_LEN);
    out->size = get_le64(f + MF_SIZE);
    out->data_bytes = get_le64(f + MF_DATA);
    out->first_extent = get_le32(f + MF_FIRST_EXTENT);
    out->n_extents = get_le32(f + MF_N_EXTENTS);
    memcpy(out->content, f + MF_CONTENT, MANIFEST_CONTENT_LEN);
}

int64_t manifest_find(const struct manifest *m, const char *path, size_t len)
{
    uint32_t lo = 0, hi = m->info.n_files;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        struct manifest_file f;
        manifest_file(m, mid, &f);
        int c = memcmp(f.path, path, f.path_len < len ? f.path_len : len);
        if (c == 0)
            c = (f.path_len > len) - (f.path_len < len);
        if (c == 0)
            return mid;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

void manifest_extent(const struct manifest *m, uint32_t i, struct manifest_extent *out)
{
    const uint8_t *e = m->extents + (size_t)i * MANIFEST_EXTENT_LEN;
    out->chunk_no = get_le64(e + ME_CHUNK_NO);
    out->count = get_le32(e + ME_COUNT);
    out->first = get_le32(e + ME_FIRST);
}

/* How many of the file's extents begin at or before chunk_no. */
static uint32_t extents_up_to(const struct manifest *m, const struct manifest_file *f,
                              uint64_t chunk_no)
{
    uint32_t lo = 0, hi = f->n_extents;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        struct manifest_extent e;
        manifest_extent(m, f->first_extent + mid, &e);
        if (e.chunk_no <= chunk_no)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool manifest_lookup(const struct manifest *m, const struct manifest_file *f, uint64_t chunk_no,
                     uint32_t *chunk, uint64_t *run)
{
    struct manifest_extent e;
    uint32_t n = extents_up_to(m, f, chunk_no);
    if (n) {
        manifest_extent(m, f->first_extent + n - 1, &e);
        uint64_t in = chunk_no - e.chunk_no;
        if (in < e.count) {
            *chunk = e.first + (uint32_t)in;
            *run = e.count - in;
            return true;
        }
    }
    uint64_t end = manifest_file_chunks(f->size, m->info.chunk_size);
    if (n < f->n_extents) {
        manifest_extent(m, f->first_extent + n, &e);
        end = e.chunk_no;
    }
    *run = end > chunk_no ? end - chunk_no : 1;
    return false;
}

static const uint8_t *chunk_at(const struct manifest *m, uint32_t i)
{
    return m->chunks + (size_t)i * MANIFEST_CHUNK_LEN;
}

static void get_loc(const struct manifest *m, const uint8_t *e, struct chunk_loc *out)
{
    uint32_t stored = get_le32(e + MC_STORED);
    memcpy(out->pack, manifest_pack(m, get_le32(e + MC_PACK)), PACK_ID_LEN);
    out->offset = get_le32(e + MC_OFFSET);
    out->stored_len = stored & 0xffffff;
    out->encoding = (uint8_t)(stored >> 24);
}

void manifest_chunk(const struct manifest *m, uint32_t i, struct chunk *out)
{
    const uint8_t *e = chunk_at(m, i);
    uint32_t base = manifest_chunk_base(m, i);
    *out = (struct chunk){0};
    memcpy(out->sha, e + MC_SHA, SHA256_LEN);
    get_loc(m, e, &out->loc);
    if (base == MANIFEST_NO_BASE)
        return;
    memcpy(out->base_sha, chunk_at(m, base) + MC_SHA, SHA256_LEN);
    get_loc(m, chunk_at(m, base), &out->base);
}

const uint8_t *manifest_chunk_xxh(const struct manifest *m, uint32_t i)
{
    return chunk_at(m, i) + MC_XXH;
}

uint32_t manifest_chunk_base(const struct manifest *m, uint32_t i)
{
    return get_le32(chunk_at(m, i) + MC_BASE);
}

const uint8_t *manifest_pack(const struct manifest *m, uint32_t i)
{
    return m->packs + (size_t)i * MANIFEST_PACK_LEN;
}

uint32_t manifest_chunk_pack(const struct manifest *m, uint32_t i)
{
    return get_le32(chunk_at(m, i) + MC_PACK);
}
