#include "cli/app.h"

#include "base/util.h"
#include "cli/files.h"
#include "cli/signals.h"
#include "cli/term.h"
#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

const char *app_operand(const struct app *app, size_t i)
{
    return app->options.operands[i];
}

const char *app_text(const struct app *app, enum option o)
{
    return app->options.value[o].text;
}

bool app_flag(const struct app *app, enum option o)
{
    return app->options.value[o].given;
}

struct cairn_config app_config(const struct app *app, struct cairn_s3_config *s3)
{
    const struct config *c = &app->config;
    *s3 = (struct cairn_s3_config){.endpoint = c->s3.endpoint,
                                   .region = c->s3.region,
                                   .profile = c->s3.profile,
                                   .ca_file = c->s3.ca_file,
                                   .force_path_style = c->s3.force_path_style,
                                   .signature_v2 = c->s3.signature == CONFIG_V2,
                                   .max_requests = (unsigned)c->s3.max_requests};
    const struct option_value *workers = &app->options.value[OPTION_WORKERS];
    return (struct cairn_config){
        .store = app->paths.store,
        .state = app->paths.state,
        .workers = (unsigned)(workers->given ? workers->number : (uint64_t)app->config.workers),
        .s3 = s3,
        .fetch_budget_seconds = (double)app->config.fetch_budget_seconds,
        .cache_bytes = app->config.cache_bytes > 0 ? app->config.cache_bytes : 0,
        .generation_grace_seconds = (double)app->config.generation_grace_seconds,
    };
}

int app_open(struct app *app, struct cairn_error *err)
{
    const char *socket = app_text(app, OPTION_SOCKET);
    if (socket && (app_flag(app, OPTION_STORE) || app_flag(app, OPTION_STATE)))
        return app_usage(app, err,
                         "--socket names a service, which has its own --store and --state");
    if (socket)
        return http_client_open(socket, &app->op, &app->service, err);
    struct cairn_s3_config s3;
    struct cairn_config config = app_config(app, &s3);
    struct stat st;
    if (!paths_is_bucket(app->paths.store) && stat(app->paths.store, &st) && errno == ENOENT) {
        char shown[256];
        text_escape_cut(shown, sizeof(shown), app->paths.store, TEXT_NAME);
        return error_set(err, CAIRN_NOT_FOUND, ENOENT, "no store in %s (cairn init makes one)",
                         shown);
    }
    if (app->paths.state_is_default) {
        int rc = files_make_dirs(app->paths.state, 0700, err);
        if (rc)
            return rc;
    }
    return cairn_open(&config, &app->op, &app->store, err);
}

int app_make_defaults(struct app *app, struct cairn_error *err)
{
    if (!app->paths.store_is_default)
        return CAIRN_OK;
    CLEANUP_FREE char *parent = strdup(app->paths.store);
    if (!parent)
        return error_oom(err, "path");
    *strrchr(parent, '/') = 0;
    return files_make_dirs(parent, 0700, err);
}

/* Only one of several first publishers makes the store: a lock on the folder above it, which goes
 * with the process. */
static int lock_parent(struct app *app, int *fd, struct cairn_error *err)
{
    CLEANUP_FREE char *parent = strdup(app->paths.store);
    if (!parent)
        return error_oom(err, "path");
    *strrchr(parent, '/') = 0;
    *fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return error_sys(err, errno, "open %s", parent);
    while (flock(*fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_sys(err, errno, "lock %s", parent);
        int rc = op_check(&app->op, "wait for another cairn that makes the store", err);
        if (rc)
            return rc;
        poll(&(struct pollfd){.fd = cairn_cancel_fd(app->cancel), .events = POLLIN}, 1, 20);
    }
    return CAIRN_OK;
}

int app_open_or_init(struct app *app, struct cairn_error *err)
{
    int rc = app_open(app, err);
    if (rc != CAIRN_NOT_FOUND || !app->paths.store_is_default)
        return rc;
    CLEANUP_FD int lock = -1;
    rc = app_make_defaults(app, err);
    if (!rc)
        rc = lock_parent(app, &lock, err);
    if (rc)
        return rc;
    rc = app_open(app, err);
    if (rc != CAIRN_NOT_FOUND)
        return rc;
    struct cairn_s3_config s3;
    struct cairn_config config = app_config(app, &s3);
    rc = cairn_init(&config, NULL, &app->op, err);
    if (rc)
        return rc;
    if (!app->quiet)
        term_line("made a new store in %s", app->paths.store);
    return app_open(app, err);
}

int app_meta(struct app *app, struct buf *storage, const void **meta, size_t *len,
             struct cairn_error *err)
{
    *meta = NULL;
    *len = 0;
    const char *path = app_text(app, OPTION_META);
    if (!path)
        return CAIRN_OK;
    storage->max = CAIRN_META_MAX;
    int rc = files_read(path, &app->op, "meta", storage, err);
    /* An empty file is an empty meta, not the default one. */
    *meta = storage->data ? (const void *)storage->data : "";
    *len = storage->len;
    return rc;
}

int app_usage(struct app *app, struct cairn_error *err, const char *fmt, ...)
{
    char text[CAIRN_ERROR_MESSAGE_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    app->usage = true;
    return error_set(err, CAIRN_INVALID, EINVAL, "%s", text);
}

void app_report(const struct app *app, const char *subject, const struct cairn_error *err)
{
    const struct command *c = app->options.command;
    const char *class = cairn_class_name(err->error_class), *message = err->message;
    if (!c) {
        term_line("%s: %s", class, message);
        return;
    }
    char what[128];
    snprintf(what, sizeof(what), "%s%s%s: ", c->name, subject ? " " : "", subject ? subject : "");
    /* The library names its operation and object as well; once is enough. */
    if (strncmp(message, what, strlen(what)) == 0 && message[strlen(what)])
        message += strlen(what);
    term_line("%s%s: %s", what, class, message);
}

int app_exit_code(int error_class)
{
    switch (error_class) {
    case CAIRN_OK:
        return EXIT_DONE;
    case CAIRN_NOT_FOUND:
        return EXIT_NOT_FOUND;
    case CAIRN_BUSY:
        return EXIT_BUSY;
    case CAIRN_TIMEOUT:
        return EXIT_TIMED_OUT;
    case CAIRN_CORRUPT:
        return EXIT_CORRUPT;
    case CAIRN_NO_SPACE:
        return EXIT_NO_SPACE;
    case CAIRN_TRANSIENT:
        return EXIT_TRANSIENT;
    case CAIRN_CANCELLED:
        return signals_taken() ? 128 + signals_taken() : EXIT_FAILED;
    default:
        return EXIT_FAILED;
    }
}

int app_worse(int a, int b)
{
    static const int order[] = {
        CAIRN_OK,       CAIRN_NOT_FOUND, CAIRN_BUSY,      CAIRN_TRANSIENT,
        CAIRN_TIMEOUT,  CAIRN_INVALID,   CAIRN_NO_SPACE,  CAIRN_PERMANENT,
        CAIRN_INTERNAL, CAIRN_CORRUPT,   CAIRN_CANCELLED,
    };
    for (size_t i = ARRAY_SIZE(order); i-- > 0;)
        if (order[i] == a || order[i] == b)
            return order[i];
    return a;
}
