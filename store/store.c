#include "store/store.h"

#include "base/clock.h"
#include "base/jval.h"
#include "base/log.h"
#include "base/util.h"
#include "store/budget.h"
#include "store/cache_fill.h"
#include "store/copies.h"
#include "store/fetch_claims.h"
#include "store/gens.h"
#include "store/heads.h"
#include "store/lease.h"
#include "store/manifest.h"
#include "store/shared_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

const char *cairn_version(void)
{
    return CAIRN_VERSION;
}

/* The folder above path makes its name durable; one that may not be read is left to time. */
static int sync_above(const char *path)
{
    CLEANUP_FREE char *above = strdup(path);
    char *slash = above ? strrchr(above, '/') : NULL;
    if (slash)
        slash[slash == above] = 0;
    CLEANUP_FD int fd = open(slash ? above : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP ? -1 : 0;
}

static int make_folders(const char *path, bool durable, struct cairn_error *err)
{
    CLEANUP_FREE char *p = strdup(path);
    if (!p)
        return error_oom(err, "path");
    for (char *s = p + 1;; s++) {
        if (*s && *s != '/')
            continue;
        char c = *s;
        *s = 0;
        bool made = mkdir(p, 0700) == 0;
        if ((!made && errno != EEXIST) || (made && durable && sync_above(p) != 0)) {
            int e = errno;
            return error_sys(err, e, "making folder %s", p);
        }
        *s = c;
        if (!c)
            return CAIRN_OK;
    }
}

int store_make_folders(const char *path, struct cairn_error *err)
{
    return make_folders(path, true, err);
}

int store_make_cache_folders(const char *path, struct cairn_error *err)
{
    return make_folders(path, false, err);
}

int store_format_init(struct backend *backend, const struct cairn_init_options *options,
                      const struct cairn_op *op, struct cairn_error *err)
{
    bool exists;
    int rc = backend_exists(backend, op, LAYOUT_FORMAT, &exists, err);
    if (!rc && exists)
        rc = error_set(err, CAIRN_BUSY, EEXIST, "there is a store already");
    if (rc)
        return rc;
    struct store_format f;
    uint32_t chunk_size = options && options->chunk_size ? options->chunk_size : CHUNK_SIZE_DEFAULT;
    bool none = options && options->compression == CAIRN_COMPRESSION_NONE;
    CLEANUP_BUF struct buf text = BUF_INIT(FORMAT_MAX);
    rc = format_new(chunk_size, none ? FORMAT_NONE : FORMAT_ZSTD, &f, err);
    if (!rc)
        rc = format_encode(&f, &text, err);
    if (!rc)
        rc = backend->ops->put(backend, op, LAYOUT_FORMAT, text.data, text.len, err);
    /* Where nothing locks, another init may have come between the look and this. */
    CLEANUP_BUF struct buf back = BUF_INIT(FORMAT_MAX);
    if (!rc)
        rc = backend->ops->get(backend, op, LAYOUT_FORMAT, FORMAT_MAX, &back, NULL, err);
    if (!rc && (back.len != text.len || memcmp(back.data, text.data, text.len) != 0))
        rc = error_set(err, CAIRN_BUSY, EEXIST, "somebody else is making a store there");
    return rc;
}

/* Whether a folder is a fit place for a new store: empty, or holding only what an interrupted init
 * left behind. */
static int check_empty(const char *path, struct cairn_error *err)
{
    CLEANUP_DIR DIR *dir = opendir(path);
    if (!dir) {
        int e = errno;
        return error_sys(err, e, "opening %s", path);
    }
    const struct dirent *d;
    while ((errno = 0, d = readdir(dir))) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ||
            strcmp(d->d_name, "tmp") == 0 || strcmp(d->d_name, "format.json") == 0 ||
            strcmp(d->d_name, "lost+found") == 0)
            continue;
        return error_set(err, CAIRN_INVALID, ENOTEMPTY,
                         "%s is neither empty nor a store: it holds %s", path, d->d_name);
    }
    if (errno) {
        int e = errno;
        return error_sys(err, e, "reading %s", path);
    }
    return CAIRN_OK;
}

#define LOCK_POLL_MS 10

/* The lock is held for some milliseconds and dies with its holder. */
static int lock_folder(int fd, const char *path, const struct cairn_op *op, struct cairn_error *err)
{
    struct pollfd p = {.fd = op && op->cancel ? cairn_cancel_fd(op->cancel) : -1, .events = POLLIN};
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int e = errno;
        if (e != EWOULDBLOCK && e != EINTR)
            return error_sys(err, e, "locking %s", path);
        int rc = op_check(op, "waiting for another program that makes the store", err);
        if (rc)
            return rc;
        (void)poll(&p, 1, LOCK_POLL_MS);
    }
    return CAIRN_OK;
}

