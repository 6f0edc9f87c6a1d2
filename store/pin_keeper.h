/* The keeper of pins: what this process holds open for long is made known to the collectors of
 * every node.
 *
 * Reads that are short need no pin: a pack that a reader has resolved stays for longer than the
 * grace (docs/protocol-collector.md). So a hold costs nothing at first. Once it is half the grace
 * old, one thread of the store puts a pin (pin.h) that names its generation and packs, puts it
 * again every quarter of the grace, and removes it when the last hold of that generation is
 * released. The pins of a process that died expire by the collector's rule, after twice the grace.
 *
 *   hold of a generation    its pin
 *   younger than grace / 2  none
 *   older                   put; put again each grace / 4; all holds of a generation share one
 *   all released            removed by the thread, soon; if that fails it is tried some times, and
 *                           then left to expire
 *
 * A put that fails is tried again each grace / 32 and logged, when it begins to fail and when it
 * works again. No call here waits for the store: holding and releasing touch memory only.
 * Thread-safe. Times are of CLOCK_BOOTTIME, so that a machine that was suspended knows that its
 * pins are late. */
#ifndef CAIRN_STORE_PIN_KEEPER_H
#define CAIRN_STORE_PIN_KEEPER_H

#include "store/manifest.h"
#include "store/store.h"

#define KEEPER_GRACE_NS (3600 * 1000000000LL)

struct pin_keeper;
struct keeper_hold;

/* s->keeper is one of these from store_new to cairn_close. grace_ns: the collectors' (0: an hour).
 * tick (may be NULL) is called from the keeper's thread, without locks, each time that it looks
 * around: at least every grace / 16 while anything is held. Errors: transient (no thread),
 * internal. */
CAIRN_MUST_CHECK int keeper_new(struct cairn_store *s, int64_t grace_ns,
                                void (*tick)(struct cairn_store *s), struct pin_keeper **out,
                                struct cairn_error *err);
/* All holds were released. Pins that are there are removed, as far as that works within
 * KEEPER_CLOSE_NS; the rest expires. NULL is allowed. */
#define KEEPER_CLOSE_NS (5 * 1000000000LL)
void keeper_free(struct pin_keeper *k);

/* Hold a generation that was just resolved (its meta and m were read less than half the grace ago).
 * m is borrowed for the call: its packs are copied. The caller owns *out until keeper_release.
 * Errors: internal (memory, random numbers). */
CAIRN_MUST_CHECK int keeper_hold(struct cairn_store *s, const char *id, const char *gen,
                                 const struct manifest *m, struct keeper_hold **out,
                                 struct cairn_error *err);
/* The manifest was loaded again and may name other packs: they are held as well. */
CAIRN_MUST_CHECK int keeper_hold_more(struct cairn_store *s, struct keeper_hold *h,
                                      const struct manifest *m, struct cairn_error *err);
/* NULL is allowed. */
void keeper_release(struct cairn_store *s, struct keeper_hold *h);

/* Look around now instead of when the time has come: for a clock that jumped. */
void keeper_wake(struct cairn_store *s);

struct keeper_stats {
    uint64_t holds, held_generations, pins; /* pins: put and not removed */
    uint64_t puts, removes, failures;       /* of calls, since the start */
    uint64_t busy;                          /* calls under way, which are counted already */
};
void keeper_stats(struct cairn_store *s, struct keeper_stats *out);

#endif
