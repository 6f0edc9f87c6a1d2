/* Names and attributes of what the store holds, as the mount shows it. */
#ifndef CAIRN_FUSE_COMMITTED_H
#define CAIRN_FUSE_COMMITTED_H

#include "fuse/ops.h"

/* Attributes of a committed inode (not SPOOL). Those that cannot change, and *constant, or what is
 * known now (of RECORD, EXPORT, META, DIGEST). */
CAIRN_MUST_CHECK int committed_attr(struct mount *m, const struct cairn_op *op,
                                    const struct inode *i, struct stat *st, double *seconds,
                                    struct cairn_error *err);

/* Whether the store can have an entry of that name there at all; false costs no look at it. */
bool committed_may_have(const struct inode *dir, const char *name);

/* The entry called name in a folder that the store has. *out is looked up once more. not_found:
 * there is none. */
CAIRN_MUST_CHECK int committed_find(struct mount *m, const struct cairn_op *op, struct inode *dir,
                                    const char *name, struct inode **out, struct cairn_error *err);

/* What a folder holds, the spool's part included. */
CAIRN_MUST_CHECK int committed_list(struct mount *m, const struct cairn_op *op, struct inode *dir,
                                    struct dirlist *list, struct cairn_error *err);

#endif
