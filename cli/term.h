/* Standard error: messages, and a progress bar where it is a terminal. A message takes the bar away
 * first. Thread-safe. */
#ifndef CAIRN_CLI_TERM_H
#define CAIRN_CLI_TERM_H

#include "base/log.h"
#include "store/cairn.h"

/* bar: progress is wanted (it still needs a terminal that can move its cursor). Before the first
 * thread. */
void term_init(bool bar);

/* "cairn: …" and a line feed, with odd bytes escaped. */
void term_line(const char *fmt, ...) CAIRN_PRINTF(1, 2);

/* For log_set_sink. */
void term_log(void *ctx, enum log_level level, const char *line);

/* Show a bar titled so (kept until the end; cut to fit) from the first report on. The result is to
 * be given to one call of the library; its report is NULL where no bar is shown. */
struct cairn_progress term_progress(const char *title);
/* The same for work whose end is not known: a line of text, drawn some times a second. */
void term_progress_line(const char *fmt, ...) CAIRN_PRINTF(1, 2);
/* Take the bar away. */
void term_progress_end(void);

#endif
