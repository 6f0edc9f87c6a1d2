/* What was removed of records in this mount and is still in the store: a recursive remove takes
 * away file after file, but a generation goes in one step, at the end. A remove that does not go
 * on for HIDDEN_NS, or the end of the mount, lets everything show again. Thread-safe. */
#ifndef CAIRN_FUSE_SPOOL_HIDDEN_H
#define CAIRN_FUSE_SPOOL_HIDDEN_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define HIDDEN_NS ((int64_t)600 * 1000000000)

struct hidden;

CAIRN_MUST_CHECK int hidden_new(struct hidden **out, struct cairn_error *err);
void hidden_free(struct hidden *h); /* NULL is allowed */

/* name: as spool_hides has it. Errno. */
int hidden_add(struct hidden *h, const char *id, const char *name);
bool hidden_has(struct hidden *h, const char *id, const char *name);
/* name and what lies below it, or ("") everything of the record, shows again. */
void hidden_drop(struct hidden *h, const char *id, const char *name);

#endif
