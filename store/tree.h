/* Folders of files on the local disk that are built aside and renamed into place. */
#ifndef CAIRN_STORE_TREE_H
#define CAIRN_STORE_TREE_H

#include "base/error.h"

/* Remove name and everything below it, without following links. Absent is success. */
CAIRN_MUST_CHECK int tree_remove(int dir, const char *name, struct cairn_error *err);

/* Create or open-to-write a file below root, with the folders on its way. path is a valid export
 * path (manifest_path_is_valid). The caller owns *fd. */
CAIRN_MUST_CHECK int tree_create(int root, const char *path, int *fd, struct cairn_error *err);

/* A folder being built beside its future place. */
struct tree_aside {
    int parent;     /* descriptor of the folder that will hold it, owned; -1: none */
    int fd;         /* of the folder being built, flocked while its maker lives, owned */
    unsigned mode;  /* of the empty folder that it replaces; 0: none, it is private (0700) */
    char base[256]; /* its future name */
    char name[256]; /* its present one: ".<base>.cairn-<hex>" */
};

#define TREE_ASIDE_INIT ((struct tree_aside){.parent = -1, .fd = -1})

/* Make the folder in which target will be built, after taking away what makers of the same target
 * that were killed have left. busy: target exists and is not an empty folder. */
CAIRN_MUST_CHECK int tree_aside_begin(struct tree_aside *a, const char *target,
                                      struct cairn_error *err);
/* Rename it to its place. busy: something is there by now. */
CAIRN_MUST_CHECK int tree_aside_commit(struct tree_aside *a, struct cairn_error *err);
/* Remove it unless it was committed, and close. Never fails. */
void tree_aside_release(struct tree_aside *a);

#endif
