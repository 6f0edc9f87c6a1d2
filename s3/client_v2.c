/* The client for stores that still want Signature V2: libs3 2.0, with care.
 *
 * What libs3 2.0 does by itself, and what is done about it here (all seen in its source and
 * tested):
 *  - a body that is cut counts as success (CURLE_PARTIAL_FILE): bytes are counted against
 *    Content-Length, and what came without one is not believed; whole objects are hashed and
 *    compared with their ETag, as are the bytes of a PUT, which carries Content-MD5 too;
 *  - whether a Range was honoured is not said: the length must be that of the range;
 *  - a key is sent with '+' for ' ' (another key): such keys are refused;
 *  - its listing loses keys above 1,023 bytes, breaks on bytes that XML cannot hold, reads times in
 *    the local time zone: it is not used. A listing is a GET whose query stands in the host's name
 *    (libs3 takes that as it is) and is read by our own parser. The '#' hides the path that libs3
 *    puts behind;
 *  - a HEAD's failure does not say why: it is asked again as a GET of one byte;
 *  - gmtime(): requests are composed under one lock;
 *  - libxml2, with which it reads errors, must be started by one thread before others use it, which
 *    libs3 leaves to chance: it is started here;
 *  - certificates are not checked: https is refused (config.c). Redirects are followed by libcurl,
 *    which drops the signature on the way: on a network that is trusted with plain http nothing is
 *    lost by that;
 *  - a session token cannot be sent: refused;
 *  - blocking calls cannot be stopped: every request runs in a context that is polled here, within
 *    the op; a context keeps its connection for the next request;
 *  - unknown error codes lose their name and HTTP status: transient, so that no throttling is ever
 *    taken as final. */
#include "s3/client.h"

#include "base/clock.h"
#include "base/util.h"
#include "s3/shared_lib.h"
#include "s3/sigv4.h"

#include <errno.h>
#include <libs3.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* libs3, as loaded. */
#define LIBS3_CALLS(X)                                                                             \
    X(create_request_context);                                                                     \
    X(delete_object);                                                                              \
    X(destroy_request_context);                                                                    \
    X(get_object);                                                                                 \
    X(get_request_context_fdsets);                                                                 \
    X(get_request_context_timeout);                                                                \
    X(get_status_name);                                                                            \
    X(head_object);                                                                                \
    X(initialize);                                                                                 \
    X(put_object);                                                                                 \
    X(runonce_request_context)

static struct {
#define FIELD(name) __typeof__(&S3_##name) name
    LIBS3_CALLS(FIELD);
} libs3;

struct context {
    S3RequestContext *ctx;
    struct context *next;
};

struct client_v2 {
    struct s3_client base;
    char *bucket, *authority;
    bool virtual_host;
    int64_t stall_ns, answer_ns;
    unsigned keep;
    pthread_mutex_t lock; /* guards idle and n_idle */
    struct context *idle;
    unsigned n_idle;
};

/* libs3 and libxml2 start once a process, by whoever needs them first; the others wait. They are
 * never ended, as threads may still be in them. What fails for want of descriptors or memory works
 * the next time. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool libs3_ready; /* guarded by start_lock, as libs3 is until then */

/* Composing a request calls gmtime(). */
static pthread_mutex_t libs3_lock = PTHREAD_MUTEX_INITIALIZER;

static int load_libs3(struct cairn_error *err)
{
    void (*init_parser)(void) = NULL;
    struct shared_lib lib = shared_lib_open("libs3.so.2", err);
#define FIND(name) shared_lib_find(&lib, "S3_" #name, &libs3.name)
    LIBS3_CALLS(FIND);
    shared_lib_find(&lib, "xmlInitParser", &init_parser);
    if (lib.rc)
        return lib.rc;
    init_parser();
    if (libs3.initialize("cairn", S3_INIT_ALL, NULL) != S3StatusOK)
        return error_set(err, CAIRN_INTERNAL, 0, "libs3 does not start");
    return CAIRN_OK;
}

static int start_libs3(struct cairn_error *err)
{
    pthread_mutex_lock(&start_lock);
    int rc = libs3_ready ? CAIRN_OK : load_libs3(err);
    libs3_ready = rc == CAIRN_OK;
    pthread_mutex_unlock(&start_lock);
    return rc;
}

