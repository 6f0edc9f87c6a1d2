#include "store/backend.h"

#include "base/util.h"

#include <stdlib.h>

void backend_iter_freep(struct backend_iter **it)
{
    if (*it)
        (*it)->ops->iter_free(*it);
}

void backend_free(struct backend *b)
{
    if (b)
        b->ops->free(b);
}

int backend_remove_one(struct backend *b, const struct cairn_op *op, const char *key,
                       struct cairn_error *err)
{
    return b->ops->remove(b, op, &key, 1, NULL, err);
}

int backend_stream(struct backend *b, const struct cairn_op *op, const char *key, uint64_t off,
                   size_t len, const struct backend_taker *to, struct cairn_error *err)
{
    if (b->ops->stream)
        return b->ops->stream(b, op, key, off, len, to, err);
    CLEANUP_FREE void *all = malloc(len ? len : 1);
    if (!all)
        return error_oom(err, key);
    int rc = b->ops->read(b, op, key, off, all, len, err);
    return rc || !len ? rc : to->take(to->ctx, all, len, err);
}

int backend_exists(struct backend *b, const struct cairn_op *op, const char *key, bool *exists,
                   struct cairn_error *err)
{
    struct backend_stat st;
    struct cairn_error e;
    int rc = b->ops->stat(b, op, key, &st, &e);
    *exists = rc == CAIRN_OK;
    if (rc == CAIRN_OK || rc == CAIRN_NOT_FOUND)
        return CAIRN_OK;
    return error_pass(err, &e);
}
