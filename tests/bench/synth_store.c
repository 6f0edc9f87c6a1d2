/* Plant manifests without packs' bytes: a store of many records and chunks to sweep.
 *
 *   synth_store DIR RECORDS CHUNKS-EACH
 *
 * DIR is a fresh store (cairn init). Nine of ten chunks of a record are shared with its neighbours;
 * packs are sparse files of the right length. Nothing can be read back; a sweep reads no chunk. */
#include "base/util.h"
#include "store/manifest.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PER_PACK 1000
#define STORED   65536u
#define OWN      ((uint64_t)1 << 40) /* numbers of chunks that are not shared */

static void die(const char *what, const struct cairn_error *err)
{
    fprintf(stderr, "synth_store: %s: %s\n", what, err ? err->message : "failed");
    exit(1);
}

/* Chunk number n of the store. */
static void make_chunk(uint64_t n, struct chunk *c, uint8_t xxh[XXH3_LEN])
{
    *c = (struct chunk){0};
    put_le64(c->sha, n * 0x9e3779b97f4a7c15u + 1);
    put_le64(c->sha + 8, n);
    put_le64(c->loc.pack, (n / PER_PACK + 1) * 0xbf58476d1ce4e5b9u);
    put_le64(c->loc.pack + 8, n / PER_PACK);
    c->loc.offset = 4096 + (uint32_t)(n % PER_PACK) * STORED;
    c->loc.stored_len = STORED;
    c->loc.plain_len = STORED;
    c->loc.encoding = CHUNK_RAW;
    memcpy(xxh, c->sha, XXH3_LEN);
}

/* Nine tenths are those of its group of ten records, one tenth is its own. */
static uint64_t chunk_number(uint64_t record, uint64_t i, uint64_t each)
{
    uint64_t shared = each * 9 / 10;
    return i < shared ? record / 10 * shared + i : OWN + record * (each - shared) + (i - shared);
}

/* The packs of chunks from..to-1, as sparse files. */
static void make_packs(const char *dir, uint64_t from, uint64_t to)
{
    for (uint64_t n = from / PER_PACK; n * PER_PACK < to; n++) {
        struct chunk c;
        uint8_t xxh[XXH3_LEN];
        char key[KEY_MAX], path[4096];
        make_chunk(n * PER_PACK, &c, xxh);
        layout_pack(c.loc.pack, key);
        int len = snprintf(path, sizeof(path), "%s/packs", dir);
        (void)mkdir(path, 0700);
        snprintf(path + len, sizeof(path) - (size_t)len, "/%02x", c.loc.pack[0]);
        (void)mkdir(path, 0700);
        snprintf(path, sizeof(path), "%s/%s", dir, key);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, 4096 + (off_t)PER_PACK * (STORED + 80)) != 0)
            die(path, NULL);
        close(fd);
    }
}

static void put_record(struct cairn_store *s, uint64_t record, uint32_t each)
{
    struct cairn_error err;
    struct manifest_builder *b = NULL;
    struct manifest_info info = {0};
    char meta[64], key[KEY_MAX];
    uint8_t *data = NULL;
    size_t len = 0;
    snprintf(info.id, sizeof(info.id), "ck_%016llx", (unsigned long long)record);
    int n = snprintf(meta, sizeof(meta), "{\"id\":\"%s\"}", info.id);
    int rc = gen_of_meta(meta, (size_t)n, info.gen, &err);
    if (!rc)
        rc = manifest_builder_new(s->format.chunk_size, &b, &err);
    if (rc)
        die(info.id, &err);
    rc = manifest_builder_file_begin(b, "memory", 6, (uint64_t)each * STORED, &err);
    for (uint32_t i = 0; !rc && i < each; i++) {
        struct chunk c;
        uint8_t xxh[XXH3_LEN];
        make_chunk(chunk_number(record, i, each), &c, xxh);
        rc = manifest_builder_chunk(b, i, &c, xxh, &err);
    }
    if (!rc)
        rc = manifest_builder_file_end(b, &err);
    if (!rc)
        rc = manifest_builder_encode(b, &info, &data, &len, &err);
    if (rc)
        die(info.id, &err);
    manifest_builder_free(b);
    layout_export(info.id, info.gen, key);
    rc = s->backend->ops->put(s->backend, NULL, key, data, len, &err);
    free(data);
    layout_meta(info.id, key);
    if (!rc)
        rc = s->backend->ops->put(s->backend, NULL, key, meta, (size_t)n, &err);
    if (rc)
        die(key, &err);
}

int main(int argc, char **argv)
{
    struct cairn_error err;
    struct cairn_store *s;
    if (argc != 4) {
        fprintf(stderr, "usage: synth_store DIR RECORDS CHUNKS-EACH\n");
        return 2;
    }
    struct cairn_config config = {.store = argv[1]};
    if (cairn_open(&config, NULL, &s, &err))
        die(argv[1], &err);
    uint64_t records = strtoull(argv[2], NULL, 10);
    uint32_t each = (uint32_t)strtoul(argv[3], NULL, 10);
    for (uint64_t i = 0; i < records; i++)
        put_record(s, i, each);
    uint64_t shared = each * 9 / 10;
    make_packs(argv[1], 0, (records + 9) / 10 * shared);
    make_packs(argv[1], OWN, OWN + records * (each - shared));
    cairn_close(s);
    return 0;
}
