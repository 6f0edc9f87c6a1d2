/* The inside of struct mount, for the files of fuse/. */
#ifndef CAIRN_FUSE_MOUNT_PRIVATE_H
#define CAIRN_FUSE_MOUNT_PRIVATE_H

#include "fuse/mount.h"
#include "store/store.h"

#include <stdatomic.h>
#include <sys/types.h>

struct buffers;
struct fuse_session;
struct generations;
struct inode_table;
struct lanes;
struct materialiser;
struct records;
struct spool;
struct tracer;

/* Set before the first request is taken and constant from then on, but the counts. */
struct mount {
    struct cairn_store *store; /* borrowed */
    char *dir;                 /* owned, absolute */
    uid_t uid;                 /* owner of everything that the store shows */
    gid_t gid;
    int64_t started_ns; /* CLOCK_REALTIME */
    bool remote;        /* the store is no local folder: what asks it may take long */
    int64_t read_timeout_ns, other_timeout_ns, publish_timeout_ns, unseen_timeout_ns;
    enum mount_materialise materialise;
    bool tracing; /* trace.h */

    struct inode_table *inodes;        /* owned, as are all below; each synchronises itself */
    struct buffers *buffers;           /* for answers: buffers.h */
    struct lanes *lanes;               /* threads for what may take long: task.h */
    struct records *records;           /* what is known of each record: records.h */
    struct generations *generations;   /* manifests at hand: generation.h */
    struct spool *spool;               /* staging: spool.h */
    struct tracer *tracer;             /* order of first reads: trace.h; NULL: not looked at */
    struct materialiser *materialiser; /* copies in the cache; NULL: none are made */
    struct fuse_session *session;
    int device;                  /* /dev/fuse, the session's; -1: not known */
    struct cairn_cancel *cancel; /* fired by mount_stop: ends what is under way */
    /* Of the exchange of INIT, over before there is a second thread: passthrough.c */
    uint64_t init_unique;
    bool init_offered, init_done;

    _Atomic uint64_t n_requests, n_reads, n_read_bytes, n_errors, n_opens_lazy, n_opens_passthrough;
    _Atomic uint64_t n_traces, n_prefetched_bytes;
    atomic_bool passthrough;
};

/* How long the kernel may believe a name, and we ourselves what we know of a record. Together they
 * stay below the two seconds after which a change made on another node must be visible. */
#define MOUNT_ENTRY_SECONDS   0.5
#define MOUNT_RECORD_FRESH_NS ((int64_t)1000 * 1000 * 1000)
/* Of what never changes. */
#define MOUNT_CONSTANT_SECONDS 86400.0

#endif
