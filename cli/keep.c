/* rm, hold, release. */
#include "cli/commands.h"
#include "cli/remote.h"

static void rm_json(struct output *out, const char *id, bool existed, const struct cairn_error *err)
{
    jsonw_object(&out->json, NULL);
    jsonw_str(&out->json, "id", id);
    if (err)
        jsonw_error(&out->json, "error", err);
    else
        jsonw_bool(&out->json, "removed", existed);
    jsonw_object_end(&out->json);
}

static void rm_text(struct app *app, const char *id, bool existed, const struct cairn_error *err)
{
    if (!err && !app->quiet)
        output_printf(&app->out, existed ? "deleted %s\n" : "%s was not there\n", id);
}

static int note_it(void *ctx, const struct cairn_list_entry *entry)
{
    (void)entry;
    *(bool *)ctx = true;
    return 1;
}

/* Deleting what is not there succeeds; whoever mistyped an id wants to know all the same. In doubt
 * it was there. */
static bool exists(struct app *app, const char *id)
{
    bool found = false;
    struct cairn_error ignored;
    const struct cairn_list_options options = {.prefix = id, .limit = 1};
    int rc = app->service ? remote_list(app->service, &app->op, &options, note_it, &found, &ignored)
                          : cairn_list(app->store, &app->op, &options, note_it, &found, &ignored);
    return rc || found;
}

/* Every record is tried, whatever became of the one before; only being told to stop ends it. */
int command_rm(struct app *app, struct cairn_error *err)
{
    struct output *out = &app->out;
    int worst = app_open(app, err);
    if (worst)
        return worst;
    if (app->json)
        jsonw_array(&out->json, NULL);
    int rc = CAIRN_OK;
    for (size_t i = 0; i < app->options.n_operands && rc != CAIRN_CANCELLED; i++) {
        const char *id = app_operand(app, i);
        struct cairn_error one;
        bool existed = exists(app, id);
        rc = app->service ? remote_delete(app->service, &app->op, id, &one)
                          : cairn_delete(app->store, &app->op, id, &one);
        if (app->json)
            rm_json(out, id, existed, rc ? &one : NULL);
        else
            rm_text(app, id, existed, rc ? &one : NULL);
        if (rc)
            app_report(app, id, &one);
        worst = app_worse(worst, rc);
        output_piece(out);
    }
    if (app->json) {
        jsonw_array_end(&out->json);
        output_json_end(out);
    }
    app->reported = worst != CAIRN_OK;
    return worst;
}

static int set_held(struct app *app, bool held, struct cairn_error *err)
{
    const char *id = app_operand(app, 0);
    int rc = app_open(app, err);
    if (!rc && app->service)
        rc = remote_hold(app->service, &app->op, id, held, err);
    else if (!rc)
        rc = (held ? cairn_hold : cairn_release)(app->store, &app->op, id, err);
    if (rc)
        return rc;
    struct output *out = &app->out;
    if (app->json) {
        jsonw_object(&out->json, NULL);
        jsonw_str(&out->json, "id", id);
        jsonw_bool(&out->json, "held", held);
        jsonw_object_end(&out->json);
        output_json_end(out);
    } else if (!app->quiet) {
        output_printf(out, "%s %s\n", held ? "held" : "released", id);
    }
    return CAIRN_OK;
}

int command_hold(struct app *app, struct cairn_error *err)
{
    return set_held(app, true, err);
}

int command_release(struct app *app, struct cairn_error *err)
{
    return set_held(app, false, err);
}
