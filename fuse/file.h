/* Committed files: one inode for each content, opened in one of two ways.
 *
 *   lazy     the kernel asks us for bytes and keeps them in the inode's pages
 *   direct   the kernel reads a materialised copy by itself (passthrough.h)
 *
 * The kernel refuses (EIO) an open of one kind while an open of the other lasts, and a second
 * backing file. So what is open lazily stays so; a lookup gives a new inode of the same content as
 * soon as the content lies materialised, and that one is opened directly. */
#ifndef CAIRN_FUSE_FILE_H
#define CAIRN_FUSE_FILE_H

#include "fuse/inode.h"

struct fuse_file_info;
struct fuse_req;
struct generation;
struct record_span;

/* Where a content is found: file index of (id, gen). */
struct file_source {
    char id[ID_MAX + 1], gen[GEN_TEXT];
    uint32_t index;
};

/* Names under which the content was looked up last: an open uses the newest that still works. */
#define FILE_SOURCES 4

struct file_state {
    int64_t mtime_ns;                         /* constant */
    pthread_mutex_t lock;                     /* guards all below */
    struct file_source sources[FILE_SOURCES]; /* newest first */
    size_t n_sources;
    unsigned lazy, direct;
    int32_t backing; /* the kernel's name of the copy while direct > 0; else 0 */
    int copy;        /* while direct > 0: the copy, which is in use as long; else -1; owned */
    bool asked;      /* the copy was asked for */
    struct open_file
        *open; /* all opens of it: what is left when the mount is cut off is freed here */
};

void file_state_free(struct file_state *f); /* NULL is allowed */

/* The inode of file index of g, looked up once more; NULL: no memory. */
struct inode *file_inode(struct mount *m, const struct generation *g, uint32_t index);

/* Whether file index of g has i's content. Where it was looked up may hold something else by now: a
 * record that was removed and published anew, under the very same meta.json. */
bool file_is_in(const struct inode *i, const struct generation *g, uint32_t index);

/* Its st_ino. */
uint64_t file_number(const struct generation *g, uint32_t index);

/* An open file: libfuse's fh. */
struct open_file {
    struct generation *g; /* owned reference */
    uint32_t index;
    bool direct;
    struct traced *traced;          /* borrowed from g; NULL: not traced (trace.h) */
    struct open_file *next, **link; /* of the inode's; guarded by its lock */
};

CAIRN_MUST_CHECK int open_file_new(struct mount *m, const struct cairn_op *op, struct inode *i,
                                   struct open_file **out, struct cairn_error *err);
void open_file_free(struct mount *m, struct open_file *f);
/* The last user of an open is gone. req: which says so and is not answered yet; NULL: there is
 * none. */
void file_release(struct mount *m, struct fuse_req *req, struct inode *i, struct open_file *f);

/* Answers an open. */
void file_open(struct mount *m, struct fuse_req *req, const struct cairn_op *op, struct inode *i,
               struct fuse_file_info *fi);
void file_read(struct mount *m, struct fuse_req *req, const struct cairn_op *op, struct inode *i,
               struct open_file *f, size_t size, uint64_t off);
/* Of a store that is far away: answered (true) if all of it is here, without waiting for anybody.
 */
bool file_read_here(struct mount *m, struct fuse_req *req, struct inode *i, struct open_file *f,
                    size_t size, uint64_t off);

#endif
