#include "cli/config.h"

#include "base/jval.h"
#include "base/log.h"
#include "base/util.h"
#include "cli/files.h"
#include "cli/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum type {
    TYPE_TEXT, /* may be "", which is the same as absent */
    TYPE_NAME, /* not empty */
    TYPE_PATH, /* absolute */
    TYPE_BOOL,
    TYPE_INTEGER, /* min to max */
    TYPE_SIZE,    /* the same, or text such as "10G" */
    TYPE_MODE,    /* text of octal digits, min to max */
    TYPE_CHOICE,  /* of choices, kept as its value */
    TYPE_BLOCK,   /* an object with the keys of its own table */
};

struct choice {
    const char *name;
    int value;
};

struct key {
    const char *name;
    enum type type;
    size_t offset; /* of its field in struct config */
    int64_t min, max;
    const struct choice *choices; /* ends with a NULL name */
    const struct key *block;      /* the same */
};

#define AT(field) offsetof(struct config, field)
#define DAY       (24 * 3600)

static const struct choice kinds[] = {{"dir", CONFIG_DIR}, {"s3", CONFIG_S3}, {NULL, 0}};
static const struct choice signatures[] = {{"v4", CONFIG_V4}, {"v2", CONFIG_V2}, {NULL, 0}};
static const struct choice materialise[] = {
    {"second", CONFIG_SECOND}, {"always", CONFIG_ALWAYS}, {"never", CONFIG_NEVER}, {NULL, 0}};
static const struct choice log_levels[] = {
    {"error", LOG_LEVEL_ERROR}, {"warning", LOG_LEVEL_WARNING}, {"notice", LOG_LEVEL_NOTICE},
    {"info", LOG_LEVEL_INFO},   {"debug", LOG_LEVEL_DEBUG},     {NULL, 0}};

static const struct key s3_keys[] = {
    {"bucket", TYPE_NAME, AT(s3.bucket)},
    {"prefix", TYPE_TEXT, AT(s3.prefix)},
    {"endpoint", TYPE_TEXT, AT(s3.endpoint)},
    {"region", TYPE_TEXT, AT(s3.region)},
    {"force_path_style", TYPE_BOOL, AT(s3.force_path_style)},
    {"signature", TYPE_CHOICE, AT(s3.signature), .choices = signatures},
    {"profile", TYPE_TEXT, AT(s3.profile)},
    {"ca_file", TYPE_PATH, AT(s3.ca_file)},
    {"max_requests", TYPE_INTEGER, AT(s3.max_requests), 1, 256},
    {0},
};

static const struct key store_keys[] = {
    {"kind", TYPE_CHOICE, AT(kind), .choices = kinds},
    {"s3", TYPE_BLOCK, .block = s3_keys},
    {0},
};

static const struct key keys[] = {
    {"checkpoint_store", TYPE_BLOCK, .block = store_keys},
    {"checkpoint_dir", TYPE_PATH, AT(checkpoint_dir)},
    {"state_dir", TYPE_PATH, AT(state_dir)},
    {"listen", TYPE_PATH, AT(listen)},
    {"listen_mode", TYPE_MODE, AT(listen_mode), 0, 0777},
    {"listen_group", TYPE_NAME, AT(listen_group)},
    {"mount", TYPE_PATH, AT(mount)},
    {"materialise", TYPE_CHOICE, AT(materialise), .choices = materialise},
    {"trace", TYPE_BOOL, AT(trace)},
    {"cache_bytes", TYPE_SIZE, AT(cache_bytes), 1024 * 1024, INT64_MAX},
    {"fetch_budget_seconds", TYPE_INTEGER, AT(fetch_budget_seconds), 1, 30 * DAY},
    {"generation_grace_seconds", TYPE_INTEGER, AT(generation_grace_seconds), 1, 30 * DAY},
    {"sweep_interval_seconds", TYPE_INTEGER, AT(sweep_interval_seconds), 1, 30 * DAY},
    {"checkpoint_ttl_hours", TYPE_INTEGER, AT(checkpoint_ttl_hours), 0, 100 * 366 * 24},
    {"gc_visibility_seconds", TYPE_INTEGER, AT(gc_visibility_seconds), 0, DAY},
    {"gc_young_seconds", TYPE_INTEGER, AT(gc_young_seconds), 0, 30 * DAY},
    {"gc_dead_margin_seconds", TYPE_INTEGER, AT(gc_dead_margin_seconds), 0, 30 * DAY},
    {"staging_keep_seconds", TYPE_INTEGER, AT(staging_keep_seconds), 1, 365 * DAY},
    {"workers", TYPE_INTEGER, AT(workers), 0, 64},
    {"log_level", TYPE_CHOICE, AT(log_level), .choices = log_levels},
    {"drain_seconds", TYPE_INTEGER, AT(drain_seconds), 0, 3600},
    {0},
};

