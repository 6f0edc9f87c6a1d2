/* A world (world.h) whose store is a bucket on the fault server. */
#ifndef CAIRN_TESTS_MOUNT_BUCKET_H
#define CAIRN_TESTS_MOUNT_BUCKET_H

#include "tests/lib/s3_fault_server.h"
#include "tests/mount/world.h"

extern struct s3fs *fs; /* the server */

void bucket_start(struct world *w, size_t nodes);
void bucket_stop(struct world *w);
/* The same, after a look at every chunk of what the store has by then, without any rule. */
void bucket_stop_verified(struct world *w);
void rule(const char *line); /* for the server */
struct s3fs_stats counts(void);

#endif
