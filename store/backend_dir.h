/* Private to store/backend_dir*.c and their tests: a store in a directory.
 *
 * Every key is resolved beneath the store's folder, through no symbolic link. Functions that return
 * a descriptor return -1 with errno. Thread-safe: a dir_backend never changes after it was opened.
 *
 * Durability of folders. A folder is made with mode 01700. The sticky bit goes once its parent was
 * fsynced. Whoever makes something in it durable and finds the bit (its maker is not that far yet,
 * or was killed) fsyncs the parent too: so nobody fsyncs a folder for nothing, and no crash loses a
 * folder with what was promised to be in it. */
#ifndef CAIRN_STORE_BACKEND_DIR_H
#define CAIRN_STORE_BACKEND_DIR_H

#include "store/backend.h"

#include <limits.h>
#include <sys/stat.h>

#define DIR_FOLDER_UNSYNCED 01700 /* mode bits, of S_ISVTX | 0777 */
/* How often something is tried again because another process took a folder away meanwhile. */
#define DIR_TRIES 16

struct dir_backend {
    struct backend base;
    int root;     /* the store's folder */
    bool openat2; /* false: kernel or sandbox lack it, keys are walked name by name */
    char *path;   /* owned; as it was given, for messages */
};

static inline struct dir_backend *dir_of(struct backend *b)
{
    return (struct dir_backend *)b;
}

/* ---- backend_dir_path.c ---- */

#define DIR_SHOWN_MAX 200
/* key for a message: keys found in a store may hold any byte, and messages go to terminals. */
void dir_key_show(const char *key, char out[DIR_SHOWN_MAX]);
/* Invalid: empty, longer than PATH_MAX, or with an empty, "." or ".." name in it. */
CAIRN_MUST_CHECK int dir_key_check(const char *key, struct cairn_error *err);
/* dir_key_check and op_check under the name "<verb> <key>". */
CAIRN_MUST_CHECK int dir_begin(const struct cairn_op *op, const char *verb, const char *key,
                               struct cairn_error *err);
CAIRN_MUST_CHECK int dir_op_check(const struct cairn_op *op, const char *verb, const char *key,
                                  struct cairn_error *err);
/* The class of a failed call about key. ENOENT is permanent where the store's folder is gone. */
int dir_fail(const struct dir_backend *d, int sys_errno, const char *verb, const char *key,
             struct cairn_error *err);
/* As dir_fail for what creates: never not_found. */
int dir_fail_write(const struct dir_backend *d, int sys_errno, const char *verb, const char *key,
                   struct cairn_error *err);
/* Permanent if the store's folder was removed. */
CAIRN_MUST_CHECK int dir_root_check(const struct dir_backend *d, const char *verb,
                                    struct cairn_error *err);

/* path is checked, or "" for the root. ELOOP: a symbolic link, wherever in it. O_CREAT is not for
 * this. The caller owns the descriptor. */
int dir_resolve(const struct dir_backend *d, const char *path, int flags);
/* openat of one name with the same rule. */
int dir_step(int at, const char *name, int flags);

/* The last name of key; parent gets what stands before it ("" for the root). */
const char *dir_split(const char *key, char parent[PATH_MAX]);
/* The folder, for reading and fsync. make: it is made if need be, and those above it; ENOENT then
 * means that others keep taking it away. */
int dir_folder(const struct dir_backend *d, const char *path, bool make);
/* What is in the folder path, open as fd, becomes durable, and so does the folder itself. -1 with
 * errno. */
int dir_folder_settle(const struct dir_backend *d, const char *path, int fd);
/* fsync; file systems that cannot do it to folders are forgiven. -1 with errno. */
int dir_folder_sync(int fd);

void dir_stat_of(const struct stat *st, struct backend_stat *out);

/* ---- backend_dir_temp.c ---- */

enum dir_install {
    DIR_REPLACE, /* durable, whether or not the key is taken */
    DIR_ONCE,    /* durable; busy if the key is taken */
    DIR_STAGE,   /* as DIR_REPLACE, but durable, bytes and name, only by the commit */
};
/* A whole object: a file in tmp/, fsynced, then under its name, with the folder fsynced. */
CAIRN_MUST_CHECK int dir_write(const struct dir_backend *d, const struct cairn_op *op,
                               const char *verb, const char *key, const void *data, size_t len,
                               enum dir_install how, struct cairn_error *err);
/* rename, with EEXIST if to is taken, on any file system. -1 with errno. */
int dir_rename_once(int from_folder, const char *from, int to_folder, const char *to);

int dir_put(struct backend *b, const struct cairn_op *op, const char *key, const void *data,
            size_t len, struct cairn_error *err);
int dir_upload_new(struct backend *b, const struct cairn_op *op, struct backend_upload **out,
                   struct cairn_error *err);
int dir_upload_commit(struct backend_upload *up, const struct cairn_op *op, const char *key,
                      uint64_t size, struct cairn_error *err);
void dir_upload_abort(struct backend_upload *up);

/* ---- backend_dir_remove.c ---- */

int dir_remove(struct backend *b, const struct cairn_op *op, const char *const *keys, size_t n,
               bool *failed, struct cairn_error *err);

/* ---- backend_dir_record.c ---- */

int dir_stage(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
              const void *meta, size_t len, struct cairn_error *err);
int dir_commit(struct backend *b, const struct cairn_op *op, const char *id, const char *gen,
               const void *meta, size_t len, enum backend_once once, struct cairn_error *err);
void dir_unstage(struct backend *b, const char *id, const char *gen);
int dir_lock(struct backend *b, const struct cairn_op *op, const char *id, int *lock,
             struct cairn_error *err);
void dir_unlock(struct backend *b, const char *id, int lock);

/* ---- backend_dir_list.c ---- */

int dir_list(struct backend *b, const struct cairn_op *op, const char *prefix, const char *after,
             struct backend_iter **out, struct cairn_error *err);
int dir_list_folders(struct backend *b, const struct cairn_op *op, const char *prefix,
                     const char *after, struct backend_iter **out, struct cairn_error *err);
int dir_iter_next(struct backend_iter *it, const struct cairn_op *op, struct backend_entry *out,
                  struct cairn_error *err);
void dir_iter_free(struct backend_iter *it);

#endif
