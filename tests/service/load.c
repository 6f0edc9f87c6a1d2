/* A client that asks much at once, and measures.
 *
 *   load SOCKET CONNECTIONS HOW_MANY <requests
 *
 * HOW_MANY is a number of requests, or of seconds with an "s" behind. Each line of standard input
 * is a label, the statuses that are right (200,404), a method, a path, and perhaps a body. The
 * lines are asked in turn, over and over, by whichever connection is free; "@08" and "@32" stand
 * for a number in so many hex digits that is counted up with each request. For each label a line is
 * printed:
 *
 *   label  n=count  wrong=count  p50=us  p99=us  max=us
 *
 * "wrong" are answers of another status and broken connections; the first few are shown on standard
 * error. The exit code is 1 if there was any. */
#include "base/clock.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#define LINES_MAX 256
#define SAMPLES   2000000

struct line {
    char label[32], right[64], method[16], path[1024];
    char *body; /* owned; NULL: none */
    uint64_t n, wrong;
    uint32_t *us; /* owned, of each answer */
};

struct conn {
    int fd;
    struct line *line; /* what it asks for; NULL: nothing */
    int64_t begin_ns;
    char *out; /* owned */
    size_t out_len, out_at;
    char head[4096];
    size_t head_len;
    uint64_t body_left;
    bool in_body, close;
};

static struct line lines[LINES_MAX];
static size_t n_lines, next_line;
static uint64_t asked, limit, counter, shown;
static int64_t until_ns;
static const char *socket_path;

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(2);
}

static void read_lines(void)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t len;
    while ((len = getline(&text, &room, stdin)) > 0 && n_lines < LINES_MAX) {
        struct line *l = &lines[n_lines];
        int at = 0;
        if (text[len - 1] == '\n')
            text[--len] = 0;
        if (sscanf(text, "%31s %63s %15s %1023s %n", l->label, l->right, l->method, l->path, &at) <
            4) {
            fprintf(stderr, "bad line: %s\n", text);
            exit(2);
        }
        l->body = at && text[at] ? strdup(text + at) : NULL;
        l->us = calloc(SAMPLES, sizeof(*l->us));
        if (!l->us)
            die("memory");
        n_lines++;
    }
    free(text);
    if (!n_lines) {
        fputs("nothing to ask for\n", stderr);
        exit(2);
    }
}

/* "@08" and "@32" become the number. */
static char *expand(const char *text, uint64_t number)
{
    char *out = malloc(strlen(text) + 512), *to = out;
    if (!out)
        die("memory");
    while (*text) {
        if (strncmp(text, "@08", 3) == 0 || strncmp(text, "@32", 3) == 0) {
            to +=
                snprintf(to, 33, text[1] == '0' ? "%08llx" : "%032llx", (unsigned long long)number);
            text += 3;
        } else {
            *to++ = *text++;
        }
    }
    *to = 0;
    return out;
}

static void dial(struct conn *c)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", socket_path);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof(a)) != 0)
        die("connect");
}

static void ask(struct conn *c, int epoll)
{
    free(c->out);
    c->out = NULL;
    c->line = NULL;
    if (limit ? asked >= limit : clock_monotonic() >= until_ns) {
        struct epoll_event none = {.events = 0, .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &none);
        return;
    }
    asked++;
    c->line = &lines[next_line++ % n_lines];
    uint64_t number = counter++;
    char *path = expand(c->line->path, number);
    char *body = expand(c->line->body ? c->line->body : "", number);
    int len = asprintf(&c->out, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n%s",
                       c->line->method, path, *body ? "Content-Type: application/json\r\n" : "",
                       strlen(body), body);
    if (len < 0)
        die("memory");
    free(path);
    free(body);
    c->out_len = (size_t)len;
    c->out_at = c->head_len = 0;
    c->in_body = c->close = false;
    c->begin_ns = clock_monotonic();
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &ev);
}

static void wrong(struct conn *c, const char *what)
{
    c->line->wrong++;
    if (shown++ < 5)
        fprintf(stderr, "%s: %s\n", c->line->label, what);
}

