/* A backend in memory: like a bucket (etags, no locks, no local files, nothing to stage), with a
 * clock of its own. Thread-safe. */
#ifndef CAIRN_TESTS_BACKEND_MEM_H
#define CAIRN_TESTS_BACKEND_MEM_H

#include "store/backend.h"

/* An empty store. The caller owns *out until backend_free. */
CAIRN_MUST_CHECK int backend_mem_new(struct backend **out, struct cairn_error *err);

/* One more backend on the store of b, as another process would have. The store lives as long as one
 * of its backends. */
CAIRN_MUST_CHECK int backend_mem_share(struct backend *b, struct backend **out,
                                       struct cairn_error *err);

/* The store's clock gives the mtime of what is written. It starts at 2020-01-01 and stands still
 * but for this. ns may be negative. */
void backend_mem_advance(struct backend *b, int64_t ns);
int64_t backend_mem_now(struct backend *b);

/* Change one stored byte, as rot would: it is xored with mask. False: no such key or offset. */
bool backend_mem_damage(struct backend *b, const char *key, uint64_t off, uint8_t mask);

/* Objects, and uploads begun and not yet committed or aborted. */
size_t backend_mem_objects(struct backend *b);
size_t backend_mem_uploads(struct backend *b);

#endif
