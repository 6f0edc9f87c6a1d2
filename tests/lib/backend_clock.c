#include "tests/lib/backend_clock.h"

#include "base/clock.h"
#include "base/util.h"
#include "tests/lib/backend_wrap.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define CLOCK_START (1577836800 * NS_PER_S) /* 2020-01-01 */
/* Stamps of whole seconds, and a gateway that rounds: this much a stamp may be beside the call. */
#define STAMP_SLACK (2 * NS_PER_S)

struct stamp {
    char *key;
    int64_t virtual_ns, before_ns, after_ns; /* the last two: real, around the write */
};

struct clock_backend {
    struct wrap wrap;
    pthread_mutex_t lock; /* guards all below */
    int64_t now;
    struct stamp *stamps;
    size_t n, cap;
};

static struct clock_backend *clock_of(struct backend *b)
{
    return (struct clock_backend *)b;
}

static struct stamp *find_locked(struct clock_backend *c, const char *key)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->stamps[i].key, key) == 0)
            return &c->stamps[i];
    return NULL;
}

/* The object was written, or may have been: rc is the outcome of the write. */
static int written(struct backend *b, const char *key, int64_t before, int rc,
                   struct cairn_error *err)
{
    struct clock_backend *c = clock_of(b);
    int64_t after = clock_realtime();
    if (rc)
        return rc;
    pthread_mutex_lock(&c->lock);
    struct stamp *s = find_locked(c, key);
    if (!s && c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 64;
        struct stamp *more = realloc(c->stamps, cap * sizeof(*more));
        if (more) {
            c->stamps = more;
            c->cap = cap;
        }
    }
    if (!s && c->n < c->cap && (c->stamps[c->n].key = strdup(key)) != NULL)
        s = &c->stamps[c->n++];
    if (s) {
        s->virtual_ns = c->now;
        s->before_ns = before;
        s->after_ns = after;
    }
    pthread_mutex_unlock(&c->lock);
    return s ? CAIRN_OK : error_oom(err, key);
}

static void gone(struct backend *b, const char *key)
{
    struct clock_backend *c = clock_of(b);
    pthread_mutex_lock(&c->lock);
    struct stamp *s = find_locked(c, key);
    if (s) {
        free(s->key);
        *s = c->stamps[--c->n];
    }
    pthread_mutex_unlock(&c->lock);
}

/* Put the stamp of this clock in place of the backend's. */
static int restamp(struct backend *b, const char *key, struct backend_stat *st,
                   struct cairn_error *err)
{
    struct clock_backend *c = clock_of(b);
    int64_t real = st->mtime_ns;
    bool known, sane = false;
    pthread_mutex_lock(&c->lock);
    const struct stamp *s = find_locked(c, key);
    known = s != NULL;
    if (s) {
        sane = real >= s->before_ns - STAMP_SLACK && real <= s->after_ns + STAMP_SLACK;
        st->mtime_ns = s->virtual_ns;
    }
    pthread_mutex_unlock(&c->lock);
    if (known && sane)
        return CAIRN_OK;
    return error_set(
        err, CAIRN_INTERNAL, 0,
        known ? "%s: the store's stamp is not that of its writing" : "%s: nobody wrote it", key);
}

static int clock_get(struct backend *b, const struct cairn_op *op, const char *key, size_t max,
                     struct buf *out, struct backend_stat *stat, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    int rc = in->ops->get(in, op, key, max, out, stat, err);
    return rc || !stat ? rc : restamp(b, key, stat, err);
}

static int clock_stat(struct backend *b, const struct cairn_op *op, const char *key,
                      struct backend_stat *out, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    int rc = in->ops->stat(in, op, key, out, err);
    return rc ? rc : restamp(b, key, out, err);
}

static int clock_put(struct backend *b, const struct cairn_op *op, const char *key,
                     const void *data, size_t len, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    int64_t before = clock_realtime();
    return written(b, key, before, in->ops->put(in, op, key, data, len, err), err);
}

