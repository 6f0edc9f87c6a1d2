#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "service/server_private.h"
#include "service/status.h"
#include "service/uri.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#define INPUT_MAX  ((size_t)64 * 1024)         /* read ahead of what is worked on */
#define BODIES_MAX ((size_t)256 * 1024 * 1024) /* of all connections together */
#define LOOK_NS    NS_PER_S                    /* between two looks whether a client is there */
#define LINGER_NS  (2 * NS_PER_S)
#define LINGER_MAX ((uint64_t)16 * 1024 * 1024) /* bytes dropped for the sake of an answer */

static void go_on(struct conn *c);

static void start_timer(struct conn *c)
{
    const struct service_settings *s = &c->server->settings;
    switch (c->state) {
    case CONN_HEAD:
        if (!c->since_ns && c->keep_open)
            loop_timer_stop(c->timer);
        else
            loop_timer_set(c->timer, c->since_ns ? s->head_timeout_ns : s->idle_timeout_ns);
        break;
    case CONN_BODY:
        loop_timer_set(c->timer, s->head_timeout_ns);
        break;
    case CONN_RUN:
        loop_timer_set(c->timer, LOOK_NS);
        break;
    case CONN_SEND:
        loop_timer_set(c->timer, s->idle_timeout_ns);
        break;
    case CONN_LINGER:
        loop_timer_set(c->timer, LINGER_NS);
        break;
    }
}

static void set_state(struct conn *c, enum conn_state state)
{
    c->state = state;
    start_timer(c);
}

static void keep_promise(struct conn *c, size_t bytes)
{
    c->server->load.body_bytes += bytes - c->promised;
    c->promised = bytes;
}

void conn_close(struct conn *c)
{
    struct server *s = c->server;
    struct exchange *ex = c->exchange;
    uint64_t number = c->number;
    keep_promise(c, 0);
    *c->link = c->next;
    if (c->next)
        c->next->link = c->link;
    s->load.connections--;
    loop_timer_free(c->timer);
    if (c->bev)
        bufferevent_free(c->bev);
    free(c);
    if (s->c.connection_closed)
        s->c.connection_closed(s->c.ctx, number);
    if (ex)
        exchange_desert(ex);
    else
        server_look(s);
}

/* Has the client closed both ways? A half-closed socket reads its end as well. */
static bool has_gone(const struct conn *c)
{
    struct pollfd p = {.fd = bufferevent_getfd(c->bev)};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

static struct evbuffer *output(const struct conn *c)
{
    return bufferevent_get_output(c->bev);
}

static bool add(struct conn *c, const void *data, size_t len)
{
    c->out_added += len;
    c->server->load.bytes_out += len;
    return bufferevent_write(c->bev, data, len) == 0;
}

static void free_data(const void *data, size_t len, void *ctx)
{
    (void)data;
    (void)len;
    free(ctx);
}

/* Hand the bytes of b over without copying them. */
static bool add_buf(struct conn *c, struct buf *b)
{
    c->out_added += b->len;
    c->server->load.bytes_out += b->len;
    if (evbuffer_add_reference(output(c), b->data, b->len, free_data, b->data))
        return false;
    *b = BUF_INIT(b->max);
    return true;
}

/* ---- Answering ------------------------------------------------------------------------------- */

static void end_exchange(struct conn *c)
{
    struct exchange *ex = c->exchange;
    c->exchange = NULL;
    c->since_ns = 0;
    keep_promise(c, 0);
    if (ex->response.keep_open)
        c->keep_open = true;
    exchange_end(ex, true);
    if (c->unread) {
        shutdown(bufferevent_getfd(c->bev), SHUT_WR);
        c->left = LINGER_MAX;
        set_state(c, CONN_LINGER);
        go_on(c);
        return;
    }
    if (!c->close && !c->server->draining) {
        set_state(c, CONN_HEAD);
        if (!c->half_closed || evbuffer_get_length(bufferevent_get_input(c->bev))) {
            go_on(c);
            return;
        }
    }
    conn_close(c);
}

static int head_text(const struct conn *c, uint64_t length, struct buf *out)
{
    const struct exchange *ex = c->exchange;
    const struct response *r = &ex->response;
    char date[64] = "";
    time_t now = (time_t)(clock_realtime() / NS_PER_S);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    int rc = buf_addf(out, NULL, "HTTP/1.1 %d %s\r\nDate: %s\r\nX-Request-Id: %" PRIu64 "\r\n",
                      r->status, status_reason(r->status), date, ex->request.number);
    if (!rc && r->status != 204 && r->status != 304)
        rc = buf_addf(out, NULL, "Content-Type: %s\r\nContent-Length: %" PRIu64 "\r\n",
                      r->content_type, length);
    if (!rc && c->close)
        rc = buf_addf(out, NULL, "Connection: close\r\n");
    else if (!rc && c->head.http_10)
        rc = buf_addf(out, NULL, "Connection: keep-alive\r\n");
    if (!rc && r->headers.len)
        rc = buf_add(out, r->headers.data, r->headers.len, NULL);
    return rc ? rc : buf_add(out, "\r\n", 2, NULL);
}

void conn_send(struct conn *c)
{
    struct exchange *ex = c->exchange;
    struct response *r = &ex->response;
    CLEANUP_BUF struct buf head = BUF_INIT(HEAD_MAX);
    c->close |= c->server->draining || c->unread;
    uint64_t length = r->source ? r->source->length : r->body.len;
    bool bodiless = ex->request.method == HTTP_HEAD || r->status == 204 || r->status == 304;
    set_state(c, CONN_SEND);
    c->out_seen = c->out_added;
    if (bodiless) {
        ex->sent = length;
        buf_clear(&r->body);
    }
    bool good = !head_text(c, length, &head) && add(c, head.data, head.len);
    if (good && r->body.len)
        good = add_buf(c, &r->body);
    if (!r->source)
        ex->sent = length;
    if (!good) {
        conn_close(c);
        return;
    }
    bufferevent_setwatermark(c->bev, EV_WRITE, ex->sent < length ? BODY_PIECE : 0, 0);
}

void conn_send_piece(struct conn *c)
{
    struct exchange *ex = c->exchange;
    uint64_t length = ex->response.source->length;
    size_t n = ex->piece.len;
    /* The head has promised a length: an answer that ends before it is seen to be cut. */
    if (ex->rc || !n || n > length - ex->sent || !add_buf(c, &ex->piece)) {
        conn_close(c);
        return;
    }
    ex->sent += n;
    start_timer(c);
    if (ex->sent == length)
        bufferevent_setwatermark(c->bev, EV_WRITE, 0, 0);
}

static void on_written(struct bufferevent *bev, void *arg)
{
    struct conn *c = arg;
    (void)bev;
    if (c->state != CONN_SEND || c->exchange->busy)
        return;
    const struct exchange *ex = c->exchange;
    if (ex->response.source && ex->sent < ex->response.source->length)
        exchange_read(c->exchange);
    else if (evbuffer_get_length(output(c)) == 0)
        end_exchange(c);
}

/* ---- Requests -------------------------------------------------------------------------------- */

CAIRN_PRINTF(3, 4) static void refuse(struct conn *c, int status, const char *fmt, ...)
{
    struct cairn_error err;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    error_set(&err, status_class(status), status == 413 ? EMSGSIZE : 0, "%s", text);
    exchange_refuse(c->exchange, status, &err);
    set_state(c, CONN_RUN);
    conn_send(c);
}

/* Make the exchange; without memory there is nothing to be said either. */
static bool begin(struct conn *c)
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
    keep_promise(c, room);
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
    set_state(c, CONN_RUN);
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
        refuse(c, 413, "the body is larger than %zu bytes", c->exchange->request.route->max_body);
    else if (!good)
        refuse(c, c->head.chunked ? 400 : 500,
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
        set_state(c, CONN_RUN);
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
    set_state(c, CONN_BODY);
    static const char go[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (c->head.expect_continue && evbuffer_get_length(in) == 0)
        (void)add(c, go, strlen(go));
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
        start_timer(c);
    }
    const char *why, *data = (const char *)evbuffer_pullup(in, (ev_ssize_t)n);
    long got = data ? head_parse(data, n, &c->head, &why) : -500;
    if (got == 0 || !begin(c))
        return;
    if (got > 0) {
        take_head(c, in, (size_t)got);
        return;
    }
    c->unread = true;
    refuse(c, (int)-got, "%s", data ? why : "memory ran out");
}

/* Take what the state can use of the input. The connection may be gone afterwards. */
static void go_on(struct conn *c)
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

/* ---- Events ---------------------------------------------------------------------------------- */

static void on_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    go_on(arg);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct conn *c = arg;
    (void)bev;
    /* A client that only says that it sends no more still gets its answer. */
    if ((what & BEV_EVENT_EOF) && (c->state == CONN_RUN || c->state == CONN_SEND) && !has_gone(c))
        c->half_closed = true;
    else if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        conn_close(c);
}

