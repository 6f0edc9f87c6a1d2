/* Deleting what records leave behind: superseded and uncommitted generations, orphaned staged
 * metas, removals cut short, records whose time is over, pins, tombstones and temporary files that
 * nobody needs.
 *
 * Each is decided by a scan and looked at again under the record's lock, just before it is done.
 * A record that somebody else has locked is left to the next sweep. */
#ifndef CAIRN_GC_GENERATIONS_H
#define CAIRN_GC_GENERATIONS_H

#include "gc/roots.h"

CAIRN_MUST_CHECK int generations_sweep(struct gc_run *run, const struct roots *r,
                                       struct cairn_error *err);
/* Retention, and removals that were cut short. */
CAIRN_MUST_CHECK int retention_sweep(struct gc_run *run, const struct roots *r,
                                     struct cairn_error *err);
/* Pins without a holder, tombstones, staged metas without a manifest, temporary files, intents. */
CAIRN_MUST_CHECK int leftovers_sweep(struct gc_run *run, const struct roots *r,
                                     struct cairn_error *err);

#endif