static void context_free(struct context *x)
{
    libs3.destroy_request_context(x->ctx);
    free(x);
}

static void v2_free(struct s3_client *base)
{
    struct client_v2 *c = (struct client_v2 *)base;
    while (c->idle) {
        struct context *x = c->idle;
        c->idle = x->next;
        context_free(x);
    }
    pthread_mutex_destroy(&c->lock);
    free(c->bucket);
    free(c->authority);
    free(c);
}

static struct context *take_context(struct client_v2 *c)
{
    pthread_mutex_lock(&c->lock);
    struct context *x = c->idle;
    if (x) {
        c->idle = x->next;
        c->n_idle--;
    }
    pthread_mutex_unlock(&c->lock);
    if (x)
        return x;
    x = calloc(1, sizeof(*x));
    if (x && libs3.create_request_context(&x->ctx) != S3StatusOK)
        free(util_steal(&x));
    return x;
}

static void give_context(struct client_v2 *c, struct context *x)
{
    pthread_mutex_lock(&c->lock);
    bool keep = c->n_idle < c->keep;
    if (keep) {
        x->next = c->idle;
        c->idle = x;
        c->n_idle++;
    }
    pthread_mutex_unlock(&c->lock);
    if (!keep)
        context_free(x);
}

/* ---- One exchange ---------------------------------------------------------------------------- */

struct exchange {
    struct s3_outcome *outcome;
    const struct http_body *body;
    struct http_sink *sink;
    bool hash;  /* the body that comes */
    bool exact; /* exactly length bytes must be announced */
    uint64_t length;
    uint64_t sent;
    int64_t last_ns;
    struct md5 md5;
    /* of the answer */
    bool has_head, done, stopped;
    S3Status status;
    uint64_t content_length;
    int64_t last_modified;
    char etag[BACKEND_ETAG_MAX];
};

static void set_own(struct exchange *x, const char *code, const char *text)
{
    *x->outcome = (struct s3_outcome){0};
    s3_outcome_own(x->outcome, code, text);
    x->stopped = true;
}

static void set_local(struct exchange *x, int rc, int sys_errno, const char *text)
{
    *x->outcome = (struct s3_outcome){0};
    s3_outcome_local(x->outcome, rc, sys_errno, text);
    x->stopped = true;
}

static S3Status on_properties(const S3ResponseProperties *p, void *user)
{
    struct exchange *x = user;
    x->last_ns = clock_monotonic();
    x->has_head = true;
    x->content_length = p->contentLength;
    x->last_modified = p->lastModified;
    const char *tag = p->eTag ? p->eTag : "";
    size_t n = strlen(tag);
    if (n >= 2 && tag[0] == '"' && tag[n - 1] == '"') {
        tag++;
        n -= 2;
    }
    snprintf(x->etag, sizeof(x->etag), "%.*s", (int)n, tag);
    if (x->exact && x->content_length != x->length) {
        set_own(x, S3_OWN_RANGE_IGNORED, "another length than was asked for");
        return S3StatusAbortedByCallback;
    }
    if (x->hash && x->content_length > x->sink->max) {
        set_local(x, CAIRN_CORRUPT, EFBIG, "more bytes than it can be");
        return S3StatusAbortedByCallback;
    }
    return S3StatusOK;
}

static S3Status on_data(int len, const char *data, void *user)
{
    struct exchange *x = user;
    struct http_sink *s = x->sink;
    size_t n = (size_t)len, room = s->take ? s->cap - s->taken + s->got : s->dst ? s->cap : s->max;
    struct cairn_error err;
    x->last_ns = clock_monotonic();
    if (n > room - s->got) {
        if (x->hash)
            set_local(x, CAIRN_CORRUPT, EFBIG, "more bytes than it can be");
        else
            set_own(x, S3_OWN_LONG_BODY, "more bytes than were asked for");
        return S3StatusAbortedByCallback;
    }
    if (s->dst) {
        memcpy((char *)s->dst + s->got, data, n);
    } else {
        int rc = s->take ? s->take(s->take_ctx, data, n, &err) : buf_add(s->buf, data, n, &err);
        x->last_ns = clock_monotonic();
        s->taken += rc || !s->take ? 0 : n;
        if (rc) {
            set_local(x, rc, err.sys_errno, err.message);
            return S3StatusAbortedByCallback;
        }
    }
    if (x->hash)
        md5_update(&x->md5, data, n);
    s->got += n;
    return S3StatusOK;
}

