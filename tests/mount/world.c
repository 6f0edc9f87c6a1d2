#include "tests/mount/world.h"

#include "base/clock.h"
#include "base/util.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct world *live; /* what the end of the test's process takes down */
static pid_t live_pid;
static const char *live_materialise, *live_step;
static bool live_no_trace, live_apart;
static struct cairn_error err;

long sys_ok(long rc, const char *what)
{
    ck_assert_msg(rc != -1, "%s: %s", what, strerror(errno));
    return rc;
}

void text(char *out, size_t cap, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(out, cap, fmt, args);
    va_end(args);
    ck_assert_int_ge(n, 0);
    ck_assert_uint_lt((size_t)n, cap);
}

static void take_down(void)
{
    if (!live || live_pid != getpid())
        return;
    for (size_t i = 0; i < WORLD_NODES; i++) {
        struct world_node *n = &live->node[i];
        if (n->pid > 0) {
            kill(n->pid, SIGKILL);
            waitpid(n->pid, NULL, 0);
        }
        if (n->dir[0])
            umount2(n->dir, MNT_DETACH);
    }
}

/* A test that fails leaves without a word: somebody else takes the dead mounts away. */
static void start_janitor(const struct world *w)
{
    int ends[2];
    char c;
    ck_sys(pipe2(ends, O_CLOEXEC));
    pid_t pid = (pid_t)ck_sys(fork());
    if (pid != 0) {
        close(ends[0]); /* the other end lives as long as the test */
        return;
    }
    setsid();
    close(ends[1]);
    while (read(ends[0], &c, 1) < 0 && errno == EINTR)
        ;
    for (size_t i = 0; i < WORLD_NODES; i++)
        if (w->node[i].dir[0])
            umount2(w->node[i].dir, MNT_DETACH);
    _exit(0);
}

static struct cairn_config config_of(const struct world *w, const char *state,
                                     struct cairn_s3_config *s3)
{
    *s3 = (struct cairn_s3_config){
        .endpoint = getenv("CAIRN_TEST_ENDPOINT"), .region = "us-east-1", .force_path_style = true};
    return (struct cairn_config){
        .store = w->store, .state = state, .workers = 2, .s3 = w->s3 ? s3 : NULL};
}

static void make_store(struct world *w, const char *store)
{
    const char *bucket = getenv("CAIRN_TEST_BUCKET");
    w->s3 = bucket && !store;
    if (w->s3)
        text(w->store, sizeof(w->store), "%s/%d-%lld", bucket, (int)getpid(),
             (long long)clock_realtime());
    else
        text(w->store, sizeof(w->store), "%.300s", store ? store : w->top);
    if (!store && !w->s3)
        text(w->store, sizeof(w->store), "%.250s/store", w->top);
    char state[320];
    struct cairn_s3_config s3;
    text(state, sizeof(state), "%.250s/init", w->top);
    struct cairn_config config = config_of(w, state, &s3);
    ck_ok(cairn_init(&config, NULL, NULL, &err));
}

void world_start_at(struct world *w, size_t nodes, const char *store, const char *state)
{
    *w = (struct world){0};
    ck_assert_msg(access("/dev/fuse", R_OK | W_OK) == 0, "/dev/fuse: %s", strerror(errno));
    text(w->top, sizeof(w->top), "%s", testing_tmpdir());
    live = w;
    if (live_pid != getpid())
        atexit(take_down);
    live_pid = getpid();
    make_store(w, store);
    for (size_t i = 0; i < nodes; i++)
        text(w->node[i].dir, sizeof(w->node[i].dir), "%.250s/mnt%zu", w->top, i);
    start_janitor(w);
    for (size_t i = 0; i < nodes; i++) {
        struct world_node *n = &w->node[i];
        text(n->state, sizeof(n->state), "%.250s/state%zu", state && !i ? state : w->top, i);
        ck_sys(mkdir(n->dir, 0755));
        world_mount(w, i);
    }
}

void world_start(struct world *w, size_t nodes, const char *materialise)
{
    live_materialise = materialise;
    world_start_at(w, nodes, NULL, NULL);
}

/* fork; apart: into a PID namespace of its own. */
static pid_t fork_where(bool apart)
{
    CLEANUP_FD int own = apart ? ck_sys(open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC)) : -1;
    if (apart)
        ck_sys(unshare(CLONE_NEWPID));
    pid_t pid = ck_sys(fork());
    if (apart && pid)
        ck_sys(setns(own, CLONE_NEWPID));
    return pid;
}

