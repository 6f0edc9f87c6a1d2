/* The bounds of the HTTP server, with times short enough to be waited for. */
#include "service/server.h"

#include "base/clock.h"
#include "base/jval.h"
#include "base/util.h"
#include "service/socket.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

struct world {
    struct loop *loop;
    struct lane *lanes[LANE_COUNT_];
    struct metrics *metrics;
    struct server *server;
    struct listener listener;
    struct service_settings settings;
    struct loop_task task;
    pthread_t thread;
    atomic_uint closed;
    char path[256];
};

static void on_closed(void *ctx, uint64_t connection)
{
    struct world *w = ctx;
    ck_assert_uint_gt(connection, 0);
    atomic_fetch_add(&w->closed, 1);
}

static void on_quiet(void *ctx)
{
    loop_end(((struct world *)ctx)->loop);
}

static void *run(void *ctx)
{
    struct world *w = ctx;
    struct cairn_error err;
    ck_assert_int_eq(loop_run(w->loop, &err), CAIRN_OK);
    return NULL;
}

static void start(struct world *w)
{
    struct cairn_error err;
    *w = (struct world){.listener = LISTENER_INIT};
    service_settings_init(&w->settings);
    w->settings.head_timeout_ns = NS_PER_S / 5;
    w->settings.idle_timeout_ns = NS_PER_S / 2;
    w->settings.max_connections = 3;
    snprintf(w->path, sizeof(w->path), "%s/s", testing_tmpdir());
    ck_ok(loop_new(&w->loop, &err));
    for (unsigned i = 0; i < LANE_COUNT_; i++)
        ck_ok(lane_new("test", 4, 100, &w->lanes[i], &err));
    ck_ok(metrics_new(&w->metrics, &err));
    ck_ok(listener_open(w->path, 0600, NULL, &w->listener, &err));
    struct server_config c = {.loop = w->loop,
                              .lanes = w->lanes,
                              .metrics = w->metrics,
                              .connection_closed = on_closed,
                              .quiet = on_quiet,
                              .ctx = w};
    ck_ok(server_new(&c, &w->settings, &w->server, &err));
    ck_ok(server_listen(w->server, w->listener.fd, &err));
    ck_assert_int_eq(pthread_create(&w->thread, NULL, run, w), 0);
}

static void drain(struct loop_task *task)
{
    struct world *w = (struct world *)((char *)task - offsetof(struct world, task));
    server_drain(w->server);
}

static void stop(struct world *w)
{
    w->task.run = drain;
    loop_post(w->loop, &w->task);
    pthread_join(w->thread, NULL);
    ck_assert(server_is_quiet(w->server));
    for (unsigned i = 0; i < LANE_COUNT_; i++)
        lane_free(w->lanes[i]);
    server_free(w->server);
    metrics_free(w->metrics);
    loop_free(w->loop);
    listener_close(&w->listener);
}

static int dial(const struct world *w)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, w->path, strlen(w->path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* All that comes until the other side closes, at most 60 s. */
static void hear(int fd, char *out, size_t size)
{
    size_t at = 0;
    for (ssize_t n = 1; n > 0;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ck_assert_msg(poll(&p, 1, 60000) == 1, "never closed; so far: %.*s", (int)at, out);
        ck_assert_uint_lt(at, size - 1);
        n = recv(fd, out + at, size - 1 - at, 0);
        at += n > 0 ? (size_t)n : 0;
    }
    out[at] = 0;
}

static void is_error(const char *answer, const char *status, const char *class)
{
    struct cairn_error err;
    CLEANUP_JVAL struct jval *v = NULL;
    char want[64];
    snprintf(want, sizeof(want), "HTTP/1.1 %s ", status);
    ck_assert_msg(strncmp(answer, want, strlen(want)) == 0, "%s", answer);
    const char *body = strstr(answer, "\r\n\r\n"), *length = strstr(answer, "Content-Length: ");
    ck_assert(body && length);
    body += 4;
    ck_assert_uint_eq(strlen(body), strtoul(length + 16, NULL, 10));
    ck_ok(jval_parse(body, strlen(body), &v, &err));
    ck_assert_str_eq(jval_str(jval_get(jval_get(v, "error"), "class")), class);
}

START_TEST(test_server__half_a_head_is_not_waited_for)
{
    struct world w;
    char answer[4096];
    start(&w);
    CLEANUP_FD int fd = dial(&w);
    say(fd, "GET /heal");
    hear(fd, answer, sizeof(answer));
    is_error(answer, "408", "timeout");
    stop(&w);
    ck_assert_uint_eq(atomic_load(&w.closed), 1);
}
END_TEST

START_TEST(test_server__drops_of_a_head_do_not_count_as_haste)
{
    struct world w;
    char answer[4096];
    start(&w);
    CLEANUP_FD int fd = dial(&w);
    int64_t begin = clock_monotonic();
    say(fd, "GET / HTTP/1.1\r\nX: ");
    /* A byte now and then until the other side has had enough. */
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 20) == 1)
            break;
        if (send(fd, "x", 1, MSG_NOSIGNAL) != 1)
            break;
        ck_assert_msg(clock_monotonic() - begin < 60 * NS_PER_S, "drops keep it open");
    }
    hear(fd, answer, sizeof(answer));
    is_error(answer, "408", "timeout");
    stop(&w);
}
END_TEST