static int on_put(int room, char *out, void *user)
{
    struct exchange *x = user;
    const struct http_body *b = x->body;
    uint64_t left = b->len - x->sent;
    size_t n = (uint64_t)room < left ? (size_t)room : (size_t)left;
    x->last_ns = clock_monotonic();
    if (b->data) {
        memcpy(out, (const char *)b->data + b->off + x->sent, n);
    } else {
        ssize_t got = util_pread_full(b->fd, out, n, b->off + x->sent);
        if (got != (ssize_t)n) {
            int e = got < 0 ? errno : EIO;
            set_local(x, got < 0 ? errno_class(e) : CAIRN_INTERNAL, e,
                      got < 0 ? "the file to send cannot be read" : "the file to send is shorter");
            return -1;
        }
    }
    x->sent += n;
    return (int)n;
}

/* What libs3 says, in the terms of the one table. */
static void translate(struct exchange *x, S3Status status, const char *message)
{
    struct s3_outcome *o = x->outcome;
    const char *name = libs3.get_status_name(status);
    *o = (struct s3_outcome){0};
    s3_outcome_own(o, "", message ? message : "");
    switch (status) {
    case S3StatusOK:
        o->http = 200;
        return;
    case S3StatusOutOfMemory:
        set_local(x, CAIRN_INTERNAL, ENOMEM, "out of memory");
        return;
    case S3StatusUriTooLong:
    case S3StatusKeyTooLong:
        set_local(x, CAIRN_INVALID, ENAMETOOLONG, name);
        return;
    case S3StatusHttpErrorMovedTemporarily:
        o->http = 307;
        return;
    case S3StatusHttpErrorBadRequest:
        o->http = 400;
        return;
    case S3StatusHttpErrorForbidden:
        o->http = 403;
        return;
    case S3StatusHttpErrorNotFound:
        o->http = 404;
        return;
    case S3StatusHttpErrorConflict:
        o->http = 409;
        return;
    case S3StatusInternalError:
    case S3StatusXmlParseFailure:
    case S3StatusNameLookupError:
    case S3StatusFailedToConnect:
    case S3StatusServerFailedVerification:
    case S3StatusConnectionFailed:
    case S3StatusHttpErrorUnknown:
    case S3StatusErrorUnknown:
        snprintf(o->fault.code, sizeof(o->fault.code), "%s", name);
        return;
    default:
        break;
    }
    if (strncmp(name, "Error", 5) != 0) {
        set_local(x, CAIRN_INVALID, EINVAL, name); /* a parameter that libs3 does not take */
        return;
    }
    /* Every code of libs3 that the table does not name is one of S3's 4xx. */
    o->http = 400;
    snprintf(o->fault.code, sizeof(o->fault.code), "%s", name + 5);
}

static void on_complete(S3Status status, const S3ErrorDetails *details, void *user)
{
    struct exchange *x = user;
    x->done = true;
    x->status = status;
    if (!x->stopped)
        translate(x, status, details ? details->message : NULL);
}

/* Wait until a socket of the context moves, the token fires, or wait_ms are over. */
static void wait_io(S3RequestContext *ctx, const struct cairn_op *op, int wait_ms)
{
    fd_set in, out, ex;
    struct pollfd fds[16];
    nfds_t n = 0;
    int max = -1;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&ex);
    if (libs3.get_request_context_fdsets(ctx, &in, &out, &ex, &max) != S3StatusOK)
        max = -1;
    for (int fd = 0; fd <= max && n < ARRAY_SIZE(fds) - 1; fd++) {
        short events =
            (short)((FD_ISSET(fd, &in) ? POLLIN : 0) | (FD_ISSET(fd, &out) ? POLLOUT : 0));
        if (events || FD_ISSET(fd, &ex))
            fds[n++] = (struct pollfd){.fd = fd, .events = events};
    }
    /* No socket: a name is being resolved, or its number is too large for an fd_set. */
    if (!n && wait_ms > 20)
        wait_ms = 20;
    int64_t own = libs3.get_request_context_timeout(ctx);
    if (own >= 0 && own < wait_ms)
        wait_ms = (int)own;
    if (op && op->cancel)
        fds[n++] = (struct pollfd){.fd = cairn_cancel_fd(op->cancel), .events = POLLIN};
    (void)poll(fds, n, wait_ms);
}

