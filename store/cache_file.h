/* The file that holds what the cache has of one pack (docs/format.md): a header, a map of fixed
 * records, and plain chunks, each at a place of its own. Record k says which chunk lies at place k.
 *
 * It is shared by processes that may be killed at any moment. Records are only ever added, under a
 * lock that dies with its holder, and a place is never given to another chunk, so whoever knows a
 * record may write that chunk's bytes to its place at any time, also twice at once: they are the
 * same bytes. A record says nothing about whether the bytes are there: readers verify them. So
 * nothing needs to be durable in any order.
 *
 * Functions do I/O and keep no state; p names the pack and the store's key for checksums. */
#ifndef CAIRN_STORE_CACHE_FILE_H
#define CAIRN_STORE_CACHE_FILE_H

#include "store/chunk.h"

#include <stdbool.h>

#define CACHE_FILE_VERSION 1u
#define CACHE_HEADER_LEN   4096u
#define CACHE_RECORD_LEN   16u
#define CACHE_DATA_AT      (2u * 1024 * 1024)
#define CACHE_PLACES       ((CACHE_DATA_AT - CACHE_HEADER_LEN) / CACHE_RECORD_LEN)

struct cache_file {
    const uint8_t *secret; /* borrowed, XXH3_SECRET_LEN bytes */
    const uint8_t *pack;   /* borrowed, PACK_ID_LEN bytes */
    uint32_t chunk_size;
};

struct cache_record {
    uint32_t offset;    /* of the chunk in the pack; 0: the record is damaged, its place lost */
    uint32_t plain_len; /* 1 to chunk_size */
};

static inline uint64_t cache_file_at(const struct cache_file *p, uint32_t place)
{
    return CACHE_DATA_AT + (uint64_t)place * p->chunk_size;
}

/* Open for reading and writing. create: make it if it is absent, and anew if its header is not
 * ours; else that is not_found. */
CAIRN_MUST_CHECK int cache_file_open(const struct cache_file *p, const char *path, bool create,
                                     int *fd, struct cairn_error *err);

/* Records from number `from` on, for as long as there are any: fn for each, with its number. *end
 * is the number of the first that is not there. Without the lock, a damaged one ends it too: it may
 * be one that is being written. */
typedef void cache_file_fn(void *ctx, uint32_t place, const struct cache_record *record);
CAIRN_MUST_CHECK int cache_file_records(const struct cache_file *p, int fd, bool locked,
                                        uint32_t from, cache_file_fn *fn, void *ctx, uint32_t *end,
                                        struct cairn_error *err);

/* n records from number `at` on, which cache_file_records, under the same lock, said is the end.
 * busy with EFBIG: the map is full, nothing was written. */
CAIRN_MUST_CHECK int cache_file_append(const struct cache_file *p, int fd, uint32_t at,
                                       const struct cache_record *records, uint32_t n,
                                       struct cairn_error *err);

/* The lock for adding records; it belongs to the open file description of fd and ends when that is
 * closed. False: somebody has held it for a tenth of a second, or it cannot be had. */
CAIRN_MUST_CHECK bool cache_file_lock(int fd);

#endif
