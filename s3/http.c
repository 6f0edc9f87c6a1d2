#include "s3/http.h"

#include "base/clock.h"
#include "base/util.h"
#include "s3/shared_lib.h"
#include "s3/stamp.h"

#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* libcurl, as loaded. */
#define CURL_CALLS(X)                                                                              \
    X(easy_cleanup);                                                                               \
    X(easy_getinfo);                                                                               \
    X(easy_init);                                                                                  \
    X(easy_reset);                                                                                 \
    X(easy_setopt);                                                                                \
    X(global_init);                                                                                \
    X(multi_add_handle);                                                                           \
    X(multi_cleanup);                                                                              \
    X(multi_info_read);                                                                            \
    X(multi_init);                                                                                 \
    X(multi_perform);                                                                              \
    X(multi_poll);                                                                                 \
    X(multi_remove_handle);                                                                        \
    X(multi_setopt);                                                                               \
    X(slist_append);                                                                               \
    X(slist_free_all)

static struct {
#define FIELD(name) __typeof__(&curl_##name) name
    CURL_CALLS(FIELD);
} curl;

struct slot {
    CURLM *multi; /* owns the connections */
    CURL *easy;
    struct slot *next;
};

struct http_pool {
    struct http_config config;
    char *ca_file;
    pthread_mutex_t lock; /* guards idle and n_idle */
    struct slot *idle;
    unsigned n_idle;
};

/* Once, by whoever needs it first; the others wait. What fails for want of descriptors or memory
 * works the next time. */
static pthread_mutex_t curl_lock = PTHREAD_MUTEX_INITIALIZER;
static bool curl_ready; /* guarded by curl_lock, as curl is until then */

static int load_curl(struct cairn_error *err)
{
    struct shared_lib lib = shared_lib_open("libcurl.so.4", err);
#define FIND(name) shared_lib_find(&lib, "curl_" #name, &curl.name)
    CURL_CALLS(FIND);
    if (!lib.rc && curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(err, CAIRN_INTERNAL, 0, "libcurl does not start");
    return lib.rc;
}

static int start_curl(struct cairn_error *err)
{
    pthread_mutex_lock(&curl_lock);
    int rc = curl_ready ? CAIRN_OK : load_curl(err);
    curl_ready = rc == CAIRN_OK;
    pthread_mutex_unlock(&curl_lock);
    return rc;
}

int http_pool_new(const struct http_config *config, struct http_pool **out, struct cairn_error *err)
{
    int rc = start_curl(err);
    if (rc)
        return rc;
    struct http_pool *p = calloc(1, sizeof(*p));
    if (!p)
        return error_oom(err, "HTTP connections");
    p->config = *config;
    if (config->ca_file && !(p->ca_file = strdup(config->ca_file))) {
        free(p);
        return error_oom(err, "HTTP connections");
    }
    if (p->config.connect_ns <= 0)
        p->config.connect_ns = HTTP_CONNECT_NS;
    if (p->config.stall_ns <= 0)
        p->config.stall_ns = HTTP_STALL_NS;
    if (p->config.answer_ns <= 0)
        p->config.answer_ns = HTTP_ANSWER_NS;
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return CAIRN_OK;
}

static void slot_free(struct slot *s)
{
    if (!s)
        return;
    /* The easy handle first: the multi handle then closes the connections. */
    curl.easy_cleanup(s->easy);
    curl.multi_cleanup(s->multi);
    free(s);
}

void http_pool_free(struct http_pool *p)
{
    if (!p)
        return;
    while (p->idle) {
        struct slot *s = p->idle;
        p->idle = s->next;
        slot_free(s);
    }
    pthread_mutex_destroy(&p->lock);
    free(p->ca_file);
    free(p);
}

static struct slot *slot_new(void)
{
    struct slot *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->multi = curl.multi_init();
    s->easy = curl.easy_init();
    if (!s->multi || !s->easy) {
        if (s->easy)
            curl.easy_cleanup(s->easy);
        if (s->multi)
            curl.multi_cleanup(s->multi);
        free(s);
        return NULL;
    }
    curl.multi_setopt(s->multi, CURLMOPT_MAXCONNECTS, 2L);
    return s;
}

/* The one used last comes first: its connection is the most likely to be alive. */
static struct slot *take_slot(struct http_pool *p)
{
    pthread_mutex_lock(&p->lock);
    struct slot *s = p->idle;
    if (s) {
        p->idle = s->next;
        p->n_idle--;
    }
    pthread_mutex_unlock(&p->lock);
    return s ? s : slot_new();
}

static void give_slot(struct http_pool *p, struct slot *s)
{
    curl.easy_reset(s->easy);
    pthread_mutex_lock(&p->lock);
    bool keep = p->n_idle < (p->config.keep ? p->config.keep : 16);
    if (keep) {
        s->next = p->idle;
        p->idle = s;
        p->n_idle++;
    }
    pthread_mutex_unlock(&p->lock);
    if (!keep)
        slot_free(s);
}

struct exchange {
    const struct http_request *req;
    const struct cairn_op *op;
    struct http_response *res;
    int64_t last_ns; /* when a byte last moved */
    uint64_t sent;
    bool head_seen; /* check was called */
    bool stopped;   /* by us: the outcome is complete */
};

static void clear_head(struct http_response *res)
{
    struct buf report = res->report;
    *res = (struct http_response){
        .last_modified = INT64_MIN, .date = INT64_MIN, .range_total = UINT64_MAX};
    res->report = report;
}

static bool parse_number(const char **p, uint64_t *out)
{
    uint64_t v = 0;
    const char *start = *p;
    for (; **p >= '0' && **p <= '9'; (*p)++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(**p - '0'), &v))
            return false;
    *out = v;
    return *p != start;
}

