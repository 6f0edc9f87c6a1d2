/* Log lines of the service, on standard error: on a terminal "LEVEL text", else "<N>text" with the
 * priority that journald reads, and the time where it is not journald that reads. */
#ifndef CAIRN_SERVICE_JOURNAL_H
#define CAIRN_SERVICE_JOURNAL_H

#include "base/log.h"

/* Become the sink. Before the first thread. */
void journal_start(enum log_level level);
/* From any thread. */
void journal_set_level(enum log_level level);

#endif
