/* A store for a test, with what tests of whole operations need: staged exports, publishing in one
 * line, comparing a record with a folder, faults and hooks beneath. All functions end the test on
 * failure unless they return a class. */
#ifndef CAIRN_TESTS_KIT_H
#define CAIRN_TESTS_KIT_H

#include "store/store.h"
#include "tests/lib/backend_fault.h"
#include "tests/lib/testing.h"

/* Ids. */
#define CK_A "ck_00000000000000aa"
#define CK_B "ck_00000000000000bb"
#define CK_C "ck_00000000000000cc"
#define TP_A "tp_000000000000000000000000000000aa"
#define TP_B "tp_000000000000000000000000000000bb"

struct kit_options {
    bool mem;      /* backend_mem; else a directory */
    bool faulty;   /* wrapped by backend_fault */
    bool no_index; /* no state folder */
    bool no_cache; /* of chunks: each read goes to the backend */
    int64_t cache_bytes;
    uint32_t chunk_size;
    enum cairn_compression compression;
    unsigned workers; /* 0: 2 */
};

struct kit {
    struct kit_options opt;
    struct cairn_store *s;
    char root[256], state[256], stage[256]; /* folders; stage: of the exports */
    struct backend *shared;                 /* the memory's; NULL: a directory */
    struct cairn_publish_result result;     /* of the last kit_publish */
};

/* options may be NULL: a directory, 64 KiB, zstd. */
void kit_start(struct kit *k, const struct kit_options *options);
/* One more store on the same place, as another process would have it. Ends by cairn_close. */
struct cairn_store *kit_open(struct kit *k);
void kit_reopen(struct kit *k);
void kit_stop(struct kit *k);

/* len bytes at off of a file of the staged export name, with the folders on its way. */
void kit_write(struct kit *k, const char *name, const char *path, const void *data, size_t len,
               uint64_t off);
/* The same, of bytes that depend on seed. */
void kit_fill(struct kit *k, const char *name, const char *path, size_t len, uint64_t off,
              uint64_t seed);
void kit_truncate(struct kit *k, const char *name, const char *path, uint64_t size);
/* Its folder, or a path in it (path may be NULL). One of four static texts. */
const char *kit_path(struct kit *k, const char *name, const char *path);
/* A small export: nested, holes, zeros, an empty file. Different for each seed. */
void kit_sample(struct kit *k, const char *name, uint64_t seed);

/* Publish a staged export under the meta (a text; NULL: the default). */
int kit_publish(struct kit *k, const char *id, const char *name, const char *meta,
                const char *parent, struct cairn_error *err);
int kit_fork(struct kit *k, const char *id, const char *new_id, const char *meta,
             struct cairn_error *err);
/* The record's files are those of the staged export: same paths, sizes and bytes. */
void kit_same(struct kit *k, const char *id, const char *name);
void kit_same_folder(struct cairn_record *r, const char *folder);
/* CAIRN_OK or why the record cannot be opened. */
int kit_opens(struct kit *k, const char *id);
/* Everything verifies. */
void kit_verify(struct kit *k);
uint64_t kit_objects(struct kit *k, const char *prefix);
uint64_t kit_stored(struct kit *k); /* bytes of all packs */
/* The key of the first object whose key has this prefix, in a static text; NULL: none. */
const char *kit_first(struct kit *k, const char *prefix);
void kit_put(struct kit *k, const char *key, const void *data, size_t len);
void kit_get(struct kit *k, const char *key, struct buf *out);
void kit_remove(struct kit *k, const char *key);
bool kit_has(struct kit *k, const char *key);
/* One bit of a byte of an object changes, as by decay. */
void kit_damage(struct kit *k, const char *key, uint64_t off);
void kit_export_key(const char *id, const char *meta, char key[KEY_MAX]);
void kit_closed_key(const char *pack_key, char key[KEY_MAX]);

/* Called around operations of the backend that k->s uses; they may do anything, also fail by
 * returning a class. NULL: nothing. Only one kit at a time may have hooks. */
struct kit_hooks {
    void *ctx;
    int (*before_commit)(void *ctx, struct backend *b, struct cairn_error *err);
    int (*after_commit)(void *ctx, struct backend *b, struct cairn_error *err);
    int (*before_put)(void *ctx, struct backend *b, const char *key, struct cairn_error *err);
    int (*before_list)(void *ctx, struct backend *b, const char *prefix, struct cairn_error *err);
};
void kit_hook(struct kit *k, const struct kit_hooks *hooks);

/* Open descriptors of this process. */
size_t kit_descriptors(void);

#endif
