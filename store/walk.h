/* The files of a staged export, found beneath one folder without ever following a link. Not
 * thread-safe while it is made; walk_open may be called from any thread. */
#ifndef CAIRN_STORE_WALK_H
#define CAIRN_STORE_WALK_H

#include "base/op.h"

#include <stdint.h>
#include <sys/stat.h>

struct walk_file {
    char *path; /* owned; relative to the folder */
    size_t path_len;
    uint64_t size;
    struct stat st; /* as it was when found */
};

struct walk {
    int root;                /* the folder's descriptor, owned; -1: none */
    struct walk_file *files; /* in the order of the paths' bytes */
    size_t n;
    uint64_t logical_bytes;
    uint64_t empty_dirs; /* folders without a file anywhere below, each counted; not kept */
};

#define WALK_INIT ((struct walk){.root = -1})

/* from itself may be reached through links; nothing below it may. Invalid, with its path: anything
 * but a regular file or a folder, a path too long for an export. not_found: no such folder. */
CAIRN_MUST_CHECK int walk_run(const char *from, const struct cairn_op *op, struct walk *out,
                              struct cairn_error *err);
void walk_release(struct walk *w);
#define CLEANUP_WALK __attribute__((cleanup(walk_release)))

/* The file of that path, or NULL. */
const struct walk_file *walk_find(const struct walk *w, const char *path, size_t len);

/* Open file i for reading. Busy if it is no longer the file that was found. */
CAIRN_MUST_CHECK int walk_open(const struct walk *w, size_t i, int *fd, struct cairn_error *err);
/* Busy if the open file changed its size or its time of modification since it was found. Invalid:
 * it holds more than its size. */
CAIRN_MUST_CHECK int walk_unchanged(const struct walk *w, size_t i, int fd,
                                    struct cairn_error *err);

/* For messages: at most 255 bytes of path, control bytes as \xNN. out has WALK_SHOWN bytes. */
#define WALK_SHOWN 1024
const char *walk_shown(const char *path, size_t len, char out[WALK_SHOWN]);

#endif
