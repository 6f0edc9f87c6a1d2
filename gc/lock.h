/* One sweep at a time among the processes of a state folder: an open-file-description lock on
 * <state>/<store id>/gc.lock, which dies with its holder, whatever its process id and namespace.
 * Only to save work and to have the memory of sweeps for oneself: no safety rests on it. */
#ifndef CAIRN_GC_LOCK_H
#define CAIRN_GC_LOCK_H

#include "store/store.h"

/* *fd holds the lock until it is closed; -1 where no state folder is kept, or its file system has
 * no such locks or no room for the file. busy: another process sweeps. wait: until it does not,
 * within op. */
CAIRN_MUST_CHECK int gc_lock_take(const struct cairn_store *s, const struct cairn_op *op, bool wait,
                                  int *fd, struct cairn_error *err);

#endif