/* The end of the pipe that mount-serve says "ready" on. */
static int spawn(struct world *w, size_t node)
{
    struct world_node *n = &w->node[node];
    int ends[2];
    pid_t parent = getpid();
    ck_sys(pipe2(ends, O_CLOEXEC));
    n->pid = fork_where(live_apart);
    if (n->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!live_apart && getppid() != parent)
            _exit(1);
        dup2(ends[1], STDOUT_FILENO);
        if (live_step)
            setenv("CAIRN_STEP_KILL", live_step, 1);
        const char *materialise = live_materialise ? live_materialise : "never";
        execl(MOUNT_SERVE, MOUNT_SERVE, w->store, n->state, n->dir, materialise,
              live_no_trace ? "no-trace" : (char *)NULL, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return ends[0];
}

static bool is_ready(int fd)
{
    char said[8];
    size_t n = 0;
    while (n < 6) {
        ssize_t got = read(fd, said + n, 6 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        n += (size_t)got;
    }
    return memcmp(said, "ready\n", 6) == 0;
}

void world_mount(struct world *w, size_t node)
{
    CLEANUP_FD int fd = spawn(w, node);
    ck_assert_msg(is_ready(fd), "node %zu did not mount", node);
}

int world_mount_fails(struct world *w, size_t node)
{
    CLEANUP_FD int fd = spawn(w, node);
    int status;
    ck_assert(!is_ready(fd));
    ck_sys(waitpid(w->node[node].pid, &status, 0));
    w->node[node].pid = 0;
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void world_unmount(struct world *w, size_t node)
{
    int status;
    struct world_node *n = &w->node[node];
    ck_sys(kill(n->pid, SIGTERM));
    ck_sys(waitpid(n->pid, &status, 0));
    n->pid = 0;
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                  "mount-serve ended with status 0x%x", (unsigned)status);
}

void world_kill(struct world *w, size_t node)
{
    struct world_node *n = &w->node[node];
    ck_sys(kill(n->pid, SIGKILL));
    ck_sys(waitpid(n->pid, NULL, 0));
    n->pid = 0;
}

void world_kill_at(const char *step)
{
    live_step = step;
}

long world_proc(const struct world *w, size_t i, const char *file, const char *name)
{
    char path[64], line[256];
    size_t len = strlen(name);
    long n = -1;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)w->node[i].pid, file);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f))
        if (strncmp(line, name, len) == 0 && line[len] == ':')
            n = strtol(line + len + 1, NULL, 10);
    fclose(f);
    ck_assert_int_ge(n, 0);
    return n;
}

void world_trace(bool on)
{
    live_no_trace = !on;
}

void world_apart(bool on)
{
    live_apart = on;
}

void world_died(struct world *w, size_t node)
{
    struct world_node *n = &w->node[node];
    int64_t end = clock_monotonic() + 30 * NS_PER_S;
    while (ck_sys(waitpid(n->pid, NULL, WNOHANG)) == 0) {
        ck_assert_msg(clock_monotonic() < end, "the mount lives on");
        usleep(10000);
    }
    n->pid = 0;
}

void world_stop(struct world *w)
{
    for (size_t i = 0; i < WORLD_NODES; i++)
        if (w->node[i].pid > 0)
            world_unmount(w, i);
    live = NULL;
}

const char *world_path(const struct world *w, size_t node, const char *path)
{
    static char texts[8][4096];
    static unsigned next;
    char *out = texts[next++ % 8];
    text(out, sizeof(texts[0]), "%s%s%s", w->node[node].dir, path ? "/" : "", path ? path : "");
    return out;
}

struct cairn_store *world_store(struct world *w)
{
    char state[320];
    struct cairn_store *s = NULL;
    struct cairn_s3_config s3;
    text(state, sizeof(state), "%.250s/aside", w->top);
    struct cairn_config config = config_of(w, state, &s3);
    ck_ok(cairn_open(&config, NULL, &s, &err));
    return s;
}

static void show_fault(void *ctx, int class, const char *object, const char *message)
{
    (void)ctx;
    fprintf(stderr, "verify: %s: %s: %s\n", cairn_class_name(class), object, message);
}

void world_verify(struct world *w)
{
    struct cairn_store *s = world_store(w);
    struct cairn_verify_options options = {.found = show_fault};
    struct cairn_verify_result result;
    ck_ok(cairn_verify(s, NULL, &options, &result, &err));
    ck_assert_uint_eq(result.errors, 0);
    cairn_close(s);
}
