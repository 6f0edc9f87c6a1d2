#include "tests/lib/backend_mem.h"

#include "base/util.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define CLOCK_START (1577836800 * (int64_t)1000000000)

struct object {
    char *key;
    uint8_t *data; /* owned; never NULL */
    struct backend_stat stat;
};

struct mem_store {
    pthread_mutex_t lock; /* guards all below */
    size_t refs, uploads;
    int64_t now;
    uint64_t etags;
    struct object *objects; /* sorted by key */
    size_t n, cap;
};

struct mem_backend {
    struct backend base;
    struct mem_store *store;
};

static struct mem_store *lock_store(struct backend *b)
{
    struct mem_store *s = ((struct mem_backend *)b)->store;
    pthread_mutex_lock(&s->lock);
    return s;
}

static void unlock_store(struct mem_store *s)
{
    pthread_mutex_unlock(&s->lock);
}

/* The first object whose key is not less than key. */
static size_t lower_bound_locked(const struct mem_store *s, const char *key)
{
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(s->objects[mid].key, key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct object *find_locked(const struct mem_store *s, const char *key)
{
    size_t i = lower_bound_locked(s, key);
    return i < s->n && strcmp(s->objects[i].key, key) == 0 ? &s->objects[i] : NULL;
}

static int begin(const struct cairn_op *op, const char *verb, const char *key,
                 struct cairn_error *err)
{
    char what[CAIRN_ERROR_MESSAGE_MAX];
    snprintf(what, sizeof(what), "%s %s", verb, key);
    if (!*key)
        return error_set(err, CAIRN_INVALID, EINVAL, "%s: empty key", verb);
    return op_check(op, what, err);
}

static int missing(const char *verb, const char *key, struct cairn_error *err)
{
    return error_set(err, CAIRN_NOT_FOUND, ENOENT, "%s %s: no such object", verb, key);
}

/* ---- Reading ---- */

static int mem_get(struct backend *b, const struct cairn_op *op, const char *key, size_t max,
                   struct buf *out, struct backend_stat *stat, struct cairn_error *err)
{
    int rc = begin(op, "get", key, err);
    if (rc)
        return rc;
    struct mem_store *s = lock_store(b);
    const struct object *o = find_locked(s, key);
    if (!o)
        rc = missing("get", key, err);
    else if (o->stat.size > max)
        rc = error_set(err, CAIRN_CORRUPT, EFBIG, "get %s: more than %zu bytes", key, max);
    else
        rc = buf_add(out, o->data, (size_t)o->stat.size, err);
    if (!rc && stat)
        *stat = o->stat;
    unlock_store(s);
    return rc;
}

static int mem_read(struct backend *b, const struct cairn_op *op, const char *key, uint64_t off,
                    void *dst, size_t len, struct cairn_error *err)
{
    int rc = begin(op, "read", key, err);
    if (rc)
        return rc;
    struct mem_store *s = lock_store(b);
    const struct object *o = find_locked(s, key);
    if (!o)
        rc = missing("read", key, err);
    else if (off > o->stat.size || len > o->stat.size - off)
        rc = error_set(err, CAIRN_CORRUPT, 0, "read %s: ends at %llu", key,
                       (unsigned long long)o->stat.size);
    else if (len)
        memcpy(dst, o->data + off, len);
    unlock_store(s);
    return rc;
}

static int mem_stat(struct backend *b, const struct cairn_op *op, const char *key,
                    struct backend_stat *out, struct cairn_error *err)
{
    int rc = begin(op, "stat", key, err);
    if (rc)
        return rc;
    struct mem_store *s = lock_store(b);
    const struct object *o = find_locked(s, key);
    if (o)
        *out = o->stat;
    else
        rc = missing("stat", key, err);
    unlock_store(s);
    return rc;
}

/* ---- Writing ---- */

/* key and data are taken over when there was room. */
static bool insert_locked(struct mem_store *s, char *key, uint8_t *data)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        struct object *more = realloc(s->objects, cap * sizeof(*more));
        if (!more)
            return false;
        s->objects = more;
        s->cap = cap;
    }
    size_t i = lower_bound_locked(s, key);
    memmove(&s->objects[i + 1], &s->objects[i], (s->n - i) * sizeof(*s->objects));
    s->n++;
    s->objects[i] = (struct object){.key = key, .data = data};
    return true;
}

/* data is taken over, whatever happens. once: busy if the key is there. */
static int store_object(struct backend *b, const char *key, uint8_t *data, size_t len, bool once,
                        struct cairn_error *err)
{
    CLEANUP_FREE uint8_t *drop = data;
    CLEANUP_FREE char *name = strdup(key);
    if (!data || !name)
        return error_oom(err, key);
    struct mem_store *s = lock_store(b);
    struct object *o = find_locked(s, key);
    int rc = CAIRN_OK;
    if (o && once) {
        rc = error_set(err, CAIRN_BUSY, EEXIST, "commit %s: it is there already", key);
    } else if (o) {
        drop = o->data;
        o->data = data;
    } else if (insert_locked(s, name, data)) {
        drop = NULL;
        name = NULL;
        o = find_locked(s, key);
    } else {
        rc = error_oom(err, key);
    }
    if (!rc) {
        o->stat = (struct backend_stat){.size = len, .mtime_ns = s->now};
        snprintf(o->stat.etag, sizeof(o->stat.etag), "\"%llu\"", (unsigned long long)++s->etags);
    }
    unlock_store(s);
    return rc;
}

