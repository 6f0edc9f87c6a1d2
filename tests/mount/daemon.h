/* What a sandbox daemon and its VM tool do to their checkpoint root, call by call in the order in
 * which they do it (docs/mount.md has the list). Functions that return int give 0 or the errno of
 * the call that failed, which is what the daemon would go by; the others end the test on failure.
 */
#ifndef CAIRN_TESTS_MOUNT_DAEMON_H
#define CAIRN_TESTS_MOUNT_DAEMON_H

#include "tests/mount/world.h"

#include <stdbool.h>

/* An export that depends on its seed alone. */
struct image {
    uint64_t seed;
    uint64_t memory; /* bytes of memory-ranges; a third of it is data, in runs */
    uint64_t disk;   /* bytes of cow.raw, nearly all of it a hole */
    bool nested;     /* one more file in a folder */
};
#define IMAGE_SMALL(s) ((struct image){.seed = (s), .memory = 4 << 20, .disk = 32 << 20})

#define GEN_NAME_MAX 17
void daemon_gen(const char *meta, char gen[GEN_NAME_MAX]);
/* "<root>/<id>" and with "/<name>", in one of sixteen static texts. */
const char *in(const char *root, const char *id, const char *name);
const char *gen_path(const char *root, const char *id, const char *what, const char *meta);

void daemon_start(const char *root);                                 /* 1, 16 */
int daemon_stage(const char *root, const char *id, char stage[512]); /* 2 */
int tool_export(const char *stage, const struct image *im);          /* 3 */
int daemon_stage_meta(const char *stage, const char *meta);          /* 4 */
int daemon_digest(const char *stage, char digest[72]);               /* 5 */
int daemon_publish(const char *root, const char *id, const char *stage,
                   const char *digest); /* 6 to 9; digest may be NULL */
/* All of it: stage, export, meta, digest if wanted, publish, and the staging away. */
int daemon_save(const char *root, const char *id, const struct image *im, const char *meta,
                bool digest);
int daemon_sweep(const char *root, const char *id); /* 10 */
int daemon_remove_all(const char *path);            /* 11 */
int daemon_fetch(const char *root, const char *id, char meta[4096], char digest[80],
                 char export[1024]); /* 12; digest "" where there is none */
void tool_restore(const char *export, const char *outside, const struct image *im); /* 13 */
int daemon_list(const char *root, const char *prefix, size_t *n);                   /* 14 */
int daemon_delete(const char *root, const char *id);                                /* 15 */

/* The files of an export are those of the image, byte for byte, hole for hole. */
void image_same(const char *export, const struct image *im);
/* Bytes of memory-ranges at off. */
void image_memory(const struct image *im, uint64_t off, size_t len, uint8_t *out);

#endif
