/* Open packs of a local backend: the most recently used stay open, and what was verified of them
 * is remembered for as long. Thread-safe. */
#ifndef CAIRN_STORE_PACK_FILES_H
#define CAIRN_STORE_PACK_FILES_H

#include "base/op.h"
#include "store/ids.h"

#include <stdbool.h>
#include <stdint.h>

struct cairn_store;

struct pack_files;
CAIRN_MUST_CHECK int pack_files_new(struct pack_files **out, struct cairn_error *err);
void pack_files_free(struct pack_files *p); /* NULL is allowed */

/* One use of an open pack. fd is borrowed until pack_file_put; -1 where objects are no files. */
struct pack_file {
    int fd;
    struct pack_entry_ref *ref; /* private */
};
/* not_found: the pack is gone. */
CAIRN_MUST_CHECK int pack_file_get(struct cairn_store *s, const struct cairn_op *op,
                                   const uint8_t pack[PACK_ID_LEN], struct pack_file *out,
                                   struct cairn_error *err);
void pack_file_put(struct cairn_store *s, struct pack_file *f);

/* Let go of packs that nobody uses and that were deleted meanwhile, so that their space comes back:
 * from time to time. */
void pack_files_tidy(struct pack_files *p);

/* Whether the raw chunk at offset was verified while the pack was open, and that it was. Only for
 * one with a descriptor. */
bool pack_file_verified(const struct pack_file *f, uint32_t offset);
void pack_file_set_verified(const struct pack_file *f, uint32_t offset);

#endif
