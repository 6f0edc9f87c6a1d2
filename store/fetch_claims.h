/* What fetches are downloading into the cache at this moment, so that another one that wants the
 * same (a sibling, mostly) waits for that and takes it from there. Readers of single chunks do not
 * look here: they are not to wait for megabytes.
 *
 * Whoever has a claim never waits for one: each claim ends. Thread-safe. */
#ifndef CAIRN_STORE_FETCH_CLAIMS_H
#define CAIRN_STORE_FETCH_CLAIMS_H

#include "base/op.h"
#include "store/chunk.h"

struct fetch_claims;

/* The caller owns *out until fetch_claims_free, when none is held. Errors: internal. */
CAIRN_MUST_CHECK int fetch_claims_new(struct fetch_claims **out, struct cairn_error *err);
void fetch_claims_free(struct fetch_claims *c); /* NULL is allowed */

/* Chunks of one pack that somebody is bringing. Embedded by the owner. */
struct fetch_claim {
    const struct chunk_loc *const *locs; /* by ascending offset; borrowed */
    size_t n;
    struct fetch_claim *next; /* guarded by the lock of the claims */
};

/* Between these two, nobody else can look or claim. No I/O there. */
void fetch_claims_lock(struct fetch_claims *c);
void fetch_claims_unlock(struct fetch_claims *c);
bool fetch_claims_has_locked(const struct fetch_claims *c, const struct chunk_loc *loc);
void fetch_claims_add_locked(struct fetch_claims *c, struct fetch_claim *claim);

void fetch_claims_remove(struct fetch_claims *c, struct fetch_claim *claim);

/* Until nobody claims the chunk. Errors: timeout, cancelled. */
CAIRN_MUST_CHECK int fetch_claims_wait(struct fetch_claims *c, const struct cairn_op *op,
                                       const struct chunk_loc *loc, struct cairn_error *err);

#endif
