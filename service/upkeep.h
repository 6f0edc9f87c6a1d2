/* What the service does by itself, by the clock: sweeps (which also delete what is over its time),
 * clearing away stagings that nobody uses, and giving free memory back.
 *
 *   task    first                                   then                       on
 *   sweep   within a tenth of the interval, at      each interval, 10 % more   gc_runner's thread
 *           most a minute                           or less
 *   tidy    within a second                         every ten minutes, or      a lane
 *                                                   oftener if stagings are
 *                                                   kept for less than forty
 *
 * With records that end by themselves (a TTL), sweeps are at most an hour apart. A task that is due
 * while it still runs is not begun again, so nothing piles up behind one that hangs; one that fails
 * is logged when it begins to and at most every ten minutes, and tried again when it is next due.
 *
 * Leases end, cached files are evicted and credentials are renewed by threads of the store. */
#ifndef CAIRN_SERVICE_UPKEEP_H
#define CAIRN_SERVICE_UPKEEP_H

#include "service/core.h"

extern const struct part upkeep_part;

#endif
