/* A whole small store, bent: objects are changed, cut, swapped and removed, some of them sealed
 * anew, then everything is listed, shown, read and verified. No input may end in a crash, in a
 * hang, in bytes that were never published, or in a store that verifies clean and cannot be read.
 *
 * The input is a list of changes, eight bytes each: object, kind of change (with 0x80: make the
 * checksums right again afterwards), offset (u32), two values. */
#include "base/util.h"
#include "store/store.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/samples.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CHANGE_LEN  8
#define CHANGES_MAX 8
#define OBJECTS_MAX 16
#define RESEAL      0x80
#define CHUNK       4096u

struct object {
    char key[KEY_MAX];
    uint8_t *data; /* owned */
    size_t len;
    bool gone;
};

static struct object base[OBJECTS_MAX];
static size_t n_base;

/* ---- The store as it was --------------------------------------------------------------------- */

static const struct {
    const char *id, *path;
    size_t len;
    uint8_t seed;
} published[] = {
    {"ck_00000000000000aa", "disk/a", 5 * CHUNK + 100, 1},
    {"ck_00000000000000aa", "memory", 3 * CHUNK, 2},
    {"ck_00000000000000aa", "empty", 0, 0},
    {"ck_00000000000000bb", "disk/a", 5 * CHUNK + 100, 3},
    {"ck_00000000000000bb", "memory", 3 * CHUNK, 2},
};

/* Byte at of the file: a hole in the middle, and only a few bytes differ from seed to seed. */
static uint8_t plain(size_t file, uint64_t at)
{
    if (at / CHUNK == 1)
        return 0;
    if (at % 512 == 7)
        return published[file].seed;
    return (uint8_t)((at * at >> 7) ^ at >> 3 ^ (at / CHUNK == 2 ? at * 31 : 0));
}

static void write_export(const char *root, const char *id)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/disk", root);
    FUZZ_CHECK(mkdir(path, 0700) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(published); i++) {
        if (strcmp(published[i].id, id) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", root, published[i].path);
        CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        FUZZ_CHECK(fd >= 0);
        for (size_t at = 0; at < published[i].len; at++) {
            uint8_t b = plain(i, at);
            FUZZ_CHECK(util_pwrite_full(fd, &b, 1, at) == 1);
        }
    }
}

static void remove_export(const char *root)
{
    static const char *const names[] = {"disk/a", "memory", "empty", "disk", "."};
    char path[256];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, i < 4 ? names[i] : "");
        (void)remove(path);
    }
}

static void keep_objects(struct backend *b)
{
    CLEANUP_BACKEND_ITER struct backend_iter *it = NULL;
    struct backend_entry e;
    FUZZ_CHECK(b->ops->list(b, NULL, "", "", &it, NULL) == CAIRN_OK);
    for (;;) {
        FUZZ_CHECK(it->ops->iter_next(it, NULL, &e, NULL) == CAIRN_OK);
        if (!e.key)
            return;
        struct object *o = &base[n_base++];
        struct buf data = BUF_INIT(1 << 24);
        FUZZ_CHECK(n_base < OBJECTS_MAX);
        FUZZ_CHECK(b->ops->get(b, NULL, e.key, 1 << 24, &data, NULL, NULL) == CAIRN_OK);
        snprintf(o->key, sizeof(o->key), "%s", e.key);
        o->data = data.data;
        o->len = data.len;
    }
}

static void make_base(void)
{
    struct backend *b = NULL, *mine = NULL;
    struct cairn_store *s = NULL;
    const struct cairn_config config = {.store = "memory", .workers = 1};
    const struct cairn_init_options init = {.chunk_size = CHUNK};
    FUZZ_CHECK(backend_mem_new(&b, NULL) == CAIRN_OK);
    FUZZ_CHECK(backend_mem_share(b, &mine, NULL) == CAIRN_OK);
    FUZZ_CHECK(store_format_init(b, &init, NULL, NULL) == CAIRN_OK);
    FUZZ_CHECK(store_new(mine, &config, NULL, &s, NULL) == CAIRN_OK);
    static const char *const ids[] = {"ck_00000000000000aa", "ck_00000000000000bb"};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        char root[] = "/tmp/cairn-fuzz-store-XXXXXX";
        FUZZ_CHECK(mkdtemp(root));
        write_export(root, ids[i]);
        const struct cairn_publish_options options = {
            .from = root, .meta = ids[i], .meta_len = 19, .parent = i ? ids[0] : NULL};
        struct cairn_publish_result result;
        FUZZ_CHECK(cairn_publish(s, NULL, ids[i], &options, &result, NULL) == CAIRN_OK);
        remove_export(root);
    }
    cairn_close(s);
    keep_objects(b);
    backend_free(b);
}

/* ---- Changes --------------------------------------------------------------------------------- */

static void reseal(struct object *o)
{
    if (strcmp(o->key, LAYOUT_FORMAT) == 0)
        sample_reseal_format(o->data, o->len);
    else if (strncmp(o->key, LAYOUT_PACKS, strlen(LAYOUT_PACKS)) == 0)
        sample_reseal_pack(o->data, o->len);
    else if (strstr(o->key, "/export-"))
        sample_reseal_manifest(o->data, o->len);
}

static void put_word(struct object *o, size_t off, uint8_t which, size_t width)
{
    static const uint64_t words[] = {0,          1,
                                     2,          64,
                                     CHUNK - 1,  CHUNK,
                                     2 * CHUNK,  (uint64_t)1 << 26,
                                     INT32_MAX,  UINT32_MAX - 1,
                                     UINT32_MAX, (uint64_t)1 << 32,
                                     INT64_MAX,  (uint64_t)1 << 63,
                                     UINT64_MAX};
    uint8_t le[8];
    put_le64(le, words[which % ARRAY_SIZE(words)]);
    off -= off % width;
    if (off + width <= o->len)
        memcpy(o->data + off, le, width);
}

