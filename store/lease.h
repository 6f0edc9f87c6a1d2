/* Leases: who was handed a materialised generation keeps it, and the packs it was made of, until
 * it lets go or its time is over. The public functions on them are in cairn.h.
 *
 * A lease lives in the memory of its process only; what protects its files from other processes
 * (a flock, gens.h) and its packs from collectors (a pin, pin_keeper.h) ends with the process, the
 * latter after twice the grace. Times are of CLOCK_BOOTTIME: a suspended machine's leases expire.
 * Thread-safe. Nothing is released under the lock. */
#ifndef CAIRN_STORE_LEASE_H
#define CAIRN_STORE_LEASE_H

#include "store/gens.h"
#include "store/pin_keeper.h"

#define LEASE_DEFAULT_NS (3600 * 1000000000LL)
#define LEASE_MAX_NS     (30 * 24 * 3600 * 1000000000LL)

struct lease_table;

CAIRN_MUST_CHECK int lease_table_new(struct cairn_store *s, struct lease_table **out,
                                     struct cairn_error *err);
/* Releases all that are left, before the keeper goes; free comes when the keeper, whose thread lets
 * leases expire, is gone. NULL is allowed, both. */
void lease_table_clear(struct lease_table *t);
void lease_table_free(struct lease_table *t);

/* A new lease. entry and hold are transferred on success. */
CAIRN_MUST_CHECK int lease_take(struct cairn_store *s, struct gens_entry *entry,
                                struct keeper_hold *hold, double seconds,
                                char text[CAIRN_LEASE_TEXT], double *left, struct cairn_error *err);

#endif
