#include "cli/http.h"

#include "base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#define HEAD_MAX  ((size_t)32 * 1024)
#define ERROR_MAX ((size_t)64 * 1024)
#define JSON_MAX  ((size_t)128 * 1024 * 1024)

struct http_client {
    int fd;
    char in[64 * 1024]; /* read and not yet used: from at to len */
    size_t at, len;
};

/* Until fd polls so, within op. */
static int wait_for(const struct http_client *c, const struct cairn_op *op, short events,
                    struct cairn_error *err)
{
    for (;;) {
        int rc = op_check(op, "wait for the service", err);
        if (rc)
            return rc;
        struct pollfd p[2] = {
            {.fd = c->fd, .events = events},
            {.fd = op->cancel ? cairn_cancel_fd(op->cancel) : -1, .events = POLLIN}};
        int n = poll(p, 2, op_poll_ms(op));
        if (n < 0 && errno != EINTR)
            return error_sys(err, errno, "wait for the service");
        if (n > 0 && p[0].revents)
            return CAIRN_OK;
    }
}

static int broken(int e, const char *what, struct cairn_error *err)
{
    return error_set(err, CAIRN_TRANSIENT, e, "the service %s%s%s", what, e ? ": " : "",
                     e ? strerrorname_np(e) : "");
}

int http_client_open(const char *socket_path, const struct cairn_op *op, struct http_client **out,
                     struct cairn_error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(socket_path) >= sizeof(a.sun_path))
        return error_set(err, CAIRN_INVALID, ENAMETOOLONG,
                         "socket %.80s…: a path of more than %zu bytes", socket_path,
                         sizeof(a.sun_path) - 1);
    memcpy(a.sun_path, socket_path, strlen(socket_path) + 1);
    int rc = op_check(op, "connect to the service", err);
    if (rc)
        return rc;
    struct http_client *c = calloc(1, sizeof(*c));
    if (!c)
        return error_oom(err, "client");
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        rc = error_sys(err, errno, "socket");
    else if (connect(c->fd, (const struct sockaddr *)&a, sizeof(a)))
        rc = errno == ENOENT || errno == ECONNREFUSED
                 ? error_set(err, CAIRN_TRANSIENT, errno, "no service listens on %s", socket_path)
                 : error_sys(err, errno, "connect to %s", socket_path);
    if (rc) {
        http_client_close(c);
        return rc;
    }
    *out = c;
    return CAIRN_OK;
}

void http_client_close(struct http_client *c)
{
    if (c)
        util_closep(&c->fd);
    free(c);
}

/* An answer may come before all is sent (too large a body): what is not taken then is not missed.
 */
static int send_all(struct http_client *c, const struct cairn_op *op, const void *data, size_t len,
                    struct cairn_error *err)
{
    const char *at = data;
    while (len) {
        int rc = wait_for(c, op, POLLOUT, err);
        if (rc)
            return rc;
        ssize_t n = send(c->fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return CAIRN_OK;
        if (n < 0)
            return broken(errno, "does not take the request", err);
        at += n;
        len -= (size_t)n;
    }
    return CAIRN_OK;
}

/* Some more bytes into the buffer, which is empty or has room. */
static int more(struct http_client *c, const struct cairn_op *op, struct cairn_error *err)
{
    if (c->at == c->len)
        c->at = c->len = 0;
    for (;;) {
        int rc = wait_for(c, op, POLLIN, err);
        if (rc)
            return rc;
        ssize_t n = recv(c->fd, c->in + c->len, sizeof(c->in) - c->len, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return broken(n < 0 ? errno : 0, "ended the connection within its answer", err);
        c->len += (size_t)n;
        return CAIRN_OK;
    }
}

struct answer {
    int status;
    uint64_t length;
};

static int parse_head(char *head, struct answer *a, struct cairn_error *err)
{
    int minor;
    if (sscanf(head, "HTTP/1.%d %d", &minor, &a->status) != 2)
        return broken(0, "does not speak HTTP", err);
    a->length = 0;
    for (char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, "Content-Length:", 15) == 0)
            a->length = strtoull(line + 15, NULL, 10);
    }
    return CAIRN_OK;
}

