/* Steps 4 to 6 of publishing (docs/protocol.md): manifest, check, commit, look. Publish and fork
 * share them; nothing else makes a record visible. */
#ifndef CAIRN_STORE_COMMIT_H
#define CAIRN_STORE_COMMIT_H

#include "store/manifest.h"
#include "store/pack_set.h"
#include "store/store.h"

/* Between the check of the packs and the commit at most this may pass, on CLOCK_BOOTTIME. */
#define COMMIT_CHECK_MAX_NS ((int64_t)600 * 1000000000)
/* A manifest older than this is written again before the check, so that it is young to a collector.
 */
#define COMMIT_MANIFEST_MAX_NS ((int64_t)3600 * 1000000000)

/* Where nothing locks: a look that found no meta.json, and was made at most so long before, is the
 * look of a commit that may not replace one. */
#define COMMIT_LOOK_MAX_NS ((int64_t)5 * 1000000000)

/* Rounds of storing and committing before a writer gives up on a collector that takes its packs
 * away faster than it can store them: a second round is rare and a third should never happen. */
#define COMMIT_ROUNDS_MAX 8

/* One attempt to commit one generation. */
struct commit {
    struct cairn_store *store;
    const struct cairn_op *op;
    const char *id, *gen;
    const void *meta;
    size_t meta_len;
    bool locked;    /* the record's lock is held, from before the first step until after the last */
    bool attempted; /* the commit itself was tried: from then on the record may be visible */
    bool committed; /* by an earlier round, or before: its meta.json is this one already */
    /* CLOCK_BOOTTIME; 0: unknown. When the caller began, and when it began to look for a meta.json
     * that turned out not to be there. They save requests where nothing locks. */
    int64_t began_ns, absent_ns;
    /* commit_run's own. */
    int64_t looked_ns; /* when the check before the manifest began */
    bool intended;     /* it saw a collector's intent on the generation */
    bool has_tomb;     /* a tombstone was emptied */
};

/* *again: the record is not committed because of bad packs, which are added to *bad, or because a
 * collector took the manifest away (bad is then unchanged): make what they held anew and call
 * again with a new manifest. Errors: busy (a checkpoint that is published already); what the
 * backend says. After an error nothing is visible unless attempted is set. */
CAIRN_MUST_CHECK int commit_run(struct commit *c, const struct manifest *m, struct pack_set *bad,
                                bool *again, struct cairn_error *err);

/* After a failed attempt: take away what it left, as far as that is safe. Never fails. */
void commit_abandon(struct commit *c);

/* Which of the packs that m names a collector has closed, are gone, or end before m's chunks do. */
CAIRN_MUST_CHECK int commit_check_packs(struct cairn_store *s, const struct cairn_op *op,
                                        const struct manifest *m, struct pack_set *bad,
                                        struct cairn_error *err);
/* The same, but those that this process made since since_ns (CLOCK_BOOTTIME) are there. */
CAIRN_MUST_CHECK int commit_check_packs_since(struct cairn_store *s, const struct cairn_op *op,
                                              const struct manifest *m, int64_t since_ns,
                                              struct pack_set *bad, struct cairn_error *err);

/* A tombstone of an earlier life of the id names generations whose removal somebody may still
 * finish. Before the new manifest is visible it is emptied, so that nobody does that to the new
 * record (what the old ones have left is then the collector's, by age); after the commit, it goes.
 */
CAIRN_MUST_CHECK int commit_before(struct cairn_store *s, const struct cairn_op *op, const char *id,
                                   struct cairn_error *err);
/* The same two for a commit at hand. Where nothing locks, commit_run itself sees to the tombstone,
 * of which it learns by the way. */
CAIRN_MUST_CHECK int commit_begin(struct commit *c, struct cairn_error *err);
void commit_end(struct commit *c);

/* What the index says of packs that must not be used is wrong, or soon will be. */
void commit_forget_packs(struct cairn_store *s, const struct pack_set *bad);
/* The transient error after COMMIT_ROUNDS_MAX rounds. */
int commit_gave_up(struct cairn_error *err);

#endif
