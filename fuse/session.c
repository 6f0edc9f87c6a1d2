/* The life of a mount: put together, served by a few workers, taken down. */
#define FUSE_USE_VERSION 314
#include "fuse/mount.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "fuse/buffers.h"
#include "fuse/generation.h"
#include "fuse/materialise.h"
#include "fuse/mountpoint.h"
#include "fuse/ops.h"
#include "fuse/passthrough.h"
#include "fuse/records.h"
#include "fuse/table.h"
#include "fuse/task.h"
#include "fuse/trace.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WORKERS_DEFAULT 4u
#define WORKERS_MAX     32u
/* Of a local store, where bytes that nobody wants cost little. Of one far away: the kernel reads
 * around a fault without asking what that costs, so it gets no room for it; what read(2) asks for
 * comes in larger pieces all the same, and sequential readers are seen and served ahead below. */
#define READ_AHEAD_LOCAL  1024u
#define READ_AHEAD_REMOTE 4u
#define WAKE_SIGNAL       SIGUSR2

struct session {
    struct mount m; /* first: the one is the other */
    pthread_t workers[WORKERS_MAX];
    unsigned n_workers;
    unsigned number; /* of the file system; 0: not known */
    void (*ended)(void *ctx);
    void *ctx;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned running; /* guarded by lock, as is all below */
    bool stopping;    /* mount_stop is at work */
    bool over;        /* the kernel ended the session */
    int failed;       /* errno of a worker that could not go on */
};

static struct session *session_of(struct mount *m)
{
    return (struct session *)m;
}

/* ---- Workers --------------------------------------------------------------------------------- */

static void *work(void *arg)
{
    struct session *s = arg;
    struct fuse_session *se = s->m.session;
    struct fuse_buf buf = {0};
    int n = 0;
    while (!fuse_session_exited(se)) {
        n = fuse_session_receive_buf(se, &buf);
        if (n == -EINTR || n == -EAGAIN)
            continue;
        if (n <= 0)
            break;
        fuse_session_process_buf(se, &buf);
    }
    fuse_session_exit(se);
    free(buf.mem);
    pthread_mutex_lock(&s->lock);
    if (n < 0 && !s->stopping)
        s->failed = -n;
    bool tell = --s->running == 0 && !s->stopping;
    s->over = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (tell && s->ended)
        s->ended(s->ctx);
    return NULL;
}

static void nothing(int signo)
{
    (void)signo;
}

/* A worker in read(2) notices nothing but a request and a signal. */
static int prepare_signal(struct cairn_error *err)
{
    struct sigaction sa = {.sa_handler = nothing};
    sigemptyset(&sa.sa_mask);
    return sigaction(WAKE_SIGNAL, &sa, NULL) ? error_sys(err, errno, "signal of the mount")
                                             : CAIRN_OK;
}

