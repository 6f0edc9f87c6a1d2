/* Writing packs: chunks go in, one after the other; a full pack is sealed (index, fsync, renamed
 * into place, entered in the local index) by the store's I/O threads while the next one fills.
 *
 * One thread uses a writer. A location is known as soon as a chunk is added; it is durable only
 * after pack_writer_finish succeeded. Packs sealed before a failure stay behind without a
 * reference: the next try finds their chunks again, or the collector takes them. */
#ifndef CAIRN_STORE_PACK_WRITER_H
#define CAIRN_STORE_PACK_WRITER_H

#include "store/chunk.h"
#include "store/store.h"

struct pack_writer;

/* store and op are borrowed until free. */
CAIRN_MUST_CHECK int pack_writer_new(struct cairn_store *store, const struct cairn_op *op,
                                     struct pack_writer **out, struct cairn_error *err);
/* Abandons what is not sealed; waits for seals that run. NULL is allowed. */
void pack_writer_free(struct pack_writer *w);

/* chunk: sha, base_sha and loc.encoding, loc.plain_len are taken; its loc.pack, offset and
 * stored_len are filled in. stored: the len encoded bytes. */
CAIRN_MUST_CHECK int pack_writer_add(struct pack_writer *w, struct chunk *chunk, const void *stored,
                                     size_t len, struct cairn_error *err);
/* Seal what is open and wait until every pack is durable. */
CAIRN_MUST_CHECK int pack_writer_finish(struct pack_writer *w, struct cairn_error *err);

#endif
