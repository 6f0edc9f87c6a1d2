/* The client for stores that still want Signature V2: libs3 2.0 (http_v2.c), with care.
 *
 * What libs3 2.0 does by itself, and what is done about it here (all seen in its source and
 * tested; what it does on the way stands in http_v2.c):
 *  - a body that is cut counts as success: bytes are counted against Content-Length, and what came
 *    without one is not believed; whole objects are hashed and compared with their ETag, as are the
 *    bytes of a PUT, which carries Content-MD5 too;
 *  - whether a Range was honoured is not said: the length must be that of the range;
 *  - a key is sent with '+' for ' ' (another key): such keys are refused;
 *  - its listing loses keys above 1,023 bytes, breaks on bytes that XML cannot hold, reads times in
 *    the local time zone: it is not used. A listing is a GET whose query stands in the host's name
 *    (libs3 takes that as it is) and is read by our own parser. The '#' hides the path that libs3
 *    puts behind;
 *  - a HEAD's failure does not say why: it is asked again as a GET of one byte;
 *  - certificates are not checked: https is refused (config.c). Redirects are followed by libcurl,
 *    which drops the signature on the way: on a network that is trusted with plain http nothing is
 *    lost by that;
 *  - a session token cannot be sent: refused. */
#include "s3/client.h"

#include "base/clock.h"
#include "base/util.h"
#include "s3/http_v2.h"
#include "s3/sigv4.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct client_v2 {
    struct s3_client base;
    char *bucket, *authority;
    bool virtual_host;
    struct http_v2 *http;
};

static void v2_free(struct s3_client *base)
{
    struct client_v2 *c = (struct client_v2 *)base;
    http_v2_free(c->http);
    free(c->bucket);
    free(c->authority);
    free(c);
}

static struct http_v2_target make_target(const struct client_v2 *c, const struct s3_creds *creds,
                                         const char *key)
{
    return (struct http_v2_target){.host = c->authority,
                                   .bucket = c->bucket,
                                   .virtual_host = c->virtual_host,
                                   .creds = creds,
                                   .key = key};
}

/* An ETag that is an MD5 (V2 knows no encryption that would make it another thing). */
static bool differs(const char *etag, const uint8_t md5[MD5_LEN])
{
    uint8_t said[MD5_LEN];
    return util_unhex(etag, said, MD5_LEN) && memcmp(said, md5, MD5_LEN) != 0;
}

static void fill_stat(const struct http_v2_exchange *x, uint64_t size, struct backend_stat *st)
{
    st->size = size;
    st->mtime_ns = x->last_modified < 0 ? 0 : x->last_modified * NS_PER_S;
    memcpy(st->etag, x->etag, sizeof(st->etag));
}

/* Fewer bytes than the range has: libs3 does not hand out Content-Range, so the size says whether
 * the object ends before. */
static void ask_size(struct client_v2 *c, const struct cairn_op *op, const struct http_v2_target *t,
                     const struct s3_request *req, struct s3_result *res)
{
    struct s3_outcome head = {0};
    struct http_v2_exchange x = {.outcome = &head};
    http_v2_run(c->http, op, HTTP_V2_HEAD, t, &x);
    if (head.local)
        res->outcome = head;
    else if (http_v2_succeeded(&x) && x.has_head && x.content_length < req->off + req->len)
        s3_outcome_own(&res->outcome, S3_OWN_OBJECT_SHORT, "the object ends before");
}

static void v2_get(struct client_v2 *c, const struct cairn_op *op, const struct s3_creds *creds,
                   const struct s3_request *req, struct s3_result *res)
{
    bool whole = req->len == S3_WHOLE;
    uint8_t md5[MD5_LEN];
    struct http_v2_target t = make_target(c, creds, req->key);
    struct http_v2_exchange x = {.outcome = &res->outcome,
                                 .sink = req->sink,
                                 .hash = whole,
                                 .exact = !whole,
                                 .length = whole ? 0 : req->len};
    t.off = whole ? 0 : req->off;
    t.len = whole ? 0 : req->len;
    http_v2_run(c->http, op, HTTP_V2_GET, &t, &x);
    if (strcmp(res->outcome.fault.code, S3_OWN_RANGE_IGNORED) == 0 && x.content_length < req->len)
        ask_size(c, op, &t, req, res);
    if (!http_v2_succeeded(&x))
        return;
    if (req->sink->got < x.content_length)
        http_v2_refuse(&x, S3_OWN_SHORT_BODY, "fewer bytes than were announced");
    else if (req->sink->got > x.content_length)
        http_v2_refuse(&x, S3_OWN_BAD_ANSWER, "no Content-Length: a cut is not seen");
    md5_final(&x.hashed, md5);
    if (whole && !x.stopped && differs(x.etag, md5))
        http_v2_refuse(&x, S3_OWN_BAD_DIGEST, "the bytes are not those of the ETag");
    fill_stat(&x, x.content_length, &res->stat);
}

