#include "service/server_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define ACCEPT_BATCH    32
#define ACCEPT_AGAIN_NS (NS_PER_S / 5)
#define COMPLAIN_NS     (10 * NS_PER_S) /* between two log lines of the same trouble */

int server_new(const struct server_config *config, const struct service_settings *settings,
               struct server **out, struct cairn_error *err)
{
    struct server *s = calloc(1, sizeof(*s));
    if (!s)
        return error_oom(err, "server");
    s->c = *config;
    s->settings = *settings;
    s->listen_fd = -1;
    *out = s;
    return CAIRN_OK;
}

void server_configure(struct server *s, const struct service_settings *settings)
{
    s->settings = *settings;
}

/* One answer for whoever comes when there is no room; it is not waited for. */
static void turn_away(struct server *s, int fd)
{
    static const char text[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        "Connection: close\r\nContent-Length: 89\r\n\r\n"
        "{\"error\":{\"class\":\"transient\",\"message\":\"too many connections are "
        "open\",\"errno\":"
        "11}}    \n";
    (void)!send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
    s->load.refused++;
}

static void complain(struct server *s, const struct cairn_error *err)
{
    int64_t now = clock_monotonic();
    if (s->complained_ns && now - s->complained_ns < COMPLAIN_NS)
        return;
    s->complained_ns = now;
    log_line(LOG_LEVEL_WARNING, "accept: class=%s message=\"%s\"",
             cairn_class_name(err->error_class), err->message);
}

/* Without descriptors accept fails at once, and the socket stays readable: wait a little. */
static void pause_accepting(struct server *s)
{
    loop_watch_free(s->listener);
    s->listener = NULL;
    loop_timer_set(s->accept_again, ACCEPT_AGAIN_NS);
}

static void on_listener(void *ctx)
{
    struct server *s = ctx;
    struct cairn_error err;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
            return;
        if (fd < 0) {
            (void)error_sys(&err, errno, "accept a connection");
            complain(s, &err);
            pause_accepting(s);
            return;
        }
        s->load.accepted++;
        if (s->load.connections >= s->settings.max_connections) {
            turn_away(s, fd);
            close(fd);
        } else if (conn_new(s, fd, &err)) {
            complain(s, &err);
            close(fd);
        }
    }
}

static void on_accept_again(void *ctx)
{
    struct server *s = ctx;
    struct cairn_error err;
    if (s->draining || s->listener)
        return;
    if (loop_watch_new(s->c.loop, s->listen_fd, on_listener, s, &s->listener, &err)) {
        complain(s, &err);
        loop_timer_set(s->accept_again, ACCEPT_AGAIN_NS);
    }
}

int server_listen(struct server *s, int fd, struct cairn_error *err)
{
    s->listen_fd = fd;
    int rc = loop_timer_new(s->c.loop, on_accept_again, s, &s->accept_again, err);
    return rc ? rc : loop_watch_new(s->c.loop, fd, on_listener, s, &s->listener, err);
}

void server_drain(struct server *s)
{
    s->draining = true;
    loop_watch_free(s->listener);
    s->listener = NULL;
    for (struct conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        conn_drain(c);
    }
    server_look(s);
}

void server_cancel(struct server *s)
{
    s->cancelled = true;
    for (struct exchange *ex = s->exchanges; ex; ex = ex->next) {
        atomic_store(&ex->stopping, true);
        if (ex->cancel)
            cairn_cancel_fire(ex->cancel);
    }
}

void server_abandon(struct server *s)
{
    while (s->conns)
        conn_close(s->conns);
}

bool server_is_quiet(const struct server *s)
{
    return s->draining && !s->conns && !s->exchanges && !s->losing;
}

void server_look(struct server *s)
{
    if (server_is_quiet(s) && s->c.quiet)
        s->c.quiet(s->c.ctx);
}

void server_free(struct server *s)
{
    if (!s)
        return;
    server_abandon(s);
    loop_watch_free(s->listener);
    loop_timer_free(s->accept_again);
    free(s);
}

void server_load(const struct server *s, struct server_load *out)
{
    *out = s->load;
}
