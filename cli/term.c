#include "cli/term.h"

#include "base/clock.h"
#include "cli/text.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_NS (NS_PER_S / 10)

static struct {
    pthread_mutex_t lock;
    bool bar; /* set once, before the first thread */
    /* guarded by lock */
    bool drawn;
    char title[64];
    int64_t start_ns, drawn_ns;
} term = {.lock = PTHREAD_MUTEX_INITIALIZER};

void term_init(bool bar)
{
    const char *kind = getenv("TERM");
    term.bar = bar && isatty(STDERR_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0;
}

/* What cannot be said on standard error cannot be said at all. */
static void put(const char *text, size_t len)
{
    (void)!write(STDERR_FILENO, text, len);
}

static void clear_locked(void)
{
    if (term.drawn)
        put("\r\033[K", 4);
    term.drawn = false;
}

void term_line(const char *fmt, ...)
{
    char raw[CAIRN_ERROR_MESSAGE_MAX + 512], line[2 * sizeof(raw)] = "cairn: ";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof(raw), fmt, ap);
    va_end(ap);
    size_t at = strlen(line);
    text_escape_cut(line + at, sizeof(line) - at - 1, raw, TEXT_MESSAGE);
    at = strlen(line);
    line[at++] = '\n';
    pthread_mutex_lock(&term.lock);
    clear_locked();
    put(line, at);
    pthread_mutex_unlock(&term.lock);
}

void term_log(void *ctx, enum log_level level, const char *line)
{
    static const char *const names[] = {
        [LOG_LEVEL_ERROR] = "error", [LOG_LEVEL_WARNING] = "warning", [LOG_LEVEL_NOTICE] = "notice",
        [LOG_LEVEL_INFO] = "info",   [LOG_LEVEL_DEBUG] = "debug",
    };
    (void)ctx;
    term_line("%s: %s", names[level], line);
}

static unsigned columns(void)
{
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || w.ws_col < 20)
        return 80;
    return w.ws_col;
}

static void draw_line_locked(const char *line, size_t len, int64_t now)
{
    unsigned room = columns() - 1;
    put("\r", 1);
    put(line, len < room ? len : room);
    put("\033[K", 3);
    term.drawn = true;
    term.drawn_ns = now;
}

static void draw_locked(uint64_t done, uint64_t total, int64_t now)
{
    double seconds = (double)(now - term.start_ns) / (double)NS_PER_S;
    double rate = seconds > 0 ? (double)done / seconds : 0;
    char of[TEXT_SIZE_MAX], all[TEXT_SIZE_MAX], speed[TEXT_SIZE_MAX], eta[32] = "", line[256];
    text_size(done, of);
    text_size(total, all);
    text_size(rate < 1e18 ? (uint64_t)rate : 0, speed);
    /* The first second's rate says nothing of the rest. */
    if (seconds >= 1 && rate > 0 && done <= total) {
        double left = (double)(total - done) / rate;
        if (left < 360000)
            snprintf(eta, sizeof(eta), "  ETA %u:%02u:%02u", (unsigned)left / 3600,
                     (unsigned)left / 60 % 60, (unsigned)left % 60);
    }
    double percent = total && done < total ? (double)done / (double)total * 100 : 100;
    int n = snprintf(line, sizeof(line), "%s %3.0f%%  %s of %s  %s/s%s", term.title,
                     percent > 99 && done < total ? 99 : percent, of, all, speed, eta);
    if (n > 0)
        draw_line_locked(line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1, now);
}

void term_progress_line(const char *fmt, ...)
{
    if (!term.bar)
        return;
    int64_t now = clock_monotonic();
    pthread_mutex_lock(&term.lock);
    if (!term.drawn || now - term.drawn_ns >= REDRAW_NS) {
        char line[256];
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(line, sizeof(line), fmt, ap);
        va_end(ap);
        if (n > 0)
            draw_line_locked(line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1, now);
    }
    pthread_mutex_unlock(&term.lock);
}

static void report(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    int64_t now = clock_monotonic();
    pthread_mutex_lock(&term.lock);
    if (!term.drawn || now - term.drawn_ns >= REDRAW_NS)
        draw_locked(done, total, now);
    pthread_mutex_unlock(&term.lock);
}

struct cairn_progress term_progress(const char *title)
{
    if (!term.bar)
        return (struct cairn_progress){0};
    pthread_mutex_lock(&term.lock);
    snprintf(term.title, sizeof(term.title), "%s", title);
    term.start_ns = clock_monotonic();
    term.drawn_ns = 0;
    pthread_mutex_unlock(&term.lock);
    return (struct cairn_progress){.report = report};
}

void term_progress_end(void)
{
    pthread_mutex_lock(&term.lock);
    clear_locked();
    pthread_mutex_unlock(&term.lock);
}
