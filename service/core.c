#include "service/core_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "gc/runner.h"
#include "service/journal.h"
#include "service/metrics.h"
#include "service/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define STATE_LOCK "serve.lock"

/* Each connection may need one descriptor more for its token and some for the files of its answer;
 * the store needs its own. */
#define DESCRIPTORS_KEPT      256
#define DESCRIPTORS_A_REQUEST 3

static const struct {
    const char *name;
    unsigned threads, queued;
} lane_bounds[LANE_COUNT_] = {
    [LANE_SHORT] = {"short", 64, 8192},
    [LANE_READ] = {"read", 128, 8192},
    [LANE_FORK] = {"fork", 8, 8192},
    [LANE_LOCAL] = {"local", 16, 8192},
    /* More than may wait for flights and publishes together: those who need not wait get through.
     */
    [LANE_WAIT] = {"wait", 1024, 8192},
    /* A publish to a bucket has up to 64 MiB in its hands. */
    [LANE_LONG] = {"long", 8, 8192},
};

void service_settings_init(struct service_settings *s)
{
    *s = (struct service_settings){
        .log_level = LOG_LEVEL_INFO,
        .drain_ns = 30 * NS_PER_S,
        .sweep_interval_ns = 3600 * NS_PER_S,
        .staging_keep_ns = 24 * 3600 * NS_PER_S,
        .fetch_budget_ns = 1800 * NS_PER_S,
        .head_timeout_ns = 30 * NS_PER_S,
        .idle_timeout_ns = 120 * NS_PER_S,
        .max_connections = 2048,
    };
}

static int copy(const char **text, struct cairn_error *err)
{
    if (!*text)
        return CAIRN_OK;
    *text = strdup(*text);
    return *text ? CAIRN_OK : error_oom(err, "configuration");
}

static int copy_config(struct service *s, const struct service_config *c, struct cairn_error *err)
{
    s->config = *c;
    const char **texts[] = {&s->config.store_name, &s->config.state, &s->config.listen,
                            &s->config.listen_group};
    int rc = CAIRN_OK;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (!rc)
            rc = copy(texts[i], err);
        if (rc)
            *texts[i] = NULL;
    }
    return rc;
}

/* As many descriptors as we may have, and no more connections than they are enough for. */
static void fit_descriptors(struct service *s)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l))
        return;
    if (l.rlim_cur < l.rlim_max) {
        struct rlimit more = {l.rlim_max, l.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            l = more;
    }
    rlim_t fit = l.rlim_cur > 2 * DESCRIPTORS_KEPT
                     ? (l.rlim_cur - DESCRIPTORS_KEPT) / DESCRIPTORS_A_REQUEST
                     : 16;
    if (fit < s->settings.max_connections) {
        s->settings.max_connections = (unsigned)fit;
        log_line(LOG_LEVEL_NOTICE, "descriptors: limit=%llu max_connections=%u",
                 (unsigned long long)l.rlim_cur, s->settings.max_connections);
    }
}

/* Many threads that wait much and allocate little: a heap for each of them would only keep memory.
 * Nor does a large buffer that was freed (glibc raises both thresholds to its size and twice that)
 * let the free ends of heaps grow to as much, which malloc_trim does not give back but of the first
 * one. */
static void bound_heaps(void)
{
    (void)mallopt(M_ARENA_MAX, 8);
    (void)mallopt(M_MMAP_THRESHOLD, 512 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 256 * 1024);
}

static void connection_closed(void *ctx, uint64_t connection)
{
    struct service *s = ctx;
    for (unsigned i = 0; i < s->n_parts; i++)
        if (parts[i]->connection_closed)
            parts[i]->connection_closed(s->selfs[i], connection);
}

static void quiet(void *ctx)
{
    life_look(ctx);
}

static int make_server(struct service *s, struct cairn_error *err)
{
    const struct server_config c = {.service = s,
                                    .loop = s->loop,
                                    .lanes = s->lanes,
                                    .metrics = s->metrics,
                                    .connection_closed = connection_closed,
                                    .quiet = quiet,
                                    .ctx = s};
    return server_new(&c, &s->settings, &s->server, err);
}

/* Whoever the socket lets in must get through the state folder, which stays closed to looking
 * around, to it and to the stagings. What else is in there is private by itself. */
static void open_state(const struct service *s)
{
    struct stat st;
    CLEANUP_FD int fd = open(s->config.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!(s->config.listen_mode & 0066) || fd < 0 || fstat(fd, &st) != 0 ||
        (st.st_mode & 011) == 011)
        return;
    if (fchmod(fd, (st.st_mode | 011) & 07777) != 0)
        log_line(LOG_LEVEL_WARNING, "state: folder=%s cannot be opened to clients: %s",
                 s->config.state, strerrordesc_np(errno));
}

