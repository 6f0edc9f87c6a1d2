/* What a folder held when it was opened: names in order, each once. A listing goes over this
 * snapshot, so entries that come and go meanwhile neither skip nor repeat others. Not thread-safe.
 */
#ifndef CAIRN_FUSE_DIRLIST_H
#define CAIRN_FUSE_DIRLIST_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct fuse_req;

struct dirlist_entry {
    char *name;
    uint64_t ino;
    unsigned type; /* S_IFDIR or S_IFREG */
};

struct dirlist {
    struct dirlist_entry *entries; /* owned */
    size_t n, cap;
    bool sorted;
};

/* Of the same name given twice only the first stays. */
CAIRN_MUST_CHECK int dirlist_add(struct dirlist *l, const char *name, uint64_t ino, unsigned type,
                                 struct cairn_error *err);
/* Answer a READDIR: entries from off on, as many as fit in size. Adds "." and "..". */
void dirlist_reply(struct dirlist *l, struct fuse_req *req, size_t size, uint64_t off,
                   uint64_t self_ino);
void dirlist_release(struct dirlist *l);

#endif
