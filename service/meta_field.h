/* The member "meta" of a body: the bytes of the meta.json to be. */
#ifndef CAIRN_SERVICE_META_FIELD_H
#define CAIRN_SERVICE_META_FIELD_H

#include "service/request.h"

/* A text stands for its own bytes; an object for what the client wrote, without the white space.
 * Appended to out, which then has data also when it is empty. invalid: any other value, more than
 * META_MAX bytes. */
CAIRN_MUST_CHECK int meta_field(const struct request *r, const struct jval *meta, struct buf *out,
                                struct cairn_error *err);

#endif