static void drive(struct client_v2 *c, const struct cairn_op *op, S3RequestContext *ctx,
                  struct exchange *x)
{
    while (!x->done) {
        int remaining = 0;
        struct cairn_error err;
        if (libs3.runonce_request_context(ctx, &remaining) != S3StatusOK) {
            set_own(x, "InternalError", "libs3 cannot go on");
            return;
        }
        if (x->done)
            return;
        if (op_check(op, "request", &err)) {
            set_local(x, err.error_class, err.sys_errno,
                      err.error_class == CAIRN_TIMEOUT ? "deadline passed" : "cancelled");
            return;
        }
        bool all_sent = x->body && x->body->len > 1024 * 1024 && x->sent == x->body->len;
        int64_t patience = all_sent ? c->answer_ns : c->stall_ns;
        int64_t rest = clock_add(x->last_ns, patience) - clock_monotonic();
        if (rest <= 0) {
            char text[64];
            snprintf(text, sizeof(text), "no byte for %.1f s", (double)patience / (double)NS_PER_S);
            set_own(x, "ConnectionFailed", text);
            return;
        }
        int64_t ms = (rest + 999999) / 1000000;
        int bound = op_poll_ms(op);
        if (bound >= 0 && bound < ms)
            ms = bound;
        wait_io(ctx, op, ms > 1000 ? 1000 : (int)ms);
    }
}

enum call { CALL_GET, CALL_HEAD, CALL_PUT, CALL_DELETE };

struct target {
    S3BucketContext bucket;
    const char *key;
    uint64_t off, len; /* of a GET; len 0: all */
};

static void start(enum call call, const struct target *t, S3RequestContext *ctx, struct exchange *x,
                  const char *md5)
{
    const S3ResponseHandler answer = {on_properties, on_complete};
    const S3GetObjectHandler get = {answer, on_data};
    const S3PutObjectHandler put = {answer, on_put};
    const S3PutProperties props = {.md5 = md5, .expires = -1};
    pthread_mutex_lock(&libs3_lock);
    switch (call) {
    case CALL_GET:
        libs3.get_object(&t->bucket, t->key, NULL, t->off, t->len, ctx, &get, x);
        break;
    case CALL_HEAD:
        libs3.head_object(&t->bucket, t->key, ctx, &answer, x);
        break;
    case CALL_PUT:
        libs3.put_object(&t->bucket, t->key, x->body->len, &props, ctx, &put, x);
        break;
    case CALL_DELETE:
        libs3.delete_object(&t->bucket, t->key, ctx, &answer, x);
        break;
    }
    pthread_mutex_unlock(&libs3_lock);
}

/* x->outcome is filled. */
static void exchange(struct client_v2 *c, const struct cairn_op *op, enum call call,
                     const struct target *t, struct exchange *x, const char *md5)
{
    x->last_ns = clock_monotonic();
    md5_init(&x->md5);
    if (x->sink) {
        x->sink->got = 0;
        if (x->sink->buf)
            x->sink->buf->len = x->sink->buf_start;
    }
    struct context *k = take_context(c);
    if (!k) {
        set_local(x, CAIRN_INTERNAL, ENOMEM, "out of memory");
        return;
    }
    start(call, t, k->ctx, x, md5);
    drive(c, op, k->ctx, x);
    /* A request that is stopped goes with its connection; libs3 then calls on_complete. */
    if (x->done)
        give_context(c, k);
    else
        context_free(k);
}

/* ---- The verbs ------------------------------------------------------------------------------- */

static struct target make_target(const struct client_v2 *c, const struct s3_creds *creds,
                                 const char *key)
{
    return (struct target){
        .bucket = {.hostName = c->authority,
                   .bucketName = c->bucket,
                   .protocol = S3ProtocolHTTP,
                   .uriStyle = c->virtual_host ? S3UriStyleVirtualHost : S3UriStylePath,
                   .accessKeyId = creds->access_key,
                   .secretAccessKey = creds->secret},
        .key = key};
}

