/* The cairn command: find out what is wanted, do it, say how it ended. */
#include "cli/commands.h"
#include "cli/signals.h"
#include "cli/term.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

/* A standard descriptor that is closed would be given to the next file opened, and messages written
 * into that. /dev/null opened the wrong way round fails as a closed descriptor does; where there is
 * none, so does the root. */
static void keep_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!(open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) >= 0 || open("/", O_RDONLY));
}

/* Also where the command line was not understood to its end. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

static void set_up_messages(struct app *app)
{
    enum log_level level = app->quiet                    ? LOG_LEVEL_ERROR
                           : app->config.log_level_given ? (enum log_level)app->config.log_level
                                                         : LOG_LEVEL_WARNING;
    log_set_sink(term_log, NULL, level);
    term_init(!app->quiet && !app->json);
}

static int find_store(struct app *app, struct cairn_error *err)
{
    int rc = paths_config(&app->options, &app->op, &app->config, err);
    if (!rc)
        rc = paths_find(&app->options, &app->config, &app->paths, err);
    app->usage = rc == CAIRN_INVALID;
    return rc;
}

/* From here on signals end the work instead of the process. */
static int start_op(struct app *app, struct cairn_error *err)
{
    int rc = cairn_cancel_new(&app->cancel, err);
    if (!rc)
        rc = signals_start(app->cancel, err);
    if (rc)
        return rc;
    const struct option_value *timeout = &app->options.value[OPTION_TIMEOUT];
    cairn_op_init(&app->op, timeout->given ? timeout->seconds : -1, app->cancel);
    app->out.op = &app->op;
    return CAIRN_OK;
}

static int run(struct app *app, int argc, char **argv, struct cairn_error *err)
{
    int rc = options_parse(argc, argv, commands, n_commands, &app->options, err);
    app->json = wants_json(argc, argv);
    app->quiet = app_flag(app, OPTION_QUIET);
    app->usage = rc == CAIRN_INVALID;
    if (!rc)
        rc = start_op(app, err);
    if (rc)
        return rc;
    const struct command *c = app->options.command;
    if (app_flag(app, OPTION_HELP))
        return about_help(app, c, err);
    if (!c && app_flag(app, OPTION_VERSION))
        return command_version(app, err);
    if (!c)
        return app_usage(app, err, "no command given (cairn help lists them)");
    rc = c->needs_store ? find_store(app, err) : CAIRN_OK;
    if (rc)
        return rc;
    set_up_messages(app);
    rc = c->run(app, err);
    term_progress_end();
    return rc;
}

/* One JSON document on standard output tells of a failure, if it can still be told there. */
static void json_error(struct app *app, const struct cairn_error *err)
{
    struct output *out = &app->out;
    if (out->rc)
        return;
    if (!out->in_array)
        buf_clear(&out->buf), out->json.comma = false;
    jsonw_object(&out->json, NULL);
    jsonw_error(&out->json, "error", err);
    jsonw_object_end(&out->json);
    if (out->in_array)
        jsonw_array_end(&out->json);
    output_json_end(out);
}

static int finish(struct app *app, int rc, struct cairn_error *err)
{
    const struct command *c = app->options.command;
    const char *subject = c && c->ids && app->options.n_operands ? app_operand(app, 0) : NULL;
    if (rc && app->json && !app->reported)
        json_error(app, err);
    struct cairn_error out_err;
    int out_rc = output_end(&app->out, &out_err);
    /* Whoever reads the beginning only, as head does, has what he wants. */
    if (out_rc && (!rc || rc == out_rc) && c && c->streams && out_err.sys_errno == EPIPE)
        return 128 + SIGPIPE;
    if (out_rc && !rc) {
        rc = out_rc;
        *err = out_err;
    }
    if (rc && !app->reported)
        app_report(app, subject, err);
    return app->usage ? EXIT_USAGE : app_exit_code(rc);
}

int main(int argc, char **argv)
{
    keep_standard_descriptors();
    signals_block();
    struct app app = {0};
    config_init(&app.config);
    output_init(&app.out, STDOUT_FILENO);
    struct cairn_error err = {0};
    int rc = run(&app, argc, argv, &err);
    int code = finish(&app, rc, &err);
    cairn_close(app.store);
    http_client_close(app.service);
    signals_stop();
    cairn_cancel_free(app.cancel);
    output_release(&app.out);
    paths_release(&app.paths);
    config_release(&app.config);
    options_release(&app.options);
    return code;
}
