/* Work that may take long is done by threads of a *lane*, not by the few workers that take requests
 * from the kernel: a slow bucket must not keep others from stat or ls. A request may be answered
 * from any thread.
 *
 * The task's op ends at the lane's deadline, when its caller is being killed (caller.h), and when
 * the mount stops. */
#ifndef CAIRN_FUSE_TASK_H
#define CAIRN_FUSE_TASK_H

#include "fuse/mount_private.h"

struct fuse_req;

enum task_lane {
    LANE_READ,    /* bytes of files */
    LANE_LOOK,    /* names, attributes, listings, small objects */
    LANE_PUBLISH, /* publishing, committing, deleting */
    LANE_SPOOL,   /* the spool's own disk, which no store may keep waiting */
    LANE_COUNT_,
};

/* Answers req in any case. arg is the one given to task_run, freed with free() afterwards. */
typedef void task_fn(struct mount *m, struct fuse_req *req, const struct cairn_op *op, void *arg);

CAIRN_MUST_CHECK int lanes_new(struct mount *m, struct lanes **out, struct cairn_error *err);
/* Fires the op of every task, waits for the last. NULL is allowed. */
void lanes_free(struct lanes *l);
/* Wait until nothing is under way, or op says so. */
CAIRN_MUST_CHECK int lanes_drain(struct lanes *l, const struct cairn_op *op,
                                 struct cairn_error *err);

/* Have fn called on a thread of the lane. arg: allocated with malloc, transferred. Answers req with
 * an errno itself when there is no memory or no thread to be had: false, and fn is not called.
 * Never blocks. */
bool task_run(struct mount *m, enum task_lane lane, struct fuse_req *req, task_fn *fn, void *arg);

/* Work that is not given up halfway: when its caller is being killed, the request is answered
 * (EINTR), but fn goes on and its op does not end. fn gives the errno to answer with; it has no
 * req, and must use no inode that the request named, since the kernel may forget it. */
typedef int task_to_end_fn(struct mount *m, const struct cairn_op *op, void *arg);
bool task_run_to_end(struct mount *m, enum task_lane lane, struct fuse_req *req, task_to_end_fn *fn,
                     void *arg);

/* An op for work done at once, on the worker's own thread: local, so it has a deadline only. */
struct cairn_op task_op_here(const struct mount *m, enum task_lane lane);

/* The errno to answer with. Logs what a user cannot have caused (once, with what). */
int task_errno(struct mount *m, const char *what, const struct cairn_error *err);

#endif
