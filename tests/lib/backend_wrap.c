#include "tests/lib/backend_wrap.h"

#include <stdlib.h>

struct backend *wrap_inner(struct backend *b)
{
    return ((struct wrap *)b)->inner;
}

static int wrap_get(struct backend *b, const struct cairn_op *op, const char *key, size_t max,
                    struct buf *out, struct backend_stat *stat, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    return in->ops->get(in, op, key, max, out, stat, err);
}

static int wrap_read(struct backend *b, const struct cairn_op *op, const char *key, uint64_t off,
                     void *dst, size_t len, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    return in->ops->read(in, op, key, off, dst, len, err);
}

static int wrap_stat(struct backend *b, const struct cairn_op *op, const char *key,
                     struct backend_stat *out, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    return in->ops->stat(in, op, key, out, err);
}

static int wrap_put(struct backend *b, const struct cairn_op *op, const char *key, const void *data,
                    size_t len, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    return in->ops->put(in, op, key, data, len, err);
}

static int wrap_remove(struct backend *b, const struct cairn_op *op, const char *const *keys,
                       size_t n, bool *failed, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    return in->ops->remove(in, op, keys, n, failed, err);
}

int wrap_list(struct backend *b, const struct cairn_op *op, const char *prefix, const char *after,
              struct backend_iter **out, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    struct wrap_iter *it = calloc(1, sizeof(*it));
    if (!it)
        return error_oom(err, "list");
    *it = (struct wrap_iter){.base.ops = b->ops, .backend = b};
    int rc = in->ops->list(in, op, prefix, after, &it->inner, err);
    if (rc)
        free(it);
    else
        *out = &it->base;
    return rc;
}

int wrap_iter_next(struct backend_iter *base, const struct cairn_op *op, struct backend_entry *out,
                   struct cairn_error *err)
{
    struct backend_iter *in = ((struct wrap_iter *)base)->inner;
    return in->ops->iter_next(in, op, out, err);
}

static void wrap_iter_free(struct backend_iter *base)
{
    struct backend_iter *in = ((struct wrap_iter *)base)->inner;
    in->ops->iter_free(in);
    free(base);
}

int wrap_upload_new(struct backend *b, const struct cairn_op *op, struct backend_upload **out,
                    struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    struct wrap_upload *up = calloc(1, sizeof(*up));
    if (!up)
        return error_oom(err, "upload");
    int rc = in->ops->upload_new(in, op, &up->inner, err);
    if (rc) {
        free(up);
        return rc;
    }
    up->base = *up->inner;
    up->base.backend = b;
    *out = &up->base;
    return CAIRN_OK;
}

int wrap_upload_commit(struct backend_upload *base, const struct cairn_op *op, const char *key,
                       uint64_t size, struct cairn_error *err)
{
    struct backend_upload *up = ((struct wrap_upload *)base)->inner;
    free(base);
    return up->backend->ops->upload_commit(up, op, key, size, err);
}

static void wrap_upload_abort(struct backend_upload *base)
{
    struct backend_upload *up = ((struct wrap_upload *)base)->inner;
    free(base);
    up->backend->ops->upload_abort(up);
}

static int wrap_stage(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
                      const void *meta, size_t len, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    return in->ops->stage(in, op, id, gen, meta, len, err);
}

static int wrap_commit(struct backend *b, const struct cairn_op *op, const char *id,
                       const char *gen, const void *meta, size_t len, enum backend_once once,
                       struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    return in->ops->commit(in, op, id, gen, meta, len, once, err);
}

static void wrap_unstage(struct backend *b, const char *id, const char *gen)
{
    struct backend *in = wrap_inner(b);
    in->ops->unstage(in, id, gen);
}

static int wrap_lock(struct backend *b, const struct cairn_op *op, const char *id, int *lock,
                     struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    return in->ops->lock(in, op, id, lock, err);
}

static void wrap_unlock(struct backend *b, const char *id, int lock)
{
    struct backend *in = wrap_inner(b);
    in->ops->unlock(in, id, lock);
}

static int wrap_open_fd(struct backend *b, const struct cairn_op *op, const char *key, int *fd,
                        struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    return in->ops->open_fd(in, op, key, fd, err);
}

static int wrap_space(struct backend *b, uint64_t *avail, uint64_t *total, struct cairn_error *err)
{
    struct backend *in = wrap_inner(b);
    return in->ops->space(in, avail, total, err);
}

void wrap_init(struct wrap *w, struct backend *inner)
{
    w->inner = inner;
    w->base.ops = &w->ops;
    w->ops = (struct backend_ops){
        .kind = inner->ops->kind,
        .get = wrap_get,
        .read = wrap_read,
        .stat = wrap_stat,
        .put = wrap_put,
        .remove = wrap_remove,
        .list = wrap_list,
        .iter_next = wrap_iter_next,
        .iter_free = wrap_iter_free,
        .upload_new = wrap_upload_new,
        .upload_commit = wrap_upload_commit,
        .upload_abort = wrap_upload_abort,
        .stage = wrap_stage,
        .commit = wrap_commit,
        .unstage = wrap_unstage,
        .lock = wrap_lock,
        .unlock = wrap_unlock,
        .open_fd = inner->ops->open_fd ? wrap_open_fd : NULL,
        .space = wrap_space,
    };
}
