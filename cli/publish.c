/* publish, fork. */
#include "base/util.h"
#include "cli/commands.h"
#include "cli/remote.h"
#include "cli/term.h"

#include <inttypes.h>
#include <string.h>

static void print_json(struct output *out, const char *id, const struct cairn_publish_result *r)
{
    struct jsonw *w = &out->json;
    jsonw_object(w, NULL);
    jsonw_str(w, "id", id);
    jsonw_str(w, "gen", r->gen);
    if (*r->digest)
        jsonw_str(w, "digest", r->digest);
    jsonw_u64(w, "logical_bytes", r->logical_bytes);
    jsonw_u64(w, "data_bytes", r->data_bytes);
    jsonw_u64(w, "new_bytes", r->new_bytes);
    jsonw_u64(w, "stored_bytes", r->stored_bytes);
    jsonw_u64(w, "chunks", r->chunks);
    jsonw_u64(w, "new_chunks", r->new_chunks);
    jsonw_real(w, "seconds", r->seconds);
    jsonw_bool(w, "unchanged", r->unchanged);
    jsonw_object_end(w);
    output_json_end(out);
}

static void print_text(struct output *out, const char *id, const struct cairn_publish_result *r)
{
    char logical[TEXT_SIZE_MAX], data[TEXT_SIZE_MAX], fresh[TEXT_SIZE_MAX], stored[TEXT_SIZE_MAX];
    text_size(r->logical_bytes, logical);
    text_size(r->data_bytes, data);
    text_size(r->new_bytes, fresh);
    text_size(r->stored_bytes, stored);
    output_printf(out, "%s %s, generation %s\n", r->unchanged ? "unchanged" : "published", id,
                  r->gen);
    output_printf(out,
                  "%s in files, of it %s data, of that %s new in %" PRIu64 " of %" PRIu64
                  " chunk%s, which took %s; %.2f s\n",
                  logical, data, fresh, r->new_chunks, r->chunks, text_s(r->chunks), stored,
                  r->seconds);
    if (*r->digest)
        output_printf(out, "%s\n", r->digest);
}

int command_publish(struct app *app, struct cairn_error *err)
{
    const char *id = app_operand(app, 0);
    CLEANUP_BUF struct buf storage = BUF_INIT(0);
    struct cairn_publish_options options = {
        .from = app_text(app, OPTION_FROM),
        .parent = app_text(app, OPTION_PARENT),
        .digest = app_flag(app, OPTION_DIGEST),
        .expect = app->options.expect,
        .n_expect = app->options.n_expect,
    };
    int rc = paths_check_apart(&app->paths, options.from, true, "--from", err);
    if (!rc)
        rc = app_meta(app, &storage, &options.meta, &options.meta_len, err);
    if (!rc)
        rc = app_open_or_init(app, err);
    if (rc)
        return rc;
    char title[64];
    snprintf(title, sizeof(title), "publish %s", id);
    options.progress = term_progress(title);
    struct cairn_publish_result result;
    rc = cairn_publish(app->store, &app->op, id, &options, &result, err);
    term_progress_end();
    if (rc)
        return rc;
    if (result.empty_dirs && !app->quiet)
        term_line("warning: %" PRIu64 " folder%s without files not kept", result.empty_dirs,
                  text_s(result.empty_dirs));
    if (app->json)
        print_json(&app->out, id, &result);
    else if (!app->quiet)
        print_text(&app->out, id, &result);
    return CAIRN_OK;
}

int command_fork(struct app *app, struct cairn_error *err)
{
    const char *id = app_operand(app, 0), *new_id = app_operand(app, 1);
    CLEANUP_BUF struct buf storage = BUF_INIT(0);
    const void *meta;
    size_t len;
    char gen[CAIRN_GEN_TEXT];
    int rc = app_meta(app, &storage, &meta, &len, err);
    if (!rc)
        rc = app_open(app, err);
    if (!rc && app->service)
        rc = remote_fork(app->service, &app->op, id, new_id, meta, len, gen, err);
    else if (!rc)
        rc = cairn_fork(app->store, &app->op, id, new_id, meta, len, gen, err);
    if (rc)
        return rc;
    struct jsonw *w = &app->out.json;
    if (app->json) {
        jsonw_object(w, NULL);
        jsonw_str(w, "id", new_id);
        jsonw_str(w, "gen", gen);
        jsonw_str(w, "from", id);
        jsonw_object_end(w);
        output_json_end(&app->out);
    } else if (!app->quiet) {
        output_printf(&app->out, "forked %s as %s, generation %s\n", id, new_id, gen);
    }
    return CAIRN_OK;
}