/* "bytes 0-9/443", "bytes 0-9/" followed by '*', or for a 416 '*' in place of the range. */
static void parse_content_range(const char *text, struct http_response *res)
{
    uint64_t from = 0, to = 0, total = UINT64_MAX;
    if (strncasecmp(text, "bytes ", 6) != 0)
        return;
    text += 6;
    bool star = *text == '*';
    if (star)
        text++;
    else if (!parse_number(&text, &from) || *text++ != '-' || !parse_number(&text, &to))
        return;
    if (*text++ != '/' || (*text != '*' && !parse_number(&text, &total)))
        return;
    res->has_range = !star;
    res->range_from = from;
    res->range_to = to;
    res->range_total = total;
}

static void copy_value(char *out, size_t size, const char *text, bool unquote)
{
    size_t n = strlen(text);
    if (unquote && n >= 2 && text[0] == '"' && text[n - 1] == '"') {
        text++;
        n -= 2;
    }
    if (n >= size)
        n = size - 1;
    memcpy(out, text, n);
    out[n] = 0;
}

static void take_header(struct http_response *res, const char *name, const char *value)
{
    const char *p = value;
    uint64_t v;
    int64_t seconds;
    if (strcasecmp(name, "Content-Length") == 0) {
        res->has_length = parse_number(&p, &res->length) && !*p;
    } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        res->chunked = strcasecmp(value, "chunked") == 0;
    } else if (strcasecmp(name, "Content-Range") == 0) {
        parse_content_range(value, res);
    } else if (strcasecmp(name, "ETag") == 0) {
        copy_value(res->etag, sizeof(res->etag), value, true);
    } else if (strcasecmp(name, "Last-Modified") == 0) {
        if (stamp_parse_http(value, &seconds))
            res->last_modified = seconds;
    } else if (strcasecmp(name, "Date") == 0) {
        if (stamp_parse_http(value, &seconds))
            res->date = seconds;
    } else if (strcasecmp(name, "Location") == 0) {
        copy_value(res->location, sizeof(res->location), value, false);
    } else if (strcasecmp(name, "x-amz-bucket-region") == 0) {
        copy_value(res->region, sizeof(res->region), value, false);
    } else if (strcasecmp(name, "Retry-After") == 0) {
        if (parse_number(&p, &v) && !*p)
            res->outcome.retry_after_ns = v > 3600 ? 3600 * NS_PER_S : (int64_t)v * NS_PER_S;
        else if (stamp_parse_http(value, &seconds) && res->date != INT64_MIN && seconds > res->date)
            res->outcome.retry_after_ns =
                seconds - res->date > 3600 ? 3600 * NS_PER_S : (seconds - res->date) * NS_PER_S;
    }
}

