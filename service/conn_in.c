/* The incoming half of a connection: heads and bodies of requests. */
#include "base/clock.h"
#include "base/util.h"
#include "service/server_private.h"
#include "service/status.h"
#include "service/uri.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define BODIES_MAX ((size_t)256 * 1024 * 1024) /* of all connections together */

void conn_refuse(struct conn *c, int status, const char *fmt, ...)
{
    struct cairn_error err;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    error_set(&err, status_class(status), status == 413 ? EMSGSIZE : 0, "%s", text);
    exchange_refuse(c->exchange, status, &err);
    conn_set_state(c, CONN_RUN);
    conn_send(c);
}

/* Make the exchange; without memory there is nothing to be said either. */
bool conn_begin(struct conn *c)
{
    struct exchange *ex;
    if (exchange_new(c->server, &ex, NULL)) {
        conn_close(c);
        return false;
    }
    ex->conn = c;
    ex->request.connection = c->number;
    ex->request.peer = c->peer;
    c->exchange = ex;
    return true;
}

static bool copy(struct head_text t, char **out)
{
    *out = t.text ? strndup(t.text, t.len) : NULL;
    return !t.text || *out;
}

static bool is_json(struct head_text type)
{
    static const char json[] = "application/json";
    if (!type.text)
        return true;
    size_t n = 0;
    while (n < type.len && !strchr("; \t", type.text[n]))
        n++;
    return n == strlen(json) && strncasecmp(type.text, json, n) == 0;
}

/* All that can be said of a request before its body is there. 0: go on. */
static int check_request(struct conn *c, char *query, struct cairn_error *err)
{
    struct exchange *ex = c->exchange;
    const struct route *route = ex->request.route;
    bool has_body = c->head.chunked || c->head.length;
    if (query && *query && !route->query)
        return error_set(err, CAIRN_INVALID, EINVAL, "this path takes no parameters"), 400;
    if (has_body && !route->max_body)
        return error_set(err, CAIRN_INVALID, EINVAL, "this request takes no body"), 400;
    if (has_body && !is_json(c->head.content_type))
        return error_set(err, CAIRN_INVALID, EINVAL,
                         "a body must be JSON, with Content-Type: application/json"),
               415;
    if (!c->head.chunked && c->head.length > route->max_body)
        return error_set(err, CAIRN_INVALID, EMSGSIZE, "the body is larger than %zu bytes",
                         route->max_body),
               413;
    size_t room = !has_body ? 0 : c->head.chunked ? route->max_body : (size_t)c->head.length;
    if (room && c->server->load.body_bytes + room > BODIES_MAX)
        return error_set(err, CAIRN_TRANSIENT, EAGAIN, "too many large requests at once"), 503;
    conn_promise(c, room);
    return 0;
}

/* Everything that the answer may need of the head is copied: the input is gone after this. */
static int understand(struct conn *c, char allow[ROUTE_ALLOW_MAX], struct cairn_error *err)
{
    struct exchange *ex = c->exchange;
    const struct head *h = &c->head;
    char *query;
    *allow = 0;
    ex->request.method = h->method;
    if (!copy(h->target, &ex->target) || !copy(h->range, &ex->range) ||
        !copy(h->if_none_match, &ex->if_none_match) || !copy(h->if_range, &ex->if_range))
        return error_oom(err, "request"), 500;
    ex->request.range = ex->range;
    ex->request.if_none_match = ex->if_none_match;
    ex->request.if_range = ex->if_range;
    uri_split(ex->target, &query);
    ex->request.query = query;
    if (h->method == HTTP_OTHER)
        return error_set(err, CAIRN_INVALID, EOPNOTSUPP, "unknown method"), 501;
    int status = route_find(h->method, ex->target, &ex->request, allow, err);
    return status ? status : check_request(c, query, err);
}

static void request_is_there(struct conn *c)
{
    c->unread = false;
    conn_set_state(c, CONN_RUN);
    exchange_start(c->exchange);
}

static void read_body(struct conn *c, struct evbuffer *in)
{
    struct buf *text = &c->exchange->text;
    bool done = false, too_large = false, good = true;
    struct evbuffer_iovec v;
    while (!done && good && evbuffer_peek(in, -1, NULL, &v, 1) > 0) {
        size_t n = v.iov_len;
        if (c->head.chunked) {
            good = chunked_feed(&c->chunked, v.iov_base, n, &n, text, &too_large);
            done = c->chunked.done;
        } else {
            n = n < c->left ? n : (size_t)c->left;
            good = !buf_add(text, v.iov_base, n, NULL);
            c->left -= n;
            done = !c->left;
        }
        c->server->load.bytes_in += n;
        evbuffer_drain(in, n);
    }
    if (too_large)
        conn_refuse(c, 413, "the body is larger than %zu bytes",
                    c->exchange->request.route->max_body);
    else if (!good)
        conn_refuse(c, c->head.chunked ? 400 : 500,
                    c->head.chunked ? "the body is not framed in chunks" : "memory ran out");
    else if (done)
        request_is_there(c);
}

static void take_head(struct conn *c, struct evbuffer *in, size_t head_len)
{
    struct cairn_error err;
    struct exchange *ex = c->exchange;
    char allow[ROUTE_ALLOW_MAX];
    bool has_body = c->head.chunked || c->head.length;
    c->close = c->head.close;
    c->unread = has_body;
    int status = understand(c, allow, &err);
    evbuffer_drain(in, head_len);
    c->server->load.bytes_in += head_len;
    if (status) {
        exchange_refuse(ex, status, &err);
        if (status == 405)
            (void)!response_header(&ex->response, NULL, "Allow", "%s", allow);
        conn_set_state(c, CONN_RUN);
        conn_send(c);
        return;
    }
    if (!has_body) {
        request_is_there(c);
        return;
    }
    ex->text = BUF_INIT(c->promised);
    c->chunked = (struct chunked){0};
    c->left = c->head.length;
    conn_set_state(c, CONN_BODY);
    static const char go[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (c->head.expect_continue && !evbuffer_get_length(in) && !conn_add(c, go, strlen(go)))
        conn_close(c);
    else
        read_body(c, in);
}

static void read_head(struct conn *c, struct evbuffer *in)
{
    size_t n = evbuffer_get_length(in);
    if (!n)
        return;
    if (n > HEAD_MAX)
        n = HEAD_MAX;
    if (!c->since_ns) {
        c->since_ns = clock_monotonic();
        conn_start_timer(c);
    }
    const char *why, *data = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
    long got = data ? head_parse(data, n, &c->head, &why) : -500;
    if (got == 0 || !conn_begin(c))
        return;
    if (got > 0) {
        take_head(c, in, (size_t)got);
        return;
    }
    c->unread = true;
    conn_refuse(c, (int)-got, "%s", data ? why : "memory ran out");
}

/* Take what the state can use of the input. The connection may be gone afterwards. */
void conn_go_on(struct conn *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    size_t n = evbuffer_get_length(in);
    switch (c->state) {
    case CONN_HEAD:
        read_head(c, in);
        break;
    case CONN_BODY:
        read_body(c, in);
        break;
    case CONN_LINGER:
        evbuffer_drain(in, n);
        c->left -= n < c->left ? n : c->left;
        if (!c->left)
            conn_close(c);
        break;
    case CONN_RUN:
    case CONN_SEND:
        break; /* the next request waits for its turn */
    }
}
