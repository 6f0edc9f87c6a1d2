/* Which generation a file resembles: a host that saves one virtual machine again and again, each
 * time under a new id, says nowhere what came from what. So of the large files of generations that
 * were published or opened here lately some chunks are remembered, by place and keyed XXH3-128, and
 * a new file of the same name and size is compared with them at those places.
 *
 * Only in a store on a local file system: of a bucket, each chunk that is encoded against another
 * would have to be fetched first.
 *
 * What is found is only good for encoding chunks against (ingest.h: base_only). Thread-safe. */
#ifndef CAIRN_STORE_KIN_H
#define CAIRN_STORE_KIN_H

#include "store/manifest.h"
#include "store/store.h"

struct kin;

/* Errors: internal (memory). */
CAIRN_MUST_CHECK int kin_new(struct kin **out, struct cairn_error *err);
void kin_free(struct kin *k); /* NULL is allowed */

/* File i of m (all of them if i is UINT32_MAX) is something that a new one may resemble. Those that
 * are too small do not count. Never fails: what is not remembered is not found. */
void kin_remember(struct kin *k, const struct manifest *m, uint32_t i);

/* The manifest of the generation whose file path the file behind fd (open for reading, of size
 * bytes) resembles most; owned by the caller. NULL: of none a quarter is the same, or
 * the store is no local one. */
struct manifest *kin_find(struct kin *k, struct cairn_store *s, const struct cairn_op *op, int fd,
                          const char *path, uint64_t size);

#endif
