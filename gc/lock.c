#include "gc/lock.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

/* How often a lock that another process holds is asked for. */
#define POLL_NS 50000000

int gc_lock_take(const struct cairn_store *s, const struct cairn_op *op, bool wait, int *fd,
                 struct cairn_error *err)
{
    *fd = -1;
    if (!s->state)
        return CAIRN_OK;
    CLEANUP_FREE char *path = NULL;
    if (asprintf(&path, "%s/gc.lock", s->state) < 0) {
        path = NULL;
        return error_oom(err, "path");
    }
    CLEANUP_FD int f = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (f < 0) {
        int e = errno;
        int rc = error_sys(err, e, "opening %s", path);
        if (rc != CAIRN_NO_SPACE)
            return rc;
        /* A full disk is what a sweep is for. */
        log_line(LOG_LEVEL_WARNING, "gc: without a lock: %s", err->message);
        return CAIRN_OK;
    }
    for (;;) {
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(f, F_OFD_SETLK, &l) == 0) {
            *fd = util_steal_fd(&f);
            return CAIRN_OK;
        }
        int e = errno;
        if (e == EINVAL || e == ENOLCK || e == ENOSYS || e == ENOTSUP)
            return CAIRN_OK;
        if (e != EAGAIN && e != EACCES && e != EINTR)
            return error_sys(err, e, "locking %s", path);
        if (!wait)
            return error_set(err, CAIRN_BUSY, EBUSY, "another process sweeps this store (%s)",
                             path);
        int rc = op_check(op, "waiting for another sweep", err);
        if (rc)
            return rc;
        op_pause(op, POLL_NS);
    }
}
