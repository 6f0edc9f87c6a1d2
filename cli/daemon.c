#include "cli/daemon.h"

#include "base/buf.h"
#include "base/util.h"
#include "cli/term.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <syslog.h>

/* Names the descriptor on which the background process reports; not for users. */
#define READY_VARIABLE "CAIRN_READY_FD"

/* What it reports: a struct cairn_error, whose class is CAIRN_OK when it is ready. */

static struct {
    int fd; /* -1: not a background process, or it has reported */
    bool child;
    atomic_bool detached;
} state = {.fd = -1};

bool daemon_is_child(void)
{
    const char *text = getenv(READY_VARIABLE);
    if (!state.child && text) {
        char *end;
        long fd = strtol(text, &end, 10);
        state.child = *text && !*end && fd > 2 && fcntl((int)fd, F_SETFD, FD_CLOEXEC) == 0;
        state.fd = state.child ? (int)fd : -1;
        unsetenv(READY_VARIABLE);
    }
    return state.child;
}

/* ---- The foreground process ------------------------------------------------------------------ */

#define ARGS_MAX ((size_t)2 * 1024 * 1024)

/* proc(5): the arguments, each with its NUL. */
static int own_arguments(struct buf *text, char ***argv, struct cairn_error *err)
{
    CLEANUP_FD int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_sys(err, errno, "opening /proc/self/cmdline");
    for (;;) {
        int rc = buf_reserve(text, 4096, err);
        if (rc)
            return rc;
        ssize_t n = read(fd, text->data + text->len, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_sys(err, errno, "reading /proc/self/cmdline");
        if (n == 0)
            break;
        text->len += (size_t)n;
    }
    size_t count = 0;
    for (size_t i = 0; i < text->len; i++)
        count += text->data[i] == 0;
    *argv = calloc(count + 1, sizeof(**argv));
    if (!*argv)
        return error_oom(err, "arguments");
    char *at = (char *)text->data;
    for (size_t i = 0; i < count; i++, at += strlen(at) + 1)
        (*argv)[i] = at;
    return CAIRN_OK;
}

/* Something to put in the place of a standard descriptor: where not even /dev/null may be opened,
 * what can neither be read nor written. */
static int open_nothing(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    return fd >= 0 ? fd : open("/", O_PATH | O_CLOEXEC);
}

/* After fork in a program with threads: only what signal handlers may call. */
static void become(int report, char **argv, char **env)
{
    int null = open_nothing();
    if (null < 0 || setsid() < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
        _exit(127);
    /* What the caller's own caller left open (a pipe of ssh's) must not be kept open. */
    if (report != 3 && dup2(report, 3) < 0)
        _exit(127);
    fcntl(3, F_SETFD, 0);
    (void)close_range(4, ~0U, 0);
    execve("/proc/self/exe", argv, env);
    _exit(127);
}

/* environ and the descriptor's number, which is always 3. */
static char **child_environment(void)
{
    static char ready[] = READY_VARIABLE "=3";
    size_t n = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + 2, sizeof(*env));
    if (env) {
        memcpy(env, environ, n * sizeof(*env));
        env[n] = ready;
    }
    return env;
}

/* *got: bytes of the report; fewer than all when the background process ended. */
static int read_report(int fd, const struct cairn_op *op, struct cairn_error *report, size_t *got,
                       struct cairn_error *err)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN},
                          {.fd = op->cancel ? cairn_cancel_fd(op->cancel) : -1, .events = POLLIN}};
    *got = 0;
    while (*got < sizeof(*report)) {
        int rc = op_check(op, "waiting until the mount is ready", err);
        if (rc)
            return rc;
        if (poll(p, 2, op_poll_ms(op)) < 0 && errno != EINTR)
            return error_sys(err, errno, "waiting until the mount is ready");
        if (!p[0].revents)
            continue;
        ssize_t n = read(fd, (char *)report + *got, sizeof(*report) - *got);
        if (n <= 0)
            break;
        *got += (size_t)n;
    }
    return CAIRN_OK;
}

static int take_report(pid_t pid, int fd, const struct cairn_op *op, struct cairn_error *err)
{
    struct cairn_error report;
    size_t got;
    int rc = read_report(fd, op, &report, &got, err), status = 0;
    if (rc)
        (void)kill(pid, SIGTERM);
    if (!rc && got == sizeof(report)) {
        report.message[sizeof(report.message) - 1] = 0;
        rc = report.error_class;
        if (rc)
            *err = report;
        else
            return CAIRN_OK; /* it lives on */
    } else if (!rc) {
        rc = error_set(err, CAIRN_INTERNAL, 0, "the background process ended without a word");
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return rc;
}

int daemon_start(const struct cairn_op *op, struct cairn_error *err)
{
    CLEANUP_BUF struct buf text = BUF_INIT(ARGS_MAX);
    CLEANUP_FREE char **argv = NULL;
    CLEANUP_FREE char **env = child_environment();
    int report[2];
    int rc = env ? own_arguments(&text, &argv, err) : error_oom(err, "environment");
    if (rc)
        return rc;
    if (pipe2(report, O_CLOEXEC))
        return error_sys(err, errno, "pipe to the background process");
    CLEANUP_FD int from = report[0];
    CLEANUP_FD int to = report[1];
    pid_t pid = fork();
    if (pid < 0)
        return error_sys(err, errno, "starting the background process");
    if (pid == 0)
        become(to, argv, env);
    close(util_steal_fd(&to));
    return take_report(pid, from, op, err);
}

/* ---- The background process ------------------------------------------------------------------ */

static void send_report(const struct cairn_error *report)
{
    size_t done = 0;
    while (state.fd >= 0 && done < sizeof(*report)) {
        ssize_t n = write(state.fd, (const char *)report + done, sizeof(*report) - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    util_closep(&state.fd);
    state.fd = -1;
}

void daemon_ready(void)
{
    if (state.fd < 0)
        return;
    openlog("cairn", LOG_PID, LOG_DAEMON);
    atomic_store(&state.detached, true);
    int null = open_nothing();
    if (null >= 0) {
        (void)dup2(null, 2);
        close(null);
    }
    send_report(&(struct cairn_error){0});
}

void daemon_failed(const struct cairn_error *err)
{
    send_report(err);
}

void daemon_log(void *ctx, enum log_level level, const char *line)
{
    if (atomic_load(&state.detached))
        syslog((int)level, "%s", line);
    else
        term_log(ctx, level, line);
}
