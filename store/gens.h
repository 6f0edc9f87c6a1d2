/* Materialised generations: folders of local files that many share, under <state>/cache/gens.
 *
 *   <id>/<gen>-<content>-<nonce>/export/…   the files, as the users see them
 *   <id>/<gen>-<content>-<nonce>/seal       which boot of the machine wrote them, and their size
 *   .tmp-<nonce>/                           one being made, or being removed
 *
 * A generation's name does not name its bytes (the same meta may be published again with another
 * export), so the content stands in the name as well; nor does it forbid a second copy, for when
 * the first was spoiled while somebody uses it.
 *
 * Several processes share a folder. Whoever makes or uses an entry holds a shared flock on its
 * folder, which dies with its process; whoever removes one needs the exclusive one, renames it away
 * under that, and so never takes what is in use, nor half of anything. Entries come by one rename,
 * whole. Two processes may download the same generation at once; the second finds the first one's
 * and drops its own.
 *
 * What is trusted. Nothing is fsynced. An entry that was made in this boot of the machine is whole,
 * since it was renamed when all was written, and what the kernel was given it has; each time before
 * it is handed out, the size, the time and the mode of every file and folder are compared with what
 * they were given. One of an earlier boot may have lost bytes, so every byte is read and verified
 * against the manifest once, and then it belongs to this boot. What does not pass is removed.
 *
 * Thread-safe. No lock is held over I/O. */
#ifndef CAIRN_STORE_GENS_H
#define CAIRN_STORE_GENS_H

#include "store/budget.h"
#include "store/manifest.h"
#include "store/store.h"

#define GENS_CONTENT_TEXT 33
#define GENS_NAME_MAX     BUDGET_NAME_MAX /* "<id>/<gen>-<content>-<nonce>" */

struct gens;
struct gens_entry; /* one that this process uses */

struct gens_key {
    char id[ID_MAX + 1], gen[GEN_TEXT];
    char content[GENS_CONTENT_TEXT]; /* of paths, sizes and bytes: SHA-256, cut to 128 bits */
};
CAIRN_MUST_CHECK int gens_key(const struct manifest *m, struct gens_key *out,
                              struct cairn_error *err);

/* Make the folder, and clear away what processes that died have left in it. secret is borrowed:
 * XXH3_SECRET_LEN bytes, the store's. The caller owns *out until gens_free. */
CAIRN_MUST_CHECK int gens_open(const char *state, const uint8_t *secret, struct gens **out,
                               struct cairn_error *err);
void gens_free(struct gens *g); /* no entry is in use; NULL is allowed */

/* An entry of key that passes the checks, with a reference; *out NULL: there is none. full: also
 * one of an earlier boot, which takes as long as reading it; else only those that cost a look at
 * each file. m is the manifest that key was made of. */
CAIRN_MUST_CHECK int gens_find(struct gens *g, const struct cairn_op *op,
                               const struct gens_key *key, const struct manifest *m, bool full,
                               struct gens_entry **out, struct cairn_error *err);
struct gens_entry *gens_ref(struct gens_entry *e);
void gens_unref(struct gens_entry *e);             /* NULL is allowed */
const char *gens_path(const struct gens_entry *e); /* of its export */
const struct gens_key *gens_key_of(const struct gens_entry *e);

/* Making one: begin, fill the folder target, seal, install, release. */
struct gens_build {
    struct gens *g;
    int fd; /* of the folder, flocked (shared), owned; -1: none */
    char name[32];
    char *target;            /* where the export is to be made, owned */
    uint64_t expected;       /* bytes: what the budget is told meanwhile */
    uint64_t bytes;          /* on the disk; known once it is sealed */
    struct gens_build *next; /* guarded by the lock of g */
};
#define GENS_BUILD_INIT ((struct gens_build){.fd = -1})

/* b stays where it is until its release. */
CAIRN_MUST_CHECK int gens_build_begin(struct gens *g, uint64_t expected, struct gens_build *b,
                                      struct cairn_error *err);
/* The export is complete: make it read-only and stamp it. cloned: bytes of it that it shares with
 * the store. */
CAIRN_MUST_CHECK int gens_build_seal(struct gens_build *b, const struct manifest *m,
                                     uint64_t cloned, struct cairn_error *err);
/* Rename it into its place; *out has a reference. */
CAIRN_MUST_CHECK int gens_build_install(struct gens_build *b, const struct gens_key *key,
                                        struct gens_entry **out, struct cairn_error *err);
void gens_build_release(struct gens_build *b); /* removes what was not installed */

/* The record is gone: its entries go, those in use when they are let go. */
void gens_forget(struct gens *g, const char *id);
/* Remove every entry that nobody uses, in any process. True if there was one. */
bool gens_clear(struct gens *g);
/* How many entries this process has removed so far. */
uint64_t gens_removed(struct gens *g);
/* Wait for the removals that other threads have begun: their room is free only then. */
CAIRN_MUST_CHECK int gens_settle(struct gens *g, const struct cairn_op *op,
                                 struct cairn_error *err);

/* What the budget asks (budget.h); ctx is the struct gens. */
int gens_scan(void *ctx, budget_emit *emit, void *to, struct cairn_error *err);
int gens_evict(void *ctx, const struct budget_item *item, struct cairn_error *err);

#endif
