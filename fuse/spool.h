/* The inside of the spool: everything on the mount that is not committed, kept in a private folder
 * on a real file system and behaving as that does.
 *
 *   <state>/<store id>/mount/lock     held (flock) as long as the spool is in use
 *                           /tree/    what the mount's root shows of it: <id>-<n>.tmp/…, and
 *                                     <id>/ for what lies in a record and is not committed
 *                           /times/   an empty file for each mtime that was set on what the store
 *                                     holds: <id>:<name>, with that very mtime
 *                           /trash/   trees that are being deleted
 *
 * An inode of the spool is the file itself (spool_fd.h), found by device and number. Handles are
 * descriptors of their own. So an unlinked file stays readable while it is open, as everywhere.
 *
 * Names of the spool are told to the kernel with a time-out of zero: a commit replaces what lies
 * behind <id>/export-<gen> and <id>/meta.json without a word to the kernel. */
#ifndef CAIRN_FUSE_SPOOL_H
#define CAIRN_FUSE_SPOOL_H

#include "fuse/ops.h"
#include "fuse/spool_fd.h"
#include "store/background.h"

#include <pthread.h>
#include <stdatomic.h>

struct fuse_entry_param;
struct hidden;
struct prepared_list;
struct spool_after;
struct turns;

#define SPOOL_ATTR_SECONDS 1.0

/* Constant once made, but what synchronises itself. */
struct spool {
    int lock, tree, times, trash; /* descriptors, owned */
    char *tree_path;              /* as /proc/self/fd shows it; owned */
    size_t tree_len;
    struct background *background;  /* owned */
    struct hidden *hidden;          /* owned; spool_hidden.h */
    struct prepared_list *prepared; /* owned; spool_publish.c */
    struct spool_after *after;      /* owned; spool_after.c */
    struct spool_fds *fds;          /* owned; of inodes */
    struct turns *commits;          /* owned; ids that are being committed */
    atomic_uint trash_no;
    pthread_mutex_t opened_lock;
    struct spool_opened *files, *folders; /* guarded by opened_lock */
    atomic_uint writers;                  /* handles that can write, of all files */
    atomic_uint freeing;                  /* how many are at work on giving room back */
};

struct spool_inode {
    dev_t dev;
    ino_t real;
    atomic_uint writers; /* handles that can write */
    /* Of spool_fd.c; guarded by the lock of set. */
    struct spool_fds *set;
    int fd;                     /* O_PATH, owned; -1: closed, to be had by its handle */
    struct file_handle *handle; /* owned; NULL while it was never closed */
    unsigned users;
    bool listed; /* among those which may be closed */
    bool gone;   /* the last user frees it */
    struct spool_inode *newer, *older;
};

/* What is open, so that the end of a mount that was cut off can close it. Guarded by opened_lock.
 */
struct spool_opened {
    struct spool_opened *next, **link;
};

/* A handle of an open file; fi->fh. */
struct spool_handle {
    struct spool_opened opened; /* first */
    int fd;
    bool writes;
};

/* The same of a folder. */
struct spool_listing {
    struct spool_opened opened; /* first */
    struct dirlist list;
};

/* ---- What is open ---------------------------------------------------------------------------- */

void spool_opened_add(struct spool *s, struct spool_opened **list, struct spool_opened *o);
void spool_opened_remove(struct spool *s, struct spool_opened *o);

/* ---- Nodes ----------------------------------------------------------------------------------- */

/* The folder that dir is in the spool: SPOOL itself, ROOT the tree, RECORD its folder, which is
 * made if make is set. *fd is owned by the caller. Errno; ENOENT: the spool has none. */
int spool_folder(struct mount *m, const struct inode *dir, bool make, int *fd);
/* The inode of what fd (O_PATH, transferred) is, looked up once more, and its attributes. Errno. */
int spool_node(struct mount *m, int fd, struct inode **out, struct stat *st);
/* The same of name in folder. */
int spool_node_at(struct mount *m, int folder, const char *name, struct inode **out,
                  struct stat *st);
/* The inode of what st (of the spool's own file system) is of, looked up once more, if the kernel
 * knows it; else NULL. */
struct inode *spool_known_node(struct mount *m, const struct stat *st);
uint64_t spool_number(dev_t dev, ino_t real);
/* Answer with an entry; its lookup is given back if nobody hears it. */
void spool_reply_entry(struct mount *m, struct fuse_req *req, struct inode *i,
                       const struct stat *st);
