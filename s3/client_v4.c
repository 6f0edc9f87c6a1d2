/* The client for Signature V4: requests built and signed here, carried by http.c. */
#include "s3/client.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "s3/sigv4.h"
#include "s3/stamp.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define URL_MAX    ((size_t)32 * 1024)
#define ANSWER_MAX ((size_t)64 * 1024)
#define REQUEST_MAX                                                                                \
    ((size_t)16 * 1024 * 1024) /* DeleteObjects: 1,000 keys of 1,024 bytes, escaped */
#define SKEW_SANE_S   ((int64_t)400 * 86400)
#define SKEW_WORTH_S  10 /* less than this is not why a request was refused */
#define N_HEADERS_MAX 10

/* Where requests go and how they are dated: learnt from answers, the same for all callers. */
struct target {
    struct s3_place place;
    char region[S3_REGION_MAX];
    int64_t skew_s; /* the server's clock minus ours */
    unsigned epoch; /* changes with the above */
};

struct client_v4 {
    struct s3_client base;
    struct http_pool *pool;
    char *bucket;
    struct s3_place home; /* as configured */
    bool path_style, custom_endpoint;
    pthread_mutex_t lock; /* guards target */
    struct target target;
};

static void v4_free(struct s3_client *base)
{
    struct client_v4 *c = (struct client_v4 *)base;
    http_pool_free(c->pool);
    pthread_mutex_destroy(&c->lock);
    free(c->bucket);
    free(c);
}

static struct target snapshot(struct client_v4 *c)
{
    pthread_mutex_lock(&c->lock);
    struct target t = c->target;
    pthread_mutex_unlock(&c->lock);
    return t;
}

/* ---- One exchange ---------------------------------------------------------------------------- */

/* What is to be sent, before it is signed. */
struct draft {
    const char *method;
    const char *key; /* NULL: the bucket itself */
    struct sigv4_param params[8];
    size_t n_params;
    char range[64]; /* "" none */
    char md5[MD5_BASE64];
    const struct http_body *body;
    const uint8_t *sha256; /* of the body; NULL: there is none */
    bool if_absent;
    struct http_sink *sink;
    bool (*check)(void *ctx, struct http_response *res);
    void *ctx;
};

struct header_list {
    struct sigv4_header h[N_HEADERS_MAX];
    size_t n;
};

static void add_header(struct header_list *l, const char *name, const char *value)
{
    if (value && *value)
        l->h[l->n++] = (struct sigv4_header){name, value};
}

static void set_error(struct s3_outcome *o, const struct cairn_error *err)
{
    *o = (struct s3_outcome){0};
    s3_outcome_local(o, err->error_class, err->sys_errno, err->message);
}

/* Path and query as they are signed and sent, and the whole URL. */
static int make_url(const struct client_v4 *c, const struct target *t, const struct draft *d,
                    struct buf *path, struct buf *query, struct buf *url, struct cairn_error *err)
{
    int rc = buf_add(path, "/", 1, err);
    if (!rc && !t->place.virtual_host)
        rc = buf_addf(path, err, "%s/", c->bucket);
    if (!rc && d->key)
        rc = sigv4_encode(d->key, strlen(d->key), true, path, err);
    if (!rc)
        rc = buf_add(path, "", 1, err);
    if (!rc)
        rc = sigv4_query(d->params, d->n_params, query, err);
    if (!rc)
        rc = buf_add(query, "", 1, err);
    return rc ? rc
              : buf_addf(url, err, "%s://%s%s%s%s%s%s%c", t->place.tls ? "https" : "http",
                         t->place.virtual_host ? c->bucket : "", t->place.virtual_host ? "." : "",
                         t->place.authority, (char *)path->data, d->n_params ? "?" : "",
                         (char *)query->data, 0);
}

