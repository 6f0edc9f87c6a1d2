#include "tests/s3/factory_s3.h"

#include "base/util.h"
#include "s3/backend_s3.h"
#include "tests/lib/s3_fault_server.h"

#include <stdio.h>
#include <stdlib.h>

static int open_with(const char *endpoint, const char *bucket, const char *prefix,
                     enum s3_signature signature, struct backend **out, struct cairn_error *err)
{
    static const char *spool;
    if (!spool)
        spool = testing_tmpdir();
    struct s3_config config = {.bucket = bucket,
                               .prefix = prefix,
                               .endpoint = endpoint,
                               .region = "us-east-1",
                               .force_path_style = true,
                               .signature = signature,
                               .spool_dir = spool};
    return backend_s3_open(&config, out, err);
}

static void fault_start(struct place *place)
{
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    unsetenv("AWS_SESSION_TOKEN");
    place->server = s3fs_start(NULL);
    ck_assert_ptr_nonnull(place->server);
    s3fs_page_size(place->server, 7); /* every listing of some length has pages */
}

static int fault_open_v4(struct place *place, struct backend **out, struct cairn_error *err)
{
    return open_with(s3fs_endpoint(place->server), "bucket", HARD_PREFIX_V4, S3_SIGNATURE_V4, out,
                     err);
}

static int fault_open_v2(struct place *place, struct backend **out, struct cairn_error *err)
{
    return open_with(s3fs_endpoint(place->server), "bucket", HARD_PREFIX_V2, S3_SIGNATURE_V2, out,
                     err);
}

static void fault_stop(struct place *place)
{
    struct s3fs_stats stats;
    s3fs_stats(place->server, &stats);
    ck_assert_uint_eq(stats.refused, 0);
    s3fs_stop(place->server);
}

static char rgw_prefix[128];

static void rgw_start(struct place *place)
{
    uint64_t nonce;
    (void)place;
    ck_assert_msg(getenv("S3_ENDPOINT") && getenv("S3_BUCKET"), "no gateway in the environment");
    ck_assert(util_random(&nonce, sizeof(nonce)));
    snprintf(rgw_prefix, sizeof(rgw_prefix), "contract-%016llx/", (unsigned long long)nonce);
}

static int rgw_open(const char *more, enum s3_signature signature, struct backend **out,
                    struct cairn_error *err)
{
    CLEANUP_FREE char *prefix = NULL;
    if (asprintf(&prefix, "%s%s", rgw_prefix, more) < 0)
        return error_oom(err, "prefix");
    return open_with(getenv("S3_ENDPOINT"), getenv("S3_BUCKET"), prefix, signature, out, err);
}

static int rgw_open_v4(struct place *place, struct backend **out, struct cairn_error *err)
{
    (void)place;
    return rgw_open(HARD_PREFIX_V4, S3_SIGNATURE_V4, out, err);
}

static int rgw_open_v2(struct place *place, struct backend **out, struct cairn_error *err)
{
    (void)place;
    return rgw_open(HARD_PREFIX_V2, S3_SIGNATURE_V2, out, err);
}

static void rgw_stop(struct place *place)
{
    (void)place; /* the gateway is thrown away as a whole */
}

const struct factory factory_s3_v4 = {.name = "s3-v4",
                                      .etags = true,
                                      .start = fault_start,
                                      .open = fault_open_v4,
                                      .stop = fault_stop};
const struct factory factory_s3_v2 = {.name = "s3-v2",
                                      .etags = true,
                                      .looks_first = true,
                                      .no_spaces = true,
                                      .start = fault_start,
                                      .open = fault_open_v2,
                                      .stop = fault_stop};
const struct factory factory_rgw_v4 = {.name = "rgw-v4",
                                       .etags = true,
                                       .looks_first = true,
                                       .start = rgw_start,
                                       .open = rgw_open_v4,
                                       .stop = rgw_stop};
const struct factory factory_rgw_v2 = {.name = "rgw-v2",
                                       .etags = true,
                                       .looks_first = true,
                                       .no_spaces = true,
                                       .start = rgw_start,
                                       .open = rgw_open_v2,
                                       .stop = rgw_stop};
