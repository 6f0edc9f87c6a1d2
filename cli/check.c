/* verify, stats. */
#include "cli/commands.h"
#include "cli/term.h"

#include <inttypes.h>

/* In a store full of faults the document still has an end. */
#define FAULTS_MAX (64 * 1024 * 1024)

/* In JSON, faults and unknown keys go into two arrays and come in any order: both are kept. */
struct findings {
    struct app *app;
    struct buf errors, unknown;
    struct jsonw errors_json, unknown_json;
    struct cairn_error err;
};

static void found_json(struct findings *f, int error_class, const char *object, const char *message)
{
    if (error_class == CAIRN_OK) {
        jsonw_str(&f->unknown_json, NULL, object);
        return;
    }
    struct jsonw *w = &f->errors_json;
    jsonw_object(w, NULL);
    jsonw_str(w, "class", cairn_class_name(error_class));
    jsonw_str(w, "object", object);
    jsonw_str(w, "message", message);
    jsonw_object_end(w);
}

static void found_text(struct findings *f, int error_class, const char *object, const char *message)
{
    char shown[512], why[CAIRN_ERROR_MESSAGE_MAX];
    text_escape_cut(shown, sizeof(shown), object, TEXT_NAME);
    text_escape_cut(why, sizeof(why), message, TEXT_MESSAGE);
    if (error_class == CAIRN_OK)
        term_line("warning: unknown key %s", shown);
    else
        output_printf(&f->app->out, "%s  %s  %s\n", cairn_class_name(error_class), shown, why);
}

static void found(void *ctx, int error_class, const char *object, const char *message)
{
    struct findings *f = ctx;
    (f->app->json ? found_json : found_text)(f, error_class, object ? object : "",
                                             message ? message : "");
}

static int print_json(struct app *app, struct findings *f, const struct cairn_verify_result *r,
                      struct cairn_error *err)
{
    struct jsonw *w = &app->out.json;
    jsonw_array_end(&f->errors_json);
    jsonw_array_end(&f->unknown_json);
    int rc = jsonw_end(&f->errors_json);
    if (!rc)
        rc = jsonw_end(&f->unknown_json);
    if (rc) {
        *err = f->err;
        return rc;
    }
    jsonw_object(w, NULL);
    jsonw_bool(w, "ok", r->errors == 0);
    jsonw_u64(w, "checked_records", r->checked_records);
    jsonw_u64(w, "checked_packs", r->checked_packs);
    jsonw_u64(w, "checked_chunks", r->checked_chunks);
    jsonw_u64(w, "checked_bytes", r->checked_bytes);
    jsonw_raw(w, "errors", f->errors.data, f->errors.len);
    jsonw_raw(w, "unknown", f->unknown.data, f->unknown.len);
    jsonw_object_end(w);
    output_json_end(&app->out);
    return CAIRN_OK;
}

static void print_text(struct app *app, const struct cairn_verify_result *r)
{
    char bytes[TEXT_SIZE_MAX];
    text_size(r->checked_bytes, bytes);
    output_printf(&app->out,
                  "checked %" PRIu64 " record%s, %" PRIu64 " pack%s, %" PRIu64 " chunk%s (%s): ",
                  r->checked_records, text_s(r->checked_records), r->checked_packs,
                  text_s(r->checked_packs), r->checked_chunks, text_s(r->checked_chunks), bytes);
    if (r->errors)
        output_printf(&app->out, "%" PRIu64 " fault%s\n", r->errors, text_s(r->errors));
    else
        output_printf(&app->out, "no fault\n");
}

static int verify(struct app *app, struct findings *f, struct cairn_error *err)
{
    struct cairn_verify_options options = {
        .ids = app->options.operands,
        .n_ids = app->options.n_operands,
        .repair_index = app_flag(app, OPTION_REPAIR_INDEX),
        .progress = term_progress("verify"),
        .found = found,
        .ctx = f,
    };
    struct cairn_verify_result result;
    int rc = cairn_verify(app->store, &app->op, &options, &result, err);
    term_progress_end();
    if (!rc && app->json)
        rc = print_json(app, f, &result, err);
    if (rc)
        return rc;
    if (!app->json && !app->quiet)
        print_text(app, &result);
    if (!result.errors)
        return CAIRN_OK;
    /* The faults are the output; the message says it once more where that goes elsewhere. */
    error_set(err, CAIRN_CORRUPT, 0, "%" PRIu64 " fault%s found", result.errors,
              text_s(result.errors));
    app_report(app, NULL, err);
    app->reported = true;
    return CAIRN_CORRUPT;
}

int command_verify(struct app *app, struct cairn_error *err)
{
    int rc = app_open(app, err);
    if (rc)
        return rc;
    struct findings f = {
        .app = app, .errors = BUF_INIT(FAULTS_MAX), .unknown = BUF_INIT(FAULTS_MAX)};
    f.errors_json = JSONW_INIT(&f.errors, &f.err);
    f.unknown_json = JSONW_INIT(&f.unknown, &f.err);
    jsonw_array(&f.errors_json, NULL);
    jsonw_array(&f.unknown_json, NULL);
    rc = verify(app, &f, err);
    buf_release(&f.errors);
    buf_release(&f.unknown);
    return rc;
}

int command_stats(struct app *app, struct cairn_error *err)
{
    struct cairn_stats s;
    int rc = app_open(app, err);
    if (!rc)
        rc = cairn_stats(app->store, &app->op, &s, err);
    if (rc)
        return rc;
    const struct {
        const char *name, *label;
        uint64_t value;
        bool bytes;
    } rows[] = {
        {"records", "records", s.records, false},
        {"generations", "generations", s.generations, false},
        {"packs", "packs", s.packs, false},
        {"chunks", "chunks", s.chunks, false},
        {"logical_bytes", "logical", s.logical_bytes, true},
        {"stored_bytes", "stored", s.stored_bytes, true},
        {"manifest_bytes", "manifests", s.manifest_bytes, true},
        {"index_bytes", "index", s.index_bytes, true},
        {"unreadable", "unreadable", s.unreadable, false},
    };
    struct output *out = &app->out;
    if (app->json)
        jsonw_object(&out->json, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char size[TEXT_SIZE_MAX];
        text_size(rows[i].value, size);
        if (app->json)
            jsonw_u64(&out->json, rows[i].name, rows[i].value);
        else if (rows[i].bytes)
            output_printf(out, "%-12s %s (%" PRIu64 " bytes)\n", rows[i].label, size,
                          rows[i].value);
        else
            output_printf(out, "%-12s %" PRIu64 "\n", rows[i].label, rows[i].value);
    }
    if (app->json) {
        jsonw_object_end(&out->json);
        output_json_end(out);
    }
    return CAIRN_OK;
}
