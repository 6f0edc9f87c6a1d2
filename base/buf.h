/* A growable byte buffer with a mandatory maximum, so that no input makes Cairn eat all memory.
 * Not thread-safe. Zero-initialised is empty; data is NULL until something is added. */
#ifndef CAIRN_BASE_BUF_H
#define CAIRN_BASE_BUF_H

#include "base/error.h"

#include <stdint.h>

struct buf {
    uint8_t *data; /* owned */
    size_t len, cap, max;
};

#define BUF_INIT(limit) ((struct buf){.max = (limit)})

/* All three: internal when memory ran out, invalid when max would be exceeded; the buffer keeps
 * what it had. */
CAIRN_MUST_CHECK int buf_reserve(struct buf *b, size_t extra, struct cairn_error *err);
CAIRN_MUST_CHECK int buf_add(struct buf *b, const void *data, size_t len, struct cairn_error *err);
CAIRN_MUST_CHECK int buf_addf(struct buf *b, struct cairn_error *err, const char *fmt, ...)
    CAIRN_PRINTF(3, 4);

void buf_clear(struct buf *b);   /* empty, memory kept */
void buf_release(struct buf *b); /* empty, memory freed, max kept */

#define CLEANUP_BUF __attribute__((cleanup(buf_release)))

#endif
