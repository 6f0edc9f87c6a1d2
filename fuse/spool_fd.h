/* The descriptors (O_PATH) by which the spool reaches the files that the kernel knows: a bounded
 * number of them is open, whoever was not used for longest is closed and opened again when it is
 * needed, by its file handle (name_to_handle_at(2), open_by_handle_at(2)). A handle goes with the
 * file through renames and links, and names no other file, even where its number is used again.
 *
 * What has no name any more cannot be opened again; its descriptor stays. So whoever takes a name
 * away holds the file while doing so: spool_unlink_at.
 *
 * Where handles are not to be had (they take CAP_DAC_READ_SEARCH and a file system that has them)
 * all descriptors stay open, and a file too many is refused. Thread-safe. */
#ifndef CAIRN_FUSE_SPOOL_FD_H
#define CAIRN_FUSE_SPOOL_FD_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct mount;
struct spool_fds;
struct spool_inode;

/* tree: a folder of the file system, open for reading; borrowed. */
CAIRN_MUST_CHECK int spool_fds_new(int tree, struct spool_fds **out, struct cairn_error *err);
void spool_fds_free(struct spool_fds *set); /* every inode was freed; NULL is allowed */

/* An inode of the spool for the file that fd (transferred, also on failure) is. Errno; ENFILE: too
 * many are open, and none can be closed. */
int spool_inode_new(struct spool_fds *set, int fd, dev_t dev, ino_t real, struct spool_inode **out);
void spool_inode_free(struct spool_inode *i); /* NULL is allowed */
/* Whether i, of the same number, is the very file that fd is: it may be gone, and its number used
 * again. */
bool spool_inode_is(struct spool_inode *i, int fd);

/* The descriptor stays open until spool_unhold. Errno; ESTALE: the file is gone. */
struct spool_held {
    struct spool_inode *i; /* NULL: nothing is held */
    int fd;
};
int spool_hold(struct spool_inode *i, struct spool_held *out);
void spool_unhold(struct spool_held *h);
#define CLEANUP_HELD __attribute__((cleanup(spool_unhold)))

/* unlinkat(2), of what may be open on the mount: it goes on as what is unlinked does. Errno. */
int spool_unlink_at(struct mount *m, int folder, const char *name, int flags);

#endif
