/* FUSE_PASSTHROUGH (Linux 6.9): the kernel serves an open file from a file of ours by itself, at
 * the speed of that file's own file system. libfuse 3.14 knows nothing of it. Two of its doors
 * suffice: custom I/O functions, by which the answer to INIT is extended on its way to the kernel,
 * and answering an open with bytes of our own. The ABI is include/uapi/linux/fuse.h, 7.40.
 *
 * It needs CAP_SYS_ADMIN; whether it works is found out by trying. Thread-safe. */
#ifndef CAIRN_FUSE_PASSTHROUGH_H
#define CAIRN_FUSE_PASSTHROUGH_H

#include "fuse/mount_private.h"

struct fuse_file_info;
struct fuse_req;

/* Have session talk to the kernel by device (borrowed), asking for passthrough in INIT. permanent:
 * libfuse does not do that. */
CAIRN_MUST_CHECK int passthrough_attach(struct mount *m, int device, struct cairn_error *err);
/* After INIT: whether the kernel agreed; false also where it only seems to (tried with fd, any
 * regular file open for reading). */
bool passthrough_works(struct mount *m, int fd);

/* Tell the kernel of a file. A name > 0, or -errno. */
int32_t passthrough_open(struct mount *m, int fd);
void passthrough_close(struct mount *m, int32_t backing);
/* Answer an open of a file that the kernel is to read by itself. 0 or -errno, as fuse_reply_open.
 */
int passthrough_reply(struct fuse_req *req, uint64_t fh, int32_t backing);

#endif