void spool_fill_entry(const struct mount *m, const struct inode *i, const struct stat *st,
                      struct fuse_entry_param *e);
/* What was made by root in somebody's name belongs to that one. Errno. */
int spool_give_to_caller(struct fuse_req *req, int folder, const char *name);
/* "/proc/self/fd/<fd>": reaches what an O_PATH descriptor stands for. */
#define SPOOL_FD_PATH 32
const char *spool_fd_path(int fd, char out[SPOOL_FD_PATH]);

/* ---- Chunking in the background -------------------------------------------------------------- */

/* The last who could write to i is going. If it lies in the export of a staging, it is
 * chunked. */
void spool_written(struct mount *m, const struct inode *i);
void spool_about_to_change(struct mount *m, const struct inode *i);

/* ---- Names ----------------------------------------------------------------------------------- */

enum spool_name {
    SPOOL_NAME_OTHER,
    SPOOL_NAME_META,   /* meta.json */
    SPOOL_NAME_EXPORT, /* export-<gen> */
    SPOOL_NAME_DIGEST, /* digest-<gen> */
};
/* What a name in a record's folder stands for; gen is filled for EXPORT and DIGEST. */
enum spool_name spool_name_of(const char *name, char gen[GEN_TEXT]);

/* ---- Stamps, trash --------------------------------------------------------------------------- */

/* Errno. */
int spool_set_stamp(struct spool *s, const char *id, const char *name,
                    const struct timespec *mtime);
void spool_drop_stamp(struct spool *s, const char *id, const char *name);
/* All of the record's. */
void spool_drop_stamps(struct spool *s, const char *id);
/* Those of generations that are gone. Never fails: what stays is looked at the next time. */
void spool_prune_stamps(struct mount *m, const struct cairn_op *op, const char *id);

/* Move name of folder out of the way in one step. Errno. */
int spool_discard(struct spool *s, int folder, const char *name);
/* Delete what was discarded. Never fails: what stays is deleted at the next start. */
void spool_empty_trash(struct mount *m, struct spool *s);

/* The spool is full. If room is being given back (what was removed is still being read, what was
 * published is being deleted) wait for that, a second at most; true: it is worth trying again. */
bool spool_wait_for_room(struct spool *s);

/* ---- Publishing and removing (spool_publish.c, spool_remove.c) ------------------------------- */

/* Both answer req. folder: a descriptor of the source's folder, transferred. */
void spool_publish_export(struct mount *m, struct fuse_req *req, int folder, const char *name,
                          const char *id, const char *gen);
void spool_publish_meta(struct mount *m, struct fuse_req *req, int folder, const char *name,
                        const char *id);
/* export-<gen> was removed from the spool: nobody means to commit it any more. Answers req. */
void spool_unpublish(struct mount *m, struct fuse_req *req, const char *id, const char *gen);
/* What a mount that was killed right after a commit left behind; what it left of removals. Asks the
 * store for some seconds at most; what it cannot find out stays. */
void spool_recover(struct mount *m, struct spool *s);
CAIRN_MUST_CHECK int prepared_list_new(struct prepared_list **out, struct cairn_error *err);
void prepared_list_free(struct prepared_list *l); /* NULL is allowed */
void prepared_list_drop(struct prepared_list *l, const char *id, const char *gen);

CAIRN_MUST_CHECK int spool_after_new(struct mount *m, struct spool *s, struct spool_after **out,
                                     struct cairn_error *err);
/* Joins the thread; what is told of later is left for the next mount. NULL is allowed, both. */
void spool_after_stop(struct spool_after *a);
void spool_after_free(struct spool_after *a);
/* (id, gen) was committed: do what follows, some time soon. */
void spool_after_commit(struct spool_after *a, const char *id, const char *gen);

/* dir is ROOT (name is an id), RECORD, EXPORT or SUBDIR, name not in the spool. All answer req. */
void spool_remove_committed_file(struct mount *m, struct fuse_req *req, const struct inode *dir,
                                 const char *name);
void spool_remove_committed_folder(struct mount *m, struct fuse_req *req, const struct inode *dir,
                                   const char *name);
void spool_remove_record(struct mount *m, struct fuse_req *req, const char *id);

#endif
