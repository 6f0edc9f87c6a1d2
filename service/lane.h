/* Lanes: groups of threads that make blocking calls for the service.
 *
 * A lane makes a thread when a job comes and none is idle, up to its bound; a thread without a job
 * for some seconds ends. Most of a lane's threads wait (for a flight, a bucket, a disk), so bounds
 * are counted in what may wait at once, not in cores; computing is the store's own pool's. Jobs of
 * a lane begin in order. Thread-safe; no callback under a lock; threads block all signals. */
#ifndef CAIRN_SERVICE_LANE_H
#define CAIRN_SERVICE_LANE_H

#include "base/error.h"

#include <stdbool.h>

enum lane_id {
    LANE_SHORT, /* metadata: list, show, meta, delete; seconds at most; upkeep */
    LANE_READ,  /* pieces of files */
    LANE_FORK,  /* forks: few at once, as each has its manifest in memory */
    LANE_LOCAL, /* memory and the local disk alone: leases, stagings, what became of publishes */
    LANE_WAIT,  /* requests that wait for a flight or a publish */
    LANE_LONG,  /* the work of publishes: few at once, since they share processors and memory */
    LANE_COUNT_,
    LANE_LOOP = LANE_COUNT_, /* of routes: no lane, on the loop itself; must not block */
};

struct lane;

/* Owned by the submitter; from lane_submit until run is called it must stay. run may free it. */
struct lane_job {
    void (*run)(struct lane_job *job);
    struct lane_job *next; /* private */
};

/* max_threads: 1 to 1024. Errors: internal. name is a literal, at most 15 bytes. */
CAIRN_MUST_CHECK int lane_new(const char *name, unsigned max_threads, unsigned max_queued,
                              struct lane **out, struct cairn_error *err);
/* Runs what is queued, then joins every thread. NULL is allowed. */
void lane_free(struct lane *lane);

/* Never blocks. transient, EAGAIN: too many wait, or no thread to be had; run is then not called.
 */
CAIRN_MUST_CHECK int lane_submit(struct lane *lane, struct lane_job *job, struct cairn_error *err);

/* The same, however many wait: for what gives something back. */
CAIRN_MUST_CHECK int lane_submit_always(struct lane *lane, struct lane_job *job,
                                        struct cairn_error *err);

/* For metrics. */
struct lane_load {
    unsigned threads, running, queued;
};
void lane_load(struct lane *lane, struct lane_load *out);

#endif
