/* Copies of committed files in the cache, whole and plain, so that the kernel can read them by
 * itself: <state>/<store id>/cache/files/<content>-<size>, within the budget of the cache.
 *
 * A copy is made by one thread in the background, from verified bytes, under a temporary name,
 * synced and renamed: what has its name is complete. Thread-safe. */
#ifndef CAIRN_FUSE_MATERIALISE_H
#define CAIRN_FUSE_MATERIALISE_H

#include "fuse/inode.h"

CAIRN_MUST_CHECK int materialise_new(struct mount *m, struct materialiser **out,
                                     struct cairn_error *err);
/* Gives up what it is at. NULL is allowed. */
void materialise_free(struct materialiser *t);

/* Have the copy of a FILE made, unless it is there or too many wait. Never blocks. */
void materialise_ask(struct mount *m, struct inode *i);
/* A FILE is being opened: whether its content was before, as far as that is remembered. */
bool materialise_again(struct mount *m, const struct inode *i);
bool materialise_has(struct mount *m, const struct inode *i);
/* The copy, open for reading, owned by the caller; -1: there is none. Notes the use. */
int materialise_open(struct mount *m, const struct inode *i);
/* Any regular file there, open for reading (for trying out passthrough); -1 with errno. */
int materialise_probe(struct mount *m);

#endif
