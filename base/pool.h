/* A fixed pool of worker threads. The submitter owns every work item and bounds their number: the
 * queue itself takes what it is given, in order. Thread-safe.
 *
 * A work item lives from pool_submit until pool_wait returned; it is then free to be used again.
 * run() must end by itself (within its op's bound): pool_wait cannot be interrupted. run() may
 * submit other items but never waits for one. */
#ifndef CAIRN_BASE_POOL_H
#define CAIRN_BASE_POOL_H

#include "base/error.h"

#include <stdbool.h>

struct pool;

struct pool_work {
    /* worker: 0 to pool_workers() - 1, for scratch space that belongs to one thread at a time */
    void (*run)(struct pool_work *work, unsigned worker);
    /* private to the pool */
    struct pool *pool;
    struct pool_work *next;
    bool done; /* guarded by the pool's lock */
};

/* workers: 1 to 64. Errors: transient (no thread to be had), internal. */
CAIRN_MUST_CHECK int pool_new(unsigned workers, struct pool **out, struct cairn_error *err);
/* Runs what is queued, then joins every thread. NULL is allowed. */
void pool_free(struct pool *pool);
unsigned pool_workers(const struct pool *pool);

/* Never blocks. */
void pool_submit(struct pool *pool, struct pool_work *work);
/* Until work has run. */
void pool_wait(struct pool_work *work);

#endif
