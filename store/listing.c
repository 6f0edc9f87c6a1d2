#include "store/listing.h"

void listing_close(struct listing *l)
{
    backend_iter_freep(&l->it);
}

int listing_open(struct listing *l, struct backend *b, const struct cairn_op *op,
                 const char *prefix, const char *after, struct cairn_error *err)
{
    *l = (struct listing){.op = op};
    return b->ops->list(b, op, prefix, after, &l->it, err);
}

bool listing_next(struct listing *l, int *rc, struct cairn_error *err)
{
    if (*rc)
        return false;
    *rc = l->it->ops->iter_next(l->it, l->op, &l->entry, err);
    if (*rc || !l->entry.key)
        return false;
    layout_parse(l->entry.key, &l->key);
    return true;
}