static size_t on_header(char *data, size_t size, size_t n, void *user)
{
    struct exchange *x = user;
    size_t len = size * n;
    char line[2048];
    x->last_ns = clock_monotonic();
    if (len >= sizeof(line))
        return len; /* none that we look at is as long */
    memcpy(line, data, len);
    while (len && (line[len - 1] == '\r' || line[len - 1] == '\n' || line[len - 1] == ' '))
        len--;
    line[len] = 0;
    if (strncmp(line, "HTTP/", 5) == 0) {
        clear_head(
            x->res); /* the head of the next answer: a 100 Continue came before, or a proxy */
        return size * n;
    }
    char *colon = strchr(line, ':');
    if (colon) {
        *colon++ = 0;
        colon += strspn(colon, " \t");
        take_header(x->res, line, colon);
    }
    return size * n;
}

/* Once, as soon as the head of the final answer is known. False: stop here. */
static bool look_at_head(struct exchange *x, CURL *easy)
{
    long status = 0;
    if (x->head_seen)
        return !x->stopped;
    x->head_seen = true;
    curl.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    x->res->outcome.http = (int)status;
    if (status >= 200 && status <= 299 && x->req->check && !x->req->check(x->req->ctx, x->res))
        x->stopped = true;
    return !x->stopped;
}

/* Where much arrives at once libcurl does not come back for long. */
static bool is_over(struct exchange *x)
{
    struct cairn_error err;
    if (!op_check(x->op, "request", &err))
        return false;
    s3_outcome_local(&x->res->outcome, err.error_class, err.sys_errno,
                     err.error_class == CAIRN_TIMEOUT ? "deadline passed" : "cancelled");
    x->stopped = true;
    return true;
}

static bool to_sink(struct exchange *x, const void *data, size_t len)
{
    struct http_sink *s = x->req->sink;
    struct cairn_error err;
    if (!s)
        return true;
    if (s->take) {
        if (len > s->cap - s->taken) {
            s3_outcome_own(&x->res->outcome, S3_OWN_LONG_BODY, "more bytes than were asked for");
            return false;
        }
        int rc = s->take(s->take_ctx, data, len, &err);
        x->last_ns = clock_monotonic();
        if (rc) {
            s->refused = true;
            s3_outcome_local(&x->res->outcome, rc, err.sys_errno, err.message);
            return false;
        }
        s->taken += len;
    } else if (s->dst) {
        if (len > s->cap - s->got) {
            s3_outcome_own(&x->res->outcome, S3_OWN_LONG_BODY, "more bytes than were asked for");
            return false;
        }
        memcpy((char *)s->dst + s->got, data, len);
    } else if (s->buf) {
        if (len > s->max - s->got) {
            s3_outcome_own(&x->res->outcome, S3_OWN_LONG_BODY, "more bytes than can be right");
            return false;
        }
        int rc = buf_add(s->buf, data, len, &err);
        if (rc) {
            s3_outcome_local(&x->res->outcome, rc, err.sys_errno, err.message);
            return false;
        }
    }
    s->got += len;
    return true;
}

struct transfer {
    struct exchange *x;
    CURL *easy;
};

