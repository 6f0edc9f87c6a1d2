/* The mounted checkpoint root (docs/mount.md): a store shown as the folder in which a sandbox
 * daemon expects its records. One struct mount is one mount point; a process may have several.
 *
 * Thread-safe: any thread may call mount_wait and mount_stop, the latter once. */
#ifndef CAIRN_FUSE_MOUNT_H
#define CAIRN_FUSE_MOUNT_H

#include "store/cairn.h"

struct mount;

/* When a file that is opened is also copied into the cache, from where the kernel then reads it by
 * itself (passthrough). */
enum mount_materialise {
    MOUNT_MATERIALISE_SECOND = 0, /* when it is opened for the second time */
    MOUNT_MATERIALISE_ALWAYS,
    MOUNT_MATERIALISE_NEVER,
};

#define MOUNT_APART_MAX 4

struct mount_config {
    const char *dir; /* an existing empty folder, or a mount of ours left dead by a crash */
    /* The store's folder, the socket, …: what must not lie in dir nor hold it, or the mount would
     * wait for itself. The state folder is one without being named. Borrowed for the call. */
    const char *apart[MOUNT_APART_MAX];
    enum mount_materialise materialise;
    /* Of a store that is far away: the order in which a generation is read first is not kept, nor
     * made use of. */
    bool no_trace;
    unsigned workers;           /* that take requests; 0: 4 */
    unsigned read_ahead_kib;    /* 0: 1024, of a store that is far away 4 */
    int64_t read_timeout_ns;    /* of one read; 0: 120 s */
    int64_t other_timeout_ns;   /* of everything else but publishing; 0: 30 s */
    int64_t publish_timeout_ns; /* of the rename that publishes or commits; 0: 30 min */
    /* For how long a caller which got a signal, and which cannot be seen (of another PID
     * namespace), is not taken for killed; 0: 120 s. */
    int64_t unseen_timeout_ns;
    /* Called once, from a thread of the mount, when it ended without mount_stop (umount by somebody
     * else). It must not call mount_stop itself. NULL: nobody wants to know. */
    void (*ended)(void *ctx);
    void *ctx;
};

/* Mount. Returns when the mount answers. store (opened with a state folder) is borrowed until
 * mount_stop, config only for the call. Blocks SIGUSR2 in no thread but uses it to wake its own:
 * the process must not use that signal otherwise.
 *
 * invalid: dir is no folder, not empty, or holds store or state; busy: something else is mounted
 * there, or another mount of this state folder runs; permanent: the kernel or fusermount3 refused.
 */
CAIRN_MUST_CHECK int mount_start(struct cairn_store *store, const struct mount_config *config,
                                 const struct cairn_op *op, struct mount **out,
                                 struct cairn_error *err);

/* Until the mount ended by itself, or op says so (timeout, cancelled). */
CAIRN_MUST_CHECK int mount_wait(struct mount *m, const struct cairn_op *op,
                                struct cairn_error *err);

/* Unmount and free m. What is under way may finish until op's deadline (at most), then it is
 * cancelled. A mount that is in use (open files, a shell in it) is detached from the tree of names
 * and cut off: its users get ENOTCONN, but files that the kernel reads by itself go on working. The
 * error says that this was so (busy); m is freed in any case. */
int mount_stop(struct mount *m, const struct cairn_op *op, struct cairn_error *err);

struct mount_counts {
    uint64_t requests, reads, read_bytes, errors;
    uint64_t opens_lazy, opens_passthrough;
    uint64_t traces;           /* put into the store */
    uint64_t prefetched_bytes; /* by traces */
    bool passthrough;          /* the kernel does it here */
};
void mount_counts(const struct mount *m, struct mount_counts *out);

#endif
