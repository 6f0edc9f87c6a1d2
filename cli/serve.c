/* serve. */
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/signals.h"
#include "fuse/mount.h"
#include "service/journal.h"
#include "service/metrics.h"
#include "service/service.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

/* A configuration as the service wants it, with the texts that it points to. */
struct reading {
    struct config config;
    struct paths paths;
    char *state, *listen;
};

static void reading_release(struct reading *r)
{
    config_release(&r->config);
    paths_release(&r->paths);
    free(r->state);
    free(r->listen);
    *r = (struct reading){0};
    config_init(&r->config);
}

struct serving {
    struct app *app;
    struct reading now; /* of the last reload */
};

static int64_t seconds(int64_t s)
{
    return s > INT64_MAX / NS_PER_S ? INT64_MAX : s * NS_PER_S;
}

static int log_level(const struct app *app, const struct config *c)
{
    return app->quiet ? LOG_LEVEL_ERROR : c->log_level;
}

/* The socket: --listen, the configuration's, or one in the state folder. */
static int find_listen(const struct app *app, const struct config *c, const char *state, char **out,
                       struct cairn_error *err)
{
    const char *given = app_text(app, OPTION_LISTEN);
    if (!given)
        given = c->listen;
    int n = given && *given != '/' ? -2
            : given                ? asprintf(out, "%s", given)
                                   : asprintf(out, "%s/cairn.sock", state);
    if (n == -2)
        return error_set(err, CAIRN_INVALID, EINVAL, "--listen: the path must be absolute");
    if (n < 0) {
        *out = NULL;
        return error_oom(err, "path");
    }
    return CAIRN_OK;
}