static int sign(const struct client_v4 *c, const struct target *t, const struct s3_creds *creds,
                const struct draft *d, const char *path, const char *query, struct header_list *l,
                const char *hash, const char *date, struct buf *authorization,
                struct cairn_error *err)
{
    char host[S3_AUTHORITY_MAX + 72];
    snprintf(host, sizeof(host), "%s%s%s", t->place.virtual_host ? c->bucket : "",
             t->place.virtual_host ? "." : "", t->place.authority);
    struct header_list all = *l;
    add_header(&all, "host", host); /* libcurl sends it, made from the same URL */
    struct sigv4_request r = {.method = d->method,
                              .path = path,
                              .query = query,
                              .headers = all.h,
                              .n_headers = all.n,
                              .payload_hash = hash,
                              .region = t->region,
                              .service = "s3",
                              .amz_date = date,
                              .access_key = creds->access_key,
                              .secret = creds->secret};
    int rc = sigv4_authorization(&r, authorization, err);
    return rc ? rc : buf_add(authorization, "", 1, err);
}

/* "Name: value" of each header. */
static int header_lines(const struct header_list *l, struct buf *text, const char **lines,
                        struct cairn_error *err)
{
    size_t starts[N_HEADERS_MAX];
    for (size_t i = 0; i < l->n; i++) {
        starts[i] = text->len;
        int rc = buf_addf(text, err, "%s: %s%c", l->h[i].name, l->h[i].value, 0);
        if (rc)
            return rc;
    }
    for (size_t i = 0; i < l->n; i++)
        lines[i] = (const char *)text->data + starts[i];
    return CAIRN_OK;
}

/* Sign and send. res->report is released by the caller. */
static void exchange(struct client_v4 *c, const struct cairn_op *op, const struct s3_creds *creds,
                     const struct target *t, const struct draft *d, struct http_response *res)
{
    CLEANUP_BUF struct buf path = BUF_INIT(URL_MAX), query = BUF_INIT(URL_MAX);
    CLEANUP_BUF struct buf url = BUF_INIT(URL_MAX), auth = BUF_INIT(URL_MAX);
    CLEANUP_BUF struct buf lines = BUF_INIT(URL_MAX);
    const char *list[N_HEADERS_MAX];
    char date[STAMP_AMZ_TEXT], hash[SIGV4_HASH_TEXT] = SIGV4_EMPTY_HASH;
    struct header_list l = {.n = 0};
    struct cairn_error err;

    if (d->sha256)
        util_hex(d->sha256, SHA256_LEN, hash);
    stamp_amz(clock_realtime() / NS_PER_S + t->skew_s, date);
    add_header(&l, "x-amz-date", date);
    add_header(&l, "x-amz-content-sha256", hash);
    add_header(&l, "x-amz-security-token", creds->token);
    add_header(&l, "range", d->range);
    add_header(&l, "content-md5", d->md5);
    add_header(&l, "if-none-match", d->if_absent ? "*" : NULL);

    int rc = make_url(c, t, d, &path, &query, &url, &err);
    if (!rc)
        rc = sign(c, t, creds, d, (char *)path.data, (char *)query.data, &l, hash, date, &auth,
                  &err);
    if (!rc) {
        add_header(&l, "authorization", (char *)auth.data);
        rc = header_lines(&l, &lines, list, &err);
    }
    if (rc) {
        *res = (struct http_response){.report = BUF_INIT(0)};
        set_error(&res->outcome, &err);
        return;
    }
    struct http_request req = {.method = d->method,
                               .url = (char *)url.data,
                               .headers = list,
                               .n_headers = l.n,
                               .body = d->body,
                               .sink = d->sink,
                               .check = d->check,
                               .ctx = d->ctx};
    http_exchange(c->pool, op, &req, res);
    /* What curl calls a list is "Name: value"; the token and the signature were in it. */
    if (lines.data)
        explicit_bzero(lines.data, lines.cap);
}

static void fill_stat(const struct http_response *h, uint64_t size, struct backend_stat *st)
{
    st->size = size;
    st->mtime_ns = h->last_modified == INT64_MIN ? 0 : h->last_modified * NS_PER_S;
    snprintf(st->etag, sizeof(st->etag), "%s", h->etag);
}

