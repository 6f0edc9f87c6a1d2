/* Records for the tests of the reading side, published beside the mounts as another node would. All
 * functions end the test on failure. */
#ifndef CAIRN_TESTS_MOUNT_STAGE_H
#define CAIRN_TESTS_MOUNT_STAGE_H

#include "tests/mount/world.h"

#include <stdint.h>

#define STAGE_A "ck_00000000000000aa"
#define STAGE_B "ck_00000000000000bb"
#define STAGE_T "tp_000000000000000000000000000000aa"

/* A file of the folder that is published: len bytes of seed at off (len 0: nothing), then its size
 * set (0: left as it is). */
void stage_file(const struct world *w, const char *path, uint64_t off, size_t len, uint64_t seed,
                uint64_t size);
/* The path of a file in that folder. One of four static texts. */
const char *stage_path(const struct world *w, const char *path);
/* Publish the folder under the meta; gen receives the generation's name. */
void stage_publish(struct world *w, const char *id, const char *meta, bool digest, char gen[17]);
void stage_fork(struct world *w, const char *id, const char *new_id, const char *meta,
                char gen[17]);
void stage_delete(struct world *w, const char *id);

/* "<node's mount>/<id>/export-<gen>/<path>". One of eight static texts. */
const char *stage_shown(const struct world *w, size_t node, const char *id, const char *gen,
                        const char *path);

/* Size and bytes of two files are the same, and so is where they have data, as lseek tells it of b,
 * within units of 64 KiB. */
void stage_same(const char *a, const char *b);

#endif