static size_t on_body(char *data, size_t size, size_t n, void *user)
{
    struct transfer *t = user;
    struct exchange *x = t->x;
    size_t len = size * n;
    x->last_ns = clock_monotonic();
    if (!look_at_head(x, t->easy) || is_over(x))
        return 0;
    int status = x->res->outcome.http;
    if (status >= 200 && status <= 299) {
        if (!to_sink(x, data, len)) {
            x->stopped = true;
            return 0;
        }
        return len;
    }
    struct buf *r = &x->res->report;
    size_t room = HTTP_REPORT_MAX - r->len;
    struct cairn_error err;
    if (buf_add(r, data, len < room ? len : room, &err))
        return 0;
    return len;
}

static size_t on_read(char *out, size_t size, size_t n, void *user)
{
    struct exchange *x = user;
    const struct http_body *b = x->req->body;
    size_t room = size * n;
    x->last_ns = clock_monotonic();
    if (room > b->len - x->sent)
        room = (size_t)(b->len - x->sent);
    if (!room)
        return 0;
    if (b->data) {
        memcpy(out, (const char *)b->data + b->off + x->sent, room);
    } else {
        ssize_t got = util_pread_full(b->fd, out, room, b->off + x->sent);
        if (got != (ssize_t)room) {
            int e = got < 0 ? errno : EIO;
            s3_outcome_local(&x->res->outcome, got < 0 ? errno_class(e) : CAIRN_INTERNAL, e,
                             got < 0 ? "the file to send cannot be read"
                                     : "the file to send is shorter");
            x->stopped = true;
            return CURL_READFUNC_ABORT;
        }
    }
    x->sent += room;
    return room;
}

static int on_seek(void *user, curl_off_t off, int origin)
{
    struct exchange *x = user;
    if (origin != SEEK_SET || off < 0 || (uint64_t)off > x->req->body->len)
        return CURL_SEEKFUNC_FAIL;
    x->sent = (uint64_t)off;
    return CURL_SEEKFUNC_OK;
}

static CURLcode set_body(CURL *e, struct exchange *x)
{
    const struct http_request *req = x->req;
    CURLcode rc = CURLE_OK;
    if (!req->body) {
        if (strcmp(req->method, "HEAD") == 0)
            return curl.easy_setopt(e, CURLOPT_NOBODY, 1L);
        return curl.easy_setopt(e, CURLOPT_CUSTOMREQUEST, req->method);
    }
    rc = curl.easy_setopt(e, CURLOPT_UPLOAD, 1L);
    if (!rc)
        rc = curl.easy_setopt(e, CURLOPT_CUSTOMREQUEST, req->method);
    if (!rc)
        rc = curl.easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)req->body->len);
    if (!rc)
        rc = curl.easy_setopt(e, CURLOPT_READFUNCTION, on_read);
    if (!rc)
        rc = curl.easy_setopt(e, CURLOPT_READDATA, x);
    if (!rc)
        rc = curl.easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
    return rc ? rc : curl.easy_setopt(e, CURLOPT_SEEKDATA, x);
}

#define SET(option, value)                                                                         \
    if ((rc = curl.easy_setopt(e, option, value)) != CURLE_OK)                                     \
    return rc

static CURLcode set_up(struct http_pool *p, struct transfer *t, struct curl_slist *headers,
                       char *text)
{
    CURL *e = t->easy;
    CURLcode rc;
    long connect_ms = (long)(p->config.connect_ns / 1000000);
    SET(CURLOPT_URL, t->x->req->url);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_NOPROGRESS, 1L);
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_CONNECTTIMEOUT_MS, connect_ms > 0 ? connect_ms : 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    /* A resolver that hangs must not hold the caller beyond its deadline. */
    SET(CURLOPT_QUICK_EXIT, 1L);
    /* Refused (libcurl 7.88) after a failed look-up, whose buffer is still there: no harm. */
    (void)curl.easy_setopt(e, CURLOPT_BUFFERSIZE, 256L * 1024);
    (void)curl.easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, 256L * 1024);
    SET(CURLOPT_ERRORBUFFER, text);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, t->x);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_HTTPHEADER, headers);
    if (p->ca_file)
        SET(CURLOPT_CAINFO, p->ca_file);
    if (p->config.direct)
        SET(CURLOPT_PROXY, "");
    return set_body(e, t->x);
}

