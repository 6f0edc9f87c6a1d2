#include "base/log.h"

#include <stdio.h>

static log_sink *the_sink;
static void *the_ctx;
static enum log_level the_max = LOG_LEVEL_INFO;

void log_set_sink(log_sink *sink, void *ctx, enum log_level max_level)
{
    the_sink = sink;
    the_ctx = ctx;
    the_max = max_level;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    if (!the_sink || level > the_max)
        return;
    char raw[1024], line[sizeof(raw) * 4];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof(raw), fmt, ap);
    va_end(ap);
    char *out = line;
    for (const char *p = raw; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7f)
            out += snprintf(out, 5, "\\x%02x", c);
        else
            *out++ = *p;
    }
    *out = 0;
    the_sink(the_ctx, level, line);
}
