/* The table of operations that libfuse calls. */
#ifndef CAIRN_FUSE_TABLE_H
#define CAIRN_FUSE_TABLE_H

struct fuse_lowlevel_ops;
extern const struct fuse_lowlevel_ops mount_ops;

#endif
