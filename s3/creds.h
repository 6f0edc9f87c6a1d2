/* The credentials of a process: loaded once for all callers, renewed ahead of their end by one
 * thread, loaded again when the server no longer takes them.
 *
 * A caller never loads by itself: it waits, within its own op, for the thread, which has a budget
 * of its own. A failed load is told to those who waited and is not remembered. Credentials that are
 * still valid go on being used while renewing them fails. Thread-safe. */
#ifndef CAIRN_S3_CREDS_H
#define CAIRN_S3_CREDS_H

#include "s3/creds_load.h"

struct s3_credentials;

/* env is transferred (also on failure) and must have been filled by s3_creds_env_read. Starts the
 * thread; loads nothing yet. Errors: transient (no thread), internal. */
CAIRN_MUST_CHECK int s3_credentials_new(struct s3_creds_env *env, struct s3_credentials **out,
                                        struct cairn_error *err);
/* Stops a load that is running and joins the thread. NULL is allowed. */
void s3_credentials_free(struct s3_credentials *c);

/* A copy of the present ones, which the caller releases. Permanent: there are none; transient: they
 * ended and cannot be renewed now; timeout, cancelled. */
CAIRN_MUST_CHECK int s3_credentials_get(struct s3_credentials *c, const struct cairn_op *op,
                                        struct s3_creds *out, struct cairn_error *err);

/* The server refused the credentials of this generation: make sure that what the next get returns
 * was loaded since. *changed: the next get gives others. Loads at most once a second, whatever the
 * number of callers. Errors: timeout, cancelled, or why loading failed. */
CAIRN_MUST_CHECK int s3_credentials_refused(struct s3_credentials *c, const struct cairn_op *op,
                                            unsigned generation, bool *changed,
                                            struct cairn_error *err);

/* Times that a load was begun; for tests and metrics. */
unsigned long s3_credentials_loads(struct s3_credentials *c);

#endif
