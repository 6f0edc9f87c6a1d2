/* One limiter for each endpoint of the process: how many requests are in flight, and, while the
 * server says SlowDown, how many start in a second.
 *
 * Unthrottled there is no rate. A throttled answer sets the rate to half of what was last measured
 * (additive increase, multiplicative decrease: Chiu and Jain, 1989), each success raises it a
 * little, and well above the measured rate it is lifted. Decreases closer together than 250 ms
 * count once: they are answers to the same burst. Thread-safe.
 *
 * Those whose bytes are handed on as they arrive last as long as their taker takes, be that a disk
 * that hangs: an eighth of the places, at least one where there are two, is never theirs. */
#ifndef CAIRN_S3_LIMITER_H
#define CAIRN_S3_LIMITER_H

#include "base/op.h"

struct s3_limiter;

/* The limiter of this name (made with in_flight, 1 to 1024, if it is new; an existing one keeps the
 * smaller bound). Shared: each get has one put. Errors: internal. */
CAIRN_MUST_CHECK int s3_limiter_get(const char *name, unsigned in_flight, struct s3_limiter **out,
                                    struct cairn_error *err);
void s3_limiter_put(struct s3_limiter *l); /* NULL is allowed */

/* Wait for a place, and for the rate. streams: the bytes are handed on as they arrive. Timeout or
 * cancelled: no place is held. */
CAIRN_MUST_CHECK int s3_limiter_enter(struct s3_limiter *l, const struct cairn_op *op, bool streams,
                                      const char *what, struct cairn_error *err);

enum s3_limiter_result { S3_LIMITER_OK, S3_LIMITER_THROTTLED, S3_LIMITER_OTHER };
/* streams: as it was entered. */
void s3_limiter_leave(struct s3_limiter *l, bool streams, enum s3_limiter_result result);

struct s3_limiter_state {
    unsigned in_flight, max_in_flight;
    double rate; /* requests a second; 0: no limit */
    unsigned long throttled;
};
void s3_limiter_state(struct s3_limiter *l, struct s3_limiter_state *out);

#endif
