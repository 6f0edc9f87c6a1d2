#include "service/journal.h"

#include "base/clock.h"
#include "base/util.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_ 2048

static struct {
    atomic_int level;
    atomic_uint dropped;           /* lines that nobody took */
    bool terminal, stamps, socket; /* set before the first thread */
} journal;

static const char *level_name(enum log_level level)
{
    switch (level) {
    case LOG_LEVEL_ERROR:
        return "error";
    case LOG_LEVEL_WARNING:
        return "warning";
    case LOG_LEVEL_NOTICE:
        return "notice";
    case LOG_LEVEL_INFO:
        return "info";
    case LOG_LEVEL_DEBUG:
        break;
    }
    return "debug";
}

/* One write for each line, so that lines of threads do not mix, and none that could block: a reader
 * that hangs must not hang the service. A pipe that polls writable takes PIPE_BUF bytes, which is
 * more than a line, unless another thread came between; then this one waits with the reader. */
static bool put(const char *text, size_t len)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    ssize_t n = journal.socket        ? send(STDERR_FILENO, text, len, MSG_DONTWAIT | MSG_NOSIGNAL)
                : poll(&p, 1, 0) == 1 ? write(STDERR_FILENO, text, len)
                                      : -1;
    return n >= 0;
}

static void put_or_count(const char *text, size_t len)
{
    char note[64];
    unsigned dropped = atomic_exchange(&journal.dropped, 0);
    if (dropped) {
        int n =
            snprintf(note, sizeof(note), "<%d>log: dropped=%u\n", (int)LOG_LEVEL_WARNING, dropped);
        if (!put(note, (size_t)n))
            atomic_fetch_add(&journal.dropped, dropped);
    }
    if (!put(text, len))
        atomic_fetch_add(&journal.dropped, 1);
}

static void sink(void *ctx, enum log_level level, const char *line)
{
    char text[LINE_MAX_], stamp[CLOCK_RFC3339_MAX + 1] = "";
    (void)ctx;
    if ((int)level > atomic_load_explicit(&journal.level, memory_order_relaxed))
        return;
    if (journal.stamps) {
        clock_rfc3339(clock_realtime(), stamp);
        memcpy(stamp + strlen(stamp), " ", 2);
    }
    int n = journal.terminal
                ? snprintf(text, sizeof(text) - 1, "%s%-7s %s", stamp, level_name(level), line)
                : snprintf(text, sizeof(text) - 1, "<%d>%s%s", (int)level, stamp, line);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof(text) - 1 ? (size_t)n : sizeof(text) - 2;
    text[len++] = '\n';
    put_or_count(text, len);
}

void journal_start(enum log_level level)
{
    struct stat st;
    journal.socket = fstat(STDERR_FILENO, &st) == 0 && S_ISSOCK(st.st_mode);
    journal.terminal = isatty(STDERR_FILENO);
    journal.stamps = !getenv("JOURNAL_STREAM");
    atomic_store(&journal.level, (int)level);
    log_set_sink(sink, NULL, LOG_LEVEL_DEBUG);
}

void journal_set_level(enum log_level level)
{
    atomic_store(&journal.level, (int)level);
}
