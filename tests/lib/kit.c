#include "tests/lib/kit.h"

#include "base/util.h"
#include "store/ids.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/objects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct cairn_error err;

static struct backend *open_backend(struct kit *k)
{
    struct backend *b = NULL, *fault = NULL;
    if (k->opt.mem)
        ck_ok(backend_mem_share(k->shared, &b, &err));
    else
        ck_ok(backend_dir_open(k->root, &b, &err));
    if (!k->opt.faulty)
        return b;
    ck_ok(backend_fault_new(b, &fault, &err));
    return fault;
}

struct cairn_store *kit_open(struct kit *k)
{
    struct cairn_config config = {.state = k->opt.no_index ? NULL : k->state,
                                  .cache_bytes = k->opt.no_cache ? -1 : k->opt.cache_bytes,
                                  .workers = k->opt.workers ? k->opt.workers : 2};
    struct cairn_store *s = NULL;
    ck_ok(store_new(open_backend(k), &config, NULL, &s, &err));
    return s;
}

void kit_start(struct kit *k, const struct kit_options *options)
{
    *k = (struct kit){0};
    if (options)
        k->opt = *options;
    const char *top = testing_tmpdir();
    snprintf(k->root, sizeof(k->root), "%.200s/store", top);
    snprintf(k->state, sizeof(k->state), "%.200s/state", top);
    snprintf(k->stage, sizeof(k->stage), "%.200s/stage", top);
    ck_assert_int_eq(mkdir(k->root, 0700), 0);
    ck_assert_int_eq(mkdir(k->stage, 0700), 0);
    if (k->opt.mem)
        ck_ok(backend_mem_new(&k->shared, &err));
    struct cairn_init_options init = {.chunk_size = k->opt.chunk_size,
                                      .compression = k->opt.compression};
    struct backend *b = open_backend(k);
    ck_ok(store_format_init(b, &init, NULL, &err));
    backend_free(b);
    k->s = kit_open(k);
}

void kit_reopen(struct kit *k)
{
    cairn_close(k->s);
    k->s = kit_open(k);
}

void kit_stop(struct kit *k)
{
    cairn_close(k->s);
    k->s = NULL;
    if (k->shared)
        ck_assert_uint_eq(backend_mem_uploads(k->shared), 0);
    backend_free(k->shared);
    k->shared = NULL;
}

/* ---- Staged exports -------------------------------------------------------------------------- */

const char *kit_path(struct kit *k, const char *name, const char *path)
{
    static char texts[4][4096];
    static unsigned next;
    char *out = texts[next++ % 4];
    int n = path ? snprintf(out, sizeof(texts[0]), "%s/%s/%s", k->stage, name, path)
                 : snprintf(out, sizeof(texts[0]), "%s/%s", k->stage, name);
    ck_assert_int_lt(n, (int)sizeof(texts[0]));
    return out;
}

