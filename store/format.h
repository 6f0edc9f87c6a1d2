/* format.json: what a store is (docs/format.md). Written once by init, read at every open. */
#ifndef CAIRN_STORE_FORMAT_H
#define CAIRN_STORE_FORMAT_H

#include "base/buf.h"
#include "base/hash.h"

#include <stdint.h>

#define FORMAT_VERSION  1
#define FORMAT_MAX      65536 /* bytes of a format.json that is read */
#define FORMAT_STORE_ID 32    /* hex digits */

enum format_compression { FORMAT_ZSTD = 0, FORMAT_NONE = 1 };

struct store_format {
    uint32_t version;
    uint32_t min_reader, min_writer, min_sweeper; /* versions of the program's format code */
    uint32_t chunk_size;                          /* power of two, CHUNK_SIZE_MIN to _MAX */
    enum format_compression compression;
    char store_id[FORMAT_STORE_ID + 1]; /* random hex */
    uint8_t secret[XXH3_SECRET_LEN];    /* key of the chunks' XXH3 */
};

/* A new store's: random id and secret. Invalid for a bad chunk size. */
CAIRN_MUST_CHECK int format_new(uint32_t chunk_size, enum format_compression compression,
                                struct store_format *out, struct cairn_error *err);
CAIRN_MUST_CHECK int format_encode(const struct store_format *f, struct buf *out,
                                   struct cairn_error *err);
/* corrupt: not what format_encode wrote (its checksum covers everything). permanent: intact, but
 * its version or min_reader is newer than FORMAT_VERSION, said in words. Members not known are
 * allowed (a newer minor writer) and ignored. */
CAIRN_MUST_CHECK int format_decode(const void *data, size_t len, struct store_format *out,
                                   struct cairn_error *err);

#endif
