/* Mounting and unmounting: what may be mounted on, and the system's side of it. As root by
 * mount(2), else by fusermount3 (which libfuse calls). Thread-safe. */
#ifndef CAIRN_FUSE_MOUNTPOINT_H
#define CAIRN_FUSE_MOUNTPOINT_H

#include "base/op.h"

#include <stdbool.h>
#include <stddef.h>

#define MOUNTPOINT_TYPE "fuse.cairn"

/* The absolute form of dir (owned by the caller), which is an empty folder where nothing is
 * mounted; a dead mount of ours is taken away first. apart: folders that must neither lie in it nor
 * hold it. Errors: as mount_start. */
CAIRN_MUST_CHECK int mountpoint_prepare(const char *dir, const char *const *apart, size_t n_apart,
                                        char **out, struct cairn_error *err);

/* As root: *device is /dev/fuse, open (owned by the caller), mounted on dir. */
CAIRN_MUST_CHECK int mountpoint_mount(const char *dir, int *device, struct cairn_error *err);

/* Below, number: of the file system, as mountpoint_number gave it. Nothing is done where another
 * one is mounted on dir by now; 0: it is not known, any of Cairn's will do. */

/* Once; *busy: not now, it is in use. Gone already is success. */
CAIRN_MUST_CHECK int mountpoint_unmount(const char *dir, unsigned number, bool *busy,
                                        struct cairn_error *err);
/* Take the name away whoever uses it. Gone already is success. */
CAIRN_MUST_CHECK int mountpoint_detach(const char *dir, unsigned number, struct cairn_error *err);

/* The number by which the kernel knows the file system that is mounted on dir; 0: not to be had. */
unsigned mountpoint_number(const char *dir);
/* How far the kernel reads ahead on it. Without the right to say so it stays as it is. */
void mountpoint_read_ahead(unsigned number, unsigned kib);
/* Cut the users of what is mounted on dir off: every request that waits for an answer fails, and
 * every later one. Before it is detached. */
void mountpoint_abort(const char *dir, unsigned number);

#endif
