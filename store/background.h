/* Chunking files in the background, as soon as whoever writes them is done, so that publishing
 * them later finds their chunks in the store and need not read them again.
 *
 *   state     a file in it                      leaves it by
 *   QUEUED    was closed                        the thread takes it: RUNNING
 *                                               forget, take: gone
 *   RUNNING   is read, its chunks are stored    that succeeds: KNOWN; fails, forget: gone
 *   KNOWN     its chunks are known              forget: gone; too many are known: the one that was
 *                                               known first is gone
 *
 * The caller says forget whenever a file is opened for writing, or its bytes may change in any
 * other way, and add when the last who could write is gone; so what is KNOWN is true. Beyond that,
 * size, time of modification and of change are compared (struct stat of add's descriptor when the
 * reading began, against that of take).
 *
 * What is stored for a file that is then never published are packs without references: the
 * collector's. Thread-safe; one thread of its own hands the work to the store's pool. */
#ifndef CAIRN_STORE_BACKGROUND_H
#define CAIRN_STORE_BACKGROUND_H

#include "store/manifest.h"
#include "store/store.h"

#include <sys/stat.h>

struct background;

/* Smaller files are not worth a pack of their own: they are read when they are published. */
#define BACKGROUND_MIN_BYTES ((uint64_t)1 << 20)
/* QUEUED and RUNNING, each of which holds two descriptors; what comes when so many wait is read
 * when it is published. */
#define BACKGROUND_WAITING_MAX ((size_t)64)
/* Memory for what is known; 64 bytes a chunk. */
#define BACKGROUND_KNOWN_MAX ((size_t)256 << 20)

/* s is borrowed until free. The caller owns *out. Errors: transient (no thread), internal. */
CAIRN_MUST_CHECK int background_new(struct cairn_store *s, struct background **out,
                                    struct cairn_error *err);
/* Cancels what runs, forgets everything, joins. NULL is allowed. */
void background_free(struct background *bg);
struct cairn_store *background_store(const struct background *bg);

/* The file behind fd (any descriptor of it, also O_PATH, borrowed for the call), if it is large
 * enough. id: the record that it will be published under, or NULL: what is committed there is the
 * parent, else what it resembles (kin.h); path: of the file in the export. Never blocks, never
 * fails: what cannot be done now is done by the publish. */
void background_add(struct background *bg, int fd, const char *id, const char *path);
/* The file that st is of is about to change, or gone. A run on it is cancelled, not waited for. */
void background_forget(struct background *bg, const struct stat *st);

/* File i of m (UINT32_MAX: all) was committed or opened here: what is saved next may resemble it.
 */
void background_remember(struct background *bg, const struct manifest *m, uint32_t i);
/* The generation that the file behind fd resembles (kin_find). */
struct manifest *background_kin(struct background *bg, const struct cairn_op *op, int fd,
                                const char *path, uint64_t size);

/* What is known of a file; held until background_put. */
struct background_file;

/* The chunks of the file that st is of, if they are known and st is still true; NULL otherwise.
 * Waits, within op, for a run on it. The manifest has the one file. */
struct background_file *background_take(struct background *bg, const struct cairn_op *op,
                                        const struct stat *st);
const struct manifest *background_manifest(const struct background_file *f);
void background_put(struct background_file *f); /* NULL is allowed */

/* Whether two looks at a file saw the same one, unchanged as far as its times tell. */
bool background_same_file(const struct stat *a, const struct stat *b);

/* For tests and metrics. */
struct background_counts {
    uint64_t added, known, failed, cancelled, taken; /* since the beginning */
    size_t waiting;                                  /* now: QUEUED and RUNNING */
    size_t ending;                                   /* now: RUNNING, and forgotten */
    size_t known_bytes;                              /* now */
};
void background_counts(struct background *bg, struct background_counts *out);

#endif