static int put_bytes(struct backend *b, const char *key, const void *data, size_t len, bool once,
                     struct cairn_error *err)
{
    uint8_t *copy = malloc(len ? len : 1);
    if (copy && len)
        memcpy(copy, data, len);
    return store_object(b, key, copy, len, once, err);
}

static int mem_put(struct backend *b, const struct cairn_op *op, const char *key, const void *data,
                   size_t len, struct cairn_error *err)
{
    int rc = begin(op, "put", key, err);
    return rc ? rc : put_bytes(b, key, data, len, false, err);
}

static void remove_key(struct backend *b, const char *key)
{
    struct mem_store *s = lock_store(b);
    struct object *o = find_locked(s, key);
    if (o) {
        free(o->key);
        free(o->data);
        s->n--;
        memmove(o, o + 1, (size_t)(s->objects + s->n - o) * sizeof(*o));
    }
    unlock_store(s);
}

static int mem_remove(struct backend *b, const struct cairn_op *op, const char *const *keys,
                      size_t n, bool *failed, struct cairn_error *err)
{
    int first = CAIRN_OK;
    size_t n_failed = 0;
    for (size_t i = 0; i < n; i++) {
        int rc = begin(op, "remove", keys[i], n_failed ? NULL : err);
        if (failed)
            failed[i] = rc != CAIRN_OK;
        if (rc && n_failed++ == 0)
            first = rc;
        if (!rc)
            remove_key(b, keys[i]);
    }
    if (first && n > 1)
        error_wrap(err, "%zu of %zu objects not removed", n_failed, n);
    return first;
}

/* ---- Listing: the key yielded last is all that an iterator knows ---- */

struct mem_iter {
    struct backend_iter base;
    struct backend *backend;
    char *prefix, *last; /* owned */
};

static void mem_iter_free(struct backend_iter *base)
{
    struct mem_iter *it = (struct mem_iter *)base;
    free(it->prefix);
    free(it->last);
    free(it);
}

static int mem_list(struct backend *b, const struct cairn_op *op, const char *prefix,
                    const char *after, struct backend_iter **out, struct cairn_error *err)
{
    int rc = op_check(op, "list", err);
    if (rc)
        return rc;
    struct mem_iter *it = calloc(1, sizeof(*it));
    if (!it)
        return error_oom(err, "list");
    it->base.ops = b->ops;
    it->backend = b;
    it->prefix = strdup(prefix);
    it->last = strdup(after);
    if (!it->prefix || !it->last) {
        mem_iter_free(&it->base);
        return error_oom(err, "list");
    }
    *out = &it->base;
    return CAIRN_OK;
}

static int mem_iter_next(struct backend_iter *base, const struct cairn_op *op,
                         struct backend_entry *out, struct cairn_error *err)
{
    struct mem_iter *it = (struct mem_iter *)base;
    *out = (struct backend_entry){.key = NULL};
    int rc = op_check(op, "list", err);
    if (rc)
        return rc;
    struct mem_store *s = lock_store(it->backend);
    size_t i = lower_bound_locked(s, strcmp(it->last, it->prefix) > 0 ? it->last : it->prefix);
    if (i < s->n && strcmp(s->objects[i].key, it->last) == 0)
        i++;
    if (i < s->n && strncmp(s->objects[i].key, it->prefix, strlen(it->prefix)) == 0) {
        char *key = strdup(s->objects[i].key);
        if (key) {
            free(it->last);
            it->last = key;
            *out = (struct backend_entry){.key = key, .stat = s->objects[i].stat};
        } else {
            rc = error_oom(err, "list");
        }
    }
    unlock_store(s);
    return rc;
}

/* ---- Uploads ---- */

static void count_upload(struct backend *b, int by)
{
    struct mem_store *s = lock_store(b);
    s->uploads += (size_t)by;
    unlock_store(s);
}

static int mem_upload_new(struct backend *b, const struct cairn_op *op, struct backend_upload **out,
                          struct cairn_error *err)
{
    int rc = op_check(op, "upload", err);
    if (rc)
        return rc;
    struct backend_upload *up = calloc(1, sizeof(*up));
    if (!up)
        return error_oom(err, "upload");
    up->backend = b;
    up->fd = memfd_create("upload", MFD_CLOEXEC);
    if (up->fd < 0) {
        rc = error_sys(err, errno, "upload: memfd_create");
        free(up);
        return rc;
    }
    count_upload(b, 1);
    *out = up;
    return CAIRN_OK;
}

static void mem_upload_abort(struct backend_upload *up)
{
    count_upload(up->backend, -1);
    close(up->fd);
    free(up);
}

