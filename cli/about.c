/* init, version, help. */
#include "cli/commands.h"
#include "store/format.h"

#include <inttypes.h>
#include <string.h>

static void print_init(struct app *app, const struct cairn_store_info *info)
{
    struct output *out = &app->out;
    const char *compression = info->compression == CAIRN_COMPRESSION_NONE ? "none" : "zstd";
    if (app->json) {
        jsonw_object(&out->json, NULL);
        jsonw_bytes(&out->json, "store", app->paths.store, strlen(app->paths.store));
        jsonw_str(&out->json, "store_id", info->store_id);
        jsonw_u64(&out->json, "format", info->format);
        jsonw_u64(&out->json, "chunk_size", info->chunk_size);
        jsonw_str(&out->json, "compression", compression);
        jsonw_object_end(&out->json);
        output_json_end(out);
    } else if (!app->quiet) {
        output_printf(out, "made a store in ");
        output_text(out, app->paths.store, strlen(app->paths.store), TEXT_NAME);
        output_printf(out, ": chunks of %" PRIu32 " KiB, compression %s\n", info->chunk_size / 1024,
                      compression);
    }
}

int command_init(struct app *app, struct cairn_error *err)
{
    const struct option_value *size = &app->options.value[OPTION_CHUNK_SIZE];
    if (size->number & (size->number - 1))
        return app_usage(app, err, "option --chunk-size: %" PRIu64 " is no power of two",
                         size->number);
    struct cairn_init_options options = {
        .chunk_size = (uint32_t)size->number,
        .compression = app->options.value[OPTION_COMPRESSION].number ? CAIRN_COMPRESSION_NONE
                                                                     : CAIRN_COMPRESSION_ZSTD,
    };
    struct cairn_s3_config s3;
    struct cairn_config config = app_config(app, &s3);
    int rc = app_make_defaults(app, err);
    if (!rc)
        rc = cairn_init(&config, &options, &app->op, err);
    if (!rc)
        rc = app_open(app, err);
    if (rc)
        return rc;
    struct cairn_store_info info;
    cairn_store_info(app->store, &info);
    print_init(app, &info);
    return CAIRN_OK;
}

int command_version(struct app *app, struct cairn_error *err)
{
    (void)err;
    struct output *out = &app->out;
    if (app->json) {
        jsonw_object(&out->json, NULL);
        jsonw_str(&out->json, "version", cairn_version());
        jsonw_u64(&out->json, "format", FORMAT_VERSION);
        jsonw_object_end(&out->json);
        output_json_end(out);
    } else {
        output_printf(out, "cairn %s\n", cairn_version());
    }
    return CAIRN_OK;
}

int about_help(struct app *app, const struct command *c, struct cairn_error *err)
{
    CLEANUP_BUF struct buf text = BUF_INIT(1024 * 1024);
    int rc =
        c ? options_help_command(c, &text, err) : options_help(commands, n_commands, &text, err);
    return rc ? rc : output_bytes(&app->out, text.data, text.len, err);
}

int command_help(struct app *app, struct cairn_error *err)
{
    if (!app->options.n_operands)
        return about_help(app, NULL, err);
    const char *name = app_operand(app, 0);
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return about_help(app, &commands[i], err);
    return app_usage(app, err, "there is no command \"%s\"", name);
}
