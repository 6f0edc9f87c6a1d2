/* The one bound on what a store keeps on the local disk only because it may be needed again: the
 * chunks of the cache and materialised generations.
 *
 * Truth is what lies on the disk, so that several processes on one state directory share the bound
 * and a kill costs nothing. Each kind of thing kept is a *source* that can list its items and
 * remove one. In between the budget counts what this process says it adds; when that comes near the
 * bound, a thread of the budget's lists everything anew and removes what was used least recently,
 * until a sixteenth of the bound is free. One process at a time does so (a lock file that dies with
 * its holder), and never on a caller's thread, but for the listing that the first charge needs.
 *
 * Thread-safe. No lock is held while a source is called. */
#ifndef CAIRN_STORE_BUDGET_H
#define CAIRN_STORE_BUDGET_H

#include "base/op.h"

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_NAME_MAX    128
#define BUDGET_DEFAULT     ((uint64_t)10 << 30)
#define BUDGET_SOURCES_MAX 4

struct budget;

struct budget_item {
    char name[BUDGET_NAME_MAX]; /* the source's own, terminated */
    uint64_t bytes;             /* that it takes on the disk (st_blocks, not st_size) */
    int64_t used_ns;            /* last use, CLOCK_REALTIME; coarse is enough */
    bool in_use;                /* counts, but cannot go now: pinned, leased, being made */
};

/* Stop (and return its class) when it returns non-zero. */
typedef int budget_emit(void *to, const struct budget_item *item, struct cairn_error *err);

struct budget_source {
    const char *what; /* for the log */
    void *ctx;        /* borrowed until budget_free */
    /* Every item on the disk, in any order, also what other processes put there. */
    int (*scan)(void *ctx, budget_emit *emit, void *to, struct cairn_error *err);
    /* Remove an item that scan reported. Busy: somebody came to use it, it stays. Gone already is
     * success. Whoever has it open keeps reading. */
    int (*evict)(void *ctx, const struct budget_item *item, struct cairn_error *err);
};

/* dir: an existing folder on the file system that everything lies on; holds the lock file. limit:
 * bytes; negative: BUDGET_DEFAULT, but at most half of what is free there together with what is
 * kept already (looked at in each listing). The caller owns *out until budget_free. */
CAIRN_MUST_CHECK int budget_new(const char *dir, int64_t limit, struct budget **out,
                                struct cairn_error *err);
/* Before the first charge. The source is copied. */
void budget_add_source(struct budget *b, const struct budget_source *source);
/* Waits until a listing or removal that runs has ended. No call may be running. NULL is allowed. */
void budget_free(struct budget *b);

/* bytes are about to be written: false if that would go past the bound (nothing is counted then,
 * and room is made in the background for whoever asks later). Never waits, but for the listing at
 * the first charge. */
bool budget_charge(struct budget *b, uint64_t bytes);
/* The same, and waits for room, within op. no_space: there is none to be had. */
CAIRN_MUST_CHECK int budget_charge_wait(struct budget *b, const struct cairn_op *op, uint64_t bytes,
                                        struct cairn_error *err);
/* Count bytes past the bound as well: what must be kept is kept, and others have to go for it. */
void budget_take(struct budget *b, uint64_t bytes);
/* bytes that were charged were not written, or are no longer there. */
void budget_credit(struct budget *b, uint64_t bytes);

/* The disk turned out to be full: look at what is there, and at the bound, anew. */
void budget_look(struct budget *b);

struct budget_stats {
    uint64_t used, limit;
    uint64_t evicted, evicted_bytes; /* by this process */
    uint64_t refused;                /* charges */
};
void budget_stats(struct budget *b, struct budget_stats *out);

#endif
