/* Deleting many keys of a bucket, every one of which is answered for. */
#ifndef CAIRN_S3_BACKEND_REMOVE_H
#define CAIRN_S3_BACKEND_REMOVE_H

#include "s3/client.h"

#include <stdbool.h>

/* As remove of struct backend_ops, for prefix + keys[i]. Batches go by DeleteObjects where the
 * client has it; a key that the answer does not name, or names with a transient error, is asked for
 * again within the op; keys that XML cannot hold go one by one. */
CAIRN_MUST_CHECK int s3_remove_keys(struct s3_client *c, const struct cairn_op *op,
                                    const char *prefix, const char *const *keys, size_t n,
                                    bool *failed, struct cairn_error *err);

#endif
