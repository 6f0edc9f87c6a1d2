/* ls. */
#include "base/util.h"
#include "cli/commands.h"
#include "cli/remote.h"
#include "store/json.h"

#include <inttypes.h>
#include <string.h>

/* Rows are kept back until so many are known (or all), so that the column of ids is as wide as it
 * needs to be; what comes later and is longer shifts its own row only. */
#define ROWS 256

struct row {
    char id[36];
    char *rest; /* owned */
};

struct listing {
    struct app *app;
    struct row rows[ROWS];
    size_t n_rows;
    int width; /* 0: not known yet */
    uint64_t unreadable;
};

static void print_rows(struct listing *l, bool heading)
{
    struct output *out = &l->app->out;
    l->width = 2;
    for (size_t i = 0; i < l->n_rows; i++)
        l->width = (int)strlen(l->rows[i].id) > l->width ? (int)strlen(l->rows[i].id) : l->width;
    if (heading)
        output_printf(out, "%-*s  %-16s  %-20s  %10s  %10s  %6s\n", l->width, "ID", "GENERATION",
                      "CREATED", "SIZE", "STORED", "FILES");
    for (size_t i = 0; i < l->n_rows; i++) {
        output_printf(out, "%-*s  %s\n", l->width, l->rows[i].id, l->rows[i].rest);
        free(l->rows[i].rest);
    }
    l->n_rows = 0;
}

static char *row_text(const struct cairn_list_entry *e)
{
    char *text = NULL, size[TEXT_SIZE_MAX], stored[TEXT_SIZE_MAX], created[TEXT_TIME_MAX];
    int n;
    if (e->error_class) {
        char message[CAIRN_ERROR_MESSAGE_MAX];
        text_escape_cut(message, sizeof(message), e->error_message, TEXT_MESSAGE);
        n = asprintf(&text, "%s: %s", cairn_class_name(e->error_class), message);
    } else {
        text_size(e->logical_bytes, size);
        text_size(e->stored_bytes, stored);
        text_time(e->created_ns, created);
        n = asprintf(&text, "%-16s  %-20s  %10s  %10s  %6" PRIu64 "%s", e->gen, created, size,
                     stored, e->files, e->held ? "  held" : "");
    }
    return n < 0 ? NULL : text;
}

static void text_entry(struct listing *l, const struct cairn_list_entry *e)
{
    struct output *out = &l->app->out;
    char *rest = row_text(e);
    if (!rest) {
        out->rc = error_oom(&out->err, "listing");
    } else if (l->width) {
        output_printf(out, "%-*s  %s\n", l->width, e->id, rest);
        free(rest);
    } else {
        struct row *row = &l->rows[l->n_rows++];
        snprintf(row->id, sizeof(row->id), "%s", e->id);
        row->rest = rest;
        if (l->n_rows == ROWS)
            print_rows(l, true);
    }
}

static int one_entry(void *ctx, const struct cairn_list_entry *e)
{
    struct listing *l = ctx;
    l->unreadable += e->error_class != 0;
    if (l->app->json)
        json_list_entry(&l->app->out.json, e);
    else
        text_entry(l, e);
    return output_piece(&l->app->out);
}

int command_ls(struct app *app, struct cairn_error *err)
{
    struct cairn_list_options options = {
        .prefix = app_text(app, OPTION_PREFIX),
        .after = app_text(app, OPTION_AFTER),
        .limit = app->options.value[OPTION_LIMIT].number,
    };
    CLEANUP_FREE struct listing *l = calloc(1, sizeof(*l));
    if (!l)
        return error_oom(err, "listing");
    l->app = app;
    int rc = app_open(app, err);
    if (rc)
        return rc;
    struct output *out = &app->out;
    if (app->json) {
        jsonw_array(&out->json, NULL);
        out->in_array = true;
    }
    rc = app->service ? remote_list(app->service, &app->op, &options, one_entry, l, err)
                      : cairn_list(app->store, &app->op, &options, one_entry, l, err);
    if (!app->json && !l->width)
        print_rows(l, l->n_rows > 0);
    if (!rc && app->json) {
        jsonw_array_end(&out->json);
        output_json_end(out);
    }
    return rc;
}
