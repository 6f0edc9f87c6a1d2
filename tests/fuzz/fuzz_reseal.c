/* Any bytes with the checksums, and the few fields that follow from others, made right: so the
 * fuzzer gets to what lies behind them. */
#include "base/util.h"
#include "store/manifest_private.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/walk.h"
#include "tests/lib/samples.h"

#include <string.h>

/* Lengths and offsets that fit the numbers of entries, if any do. */
static void fix_layout(uint8_t *h, size_t len)
{
    struct manifest_info info = {.n_files = get_le32(h + MH_N_FILES) % 256,
                                 .n_extents = get_le32(h + MH_N_EXTENTS) % 1024,
                                 .n_chunks = get_le32(h + MH_N_CHUNKS) % 1024,
                                 .n_packs = get_le32(h + MH_N_PACKS) % 64};
    struct manifest_layout at;
    manifest_layout_of(&info, 0, &at);
    if (at.total > len)
        return;
    uint64_t room = len - MANIFEST_TRAILER_LEN - at.names, names = get_le64(h + MH_NAMES_LEN);
    if (align_up(names, 8) != room)
        names = room;
    manifest_layout_of(&info, (uint32_t)names, &at);
    put_le32(h + MH_N_FILES, info.n_files);
    put_le32(h + MH_N_EXTENTS, info.n_extents);
    put_le32(h + MH_N_CHUNKS, info.n_chunks);
    put_le32(h + MH_N_PACKS, info.n_packs);
    put_le64(h + MH_FILES_OFF, at.files);
    put_le64(h + MH_EXTENTS_OFF, at.extents);
    put_le64(h + MH_CHUNKS_OFF, at.chunks);
    put_le64(h + MH_PACKS_OFF, at.packs);
    put_le64(h + MH_NAMES_OFF, at.names);
    put_le64(h + MH_NAMES_LEN, names);
    put_le64(h + MH_TOTAL_LEN, at.total);
    /* the sums that need no look at the extents */
    uint64_t logical = 0, data = 0, stored = 0;
    for (uint32_t i = 0; i < info.n_files; i++) {
        logical += get_le64(h + at.files + (size_t)i * MANIFEST_FILE_LEN + MF_SIZE);
        data += get_le64(h + at.files + (size_t)i * MANIFEST_FILE_LEN + MF_DATA);
    }
    for (uint32_t i = 0; i < info.n_chunks; i++)
        stored += get_le32(h + at.chunks + (size_t)i * MANIFEST_CHUNK_LEN + MC_STORED) & 0xffffff;
    put_le64(h + MH_LOGICAL, logical);
    put_le64(h + MH_DATA, data);
    put_le64(h + MH_STORED, stored);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 8)
        return 0;
    CLEANUP_FREE uint8_t *copy = malloc(size);
    FUZZ_CHECK(copy);
    memcpy(copy, data, size);
    /* by the first byte, which the fixtures have right: C A I R N M, C A I R N P, { */
    if (data[0] == '{') {
        sample_reseal_format(copy, size);
        walk_format(copy, size);
    } else if (memcmp(data, "CAIRNPK1", 8) == 0) {
        sample_reseal_pack(copy, size);
        walk_pack(copy, size);
    } else if (size >= MANIFEST_HEADER_LEN + MANIFEST_TRAILER_LEN) {
        memcpy(copy, MANIFEST_MAGIC, 8);
        fix_layout(copy, size);
        sample_reseal_manifest(copy, size);
        walk_manifest(copy, size);
    }
    return 0;
}
