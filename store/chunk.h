/* A stored chunk: what it is (SHA-256 of its plain bytes) and where it lies. Plain data. */
#ifndef CAIRN_STORE_CHUNK_H
#define CAIRN_STORE_CHUNK_H

#include "base/hash.h"
#include "store/ids.h"

#include <stdbool.h>
#include <stdint.h>

#define CHUNK_SIZE_MIN     4096u
#define CHUNK_SIZE_MAX     (1024u * 1024u)
#define CHUNK_SIZE_DEFAULT 65536u

/* A power of two from CHUNK_SIZE_MIN to CHUNK_SIZE_MAX. */
static inline bool chunk_size_is_valid(uint32_t size)
{
    return size >= CHUNK_SIZE_MIN && size <= CHUNK_SIZE_MAX && (size & (size - 1)) == 0;
}

/* How the stored bytes make the plain ones. The numbers are in the format. */
enum chunk_encoding {
    CHUNK_RAW = 0,
    CHUNK_ZSTD = 1,      /* one zstd frame with its content size */
    CHUNK_ZSTD_BASE = 2, /* the same, with the base chunk's plain bytes as prefix (refPrefix) */
};

struct chunk_loc {
    uint8_t pack[PACK_ID_LEN];
    uint32_t offset;     /* of the stored bytes in the pack */
    uint32_t stored_len; /* bytes in the pack */
    uint32_t plain_len;  /* 0: not known here (a manifest's base chunk) */
    uint8_t encoding;    /* enum chunk_encoding */
};

struct chunk {
    uint8_t sha[SHA256_LEN];
    struct chunk_loc loc;
    /* only with CHUNK_ZSTD_BASE; a base is never itself based */
    uint8_t base_sha[SHA256_LEN];
    struct chunk_loc base;
};

#endif