int store_init_dir(const char *path, const struct cairn_init_options *options,
                   const struct cairn_op *op, struct cairn_error *err)
{
    int rc = store_make_folders(path, err);
    if (rc)
        return rc;
    /* Two programs that make the same store must not end up with two secrets. */
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        int e = errno;
        return error_sys(err, e, "opening %s", path);
    }
    rc = lock_folder(fd, path, op, err);
    if (rc)
        return rc;
    struct backend *b = NULL;
    rc = backend_dir_open(path, &b, err);
    if (rc)
        return rc;
    bool exists = false;
    rc = backend_exists(b, op, LAYOUT_FORMAT, &exists, err);
    if (!rc && !exists)
        rc = check_empty(path, err);
    if (!rc)
        rc = store_format_init(b, options, op, err);
    backend_free(b);
    return rc;
}

static int read_format(struct cairn_store *s, const struct cairn_op *op, struct cairn_error *err)
{
    CLEANUP_BUF struct buf text = BUF_INIT(FORMAT_MAX);
    int rc = s->backend->ops->get(s->backend, op, LAYOUT_FORMAT, FORMAT_MAX, &text, NULL, err);
    if (rc == CAIRN_NOT_FOUND)
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no store here (no format.json): see init");
    if (!rc)
        rc = format_decode(text.data, text.len, &s->format, err);
    return rc;
}

/* The index is a hint: without one the store works, it only stores more than it needs to. */
static int open_index(struct cairn_store *s, const char *state, struct cairn_error *err)
{
    CLEANUP_FREE char *path = NULL;
    if (asprintf(&path, "%s/%s", state, s->format.store_id) < 0) {
        path = NULL;
        return error_oom(err, "path");
    }
    int rc = store_make_folders(path, err);
    if (rc)
        return rc;
    s->state = util_steal(&path);
    char *file;
    if (asprintf(&file, "%s/index.db", s->state) < 0)
        return error_oom(err, "path");
    rc = index_new(file, s->format.store_id, &s->index, err);
    free(file);
    return rc;
}

/* Where objects are no local files, workers wait more than they compute. */
static unsigned worker_count(const struct backend *backend, const struct cairn_config *config)
{
    if (config->workers)
        return config->workers;
    if (!backend->ops->open_fd)
        return 16;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > 8 ? 8 : (unsigned)cores;
}

static int64_t seconds_ns(double seconds)
{
    return seconds > 0 ? clock_from_seconds(seconds, 0) : 0;
}

/* Where nothing can be kept, everything is read anew each time it is wanted. */
static int open_cache(struct cairn_store *s, const struct cairn_config *config,
                      struct cairn_error *err)
{
    CLEANUP_FREE char *folder = NULL;
    CLEANUP_FREE char *packs = NULL;
    CLEANUP_FREE char *files = NULL;
    if (asprintf(&folder, "%s/cache", s->state) < 0) {
        folder = NULL;
        return error_oom(err, "path");
    }
    if (asprintf(&packs, "%s/packs", folder) < 0) {
        packs = NULL;
        return error_oom(err, "path");
    }
    if (asprintf(&files, "%s/files", folder) < 0) {
        files = NULL;
        return error_oom(err, "path");
    }
    int rc = store_make_cache_folders(packs, err);
    if (!rc)
        rc =
            budget_new(folder, config->cache_bytes > 0 ? config->cache_bytes : -1, &s->budget, err);
    if (!rc && config->cache_bytes >= 0)
        rc = cache_new(packs, s->format.secret, s->format.chunk_size, s->budget, &s->cache, err);
    if (!rc && config->cache_bytes >= 0)
        rc = copies_new(files, s->budget, &s->copies, err);
    return rc;
}

static int open_shared(struct cairn_store *s, const struct cairn_config *config,
                       struct cairn_error *err)
{
    int rc = gens_open(s->state, s->format.secret, &s->gens, err);
    if (!rc)
        rc = lease_table_new(s, &s->leases, err);
    if (!rc)
        rc =
            shared_fetch_new(s, s->gens, seconds_ns(config->fetch_budget_seconds), &s->shared, err);
    return rc;
}

