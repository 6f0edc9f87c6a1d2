/* Which leases end with which connection. Thread-safe; no call blocks. */
#ifndef CAIRN_SERVICE_BINDINGS_H
#define CAIRN_SERVICE_BINDINGS_H

#include "store/cairn.h"

struct bindings;

/* The caller owns *out. Errors: internal. */
CAIRN_MUST_CHECK int bindings_new(struct bindings **out, struct cairn_error *err);
void bindings_free(struct bindings *b); /* NULL is allowed */

/* internal: memory. */
CAIRN_MUST_CHECK int bindings_add(struct bindings *b, uint64_t connection, const char *lease,
                                  struct cairn_error *err);
/* Absent is fine. */
void bindings_remove(struct bindings *b, const char *lease);
/* Take one lease of the connection out; false: it has none. */
bool bindings_take(struct bindings *b, uint64_t connection, char lease[CAIRN_LEASE_TEXT]);
uint64_t bindings_count(struct bindings *b);

#endif
