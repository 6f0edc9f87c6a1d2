/* Sample objects of every binary format, the same at every call: what the golden fixtures were made
 * of, what the format tests bend, and what the fuzzers start from. All functions end the test on
 * failure. */
#ifndef CAIRN_TESTS_SAMPLES_H
#define CAIRN_TESTS_SAMPLES_H

#include "base/buf.h"
#include "store/format.h"
#include "store/manifest.h"
#include "store/pack.h"

/* Chunk n: SHA and keyed hash that depend on n, at a raw place in pack n_pack. */
void sample_chunk(uint32_t n, uint32_t n_pack, uint32_t plain_len, struct chunk *out,
                  uint8_t xxh[XXH3_LEN]);
/* The same, as a zstd chunk of stored_len bytes. */
void sample_zstd(uint32_t n, uint32_t n_pack, uint32_t stored_len, struct chunk *out,
                 uint8_t xxh[XXH3_LEN]);
/* The same, based on chunk n_base (raw, of full length base_len). */
void sample_based(uint32_t n, uint32_t n_pack, uint32_t stored_len, uint32_t n_base,
                  uint32_t base_len, struct chunk *out, uint8_t xxh[XXH3_LEN]);
void sample_pack_id(uint32_t n, uint8_t out[PACK_ID_LEN]);

/* Digest, parent, nested and non-UTF-8 names, holes, an empty file, a 64 GiB file with few chunks,
 * shared, short, zstd and based chunks. data: free(). */
void sample_info(struct manifest_info *out);
void sample_manifest(uint8_t **data, size_t *len);
/* As sample_manifest without digest, parent, files. */
void sample_empty_manifest(uint8_t **data, size_t *len);

/* A whole pack object with raw, zstd and based chunks. */
#define SAMPLE_PACK_ENTRIES 3
void sample_pack(struct buf *out, uint8_t pack[PACK_ID_LEN],
                 struct pack_entry entries[SAMPLE_PACK_ENTRIES]);
void sample_format(struct store_format *out);

/* Make the checksums right again after bytes were changed. Too short: left alone. */
void sample_reseal_manifest(uint8_t *data, size_t len);
void sample_reseal_pack(uint8_t *data, size_t len);
void sample_reseal_format(uint8_t *data, size_t len);

#endif