static bool is_ok(const struct exchange *x)
{
    return !x->stopped && x->status == S3StatusOK;
}

/* An ETag that is an MD5 (V2 knows no encryption that would make it another thing). */
static bool differs(const char *etag, const uint8_t md5[MD5_LEN])
{
    uint8_t said[MD5_LEN];
    return util_unhex(etag, said, MD5_LEN) && memcmp(said, md5, MD5_LEN) != 0;
}

static void fill_stat(const struct exchange *x, uint64_t size, struct backend_stat *st)
{
    st->size = size;
    st->mtime_ns = x->last_modified < 0 ? 0 : x->last_modified * NS_PER_S;
    memcpy(st->etag, x->etag, sizeof(st->etag));
}

/* Fewer bytes than the range has: libs3 does not hand out Content-Range, so the size says whether
 * the object ends before. */
static void ask_size(struct client_v2 *c, const struct cairn_op *op, const struct target *t,
                     const struct s3_request *req, struct s3_result *res)
{
    struct s3_outcome head = {0};
    struct exchange x = {.outcome = &head};
    exchange(c, op, CALL_HEAD, t, &x, NULL);
    if (head.local)
        res->outcome = head;
    else if (is_ok(&x) && x.has_head && x.content_length < req->off + req->len)
        s3_outcome_own(&res->outcome, S3_OWN_OBJECT_SHORT, "the object ends before");
}

static void v2_get(struct client_v2 *c, const struct cairn_op *op, const struct s3_creds *creds,
                   const struct s3_request *req, struct s3_result *res)
{
    bool whole = req->len == S3_WHOLE;
    uint8_t md5[MD5_LEN];
    struct target t = make_target(c, creds, req->key);
    struct exchange x = {.outcome = &res->outcome,
                         .sink = req->sink,
                         .hash = whole,
                         .exact = !whole,
                         .length = whole ? 0 : req->len};
    t.off = whole ? 0 : req->off;
    t.len = whole ? 0 : req->len;
    exchange(c, op, CALL_GET, &t, &x, NULL);
    if (strcmp(res->outcome.fault.code, S3_OWN_RANGE_IGNORED) == 0 && x.content_length < req->len)
        ask_size(c, op, &t, req, res);
    if (!is_ok(&x))
        return;
    if (req->sink->got < x.content_length)
        set_own(&x, S3_OWN_SHORT_BODY, "fewer bytes than were announced");
    else if (req->sink->got > x.content_length)
        set_own(&x, S3_OWN_BAD_ANSWER, "no Content-Length: a cut is not seen");
    md5_final(&x.md5, md5);
    if (whole && !x.stopped && differs(x.etag, md5))
        set_own(&x, S3_OWN_BAD_DIGEST, "the bytes are not those of the ETag");
    fill_stat(&x, x.content_length, &res->stat);
}

/* As in client_v4.c: the body of a GET says what a HEAD cannot. */
static void ask_by_get(struct client_v2 *c, const struct cairn_op *op, const struct target *t,
                       struct s3_result *res)
{
    uint8_t byte;
    struct http_sink sink = {.dst = &byte, .cap = 1};
    struct exchange x = {.outcome = &res->outcome, .sink = &sink};
    struct target one = *t;
    one.len = 1;
    exchange(c, op, CALL_GET, &one, &x, NULL);
    if (is_ok(&x) || (!res->outcome.local && strcmp(res->outcome.fault.code, "InvalidRange") == 0))
        set_own(&x, S3_OWN_BAD_ANSWER, "GET says it is there, HEAD says it is not");
}

static void v2_head(struct client_v2 *c, const struct cairn_op *op, const struct s3_creds *creds,
                    const struct s3_request *req, struct s3_result *res)
{
    struct target t = make_target(c, creds, req->key);
    struct exchange x = {.outcome = &res->outcome};
    exchange(c, op, CALL_HEAD, &t, &x, NULL);
    int http = res->outcome.http;
    if (!x.stopped && !res->outcome.fault.code[0] && http >= 400 && http < 500) {
        ask_by_get(c, op, &t, res);
        return;
    }
    if (!is_ok(&x))
        return;
    if (!x.has_head || x.last_modified < 0)
        set_own(&x, S3_OWN_BAD_ANSWER, "no Last-Modified");
    fill_stat(&x, x.content_length, &res->stat);
}