/* A fetch to a folder of the caller's own works all the same. */
static void close_shared(struct cairn_store *s)
{
    shared_fetch_free(s->shared);
    s->shared = NULL;
    lease_table_clear(s->leases);
}

static void tick(struct cairn_store *s)
{
    (void)cairn_lease_expire(s, NULL);
    pack_files_tidy(s->packs);
    if (s->cache)
        cache_tidy(s->cache);
}

int store_new(struct backend *backend, const struct cairn_config *config, const struct cairn_op *op,
              struct cairn_store **out, struct cairn_error *err)
{
    struct cairn_store *s = calloc(1, sizeof(*s));
    if (!s) {
        backend_free(backend);
        return error_oom(err, "store");
    }
    s->backend = backend;
    pthread_mutex_init(&s->ctx_lock, NULL);
    int rc = read_format(s, op, err);
    if (!rc)
        rc = pack_files_new(&s->packs, err);
    if (!rc)
        rc = pool_new(worker_count(backend, config), &s->pool, err);
    if (!rc)
        rc = pool_new(STORE_IO_THREADS, &s->io, err);
    struct cairn_error ignored;
    if (!rc && config->state && open_index(s, config->state, &ignored))
        log_line(LOG_LEVEL_WARNING, "working without an index in %s: %s", config->state,
                 ignored.message);
    if (!rc && !backend->ops->open_fd)
        rc = fills_new(s, &s->fills, err);
    if (!rc && !backend->ops->open_fd)
        rc = fetch_claims_new(&s->claims, err);
    if (!rc && s->state && open_cache(s, config, &ignored))
        log_line(LOG_LEVEL_WARNING, "working without a cache in %s: %s", config->state,
                 ignored.message);
    if (!rc && s->state)
        rc = heads_new(s->state, s->format.secret, &s->heads, err);
    if (!rc && s->state && open_shared(s, config, &ignored)) {
        log_line(LOG_LEVEL_WARNING, "working without shared fetches in %s: %s", config->state,
                 ignored.message);
        close_shared(s);
    }
    if (s->budget && s->gens)
        budget_add_source(s->budget, &(struct budget_source){.what = "local copies",
                                                             .ctx = s->gens,
                                                             .scan = gens_scan,
                                                             .evict = gens_evict});
    if (!rc) /* last: its thread uses the others */
        rc = keeper_new(s, seconds_ns(config->generation_grace_seconds), tick, &s->keeper, err);
    if (rc) {
        cairn_close(s);
        return rc;
    }
    *out = s;
    return CAIRN_OK;
}

void cairn_close(struct cairn_store *s)
{
    if (!s)
        return;
    close_shared(s);
    keeper_free(s->keeper);
    pool_free(s->pool);
    pool_free(s->io);
    fills_free(s->fills);
    fetch_claims_free(s->claims);
    budget_free(s->budget); /* its thread uses what it bounds */
    lease_table_free(s->leases);
    gens_free(s->gens);
    cache_free(s->cache);
    copies_free(s->copies);
    index_close(s->index);
    heads_free(s->heads);
    free(s->state);
    pack_files_free(s->packs);
    chunk_ctx_free_all(s);
    backend_free(s->backend);
    pthread_mutex_destroy(&s->ctx_lock);
    explicit_bzero(s->format.secret, sizeof(s->format.secret));
    free(s);
}

void cairn_store_info(const struct cairn_store *s, struct cairn_store_info *out)
{
    *out = (struct cairn_store_info){
        .format = s->format.version,
        .chunk_size = s->format.chunk_size,
        .compression =
            s->format.compression == FORMAT_NONE ? CAIRN_COMPRESSION_NONE : CAIRN_COMPRESSION_ZSTD,
    };
    memcpy(out->store_id, s->format.store_id, sizeof(out->store_id));
}

int store_check_writer(const struct cairn_store *s, struct cairn_error *err)
{
    if (s->format.min_writer <= FORMAT_VERSION)
        return CAIRN_OK;
    return error_set(err, CAIRN_PERMANENT, EROFS,
                     "the store may only be written by programs of format %u or newer, and this "
                     "one is of format %u",
                     s->format.min_writer, FORMAT_VERSION);
}

int store_get_meta(struct cairn_store *s, const struct cairn_op *op, const char *id,
                   struct buf *meta, char gen[GEN_TEXT], struct cairn_error *err)
{
    char key[KEY_MAX];
    layout_meta(id, key);
    meta->max = META_MAX;
    int rc = s->backend->ops->get(s->backend, op, key, META_MAX, meta, NULL, err);
    if (rc == CAIRN_NOT_FOUND)
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no such record: %s", id);
    return rc ? rc : gen_of_meta(meta->data, meta->len, gen, err);
}