/* As in client_v4.c: the body of a GET says what a HEAD cannot. */
static void ask_by_get(struct client_v2 *c, const struct cairn_op *op,
                       const struct http_v2_target *t, struct s3_result *res)
{
    uint8_t byte;
    struct http_sink sink = {.dst = &byte, .cap = 1};
    struct http_v2_exchange x = {.outcome = &res->outcome, .sink = &sink};
    struct http_v2_target one = *t;
    one.len = 1;
    http_v2_run(c->http, op, HTTP_V2_GET, &one, &x);
    if (http_v2_succeeded(&x) ||
        (!res->outcome.local && strcmp(res->outcome.fault.code, "InvalidRange") == 0))
        http_v2_refuse(&x, S3_OWN_BAD_ANSWER, "GET says it is there, HEAD says it is not");
}

static void v2_head(struct client_v2 *c, const struct cairn_op *op, const struct s3_creds *creds,
                    const struct s3_request *req, struct s3_result *res)
{
    struct http_v2_target t = make_target(c, creds, req->key);
    struct http_v2_exchange x = {.outcome = &res->outcome};
    http_v2_run(c->http, op, HTTP_V2_HEAD, &t, &x);
    int http = res->outcome.http;
    if (!x.stopped && !res->outcome.fault.code[0] && http >= 400 && http < 500) {
        ask_by_get(c, op, &t, res);
        return;
    }
    if (!http_v2_succeeded(&x))
        return;
    if (!x.has_head || x.last_modified < 0)
        http_v2_refuse(&x, S3_OWN_BAD_ANSWER, "no Last-Modified");
    fill_stat(&x, x.content_length, &res->stat);
}

static void v2_put(struct client_v2 *c, const struct cairn_op *op, const struct s3_creds *creds,
                   const struct s3_request *req, struct s3_result *res)
{
    char md5[MD5_BASE64];
    struct http_v2_target t = make_target(c, creds, req->key);
    struct http_v2_exchange x = {.outcome = &res->outcome, .body = req->body, .md5 = md5};
    md5_base64(req->md5, md5);
    http_v2_run(c->http, op, HTTP_V2_PUT, &t, &x);
    if (!http_v2_succeeded(&x))
        return;
    if (x.sent != req->body->len)
        http_v2_refuse(&x, S3_OWN_SHORT_BODY, "an answer before all was sent");
    else if (differs(x.etag, req->md5))
        http_v2_refuse(&x, "BadDigest", "the ETag is not that of what was sent");
    fill_stat(&x, req->body->len, &res->stat);
}

static void v2_delete(struct client_v2 *c, const struct cairn_op *op, const struct s3_creds *creds,
                      const struct s3_request *req, struct s3_result *res)
{
    struct http_v2_target t = make_target(c, creds, req->key);
    struct http_v2_exchange x = {.outcome = &res->outcome};
    http_v2_run(c->http, op, HTTP_V2_DELETE, &t, &x);
}

/* "host/bucket/?query#", in place of the host's name. */
static int list_host(const struct client_v2 *c, const struct s3_request *req, struct buf *host,
                     struct cairn_error *err)
{
    struct sigv4_param params[4] = {{"encoding-type", "url"}};
    size_t n = 1;
    char max_keys[16];
    if (*req->key)
        params[n++] = (struct sigv4_param){"prefix", req->key};
    if (*req->after)
        params[n++] = (struct sigv4_param){"marker", req->after};
    if (req->max_keys) {
        snprintf(max_keys, sizeof(max_keys), "%u", req->max_keys);
        params[n++] = (struct sigv4_param){"max-keys", max_keys};
    }
    int rc = c->virtual_host ? buf_addf(host, err, "%s.%s/?", c->bucket, c->authority)
                             : buf_addf(host, err, "%s/%s/?", c->authority, c->bucket);
    if (!rc)
        rc = sigv4_query(params, n, host, err);
    return rc ? rc : buf_add(host, "#", 2, err);
}

