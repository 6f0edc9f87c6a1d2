/* What libs3 2.0 does by itself on the way, and what is done about it here (all seen in its source
 * and tested):
 *  - a body that is cut counts as success (CURLE_PARTIAL_FILE): bytes are counted here, and the
 *    client compares;
 *  - gmtime(): requests are composed under one lock;
 *  - libxml2, with which it reads errors, must be started by one thread before others use it, which
 *    libs3 leaves to chance: it is started here;
 *  - blocking calls cannot be stopped: every request runs in a context that is polled here, within
 *    the op;
 *  - unknown error codes lose their name and HTTP status: transient, so that no throttling is ever
 *    taken as final. */
#include "s3/http_v2.h"

#include "base/clock.h"
#include "base/util.h"
#include "s3/shared_lib.h"

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

struct http_v2 {
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

int http_v2_new(const struct s3_config *config, struct http_v2 **out, struct cairn_error *err)
{
    int rc = start_libs3(err);
    if (rc)
        return rc;
    struct http_v2 *h = calloc(1, sizeof(*h));
    if (!h)
        return error_oom(err, "S3 client");
    pthread_mutex_init(&h->lock, NULL);
    h->stall_ns = config->stall_ns > 0 ? config->stall_ns : HTTP_STALL_NS;
    h->answer_ns = config->answer_ns > 0 ? config->answer_ns : HTTP_ANSWER_NS;
    h->keep = config->max_requests ? config->max_requests : S3_MAX_REQUESTS;
    *out = h;
    return CAIRN_OK;
}

void http_v2_free(struct http_v2 *h)
{
    if (!h)
        return;
    while (h->idle) {
        struct context *x = h->idle;
        h->idle = x->next;
        context_free(x);
    }
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static struct context *take_context(struct http_v2 *h)
{
    pthread_mutex_lock(&h->lock);
    struct context *x = h->idle;
    if (x) {
        h->idle = x->next;
        h->n_idle--;
    }
    pthread_mutex_unlock(&h->lock);
    if (x)
        return x;
    x = calloc(1, sizeof(*x));
    if (x && libs3.create_request_context(&x->ctx) != S3StatusOK)
        free(util_steal(&x));
    return x;
}

static void give_context(struct http_v2 *h, struct context *x)
{
    pthread_mutex_lock(&h->lock);
    bool keep = h->n_idle < h->keep;
    if (keep) {
        x->next = h->idle;
        h->idle = x;
        h->n_idle++;
    }
    pthread_mutex_unlock(&h->lock);
    if (!keep)
        context_free(x);
}

/* ---- One exchange ---------------------------------------------------------------------------- */

void http_v2_refuse(struct http_v2_exchange *x, const char *code, const char *text)
{
    *x->outcome = (struct s3_outcome){0};
    s3_outcome_own(x->outcome, code, text);
    x->stopped = true;
}

void http_v2_refuse_local(struct http_v2_exchange *x, int rc, int sys_errno, const char *text)
{
    *x->outcome = (struct s3_outcome){0};
    s3_outcome_local(x->outcome, rc, sys_errno, text);
    x->stopped = true;
}

static S3Status on_properties(const S3ResponseProperties *p, void *user)
{
    struct http_v2_exchange *x = user;
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
        http_v2_refuse(x, S3_OWN_RANGE_IGNORED, "another length than was asked for");
        return S3StatusAbortedByCallback;
    }
    if (x->hash && x->content_length > x->sink->max) {
        http_v2_refuse_local(x, CAIRN_CORRUPT, EFBIG, "more bytes than it can be");
        return S3StatusAbortedByCallback;
    }
    return S3StatusOK;
}

static S3Status on_data(int len, const char *data, void *user)
{
    struct http_v2_exchange *x = user;
    struct http_sink *s = x->sink;
    size_t n = (size_t)len, room = s->take ? s->cap - s->taken + s->got : s->dst ? s->cap : s->max;
    struct cairn_error err;
    x->last_ns = clock_monotonic();
    if (n > room - s->got) {
        if (x->hash)
            http_v2_refuse_local(x, CAIRN_CORRUPT, EFBIG, "more bytes than it can be");
        else
            http_v2_refuse(x, S3_OWN_LONG_BODY, "more bytes than were asked for");
        return S3StatusAbortedByCallback;
    }
    if (s->dst) {
        memcpy((char *)s->dst + s->got, data, n);
    } else {
        int rc = s->take ? s->take(s->take_ctx, data, n, &err) : buf_add(s->buf, data, n, &err);
        x->last_ns = clock_monotonic();
        s->taken += rc || !s->take ? 0 : n;
        s->refused = rc && s->take;
        if (rc) {
            http_v2_refuse_local(x, rc, err.sys_errno, err.message);
            return S3StatusAbortedByCallback;
        }
    }
    if (x->hash)
        md5_update(&x->hashed, data, n);
    s->got += n;
    return S3StatusOK;
}

static int on_put(int room, char *out, void *user)
{
    struct http_v2_exchange *x = user;
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
            http_v2_refuse_local(x, got < 0 ? errno_class(e) : CAIRN_INTERNAL, e,
                                 got < 0 ? "the file to send cannot be read"
                                         : "the file to send is shorter");
            return -1;
        }
    }
    x->sent += n;
    return (int)n;
}

