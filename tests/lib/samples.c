#include "tests/lib/samples.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <string.h>

#define CHUNK 4096u

/* ---- Chunks ---------------------------------------------------------------------------------- */

void sample_pack_id(uint32_t n, uint8_t out[PACK_ID_LEN])
{
    testing_fill(out, PACK_ID_LEN, 0xabc000 + n);
}

void sample_chunk(uint32_t n, uint32_t n_pack, uint32_t plain_len, struct chunk *out,
                  uint8_t xxh[XXH3_LEN])
{
    *out = (struct chunk){0};
    testing_fill(out->sha, SHA256_LEN, 0x5a000000ull + n);
    testing_fill(xxh, XXH3_LEN, 0x33000000ull + n);
    sample_pack_id(n_pack, out->loc.pack);
    out->loc.offset = (n % 63 + 1) * CHUNK_SIZE_MAX;
    out->loc.stored_len = out->loc.plain_len = plain_len;
    out->loc.encoding = CHUNK_RAW;
}

void sample_zstd(uint32_t n, uint32_t n_pack, uint32_t stored_len, struct chunk *out,
                 uint8_t xxh[XXH3_LEN])
{
    sample_chunk(n, n_pack, stored_len, out, xxh);
    out->loc.plain_len = 0;
    out->loc.offset += 64 + n;
    out->loc.encoding = CHUNK_ZSTD;
}

void sample_based(uint32_t n, uint32_t n_pack, uint32_t stored_len, uint32_t n_base,
                  uint32_t base_len, struct chunk *out, uint8_t xxh[XXH3_LEN])
{
    struct chunk base;
    sample_chunk(n_base, n_pack + 1, base_len, &base, xxh);
    sample_zstd(n, n_pack, stored_len, out, xxh);
    out->loc.encoding = CHUNK_ZSTD_BASE;
    memcpy(out->base_sha, base.sha, SHA256_LEN);
    out->base = base.loc;
    out->base.plain_len = 0;
}

/* ---- Manifests ------------------------------------------------------------------------------- */

void sample_info(struct manifest_info *out)
{
    *out = (struct manifest_info){.id = "tp_000102030405060708090a0b0c0d0e0f",
                                  .gen = "66e99f116e8d369c",
                                  .parent_id = "ck_00000000000000aa",
                                  .parent_gen = "10e86d34ff89ba4c",
                                  .created_ns = 1790000000123456789,
                                  .has_digest = true,
                                  .writer_version = 0x000100};
    testing_fill(out->digest, SHA256_LEN, 0xd16e57);
}

struct sample_place {
    uint64_t chunk_no;
    uint32_t n, len; /* chunk n of len stored bytes */
    char kind;       /* r(aw), z(std), b(ased on chunk n + 100) */
};

static void add_file(struct manifest_builder *b, const char *path, uint64_t size,
                     const struct sample_place *places, size_t n)
{
    struct cairn_error err;
    ck_ok(manifest_builder_file_begin(b, path, strlen(path), size, &err));
    for (size_t i = 0; i < n; i++) {
        const struct sample_place *p = &places[i];
        struct chunk c;
        uint8_t xxh[XXH3_LEN];
        if (p->kind == 'r')
            sample_chunk(p->n, p->n % 3, p->len, &c, xxh);
        else if (p->kind == 'z')
            sample_zstd(p->n, p->n % 3, p->len, &c, xxh);
        else
            sample_based(p->n, p->n % 3, p->len, p->n + 100, CHUNK, &c, xxh);
        ck_ok(manifest_builder_chunk(b, p->chunk_no, &c, xxh, &err));
    }
    ck_ok(manifest_builder_file_end(b, &err));
}