static int make(struct service *s, struct cairn_error *err)
{
    int rc = socket_lock(s->config.state, STATE_LOCK, &s->state_lock, err);
    if (!rc)
        rc = listener_open(s->config.listen, s->config.listen_mode, s->config.listen_group,
                           &s->listener, err);
    if (!rc)
        open_state(s);
    if (!rc)
        rc = loop_new(&s->loop, err);
    for (unsigned i = 0; !rc && i < LANE_COUNT_; i++)
        rc = lane_new(lane_bounds[i].name, lane_bounds[i].threads, lane_bounds[i].queued,
                      &s->lanes[i], err);
    if (!rc)
        rc = metrics_new(&s->metrics, err);
    if (!rc)
        rc = gc_runner_new(s->config.store, &s->config.gc, &s->runner, err);
    return rc ? rc : make_server(s, err);
}

int service_new(const struct service_config *config, struct service **out, struct cairn_error *err)
{
    struct service *s = calloc(1, sizeof(*s));
    if (!s)
        return error_oom(err, "service");
    s->listener = LISTENER_INIT;
    s->state_lock = s->signal_fd = -1;
    s->started_ns = clock_realtime();
    s->settings = config->settings;
    pthread_mutex_init(&s->lock, NULL);
    int rc = copy_config(s, config, err);
    if (!rc) {
        fit_descriptors(s);
        bound_heaps();
        rc = make(s, err);
    }
    if (rc) {
        service_free(s);
        return rc;
    }
    *out = s;
    return CAIRN_OK;
}

void service_free(struct service *s)
{
    if (!s)
        return;
    life_stop(s);
    listener_unlink(&s->listener);
    /* First what begins work, then what runs it. */
    while (s->n_parts > 0) {
        unsigned i = --s->n_parts;
        if (parts[i]->stop)
            parts[i]->stop(s->selfs[i]);
    }
    gc_runner_free(s->runner);
    for (unsigned i = 0; i < LANE_COUNT_; i++)
        lane_free(s->lanes[i]);
    server_free(s->server);
    metrics_free(s->metrics);
    loop_free(s->loop);
    listener_close(&s->listener);
    util_closep(&s->state_lock);
    pthread_mutex_destroy(&s->lock);
    free((char *)s->config.store_name);
    free((char *)s->config.state);
    free((char *)s->config.listen);
    free((char *)s->config.listen_group);
    free(s);
}

static int start_parts(struct service *s, struct cairn_error *err)
{
    for (unsigned i = 0; parts[i] && i < PARTS_MAX; i++) {
        int rc = parts[i]->start ? parts[i]->start(s, &s->selfs[i], err) : CAIRN_OK;
        if (rc)
            return error_wrap(err, "%s", parts[i]->name);
        s->n_parts = i + 1;
    }
    return CAIRN_OK;
}

int service_run(struct service *s, struct cairn_error *err)
{
    int rc = life_start(s, err);
    if (!rc)
        rc = start_parts(s, err);
    if (!rc)
        rc = server_listen(s->server, s->listener.fd, err);
    if (rc)
        return rc;
    s->state = SERVING;
    log_line(LOG_LEVEL_INFO, "serving: socket=%s store=%s pid=%ld", s->config.listen,
             s->config.store_name, (long)getpid());
    notify_send("READY=1\nSTATUS=Serving");
    rc = loop_run(s->loop, err);
    life_stop(s);
    log_line(LOG_LEVEL_INFO, "ending: all requests have ended");
    return rc;
}

struct cairn_store *service_store(struct service *s)
{
    return s->config.store;
}

const char *service_state(struct service *s)
{
    return s->config.state;
}

const char *service_store_name(struct service *s)
{
    return s->config.store_name;
}

struct lane *service_lane(struct service *s, enum lane_id id)
{
    return s->lanes[id];
}

struct loop *service_loop(struct service *s)
{
    return s->loop;
}

struct gc_runner *service_runner(struct service *s)
{
    return s->runner;
}

struct metrics *service_metrics(struct service *s)
{
    return s->metrics;
}

struct server *service_server(struct service *s)
{
    return s->server;
}

const struct cairn_gc_config *service_gc_config(struct service *s)
{
    return &s->config.gc;
}

int64_t service_started_ns(struct service *s)
{
    return s->started_ns;
}

bool service_is_stopping(struct service *s)
{
    return s->state >= DRAINING;
}

void service_settings_get(struct service *s, struct service_settings *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->settings;
    pthread_mutex_unlock(&s->lock);
}

void *service_part(struct service *s, const struct part *part)
{
    for (unsigned i = 0; i < s->n_parts; i++)
        if (parts[i] == part)
            return s->selfs[i];
    return NULL;
}

void service_parts_text(struct service *s, struct metrics_text *out)
{
    for (unsigned i = 0; i < s->n_parts; i++)
        if (parts[i]->metrics)
            parts[i]->metrics(s->selfs[i], out);
    if (s->config.metrics)
        s->config.metrics(s->config.metrics_ctx, out);
}
