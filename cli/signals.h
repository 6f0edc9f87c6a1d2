/* SIGINT, SIGTERM and SIGHUP, taken by a thread of their own: the first one fires a cancel token,
 * so that the work ends by its usual error path and leaves nothing half-made; a second one ends the
 * process at once. A signal that the process was started with ignored (nohup, a background job)
 * stays ignored. SIGPIPE is ignored: a closed pipe is an error of write(2). */
#ifndef CAIRN_CLI_SIGNALS_H
#define CAIRN_CLI_SIGNALS_H

#include "base/op.h"

/* Block them in this thread and all it will start. To be called first. */
void signals_block(void);
/* Errors: transient, internal. cancel is borrowed until signals_stop. */
CAIRN_MUST_CHECK int signals_start(struct cairn_cancel *cancel, struct cairn_error *err);
void signals_stop(void); /* also where start failed or was never called */
/* The signal that fired the token, or 0. */
int signals_taken(void);

#endif
