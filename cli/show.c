/* show. */
#include "base/jval.h"
#include "cli/commands.h"
#include "cli/remote.h"
#include "store/json.h"
#include "store/record_scope.h"

#include <inttypes.h>
#include <string.h>

/* A record, opened here or shown by a service. */
struct shown {
    struct cairn_record *record; /* NULL: files says */
    const struct cairn_file *files;
};

static void shown_file(const struct shown *s, uint64_t i, struct cairn_file *out)
{
    if (s->record)
        cairn_record_file(s->record, i, out);
    else
        *out = s->files[i];
}

static void json_meta(struct output *out, const struct cairn_record_info *info)
{
    if (jval_is_json(info->meta, info->meta_len))
        jsonw_raw(&out->json, "meta_json", info->meta, info->meta_len);
    else
        jsonw_bytes(&out->json, "meta", info->meta, info->meta_len);
}

static void print_json(struct output *out, const struct shown *shown,
                       const struct cairn_record_info *info)
{
    struct jsonw *w = &out->json;
    jsonw_object(w, NULL);
    json_record(w, info);
    json_meta(out, info);
    jsonw_array(w, "files");
    for (uint64_t i = 0; i < info->files && !output_piece(out); i++) {
        struct cairn_file file;
        shown_file(shown, i, &file);
        json_file(w, &file);
    }
    jsonw_array_end(w);
    jsonw_object_end(w);
    output_json_end(out);
}

static void print_size(struct output *out, const char *name, uint64_t bytes)
{
    char text[TEXT_SIZE_MAX];
    text_size(bytes, text);
    output_printf(out, "%-10s %s", name, text);
    if (bytes >= 1024)
        output_printf(out, " (%" PRIu64 " bytes)", bytes);
    output_printf(out, "\n");
}

static void print_meta(struct output *out, const struct cairn_record_info *info)
{
    output_printf(out, "\nmeta.json (%zu bytes)\n", info->meta_len);
    output_text(out, info->meta, info->meta_len, TEXT_LINES);
    if (info->meta_len && ((const char *)info->meta)[info->meta_len - 1] != '\n')
        output_printf(out, "\n");
}

static void print_text(struct output *out, const struct shown *shown,
                       const struct cairn_record_info *info)
{
    char created[TEXT_TIME_MAX];
    text_time(info->created_ns, created);
    output_printf(out, "%-10s %s\n%-10s %s\n%-10s %s\n", "id", info->id, "generation", info->gen,
                  "created", created);
    if (*info->parent_id)
        output_printf(out, "%-10s %s, generation %s\n", "parent", info->parent_id,
                      info->parent_gen);
    if (*info->digest)
        output_printf(out, "%-10s %s\n", "digest", info->digest);
    print_size(out, "size", info->logical_bytes);
    print_size(out, "data", info->data_bytes);
    print_size(out, "stored", info->stored_bytes);
    output_printf(out, "%-10s %" PRIu64 "\n", "chunks", info->chunks);
    output_printf(out, "\n%10s  %10s  FILE\n", "SIZE", "DATA");
    for (uint64_t i = 0; i < info->files && !output_piece(out); i++) {
        struct cairn_file file;
        shown_file(shown, i, &file);
        char size[TEXT_SIZE_MAX], data[TEXT_SIZE_MAX];
        text_size(file.size, size);
        text_size(file.data_bytes, data);
        output_printf(out, "%10s  %10s  ", size, data);
        output_text(out, file.path, strlen(file.path), TEXT_NAME);
        output_printf(out, "\n");
    }
    print_meta(out, info);
}

static int show(struct app *app, const struct shown *shown, const struct cairn_record_info *info)
{
    if (app->json)
        print_json(&app->out, shown, info);
    else
        print_text(&app->out, shown, info);
    return CAIRN_OK;
}

static int show_remote(struct app *app, struct cairn_error *err)
{
    struct remote_record r;
    int rc = remote_show(app->service, &app->op, app_operand(app, 0), &r, err);
    if (!rc)
        rc = show(app, &(struct shown){.files = r.files}, &r.info);
    remote_record_release(&r);
    return rc;
}

int command_show(struct app *app, struct cairn_error *err)
{
    CLEANUP_RECORD struct cairn_record *record = NULL;
    int rc = app_open(app, err);
    if (!rc && app->service)
        return show_remote(app, err);
    if (!rc)
        rc = cairn_record_open(app->store, &app->op, app_operand(app, 0), &record, err);
    if (rc)
        return rc;
    struct cairn_record_info info;
    cairn_record_info(record, &info);
    return show(app, &(struct shown){.record = record}, &info);
}
