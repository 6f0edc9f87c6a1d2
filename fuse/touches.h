/* Which file chunks of one generation were touched, and in which order for the first time: what a
 * trace (store/trace.h) is made of.
 *
 * Noting what was touched before costs the test of a bit, and nothing once it has ended. Holes are
 * not noted. Thread-safe, but for touches_begin, for which nobody may be noting. */
#ifndef CAIRN_FUSE_TOUCHES_H
#define CAIRN_FUSE_TOUCHES_H

#include "store/trace.h"

struct touches;

/* Ends so long after the first touch: later ones are of the running machine, not of its start. */
#define TOUCHES_NS (30 * (int64_t)1000000000)

/* For the files of m, or of any manifest of the same export. invalid: too many files or chunks for
 * a bit each to be worth it. The caller owns *out until touches_free. */
CAIRN_MUST_CHECK int touches_new(const struct manifest *m, struct touches **out,
                                 struct cairn_error *err);
void touches_free(struct touches *t); /* NULL is allowed */

/* Nothing was touched so far. */
void touches_begin(struct touches *t);
/* len bytes at off of a file, which it has, are being read; late: they were not here. m: as for
 * touches_new. */
void touches_note(struct touches *t, const struct manifest *m, uint32_t file, uint64_t off,
                  uint64_t len, bool late);
/* The same, of chunks. */
void touches_add(struct touches *t, const struct manifest *m, const struct trace_run *run,
                 bool late);
/* Different chunks touched so far, also those that are too many for a trace. */
uint64_t touches_count(struct touches *t);

/* It was begun, not ended, and its time is over at now (CLOCK_MONOTONIC). */
bool touches_is_over(struct touches *t, int64_t now);

struct touched {
    struct trace all, late; /* owned; late ones are in both */
    bool copy; /* somebody read nearly everything, or on and on: no order worth keeping */
};
void touched_release(struct touched *t);

/* No more is noted. What was goes to the caller; nothing, if this is not the first end. */
void touches_end(struct touches *t, struct touched *out);

#endif
