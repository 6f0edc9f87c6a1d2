/* Requests to one bucket: what backend_s3 asks for, and the small table that a client library is
 * put behind. Retries, credentials, throttling, regions and messages are the same for all of them
 * and live in client.c: a client makes exactly one attempt and says how it ended. Thread-safe. */
#ifndef CAIRN_S3_CLIENT_H
#define CAIRN_S3_CLIENT_H

#include "base/hash.h"
#include "s3/config.h"
#include "s3/creds.h"
#include "s3/http.h"
#include "s3/limiter.h"
#include "s3/md5.h"
#include "s3/xml_list.h"

#define S3_WHOLE       UINT64_MAX
#define S3_DELETE_KEYS 1000 /* in one request */

enum s3_verb { S3_GET, S3_PUT, S3_HEAD, S3_LIST, S3_DELETE, S3_DELETE_MANY };

/* How one key of a DELETE_MANY fared. */
struct s3_deleted {
    bool told;             /* the answer named the key */
    struct s3_fault fault; /* code "": it is gone */
};

struct s3_request {
    enum s3_verb verb;
    const char *key;  /* in the bucket, whole, at most S3_KEY_BYTES_MAX bytes; LIST: the prefix */
    const char *name; /* for messages: the key as the store knows it */
    /* GET: exactly len bytes from off into sink->dst, or to sink->take, which attempts after the
     * first go on with where the last one stopped; or, len S3_WHOLE, all of it into sink->buf */
    uint64_t off, len;
    struct http_sink *sink;
    /* PUT */
    const struct http_body *body;
    const uint8_t *sha256; /* SHA256_LEN bytes */
    const uint8_t *md5;    /* MD5_LEN bytes; only looked at where wants_md5 */
    bool if_absent; /* only if there is no such object: else busy with EEXIST. Not every server, and
                       no client but V4, knows it: then it is put all the same, or permanent */
    /* LIST: keys greater than after (""); with a token, asked for where the last page said */
    const char *after, *token;
    unsigned max_keys;    /* 0: 1,000 */
    struct s3_page *page; /* released by the caller, also after a failure */
    /* DELETE_MANY: at most S3_DELETE_KEYS, each of which xml_can_hold */
    const char *const *keys;
    size_t n;
    struct s3_deleted *deleted; /* n of them */
    /* Give up after so many attempts that ended without an answer; 0: as many as there is time for.
     */
    unsigned max_unanswered;
};

struct s3_result {
    struct s3_outcome outcome;
    struct backend_stat stat; /* GET, HEAD, PUT (etag) */
    /* For the driver and the client itself. */
    unsigned creds_generation, place_epoch;
    int64_t date; /* of the server, seconds; INT64_MIN: not said */
    char location[1024];
};

struct s3_client;

struct s3_client_ops {
    const char *name;
    bool wants_md5, deletes_many;
    void (*free)(struct s3_client *c);
    /* One attempt under these credentials. Fills *res in every case; waits no longer than op. */
    void (*attempt)(struct s3_client *c, const struct cairn_op *op, const struct s3_creds *creds,
                    const struct s3_request *req, struct s3_result *res);
    /* The attempt met another region, another endpoint or another clock. True: what was learnt is
     * remembered and the request is worth sending again at once. NULL: never. */
    bool (*adapt)(struct s3_client *c, struct s3_result *res);
};

/* The common part; the clients embed it first. */
struct s3_client {
    const struct s3_client_ops *ops;
    struct s3_limiter *limiter;
    struct s3_credentials *creds;
    int64_t retry_window_ns;
};

/* By signature. Nothing is sent yet. Errors: invalid, transient, internal. */
CAIRN_MUST_CHECK int s3_client_new(const struct s3_config *config, struct s3_client **out,
                                   struct cairn_error *err);
void s3_client_free(struct s3_client *c); /* NULL is allowed */

/* Do it, with as many attempts as it takes and op allows. Fills *res as the last attempt did. */
CAIRN_MUST_CHECK int s3_perform(struct s3_client *c, const struct cairn_op *op,
                                const struct s3_request *req, struct s3_result *res,
                                struct cairn_error *err);

/* Used by s3_client_new. region: owned by the caller. */
CAIRN_MUST_CHECK int client_v4_new(const struct s3_config *config, const char *region,
                                   struct s3_client **out, struct cairn_error *err);
CAIRN_MUST_CHECK int client_v2_new(const struct s3_config *config, struct s3_client **out,
                                   struct cairn_error *err);

#endif
