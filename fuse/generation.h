/* Generations at hand: the manifest of (id, gen), opened once and shared by everybody who reads
 * from it, found again while it is in use or was so lately. Thread-safe. */
#ifndef CAIRN_FUSE_GENERATION_H
#define CAIRN_FUSE_GENERATION_H

#include "fuse/mount_private.h"
#include "store/manifest.h"

/* Constant once it is in the table, but refs (guarded by the table's lock) and traced. */
struct generation {
    char id[ID_MAX + 1], gen[GEN_TEXT];
    struct cairn_record *record;    /* owned; reads go through it */
    char digest[CAIRN_DIGEST_TEXT]; /* "" without one */
    int64_t created_ns;             /* as its publisher said */
    int64_t used_ns;                /* CLOCK_MONOTONIC */
    size_t bytes;                   /* of its manifest */
    struct traced *traced;          /* owned; trace.h says who sets it; NULL: nothing is known */
    unsigned refs;
    bool stale; /* not to be found any more */
    struct generation *next;
};

CAIRN_MUST_CHECK int generations_new(struct generations **out, struct cairn_error *err);
void generations_free(struct generations *g); /* NULL is allowed */

/* not_found: there is no such export, committed or not. corrupt: its manifest is damaged. The
 * caller owns one reference of *out. */
CAIRN_MUST_CHECK int generation_get(struct mount *m, const struct cairn_op *op, const char *id,
                                    const char *gen, struct generation **out,
                                    struct cairn_error *err);
struct generation *generation_ref(struct mount *m, struct generation *g);
void generation_put(struct mount *m, struct generation *g); /* NULL is allowed */
/* Let go of what nobody used for a minute. To be called now and then. */
void generations_tidy(struct mount *m);
/* What is at hand of a record is not to be found any more (who has it keeps it). */
void generations_forget(struct mount *m, const char *id);

/* Below the folder path ("" for the export itself) of g: index of the file called name, or -1;
 * *folder: there is a folder of that name. */
int64_t generation_child(const struct generation *g, const char *path, const char *name,
                         bool *folder);

uint64_t generation_files(const struct generation *g);

struct generation_entry {
    char name[256];
    int64_t file; /* -1: a folder */
};
/* The next entry of folder path. *at: 0 at first, then as this left it. False: there is none. */
bool generation_next(const struct generation *g, const char *path, uint64_t *at,
                     struct generation_entry *out);

#endif