int store_get_json(struct cairn_store *s, const struct cairn_op *op, const char *key, size_t max,
                   struct jval **out, struct backend_stat *stat, struct cairn_error *err)
{
    CLEANUP_BUF struct buf text = BUF_INIT(max);
    int rc = s->backend->ops->get(s->backend, op, key, max, &text, stat, err);
    if (rc)
        return rc;
    rc = jval_parse(text.data, text.len, out, err);
    if (rc == CAIRN_INVALID)
        rc = error_set(err, CAIRN_CORRUPT, EIO, "no JSON");
    return rc ? error_wrap(err, "%s", key) : CAIRN_OK;
}

/* Few manifests are larger. */
#define MANIFEST_USUAL ((size_t)16 * 1024 * 1024)

/* A large manifest, after a look at whether its header says that it is large: nobody reads (and
 * makes room for) gigabytes of something else. */
static int get_large_manifest(struct cairn_store *s, const struct cairn_op *op, const char *key,
                              struct buf *out, struct cairn_error *err)
{
    uint8_t header[MANIFEST_HEADER_LEN];
    struct backend *b = s->backend;
    struct backend_stat st;
    struct manifest_info info;
    int rc = b->ops->read(b, op, key, 0, header, sizeof(header), err);
    if (!rc)
        rc = b->ops->stat(b, op, key, &st, err);
    if (!rc)
        rc = manifest_header_decode(header, &info, err);
    if (!rc && info.total_len != st.size)
        rc = error_set(err, CAIRN_CORRUPT, EIO, "%s: %llu bytes, and not the %llu it claims", key,
                       (unsigned long long)st.size, (unsigned long long)info.total_len);
    return rc ? rc : b->ops->get(b, op, key, MANIFEST_MAX, out, NULL, err);
}

static int get_manifest(struct cairn_store *s, const struct cairn_op *op, const char *key,
                        struct buf *out, struct cairn_error *err)
{
    struct cairn_error e;
    int rc = s->backend->ops->get(s->backend, op, key, MANIFEST_USUAL, out, NULL, &e);
    if (rc != CAIRN_CORRUPT || e.sys_errno != EFBIG)
        return rc ? error_pass(err, &e) : CAIRN_OK;
    return get_large_manifest(s, op, key, out, err);
}

int store_load_manifest(struct cairn_store *s, const struct cairn_op *op, const char *id,
                        const char *gen, struct manifest **out, struct cairn_error *err)
{
    char key[KEY_MAX];
    layout_export(id, gen, key);
    CLEANUP_BUF struct buf data = BUF_INIT(MANIFEST_MAX);
    int rc = get_manifest(s, op, key, &data, err);
    if (rc == CAIRN_NOT_FOUND)
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "%s has no export (generation %s)", id, gen);
    if (rc)
        return rc;
    size_t len = data.len;
    rc = manifest_decode(util_steal(&data.data), len, id, gen, out, err);
    if (!rc && manifest_info(*out)->chunk_size != s->format.chunk_size) {
        manifest_free(*out);
        *out = NULL;
        rc = error_set(err, CAIRN_CORRUPT, EIO, "its chunk size is not the store's");
    }
    return rc ? error_wrap(err, "%s", key) : CAIRN_OK;
}

int store_load(struct cairn_store *s, const struct cairn_op *op, const char *id, struct buf *meta,
               char gen[GEN_TEXT], struct manifest **out, struct cairn_error *err)
{
    /* A template may be published between the two reads, and a sweep may take the old generation:
     * then meta.json names a new one. */
    for (int tries = 0;; tries++) {
        char before[GEN_TEXT];
        buf_clear(meta);
        int rc = store_get_meta(s, op, id, meta, before, err);
        if (rc)
            return rc;
        rc = store_load_manifest(s, op, id, before, out, err);
        memcpy(gen, before, GEN_TEXT);
        if (rc != CAIRN_NOT_FOUND || tries == 4)
            return rc;
        struct cairn_error e;
        buf_clear(meta);
        int now = store_get_meta(s, op, id, meta, gen, &e);
        /* Not knowing whether the record is there is not knowing that it is not. */
        if (now && now != CAIRN_NOT_FOUND)
            return error_pass(err, &e);
        if (now || strcmp(gen, before) == 0)
            return rc;
    }
}
