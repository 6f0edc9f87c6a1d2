/* The one place where a store is put together: which backend, under which store. */
#include "base/util.h"
#include "s3/backend_s3.h"
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_s3(const char *store)
{
    return strncmp(store, "s3://", 5) == 0;
}

static int open_s3(const struct cairn_config *config, struct backend **out, struct cairn_error *err)
{
    static const struct cairn_s3_config defaults;
    const struct cairn_s3_config *s3 = config->s3 ? config->s3 : &defaults;
    if (!config->state)
        return error_set(
            err, CAIRN_INVALID, EINVAL,
            "a store in a bucket needs a state directory, where packs wait to be sent");
    CLEANUP_FREE char *bucket = NULL;
    CLEANUP_FREE char *prefix = NULL;
    CLEANUP_FREE char *spool = NULL;
    int rc = s3_url_parse(config->store, &bucket, &prefix, err);
    if (rc)
        return rc;
    if (asprintf(&spool, "%s/spool", config->state) < 0) {
        spool = NULL;
        return error_oom(err, "path");
    }
    rc = store_make_folders(spool, err);
    if (rc)
        return rc;
    struct s3_config c = {.bucket = bucket,
                          .prefix = prefix,
                          .endpoint = s3->endpoint,
                          .region = s3->region,
                          .force_path_style = s3->force_path_style,
                          .signature = s3->signature_v2 ? S3_SIGNATURE_V2 : S3_SIGNATURE_V4,
                          .profile = s3->profile,
                          .ca_file = s3->ca_file,
                          .max_requests = s3->max_requests,
                          .spool_dir = spool};
    return backend_s3_open(&c, out, err);
}

int cairn_init(const struct cairn_config *config, const struct cairn_init_options *options,
               const struct cairn_op *op, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    int rc = op_check(op, "init", err);
    if (!rc && !is_s3(config->store)) {
        rc = store_init_dir(config->store, options, op, err);
    } else if (!rc) {
        struct backend *b = NULL;
        rc = open_s3(config, &b, err);
        if (!rc)
            rc = store_format_init(b, options, op, err);
        backend_free(b);
    }
    return rc ? error_wrap(err, "init %s", config->store) : CAIRN_OK;
}

int cairn_open(const struct cairn_config *config, const struct cairn_op *op,
               struct cairn_store **out, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    struct backend *b = NULL;
    int rc =
        is_s3(config->store) ? open_s3(config, &b, err) : backend_dir_open(config->store, &b, err);
    if (rc && !is_s3(config->store) && err->sys_errno == ENOENT)
        rc = error_set(err, CAIRN_NOT_FOUND, ENOENT, "no store here (no such folder): see init");
    if (!rc)
        rc = store_new(b, config, op, out, err);
    return rc ? error_wrap(err, "store %s", config->store) : CAIRN_OK;
}
