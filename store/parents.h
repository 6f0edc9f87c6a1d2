/* The manifests of the checkpoints that this host published last, beside the index: where reading
 * one takes requests, the next publish need not ask for its parent. Only a hint, like the index: a
 * checkpoint is published once, and that a parent's packs are still there is checked at the commit.
 *
 * Nothing here fails: what cannot be kept or read is not there. Thread-safe, also among processes;
 * a file appears whole. */
#ifndef CAIRN_STORE_PARENTS_H
#define CAIRN_STORE_PARENTS_H

#include "store/manifest.h"
#include "store/store.h"

#define PARENTS_MAX 16 /* are kept, the newest */

/* m was committed. Does nothing for a template, for a local backend, and without a state folder. */
void parents_keep(struct cairn_store *s, const struct manifest *m);
/* The manifest that id was published with; owned by the caller. NULL: not known. */
struct manifest *parents_find(struct cairn_store *s, const char *id);
/* id was removed. */
void parents_drop(struct cairn_store *s, const char *id);

#endif
