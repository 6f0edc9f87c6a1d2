#include "service/meta_field.h"

#include "store/ids.h"

#include <errno.h>
#include <string.h>

int meta_field(const struct request *r, const struct jval *meta, struct buf *out,
               struct cairn_error *err)
{
    const char *text = jval_str(meta);
    out->max = META_MAX;
    if (!text && !jval_is_object(meta))
        return error_set(err, CAIRN_INVALID, EINVAL, "\"meta\" must be a text or an object");
    if (!text && !r->meta->len)
        return error_set(err, CAIRN_INVALID, EINVAL,
                         "the name of \"meta\" must be written without escapes");
    int rc = buf_reserve(out, 1, err);
    if (!rc)
        rc = text ? buf_add(out, text, strlen(text), err)
                  : buf_add(out, r->meta->data, r->meta->len, err);
    if (rc == CAIRN_INVALID)
        return error_set(err, rc, EFBIG, "\"meta\" has more than %d bytes", META_MAX);
    return rc;
}
