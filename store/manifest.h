/* The manifest of a generation (docs/format.md): which files, of which sizes, with which chunks,
 * and where each chunk lies. It is read in place from one block of memory (loaded or mapped).
 *
 * A struct manifest is immutable once decoded: any number of threads may read it. A manifest that
 * fails its trailer, its header checksum, its bounds or its version does not decode: corrupt. */
#ifndef CAIRN_STORE_MANIFEST_H
#define CAIRN_STORE_MANIFEST_H

#include "base/buf.h"
#include "base/op.h"
#include "store/chunk.h"

#define MANIFEST_VERSION     1
#define MANIFEST_HEADER_LEN  320
#define MANIFEST_FILE_LEN    48
#define MANIFEST_EXTENT_LEN  16
#define MANIFEST_CHUNK_LEN   64
#define MANIFEST_CONTENT_LEN 16
/* Largest manifest that is read into memory: 4 Gi of chunk entries would not be. */
#define MANIFEST_MAX ((size_t)1 << 34)

/* Path rules of an export: relative, no empty, "." or ".." component, components of at most 255
 * bytes, at most 4095 bytes in all, no NUL; otherwise any bytes. */
#define MANIFEST_PATH_MAX 4095
bool manifest_path_is_valid(const char *path, size_t len);

/* What stands in the header; readable from its MANIFEST_HEADER_LEN bytes alone. */
struct manifest_info {
    char id[ID_MAX + 1];
    char gen[GEN_TEXT];
    char parent_id[ID_MAX + 1]; /* "" without a parent */
    char parent_gen[GEN_TEXT];  /* "" without a parent */
    uint32_t chunk_size;
    int64_t created_ns;
    uint64_t logical_bytes; /* sum of the files' sizes */
    uint64_t data_bytes;    /* plain bytes outside holes and zero chunks */
    uint64_t stored_bytes;  /* stored bytes of the chunks named, each once, bases too */
    uint32_t n_files, n_extents, n_chunks, n_packs;
    bool has_digest;
    uint8_t digest[SHA256_LEN];
    uint32_t writer_version; /* major << 16 | minor << 8 | patch; to encode: 0 is this program's */
    uint64_t total_len;      /* of the whole manifest */
};

CAIRN_MUST_CHECK int manifest_header_decode(const uint8_t header[MANIFEST_HEADER_LEN],
                                            struct manifest_info *out, struct cairn_error *err);

struct manifest;

/* data is transferred: freed with free() by manifest_free, also when this fails. id and gen: what
 * the key said; a manifest of another one is corrupt. NULL: not checked. */
CAIRN_MUST_CHECK int manifest_decode(uint8_t *data, size_t len, const char *id, const char *gen,
                                     struct manifest **out, struct cairn_error *err);
/* The same of what manifest_rename has just made of a manifest that was decoded: nothing is checked
 * again, which for a large one is most of the time that a fork takes. */
CAIRN_MUST_CHECK int manifest_adopt(uint8_t *data, size_t len, struct manifest **out,
                                    struct cairn_error *err);
void manifest_free(struct manifest *m); /* NULL is allowed */
void manifest_freep(struct manifest **m);
#define CLEANUP_MANIFEST __attribute__((cleanup(manifest_freep)))

/* Compute the content key of every file again; corrupt if one is wrong. For verify: decode does not
 * do it, since it takes as long as the files have chunks, which a small manifest may claim many of.
 */
CAIRN_MUST_CHECK int manifest_check_content(const struct manifest *m, const struct cairn_op *op,
                                            struct cairn_error *err);

const struct manifest_info *manifest_info(const struct manifest *m);
/* The whole encoded form, borrowed. */
const uint8_t *manifest_bytes(const struct manifest *m, size_t *len);

struct manifest_file {
    const char *path; /* borrowed, not terminated */
    uint32_t path_len;
    uint64_t size;
    uint64_t data_bytes;
    uint8_t content[MANIFEST_CONTENT_LEN]; /* equal for files with equal size and bytes */
    uint32_t first_extent, n_extents;
};

/* Files are in the order of their paths' bytes. i < n_files. */
void manifest_file(const struct manifest *m, uint32_t i, struct manifest_file *out);
/* Index of the file, or -1. */
int64_t manifest_find(const struct manifest *m, const char *path, size_t len);

