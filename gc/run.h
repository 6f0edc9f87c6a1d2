/* What the parts of one sweep share: its settings, its store time, its memory, and whom it tells.
 *
 * One thread uses it. The words: a *scan* reads every root and decides; *doubt* is anything that
 * keeps a scan from being complete: it ends the sweep before the first mark or delete. After a
 * scan without doubt, a failure of one action is noted and the others go on. */
#ifndef CAIRN_GC_RUN_H
#define CAIRN_GC_RUN_H

#include "store/store.h"
#include "store/sweep_db.h"

/* Tombstones are kept this long, and a memory of records older than half of it is not used to tell
 * that one vanished. */
#define GC_TOMB_NS ((int64_t)7 * 24 * 3600 * 1000000000)

/* Settings, all in nanoseconds of the store's clock, none negative. */
struct gc_times {
    int64_t grace;      /* of a superseded generation */
    int64_t visibility; /* sigma: until a mark is seen by everybody */
    int64_t young;      /* what nobody refers to is left alone for this long */
    int64_t dead;       /* gamma: grace and margin, from dead to deleted */
    int64_t ttl;        /* of records; 0: for ever */
    int64_t intent;     /* sigma and the bound of a commit, where nothing can lock */
    int64_t pin;        /* twice the grace: a pin older than this has lost its holder */
};

struct gc_run {
    struct cairn_store *s;
    const struct cairn_op *op;
    struct gc_times t;
    bool dry_run, repack;
    struct sweep_db *db; /* borrowed; NULL: no memory */
    char node[LAYOUT_NODE_TEXT];
    const struct cairn_gc_options *options;
    struct cairn_gc_result *result;
    int64_t now;      /* the store's, when the scan began */
    unsigned changes; /* of this round, that another scan may build on */
    int late_rc;      /* the first action that failed; its message is in late */
    struct cairn_error late;
};

/* Resolve what the caller left open. locks: the backend's processes can lock each other out. */
void gc_times_of(const struct cairn_gc_config *config, bool local, struct gc_times *out);

/* a happened at least for ago, by the store's clock. No time (0), or one to come, is young. */
bool gc_is_older(const struct gc_run *run, int64_t a, int64_t than);

/* The sweep is at this now. */
void gc_phase(struct gc_run *run, const char *phase);
/* So many objects and bytes were looked at or handled. */
void gc_progress(struct gc_run *run, uint64_t objects, uint64_t bytes);
/* Tell of an action that is done, or would be: "delete", "packs/…", why. */
void gc_say(const struct gc_run *run, const char *verb, const char *object, const char *fmt, ...)
    CAIRN_PRINTF(4, 5);
/* After an action: takes note of a failure and returns CAIRN_OK, but for what ends the sweep
 * (timeout, cancelled, internal), which it passes on in err. */
CAIRN_MUST_CHECK int gc_settle(struct gc_run *run, int rc, const struct cairn_error *e,
                               struct cairn_error *err);

/* Call fn for each object under prefix. An error of the listing or of fn ends it. */
typedef int gc_entry_fn(void *ctx, const struct backend_entry *e, const struct layout_key *k,
                        struct cairn_error *err);
CAIRN_MUST_CHECK int gc_each(const struct gc_run *run, const char *prefix, gc_entry_fn *fn,
                             void *ctx, struct cairn_error *err);

#endif
