/* What the files of gens share. */
#ifndef CAIRN_STORE_GENS_PRIVATE_H
#define CAIRN_STORE_GENS_PRIVATE_H

#include "base/util.h"
#include "store/gens.h"

#include <errno.h>
#include <pthread.h>

#define GENS_TMP    ".tmp-"
#define GENS_EXPORT "export"
#define GENS_SEAL   "seal"
#define GENS_BOOT   37 /* a UUID's text */

struct gens {
    /* constant */
    char *path; /* owned */
    int fd;     /* of the folder, owned */
    const uint8_t *secret;
    char boot[GENS_BOOT]; /* this boot of the machine; "": not known, so nothing is trusted */

    pthread_mutex_t lock; /* guards what follows, and each entry's fields below its constant ones */
    struct gens_entry *list;
    struct gens_build *builds; /* of this process, not yet installed */
    unsigned removing;         /* calls of gens_remove, by any thread */
    uint64_t removed;          /* of them that found something and took it away, ever */
    pthread_cond_t settled;    /* removing became 0 */
};

struct gens_entry {
    /* constant */
    struct gens *g;
    struct gens_key key;
    char name[GENS_NAME_MAX]; /* beneath the folder */
    char *path;               /* owned */
    int fd;                   /* of its folder, flocked (shared), owned */
    /* guarded by the lock */
    struct gens_entry *next;
    unsigned refs;
    bool unfit; /* spoiled, or its record is gone: not found any more, removed at the end */
};

struct gens_seal {
    char boot[GENS_BOOT];
    uint64_t bytes;
};

/* ---- gens.c ---- */

/* By this process. Others find out when they want to remove it. */
bool gens_is_used(struct gens *g, const char *name);

/* ---- gens_disk.c ---- */

/* ".tmp-" and 16 random digits. */
CAIRN_MUST_CHECK int gens_tmp_name(char out[32], struct cairn_error *err);
/* Open and lock the folder name, which must still be what that name leads to. -1 with errno;
 * EWOULDBLOCK: others use it, or are about to remove it. */
int gens_lock_folder(struct gens *g, const char *name, int operation);
/* It says nothing about the entry: this process, or the machine, is short of something. */
static inline bool gens_is_shortage(int sys_errno)
{
    return sys_errno == EMFILE || sys_errno == ENFILE || sys_errno == ENOMEM;
}
/* *sealed false: there is none, or it is damaged. Errors: it could not be told. */
CAIRN_MUST_CHECK int gens_seal_read(int entry, struct gens_seal *out, bool *sealed,
                                    struct cairn_error *err);
CAIRN_MUST_CHECK int gens_seal_write(int entry, const struct gens_seal *seal,
                                     struct cairn_error *err);
/* Remove an entry unless somebody uses it (busy). Absent is success. */
CAIRN_MUST_CHECK int gens_remove(struct gens *g, const char *name, struct cairn_error *err);
/* Call fn for each name of a folder beneath g that does not begin with a dot, until it returns
 * non-zero. An absent folder has none. */
CAIRN_MUST_CHECK int gens_each(struct gens *g, const char *folder,
                               int (*fn)(void *ctx, const char *name, struct cairn_error *err),
                               void *ctx, struct cairn_error *err);
/* As gens_open says. */
void gens_clean(struct gens *g);

/* ---- gens_check.c ---- */

/* Give every file and folder of the export its mode and time. *bytes: what they take. */
CAIRN_MUST_CHECK int gens_freeze(int export, const struct manifest *m, uint64_t *bytes,
                                 struct cairn_error *err);
/* Whether all is as gens_freeze left it, by size, time and mode. */
bool gens_is_frozen(int export, const struct manifest *m);
/* Whether every byte is what the manifest says. corrupt: it is not. */
CAIRN_MUST_CHECK int gens_check_bytes(int export, const struct cairn_op *op,
                                      const struct manifest *m, const uint8_t *secret,
                                      struct cairn_error *err);

#endif