/* The outcome of an exchange becomes that of the attempt; an error's document is read. */
static void take_outcome(struct http_response *h, struct s3_result *res)
{
    struct s3_outcome *o = &h->outcome;
    struct s3_fault said;
    if (!o->local && !o->curl && !o->fault.code[0] && o->http >= 300 &&
        s3_fault_parse(h->report.data, h->report.len, &said))
        o->fault = said;
    if (h->region[0] && !o->fault.region[0])
        snprintf(o->fault.region, sizeof(o->fault.region), "%s", h->region);
    res->outcome = *o;
    res->date = h->date;
    memcpy(res->location, h->location, sizeof(res->location));
    buf_release(&h->report);
}

static bool succeeded(const struct s3_result *res)
{
    return s3_judge(&res->outcome).error_class == CAIRN_OK;
}

/* A 200 may hold an error all the same. True: it does, and the outcome says so now. */
static bool holds_fault(const struct buf *answer, struct s3_result *res)
{
    struct s3_fault said;
    if (!s3_fault_parse(answer->data, answer->len, &said))
        return false;
    if (!said.code[0])
        snprintf(said.code, sizeof(said.code), "InternalError");
    res->outcome.fault = said;
    return true;
}

/* The same in answer to a GET of a whole object, which always comes with an ETag: without one, what
 * reads like an error is none of ours. */
static bool object_is_fault(const struct s3_request *req, const struct http_response *h,
                            struct s3_result *res)
{
    const struct http_sink *s = req->sink;
    if (req->len != S3_WHOLE || h->etag[0])
        return false;
    struct buf answer = {.data = s->buf->data + s->buf_start, .len = (size_t)s->got};
    return s->got && holds_fault(&answer, res);
}

/* ---- The verbs ------------------------------------------------------------------------------- */

static bool check_get(void *ctx, struct http_response *h)
{
    const struct s3_request *req = ctx;
    struct s3_outcome *o = &h->outcome;
    if (req->len == S3_WHOLE) {
        if (!h->has_length && !h->chunked) {
            s3_outcome_own(o, S3_OWN_BAD_ANSWER,
                           "neither Content-Length nor chunked: a cut is not seen");
            return false;
        }
        if (h->has_length && h->length > req->sink->max) {
            struct cairn_error err;
            (void)error_set(&err, CAIRN_CORRUPT, EFBIG, "%llu bytes, more than it can be",
                            (unsigned long long)h->length);
            set_error(o, &err);
            return false;
        }
        return true;
    }
    if (o->http != 206) {
        if (req->off == 0 && h->has_length && h->length == req->len)
            return true;
        s3_outcome_own(o, S3_OWN_RANGE_IGNORED, "the whole object in answer to a Range");
        return false;
    }
    if (!h->has_range || h->range_from != req->off || h->range_to < h->range_from) {
        s3_outcome_own(o, S3_OWN_BAD_ANSWER, "another Content-Range than was asked for");
        return false;
    }
    uint64_t given = h->range_to - h->range_from + 1;
    if (given < req->len && h->range_total != UINT64_MAX && h->range_total == h->range_to + 1) {
        s3_outcome_own(o, S3_OWN_OBJECT_SHORT, "the object ends before");
        return false;
    }
    if (given != req->len || (h->has_length && h->length != given)) {
        s3_outcome_own(o, S3_OWN_BAD_ANSWER, "another length than was asked for");
        return false;
    }
    return true;
}

