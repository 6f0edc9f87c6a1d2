/* FUSE_PASSTHROUGH (Linux 6.9): the kernel serves an open file from a file of ours by itself, at
 * the speed of that file's own file system.
 *
 * libfuse has calls for it from 3.17 on. Of an older one two doors suffice: custom I/O functions,
 * by which the answer to INIT is extended on its way to the kernel, and answering an open with
 * bytes of our own. The ABI is include/uapi/linux/fuse.h, 7.40. Which of the two is settled by the
 * header that this is compiled with: the library of 3.17 has another soname than older ones.
 *
 * It needs CAP_SYS_ADMIN; whether it works is found out by trying. Thread-safe. */
#ifndef CAIRN_FUSE_PASSTHROUGH_H
#define CAIRN_FUSE_PASSTHROUGH_H

#include "fuse/mount_private.h"

struct fuse_conn_info;
struct fuse_file_info;
struct fuse_req;

/* Have session talk to the kernel by device (borrowed), asking for passthrough in INIT. permanent:
 * libfuse does not do that. */
CAIRN_MUST_CHECK int passthrough_attach(struct mount *m, int device, struct cairn_error *err);
/* From the handler of INIT. */
void passthrough_init(struct mount *m, struct fuse_conn_info *conn);
/* After INIT: whether the kernel agreed; false also where it only seems to (tried with fd, any
 * regular file open for reading). */
bool passthrough_works(struct mount *m, int fd);

/* Tell the kernel of a file. req: a request that is not answered yet, or NULL. A name > 0; 0: it
 * does not take it. */
int32_t passthrough_open(struct mount *m, struct fuse_req *req, int fd);
void passthrough_close(struct mount *m, struct fuse_req *req, int32_t backing);
/* Answer an open (fi->fh is set) of a file that the kernel is to read by itself. 0 or -errno, as
 * fuse_reply_open. */
int passthrough_reply(struct fuse_req *req, struct fuse_file_info *fi, int32_t backing);

#endif
