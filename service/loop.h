/* The event loop, by libevent behind a small face: work handed over from other threads, and timers.
 */
#ifndef CAIRN_SERVICE_LOOP_H
#define CAIRN_SERVICE_LOOP_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct loop;

/* Something for the loop thread to do. Owned by the poster, from loop_post until run is called. */
struct loop_task {
    void (*run)(struct loop_task *task);
    struct loop_task *next; /* private */
};

/* The caller owns *out. Errors: transient (no descriptor), internal. */
CAIRN_MUST_CHECK int loop_new(struct loop **out, struct cairn_error *err);
void loop_free(struct loop *l); /* tasks that were not run are dropped; NULL is allowed */

/* Loop thread only. Returns after loop_end. */
CAIRN_MUST_CHECK int loop_run(struct loop *l, struct cairn_error *err);
void loop_end(struct loop *l);

/* From any thread. Never blocks, never fails. Tasks run in order. */
void loop_post(struct loop *l, struct loop_task *task);

/* Timers: loop thread only. fn is called once for each loop_timer_set. */
struct loop_timer;
CAIRN_MUST_CHECK int loop_timer_new(struct loop *l, void (*fn)(void *ctx), void *ctx,
                                    struct loop_timer **out, struct cairn_error *err);
void loop_timer_set(struct loop_timer *t, int64_t ns); /* from now; replaces an earlier setting */
void loop_timer_stop(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t); /* NULL is allowed */

/* Call fn on the loop thread whenever fd polls readable, until loop_watch_free. */
struct loop_watch;
CAIRN_MUST_CHECK int loop_watch_new(struct loop *l, int fd, void (*fn)(void *ctx), void *ctx,
                                    struct loop_watch **out, struct cairn_error *err);
void loop_watch_free(struct loop_watch *w); /* NULL is allowed */

/* The struct event_base *, for conn.c and listen.c. */
void *loop_base(struct loop *l);

#endif