static void v4_get(struct client_v4 *c, const struct cairn_op *op, const struct s3_creds *creds,
                   const struct target *t, const struct s3_request *req, struct s3_result *res)
{
    struct http_response h;
    struct draft d = {.method = "GET",
                      .key = req->key,
                      .sink = req->sink,
                      .check = check_get,
                      .ctx = (void *)(uintptr_t)req};
    if (req->len != S3_WHOLE)
        snprintf(d.range, sizeof(d.range), "bytes=%llu-%llu", (unsigned long long)req->off,
                 (unsigned long long)(req->off + req->len - 1));
    exchange(c, op, creds, t, &d, &h);
    take_outcome(&h, res);
    /* Without a length nothing could be said at the head. */
    if (req->len == S3_WHOLE && strcmp(res->outcome.fault.code, S3_OWN_LONG_BODY) == 0)
        s3_outcome_local(&res->outcome, CAIRN_CORRUPT, EFBIG, "more bytes than it can be");
    if (!succeeded(res))
        return;
    uint64_t want = req->len != S3_WHOLE ? req->len : h.has_length ? h.length : req->sink->got;
    if (req->sink->got != want)
        s3_outcome_own(&res->outcome, S3_OWN_SHORT_BODY, "fewer bytes than were announced");
    else if (object_is_fault(req, &h, res))
        return;
    fill_stat(&h, req->len == S3_WHOLE ? want : h.range_total, &res->stat);
}

/* The answer to a HEAD has no body, so a refusal does not say why, nor a 404 what is missing: the
 * same question is put as a GET of one byte. */
static void ask_by_get(struct client_v4 *c, const struct cairn_op *op, const struct s3_creds *creds,
                       const struct target *t, const struct s3_request *req, struct s3_result *res)
{
    struct http_response h;
    struct draft d = {.method = "GET", .key = req->key, .range = "bytes=0-0"};
    exchange(c, op, creds, t, &d, &h);
    bool empty = h.outcome.http == 416 && h.range_total == 0;
    take_outcome(&h, res);
    if (succeeded(res)) {
        /* It came into being meanwhile, or the server treats the two differently. */
        uint64_t size = h.has_range ? h.range_total : h.length;
        if ((h.has_range ? size == UINT64_MAX : !h.has_length) || h.last_modified == INT64_MIN)
            s3_outcome_own(&res->outcome, S3_OWN_BAD_ANSWER, "no size or no Last-Modified");
        fill_stat(&h, size, &res->stat);
    } else if (empty) {
        /* An empty object: no range of it can be had, and no Last-Modified comes with that. */
        s3_outcome_own(&res->outcome, S3_OWN_BAD_ANSWER,
                       "GET says it is there, HEAD says it is not");
    }
}

static void v4_head(struct client_v4 *c, const struct cairn_op *op, const struct s3_creds *creds,
                    const struct target *t, const struct s3_request *req, struct s3_result *res)
{
    struct http_response h;
    struct draft d = {.method = "HEAD", .key = req->key};
    exchange(c, op, creds, t, &d, &h);
    take_outcome(&h, res);
    bool moved = h.outcome.http < 400 && (h.region[0] || h.location[0]); /* says enough */
    if (!moved && !res->outcome.local && !res->outcome.curl && h.outcome.http >= 300 &&
        h.outcome.http < 500 && h.outcome.http != 408 && h.outcome.http != 429) {
        ask_by_get(c, op, creds, t, req, res);
        return;
    }
    if (!succeeded(res))
        return;
    if (!h.has_length || h.last_modified == INT64_MIN)
        s3_outcome_own(&res->outcome, S3_OWN_BAD_ANSWER, "no Content-Length or no Last-Modified");
    fill_stat(&h, h.length, &res->stat);
}

static void v4_put(struct client_v4 *c, const struct cairn_op *op, const struct s3_creds *creds,
                   const struct target *t, const struct s3_request *req, struct s3_result *res)
{
    CLEANUP_BUF struct buf answer = BUF_INIT(ANSWER_MAX);
    struct http_sink sink = {.buf = &answer, .max = ANSWER_MAX};
    struct http_response h;
    struct draft d = {.method = "PUT",
                      .key = req->key,
                      .body = req->body,
                      .sha256 = req->sha256,
                      .if_absent = req->if_absent,
                      .sink = &sink};
    exchange(c, op, creds, t, &d, &h);
    take_outcome(&h, res);
    if (succeeded(res) && !holds_fault(&answer, res))
        fill_stat(&h, req->body->len, &res->stat);
}

