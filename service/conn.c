/* Connections: their states, timers and ends. What comes in is conn_in.c's, what goes out
 * conn_out.c's. */
#include "base/clock.h"
#include "base/error.h"
#include "service/server_private.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#define INPUT_MAX ((size_t)64 * 1024) /* read ahead of what is worked on */
#define LOOK_NS   NS_PER_S            /* between two looks whether a client is there */
#define LINGER_NS (2 * NS_PER_S)

void conn_start_timer(struct conn *c)
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

void conn_set_state(struct conn *c, enum conn_state state)
{
    c->state = state;
    conn_start_timer(c);
}

void conn_promise(struct conn *c, size_t bytes)
{
    c->server->load.body_bytes += bytes - c->promised;
    c->promised = bytes;
}

void conn_close(struct conn *c)
{
    struct server *s = c->server;
    struct exchange *ex = c->exchange;
    uint64_t number = c->number;
    conn_promise(c, 0);
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

/* ---- Events ---------------------------------------------------------------------------------- */

static void on_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    conn_go_on(arg);
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
    } else if (c->exchange || conn_begin(c)) {
        c->unread = true;
        conn_refuse(c, 408, "the request did not arrive within %lld seconds",
                    (long long)(c->server->settings.head_timeout_ns / NS_PER_S));
    }
}

static void look_at_writing(struct conn *c)
{
    size_t waiting = evbuffer_get_length(bufferevent_get_output(c->bev));
    uint64_t written = c->out_added - waiting;
    if (has_gone(c) || (waiting && written == c->out_seen)) {
        conn_close(c);
        return;
    }
    c->out_seen = written;
    conn_start_timer(c);
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
            conn_start_timer(c);
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
    bufferevent_setcb(c->bev, on_read, conn_written, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, INPUT_MAX);
    bufferevent_set_max_single_read(c->bev, INPUT_MAX);
    bufferevent_set_max_single_write(c->bev, BODY_PIECE);
    conn_set_state(c, CONN_HEAD);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    return CAIRN_OK;
}
