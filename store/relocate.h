/* Copying chunks out of packs that are closed or about to go, into fresh ones. */
#ifndef CAIRN_STORE_RELOCATE_H
#define CAIRN_STORE_RELOCATE_H

#include "store/manifest.h"
#include "store/pack_set.h"
#include "store/store.h"

/* A mover copies each chunk once, however many manifests need it:
 *
 *     mover_new, mover_add for each manifest, mover_finish, mover_apply for each, mover_free
 *
 * Not thread-safe. */
struct mover;

/* from: the packs to move out of; borrowed until free, as are s and op. */
CAIRN_MUST_CHECK int mover_new(struct cairn_store *s, const struct cairn_op *op,
                               const struct pack_set *from, struct mover **out,
                               struct cairn_error *err);
void mover_free(struct mover *mv); /* NULL is allowed */
void mover_freep(struct mover **mv);
#define CLEANUP_MOVER __attribute__((cleanup(mover_freep)))

/* Copy what m needs of the packs and was not copied yet. Copied chunks are verified. not_found: a
 * pack is gone already. After an error chunks copied before stay usable for others. */
CAIRN_MUST_CHECK int mover_add(struct mover *mv, const struct manifest *m, struct cairn_error *err);
/* Make the fresh packs durable. Once; mover_add may not follow. */
CAIRN_MUST_CHECK int mover_finish(struct mover *mv, struct cairn_error *err);
/* *out (owned by the caller) is m with every chunk that lay in the packs where it was copied to.
 * transient: it needs chunks that were not copied (it is not what was added). */
CAIRN_MUST_CHECK int mover_apply(const struct mover *mv, const struct manifest *m,
                                 struct manifest **out, struct cairn_error *err);
/* Stored bytes copied so far. */
uint64_t mover_bytes(const struct mover *mv);

/* All of it for one manifest. */
CAIRN_MUST_CHECK int relocate_chunks(struct cairn_store *s, const struct cairn_op *op,
                                     const struct manifest *m, const struct pack_set *bad,
                                     struct manifest **out, struct cairn_error *err);

#endif
