/* One scan of a store: every root, every pack, every mark. It is complete and without doubt, or it
 * fails and nothing may be decided. In this order, which matters (docs/protocol-collector.md):
 *
 *   time, marks, packs, pins, records with their manifests in one listing, then tombstones, holds,
 *   intents and temporary files
 *
 * Marks come before roots: so a mark that is seen here was there before any manifest that this scan
 * may have missed. Pins come before manifests: a reader pins before its manifest may go, and a
 * repacker's pin goes after its manifest is there. Tombstones come after records: a record removed
 * meanwhile has one by then. */
#ifndef CAIRN_GC_ROOTS_H
#define CAIRN_GC_ROOTS_H

#include "base/clock.h"
#include "base/util.h"
#include "gc/run.h"
#include "store/pack.h"

/* An object written so shortly before the scan is not remembered: one that replaces it might have
 * the same size and time. */
#define ROOTS_SETTLED_NS (2 * NS_PER_S)

struct roots_pack {
    uint8_t id[PACK_ID_LEN];
    bool present, closed, dead;
    bool committed; /* a committed manifest names it */
    bool pinned;    /* a pin names it */
    uint32_t refs;  /* manifests that name it, of any kind */
    uint64_t size;
    int64_t mtime_ns, closed_ns, dead_ns;
    /* What manifests need of it: the sum of their bytes, and the windows that they touch. Both are
     * more than is needed, each where the other is good: the one for what few share, the other for
     * what many do. */
    uint64_t live_sum;
    uint64_t windows[SWEEP_WINDOWS / 64];
};

/* What a chunk takes of its pack: raw ones begin at aligned places, and each has its line in the
 * index. Counted so, a pack all of whose chunks are needed is alive to the last byte but for its
 * head and end (ROOTS_OVERHEAD), and is never repacked into one that looks the same. */
#define ROOTS_OVERHEAD ((uint64_t)PACK_RAW_ALIGN + PACK_TRAILER_LEN)
static inline uint64_t roots_footprint(const struct chunk_loc *loc)
{
    uint64_t len = loc->stored_len;
    return PACK_ENTRY_LEN + (loc->encoding == CHUNK_RAW ? align_up(len, PACK_RAW_ALIGN) : len);
}

struct roots_manifest {
    uint32_t record;
    char gen[GEN_TEXT];
    int64_t mtime_ns;
    uint64_t size;
    size_t first_use;
    uint32_t n_uses;
    bool committed; /* meta.json names it */
    bool staged;    /* a staged meta stands beside it: a publish is under way, or died */
    bool pinned;
    bool traced;       /* a trace stands beside it, and goes with it */
    int64_t intent_ns; /* this node's intent to delete it; 0: none */
};

/* A staged meta without a manifest. */
struct roots_staged {
    uint32_t record;
    char gen[GEN_TEXT];
    int64_t mtime_ns;
};

struct roots_record {
    char id[ID_MAX + 1];
    char gen[GEN_TEXT]; /* committed; "" without a meta.json */
    int64_t meta_ns;
    bool has_meta, held, tomb, pinned;
    bool dying;      /* the tombstone names the committed generation */
    bool unfinished; /* the tombstone names something that is still there */
    size_t first;    /* of its manifests */
    uint32_t n;
};

/* An object to be looked at by itself: pins that lost their holder, tombstones, temporary files,
 * intents that lead nowhere, traces of generations that are gone. */
struct roots_object {
    char key[KEY_MAX];
    char id[ID_MAX + 1];
    int64_t mtime_ns;
};

struct roots_objects {
    struct roots_object *list; /* owned */
    size_t n, cap;
};

struct roots {
    struct roots_pack *packs; /* all owned */
    size_t n_packs, cap_packs;
    uint32_t *pack_slots; /* hash table of numbers + 1 */
    size_t n_slots;
    struct roots_manifest *manifests;
    size_t n_manifests, cap_manifests;
    uint32_t *uses; /* numbers of packs */
    size_t n_uses, cap_uses;
    struct roots_record *records; /* sorted by id */
    size_t n_records, cap_records;
    struct roots_staged *staged;
    size_t n_staged, cap_staged;
    struct roots_objects lost_pins, tombs, temps, intents, traces;
    struct roots_objects pins; /* private: live pins, key is "<id>/<gen>", sorted */
};

void roots_release(struct roots *r);
#define CLEANUP_ROOTS __attribute__((cleanup(roots_release)))

/* Sets run->now. *r is released and filled. Errors: see above; each names its object. */
CAIRN_MUST_CHECK int roots_scan(struct gc_run *run, struct roots *r, struct cairn_error *err);

/* At least the bytes of the pack that manifests need. */
uint64_t roots_live(const struct roots_pack *p);

/* NULL: none. */
struct roots_record *roots_find_record(const struct roots *r, const char *id);

/* ---- roots_data.c ---- */

/* The pack's entry, made if need be. */
CAIRN_MUST_CHECK int roots_pack_of(struct roots *r, const uint8_t id[PACK_ID_LEN], uint32_t *no,
                                   struct cairn_error *err);
CAIRN_MUST_CHECK int roots_add_object(struct roots_objects *o, const char *key, const char *id,
                                      int64_t mtime_ns, struct cairn_error *err);
/* Room for one more element of size bytes in an array. */
CAIRN_MUST_CHECK int roots_room(void *array, size_t n, size_t *cap, size_t size,
                                struct cairn_error *err);

/* ---- roots_records.c ---- */

/* Lists records/ and reads what is not known. */
CAIRN_MUST_CHECK int roots_scan_records(struct gc_run *run, struct roots *r,
                                        struct cairn_error *err);
/* Whether a pin names this generation (gen NULL: any of the record). */
bool roots_is_pinned(const struct roots *r, const char *id, const char *gen);

#endif
