/* Giving back the space of packs that are mostly, but not wholly, garbage, and of many small ones:
 * they are closed; once that is seen everywhere their live chunks are copied into fresh packs, and
 * each committed manifest that names one is put again at its key. After that nobody refers to them.
 *
 * A manifest is replaced only while a pin names it and the fresh packs, and its record is locked:
 * whoever scans meanwhile sees the pin, or the new manifest, or both. */
#ifndef CAIRN_GC_REPACK_H
#define CAIRN_GC_REPACK_H

#include "gc/roots.h"

/* So much is copied in one sweep, at most (and one pack more). */
#define REPACK_BYTES_MAX ((uint64_t)1 << 30)

/* Close what is worth repacking. */
CAIRN_MUST_CHECK int repack_choose(struct gc_run *run, const struct roots *r,
                                   struct cairn_error *err);
/* Move out of packs that are closed for sigma. */
CAIRN_MUST_CHECK int repack_run(struct gc_run *run, const struct roots *r, struct cairn_error *err);

#endif