static int read_head(struct http_client *c, const struct cairn_op *op, struct answer *a,
                     struct cairn_error *err)
{
    for (;;) {
        char *end = c->len > c->at ? memmem(c->in + c->at, c->len - c->at, "\r\n\r\n", 4) : NULL;
        if (end) {
            *end = 0;
            char *head = c->in + c->at;
            c->at = (size_t)(end - c->in) + 4;
            return parse_head(head, a, err);
        }
        if (c->len - c->at >= HEAD_MAX)
            return broken(0, "sends a head without end", err);
        memmove(c->in, c->in + c->at, c->len - c->at);
        c->len -= c->at;
        c->at = 0;
        int rc = more(c, op, err);
        if (rc)
            return rc;
    }
}

static int read_body(struct http_client *c, const struct cairn_op *op, uint64_t length,
                     http_sink *sink, void *ctx, struct cairn_error *err)
{
    while (length) {
        int rc = c->at == c->len ? more(c, op, err) : CAIRN_OK;
        if (rc)
            return rc;
        size_t n = c->len - c->at < length ? c->len - c->at : (size_t)length;
        if (sink && (rc = sink(ctx, c->in + c->at, n, err)))
            return rc;
        c->at += n;
        length -= n;
    }
    return CAIRN_OK;
}

static int into_buf(void *ctx, const void *data, size_t len, struct cairn_error *err)
{
    return buf_add(ctx, data, len, err);
}

static int class_of(const char *name)
{
    for (int c = CAIRN_NOT_FOUND; name && c <= CAIRN_INTERNAL; c++)
        if (strcmp(cairn_class_name(c), name) == 0)
            return c;
    return CAIRN_INTERNAL;
}

static int failed(struct http_client *c, const struct cairn_op *op, const struct answer *a,
                  struct cairn_error *err)
{
    CLEANUP_BUF struct buf text = BUF_INIT(ERROR_MAX);
    CLEANUP_JVAL struct jval *v = NULL;
    struct cairn_error ignored;
    int rc = read_body(c, op, a->length, into_buf, &text, err);
    if (rc)
        return rc;
    const struct jval *e = NULL;
    if (!jval_parse(text.data, text.len, &v, &ignored))
        e = jval_get(v, "error");
    const char *message = jval_str(jval_get(e, "message"));
    int64_t sys_errno = 0;
    if (!message || !*message)
        return error_set(err, CAIRN_TRANSIENT, 0, "the service answered %d without saying why",
                         a->status);
    (void)jval_int(jval_get(e, "errno"), &sys_errno);
    return error_set(err, class_of(jval_str(jval_get(e, "class"))), (int)sys_errno, "%s", message);
}

int http_client_ask(struct http_client *c, const struct cairn_op *op, const char *method,
                    const char *path, const struct buf *body, http_sink *sink, void *ctx,
                    struct cairn_error *err)
{
    CLEANUP_BUF struct buf head = BUF_INIT(HEAD_MAX);
    struct answer a;
    int rc = buf_addf(&head, err, "%s %s HTTP/1.1\r\nHost: cairn\r\n", method, path);
    if (!rc && body)
        rc = buf_addf(&head, err, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                      body->len);
    if (!rc)
        rc = buf_add(&head, "\r\n", 2, err);
    if (!rc)
        rc = send_all(c, op, head.data, head.len, err);
    if (!rc && body)
        rc = send_all(c, op, body->data, body->len, err);
    if (!rc)
        rc = read_head(c, op, &a, err);
    if (rc)
        return rc;
    if (a.status == 204 || a.status == 304)
        a.length = 0;
    return a.status / 100 == 2 ? read_body(c, op, a.length, sink, ctx, err)
                               : failed(c, op, &a, err);
}

int http_client_json(struct http_client *c, const struct cairn_op *op, const char *method,
                     const char *path, const struct buf *body, struct jval **out,
                     struct cairn_error *err)
{
    CLEANUP_BUF struct buf text = BUF_INIT(JSON_MAX);
    int rc = http_client_ask(c, op, method, path, body, into_buf, &text, err);
    if (rc)
        return rc;
    if (jval_parse(text.data, text.len, out, err))
        return error_wrap(err, "the service's answer");
    return CAIRN_OK;
}

int http_client_escape(struct buf *out, const char *text, bool keep_slashes,
                       struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (; *text && !rc; text++) {
        unsigned char b = (unsigned char)*text;
        bool plain = (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') ||
                     strchr("-._~", b) || (keep_slashes && b == '/');
        rc = plain ? buf_add(out, text, 1, err) : buf_addf(out, err, "%%%02X", (unsigned)b);
    }
    return rc;
}