static void v4_delete(struct client_v4 *c, const struct cairn_op *op, const struct s3_creds *creds,
                      const struct target *t, const struct s3_request *req, struct s3_result *res)
{
    CLEANUP_BUF struct buf answer = BUF_INIT(ANSWER_MAX);
    struct http_sink sink = {.buf = &answer, .max = ANSWER_MAX};
    struct http_response h;
    struct draft d = {.method = "DELETE", .key = req->key, .sink = &sink};
    exchange(c, op, creds, t, &d, &h);
    take_outcome(&h, res);
    if (succeeded(res))
        (void)holds_fault(&answer, res);
}

static void v4_list(struct client_v4 *c, const struct cairn_op *op, const struct s3_creds *creds,
                    const struct target *t, const struct s3_request *req, struct s3_result *res)
{
    CLEANUP_BUF struct buf answer = BUF_INIT(XML_LIST_MAX);
    struct http_sink sink = {.buf = &answer, .max = XML_LIST_MAX};
    struct http_response h;
    struct draft d = {.method = "GET", .sink = &sink};
    char max_keys[16];
    struct cairn_error err;
    d.params[d.n_params++] = (struct sigv4_param){"list-type", "2"};
    d.params[d.n_params++] = (struct sigv4_param){"encoding-type", "url"};
    if (*req->key)
        d.params[d.n_params++] = (struct sigv4_param){"prefix", req->key};
    if (req->token)
        d.params[d.n_params++] = (struct sigv4_param){"continuation-token", req->token};
    else if (*req->after)
        d.params[d.n_params++] = (struct sigv4_param){"start-after", req->after};
    if (req->max_keys) {
        snprintf(max_keys, sizeof(max_keys), "%u", req->max_keys);
        d.params[d.n_params++] = (struct sigv4_param){"max-keys", max_keys};
    }
    s3_page_release(req->page);
    exchange(c, op, creds, t, &d, &h);
    take_outcome(&h, res);
    if (!succeeded(res) || holds_fault(&answer, res))
        return;
    int rc = xml_list_parse(answer.data, answer.len, req->page, &err);
    if (rc == CAIRN_TRANSIENT)
        s3_outcome_own(&res->outcome, S3_OWN_BAD_XML, err.message);
    else if (rc)
        set_error(&res->outcome, &err);
}

struct delete_match {
    const struct s3_request *req;
    const char *const **sorted; /* pointers into req->keys, by key */
};

static int compare_keys(const void *va, const void *vb)
{
    const char *const *const *a = va, *const *const *b = vb;
    return strcmp(**a, **b);
}

static void told(struct delete_match *m, const char *key, const char *code, const char *message)
{
    const char *const *probe = &key;
    const char *const **found =
        bsearch(&probe, m->sorted, m->req->n, sizeof(m->sorted[0]), compare_keys);
    if (!found)
        return; /* not one of ours: whatever it is, it answers nothing */
    struct s3_deleted *d = &m->req->deleted[*found - m->req->keys];
    d->told = true;
    snprintf(d->fault.code, sizeof(d->fault.code), "%s", code);
    snprintf(d->fault.message, sizeof(d->fault.message), "%s", message);
}

static void on_deleted(void *ctx, const char *key)
{
    told(ctx, key, "", "");
}

static void on_failed(void *ctx, const char *key, const char *code, const char *message)
{
    told(ctx, key, *code ? code : "InternalError", message);
}

