/* mount. */
#include "fuse/mount.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "cli/commands.h"
#include "cli/daemon.h"
#include "cli/files.h"
#include "cli/signals.h"

#include <string.h>
#include <sys/resource.h>

/* The daemon leaves the folder that it was started in. */
static int make_absolute(char **path, struct cairn_error *err)
{
    char *whole;
    int rc = files_canonical(*path, &whole, err);
    if (rc)
        return rc;
    free(*path);
    *path = whole;
    return CAIRN_OK;
}

static enum mount_materialise materialise(const struct config *c)
{
    return c->materialise == CONFIG_ALWAYS  ? MOUNT_MATERIALISE_ALWAYS
           : c->materialise == CONFIG_NEVER ? MOUNT_MATERIALISE_NEVER
                                            : MOUNT_MATERIALISE_SECOND;
}

/* Staged files take a descriptor each as long as the kernel knows them, packs and copies too. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit))
            log_line(LOG_LEVEL_INFO, "mount: the limit of open files stays as it is");
    }
}

void mount_command_config(const struct app *app, const char *dir, const char *socket,
                          struct mount_config *out)
{
    raise_descriptors();
    *out = (struct mount_config){
        .dir = dir,
        .apart = {paths_is_bucket(app->paths.store) ? NULL : app->paths.store, socket},
        .materialise = materialise(&app->config),
        .no_trace = !app->config.trace};
}

/* Until a signal, or until somebody else unmounts. */
static int serve(struct app *app, struct mount *m, struct cairn_error *err)
{
    struct cairn_op op, drain;
    struct cairn_error ignored;
    cairn_op_init(&op, -1, app->cancel);
    int rc = mount_wait(m, &op, err);
    if (rc == CAIRN_CANCELLED)
        rc = CAIRN_OK;
    cairn_op_init(&drain, (double)app->config.drain_seconds, NULL);
    int stopped = mount_stop(m, &drain, rc ? &ignored : err);
    return rc ? rc : stopped;
}

static int mount_here(struct app *app, struct cairn_error *err)
{
    char *dir = NULL;
    struct mount_config config;
    struct mount *m = NULL;
    int rc = CAIRN_OK;
    if (!paths_is_bucket(app->paths.store))
        rc = make_absolute(&app->paths.store, err);
    if (!rc)
        rc = make_absolute(&app->paths.state, err);
    /* realpath(3) of a dead mount fails: the mount itself knows what to do with it. */
    if (!rc && asprintf(&dir, "%s", app_operand(app, 0)) < 0) {
        dir = NULL;
        rc = error_oom(err, "path");
    }
    if (!rc)
        rc = app_open_or_init(app, err);
    if (!rc) {
        mount_command_config(app, dir, NULL, &config);
        rc = mount_start(app->store, &config, &app->op, &m, err);
    }
    free(dir);
    if (rc)
        return rc;
    if (daemon_is_child() && chdir("/") != 0)
        log_line(LOG_LEVEL_WARNING, "mount: the folder of the start stays in use");
    daemon_ready();
    return serve(app, m, err);
}

int command_mount(struct app *app, struct cairn_error *err)
{
    enum log_level level = app->quiet                    ? LOG_LEVEL_ERROR
                           : app->config.log_level_given ? (enum log_level)app->config.log_level
                                                         : LOG_LEVEL_NOTICE;
    if (!daemon_is_child() && !app_flag(app, OPTION_FOREGROUND))
        return daemon_start(&app->op, err);
    log_set_sink(daemon_log, NULL, level);
    int rc = mount_here(app, err);
    if (rc && daemon_is_child()) {
        daemon_failed(err);
        log_line(LOG_LEVEL_ERROR, "mount: %s", err->message);
        app->reported = true;
    }
    return rc;
}
