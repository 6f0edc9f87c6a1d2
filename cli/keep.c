/* rm, hold, release. */
#include "cli/commands.h"

static void rm_json(struct output *out, const char *id, const struct cairn_error *err)
{
    jsonw_object(&out->json, NULL);
    jsonw_str(&out->json, "id", id);
    if (err)
        output_json_error(out, "error", err);
    else
        jsonw_bool(&out->json, "removed", true);
    jsonw_object_end(&out->json);
}

static void rm_text(struct app *app, const char *id, const struct cairn_error *err)
{
    if (!err && !app->quiet)
        output_printf(&app->out, "deleted %s\n", id);
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
        rc = cairn_delete(app->store, &app->op, id, &one);
        if (app->json)
            rm_json(out, id, rc ? &one : NULL);
        else
            rm_text(app, id, rc ? &one : NULL);
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
    if (!rc)
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