void config_init(struct config *c)
{
    *c = (struct config){
        .kind = CONFIG_DIR,
        .s3.max_requests = 16,
        .listen_mode = 0600,
        .materialise = CONFIG_SECOND,
        .trace = true,
        .cache_bytes = -1,
        .fetch_budget_seconds = 1800,
        .generation_grace_seconds = 3600,
        .sweep_interval_seconds = 3600,
        .gc_visibility_seconds = -1,
        .gc_young_seconds = DAY,
        .gc_dead_margin_seconds = 1800,
        .staging_keep_seconds = DAY,
        .log_level = LOG_LEVEL_INFO,
        .drain_seconds = 30,
    };
}

static void release_keys(struct config *c, const struct key *table)
{
    for (const struct key *k = table; k->name; k++) {
        if (k->type == TYPE_BLOCK)
            release_keys(c, k->block);
        else if (k->type == TYPE_TEXT || k->type == TYPE_NAME || k->type == TYPE_PATH)
            free(*(char **)((char *)c + k->offset));
    }
}

void config_release(struct config *c)
{
    release_keys(c, keys);
    config_init(c);
}

/* One object of the file, being read. */
struct block {
    struct config *config;
    const char *file;
    const char *path; /* "" or "checkpoint_store.s3." */
    const struct key *table;
    struct cairn_error *err;
};

CAIRN_PRINTF(3, 4)
static int refuse(const struct block *b, const char *name, const char *fmt, ...)
{
    char shown[128], why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    text_escape_cut(shown, sizeof(shown), name, TEXT_NAME);
    return error_set(b->err, CAIRN_INVALID, EINVAL, "configuration %s: %s%s %s", b->file, b->path,
                     shown, why);
}

static int read_member(void *ctx, const char *name, const struct jval *value);

static int read_block(const struct block *outer, const struct key *k, const struct jval *value)
{
    if (!jval_is_object(value))
        return refuse(outer, k->name, "must be an object");
    char path[64];
    snprintf(path, sizeof(path), "%s%s.", outer->path, k->name);
    struct block inner = {outer->config, outer->file, path, k->block, outer->err};
    return jval_each(value, read_member, &inner);
}

static int read_text(const struct block *b, const struct key *k, const struct jval *value,
                     char **out)
{
    const char *text = jval_str(value);
    if (!text)
        return refuse(b, k->name, "must be a string");
    if (k->type != TYPE_TEXT && !*text)
        return refuse(b, k->name, "must not be empty");
    if (k->type == TYPE_PATH && *text != '/')
        return refuse(b, k->name, "must be an absolute path");
    free(*out);
    *out = *text ? strdup(text) : NULL;
    return *text && !*out ? error_oom(b->err, "configuration") : CAIRN_OK;
}

static int read_choice(const struct block *b, const struct key *k, const struct jval *value,
                       int *out)
{
    const char *text = jval_str(value);
    char wanted[128];
    size_t used = 0;
    for (const struct choice *c = k->choices; c->name; c++) {
        if (text && strcmp(c->name, text) == 0) {
            *out = c->value;
            return CAIRN_OK;
        }
        used += (size_t)snprintf(wanted + used, sizeof(wanted) - used, "%s\"%s\"",
                                 used ? " or " : "", c->name);
    }
    return refuse(b, k->name, "must be %s", wanted);
}

