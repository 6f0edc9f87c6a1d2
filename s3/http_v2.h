/* HTTP with Signature V2, by libs3 2.0: to client_v2.c what http.h is to client_v4.c. Thread-safe;
 * each exchange waits no longer than its op and has a context of its own, which keeps its
 * connection for the next. */
#ifndef CAIRN_S3_HTTP_V2_H
#define CAIRN_S3_HTTP_V2_H

#include "s3/config.h"
#include "s3/creds.h"
#include "s3/http.h"
#include "s3/md5.h"
#include "store/backend.h"

struct http_v2;

/* Loads libs3 if need be. The caller owns *out. Errors: transient, internal. */
CAIRN_MUST_CHECK int http_v2_new(const struct s3_config *config, struct http_v2 **out,
                                 struct cairn_error *err);
void http_v2_free(struct http_v2 *h); /* NULL is allowed */

enum http_v2_verb { HTTP_V2_GET, HTTP_V2_HEAD, HTTP_V2_PUT, HTTP_V2_DELETE };

/* All borrowed. */
struct http_v2_target {
    const char *host, *bucket; /* bucket NULL: key has it */
    bool virtual_host;
    const struct s3_creds *creds;
    const char *key;
    uint64_t off, len; /* of a GET; len 0: all */
};

struct http_v2_exchange {
    struct s3_outcome *outcome; /* borrowed; filled in every case */
    const struct http_body *body;
    const char *md5; /* of the body, in base64 */
    struct http_sink *sink;
    bool hash;  /* the body that comes */
    bool exact; /* exactly length bytes must be announced */
    uint64_t length;
    /* of the way */
    uint64_t sent;
    int64_t last_ns;
    bool done, stopped;
    /* of the answer */
    struct md5 hashed;
    bool has_head, ok; /* ok: as libs3 sees it */
    uint64_t content_length;
    int64_t last_modified; /* seconds; negative: not said */
    char etag[BACKEND_ETAG_MAX];
};

void http_v2_run(struct http_v2 *h, const struct cairn_op *op, enum http_v2_verb verb,
                 const struct http_v2_target *t, struct http_v2_exchange *x);
bool http_v2_succeeded(const struct http_v2_exchange *x);
/* It has failed after all: with a code of ours or S3's (status.h), or for a reason of this host. */
void http_v2_refuse(struct http_v2_exchange *x, const char *code, const char *text);
void http_v2_refuse_local(struct http_v2_exchange *x, int rc, int sys_errno, const char *text);

#endif
