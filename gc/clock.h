/* The store's clock: times of objects are compared with the time of an object written just now. */
#ifndef CAIRN_GC_CLOCK_H
#define CAIRN_GC_CLOCK_H

#include "gc/run.h"

/* *now: the mtime of gc/clock, put again and then looked at. no_space: it could not be written. */
CAIRN_MUST_CHECK int gc_clock_probe(const struct gc_run *run, int64_t *now,
                                    struct cairn_error *err);
/* Where nothing can be written: the time of a file that is touched; where objects are no files, the
 * largest time of any object, which is not later than now, so that ages come out too small and
 * never too large. */
CAIRN_MUST_CHECK int gc_clock_bound(const struct gc_run *run, int64_t *now,
                                    struct cairn_error *err);

#endif
