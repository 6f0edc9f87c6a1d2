/* Shared fetches (cairn_fetch_shared, cairn.h): one download for all who want a generation.
 *
 *   a call   look up the record      a flight by id: meta.json and manifest, read once for all who
 *                                    ask at the same time
 *            find it here            gens_find, on the caller's thread
 *            else make it            a flight by id, generation and content, on its own thread and
 *                                    time: verify what an earlier boot left, or download it, look
 *                                    once more whether the record is still there, install
 *            take a lease            of what the flight found or made
 *
 * Nothing of a caller is used by a flight, and no lock is held by either while it works. */
#ifndef CAIRN_STORE_SHARED_FETCH_H
#define CAIRN_STORE_SHARED_FETCH_H

#include "store/store.h"

/* Downloads at once. Each uses the store's workers and up to 2 MiB of memory for each of them. */
#define SHARED_FETCH_MAX       4
#define SHARED_FETCH_BUDGET_NS (1800 * 1000000000LL)
/* How much older than a call may what it is told about the record be. */
#define SHARED_FETCH_STALE_NS (2 * 1000000000LL)

struct shared_fetch;
struct gens;

/* gens is borrowed. The caller owns *out until shared_fetch_free. */
CAIRN_MUST_CHECK int shared_fetch_new(struct cairn_store *s, struct gens *gens, int64_t budget_ns,
                                      struct shared_fetch **out, struct cairn_error *err);
/* Ends what flies: soon, since every wait of a flight ends when it is told so. What remains is one
 * write of each worker and the removal of what was half made. NULL is allowed. */
void shared_fetch_free(struct shared_fetch *f);

/* This process committed or removed id: calls from here on are not told what was before. */
void shared_fetch_changed(struct cairn_store *s);
/* It was removed: flights of it are ended and install nothing, its files go, those that are leased
 * when their leases end. Waits, within op, for an install under way. */
void shared_fetch_forget(struct cairn_store *s, const struct cairn_op *op, const char *id);

#endif