static int start_workers(struct session *s, unsigned n, struct cairn_error *err)
{
    sigset_t all, old;
    int e = 0;
    sigfillset(&all);
    sigdelset(&all, WAKE_SIGNAL);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (s->n_workers = 0; s->n_workers < n; s->n_workers++) {
        pthread_mutex_lock(&s->lock);
        s->running++;
        pthread_mutex_unlock(&s->lock);
        e = pthread_create(&s->workers[s->n_workers], NULL, work, s);
        if (e)
            break;
    }
    if (e) {
        pthread_mutex_lock(&s->lock);
        s->running--;
        pthread_mutex_unlock(&s->lock);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e ? error_sys(err, e, "workers of the mount") : CAIRN_OK;
}

/* The signal may come between a worker's look and its read: it is sent until all are out. */
static void stop_workers(struct session *s)
{
    fuse_session_exit(s->m.session);
    for (;;) {
        pthread_mutex_lock(&s->lock);
        bool out = s->running == 0;
        pthread_mutex_unlock(&s->lock);
        if (out)
            break;
        for (unsigned i = 0; i < s->n_workers; i++)
            pthread_kill(s->workers[i], WAKE_SIGNAL);
        poll(NULL, 0, 5);
    }
    for (unsigned i = 0; i < s->n_workers; i++)
        pthread_join(s->workers[i], NULL);
    s->n_workers = 0;
}

/* ---- Putting together ------------------------------------------------------------------------ */

/* The kernel's first request, by the thread that mounts: the others need what it settles. */
static int exchange_init(struct session *s, struct cairn_error *err)
{
    struct fuse_buf buf = {0};
    int n;
    do
        n = fuse_session_receive_buf(s->m.session, &buf);
    while (n == -EINTR || n == -EAGAIN);
    if (n > 0)
        fuse_session_process_buf(s->m.session, &buf);
    free(buf.mem);
    s->m.init_done = true;
    return n > 0 ? CAIRN_OK : error_sys(err, n < 0 ? -n : ENODEV, "first request of the kernel");
}

/* What libfuse has to say, which else goes to standard error. Its levels have the same numbers. */
static void __attribute__((format(printf, 2, 0)))
log_of_libfuse(enum fuse_log_level level, const char *format, va_list args)
{
    char line[512];
    vsnprintf(line, sizeof(line), format, args);
    line[strcspn(line, "\n")] = 0;
    log_line(level < FUSE_LOG_ERR ? LOG_LEVEL_ERROR : (enum log_level)level, "mount: libfuse: %s",
             line);
}

static int mount_it(struct session *s, struct cairn_error *err)
{
    struct mount *m = &s->m;
    char program[] = "cairn", option[] = "-o",
         values[] = "fsname=cairn,subtype=cairn,default_permissions";
    char *argv[] = {program, option, values, NULL};
    bool root = geteuid() == 0;
    struct fuse_args args = FUSE_ARGS_INIT(root ? 1 : 3, argv);
    m->session = fuse_session_new(&args, &mount_ops, sizeof(mount_ops), m);
    fuse_opt_free_args(&args);
    fuse_set_log_func(log_of_libfuse);
    if (!m->session)
        return error_set(err, CAIRN_INTERNAL, ENOMEM, "libfuse could not make a session");
    if (!root) {
        if (fuse_session_mount(m->session, m->dir))
            return error_set(err, CAIRN_PERMANENT, EPERM, "fusermount3 could not mount on %s",
                             m->dir);
        m->device = fuse_session_fd(m->session);
        return CAIRN_OK;
    }
    int device;
    int rc = mountpoint_mount(m->dir, &device, err);
    if (rc)
        return rc;
    rc = passthrough_attach(m, device, err);
    if (rc) {
        struct cairn_error ignored;
        if (mountpoint_detach(m->dir, 0, &ignored))
            log_line(LOG_LEVEL_WARNING, "mount: %s", ignored.message);
        close(device);
        return rc;
    }
    m->device = device; /* the session closes it */
    return CAIRN_OK;
}

static void try_passthrough(struct mount *m)
{
    CLEANUP_FD int fd = m->materialiser && m->init_offered ? materialise_probe(m) : -1;
    bool works = fd >= 0 && passthrough_works(m, fd);
    atomic_store(&m->passthrough, works);
    if (!works && m->materialise != MOUNT_MATERIALISE_NEVER)
        log_line(LOG_LEVEL_INFO, "mount: no passthrough here (it takes Linux 6.9 and root)");
}

/* The process of a mount that was just unmounted has the spool for a moment more. */
#define SPOOL_WAIT_NS (2 * NS_PER_S)

static int make_spool(struct mount *m, const struct cairn_op *op, struct cairn_error *err)
{
    struct cairn_error ignored;
    int64_t until = clock_monotonic() + SPOOL_WAIT_NS;
    int rc;
    while ((rc = spool_new(m, &m->spool, err)) == CAIRN_BUSY && clock_monotonic() < until &&
           !op_check(op, "mount", &ignored))
        poll(NULL, 0, 20);
    return rc;
}

/* Everything below the session. */
static int make_parts(struct mount *m, const struct cairn_op *op, struct cairn_error *err)
{
    int rc = cairn_cancel_new(&m->cancel, err);
    if (!rc)
        rc = buffers_new(&m->buffers, err);
    if (!rc)
        rc = inode_table_new(&m->inodes, err);
    if (!rc)
        rc = records_new(&m->records, err);
    if (!rc)
        rc = generations_new(&m->generations, err);
    if (!rc)
        rc = m->tracing ? tracer_new(m, &m->tracer, err) : CAIRN_OK;
    if (!rc)
        rc = lanes_new(m, &m->lanes, err);
    if (!rc && m->materialise != MOUNT_MATERIALISE_NEVER)
        rc = materialise_new(m, &m->materialiser, err);
    if (!rc)
        rc = make_spool(m, op, err);
    return rc;
}

/* No request is under way any more. */
static void session_free(struct session *s)
{
    struct mount *m = &s->m;
    if (m->cancel)
        cairn_cancel_fire(m->cancel);
    lanes_free(m->lanes);
    tracer_free(m->tracer);
    materialise_free(m->materialiser);
    if (m->session) {
        fuse_session_unmount(m->session);
        fuse_session_destroy(m->session);
    }
    inode_table_free(m->inodes);
    spool_free(m->spool);
    generations_free(m->generations);
    records_free(m->records);
    buffers_free(m->buffers);
    cairn_cancel_free(m->cancel);
    free(m->dir);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int64_t or_default(int64_t ns, int64_t seconds)
{
    return ns > 0 ? ns : seconds * NS_PER_S;
}

static struct session *session_new(struct cairn_store *store, const struct mount_config *c)
{
    struct session *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    op_cond_init(&s->changed);
    s->ended = c->ended;
    s->ctx = c->ctx;
    struct mount *m = &s->m;
    m->store = store;
    m->uid = geteuid();
    m->gid = getegid();
    m->started_ns = clock_realtime();
    m->device = -1;
    m->remote = !store->backend->ops->open_fd;
    m->materialise = c->materialise;
    m->tracing = m->remote && !c->no_trace;
    m->read_timeout_ns = or_default(c->read_timeout_ns, 120);
    m->other_timeout_ns = or_default(c->other_timeout_ns, 30);
    m->publish_timeout_ns = or_default(c->publish_timeout_ns, 1800);
    m->unseen_timeout_ns = or_default(c->unseen_timeout_ns, 120);
    return s;
}

/* After a failure with the name mounted already. */
static void take_back(struct session *s)
{
    struct cairn_error ignored;
    if (s->m.device >= 0 && mountpoint_detach(s->m.dir, s->number, &ignored))
        log_line(LOG_LEVEL_WARNING, "mount: %s", ignored.message);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    if (s->n_workers)
        stop_workers(s);
    session_free(s);
}

int mount_start(struct cairn_store *store, const struct mount_config *config,
                const struct cairn_op *op, struct mount **out, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    int rc = op_check(op, "mount", err);
    if (!rc && !store->state)
        rc = error_set(err, CAIRN_INVALID, EINVAL, "a mount needs a state directory");
    if (!rc)
        rc = prepare_signal(err);
    if (rc)
        return rc;
    struct session *s = session_new(store, config);
    if (!s)
        return error_oom(err, "mount");
    const char *apart[1 + MOUNT_APART_MAX] = {store->state};
    for (size_t i = 0; i < MOUNT_APART_MAX; i++)
        apart[1 + i] = config->apart[i];
    rc = mountpoint_prepare(config->dir, apart, ARRAY_SIZE(apart), &s->m.dir, err);
    if (!rc)
        rc = make_parts(&s->m, op, err);
    if (!rc)
        rc = mount_it(s, err);
    if (!rc)
        rc = exchange_init(s, err);
    if (!rc) {
        try_passthrough(&s->m);
        unsigned n = config->workers ? config->workers : WORKERS_DEFAULT;
        rc = start_workers(s, n < WORKERS_MAX ? n : WORKERS_MAX, err);
    }
    if (rc) {
        take_back(s);
        return error_wrap(err, "mount %s", config->dir);
    }
    s->number = mountpoint_number(s->m.dir);
    mountpoint_read_ahead(s->number, config->read_ahead_kib ? config->read_ahead_kib
                                     : s->m.remote          ? READ_AHEAD_REMOTE
                                                            : READ_AHEAD_LOCAL);
    *out = &s->m;
    return CAIRN_OK;
}

/* ---- Its end --------------------------------------------------------------------------------- */

int mount_wait(struct mount *m, const struct cairn_op *op, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    struct session *s = session_of(m);
    struct op_waiter w;
    int rc = CAIRN_OK;
    op_waiter_add(&w, op, &s->lock, &s->changed);
    pthread_mutex_lock(&s->lock);
    while (!s->over && !(rc = op_wait_locked(&w, "waiting for the end of the mount", err)))
        ;
    if (!rc && s->failed)
        rc = error_sys(err, s->failed, "reading the kernel's requests");
    pthread_mutex_unlock(&s->lock);
    op_waiter_remove(&w);
    return rc;
}

/* How long somebody who has a file open may keep an otherwise idle mount from going. */
#define BUSY_NS (NS_PER_S)

/* While it is in use, and what is under way has not ended, and op allows. */
static bool unmount_gently(struct session *s, const struct cairn_op *op)
{
    struct cairn_error err;
    bool busy;
    if (lanes_drain(s->m.lanes, op, &err))
        log_line(LOG_LEVEL_WARNING, "mount: %s", err.message);
    for (int64_t end = clock_monotonic() + BUSY_NS;;) {
        if (mountpoint_unmount(s->m.dir, s->number, &busy, &err)) {
            log_line(LOG_LEVEL_WARNING, "mount: %s", err.message);
            return false;
        }
        if (!busy)
            return true;
        if (clock_monotonic() >= end || op_check(op, "unmounting", &err))
            return false;
        poll(NULL, 0, 50);
    }
}

int mount_stop(struct mount *m, const struct cairn_op *op, struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    struct session *s = session_of(m);
    int rc = CAIRN_OK;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    bool over = s->over && !s->failed; /* the kernel let go of it */
    pthread_mutex_unlock(&s->lock);
    if (!over && !unmount_gently(s, op)) {
        struct cairn_error detach;
        rc =
            error_set(err, CAIRN_BUSY, EBUSY, "%s was in use: it was detached and cut off", m->dir);
        /* Nobody may wait for an answer any more when there is nobody left to give one: who tells
         * the kernel of something may wait for a lock that such a caller has. */
        mountpoint_abort(m->dir, s->number);
        if (mountpoint_detach(m->dir, s->number, &detach))
            log_line(LOG_LEVEL_WARNING, "mount: %s", detach.message);
    }
    cairn_cancel_fire(m->cancel);
    /* It waits for locks that callers have until their requests are answered: by the workers. */
    spool_stop(m->spool);
    stop_workers(s);
    session_free(s);
    return rc;
}

void mount_counts(const struct mount *m, struct mount_counts *out)
{
    struct mount *c = (struct mount *)(uintptr_t)m;
    *out = (struct mount_counts){.requests = atomic_load(&c->n_requests),
                                 .reads = atomic_load(&c->n_reads),
                                 .read_bytes = atomic_load(&c->n_read_bytes),
                                 .errors = atomic_load(&c->n_errors),
                                 .opens_lazy = atomic_load(&c->n_opens_lazy),
                                 .opens_passthrough = atomic_load(&c->n_opens_passthrough),
                                 .traces = atomic_load(&c->n_traces),
                                 .prefetched_bytes = atomic_load(&c->n_prefetched_bytes),
                                 .passthrough = atomic_load(&c->passthrough)};
}
