/* Who answers which request. ops.c is the table for libfuse: each function there finds the inode's
 * kind and calls committed_* (what the store holds: read-only) or spool_* (staging, and everything
 * that changes something).
 *
 * A function with a req answers it in any case, at once or later from a task. Node ids and file
 * handles are libfuse's; no function is called with a lock held. libfuse's header stays in the .c
 * files: its types are named here by their tags.
 *
 *   request            ROOT         RECORD     META/DIGEST  EXPORT/SUBDIR  FILE       SPOOL
 *   lookup             overlay      overlay    -            committed      -          spool
 *   getattr            committed    committed  committed    committed      committed  spool
 *   setattr            spool        spool      spool        spool          EROFS      spool
 *   opendir … release  committed    committed  -            committed      -          spool
 *   open, read, lseek  -            -          committed    -              committed  spool
 *   create, mkdir      spool        spool      -            EROFS          -          spool
 *   unlink, rmdir (in) spool        spool      -            spool          -          spool
 *   rename (from, to)  spool        spool      -            EROFS          -          spool
 *   mknod, symlink     EPERM        EPERM      -            EROFS          -          spool
 *   link               EXDEV, but from SPOOL into SPOOL: spool
 *   write, fallocate, copy_file_range, fsync, flush:     EROFS (fsync, flush: 0) but SPOOL: spool
 *   xattrs             EOPNOTSUPP everywhere;  ioctl: ENOTTY (FICLONE: EOPNOTSUPP)
 *
 * Overlay: committed_lookup asks spool_find first and then the store. */
#ifndef CAIRN_FUSE_OPS_H
#define CAIRN_FUSE_OPS_H

#include "fuse/dirlist.h"
#include "fuse/inode.h"

#include <sys/stat.h>
#include <time.h>

struct fuse_file_info;
struct fuse_req;

/* ---- What the store holds -------------------------------------------------------------------- */

void committed_lookup(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name);
void committed_getattr(struct mount *m, struct fuse_req *req, struct inode *i);
void committed_open(struct mount *m, struct fuse_req *req, struct inode *i,
                    struct fuse_file_info *fi);
void committed_read(struct mount *m, struct fuse_req *req, struct inode *i, size_t size,
                    uint64_t off, struct fuse_file_info *fi);
void committed_lseek(struct mount *m, struct fuse_req *req, struct inode *i, int64_t off,
                     int whence, struct fuse_file_info *fi);
void committed_release(struct mount *m, struct fuse_req *req, struct inode *i,
                       struct fuse_file_info *fi);
void committed_opendir(struct mount *m, struct fuse_req *req, struct inode *dir,
                       struct fuse_file_info *fi);
void committed_readdir(struct mount *m, struct fuse_req *req, struct inode *dir, size_t size,
                       uint64_t off, struct fuse_file_info *fi);
void committed_releasedir(struct mount *m, struct fuse_req *req, struct inode *dir,
                          struct fuse_file_info *fi);
void committed_statfs(struct mount *m, struct fuse_req *req);

/* ---- What the spool adds to folders that the store has as well ------------------------------- */

/* Whether the spool has name in dir (ROOT or RECORD). 0: *out is looked up once more and *st its
 * attributes (st_ino, times and all). ENOENT: it has not, the store is asked. Another errno is the
 * answer. A record shell (a folder <id>/ made here) is not the spool's answer but the store's: see
 * spool_has_record. */
int spool_find(struct mount *m, struct inode *dir, const char *name, struct inode **out,
               struct stat *st);
/* Add the names that the spool has in dir (ROOT or RECORD) to list: stagings, meta.json.tmp, …
 * and in ROOT also the record shells. Error class. */
CAIRN_MUST_CHECK int spool_list(struct mount *m, struct inode *dir, struct dirlist *list,
                                struct cairn_error *err);
/* A folder <id>/ was made here by mkdir and not removed since: it is there even if the store knows
 * nothing of it yet. */
bool spool_has_record(struct mount *m, const char *id);
/* name ("meta.json", "digest-<gen>", "export-<gen>", "export-<gen>/a/b") of record id was removed
 * in this mount; the store may still have it. */
bool spool_hides(struct mount *m, const char *id, const char *name);
/* Generation gen of id was committed by somebody since something of the record was removed here:
 * what was, was of another. */