static int fill(const struct app *app, const struct config *c, const struct paths *paths,
                char **state, char **listen, struct service_config *out, struct cairn_error *err)
{
    int rc = files_canonical(paths->state, state, err);
    if (!rc)
        rc = find_listen(app, c, *state, listen, err);
    if (rc)
        return rc;
    out->store_name = paths->store;
    out->state = *state;
    out->listen = *listen;
    out->listen_mode = (mode_t)c->listen_mode;
    out->listen_group = c->listen_group;
    out->gc = app_gc_config(c);
    out->settings.log_level = log_level(app, c);
    out->settings.drain_ns = seconds(c->drain_seconds);
    out->settings.staging_keep_ns = seconds(c->staging_keep_seconds);
    out->settings.sweep_interval_ns = seconds(c->sweep_interval_seconds);
    out->settings.fetch_budget_ns = seconds(c->fetch_budget_seconds);
    return CAIRN_OK;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Keys that the service knows nothing of, and that need a new process. */
static void refuse_changes(const struct config *a, const struct config *b)
{
    const struct {
        const char *key;
        bool same;
    } keys[] = {
        {"checkpoint_store.s3.endpoint", same_text(a->s3.endpoint, b->s3.endpoint)},
        {"checkpoint_store.s3.region", same_text(a->s3.region, b->s3.region)},
        {"checkpoint_store.s3.profile", same_text(a->s3.profile, b->s3.profile)},
        {"checkpoint_store.s3.ca_file", same_text(a->s3.ca_file, b->s3.ca_file)},
        {"checkpoint_store.s3.force_path_style", a->s3.force_path_style == b->s3.force_path_style},
        {"checkpoint_store.s3.signature", a->s3.signature == b->s3.signature},
        {"checkpoint_store.s3.max_requests", a->s3.max_requests == b->s3.max_requests},
        {"mount", same_text(a->mount, b->mount)},
        {"materialise", a->materialise == b->materialise},
        {"trace", a->trace == b->trace},
        {"cache_bytes", a->cache_bytes == b->cache_bytes},
        {"workers", a->workers == b->workers},
    };
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (!keys[i].same)
            log_line(LOG_LEVEL_ERROR,
                     "reload: key=%s refused: it cannot change while the service runs",
                     keys[i].key);
}

static int reload(void *ctx, struct service_config *out, struct cairn_error *err)
{
    struct serving *s = ctx;
    struct reading next = {0};
    struct cairn_op op;
    config_init(&next.config);
    cairn_op_init(&op, 10, NULL); /* a configuration that is a pipe */
    int rc = paths_config(&s->app->options, &op, &next.config, err);
    if (!rc)
        rc = paths_find(&s->app->options, &next.config, &next.paths, err);
    if (!rc)
        rc = fill(s->app, &next.config, &next.paths, &next.state, &next.listen, out, err);
    if (rc) {
        reading_release(&next);
        return rc;
    }
    refuse_changes(&s->app->config, &next.config);
    reading_release(&s->now);
    s->now = next;
    return CAIRN_OK;
}

static void mount_ended(void *ctx)
{
    (void)ctx;
    log_line(LOG_LEVEL_WARNING, "serve: somebody unmounted the mount point");
}

/* The mount of the same store, where one is wanted. */
static int start_mount(struct app *app, const char *socket, struct mount **out,
                       struct cairn_error *err)
{
    const char *dir = app_text(app, OPTION_MOUNT);
    if (!dir)
        dir = app->config.mount;
    if (!dir)
        return CAIRN_OK;
    struct mount_config config;
    mount_command_config(app, dir, socket, &config);
    config.ended = mount_ended;
    return mount_start(app->store, &config, &app->op, out, err);
}

static int stop_mount(const struct app *app, struct mount *m, struct cairn_error *err)
{
    struct cairn_op op;
    cairn_op_init(&op, (double)app->config.drain_seconds, NULL);
    return m ? mount_stop(m, &op, err) : CAIRN_OK;
}

static void mount_metrics(void *ctx, struct metrics_text *out)
{
    struct mount **m = ctx;
    struct mount_counts c;
    if (!*m)
        return;
    mount_counts(*m, &c);
    metrics_one(out, "cairn_mount_requests_total", "counter", "Requests of the kernel.",
                c.requests);
    metrics_one(out, "cairn_mount_errors_total", "counter", "Of them answered with an error.",
                c.errors);
    metrics_one(out, "cairn_mount_read_bytes_total", "counter",
                "Bytes read through the mount, but for what the kernel reads by itself.",
                c.read_bytes);
    metrics_head(out, "cairn_mount_opens_total", "counter", "Files opened, by how they are read.");
    metrics_u64(out, "cairn_mount_opens_total", "how=\"lazy\"", c.opens_lazy);
    metrics_u64(out, "cairn_mount_opens_total", "how=\"passthrough\"", c.opens_passthrough);
    metrics_one(out, "cairn_mount_traces_total", "counter",
                "Traces put: the order in which a generation was read first.", c.traces);
    metrics_one(out, "cairn_mount_prefetched_bytes_total", "counter",
                "Bytes fetched ahead as a trace says.", c.prefetched_bytes);
}

static int serve(struct app *app, struct service_config *config, struct cairn_error *err)
{
    struct service *service = NULL;
    struct mount *m = NULL;
    struct cairn_error stop;
    config->metrics = mount_metrics;
    config->metrics_ctx = &m;
    int rc = service_new(config, &service, err);
    if (rc)
        return rc;
    rc = start_mount(app, config->listen, &m, err);
    if (!rc)
        rc = service_run(service, err);
    int stopped = stop_mount(app, m, &stop);
    if (stopped && !rc)
        rc = error_pass(err, &stop);
    service_free(service);
    return rc;
}

/* To a daemon SIGHUP says something, also where it was started with it ignored (nohup). All threads
 * of later inherit that it is blocked. */
static void take_hangups(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGHUP, SIG_DFL);
}

int command_serve(struct app *app, struct cairn_error *err)
{
    CLEANUP_FREE char *state = NULL;
    CLEANUP_FREE char *listen = NULL;
    take_hangups();
    journal_start((enum log_level)log_level(app, &app->config));
    int rc = app_open_or_init(app, err);
    if (rc)
        return rc;
    struct serving s = {.app = app};
    config_init(&s.now.config);
    struct service_config config = {.store = app->store, .reload = reload, .reload_ctx = &s};
    service_settings_init(&config.settings);
    rc = fill(app, &app->config, &app->paths, &state, &listen, &config, err);
    /* From here on the service takes the signals; one that came before ends it before it begins. */
    signals_stop();
    if (!rc)
        rc = op_check(&app->op, "serve", err);
    if (!rc)
        rc = serve(app, &config, err);
    reading_release(&s.now);
    return rc;
}