static int clock_remove(struct backend *b, const struct cairn_op *op, const char *const *keys,
                        size_t n, bool *failed, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    CLEANUP_FREE bool *own = calloc(n + 1, sizeof(*own));
    if (!own)
        return error_oom(err, "remove");
    int rc = in->ops->remove(in, op, keys, n, own, err);
    for (size_t i = 0; i < n; i++)
        if (!own[i])
            gone(b, keys[i]);
    if (failed)
        memcpy(failed, own, n * sizeof(*own));
    return rc;
}

static int clock_iter_next(struct backend_iter *base, const struct cairn_op *op,
                           struct backend_entry *out, struct cairn_error *err)
{
    int rc = wrap_iter_next(base, op, out, err);
    struct backend *b = ((struct wrap_iter *)base)->backend;
    return rc || !out->key ? rc : restamp(b, out->key, &out->stat, err);
}

static int clock_upload_commit(struct backend_upload *base, const struct cairn_op *op,
                               const char *key, uint64_t size, struct cairn_error *err)
{
    struct backend *b = base->backend;
    int64_t before = clock_realtime();
    return written(b, key, before, wrap_upload_commit(base, op, key, size, err), err);
}

static int clock_commit(struct backend *b, const struct cairn_op *op, const char *id,
                        const char *gen, const void *meta, size_t len, enum backend_once once,
                        struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    char key[KEY_MAX];
    layout_meta(id, key);
    int64_t before = clock_realtime();
    int rc = in->ops->commit(in, op, id, gen, meta, len, once, err);
    return written(b, key, before, rc, err);
}

static void clock_free(struct backend *b)
{
    struct clock_backend *c = clock_of(b);
    backend_free(c->wrap.inner);
    for (size_t i = 0; i < c->n; i++)
        free(c->stamps[i].key);
    free(c->stamps);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

int backend_clock_new(struct backend *inner, struct backend **out, struct cairn_error *err)
{
    struct clock_backend *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "clock backend");
    wrap_init(&c->wrap, inner);
    c->wrap.ops.free = clock_free;
    c->wrap.ops.get = clock_get;
    c->wrap.ops.stat = clock_stat;
    c->wrap.ops.put = clock_put;
    c->wrap.ops.remove = clock_remove;
    c->wrap.ops.iter_next = clock_iter_next;
    c->wrap.ops.upload_commit = clock_upload_commit;
    c->wrap.ops.commit = clock_commit;
    c->now = CLOCK_START;
    pthread_mutex_init(&c->lock, NULL);
    *out = &c->wrap.base;
    return CAIRN_OK;
}

void backend_clock_advance(struct backend *b, int64_t ns)
{
    struct clock_backend *c = clock_of(b);
    pthread_mutex_lock(&c->lock);
    c->now += ns;
    pthread_mutex_unlock(&c->lock);
}

int backend_clock_damage(struct backend *b, const char *key, uint64_t off, uint8_t mask,
                         struct cairn_error *err)
{
    struct clock_backend *c = clock_of(b);
    CLEANUP_BUF struct buf data = BUF_INIT((size_t)64 << 20);
    int rc = c->wrap.inner->ops->get(c->wrap.inner, NULL, key, (size_t)64 << 20, &data, NULL, err);
    if (!rc && off >= data.len)
        rc = error_set(err, CAIRN_INVALID, EINVAL, "%s has no byte %llu", key,
                       (unsigned long long)off);
    if (rc)
        return rc;
    data.data[off] ^= mask;
    pthread_mutex_lock(&c->lock);
    const struct stamp *s = find_locked(c, key);
    int64_t was = s ? s->virtual_ns : 0;
    pthread_mutex_unlock(&c->lock);
    rc = clock_put(b, NULL, key, data.data, data.len, err);
    pthread_mutex_lock(&c->lock);
    struct stamp *now = find_locked(c, key);
    if (!rc && now)
        now->virtual_ns = was;
    pthread_mutex_unlock(&c->lock);
    return rc;
}
