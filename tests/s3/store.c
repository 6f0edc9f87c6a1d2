#include "tests/s3/store.h"

#include "base/clock.h"
#include "base/util.h"
#include "store/cairn.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Of the times that a server may be silent for. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWNESS 2
#else
#define SLOWNESS 1
#endif

struct s3fs *fs;
struct backend *store;

void server_start(void)
{
    static const char *const chain[] = {"AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CA_BUNDLE",
                                        "http_proxy",
                                        "https_proxy",
                                        "no_proxy",
                                        "NO_PROXY"};
    for (size_t i = 0; i < sizeof(chain) / sizeof(chain[0]); i++)
        unsetenv(chain[i]);
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    fs = s3fs_start(NULL);
    ck_assert_ptr_nonnull(fs);
}

struct s3_config store_config(void)
{
    static const char *spool;
    if (!spool)
        spool = testing_tmpdir();
    return (struct s3_config){.bucket = "bucket",
                              .prefix = "pre/fix",
                              .endpoint = s3fs_endpoint(fs),
                              .force_path_style = true,
                              .spool_dir = spool,
                              .connect_ns = SLOWNESS * NS_PER_S,
                              .stall_ns = SLOWNESS * NS_PER_S / 2,
                              .answer_ns = SLOWNESS * NS_PER_S,
                              .retry_window_ns = 4 * NS_PER_S};
}

void store_open(const struct s3_config *config)
{
    struct cairn_error err;
    ck_ok(backend_s3_open(config, &store, &err));
}

void store_start(enum s3_signature signature)
{
    server_start();
    struct s3_config c = store_config();
    c.signature = signature;
    store_open(&c);
}

void store_stop(void)
{
    backend_free(store);
    s3fs_stop(fs);
    store = NULL;
    fs = NULL;
}

void rule(const char *line)
{
    ck_assert_msg(s3fs_rule(fs, line), "cannot read the rule: %s", line);
}

struct s3fs_stats stats(void)
{
    struct s3fs_stats s;
    s3fs_stats(fs, &s);
    return s;
}

double seconds_since(int64_t start)
{
    return (double)(clock_monotonic() - start) / (double)NS_PER_S;
}

void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

int get(const struct cairn_op *op, const char *key, struct buf *out, struct cairn_error *err)
{
    return store->ops->get(store, op, key, (size_t)1 << 20, out, NULL, err);
}

int put(const struct cairn_op *op, const char *key, const char *text, struct cairn_error *err)
{
    return store->ops->put(store, op, key, text, strlen(text), err);
}

void plant_many(const char *name, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        char key[100];
        int len = snprintf(key, sizeof(key), "pre/fix/%s%06u", name, i);
        ck_assert_int_lt(len, (int)sizeof(key));
        s3fs_store(fs, key, "x", 1);
    }
}

void publish_bytes(struct cairn_store *s, const char *top, const char *id, const char *parent,
                   const void *bytes, size_t len)
{
    char folder[300], path[320];
    struct cairn_error err;
    snprintf(folder, sizeof(folder), "%.200s/%s", top, id);
    snprintf(path, sizeof(path), "%s/memory", folder);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(util_pwrite_full(fd, bytes, len, 0), (ssize_t)len);
    struct cairn_publish_options o = {
        .from = folder, .meta = id, .meta_len = strlen(id), .parent = parent};
    struct cairn_publish_result r;
    ck_ok(cairn_publish(s, NULL, id, &o, &r, &err));
}
