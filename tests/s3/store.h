/* A store on the fault server, with time-outs short enough for tests. */
#ifndef CAIRN_TESTS_S3_STORE_H
#define CAIRN_TESTS_S3_STORE_H

#include "base/clock.h"
#include "s3/backend_s3.h"
#include "tests/lib/s3_fault_server.h"
#include "tests/lib/testing.h"

struct cairn_store;

extern struct s3fs *fs;
extern struct backend *store;

/* The server with keys "key"/"secret" in the environment, and nothing else of the chain's. */
void server_start(void);
/* Of the usual configuration; change it before store_open. */
struct s3_config store_config(void);
void store_open(const struct s3_config *config);
void store_start(enum s3_signature signature); /* both */
void store_stop(void);

void rule(const char *line);
struct s3fs_stats stats(void);
double seconds_since(int64_t start);
void write_file(const char *path, const char *text);
/* n objects, named so with six digits after it. */
void plant_many(const char *name, unsigned n);

/* len bytes as the one file, "memory", of a record; the export is made in the folder top, and the
 * id is its meta. */
void publish_bytes(struct cairn_store *s, const char *top, const char *id, const char *parent,
                   const void *bytes, size_t len);

/* Short forms over store. op may be NULL. */
int get(const struct cairn_op *op, const char *key, struct buf *out, struct cairn_error *err);
int put(const struct cairn_op *op, const char *key, const char *text, struct cairn_error *err);

/* Both signatures, one after the other, each on a server of its own. */
#define FOR_EACH_SIGNATURE(v)                                                                      \
    for (int v = S3_SIGNATURE_V4; v <= S3_SIGNATURE_V2 ? (store_start(v), 1) : 0; store_stop(), v++)

#endif