static void v2_put(struct client_v2 *c, const struct cairn_op *op, const struct s3_creds *creds,
                   const struct s3_request *req, struct s3_result *res)
{
    char md5[MD5_BASE64];
    struct target t = make_target(c, creds, req->key);
    struct exchange x = {.outcome = &res->outcome, .body = req->body};
    md5_base64(req->md5, md5);
    exchange(c, op, CALL_PUT, &t, &x, md5);
    if (!is_ok(&x))
        return;
    if (x.sent != req->body->len)
        set_own(&x, S3_OWN_SHORT_BODY, "an answer before all was sent");
    else if (differs(x.etag, req->md5))
        set_own(&x, "BadDigest", "the ETag is not that of what was sent");
    fill_stat(&x, req->body->len, &res->stat);
}

static void v2_delete(struct client_v2 *c, const struct cairn_op *op, const struct s3_creds *creds,
                      const struct s3_request *req, struct s3_result *res)
{
    struct target t = make_target(c, creds, req->key);
    struct exchange x = {.outcome = &res->outcome};
    exchange(c, op, CALL_DELETE, &t, &x, NULL);
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
    struct exchange x = {.outcome = &res->outcome, .sink = &sink};
    struct s3_fault said;
    struct cairn_error err;
    s3_page_release(req->page);
    int rc = list_host(c, req, &host, &err);
    if (!rc)
        rc = buf_addf(&path, &err, "%s/%c", c->bucket, 0);
    if (rc) {
        set_local(&x, rc, err.sys_errno, err.message);
        return;
    }
    struct target t = make_target(c, creds, (char *)path.data);
    t.bucket.hostName = (char *)host.data;
    t.bucket.bucketName = NULL;
    t.bucket.uriStyle = S3UriStylePath;
    exchange(c, op, CALL_GET, &t, &x, NULL);
    if (!is_ok(&x))
        return;
    if (s3_fault_parse(answer.data, answer.len, &said)) {
        set_own(&x, said.code[0] ? said.code : "InternalError", said.message);
        return;
    }
    rc = xml_list_parse(answer.data, answer.len, req->page, &err);
    if (rc == CAIRN_TRANSIENT)
        set_own(&x, S3_OWN_BAD_XML, err.message);
    else if (rc)
        set_local(&x, rc, err.sys_errno, err.message);
}

static void v2_attempt(struct s3_client *base, const struct cairn_op *op,
                       const struct s3_creds *creds, const struct s3_request *req,
                       struct s3_result *res)
{
    struct client_v2 *c = (struct client_v2 *)base;
    struct exchange refusal = {.outcome = &res->outcome};
    if (creds->token) {
        set_local(&refusal, CAIRN_PERMANENT, EACCES,
                  "signature v2: temporary credentials (with a session token) cannot be used");
        return;
    }
    if (req->verb != S3_LIST && (strchr(req->key, ' ') || s3_key_has_dots(req->key))) {
        set_local(&refusal, CAIRN_INVALID, EINVAL,
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
        set_local(&refusal, CAIRN_INTERNAL, 0, "signature v2: one key at a time");
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
    rc = start_libs3(err);
    if (rc)
        return rc;
    struct client_v2 *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "S3 client");
    c->base.ops = &v2_ops;
    pthread_mutex_init(&c->lock, NULL);
    c->virtual_host = !config->force_path_style && s3_place_fits_virtual(&place, config->bucket);
    c->stall_ns = config->stall_ns > 0 ? config->stall_ns : HTTP_STALL_NS;
    c->answer_ns = config->answer_ns > 0 ? config->answer_ns : HTTP_ANSWER_NS;
    c->keep = config->max_requests ? config->max_requests : S3_MAX_REQUESTS;
    c->bucket = strdup(config->bucket);
    c->authority = strdup(place.authority);
    if (!c->bucket || !c->authority) {
        v2_free(&c->base);
        return error_oom(err, "S3 client");
    }
    *out = &c->base;
    return CAIRN_OK;
}
