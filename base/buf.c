#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int buf_reserve(struct buf *b, size_t extra, struct cairn_error *err)
{
    size_t need;
    if (__builtin_add_overflow(b->len, extra, &need) || need > b->max)
        return error_set(err, CAIRN_INVALID, EFBIG, "more than %zu bytes", b->max);
    if (need <= b->cap)
        return CAIRN_OK;
    size_t cap = b->cap ? b->cap : 256;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    if (cap > b->max)
        cap = b->max;
    uint8_t *data = realloc(b->data, cap);
    if (!data)
        return error_oom(err, "buffer");
    b->data = data;
    b->cap = cap;
    return CAIRN_OK;
}

int buf_add(struct buf *b, const void *data, size_t len, struct cairn_error *err)
{
    int rc = buf_reserve(b, len, err);
    if (rc)
        return rc;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    return CAIRN_OK;
}

int buf_addf(struct buf *b, struct cairn_error *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return error_set(err, CAIRN_INTERNAL, errno, "formatting");
    /* vsnprintf wants room for the NUL, which is not counted in len. */
    int rc = buf_reserve(b, (size_t)n + 1, err);
    if (rc)
        return rc;
    va_start(ap, fmt);
    vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return CAIRN_OK;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
}

void buf_release(struct buf *b)
{
    free(b->data);
    *b = BUF_INIT(b->max);
}
