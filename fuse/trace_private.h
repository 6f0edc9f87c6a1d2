/* Between trace.c (what is open, and the threads) and trace_work.c (what they do). */
#ifndef CAIRN_FUSE_TRACE_PRIVATE_H
#define CAIRN_FUSE_TRACE_PRIVATE_H

#include "fuse/generation.h"
#include "fuse/touches.h"
#include "fuse/trace.h"

#include <pthread.h>

#define TRACE_THREADS 3

enum own { OWN_UNKNOWN, OWN_NONE, OWN_THERE };

/* Guarded by the tracer's lock, but touches, which is constant. */
struct traced {
    struct touches *touches;          /* owned; NULL: the generation is too large for it */
    struct generation *g;             /* whose it is */
    unsigned opens;                   /* of its files */
    enum own own;                     /* whether it has a trace */
    uint32_t chunks;                  /* of that, or of its parent's if it has none */
    int64_t known_ns;                 /* when that was found out; 0: never */
    bool fetched;                     /* all of it was brought here then */
    bool queued;                      /* a prefetch is, which has not begun */
    struct cairn_cancel *prefetch;    /* of the job that runs; borrowed; NULL: none */
    struct traced *next_open, **link; /* of those with opens */
};

struct job {
    struct generation *g; /* owned reference */
    bool keep;            /* touched is to be kept; else: prefetch */
    struct touched touched;
    struct job *next;
};

struct tracer {
    struct mount *m;
    struct cairn_cancel *cancel; /* owned; of what is kept */
    pthread_mutex_t lock;        /* guards all below, and every struct traced; then come the lock of
                                  * generations, and those of touches */
    pthread_cond_t wake, quiet;
    struct job *first, **last;
    size_t n;
    unsigned n_keep;     /* jobs that keep something: queued or running */
    unsigned n_fetching; /* prefetches that run */
    bool ending;         /* nothing is fetched ahead any more */
    bool stop;
    int64_t refused_ns; /* the store took no trace; 0: it did, or was not asked */
    struct traced *open;
    struct cairn_cancel *running[TRACE_THREADS]; /* of prefetches; borrowed */
    pthread_t threads[TRACE_THREADS];
    unsigned n_threads;
};

/* Bring here what the generation's trace, or its parent's, names. */
CAIRN_MUST_CHECK int trace_fetch(struct tracer *t, struct generation *g, const struct cairn_op *op,
                                 struct cairn_error *err);
/* Put what j has, if the store has no trace of the generation, or one that lacks much of it. */
CAIRN_MUST_CHECK int trace_keep(struct tracer *t, struct job *j, const struct cairn_op *op,
                                struct cairn_error *err);

#endif
