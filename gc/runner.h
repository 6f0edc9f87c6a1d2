/* Sweeps of a process that lives long: one at a time, on a thread of their own.
 *
 *   state      meaning                       leaves it by
 *   IDLE       no sweep runs                 start: RUNNING
 *   RUNNING    the thread sweeps             it is done: IDLE;  stop: STOPPING
 *   STOPPING   its token is fired            it is done: ENDED
 *   ENDED      the thread is gone, for good
 *
 * Thread-safe. Nothing here is called with a lock held; the thread blocks all signals. */
#ifndef CAIRN_GC_RUNNER_H
#define CAIRN_GC_RUNNER_H

#include "store/store.h"

struct gc_runner;

/* store is borrowed until free. config: copied; NULL: the defaults. Errors: transient (no thread,
 * no descriptor), internal. */
CAIRN_MUST_CHECK int gc_runner_new(struct cairn_store *store, const struct cairn_gc_config *config,
                                   struct gc_runner **out, struct cairn_error *err);
/* Stops a sweep that runs, at its next step, and waits for that. NULL is allowed. No call may begin
 * afterwards; waits that run come back with transient, ESHUTDOWN. */
void gc_runner_free(struct gc_runner *r);

/* From the next sweep on. */
void gc_runner_configure(struct gc_runner *r, const struct cairn_gc_config *config);

/* Start a sweep, or join the one that runs (dry_run is then that one's, and joined is set, which
 * may be NULL). *sweep: its number, from 1. Never waits. transient, ESHUTDOWN: being freed. */
CAIRN_MUST_CHECK int gc_runner_start(struct gc_runner *r, bool dry_run, uint64_t *sweep,
                                     bool *joined, struct cairn_error *err);

struct gc_runner_status {
    uint64_t sweep;  /* number of the last one begun; 0: none yet */
    bool running;    /* it runs still */
    bool dry_run;    /* it is one that changes nothing */
    int error_class; /* how the last one that ended came out */
    char message[CAIRN_ERROR_MESSAGE_MAX];
    uint64_t good, failed; /* sweeps that ended well, and otherwise, so far; dry runs too */
    int64_t good_ns;       /* CLOCK_REALTIME of the end of the last good one that was no dry run; 0:
                            * none yet */
    struct cairn_gc_result progress; /* of the one that runs, so far */
    struct cairn_gc_result last;     /* of the last one that ended; last.phase NULL: none yet */
};
/* At any moment; never waits for the sweep. */
void gc_runner_status(struct gc_runner *r, struct gc_runner_status *out);

/* Until that sweep has ended, within op: then its class, error and result (result may be NULL).
 * Leaving early does not stop it. invalid: no such sweep was begun, or a later one has ended. */
CAIRN_MUST_CHECK int gc_runner_wait(struct gc_runner *r, const struct cairn_op *op, uint64_t sweep,
                                    struct cairn_gc_result *result, struct cairn_error *err);

#endif
