/* A store in an S3 bucket, behind the backend's table (store/backend.h).
 *
 * Keys are the store's, behind the prefix. An object is written by one plain PUT with its SHA-256,
 * so it appears whole or not at all. Nothing rests on rename, conditional PUT or lifecycle rules.
 * Packs wait for their PUT in unnamed files of the spool folder, which a crash leaves nothing of.
 */
#ifndef CAIRN_S3_BACKEND_S3_H
#define CAIRN_S3_BACKEND_S3_H

#include "s3/config.h"
#include "store/backend.h"

/* Sends nothing: whether the bucket is there shows at the first call (permanent if not). Starts one
 * thread, which free joins. The text of config is copied. Errors: invalid (in words), transient,
 * internal. */
CAIRN_MUST_CHECK int backend_s3_open(const struct s3_config *config, struct backend **out,
                                     struct cairn_error *err);

#endif
