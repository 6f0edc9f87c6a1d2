/* The inodes that the kernel knows: one struct for each, found again by kind and key.
 *
 * The kernel's node id is the address of the struct (1 for the root). An inode lives as long as the
 * kernel has it looked up (lookups > 0); each reply with an entry adds one to that (inode_intern,
 * inode_ref), each forget takes some away. So a handler may use the inode that a request names, and
 * must not use one any more after it answered with an error or forgot it.
 *
 * Thread-safe. What is not said to be guarded is constant from inode_intern on. */
#ifndef CAIRN_FUSE_INODE_H
#define CAIRN_FUSE_INODE_H

#include "fuse/mount_private.h"
#include "store/manifest.h"

enum inode_kind {
    INODE_ROOT,
    INODE_SPOOL,  /* whatever lies in the spool: stagings and all in them, meta.json.tmp, … */
    INODE_RECORD, /* <id>/, whether the store has it or only the spool */
    INODE_META,   /* <id>/meta.json of one generation: its bytes never change */
    INODE_DIGEST, /* <id>/digest-<gen> */
    INODE_EXPORT, /* <id>/export-<gen>/ */
    INODE_SUBDIR, /* a folder in it */
    INODE_FILE,   /* a committed file: one inode per content, whatever its names */
};

struct generation;  /* generation.h */
struct file_state;  /* file.h */
struct spool_inode; /* spool.h */

struct inode {
    enum inode_kind kind;
    uint64_t ino; /* st_ino: the same on every node and after every restart for what is committed */
    union {
        struct {
            char id[ID_MAX + 1]; /* of RECORD; META, DIGEST, EXPORT and SUBDIR have all three */
            char gen[GEN_TEXT];
            char *path; /* SUBDIR: "a/b", no slash at the end; owned; else NULL */
            /* META, DIGEST: owned bytes and their length */
            void *bytes;
            size_t len;
            int64_t mtime_ns; /* META */
        };
        struct {
            uint8_t content[MANIFEST_CONTENT_LEN];
            uint64_t size, data_bytes;
            struct file_state *file; /* owned */
        };
        struct spool_inode *spool; /* owned, freed by spool_inode_free */
    };
    /* private to inode.c */
    uint64_t lookups; /* guarded by the table's lock */
    void *key;
    size_t key_len;
    bool hidden; /* another inode has its key now; guarded by the table's lock */
    struct inode *next;
};

CAIRN_MUST_CHECK int inode_table_new(struct inode_table **out, struct cairn_error *err);
/* Frees every inode that is left. NULL is allowed. */
void inode_table_free(struct inode_table *t);

struct inode *inode_of(struct mount *m, uint64_t node_id);
uint64_t inode_node_id(const struct mount *m, const struct inode *i);

/* A new inode that is not in the table; NULL: no memory. key is copied. For inode_intern or
 * inode_free. */
struct inode *inode_new(enum inode_kind kind, const void *key, size_t key_len);
void inode_free(struct inode *i);

/* The inode of this kind and key, looked up once more; NULL: there is none. */
struct inode *inode_find(struct mount *m, enum inode_kind kind, const void *key, size_t key_len);
/* fresh (transferred), or the one that is there already under its kind and key; looked up once
 * more. */
struct inode *inode_intern(struct mount *m, struct inode *fresh);
/* Take an inode's key away, so that the next intern of the key makes a new inode. */
void inode_hide(struct mount *m, struct inode *i);
/* The same of all that lies in the folder of a record and is named by it (META, DIGEST, EXPORT,
 * SUBDIR). */
void inode_hide_record(struct mount *m, const char *id);
void inode_ref(struct mount *m, struct inode *i);
/* n lookups are gone; the last frees it. */
void inode_forget(struct mount *m, struct inode *i, uint64_t n);

/* st_ino of what has this name in the tree (a path as seen from the root): never 0 or 1. */
uint64_t inode_number(const void *key, size_t len);

/* The folder of a record, looked up once more; NULL: no memory. */
struct inode *inode_record(struct mount *m, const char *id);

#endif