static void change(struct object *objects, const uint8_t c[CHANGE_LEN])
{
    struct object *o = &objects[c[0] % n_base], *other = &objects[c[6] % n_base];
    size_t off = o->len ? get_le32(c + 2) % o->len : 0;
    uint8_t *grown;
    switch (c[1] & 7) {
    case 0:
        if (o->len)
            o->data[off] ^= c[6] ? c[6] : 1;
        break;
    case 1:
        put_word(o, off, c[6], 4);
        break;
    case 2:
        put_word(o, off, c[6], 8);
        break;
    case 3:
        o->len = off;
        break;
    case 4:
        grown = realloc(o->data, o->len + c[7] + 1u);
        FUZZ_CHECK(grown);
        memset(grown + o->len, c[6], c[7]);
        o->data = grown;
        o->len += c[7];
        break;
    case 5:
        o->gone = true;
        break;
    case 6:
        for (size_t i = 0; i < c[7] && off + i < o->len && i < other->len; i++)
            o->data[off + i] = other->data[i];
        break;
    default: {
        uint8_t *data = o->data;
        size_t len = o->len;
        o->data = other->data, o->len = other->len;
        other->data = data, other->len = len;
    }
    }
    if (c[1] & RESEAL)
        reseal(o);
}

/* ---- Properties ------------------------------------------------------------------------------ */

struct run {
    struct cairn_store *s;
    bool sealed;     /* something lies under a right checksum: other bytes are no surprise */
    unsigned failed; /* records and files that could not be read */
};

static void check_bytes(const struct run *run, const char *id, const char *path, uint64_t at,
                        const uint8_t *data, size_t len)
{
    size_t i = 0;
    while (i < ARRAY_SIZE(published) &&
           (strcmp(published[i].id, id) != 0 || strcmp(published[i].path, path) != 0))
        i++;
    if (run->sealed)
        return;
    FUZZ_CHECK(i < ARRAY_SIZE(published));
    for (size_t k = 0; k < len; k++)
        FUZZ_CHECK(data[k] == plain(i, at + k));
}

static void read_file(struct run *run, struct cairn_record *r, const char *id, uint64_t i)
{
    struct cairn_file file;
    struct cairn_error err;
    uint8_t buf[CHUNK];
    cairn_record_file(r, i, &file);
    for (uint64_t at = 0; (at = cairn_record_seek(r, i, at, false)) < file.size;) {
        size_t got;
        int rc = cairn_record_pread(r, NULL, i, buf, sizeof(buf), at, &got, &err);
        check_bytes(run, id, file.path, at, buf, got);
        if (rc) {
            FUZZ_CHECK(err.error_class == rc && err.message[0]);
            run->failed++;
            return;
        }
        FUZZ_CHECK(got);
        at += got;
    }
}

static int read_record(void *ctx, const struct cairn_list_entry *entry)
{
    struct run *run = ctx;
    struct cairn_record *r = NULL;
    struct cairn_error err;
    FUZZ_CHECK(entry->error_class == CAIRN_OK || entry->error_message[0]);
    int rc = cairn_record_open(run->s, NULL, entry->id, &r, &err);
    if (rc) {
        FUZZ_CHECK(err.error_class == rc && err.message[0]);
        run->failed++;
        return 0;
    }
    struct cairn_record_info info;
    cairn_record_info(r, &info);
    for (uint64_t i = 0; i < info.files; i++)
        read_file(run, r, entry->id, i);
    cairn_record_close(r);
    return 0;
}

static void look(struct backend *b, bool sealed)
{
    const struct cairn_config config = {.store = "memory", .workers = 1};
    struct run run = {.sealed = sealed};
    struct cairn_error err;
    if (store_new(b, &config, NULL, &run.s, &err)) {
        FUZZ_CHECK(err.message[0]);
        return;
    }
    struct cairn_stats stats;
    const struct cairn_verify_options all = {0};
    struct cairn_verify_result result;
    FUZZ_CHECK(cairn_list(run.s, NULL, NULL, read_record, &run, &err) == CAIRN_OK);
    FUZZ_CHECK(cairn_stats(run.s, NULL, &stats, &err) == CAIRN_OK);
    FUZZ_CHECK(cairn_verify(run.s, NULL, &all, &result, &err) == CAIRN_OK);
    FUZZ_CHECK(result.errors || !run.failed);
    cairn_close(run.s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > CHANGES_MAX * CHANGE_LEN)
        return 0;
    if (!n_base)
        make_base();
    struct object objects[OBJECTS_MAX];
    bool sealed = false;
    for (size_t i = 0; i < n_base; i++) {
        objects[i] = base[i];
        objects[i].data = malloc(base[i].len + 1);
        FUZZ_CHECK(objects[i].data);
        memcpy(objects[i].data, base[i].data, base[i].len);
    }
    for (size_t i = 0; (i + 1) * CHANGE_LEN <= size; i++) {
        sealed |= (data[i * CHANGE_LEN + 1] & RESEAL) != 0;
        change(objects, data + i * CHANGE_LEN);
    }
    struct backend *b = NULL;
    FUZZ_CHECK(backend_mem_new(&b, NULL) == CAIRN_OK);
    for (size_t i = 0; i < n_base; i++) {
        if (!objects[i].gone)
            FUZZ_CHECK(b->ops->put(b, NULL, objects[i].key, objects[i].data, objects[i].len,
                                   NULL) == CAIRN_OK);
        free(objects[i].data);
    }
    look(b, sealed);
    return 0;
}
