/* One at a time for each id: who comes second waits until the first is done. Thread-safe. */
#ifndef CAIRN_FUSE_TURNS_H
#define CAIRN_FUSE_TURNS_H

#include "base/op.h"
#include "store/ids.h"

struct turns;

/* On the stack of whoever has the turn. */
struct turn {
    char id[ID_MAX + 1];
    struct turn *next;
};

CAIRN_MUST_CHECK int turns_new(struct turns **out, struct cairn_error *err);
void turns_free(struct turns *t); /* NULL is allowed; nobody has a turn */

/* Wait until nobody has the turn of id, and take it. Timeout or cancelled: op ended before. */
CAIRN_MUST_CHECK int turns_take(struct turns *t, const struct cairn_op *op, const char *id,
                                struct turn *turn, struct cairn_error *err);
void turns_give(struct turns *t, struct turn *turn);

#endif
