/* Whether whoever made a request, and waits for its answer, is being killed. The kernel tells of
 * the first signal that a caller gets, whichever it is, and of no later one. A call should not fail
 * because a timer went off or a runtime moves its threads about; it should when its caller is being
 * killed: a killed process does not die before its request is answered. */
#ifndef CAIRN_FUSE_CALLER_H
#define CAIRN_FUSE_CALLER_H

#include <stdbool.h>
#include <sys/types.h>

enum caller {
    CALLER_ALIVE,
    CALLER_DYING,
    CALLER_UNSEEN, /* it cannot be known */
};

/* Whether /proc shows the PID namespace that this process is in: requests name callers by their ids
 * in that one (0: a caller has none there). */
bool caller_can_be_seen(void);
/* thread: as a request names it, if callers can be seen; else 0. */
enum caller caller_look(pid_t thread);

#endif