void spool_show_again(struct mount *m, const char *id, const char *gen);
/* The mtime that was set on name ("export-<gen>", "digest-<gen>", "" for the record's folder) here
 * by utimensat; false: none was. */
bool spool_stamp(struct mount *m, const char *id, const char *name, struct timespec *mtime);

/* File index of manifest (of any generation of the store) was opened here: what is staged next may
 * resemble it, and is then stored as what differs. */
struct manifest;
void spool_file_used(struct mount *m, const struct manifest *manifest, uint32_t index);

/* ---- What changes something ------------------------------------------------------------------ */

void spool_lookup(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name);
void spool_getattr(struct mount *m, struct fuse_req *req, struct inode *i,
                   struct fuse_file_info *fi);
/* i of any kind but FILE. fi may be NULL. */
void spool_setattr(struct mount *m, struct fuse_req *req, struct inode *i, const struct stat *attr,
                   int to_set, struct fuse_file_info *fi);
void spool_mkdir(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name,
                 mode_t mode);
void spool_mknod(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name,
                 mode_t mode, dev_t rdev);
void spool_symlink(struct mount *m, struct fuse_req *req, const char *target, struct inode *dir,
                   const char *name);
void spool_readlink(struct mount *m, struct fuse_req *req, struct inode *i);
void spool_link(struct mount *m, struct fuse_req *req, struct inode *i, struct inode *dir,
                const char *name);
void spool_unlink(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name);
void spool_rmdir(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name);
void spool_rename(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name,
                  struct inode *to_dir, const char *to_name, unsigned flags);
void spool_create(struct mount *m, struct fuse_req *req, struct inode *dir, const char *name,
                  mode_t mode, struct fuse_file_info *fi);
void spool_open(struct mount *m, struct fuse_req *req, struct inode *i, struct fuse_file_info *fi);
void spool_read(struct mount *m, struct fuse_req *req, struct inode *i, size_t size, uint64_t off,
                struct fuse_file_info *fi);
/* data is borrowed for the call */
void spool_write(struct mount *m, struct fuse_req *req, struct inode *i, const void *data,
                 size_t size, uint64_t off, struct fuse_file_info *fi);
void spool_lseek(struct mount *m, struct fuse_req *req, struct inode *i, int64_t off, int whence,
                 struct fuse_file_info *fi);
void spool_fallocate(struct mount *m, struct fuse_req *req, struct inode *i, int mode, uint64_t off,
                     uint64_t len, struct fuse_file_info *fi);
void spool_copy_file_range(struct mount *m, struct fuse_req *req, struct inode *from,
                           uint64_t from_off, struct fuse_file_info *from_fi, struct inode *to,
                           uint64_t to_off, struct fuse_file_info *to_fi, size_t len);
void spool_flush(struct mount *m, struct fuse_req *req, struct inode *i, struct fuse_file_info *fi);
void spool_fsync(struct mount *m, struct fuse_req *req, struct inode *i, bool data_only,
                 struct fuse_file_info *fi);
void spool_release(struct mount *m, struct fuse_req *req, struct inode *i,
                   struct fuse_file_info *fi);
void spool_opendir(struct mount *m, struct fuse_req *req, struct inode *dir,
                   struct fuse_file_info *fi);
void spool_readdir(struct mount *m, struct fuse_req *req, struct inode *dir, size_t size,
                   uint64_t off, struct fuse_file_info *fi);
void spool_fsyncdir(struct mount *m, struct fuse_req *req, struct inode *dir, bool data_only,
                    struct fuse_file_info *fi);
void spool_releasedir(struct mount *m, struct fuse_req *req, struct inode *dir,
                      struct fuse_file_info *fi);

/* ---- Its life -------------------------------------------------------------------------------- */

/* Under <state>/<store id>/mount; what a killed mount left of staging is still there and shown. The
 * inode table is there already. */
CAIRN_MUST_CHECK int spool_new(struct mount *m, struct spool **out, struct cairn_error *err);
/* What it does besides requests ends: nothing of it speaks to the kernel any more. While requests
 * are still served, or the connection is gone. NULL is allowed. */
void spool_stop(struct spool *s);
/* Every request was answered. NULL is allowed. */
void spool_free(struct spool *s);

#endif
