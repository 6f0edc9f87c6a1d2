/* What is committed under an id, as a writer that wants to commit there must see it. */
#ifndef CAIRN_STORE_CURRENT_H
#define CAIRN_STORE_CURRENT_H

#include "store/manifest.h"
#include "store/store.h"

struct current {
    bool exists;               /* there is a meta.json */
    char gen[GEN_TEXT];        /* of it */
    struct manifest *manifest; /* owned; NULL: none, or the export is missing or damaged */
};

/* A removal that was cut short (its tombstone names the generation that is there) is finished
 * first, and is then nothing. The caller holds the record's lock where there are locks. */
CAIRN_MUST_CHECK int current_load(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                  struct current *out, struct cairn_error *err);
void current_release(struct current *c);
#define CLEANUP_CURRENT __attribute__((cleanup(current_release)))

/* Whether a removal of generation gen, which is committed, was begun and not finished: a sweep may
 * finish it at any time, so who finds there what it was to publish must publish it all the same. */
CAIRN_MUST_CHECK int current_is_dying(struct cairn_store *s, const struct cairn_op *op,
                                      const char *id, const char *gen, bool *dying,
                                      struct cairn_error *err);

/* Busy unless generation gen may be committed as the next one of id: a checkpoint is committed
 * once. */
CAIRN_MUST_CHECK int current_allows(const struct current *c, const char *id, const char *gen,
                                    struct cairn_error *err);

#endif