static void read_deleted(const struct buf *answer, const struct s3_request *req,
                         struct s3_result *res)
{
    struct cairn_error err;
    CLEANUP_FREE const char *const **sorted = malloc(req->n * sizeof(sorted[0]));
    struct delete_match m = {.req = req, .sorted = sorted};
    const struct xml_delete_events events = {on_deleted, on_failed, &m};
    for (size_t i = 0; i < req->n; i++)
        req->deleted[i] = (struct s3_deleted){0};
    if (!sorted) {
        (void)error_oom(&err, "delete");
        set_error(&res->outcome, &err);
        return;
    }
    for (size_t i = 0; i < req->n; i++)
        sorted[i] = &req->keys[i];
    qsort(sorted, req->n, sizeof(sorted[0]), compare_keys);
    int rc = xml_delete_parse(answer->data, answer->len, &events, &err);
    if (rc == CAIRN_TRANSIENT)
        s3_outcome_own(&res->outcome, S3_OWN_BAD_XML, err.message);
    else if (rc)
        set_error(&res->outcome, &err);
}

static void v4_delete_many(struct client_v4 *c, const struct cairn_op *op,
                           const struct s3_creds *creds, const struct target *t,
                           const struct s3_request *req, struct s3_result *res)
{
    CLEANUP_BUF struct buf text = BUF_INIT(REQUEST_MAX);
    CLEANUP_BUF struct buf answer = BUF_INIT(XML_LIST_MAX);
    struct http_sink sink = {.buf = &answer, .max = XML_LIST_MAX};
    struct http_response h;
    struct draft d = {.method = "POST", .n_params = 1, .params = {{"delete", ""}}, .sink = &sink};
    uint8_t sha[SHA256_LEN], md5[MD5_LEN];
    struct md5 m;
    struct cairn_error err;
    int rc = xml_delete_body(req->keys, req->n, &text, &err);
    if (!rc)
        rc = hash_sha256(text.data, text.len, sha, &err);
    if (rc) {
        set_error(&res->outcome, &err);
        return;
    }
    md5_init(&m);
    md5_update(&m, text.data, text.len);
    md5_final(&m, md5);
    md5_base64(md5, d.md5);
    struct http_body body = {.data = text.data, .fd = -1, .len = text.len};
    d.body = &body;
    d.sha256 = sha;
    exchange(c, op, creds, t, &d, &h);
    take_outcome(&h, res);
    if (succeeded(res) && !holds_fault(&answer, res))
        read_deleted(&answer, req, res);
}

static void v4_attempt(struct s3_client *base, const struct cairn_op *op,
                       const struct s3_creds *creds, const struct s3_request *req,
                       struct s3_result *res)
{
    static void (*const verbs[])(struct client_v4 *, const struct cairn_op *,
                                 const struct s3_creds *, const struct target *,
                                 const struct s3_request *, struct s3_result *) = {
        [S3_GET] = v4_get,   [S3_PUT] = v4_put,       [S3_HEAD] = v4_head,
        [S3_LIST] = v4_list, [S3_DELETE] = v4_delete, [S3_DELETE_MANY] = v4_delete_many,
    };
    struct client_v4 *c = (struct client_v4 *)base;
    struct target t = snapshot(c);
    verbs[req->verb](c, op, creds, &t, req, res);
    res->place_epoch = t.epoch;
}

/* ---- What answers teach ---------------------------------------------------------------------- */

static bool learn_skew(struct target *t, struct s3_result *res)
{
    if (res->date == INT64_MIN)
        return false;
    int64_t skew = res->date - clock_realtime() / NS_PER_S, change = skew - t->skew_s;
    if (skew > SKEW_SANE_S || skew < -SKEW_SANE_S)
        return false;
    if (change > -SKEW_WORTH_S && change < SKEW_WORTH_S)
        return false;
    log_line(LOG_LEVEL_WARNING, "S3: the server's clock is %lld s from this machine's",
             (long long)skew);
    t->skew_s = skew;
    return true;
}

/* Back to the configured endpoint, where a redirect had led away from it. */
static bool go_home(struct client_v4 *c, struct target *t)
{
    if (strcmp(t->place.authority, c->home.authority) == 0 && t->place.tls == c->home.tls)
        return false;
    t->place = c->home;
    return true;
}

