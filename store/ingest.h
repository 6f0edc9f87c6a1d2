/* From staged files to chunks in packs and a manifest being built: steps 1 to 3 of publishing.
 *
 * The caller's thread hands out batches of a file, in order, to the store's pool (read, hash, look
 * up, encode) and takes their results back in the same order, so that packs lie in the order of the
 * files and memory stays bounded at any size. */
#ifndef CAIRN_STORE_INGEST_H
#define CAIRN_STORE_INGEST_H

#include "store/manifest.h"
#include "store/pack_set.h"
#include "store/store.h"
#include "store/walk.h"

struct ingest_options {
    const struct walk *files;
    /* NULL, or for each file a descriptor to read it by (borrowed); files then needs no root. */
    const int *open_files;
    const struct manifest *parent; /* NULL: none; of the store's chunk size */
    /* parent only resembles the export: its chunks are good for encoding against, but every chunk
     * is told apart by its SHA-256. */
    bool base_only;
    const struct pack_set *banned; /* packs that must not be referred to; NULL: none */
    /* NULL, or for each file NULL or a manifest that has just this file's chunks (as its file 0;
     * the path does not matter), which is then not read again: of the file's size and the store's
     * chunk size, without banned packs. The caller answers for the file being unchanged since. Not
     * together with digest, which needs the bytes. */
    const struct manifest *const *known;
    bool digest;
    /* Store nothing: stop at the first chunk that parent does not have (result->differs). */
    bool compare_only;
    const struct cairn_progress *progress; /* may be NULL */
};

struct ingest_result {
    struct manifest_builder *builder; /* owned by the caller */
    uint8_t digest[SHA256_LEN];
    uint64_t chunks, new_chunks, new_bytes, stored_bytes;
    bool differs;
};

/* On success every chunk is durable. On failure result is empty. Errors as cairn_publish. */
CAIRN_MUST_CHECK int ingest_run(struct cairn_store *s, const struct cairn_op *op,
                                const struct ingest_options *options, struct ingest_result *result,
                                struct cairn_error *err);

#endif
