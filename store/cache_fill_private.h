/* Between cache_fill.c (the table of fills and its threads), cache_fill_work.c (what a fill does)
 * and cache_fill_get.c (what callers see). */
#ifndef CAIRN_STORE_CACHE_FILL_PRIVATE_H
#define CAIRN_STORE_CACHE_FILL_PRIVATE_H

#include "store/cache_fill.h"

/* One read brings at most so much of a pack, over gaps of at most FILL_GAP that nobody wants. */
#define FILL_LEN_MAX    (4u * 1024 * 1024)
#define FILL_GAP        32768u
#define FILL_CHUNKS_MAX FILL_HOLD_MAX
/* Fewer than requests may be in flight at once (16): however slow downloads are, somebody who only
 * wants to look at a name gets through. */
#define FILL_THREADS 12

enum fill_state { FILL_QUEUED, FILL_READING, FILL_WAITING, FILL_DECODING, FILL_DONE };

/* What became of a chunk. */
struct fill_result {
    const uint8_t *plain;    /* in the fill's buffers, or own; NULL: see err */
    uint8_t *own;            /* owned */
    struct cairn_error *err; /* owned; NULL with plain NULL: see the fill's own */
    uint32_t len;
};

struct fill_link {
    struct fill *who; /* a reference */
    struct fill_link *next;
};

/* wants, n, based, from and len are constant. results, buffers, rc and err belong to the thread
 * that works on the fill until it is DONE, then they are constant. The rest is guarded by the
 * table's lock. */
struct fill {
    struct fill_want *wants; /* owned; all of one pack, by ascending offset */
    size_t n;
    bool based; /* one of them is: it may have to wait, and so nothing waits for it in turn */
    uint64_t from;
    size_t len;

    uint8_t *stored, *decoded;
    struct fill_result *results;
    bool came; /* all of it came into the cache before the read began */
    int rc;    /* of the read */
    struct cairn_error err;
    struct fill_hold bases; /* set by who began it, before the last `pending` goes */

    enum fill_state state;
    unsigned refs;
    unsigned pending; /* what has to end before it can be decoded: read, bases, who sets it up */
    struct fill_link *dependents;
    struct fill *next;     /* of those that are not DONE */
    struct fill *next_job; /* in the queue */
    pthread_cond_t ended;
};

struct fills {
    struct cairn_store *s;       /* borrowed */
    struct cairn_cancel *cancel; /* owned; fired by fills_free */
    pthread_mutex_t lock;        /* guards what follows */
    pthread_cond_t more;         /* a job, or stop */
    struct fill *active;
    struct fill *jobs, **jobs_tail;
    bool stop;
    unsigned n_threads, idle, n_jobs;
    pthread_t threads[FILL_THREADS];
};

/* Its place in fill->wants, or SIZE_MAX. */
size_t fill_find(const struct fill *fill, const struct fill_want *want);
void fill_unref(struct fills *f, struct fill *fill); /* without the lock */

/* One that has the chunk, or will: of hold, or any that is not DONE. With a reference; NULL: none.
 */
struct fill *fill_find_held(struct fills *f, const struct fill_want *want, struct fill_hold *hold);

/* What a thread does with a fill, without the lock. */
void fill_read(struct fills *f, struct fill *fill);
void fill_decode(struct fills *f, struct fill *fill);

/* The chunk's bytes out of the cache, verified, into out (chunk size bytes); *ref stays for the
 * caller to put back. False: not there. */
bool fill_from_cache(struct cairn_store *s, const struct fill_want *want, void *out,
                     struct cache_ref *ref);
#endif
