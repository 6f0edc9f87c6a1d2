/* Tombstones: gc/tomb/<id> says that a record was deleted on purpose, and which generations that
 * meant, so that a removal cut short can be finished by anybody and never reaches a record that was
 * published under the same id later. Not thread-safe. */
#ifndef CAIRN_STORE_TOMB_H
#define CAIRN_STORE_TOMB_H

#include "store/store.h"

#define TOMB_MAX (1024 * 1024)

struct tomb {
    char (*gens)[GEN_TEXT]; /* owned */
    size_t n;
};

void tomb_release(struct tomb *t);
#define CLEANUP_TOMB __attribute__((cleanup(tomb_release)))

/* not_found: no tombstone. corrupt: it is not one. */
CAIRN_MUST_CHECK int tomb_get_stat(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                   struct tomb *out, struct backend_stat *st,
                                   struct cairn_error *err);
CAIRN_MUST_CHECK int tomb_get(struct cairn_store *s, const struct cairn_op *op, const char *id,
                              struct tomb *out, struct cairn_error *err);
/* For a writer, who must get on: no tombstone, or a damaged one (which is logged), is an empty one.
 * *exists tells whether there is an object. */
CAIRN_MUST_CHECK int tomb_get_or_empty(struct cairn_store *s, const struct cairn_op *op,
                                       const char *id, struct tomb *out, bool *exists,
                                       struct cairn_error *err);
CAIRN_MUST_CHECK int tomb_put(struct cairn_store *s, const struct cairn_op *op, const char *id,
                              const struct tomb *t, struct cairn_error *err);
bool tomb_has_gen(const struct tomb *t, const char *gen);
CAIRN_MUST_CHECK int tomb_add_gen(struct tomb *t, const char *gen, struct cairn_error *err);

#endif
