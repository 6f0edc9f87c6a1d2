/* The order in which the readers of a generation touch it first, kept in the store (store/trace.h)
 * when its last file is closed or some time has passed, and fetched ahead in that order the next
 * time that a file of it is opened, on whatever node. Only where the store is far away, and only
 * for files that are read through the mount.
 *
 * Nobody waits for any of it: a few threads of its own read, fetch and write what they find in a
 * bounded queue, and give it up when the mount ends. Thread-safe. */
#ifndef CAIRN_FUSE_TRACE_H
#define CAIRN_FUSE_TRACE_H

#include "fuse/mount_private.h"

struct open_file;
struct traced; /* what is known of one generation; owned by that */
struct tracer;

CAIRN_MUST_CHECK int tracer_new(struct mount *m, struct tracer **out, struct cairn_error *err);
/* Gives up what is fetched ahead; what is to be kept has a second. No request is under way any
 * more. NULL is allowed. */
void tracer_free(struct tracer *t);
void traced_free(struct traced *d); /* NULL is allowed */

/* f was just opened lazily, and is not read yet. Where nothing is traced this does nothing, as do
 * the others for f then. */
void trace_opened(struct mount *m, struct open_file *f);
/* f is read no more. */
void trace_closed(struct mount *m, struct open_file *f);
/* size bytes at off of f, which it has, are being read; late: they were not here. */
void trace_read(const struct open_file *f, uint64_t off, size_t size, bool late);
/* Look after what is open for long. To be called now and then. */
void trace_tidy(struct mount *m);

#endif