static void finish(struct conn *c)
{
    int64_t us = (clock_monotonic() - c->begin_ns) / 1000;
    struct line *l = c->line;
    char status[4];
    snprintf(status, sizeof(status), "%.3s", c->head + 9);
    if (!strstr(l->right, status)) {
        c->head[strcspn(c->head, "\r\n")] = 0;
        wrong(c, c->head);
    }
    l->us[l->n++ % SAMPLES] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

/* A whole head has come: what of the answer is left to read. */
static void read_head(struct conn *c, size_t end)
{
    const char *length = strcasestr(c->head, "\r\nContent-Length:");
    c->body_left = length ? strtoull(length + 17, NULL, 10) : 0;
    c->close = strcasestr(c->head, "\r\nConnection: close") != NULL;
    size_t more = c->head_len - end;
    c->body_left -= more < c->body_left ? more : c->body_left;
    c->in_body = true;
}

/* False: the connection broke. */
static bool take(struct conn *c)
{
    char buf[65536];
    ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false;
    if (c->in_body) {
        c->body_left -= (uint64_t)n < c->body_left ? (uint64_t)n : c->body_left;
        return true;
    }
    size_t room = sizeof(c->head) - 1 - c->head_len, keep = (size_t)n < room ? (size_t)n : room;
    memcpy(c->head + c->head_len, buf, keep);
    c->head[c->head_len + keep] = 0;
    const char *end = strstr(c->head, "\r\n\r\n");
    c->head_len += (size_t)n; /* what did not fit is body */
    if (end)
        read_head(c, (size_t)(end + 4 - c->head));
    return end || keep == (size_t)n;
}

static void redial(struct conn *c, int epoll)
{
    close(c->fd);
    dial(c);
    struct epoll_event ev = {.events = 0, .data.ptr = c};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &ev) != 0)
        die("epoll");
}

/* Returns whether the request is over. */
static bool step(struct conn *c, int epoll, uint32_t events)
{
    if (events & EPOLLOUT && c->out_at < c->out_len) {
        ssize_t n =
            send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            c->out_at += (size_t)n;
        if (c->out_at == c->out_len) {
            struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
            epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &ev);
        }
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return false;
    if (!take(c)) {
        wrong(c, "the connection broke");
        redial(c, epoll);
        return true;
    }
    if (!c->in_body || c->body_left)
        return false;
    finish(c);
    if (c->close)
        redial(c, epoll);
    return true;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int report(void)
{
    int rc = 0;
    for (size_t i = 0; i < n_lines; i++) {
        struct line *l = &lines[i];
        size_t n = l->n < SAMPLES ? l->n : SAMPLES;
        qsort(l->us, n, sizeof(*l->us), by_value);
        printf("%s n=%llu wrong=%llu p50=%u p99=%u max=%u\n", l->label, (unsigned long long)l->n,
               (unsigned long long)l->wrong, n ? l->us[n / 2] : 0, n ? l->us[n * 99 / 100] : 0,
               n ? l->us[n - 1] : 0);
        rc |= l->wrong > 0;
        free(l->us);
        free(l->body);
    }
    return rc;
}

int main(int argc, char **argv)
{
    char *end;
    if (argc != 4) {
        fprintf(stderr, "usage: %s SOCKET CONNECTIONS HOW_MANY <requests\n", argv[0]);
        return 2;
    }
    socket_path = argv[1];
    size_t n = strtoul(argv[2], NULL, 10), open = n;
    uint64_t many = strtoull(argv[3], &end, 10);
    limit = *end == 's' ? 0 : many;
    until_ns = clock_add(clock_monotonic(), (int64_t)many * NS_PER_S);
    read_lines();
    struct conn *conns = calloc(n, sizeof(*conns));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!conns || epoll < 0)
        die("epoll");
    for (size_t i = 0; i < n; i++) {
        dial(&conns[i]);
        struct epoll_event ev = {.events = 0, .data.ptr = &conns[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, conns[i].fd, &ev) != 0)
            die("epoll");
    }
    for (size_t i = 0; i < n; i++) {
        ask(&conns[i], epoll);
        open -= !conns[i].line;
    }
    while (open) {
        struct epoll_event events[64];
        int got = epoll_wait(epoll, events, 64, 60000);
        if (got == 0) {
            fputs("no answer for a minute\n", stderr);
            return 1;
        }
        for (int i = 0; i < got; i++) {
            struct conn *c = events[i].data.ptr;
            if (!c->line || !step(c, epoll, events[i].events))
                continue;
            ask(c, epoll);
            open -= !c->line;
        }
    }
    for (size_t i = 0; i < n; i++) {
        free(conns[i].out);
        close(conns[i].fd);
    }
    free(conns);
    close(epoll);
    return report();
}