/* What libs3 says, in the terms of the one table. */
static void translate(struct http_v2_exchange *x, S3Status status, const char *message)
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
        http_v2_refuse_local(x, CAIRN_INTERNAL, ENOMEM, "out of memory");
        return;
    case S3StatusUriTooLong:
    case S3StatusKeyTooLong:
        http_v2_refuse_local(x, CAIRN_INVALID, ENAMETOOLONG, name);
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
        http_v2_refuse_local(x, CAIRN_INVALID, EINVAL,
                             name); /* a parameter that libs3 does not take */
        return;
    }
    /* Every code of libs3 that the table does not name is one of S3's 4xx. */
    o->http = 400;
    snprintf(o->fault.code, sizeof(o->fault.code), "%s", name + 5);
}

static void on_complete(S3Status status, const S3ErrorDetails *details, void *user)
{
    struct http_v2_exchange *x = user;
    x->done = true;
    x->ok = status == S3StatusOK;
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

static void drive(struct http_v2 *h, const struct cairn_op *op, S3RequestContext *ctx,
                  struct http_v2_exchange *x)
{
    while (!x->done) {
        int remaining = 0;
        struct cairn_error err;
        if (libs3.runonce_request_context(ctx, &remaining) != S3StatusOK) {
            http_v2_refuse(x, "InternalError", "libs3 cannot go on");
            return;
        }
        if (x->done)
            return;
        if (op_check(op, "request", &err)) {
            http_v2_refuse_local(x, err.error_class, err.sys_errno,
                                 err.error_class == CAIRN_TIMEOUT ? "deadline passed"
                                                                  : "cancelled");
            return;
        }
        bool all_sent = x->body && x->body->len > 1024 * 1024 && x->sent == x->body->len;
        int64_t patience = all_sent ? h->answer_ns : h->stall_ns;
        int64_t rest = clock_add(x->last_ns, patience) - clock_monotonic();
        if (rest <= 0) {
            char text[64];
            snprintf(text, sizeof(text), "no byte for %.1f s", (double)patience / (double)NS_PER_S);
            http_v2_refuse(x, "ConnectionFailed", text);
            return;
        }
        int64_t ms = (rest + 999999) / 1000000;
        int bound = op_poll_ms(op);
        if (bound >= 0 && bound < ms)
            ms = bound;
        wait_io(ctx, op, ms > 1000 ? 1000 : (int)ms);
    }
}

static void start(enum http_v2_verb verb, const struct http_v2_target *t, S3RequestContext *ctx,
                  struct http_v2_exchange *x)
{
    const S3BucketContext bucket = {.hostName = t->host,
                                    .bucketName = t->bucket,
                                    .protocol = S3ProtocolHTTP,
                                    .uriStyle =
                                        t->virtual_host ? S3UriStyleVirtualHost : S3UriStylePath,
                                    .accessKeyId = t->creds->access_key,
                                    .secretAccessKey = t->creds->secret};
    const S3ResponseHandler answer = {on_properties, on_complete};
    const S3GetObjectHandler get = {answer, on_data};
    const S3PutObjectHandler put = {answer, on_put};
    const S3PutProperties props = {.md5 = x->md5, .expires = -1};
    pthread_mutex_lock(&libs3_lock);
    switch (verb) {
    case HTTP_V2_GET:
        libs3.get_object(&bucket, t->key, NULL, t->off, t->len, ctx, &get, x);
        break;
    case HTTP_V2_HEAD:
        libs3.head_object(&bucket, t->key, ctx, &answer, x);
        break;
    case HTTP_V2_PUT:
        libs3.put_object(&bucket, t->key, x->body->len, &props, ctx, &put, x);
        break;
    case HTTP_V2_DELETE:
        libs3.delete_object(&bucket, t->key, ctx, &answer, x);
        break;
    }
    pthread_mutex_unlock(&libs3_lock);
}

void http_v2_run(struct http_v2 *h, const struct cairn_op *op, enum http_v2_verb verb,
                 const struct http_v2_target *t, struct http_v2_exchange *x)
{
    x->last_ns = clock_monotonic();
    md5_init(&x->hashed);
    if (x->sink) {
        x->sink->got = 0;
        if (x->sink->buf)
            x->sink->buf->len = x->sink->buf_start;
    }
    struct context *k = take_context(h);
    if (!k) {
        http_v2_refuse_local(x, CAIRN_INTERNAL, ENOMEM, "out of memory");
        return;
    }
    start(verb, t, k->ctx, x);
    drive(h, op, k->ctx, x);
    /* A request that is stopped goes with its connection; libs3 then calls on_complete. */
    if (x->done)
        give_context(h, k);
    else
        context_free(k);
}

bool http_v2_succeeded(const struct http_v2_exchange *x)
{
    return !x->stopped && x->ok;
}