static int to_ms(int64_t ns)
{
    int64_t ms = ns <= 0 ? 0 : (ns + 999999) / 1000000;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* Until the transfer is done, the op ends or nothing moves. */
static CURLcode run(struct http_pool *p, struct slot *s, const struct cairn_op *op,
                    struct exchange *x, char *text)
{
    struct curl_waitfd cancel = {.events = CURL_WAIT_POLLIN};
    bool has_cancel = op && op->cancel;
    if (has_cancel)
        cancel.fd = cairn_cancel_fd(op->cancel);
    for (;;) {
        int running = 0, left = 0;
        if (curl.multi_perform(s->multi, &running) != CURLM_OK)
            return CURLE_FAILED_INIT;
        CURLMsg *m = curl.multi_info_read(s->multi, &left);
        if (m && m->msg == CURLMSG_DONE)
            return m->data.result;
        if (is_over(x))
            return CURLE_OK;
        /* A small answer-to-be is not worth more patience than any other silence. */
        bool all_sent =
            x->req->body && x->req->body->len > 1024 * 1024 && x->sent == x->req->body->len;
        int64_t patience = all_sent ? p->config.answer_ns : p->config.stall_ns;
        int64_t rest = clock_add(x->last_ns, patience) - clock_monotonic();
        if (rest <= 0) {
            snprintf(text, CURL_ERROR_SIZE, "no byte for %.1f s",
                     (double)patience / (double)NS_PER_S);
            return CURLE_OPERATION_TIMEDOUT;
        }
        int wait = to_ms(rest), bound = op_poll_ms(op);
        if (bound >= 0 && bound < wait)
            wait = bound;
        curl.multi_poll(s->multi, has_cancel ? &cancel : NULL, has_cancel ? 1 : 0, wait, NULL);
    }
}

static void conclude(struct exchange *x, CURL *easy, CURLcode rc, const char *text)
{
    struct s3_outcome *o = &x->res->outcome;
    if (x->stopped)
        return; /* the outcome says why */
    if (rc != CURLE_OK) {
        o->curl = (int)rc;
        size_t n = strcspn(text, "\r\n");
        snprintf(o->fault.message, sizeof(o->fault.message), "%.*s", (int)n, text);
        return;
    }
    /* An answer without a body has not been looked at yet. */
    (void)look_at_head(x, easy);
}

void http_exchange(struct http_pool *p, const struct cairn_op *op, const struct http_request *req,
                   struct http_response *res)
{
    *res = (struct http_response){.report = BUF_INIT(HTTP_REPORT_MAX)};
    clear_head(res);
    if (req->sink) {
        req->sink->got = 0;
        if (req->sink->buf)
            req->sink->buf->len = req->sink->buf_start;
    }
    struct exchange x = {.req = req, .op = op, .res = res, .last_ns = clock_monotonic()};
    char text[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    struct slot *s = take_slot(p);
    bool ok = s != NULL;
    for (size_t i = 0; ok && i < req->n_headers; i++) {
        struct curl_slist *more = curl.slist_append(headers, req->headers[i]);
        ok = more != NULL;
        if (more)
            headers = more;
    }
    struct transfer t = {.x = &x, .easy = s ? s->easy : NULL};
    if (!ok) {
        s3_outcome_local(&res->outcome, CAIRN_INTERNAL, ENOMEM, "out of memory");
    } else {
        CURLcode rc = set_up(p, &t, headers, text);
        if (rc == CURLE_OK && curl.multi_add_handle(s->multi, s->easy) == CURLM_OK) {
            rc = run(p, s, op, &x, text);
            conclude(&x, s->easy, rc, text);
            curl.multi_remove_handle(s->multi, s->easy);
        } else {
            conclude(&x, s->easy, rc ? rc : CURLE_FAILED_INIT, text);
        }
    }
    if (s)
        give_slot(p, s);
    curl.slist_free_all(headers);
}