static bool learn_place(struct client_v4 *c, struct target *t, struct s3_result *res)
{
    struct s3_fault *f = &res->outcome.fault;
    const char *to = res->location[0] ? res->location : f->endpoint;
    struct s3_place place = t->place;
    char region[S3_REGION_MAX];
    snprintf(region, sizeof(region), "%s", t->region);
    if (f->region[0] && s3_region_is_valid(f->region))
        snprintf(region, sizeof(region), "%s", f->region);
    if (*to && !s3_place_redirect(&c->home, c->bucket, to, &place)) {
        /* The host alone: a query could hold a signature. */
        size_t n = strcspn(to, "?");
        s3_outcome_own(&res->outcome, S3_OWN_FAR_REDIRECT, "");
        snprintf(f->message, sizeof(f->message), "to %.*s", (int)(n < 150 ? n : 150), to);
        return false;
    }
    if (!*to && !c->custom_endpoint && strcmp(region, t->region) != 0) {
        bool virtual_host = place.virtual_host;
        s3_place_aws(region, &place);
        place.virtual_host = virtual_host;
    }
    if (c->path_style)
        place.virtual_host = false;
    bool same = strcmp(region, t->region) == 0 && place.tls == t->place.tls &&
                place.virtual_host == t->place.virtual_host &&
                strcmp(place.authority, t->place.authority) == 0;
    if (same)
        return false;
    t->place = place;
    snprintf(t->region, sizeof(t->region), "%s", region);
    log_line(LOG_LEVEL_INFO, "S3: bucket %s is served by %s in region %s", c->bucket,
             place.authority, region);
    return true;
}

static bool v4_adapt(struct s3_client *base, struct s3_result *res)
{
    struct client_v4 *c = (struct client_v4 *)base;
    struct s3_verdict v = s3_judge(&res->outcome);
    struct target t = snapshot(c);
    if (t.epoch != res->place_epoch)
        return true; /* another caller has learnt something since */
    bool changed = v.hints & S3_HINT_SKEW ? learn_skew(&t, res)
                   : res->outcome.curl    ? go_home(c, &t)
                                          : learn_place(c, &t, res);
    if (!changed)
        return false;
    pthread_mutex_lock(&c->lock);
    if (c->target.epoch == res->place_epoch) {
        t.epoch++;
        c->target = t;
    }
    pthread_mutex_unlock(&c->lock);
    return true;
}

static const struct s3_client_ops v4_ops = {
    .name = "v4",
    .deletes_many = true,
    .free = v4_free,
    .attempt = v4_attempt,
    .adapt = v4_adapt,
};

int client_v4_new(const struct s3_config *config, const char *region, struct s3_client **out,
                  struct cairn_error *err)
{
    const char *ca = config->ca_file ? config->ca_file : getenv("AWS_CA_BUNDLE");
    struct http_config http = {.ca_file = ca && *ca ? ca : NULL,
                               .connect_ns = config->connect_ns,
                               .stall_ns = config->stall_ns,
                               .answer_ns = config->answer_ns,
                               .keep =
                                   config->max_requests ? config->max_requests : S3_MAX_REQUESTS};
    struct client_v4 *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "S3 client");
    c->base.ops = &v4_ops;
    pthread_mutex_init(&c->lock, NULL);
    c->custom_endpoint = config->endpoint != NULL;
    c->path_style = config->force_path_style;
    snprintf(c->target.region, sizeof(c->target.region), "%s", region);
    int rc = CAIRN_OK;
    if (config->endpoint)
        rc = s3_place_parse(config->endpoint, &c->home, err);
    else
        s3_place_aws(region, &c->home);
    c->home.virtual_host =
        !config->force_path_style && s3_place_fits_virtual(&c->home, config->bucket);
    c->target.place = c->home;
    c->bucket = strdup(config->bucket);
    if (!rc && !c->bucket)
        rc = error_oom(err, "S3 client");
    if (!rc)
        rc = http_pool_new(&http, &c->pool, err);
    if (rc) {
        v4_free(&c->base);
        return rc;
    }
    *out = &c->base;
    return CAIRN_OK;
}
