#include "tests/mount/bucket.h"

#include <stdlib.h>

struct s3fs *fs;

void bucket_start(struct world *w, size_t nodes)
{
    fs = s3fs_start(NULL);
    ck_assert_ptr_nonnull(fs);
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("CAIRN_TEST_ENDPOINT", s3fs_endpoint(fs), 1);
    setenv("CAIRN_TEST_BUCKET", "s3://bucket/prefix", 1);
    world_start(w, nodes, NULL);
}

void bucket_stop(struct world *w)
{
    world_stop(w);
    s3fs_stop(fs);
}

void bucket_stop_verified(struct world *w)
{
    s3fs_clear(fs);
    world_stop(w);
    world_verify(w);
    s3fs_stop(fs);
}

void rule(const char *line)
{
    ck_assert_msg(s3fs_rule(fs, line), "rule: %s", line);
}

struct s3fs_stats counts(void)
{
    struct s3fs_stats st;
    s3fs_stats(fs, &st);
    return st;
}