static void v2_list(struct client_v2 *c, const struct cairn_op *op, const struct s3_creds *creds,
                    const struct s3_request *req, struct s3_result *res)
{
    CLEANUP_BUF struct buf answer = BUF_INIT(XML_LIST_MAX);
    CLEANUP_BUF struct buf host = BUF_INIT(16 * 1024);
    CLEANUP_BUF struct buf path = BUF_INIT(256);
    struct http_sink sink = {.buf = &answer, .max = XML_LIST_MAX};
    struct http_v2_exchange x = {.outcome = &res->outcome, .sink = &sink};
    struct s3_fault said;
    struct cairn_error err;
    s3_page_release(req->page);
    int rc = list_host(c, req, &host, &err);
    if (!rc)
        rc = buf_addf(&path, &err, "%s/%c", c->bucket, 0);
    if (rc) {
        http_v2_refuse_local(&x, rc, err.sys_errno, err.message);
        return;
    }
    struct http_v2_target t = make_target(c, creds, (char *)path.data);
    t.host = (char *)host.data;
    t.bucket = NULL;
    t.virtual_host = false;
    http_v2_run(c->http, op, HTTP_V2_GET, &t, &x);
    if (!http_v2_succeeded(&x))
        return;
    if (s3_fault_parse(answer.data, answer.len, &said)) {
        http_v2_refuse(&x, said.code[0] ? said.code : "InternalError", said.message);
        return;
    }
    rc = xml_list_parse(answer.data, answer.len, req->page, &err);
    if (rc == CAIRN_TRANSIENT)
        http_v2_refuse(&x, S3_OWN_BAD_XML, err.message);
    else if (rc)
        http_v2_refuse_local(&x, rc, err.sys_errno, err.message);
}

static void v2_attempt(struct s3_client *base, const struct cairn_op *op,
                       const struct s3_creds *creds, const struct s3_request *req,
                       struct s3_result *res)
{
    struct client_v2 *c = (struct client_v2 *)base;
    struct http_v2_exchange refusal = {.outcome = &res->outcome};
    if (creds->token) {
        http_v2_refuse_local(
            &refusal, CAIRN_PERMANENT, EACCES,
            "signature v2: temporary credentials (with a session token) cannot be used");
        return;
    }
    if (req->verb != S3_LIST && (strchr(req->key, ' ') || s3_key_has_dots(req->key))) {
        http_v2_refuse_local(&refusal, CAIRN_INVALID, EINVAL,
                             "signature v2: its client library cannot send this key");
        return;
    }
    switch (req->verb) {
    case S3_GET:
        v2_get(c, op, creds, req, res);
        break;
    case S3_PUT:
        v2_put(c, op, creds, req, res);
        break;
    case S3_HEAD:
        v2_head(c, op, creds, req, res);
        break;
    case S3_LIST:
        v2_list(c, op, creds, req, res);
        break;
    case S3_DELETE:
        v2_delete(c, op, creds, req, res);
        break;
    case S3_DELETE_MANY:
        http_v2_refuse_local(&refusal, CAIRN_INTERNAL, 0, "signature v2: one key at a time");
        break;
    }
}

static const struct s3_client_ops v2_ops = {
    .name = "v2",
    .wants_md5 = true,
    .free = v2_free,
    .attempt = v2_attempt,
};

int client_v2_new(const struct s3_config *config, struct s3_client **out, struct cairn_error *err)
{
    struct s3_place place;
    int rc = s3_place_parse(config->endpoint, &place, err);
    if (rc)
        return rc;
    struct client_v2 *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "S3 client");
    c->base.ops = &v2_ops;
    c->virtual_host = !config->force_path_style && s3_place_fits_virtual(&place, config->bucket);
    c->bucket = strdup(config->bucket);
    c->authority = strdup(place.authority);
    rc = c->bucket && c->authority ? http_v2_new(config, &c->http, err)
                                   : error_oom(err, "S3 client");
    if (rc) {
        v2_free(&c->base);
        return rc;
    }
    *out = &c->base;
    return CAIRN_OK;
}