static int open_staged(struct kit *k, const char *name, const char *path)
{
    char full[4096];
    snprintf(full, sizeof(full), "%s", kit_path(k, name, path));
    for (char *slash = strchr(full + strlen(k->stage) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        ck_assert(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    int fd = open(full, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_msg(fd >= 0, "%s: %s", full, strerror(errno));
    return fd;
}

void kit_write(struct kit *k, const char *name, const char *path, const void *data, size_t len,
               uint64_t off)
{
    CLEANUP_FD int fd = open_staged(k, name, path);
    ck_assert_int_eq(util_pwrite_full(fd, data, len, off), (ssize_t)len);
}

void kit_fill(struct kit *k, const char *name, const char *path, size_t len, uint64_t off,
              uint64_t seed)
{
    CLEANUP_FREE uint8_t *data = malloc(len ? len : 1);
    ck_assert_ptr_nonnull(data);
    testing_fill(data, len, seed);
    kit_write(k, name, path, data, len, off);
}

void kit_truncate(struct kit *k, const char *name, const char *path, uint64_t size)
{
    CLEANUP_FD int fd = open_staged(k, name, path);
    ck_assert_msg(ftruncate(fd, (off_t)size) == 0, "%s: %s", path, strerror(errno));
}

void kit_sample(struct kit *k, const char *name, uint64_t seed)
{
    char text[32];
    snprintf(text, sizeof(text), "{\"seed\":%llu}", (unsigned long long)seed);
    kit_write(k, name, "config.json", text, strlen(text), 0);
    kit_fill(k, name, "memory", 300000, 0, seed);
    memset(text, 'm', sizeof(text));
    for (uint64_t off = 400000; off < 500000; off += sizeof(text))
        kit_write(k, name, "memory", text, sizeof(text), off);
    kit_fill(k, name, "disks/cow.raw", 70000, 1 << 20, seed + 1);
    kit_truncate(k, name, "disks/cow.raw", 8 << 20);
    kit_truncate(k, name, "disks/empty", 0);
}

/* ---- Operations ------------------------------------------------------------------------------ */

int kit_publish(struct kit *k, const char *id, const char *name, const char *meta,
                const char *parent, struct cairn_error *e)
{
    struct cairn_publish_options o = {.from = kit_path(k, name, NULL),
                                      .meta = meta,
                                      .meta_len = meta ? strlen(meta) : 0,
                                      .parent = parent};
    return cairn_publish(k->s, NULL, id, &o, &k->result, e);
}

int kit_fork(struct kit *k, const char *id, const char *new_id, const char *meta,
             struct cairn_error *e)
{
    char gen[CAIRN_GEN_TEXT];
    return cairn_fork(k->s, NULL, id, new_id, meta, meta ? strlen(meta) : 0, gen, e);
}

static void same_file(struct cairn_record *r, uint64_t i, const char *folder)
{
    static uint8_t want[1 << 20], is[1 << 20];
    struct cairn_file f;
    cairn_record_file(r, i, &f);
    char path[8192];
    snprintf(path, sizeof(path), "%s/%s", folder, f.path);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_eq(f.size, (uint64_t)st.st_size);
    for (uint64_t off = 0; off < f.size; off += sizeof(want)) {
        size_t got;
        ck_ok(cairn_record_pread(r, NULL, i, is, sizeof(is), off, &got, &err));
        ck_assert_int_eq(util_pread_full(fd, want, sizeof(want), off), (ssize_t)got);
        ck_assert_msg(memcmp(want, is, got) == 0, "%s differs near %llu", f.path,
                      (unsigned long long)off);
    }
}

static uint64_t count_files(const char *folder)
{
    uint64_t n = 0;
    CLEANUP_DIR DIR *dir = opendir(folder);
    ck_assert_msg(dir != NULL, "%s: %s", folder, strerror(errno));
    const struct dirent *d;
    while ((d = readdir(dir))) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        char path[8192];
        ck_assert_int_lt(snprintf(path, sizeof(path), "%s/%s", folder, d->d_name),
                         (int)sizeof(path));
        struct stat st;
        ck_assert_int_eq(lstat(path, &st), 0);
        n += S_ISDIR(st.st_mode) ? count_files(path) : 1;
    }
    return n;
}

void kit_same_folder(struct cairn_record *r, const char *folder)
{
    struct cairn_record_info info;
    cairn_record_info(r, &info);
    ck_assert_uint_eq(info.files, count_files(folder));
    for (uint64_t i = 0; i < info.files; i++)
        same_file(r, i, folder);
}

void kit_same(struct kit *k, const char *id, const char *name)
{
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k->s, NULL, id, &r, &err));
    char folder[4096];
    snprintf(folder, sizeof(folder), "%s", kit_path(k, name, NULL));
    kit_same_folder(r, folder);
    cairn_record_close(r);
}

int kit_opens(struct kit *k, const char *id)
{
    struct cairn_record *r = NULL;
    int rc = cairn_record_open(k->s, NULL, id, &r, &err);
    if (!rc)
        cairn_record_close(r);
    return rc;
}

static void is_fault(void *ctx, int error_class, const char *object, const char *message)
{
    (void)ctx;
    ck_assert_msg(error_class == CAIRN_OK, "verify: %s: %s: %s", object,
                  cairn_class_name(error_class), message);
}

void kit_verify(struct kit *k)
{
    struct cairn_verify_options o = {.found = is_fault};
    struct cairn_verify_result r;
    ck_ok(cairn_verify(k->s, NULL, &o, &r, &err));
    ck_assert_uint_eq(r.errors, 0);
}

/* ---- Objects --------------------------------------------------------------------------------- */

static struct backend *plain(struct kit *k)
{
    return k->opt.faulty ? backend_fault_inner(k->s->backend) : k->s->backend;
}

uint64_t kit_objects(struct kit *k, const char *prefix)
{
    return objects_count(plain(k), prefix, NULL);
}

uint64_t kit_stored(struct kit *k)
{
    uint64_t bytes = 0;
    objects_count(plain(k), LAYOUT_PACKS, &bytes);
    return bytes;
}

const char *kit_first(struct kit *k, const char *prefix)
{
    static char key[KEY_MAX];
    return objects_nth(plain(k), prefix, 0, key) ? key : NULL;
}

void kit_put(struct kit *k, const char *key, const void *data, size_t len)
{
    struct backend *b = plain(k);
    ck_ok(b->ops->put(b, NULL, key, data, len, &err));
}

void kit_get(struct kit *k, const char *key, struct buf *out)
{
    struct backend *b = plain(k);
    ck_ok(b->ops->get(b, NULL, key, out->max, out, NULL, &err));
}

void kit_remove(struct kit *k, const char *key)
{
    ck_ok(backend_remove_one(plain(k), NULL, key, &err));
}

bool kit_has(struct kit *k, const char *key)
{
    bool exists = false;
    ck_ok(backend_exists(plain(k), NULL, key, &exists, &err));
    return exists;
}

void kit_damage(struct kit *k, const char *key, uint64_t off)
{
    if (k->opt.mem) {
        ck_assert(backend_mem_damage(k->shared, key, off, 1));
        return;
    }
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", k->root, key);
    /* Packs are read-only files; the tests may not be root. */
    ck_assert_int_eq(chmod(path, 0600), 0);
    CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;
    ck_assert_int_eq(util_pread_full(fd, &byte, 1, off), 1);
    byte ^= 1;
    ck_assert_int_eq(util_pwrite_full(fd, &byte, 1, off), 1);
}

void kit_export_key(const char *id, const char *meta, char key[KEY_MAX])
{
    char gen[GEN_TEXT];
    ck_ok(gen_of_meta(meta, strlen(meta), gen, &err));
    layout_export(id, gen, key);
}

void kit_closed_key(const char *pack_key, char key[KEY_MAX])
{
    struct layout_key parsed;
    layout_parse(pack_key, &parsed);
    ck_assert_int_eq(parsed.kind, LAYOUT_KIND_PACK);
    layout_closed(parsed.pack, key);
}

/* ---- Hooks ----------------------------------------------------------------------------------- */

static struct kit_hooks hooks;
static const struct backend_ops *hooked;

static int hook_commit(struct backend *b, const struct cairn_op *op, const char *id,
                       const char *gen, const void *meta, size_t len, enum backend_once once,
                       struct cairn_error *e)
{
    int rc = hooks.before_commit ? hooks.before_commit(hooks.ctx, b, e) : CAIRN_OK;
    if (!rc)
        rc = hooked->commit(b, op, id, gen, meta, len, once, e);
    if (!rc && hooks.after_commit)
        rc = hooks.after_commit(hooks.ctx, b, e);
    return rc;
}

static int hook_put(struct backend *b, const struct cairn_op *op, const char *key, const void *data,
                    size_t len, struct cairn_error *e)
{
    int rc = hooks.before_put ? hooks.before_put(hooks.ctx, b, key, e) : CAIRN_OK;
    return rc ? rc : hooked->put(b, op, key, data, len, e);
}

static int hook_list(struct backend *b, const struct cairn_op *op, const char *prefix,
                     const char *after, struct backend_iter **out, struct cairn_error *e)
{
    int rc = hooks.before_list ? hooks.before_list(hooks.ctx, b, prefix, e) : CAIRN_OK;
    return rc ? rc : hooked->list(b, op, prefix, after, out, e);
}

void kit_hook(struct kit *k, const struct kit_hooks *h)
{
    static struct backend_ops table;
    if (!hooked) {
        hooked = k->s->backend->ops;
        table = *hooked;
        table.commit = hook_commit;
        table.put = hook_put;
        table.list = hook_list;
        k->s->backend->ops = &table;
    }
    hooks = *h;
}

size_t kit_descriptors(void)
{
    size_t n = 0;
    CLEANUP_DIR DIR *dir = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    return n;
}