void sample_manifest(uint8_t **data, size_t *len)
{
    static const struct sample_place config[] = {{0, 1, 2, 'r'}};
    static const struct sample_place disk[] = {
        {0, 2, CHUNK, 'r'}, {1, 3, 700, 'z'}, {3, 2, CHUNK, 'r'}, {4, 4, 100, 'z'}};
    static const struct sample_place memory[] = {
        {0, 5, CHUNK, 'r'},           {5, 6, 60, 'b'},    {6, 7, 61, 'b'},
        {7, 106, CHUNK, 'r'},         {9, 2, CHUNK, 'r'}, {10, 3, 700, 'z'},
        {(1u << 24) - 1, 3, 700, 'z'}};
    static const struct sample_place deep[] = {{0, 8, CHUNK, 'r'}, {1, 9, 1, 'r'}};
    struct cairn_error err;
    struct manifest_builder *b;
    struct manifest_info info;
    ck_ok(manifest_builder_new(CHUNK, &b, &err));
    add_file(b, "config.json", 2, config, ARRAY_SIZE(config));
    add_file(b, "disk/\xff\xfe.raw", 5 * CHUNK - 96, disk, ARRAY_SIZE(disk));
    add_file(b, "empty", 0, NULL, 0);
    add_file(b, "memory", 1ull << 36, memory, ARRAY_SIZE(memory));
    add_file(b, "memory-2", 1ull << 44, NULL, 0);
    add_file(b, "nested/deep/a.bin", CHUNK + 1, deep, ARRAY_SIZE(deep));
    sample_info(&info);
    ck_ok(manifest_builder_encode(b, &info, data, len, &err));
    manifest_builder_free(b);
}

void sample_empty_manifest(uint8_t **data, size_t *len)
{
    struct cairn_error err;
    struct manifest_builder *b;
    struct manifest_info info = {.id = "ck_00000000000000aa",
                                 .gen = "5927e236febd2ea7",
                                 .created_ns = -1,
                                 .writer_version = 0x000100};
    ck_ok(manifest_builder_new(CHUNK_SIZE_DEFAULT, &b, &err));
    ck_ok(manifest_builder_encode(b, &info, data, len, &err));
    manifest_builder_free(b);
}

/* ---- Packs and format.json ------------------------------------------------------------------- */

void sample_pack(struct buf *out, uint8_t pack[PACK_ID_LEN],
                 struct pack_entry entries[SAMPLE_PACK_ENTRIES])
{
    static const struct {
        uint32_t offset, stored, plain;
        uint8_t encoding;
    } places[SAMPLE_PACK_ENTRIES] = {{4096, 4096, 4096, CHUNK_RAW},
                                     {8192, 33, 4096, CHUNK_ZSTD},
                                     {8225, 17, 100, CHUNK_ZSTD_BASE}};
    const size_t end = 8225 + 17;
    struct cairn_error err;
    sample_pack_id(7, pack);
    *out = BUF_INIT(65536);
    ck_ok(buf_reserve(out, end, &err));
    testing_fill(out->data, end, 7);
    memset(out->data, 0, 4096); /* header and padding */
    out->len = end;
    pack_header_encode(pack, CHUNK, out->data);
    for (size_t i = 0; i < SAMPLE_PACK_ENTRIES; i++) {
        struct pack_entry *e = &entries[i];
        *e = (struct pack_entry){.offset = places[i].offset,
                                 .stored_len = places[i].stored,
                                 .plain_len = places[i].plain,
                                 .encoding = places[i].encoding};
        testing_fill(e->sha, SHA256_LEN, 0x5a000000ull + i);
        if (e->encoding == CHUNK_ZSTD_BASE)
            testing_fill(e->base_sha, SHA256_LEN, 0x5a000000ull);
    }
    uint8_t header[PACK_HEADER_LEN];
    memcpy(header, out->data, sizeof(header));
    ck_ok(pack_index_encode(header, end, entries, SAMPLE_PACK_ENTRIES, out, &err));
}

void sample_format(struct store_format *out)
{
    *out = (struct store_format){.version = 1,
                                 .min_reader = 1,
                                 .min_writer = 1,
                                 .min_sweeper = 1,
                                 .chunk_size = 65536,
                                 .compression = FORMAT_ZSTD,
                                 .store_id = "00112233445566778899aabbccddeeff"};
    testing_fill(out->secret, sizeof(out->secret), 0x5ec2e7);
}