/* A run of chunks: file chunks chunk_no .. chunk_no + count - 1 are the manifest's chunks first ..
 * first + count - 1. Extents of a file are in order and do not overlap; what none covers is zero.
 */
struct manifest_extent {
    uint64_t chunk_no;
    uint32_t count, first;
};

void manifest_extent(const struct manifest *m, uint32_t i, struct manifest_extent *out);

/* What holds file chunk chunk_no: the manifest's chunk (*chunk), or a hole (returns false). *run:
 * how many file chunks from chunk_no on the answer holds for in a row (with consecutive chunks); at
 * the end of the file it may reach past it. O(log n_extents). */
bool manifest_lookup(const struct manifest *m, const struct manifest_file *f, uint64_t chunk_no,
                     uint32_t *chunk, uint64_t *run);

/* Chunk i with its base, if it has one. plain_len is 0: the file's size gives it. */
void manifest_chunk(const struct manifest *m, uint32_t i, struct chunk *out);
/* The keyed XXH3-128 of chunk i, borrowed, XXH3_LEN bytes. */
const uint8_t *manifest_chunk_xxh(const struct manifest *m, uint32_t i);
/* Index of the base of chunk i, or UINT32_MAX. */
uint32_t manifest_chunk_base(const struct manifest *m, uint32_t i);
/* Pack i < n_packs, borrowed, PACK_ID_LEN bytes. Every pack named by a chunk is there once. */
const uint8_t *manifest_pack(const struct manifest *m, uint32_t i);
/* The number in the pack table of chunk i's pack. */
uint32_t manifest_chunk_pack(const struct manifest *m, uint32_t i);

/* Whether two manifests describe the same files: paths, sizes and bytes. */
bool manifest_same_export(const struct manifest *a, const struct manifest *b);

/* Building. Calls in this order: new, then for each file, in the order of paths: file_begin, its
 * chunks by ascending chunk_no, file_end; then encode; then free. Not thread-safe.
 *
 * Chunks are told apart by SHA-256: adding one that is known already makes a reference to it. */
struct manifest_builder;

CAIRN_MUST_CHECK int manifest_builder_new(uint32_t chunk_size, struct manifest_builder **out,
                                          struct cairn_error *err);
void manifest_builder_free(struct manifest_builder *b); /* NULL is allowed */
/* Invalid: a path that breaks the rules, is not greater than the last one, or lies below a file. */
CAIRN_MUST_CHECK int manifest_builder_file_begin(struct manifest_builder *b, const char *path,
                                                 size_t len, uint64_t size,
                                                 struct cairn_error *err);
/* The location that the manifest already has for this chunk; false if it has none. */
bool manifest_builder_find(const struct manifest_builder *b, const uint8_t sha[SHA256_LEN],
                           struct chunk *out);
CAIRN_MUST_CHECK int manifest_builder_chunk(struct manifest_builder *b, uint64_t chunk_no,
                                            const struct chunk *chunk, const uint8_t xxh[XXH3_LEN],
                                            struct cairn_error *err);
CAIRN_MUST_CHECK int manifest_builder_file_end(struct manifest_builder *b, struct cairn_error *err);
/* info: id, gen, parent_id, parent_gen, created_ns, digest, writer_version; the rest is counted
 * here. *data is owned by the caller (free). The builder may only be freed afterwards.
 * Internal, with the reason: what was added would not make a manifest that decodes. */
CAIRN_MUST_CHECK int manifest_builder_encode(struct manifest_builder *b,
                                             const struct manifest_info *info, uint8_t **data,
                                             size_t *len, struct cairn_error *err);

/* The same export under another name: a copy of m with id, gen, parent and created_ns of info (and
 * m's own digest, or info's if it has one). O(size of the manifest). */
CAIRN_MUST_CHECK int manifest_rename(const struct manifest *m, const struct manifest_info *info,
                                     uint8_t **data, size_t *len, struct cairn_error *err);

/* The same export with chunks moved: a copy of m in which chunk i lies at locs[i]
 * (loc.pack, offset, stored_len and encoding; a chunk that becomes RAW or ZSTD loses its base). */
CAIRN_MUST_CHECK int manifest_relocate(const struct manifest *m, const struct chunk_loc *locs,
                                       uint8_t **data, size_t *len, struct cairn_error *err);

#endif