static void too_late(struct conn *c)
{
    if (!c->since_ns) {
        conn_close(c); /* idle */
    } else if (c->exchange || begin(c)) {
        c->unread = true;
        refuse(c, 408, "the request did not arrive within %lld seconds",
               (long long)(c->server->settings.head_timeout_ns / NS_PER_S));
    }
}

static void look_at_writing(struct conn *c)
{
    size_t waiting = evbuffer_get_length(output(c));
    uint64_t written = c->out_added - waiting;
    if (has_gone(c) || (waiting && written == c->out_seen)) {
        conn_close(c);
        return;
    }
    c->out_seen = written;
    start_timer(c);
}

static void on_timer(void *arg)
{
    struct conn *c = arg;
    switch (c->state) {
    case CONN_HEAD:
    case CONN_BODY:
        too_late(c);
        break;
    case CONN_RUN:
        /* What a client sends ahead can fill the input, and its end then is not read. */
        if (has_gone(c))
            conn_close(c);
        else
            start_timer(c);
        break;
    case CONN_SEND:
        look_at_writing(c);
        break;
    case CONN_LINGER:
        conn_close(c);
        break;
    }
}

void conn_drain(struct conn *c)
{
    if (c->state == CONN_HEAD || c->state == CONN_BODY)
        conn_close(c);
}

static void peer_of(int fd, struct peer *out)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0)
        *out = (struct peer){cred.uid, cred.gid, cred.pid};
    else
        *out = (struct peer){(uid_t)-1, (gid_t)-1, 0};
}

int conn_new(struct server *s, int fd, struct cairn_error *err)
{
    struct conn *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "connection");
    int rc = loop_timer_new(s->c.loop, on_timer, c, &c->timer, err);
    if (!rc && !(c->bev = bufferevent_socket_new(loop_base(s->c.loop), fd, BEV_OPT_CLOSE_ON_FREE)))
        rc = error_oom(err, "connection");
    if (rc) {
        loop_timer_free(c->timer);
        free(c);
        return rc;
    }
    c->server = s;
    c->number = ++s->last_connection;
    peer_of(fd, &c->peer);
    c->next = s->conns;
    c->link = &s->conns;
    if (c->next)
        c->next->link = &c->next;
    s->conns = c;
    s->load.connections++;
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, INPUT_MAX);
    bufferevent_set_max_single_read(c->bev, INPUT_MAX);
    bufferevent_set_max_single_write(c->bev, BODY_PIECE);
    set_state(c, CONN_HEAD);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    return CAIRN_OK;
}
