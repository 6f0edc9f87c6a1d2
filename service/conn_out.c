/* The outgoing half of a connection: heads, bodies, pieces of bodies. */
#include "base/clock.h"
#include "base/util.h"
#include "service/server_private.h"
#include "service/status.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#define LINGER_MAX ((uint64_t)16 * 1024 * 1024) /* bytes dropped for the sake of an answer */

static struct evbuffer *output(const struct conn *c)
{
    return bufferevent_get_output(c->bev);
}

bool conn_add(struct conn *c, const void *data, size_t len)
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

static void end_exchange(struct conn *c)
{
    struct exchange *ex = c->exchange;
    c->exchange = NULL;
    c->since_ns = 0;
    conn_promise(c, 0);
    if (ex->response.keep_open)
        c->keep_open = true;
    exchange_end(ex, true);
    if (c->unread) {
        shutdown(bufferevent_getfd(c->bev), SHUT_WR);
        c->left = LINGER_MAX;
        conn_set_state(c, CONN_LINGER);
        conn_go_on(c);
        return;
    }
    if (!c->close && !c->server->draining) {
        conn_set_state(c, CONN_HEAD);
        if (!c->half_closed || evbuffer_get_length(bufferevent_get_input(c->bev))) {
            conn_go_on(c);
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
    conn_set_state(c, CONN_SEND);
    c->out_seen = c->out_added;
    if (bodiless) {
        ex->sent = length;
        buf_clear(&r->body);
    }
    bool good = !head_text(c, length, &head) && conn_add(c, head.data, head.len);
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
    conn_start_timer(c);
    if (ex->sent == length)
        bufferevent_setwatermark(c->bev, EV_WRITE, 0, 0);
}

void conn_written(struct bufferevent *bev, void *arg)
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
