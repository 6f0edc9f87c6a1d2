/* The format of a pack: header, chunks, index, trailer (docs/format.md). Pure functions over bytes;
 * who reads and writes the file is elsewhere (pack_writer.h, reader.h). */
#ifndef CAIRN_STORE_PACK_H
#define CAIRN_STORE_PACK_H

#include "base/buf.h"
#include "store/chunk.h"

#define PACK_VERSION     1
#define PACK_SIZE_MAX    (64u * 1024 * 1024) /* whole object, index and trailer included */
#define PACK_HEADER_LEN  64
#define PACK_ENTRY_LEN   80
#define PACK_TRAILER_LEN 64
#define PACK_RAW_ALIGN   4096

/* One chunk as the pack's own index tells it. base_sha is zero unless encoding is
 * CHUNK_ZSTD_BASE. */
struct pack_entry {
    uint8_t sha[SHA256_LEN];
    uint8_t base_sha[SHA256_LEN];
    uint32_t offset, stored_len, plain_len;
    uint8_t encoding;
};

void pack_header_encode(const uint8_t pack[PACK_ID_LEN], uint32_t chunk_size,
                        uint8_t out[PACK_HEADER_LEN]);

/* Append index and trailer for a pack whose chunks end at offset index_off. header: the bytes that
 * stand at its start. */
CAIRN_MUST_CHECK int pack_index_encode(const uint8_t header[PACK_HEADER_LEN], uint64_t index_off,
                                       const struct pack_entry *entries, uint32_t n,
                                       struct buf *out, struct cairn_error *err);

/* Where the index of a pack of this size lies, from its last PACK_TRAILER_LEN bytes. Corrupt if
 * the trailer is none, of another version (corrupt too, in words), or points outside. */
CAIRN_MUST_CHECK int pack_trailer_decode(const uint8_t trailer[PACK_TRAILER_LEN],
                                         uint64_t pack_size, uint64_t *index_off, uint32_t *n,
                                         struct cairn_error *err);

/* index: the n * PACK_ENTRY_LEN bytes at index_off; header and trailer as read. Checks the checksum
 * over header, index and trailer, the pack's own name, and every entry's bounds (inside header and
 * index, raw ones aligned, plain_len 1 to the header's chunk size, known encoding). *entries is
 * owned by the caller (free). chunk_size may be NULL. */
CAIRN_MUST_CHECK int pack_index_decode(const uint8_t pack[PACK_ID_LEN],
                                       const uint8_t header[PACK_HEADER_LEN], const uint8_t *index,
                                       uint64_t index_off, uint32_t n,
                                       const uint8_t trailer[PACK_TRAILER_LEN],
                                       struct pack_entry **entries, uint32_t *chunk_size,
                                       struct cairn_error *err);

#endif