static bool parse_octal(const char *text, int64_t *out)
{
    size_t n = strlen(text);
    if (n < 1 || n > 8 || strspn(text, "01234567") != n)
        return false;
    *out = (int64_t)strtoul(text, NULL, 8);
    return true;
}

static int read_number(const struct block *b, const struct key *k, const struct jval *value,
                       int64_t *out)
{
    int64_t v;
    uint64_t size;
    const char *text = jval_str(value);
    if (k->type == TYPE_MODE) {
        if (!text || !parse_octal(text, &v))
            return refuse(b, k->name, "must be a string of octal digits, such as \"0660\"");
        if (v < k->min || v > k->max)
            return refuse(b, k->name, "must be within 0 and 0%" PRIo64, (uint64_t)k->max);
    } else {
        if (k->type == TYPE_SIZE && text && text_parse_size(text, &size) && size <= INT64_MAX)
            v = (int64_t)size;
        else if (!jval_int(value, &v))
            return refuse(b, k->name,
                          k->type == TYPE_SIZE
                              ? "must be a whole number, or a string such as \"10G\""
                              : "must be a whole number");
        if (v < k->min || v > k->max)
            return refuse(b, k->name, "must be within %" PRId64 " and %" PRId64, k->min, k->max);
    }
    *out = v;
    return CAIRN_OK;
}

static int read_member(void *ctx, const char *name, const struct jval *value)
{
    const struct block *b = ctx;
    const struct key *k = b->table;
    while (k->name && strcmp(k->name, name) != 0)
        k++;
    if (!k->name)
        return refuse(b, name, "is not a known key");
    void *field = (char *)b->config + k->offset;
    switch (k->type) {
    case TYPE_BLOCK:
        return read_block(b, k, value);
    case TYPE_TEXT:
    case TYPE_NAME:
    case TYPE_PATH:
        return read_text(b, k, value, field);
    case TYPE_BOOL:
        return jval_bool(value, field) ? CAIRN_OK : refuse(b, name, "must be true or false");
    case TYPE_CHOICE:
        return read_choice(b, k, value, field);
    case TYPE_INTEGER:
    case TYPE_SIZE:
    case TYPE_MODE:
        return read_number(b, k, value, field);
    }
    return error_set(b->err, CAIRN_INTERNAL, 0, "configuration key %s is of no type", name);
}

static int check_store(const struct block *b, const struct jval *root)
{
    const struct jval *store = jval_get(root, "checkpoint_store");
    if (b->config->kind == CONFIG_S3 && !b->config->s3.bucket)
        return refuse(b, "checkpoint_store.s3.bucket", "is missing");
    if (jval_get(store, "s3") && !jval_get(store, "kind"))
        return refuse(b, "checkpoint_store.kind", "is missing");
    return CAIRN_OK;
}

int config_parse(struct config *c, const char *name, const void *text, size_t len,
                 struct cairn_error *err)
{
    char shown[200];
    text_escape_cut(shown, sizeof(shown), name, TEXT_NAME);
    CLEANUP_JVAL struct jval *root = NULL;
    if (jval_parse(text, len, &root, err))
        return error_wrap(err, "configuration %s", shown);
    if (!jval_is_object(root))
        return error_set(err, CAIRN_INVALID, EINVAL, "configuration %s: must be a JSON object",
                         shown);
    struct block top = {c, shown, "", keys, err};
    int rc = jval_each(root, read_member, &top);
    c->log_level_given = !rc && jval_get(root, "log_level");
    return rc ? rc : check_store(&top, root);
}

int config_read(struct config *c, const char *path, const struct cairn_op *op,
                struct cairn_error *err)
{
    CLEANUP_BUF struct buf text = BUF_INIT(CONFIG_FILE_MAX);
    int rc = files_read(path, op, "configuration", &text, err);
    return rc ? rc : config_parse(c, path, text.data, text.len, err);
}
