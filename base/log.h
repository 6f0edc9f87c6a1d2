/* Log lines, one an event. The library never prints by itself: it hands each line to the sink that
 * the program set (none: dropped). Thread-safe. No secret ever goes in. */
#ifndef CAIRN_BASE_LOG_H
#define CAIRN_BASE_LOG_H

#include "base/error.h"

enum log_level {
    LOG_LEVEL_ERROR = 3, /* the numbers are journald's priorities */
    LOG_LEVEL_WARNING = 4,
    LOG_LEVEL_NOTICE = 5,
    LOG_LEVEL_INFO = 6,
    LOG_LEVEL_DEBUG = 7,
};

/* line is one event without a line feed, borrowed for the call. Called from any thread, without a
 * lock held; it must not log. */
typedef void log_sink(void *ctx, enum log_level level, const char *line);

/* Before the first thread starts. Lines above max_level are dropped. */
void log_set_sink(log_sink *sink, void *ctx, enum log_level max_level);

/* Line feeds and other control bytes of the text are shown as \xNN. */
void log_line(enum log_level level, const char *fmt, ...) CAIRN_PRINTF(2, 3);

#endif
