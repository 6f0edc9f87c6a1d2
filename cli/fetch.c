/* fetch. */
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/term.h"
#include "store/record_scope.h"

#include <inttypes.h>
#include <string.h>

static void print_json(struct output *out, const char *to, const struct cairn_record_info *info,
                       const struct cairn_fetch_result *r)
{
    struct jsonw *w = &out->json;
    jsonw_object(w, NULL);
    jsonw_str(w, "id", info->id);
    jsonw_str(w, "gen", info->gen);
    jsonw_bytes(&out->json, "path", to, strlen(to));
    if (*info->digest)
        jsonw_str(w, "digest", info->digest);
    jsonw_u64(w, "files", info->files);
    jsonw_u64(w, "logical_bytes", r->logical_bytes);
    jsonw_u64(w, "data_bytes", r->data_bytes);
    jsonw_u64(w, "cloned_bytes", r->cloned_bytes);
    jsonw_real(w, "seconds", r->seconds);
    jsonw_object_end(w);
    output_json_end(out);
}

static void print_text(struct output *out, const char *to, const struct cairn_record_info *info,
                       const struct cairn_fetch_result *r)
{
    char logical[TEXT_SIZE_MAX], data[TEXT_SIZE_MAX], cloned[TEXT_SIZE_MAX];
    text_size(r->logical_bytes, logical);
    text_size(r->data_bytes, data);
    text_size(r->cloned_bytes, cloned);
    output_printf(out, "fetched %s, generation %s, to ", info->id, info->gen);
    output_text(out, to, strlen(to), TEXT_NAME);
    output_printf(out,
                  "\n%" PRIu64 " file%s of %s, of it %s data, %s shared with the store; %.2f s\n",
                  info->files, text_s(info->files), logical, data, cloned, r->seconds);
}

/* The meta is staged before the export is made, so that a full disk is seen before the long work,
 * and put in place after it. */
int command_fetch(struct app *app, struct cairn_error *err)
{
    const char *to = app_text(app, OPTION_TO), *meta_to = app_text(app, OPTION_META);
    bool meta_out = meta_to && strcmp(meta_to, "-") == 0;
    if (meta_out && app->json)
        return app_usage(app, err, "--json and --meta - both want standard output");
    int rc = paths_check_apart(&app->paths, to, false, "--to", err);
    if (!rc)
        rc = app_open(app, err);
    if (rc)
        return rc;
    CLEANUP_RECORD struct cairn_record *record = NULL;
    rc = cairn_record_open(app->store, &app->op, app_operand(app, 0), &record, err);
    if (rc)
        return rc;
    struct cairn_record_info info;
    cairn_record_info(record, &info);
    CLEANUP_STAGED struct staged_file meta = {.fd = -1};
    if (meta_to && !meta_out)
        rc = files_stage(&meta, meta_to, info.meta, info.meta_len, &app->op, err);
    if (rc)
        return rc;
    char title[64];
    snprintf(title, sizeof(title), "fetch %s", info.id);
    struct cairn_progress progress = term_progress(title);
    struct cairn_fetch_result result;
    rc = cairn_record_fetch(record, &app->op, to, &progress, &result, err);
    term_progress_end();
    if (!rc && meta_to && !meta_out)
        rc = files_commit(&meta, err);
    if (rc)
        return rc;
    if (meta_out)
        return output_bytes(&app->out, info.meta, info.meta_len, err);
    if (app->json)
        print_json(&app->out, to, &info, &result);
    else if (!app->quiet)
        print_text(&app->out, to, &info, &result);
    return CAIRN_OK;
}