START_TEST(test_server__half_a_body_is_not_waited_for)
{
    struct world w;
    char answer[4096];
    start(&w);
    CLEANUP_FD int fd = dial(&w);
    say(fd, "POST /v1/gc HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
    hear(fd, answer, sizeof(answer));
    is_error(answer, "408", "timeout");
    stop(&w);
}
END_TEST

START_TEST(test_server__an_idle_connection_goes_without_a_word)
{
    struct world w;
    char answer[4096];
    start(&w);
    CLEANUP_FD int fd = dial(&w);
    say(fd, "GET /nope HTTP/1.1\r\nHost: x\r\n\r\n");
    int64_t begin = clock_monotonic();
    hear(fd, answer, sizeof(answer));
    ck_assert_int_ge(clock_monotonic() - begin, NS_PER_S / 3);
    is_error(answer, "404", "not_found");
    CLEANUP_FD int silent = dial(&w);
    hear(silent, answer, sizeof(answer));
    ck_assert_str_eq(answer, "");
    stop(&w);
}
END_TEST

START_TEST(test_server__too_many_connections_are_told_to_come_back)
{
    struct world w;
    char answer[4096];
    start(&w);
    int held[3];
    for (size_t i = 0; i < ARRAY_SIZE(held); i++) {
        held[i] = dial(&w);
        /* It is in: it answers. */
        say(held[i], "GET /nope HTTP/1.1\r\nHost: x\r\n\r\n");
        ck_assert_int_gt(recv(held[i], answer, sizeof(answer), 0), 0);
    }
    CLEANUP_FD int fd = dial(&w);
    hear(fd, answer, sizeof(answer));
    is_error(answer, "503", "transient");
    ck_assert_ptr_nonnull(strstr(answer, "Retry-After: 1\r\n"));
    for (size_t i = 0; i < ARRAY_SIZE(held); i++)
        close(held[i]);
    for (;;) {
        CLEANUP_FD int again = dial(&w);
        /* It may be turned away before it has said anything. */
        static const char ask[] = "GET /nope HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        (void)!send(again, ask, strlen(ask), MSG_NOSIGNAL);
        hear(again, answer, sizeof(answer));
        if (strncmp(answer, "HTTP/1.1 404", 12) == 0)
            break;
        poll(NULL, 0, 10);
    }
    stop(&w);
}
END_TEST

START_TEST(test_server__draining_ends_what_waits_for_nothing)
{
    struct world w;
    char answer[4096];
    start(&w);
    CLEANUP_FD int idle = dial(&w);
    CLEANUP_FD int partial = dial(&w);
    say(idle, "GET /nope HTTP/1.1\r\nHost: x\r\n\r\n");
    ck_assert_int_gt(recv(idle, answer, sizeof(answer), 0), 0);
    say(partial, "GET /n");
    stop(&w);
    hear(idle, answer, sizeof(answer));
    ck_assert_str_eq(answer, "");
}
END_TEST

TESTING_MAIN(server, test_server__half_a_head_is_not_waited_for,
             test_server__drops_of_a_head_do_not_count_as_haste,
             test_server__half_a_body_is_not_waited_for,
             test_server__an_idle_connection_goes_without_a_word,
             test_server__too_many_connections_are_told_to_come_back,
             test_server__draining_ends_what_waits_for_nothing)