static int mem_upload_commit(struct backend_upload *up, const struct cairn_op *op, const char *key,
                             uint64_t size, struct cairn_error *err)
{
    int rc = begin(op, "upload", key, err);
    uint8_t *data = rc ? NULL : malloc(size ? (size_t)size : 1);
    if (!rc && !data)
        rc = error_oom(err, key);
    if (!rc && util_pread_full(up->fd, data, (size_t)size, 0) != (ssize_t)size)
        rc = error_set(err, CAIRN_INTERNAL, 0, "upload %s: less than %llu bytes written", key,
                       (unsigned long long)size);
    if (rc)
        free(data);
    else
        rc = store_object(up->backend, key, data, (size_t)size, false, err);
    mem_upload_abort(up);
    return rc;
}

/* ---- Commit, and the rest ---- */

static int mem_stage(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
                     const void *meta, size_t len, struct cairn_error *err)
{
    (void)b;
    (void)gen;
    (void)meta;
    (void)len;
    return begin(op, "stage", id, err);
}

static int mem_commit(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
                      const void *meta, size_t len, enum backend_once once, struct cairn_error *err)
{
    (void)gen;
    char key[KEY_MAX];
    layout_meta(id, key);
    int rc = begin(op, "commit", key, err);
    return rc ? rc : put_bytes(b, key, meta, len, once != BACKEND_REPLACE, err);
}

static void mem_unstage(struct backend *b, const char *id, const char *gen)
{
    (void)b;
    (void)id;
    (void)gen;
}

static int mem_lock(struct backend *b, const struct cairn_op *op, const char *id, int *lock,
                    struct cairn_error *err)
{
    (void)b;
    *lock = -1;
    return begin(op, "lock", id, err);
}

static void mem_unlock(struct backend *b, const char *id, int lock)
{
    (void)b;
    (void)id;
    (void)lock;
}

static int mem_space(struct backend *b, uint64_t *avail, uint64_t *total, struct cairn_error *err)
{
    (void)b;
    (void)err;
    *avail = *total = UINT64_MAX;
    return CAIRN_OK;
}

static void mem_free(struct backend *b)
{
    struct mem_store *s = lock_store(b);
    bool last = --s->refs == 0;
    unlock_store(s);
    free(b);
    if (!last)
        return;
    for (size_t i = 0; i < s->n; i++) {
        free(s->objects[i].key);
        free(s->objects[i].data);
    }
    free(s->objects);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static const struct backend_ops ops = {
    .kind = "mem",
    .free = mem_free,
    .get = mem_get,
    .read = mem_read,
    .stat = mem_stat,
    .put = mem_put,
    .remove = mem_remove,
    .list = mem_list,
    .iter_next = mem_iter_next,
    .iter_free = mem_iter_free,
    .upload_new = mem_upload_new,
    .upload_commit = mem_upload_commit,
    .upload_abort = mem_upload_abort,
    .stage = mem_stage,
    .commit = mem_commit,
    .unstage = mem_unstage,
    .lock = mem_lock,
    .unlock = mem_unlock,
    .open_fd = NULL,
    .space = mem_space,
};

static int wrap_store(struct mem_store *s, struct backend **out, struct cairn_error *err)
{
    struct mem_backend *m = calloc(1, sizeof(*m));
    if (!m)
        return error_oom(err, "memory backend");
    *m = (struct mem_backend){.base.ops = &ops, .store = s};
    pthread_mutex_lock(&s->lock);
    s->refs++;
    unlock_store(s);
    *out = &m->base;
    return CAIRN_OK;
}

int backend_mem_new(struct backend **out, struct cairn_error *err)
{
    struct mem_store *s = calloc(1, sizeof(*s));
    if (!s)
        return error_oom(err, "memory backend");
    pthread_mutex_init(&s->lock, NULL);
    s->now = CLOCK_START;
    int rc = wrap_store(s, out, err);
    if (rc) {
        pthread_mutex_destroy(&s->lock);
        free(s);
    }
    return rc;
}

int backend_mem_share(struct backend *b, struct backend **out, struct cairn_error *err)
{
    return wrap_store(((struct mem_backend *)b)->store, out, err);
}

void backend_mem_advance(struct backend *b, int64_t ns)
{
    struct mem_store *s = lock_store(b);
    s->now += ns;
    unlock_store(s);
}

int64_t backend_mem_now(struct backend *b)
{
    struct mem_store *s = lock_store(b);
    int64_t now = s->now;
    unlock_store(s);
    return now;
}

bool backend_mem_damage(struct backend *b, const char *key, uint64_t off, uint8_t mask)
{
    struct mem_store *s = lock_store(b);
    struct object *o = find_locked(s, key);
    bool ok = o && off < o->stat.size;
    if (ok)
        o->data[off] ^= mask;
    unlock_store(s);
    return ok;
}

size_t backend_mem_objects(struct backend *b)
{
    struct mem_store *s = lock_store(b);
    size_t n = s->n;
    unlock_store(s);
    return n;
}

size_t backend_mem_uploads(struct backend *b)
{
    struct mem_store *s = lock_store(b);
    size_t n = s->uploads;
    unlock_store(s);
    return n;
}
