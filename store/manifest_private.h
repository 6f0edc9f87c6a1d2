/* What the files of the manifest share: offsets of the format's fields, the table that the builder
 * and the rewriter intern chunks and packs in, and the last step that makes bytes of the parts. */
#ifndef CAIRN_STORE_MANIFEST_PRIVATE_H
#define CAIRN_STORE_MANIFEST_PRIVATE_H

#include "base/util.h"
#include "store/manifest.h"
#include "store/pack.h"

#define MANIFEST_MAGIC       "CAIRNMF1"
#define MANIFEST_PACK_LEN    PACK_ID_LEN
#define MANIFEST_TRAILER_LEN SHA256_LEN
#define MANIFEST_NO_BASE     UINT32_MAX

/* Byte offsets inside the header. */
enum {
    MH_MAGIC = 0,
    MH_VERSION = 8,
    MH_HEADER_LEN = 12,
    MH_CHUNK_SIZE = 16,
    MH_FLAGS = 20,
    MH_TOTAL_LEN = 24,
    MH_CREATED = 32,
    MH_LOGICAL = 40,
    MH_DATA = 48,
    MH_STORED = 56,
    MH_N_FILES = 64,
    MH_N_EXTENTS = 68,
    MH_N_CHUNKS = 72,
    MH_N_PACKS = 76,
    MH_FILES_OFF = 80,
    MH_EXTENTS_OFF = 88,
    MH_CHUNKS_OFF = 96,
    MH_PACKS_OFF = 104,
    MH_NAMES_OFF = 112,
    MH_NAMES_LEN = 120,
    MH_DIGEST = 128,
    MH_GEN = 160,
    MH_PARENT_GEN = 168,
    MH_ID = 176,
    MH_PARENT_ID = 216,
    MH_ID_LEN = 40,
    MH_WRITER = 256,
    MH_RESERVED = 260,
    MH_SHA = 288,
};

enum { MANIFEST_HAS_DIGEST = 1, MANIFEST_HAS_PARENT = 2 };

/* Byte offsets inside a file, an extent and a chunk entry. */
enum {
    MF_SIZE = 0,
    MF_DATA = 8,
    MF_NAME_OFF = 16,
    MF_NAME_LEN = 20,
    MF_FIRST_EXTENT = 24,
    MF_N_EXTENTS = 28,
    MF_CONTENT = 32,
    ME_CHUNK_NO = 0,
    ME_COUNT = 8,
    ME_FIRST = 12,
    MC_SHA = 0,
    MC_XXH = 32,
    MC_PACK = 48,
    MC_OFFSET = 52,
    MC_STORED = 56, /* stored length, low 24 bits; encoding, high 8 */
    MC_BASE = 60,
};

struct manifest {
    uint8_t *data; /* owned */
    size_t len;
    struct manifest_info info;
    /* into data */
    const uint8_t *files, *extents, *chunks, *packs, *names;
    uint32_t names_len;
};

/* Where the tables lie: the only layout that is written or read. */
struct manifest_layout {
    uint64_t files, extents, chunks, packs, names, trailer, total;
};

void manifest_layout_of(const struct manifest_info *info, uint32_t names_len,
                        struct manifest_layout *out);

/* The header of these values; total_len of info is computed. Invalid for an id, a generation or a
 * parent that is none. */
CAIRN_MUST_CHECK int manifest_header_encode(const struct manifest_info *info, uint32_t names_len,
                                            uint8_t out[MANIFEST_HEADER_LEN],
                                            struct cairn_error *err);
/* Write the trailer of len bytes (trailer included). */
CAIRN_MUST_CHECK int manifest_seal(uint8_t *data, size_t len, struct cairn_error *err);
/* Of the running program, as in the header. */
uint32_t manifest_writer_version(void);

/* Everything behind the header of a manifest whose header, length and trailer are right. */
CAIRN_MUST_CHECK int manifest_check_tables(const struct manifest *m, struct cairn_error *err);

static inline uint64_t manifest_file_chunks(uint64_t size, uint32_t chunk_size)
{
    return size / chunk_size + (size % chunk_size != 0);
}

/* Plain length of file chunk chunk_no, which lies inside the file. */
static inline uint32_t manifest_plain_len(uint64_t size, uint32_t chunk_size, uint64_t chunk_no)
{
    uint64_t left = size - chunk_no * chunk_size;
    return left < chunk_size ? (uint32_t)left : chunk_size;
}

/* NULL, or what is wrong with a chunk's location by itself. */
const char *manifest_loc_fault(uint32_t offset, uint32_t stored_len, uint8_t encoding,
                               uint32_t chunk_size);

/* Watches paths go by in order. A path that has another file as its folder need not follow that
 * file directly ("a", "a-b", "a/c"): the files that are prefixes of the last path are kept. */
struct path_order {
    uint32_t n;
    uint32_t off[MANIFEST_PATH_MAX], len[MANIFEST_PATH_MAX]; /* prefixes, ever longer */
};

/* The next path lies at off in names; the ones before stay where they were. NULL, or what is
 * wrong with it. */
const char *path_order_next(struct path_order *o, const uint8_t *names, uint32_t off, uint32_t len);

/* Entries of one length, each found by the key that it begins with; numbered in the order of their
 * coming. Open addressing over numbers, so an entry costs its bytes and about 8 more. */
struct manifest_table {
    uint8_t *entries; /* owned */
    uint32_t *slots;  /* owned; number + 1, or 0 */
    size_t entry_len, key_len, n_slots, cap;
    uint32_t n;
    uint64_t seed[2]; /* so that nobody who chooses keys chooses their slots */
};

CAIRN_MUST_CHECK int manifest_table_init(struct manifest_table *t, size_t entry_len, size_t key_len,
                                         struct cairn_error *err);
void manifest_table_release(struct manifest_table *t);
#define CLEANUP_MANIFEST_TABLE __attribute__((cleanup(manifest_table_release)))
/* Number of the entry, or UINT32_MAX. */
uint32_t manifest_table_find(const struct manifest_table *t, const uint8_t *key);
/* Find, or add one whose bytes behind the key are zero. */
CAIRN_MUST_CHECK int manifest_table_intern(struct manifest_table *t, const uint8_t *key,
                                           uint32_t *number, bool *added, struct cairn_error *err);

static inline uint8_t *manifest_table_at(const struct manifest_table *t, uint32_t i)
{
    return t->entries + i * t->entry_len;
}

/* Tables in the encoded form, with pack numbers of any order and number. All borrowed. */
struct manifest_parts {
    const uint8_t *files, *extents, *chunks, *packs, *names;
    uint32_t names_len;
};

/* Make one block of the parts: packs that no chunk names are left out, the others sorted. info
 * gives the numbers of entries too (n_packs: of parts), and stored_bytes is counted here. */
CAIRN_MUST_CHECK int manifest_assemble(const struct manifest_info *info,
                                       const struct manifest_parts *parts, uint8_t **data,
                                       size_t *len, struct cairn_error *err);

#endif
