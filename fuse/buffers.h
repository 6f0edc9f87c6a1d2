/* Buffers for answers, as large as the largest read. Each thread that answers uses one at a time,
 * and puts it back for the next: no allocation in the long run. Thread-safe. */
#ifndef CAIRN_FUSE_BUFFERS_H
#define CAIRN_FUSE_BUFFERS_H

#include "base/error.h"

#include <stdint.h>

#define BUFFER_LEN ((size_t)1024 * 1024)

struct buffers;

CAIRN_MUST_CHECK int buffers_new(struct buffers **out, struct cairn_error *err);
void buffers_free(struct buffers *b); /* NULL is allowed */
/* BUFFER_LEN bytes at a page's start; NULL: no memory. */
void *buffers_get(struct buffers *b);
void buffers_put(struct buffers *b, void *buffer); /* NULL is allowed */

#endif
