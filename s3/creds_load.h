/* Where credentials come from, one look-up at a time: environment, shared files, container
 * endpoint, instance metadata (IMDSv2), in this order. Nothing here is ever logged. */
#ifndef CAIRN_S3_CREDS_LOAD_H
#define CAIRN_S3_CREDS_LOAD_H

#include "base/op.h"
#include "s3/http.h"

#include <stdint.h>

#define CREDS_NEVER INT64_MAX

struct s3_creds {
    char *access_key, *secret; /* owned */
    char *token;               /* session token, owned; NULL: none */
    int64_t expires_ns;        /* CLOCK_REALTIME; CREDS_NEVER */
    unsigned generation;       /* changes when the credentials do */
};

void s3_creds_release(struct s3_creds *c); /* wipes */
#define CLEANUP_CREDS __attribute__((cleanup(s3_creds_release)))

/* The environment as it was when the process asked: a copy, so that a later setenv is no race. */
struct s3_creds_env {
    char *access_key, *secret, *token;
    char *profile;       /* as configured or AWS_PROFILE; NULL: "default" */
    bool profile_chosen; /* by the configuration: the environment's keys are passed over */
    char *credentials_file, *config_file;
    char *container_url, *container_token, *container_token_file;
    char *imds; /* NULL: switched off */
};

/* profile: as configured, NULL for none. Errors: internal. */
CAIRN_MUST_CHECK int s3_creds_env_read(const char *profile, struct s3_creds_env *out,
                                       struct cairn_error *err);
void s3_creds_env_release(struct s3_creds_env *env);

enum s3_creds_source {
    CREDS_NONE,
    CREDS_ENVIRONMENT,
    CREDS_FILES,
    CREDS_CONTAINER,
    CREDS_INSTANCE,
};

#define CREDS_REQUEST_NS NS_PER_S       /* one request to a metadata endpoint */
#define CREDS_ALL_NS     (5 * NS_PER_S) /* everything that one load may take */

/* The first source that has any. known: where they came from the last time; that source failing is
 * transient then, and no other is asked. pool: made with direct. Permanent: there are none, and
 * why. op bounds the whole, as CREDS_ALL_NS does. */
CAIRN_MUST_CHECK int s3_creds_load(const struct s3_creds_env *env, struct http_pool *pool,
                                   const struct cairn_op *op, enum s3_creds_source known,
                                   struct s3_creds *out, enum s3_creds_source *source,
                                   struct cairn_error *err);

/* AWS_REGION, AWS_DEFAULT_REGION, or the profile's. *out is owned, NULL if nothing says. */
CAIRN_MUST_CHECK int s3_creds_region(const struct s3_creds_env *env, char **out,
                                     struct cairn_error *err);

#endif
