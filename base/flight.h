/* Single flight: work that several callers want is done once, on a thread of its own, and belongs
 * to none of them.
 *
 * A *flight* is one run of a start function for a key. The first caller of a key starts it; callers
 * that come before it ended join it. Each caller waits until the flight ends, its own deadline
 * passes or its own token fires, and leaves at once in the last two cases; the flight goes on, also
 * when nobody waits any more. It runs under an op of its own: the table's budget, counted from when
 * it begins, and a token that only flight_table_invalidate and flight_table_free fire. Nothing is
 * remembered of a flight that ended: neither its result nor its error; the next call starts anew.
 *
 *   state     who is in it                   leaves it by
 *   QUEUED    waits for one of the threads   a thread takes it: RUNNING
 *                                            invalidate, free, no thread to be had: ENDED
 *   RUNNING   its start function runs        that returns: ENDED
 *   ENDED     no longer in the table; lives until the last of its callers has looked
 *
 *   flags of a RUNNING flight: invalid (callers are sent away, later ones do not see it, its result
 *   is dropped, it may not begin to install) and installing (invalidate waits until it is no more).
 *
 * Thread-safe. No function here calls start, ctx_free or a result's free with a lock held. Threads
 * are made as they are needed, block all signals, and are joined by flight_table_free. */
#ifndef CAIRN_BASE_FLIGHT_H
#define CAIRN_BASE_FLIGHT_H

#include "base/op.h"

#include <stdatomic.h>

/* What a flight gives: embedded as the first member of an object that the start function made, and
 * shared by all who waited. */
struct flight_result {
    atomic_uint refs;
    void (*free)(struct flight_result *r); /* called once, by whoever lets go last */
};

void flight_result_init(struct flight_result *r, void (*free)(struct flight_result *r)); /* 1 ref */
struct flight_result *flight_result_ref(struct flight_result *r); /* NULL is allowed, both */
void flight_result_unref(struct flight_result *r);

struct flight;
struct flight_table;

/* What a flight does. */
struct flight_start {
    /* Runs on the flight's thread. It ends soon after op says so: flight_table_free waits for it.
     * On success *out is one reference (transferred) or NULL; on failure *err is filled. */
    int (*run)(void *ctx, struct flight *self, const struct cairn_op *op,
               struct flight_result **out, struct cairn_error *err);
    void *ctx;                   /* transferred to flight_run, whatever that returns */
    void (*ctx_free)(void *ctx); /* called exactly once, after run or instead of it; may be NULL */
};

struct flight_table_options {
    int64_t budget_ns;    /* of one run, from its beginning; CAIRN_NO_DEADLINE: none */
    unsigned max_threads; /* runs at once; 1 to 256 */
    unsigned max_queued;  /* flights that wait for a thread; 0: 1024 */
};

/* The caller owns *out until flight_table_free. Errors: internal (memory). */
CAIRN_MUST_CHECK int flight_table_new(const struct flight_table_options *options,
                                      struct flight_table **out, struct cairn_error *err);

/* Ends everything: flights that wait for a thread are dropped, the tokens of those that run are
 * fired, their callers get transient. Returns when every run has returned, every thread is joined
 * and every call that began before has left. No call may begin afterwards. NULL is allowed. */
void flight_table_free(struct flight_table *t);

/* Join the flight of key, or start one. key: any text, copied.
 *
 * On success *out (out may be NULL) is a reference of the caller's own, or NULL if the flight gave
 * none. Errors:
 *   timeout, cancelled   the caller's own op, and nothing else; one that is spent at entry starts
 *                        nothing
 *   transient            ESTALE: invalidated meanwhile; ESHUTDOWN: the table is being freed;
 *                        EAGAIN: too many flights, or no thread to be had; ETIMEDOUT, ECANCELED:
 *                        the flight said timeout (its budget) or cancelled, which is not this
 *                        caller's doing
 *   any other class      as the flight's start function said it
 *   internal             memory */
CAIRN_MUST_CHECK int flight_run(struct flight_table *t, const char *key,
                                const struct flight_start *start, const struct cairn_op *op,
                                struct flight_result **out, struct cairn_error *err);

/* What the flights of key, and of keys beneath it ("key/…"), begun so far will give is worthless
 * (their subject was deleted or replaced): their callers get transient at once, later callers start
 * a new one, their tokens are fired, and they cannot install any more. Waits, within op, for an
 * install that is under way: on success nothing of theirs will be installed after this returns, so
 * that what was installed before can be taken away. timeout, cancelled: an install may still be
 * under way; the rest is done. No such flight is success. transient, ESHUTDOWN: the table is being
 * freed. Not from inside an install of the same key. */
CAIRN_MUST_CHECK int flight_table_invalidate(struct flight_table *t, const char *key,
                                             const struct cairn_op *op, struct cairn_error *err);

/* For the start function: put the result where others find it (a rename, a row in a table) between
 * these two, briefly. False: invalidated; nothing may be installed, and flight_install_end is not
 * called. What run returns then is dropped. */
CAIRN_MUST_CHECK bool flight_install_begin(struct flight *self);
void flight_install_end(struct flight *self);

#endif
