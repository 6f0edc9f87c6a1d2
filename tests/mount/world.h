/* A store and the mounts of it, each in a process of its own with a state folder of its own, as on
 * so many nodes. The store is a directory, or with CAIRN_TEST_BUCKET (s3://bucket/prefix, endpoint
 * in CAIRN_TEST_ENDPOINT, credentials in the environment) a fresh prefix of a bucket. All functions
 * end the test on failure. */
#ifndef CAIRN_TESTS_MOUNT_WORLD_H
#define CAIRN_TESTS_MOUNT_WORLD_H

#include "store/cairn.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>

#define WORLD_NODES 3

struct world_node {
    pid_t pid; /* of mount-serve; 0: not mounted */
    char state[320], dir[320];
};

struct world {
    char top[256];   /* a folder of the test's own */
    char store[320]; /* as cairn_config has it */
    bool s3;
    struct world_node node[WORLD_NODES];
};

/* materialise: as mount-serve takes it; NULL: never. */
void world_start(struct world *w, size_t nodes, const char *materialise);
/* The same on a store folder and a state folder that are there already; either NULL: as usual. */
void world_start_at(struct world *w, size_t nodes, const char *store, const char *state);
void world_stop(struct world *w);

void world_mount(struct world *w, size_t node);
/* How mount-serve failed to mount, of its exit status. */
int world_mount_fails(struct world *w, size_t node);
void world_unmount(struct world *w, size_t node);
void world_kill(struct world *w, size_t node); /* SIGKILL; the mount is dead */
/* Mounts made from now on kill themselves at a step ("NAME:N", base/step.h; NULL: they do not). */
void world_kill_at(const char *step);
/* Whether mounts made from now on keep traces, and fetch ahead by them (at first they do). */
void world_trace(bool on);
/* What /proc says of node i's mount: the number of that name in the file "io" or "status"
 * (proc(5)).
 */
long world_proc(const struct world *w, size_t i, const char *file, const char *name);
/* Mounts made from now on run in a PID namespace of their own: to them, this process has no id. */
void world_apart(bool on);
/* Until the mount has died by itself. */
void world_died(struct world *w, size_t node);
/* The root of a mount, or a path in it. One of eight static texts. */
const char *world_path(const struct world *w, size_t node, const char *path);

/* The store without any mount. Owned by the caller. */
struct cairn_store *world_store(struct world *w);
/* Everything in the store verifies. */
void world_verify(struct world *w);

/* What a system call gave, which must not be -1. */
long sys_ok(long rc, const char *what);
#define ck_sys(call) sys_ok((long)(call), #call)
/* A text that fits. */
void text(char *out, size_t cap, const char *fmt, ...) CAIRN_PRINTF(3, 4);
/* It fails with this errno. */
#define ck_errno(call, want)                                                                       \
    do {                                                                                           \
        errno = 0;                                                                                 \
        __typeof__(call) sys_ = (call);                                                            \
        int errno_ = errno;                                                                        \
        ck_assert_msg(sys_ == (__typeof__(call))-1 && errno_ == (want), "%s: %s, not %s", #call,   \
                      sys_ == (__typeof__(call))-1 ? strerror(errno_) : "success",                 \
                      strerror(want));                                                             \
    } while (0)

#endif
