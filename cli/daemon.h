/* Running a command in the background: the program is started once more, by itself, as the leader
 * of a session without a terminal, and whoever started it waits until it says that it is ready or
 * has failed. (A fork alone would leave the threads behind that the first one has made already.)
 *
 *   foreground process               background process (the same command line)
 *   daemon_start: starts it, waits   daemon_is_child() is true
 *                                    …: opens, mounts; messages go to the first one's terminal
 *   returns its success              daemon_ready: from here on messages go to syslog, standard
 *                                    descriptors to /dev/null
 *   or its error                     daemon_failed: takes the error across                       */
#ifndef CAIRN_CLI_DAEMON_H
#define CAIRN_CLI_DAEMON_H

#include "base/log.h"
#include "base/op.h"

#include <stdbool.h>

bool daemon_is_child(void);

/* Errors: the background process's own; internal if it ended without a word. When op ends, so does
 * the background process. */
CAIRN_MUST_CHECK int daemon_start(const struct cairn_op *op, struct cairn_error *err);

/* In the background process, or (nothing happens) in one that was not started so. */
void daemon_ready(void);
void daemon_failed(const struct cairn_error *err);

/* For log_set_sink: standard error until daemon_ready, then syslog. */
void daemon_log(void *ctx, enum log_level level, const char *line);

#endif
