#include "service/journal.h"

#include "base/clock.h"
#include "base/util.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LINE_MAX_ 2048

static struct {
    atomic_int level;
    bool terminal, stamps; /* set before the first thread */
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

/* One write for each line, so that lines of threads do not mix. */
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
    (void)!write(STDERR_FILENO, text, len);
}

void journal_start(enum log_level level)
{
    journal.terminal = isatty(STDERR_FILENO);
    journal.stamps = !getenv("JOURNAL_STREAM");
    atomic_store(&journal.level, (int)level);
    log_set_sink(sink, NULL, LOG_LEVEL_DEBUG);
}

void journal_set_level(enum log_level level)
{
    atomic_store(&journal.level, (int)level);
}
