#include "cli/options.h"

#include "base/util.h"
#include "cli/text.h"
#include "store/ids.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum kind {
    KIND_FLAG,
    KIND_TEXT, /* not empty */
    KIND_ANY,  /* text that may be empty */
    KIND_ID,
    KIND_COUNT,
    KIND_SIZE,
    KIND_SECONDS,
    KIND_CHOICE,
    KIND_EXPECT,
};

struct definition {
    const char *name;
    char letter; /* 0: no short form */
    enum kind kind;
    const char *arg; /* how the value is called; NULL for a flag */
    uint64_t min, max;
    const char *choices[3];
    const char *help;
};

static const struct definition definitions[OPTION_COUNT_] = {
    [OPTION_CONFIG] = {"config", 0, KIND_TEXT, "FILE", .help = "configuration file (JSON)"},
    [OPTION_STORE] = {"store", 0, KIND_TEXT, "DIR",
                      .help = "the store: a folder, or s3://BUCKET/PREFIX"},
    [OPTION_STATE] = {"state", 0, KIND_TEXT, "DIR", .help = "private local state: the chunk index"},
    [OPTION_WORKERS] = {"workers", 0, KIND_COUNT, "N", 1, 64,
                        .help = "threads for hashing and compression (default: cores, at most 8)"},
    [OPTION_TIMEOUT] = {"timeout", 0, KIND_SECONDS, "SECONDS",
                        .help = "give up after so many seconds; fractions are allowed"},
    [OPTION_JSON] = {"json", 0, KIND_FLAG, .help = "print one JSON document"},
    [OPTION_QUIET] = {"quiet", 'q', KIND_FLAG,
                      .help = "no progress, no notes: only what was asked for, and errors"},
    [OPTION_HELP] = {"help", 'h', KIND_FLAG, .help = "show help"},
    [OPTION_VERSION] = {"version", 0, KIND_FLAG, .help = "show the version"},
    [OPTION_CHUNK_SIZE] = {"chunk-size", 0, KIND_SIZE, "SIZE", 4096, 1024 * 1024,
                           .help = "a power of two from 4K to 1M (default 64K)"},
    [OPTION_COMPRESSION] = {"compression", 0, KIND_CHOICE, "zstd|none", .choices = {"zstd", "none"},
                            .help = "default zstd"},
    [OPTION_FROM] = {"from", 0, KIND_TEXT, "DIR", .help = "folder that holds the export's files"},
    [OPTION_META] = {"meta", 0, KIND_TEXT, "FILE",
                     .help = "file of the meta (fetch: to write it to); - is standard input "
                             "(fetch: output)"},
    [OPTION_PARENT] = {"parent", 0, KIND_ID, "ID",
                       .help = "a record of which most chunks are unchanged: much faster"},
    [OPTION_DIGEST] = {"digest", 0, KIND_FLAG,
                       .help = "compute the digest too: a second hash over all data"},
    [OPTION_EXPECT] = {"expect", 0, KIND_EXPECT, "PATH=BYTES",
                       .help = "refuse to publish unless this file has this size (repeatable)"},
    [OPTION_TO] = {"to", 0, KIND_TEXT, "DIR", .help = "folder to make; must be absent or empty"},
    [OPTION_PREFIX] = {"prefix", 0, KIND_ANY, "TEXT", .help = "only ids that begin with TEXT"},
    [OPTION_AFTER] = {"after", 0, KIND_ANY, "ID", .help = "only ids that sort behind ID"},
    [OPTION_LIMIT] = {"limit", 0, KIND_COUNT, "N", 0, UINT64_MAX,
                      .help = "at most N records; 0 is no limit"},
    [OPTION_REPAIR_INDEX] = {"repair-index", 0, KIND_FLAG,
                             .help = "build the chunk index anew from the packs"},
    [OPTION_DRY_RUN] = {"dry-run", 0, KIND_FLAG,
                        .help = "change nothing; say what would be done, and why"},
    [OPTION_SOCKET] = {"socket", 0, KIND_TEXT, "SOCKET",
                       .help = "ask the service that listens there, instead of the store"},
    [OPTION_LISTEN] = {"listen", 0, KIND_TEXT, "SOCKET",
                       .help = "path of the socket (default: cairn.sock in the state folder)"},
    [OPTION_FOREGROUND] = {"foreground", 'f', KIND_FLAG,
                           .help = "stay in the foreground; messages go to standard error"},
    [OPTION_MOUNT] = {"mount", 0, KIND_TEXT, "DIR", .help = "show the store under DIR as well"},
    [OPTION_WAIT] = {"wait", 0, KIND_FLAG, .help = "wait while another process does the same"},
};

#define SHOWN_MAX 128

CAIRN_PRINTF(2, 3) static int usage(struct cairn_error *err, const char *fmt, ...)
{
    char text[CAIRN_ERROR_MESSAGE_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return error_set(err, CAIRN_INVALID, EINVAL, "%s", text);
}

/* The option that text of len bytes names, or -1. */
static int find_name(const char *text, size_t len)
{
    for (int i = 0; i < OPTION_COUNT_; i++)
        if (strlen(definitions[i].name) == len && memcmp(definitions[i].name, text, len) == 0)
            return i;
    return -1;
}

static int find_letter(char c)
{
    for (int i = 0; i < OPTION_COUNT_; i++)
        if (c && definitions[i].letter == c)
            return i;
    return -1;
}

static int bad_value(const struct definition *d, const char *value, const char *wanted,
                     struct cairn_error *err)
{
    char shown[SHOWN_MAX];
    text_escape_cut(shown, sizeof(shown), value, TEXT_NAME);
    return usage(err, "option --%s: \"%s\" is not %s", d->name, shown, wanted);
}

static int add_expect(struct options *o, const char *value, struct cairn_error *err)
{
    const struct definition *d = &definitions[OPTION_EXPECT];
    const char *eq = strrchr(value, '=');
    uint64_t size;
    if (!eq || eq == value || !text_parse_size(eq + 1, &size))
        return bad_value(d, value, "PATH=BYTES", err);
    struct cairn_expect *grown = reallocarray(o->expect, o->n_expect + 1, sizeof(*grown));
    if (!grown)
        return error_oom(err, "option --expect");
    o->expect = grown;
    char *path = strndup(value, (size_t)(eq - value));
    if (!path)
        return error_oom(err, "option --expect");
    o->expect[o->n_expect++] = (struct cairn_expect){.path = path, .size = size};
    return CAIRN_OK;
}

static int set_choice(const struct definition *d, const char *text, uint64_t *out,
                      struct cairn_error *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(d->choices) && d->choices[i]; i++) {
        if (strcmp(d->choices[i], text) == 0) {
            *out = i;
            return CAIRN_OK;
        }
    }
    return bad_value(d, text, d->arg, err);
}

static int set_number(const struct definition *d, const char *text, uint64_t *out,
                      struct cairn_error *err)
{
    bool size = d->kind == KIND_SIZE;
    if (!(size ? text_parse_size : text_parse_count)(text, out))
        return bad_value(d, text, size ? "a size (such as 64K)" : "a number", err);
    if (*out < d->min || *out > d->max)
        return usage(err, "option --%s: %" PRIu64 " is not within %" PRIu64 " to %" PRIu64, d->name,
                     *out, d->min, d->max);
    return CAIRN_OK;
}

static int set_value(struct options *o, int which, const char *text, struct cairn_error *err)
{
    const struct definition *d = &definitions[which];
    struct option_value *v = &o->value[which];
    v->given = true;
    v->text = text;
    switch (d->kind) {
    case KIND_FLAG:
    case KIND_ANY:
        return CAIRN_OK;
    case KIND_TEXT:
        return *text ? CAIRN_OK : usage(err, "option --%s needs a value", d->name);
    case KIND_ID:
        return id_check(text, err) ? error_wrap(err, "option --%s", d->name) : CAIRN_OK;
    case KIND_COUNT:
    case KIND_SIZE:
        return set_number(d, text, &v->number, err);
    case KIND_SECONDS:
        if (!text_parse_seconds(text, &v->seconds))
            return bad_value(d, text, "a number of seconds", err);
        return CAIRN_OK;
    case KIND_CHOICE:
        return set_choice(d, text, &v->number, err);
    case KIND_EXPECT:
        return add_expect(o, text, err);
    }
    return error_set(err, CAIRN_INTERNAL, 0, "option --%s is of no kind", d->name);
}

/* One option at argv[*at]; moves *at on over a value of its own. */
static int parse_option(struct options *o, int argc, char **argv, int *at, struct cairn_error *err)
{
    const char *arg = argv[*at], *attached = NULL;
    char shown[SHOWN_MAX];
    int which;
    if (arg[1] == '-') {
        const char *eq = strchr(arg, '=');
        which = find_name(arg + 2, eq ? (size_t)(eq - arg) - 2 : strlen(arg + 2));
        attached = eq ? eq + 1 : NULL;
    } else {
        which = arg[2] ? -1 : find_letter(arg[1]);
    }
    if (which < 0) {
        text_escape_cut(shown, sizeof(shown), arg, TEXT_NAME);
        return usage(err, "unknown option %s", shown);
    }
    const struct definition *d = &definitions[which];
    if (d->kind == KIND_FLAG) {
        if (attached)
            return usage(err, "option --%s takes no value", d->name);
        return set_value(o, which, "", err);
    }
    if (!attached) {
        if (*at + 1 >= argc)
            return usage(err, "option --%s needs a value (%s)", d->name, d->arg);
        attached = argv[++*at];
        if (strncmp(attached, "--", 2) == 0) {
            text_escape_cut(shown, sizeof(shown), attached, TEXT_NAME);
            return usage(err, "option --%s needs a value (write --%s=%s if that is meant)", d->name,
                         d->name, shown);
        }
    }
    return set_value(o, which, attached, err);
}

static int find_command(struct options *o, const char *name, const struct command *commands,
                        size_t n, struct cairn_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            o->command = &commands[i];
            return CAIRN_OK;
        }
    }
    char shown[SHOWN_MAX];
    text_escape_cut(shown, sizeof(shown), name, TEXT_NAME);
    return usage(err, "unknown command \"%s\" (cairn help lists them)", shown);
}

static int check_operands(const struct options *o, struct cairn_error *err)
{
    const struct command *c = o->command;
    if (o->n_operands < c->min_operands)
        return usage(err, "too few operands: usage is cairn %s %s", c->name, c->operands);
    if (o->n_operands > c->max_operands) {
        char shown[SHOWN_MAX];
        text_escape_cut(shown, sizeof(shown), o->operands[c->max_operands], TEXT_NAME);
        return usage(err, "unexpected operand \"%s\"", shown);
    }
    for (size_t i = 0; i < o->n_operands && i < c->ids; i++) {
        int rc = id_check(o->operands[i], err);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

static int check_command(const struct options *o, struct cairn_error *err)
{
    const struct command *c = o->command;
    for (int i = 0; i < OPTION_COUNT_; i++)
        if (o->value[i].given && !(c->options & OPTION_BIT(i)))
            return usage(err, "option --%s does not belong to cairn %s", definitions[i].name,
                         c->name);
    /* Who asks for help need not have the rest right. */
    if (o->value[OPTION_HELP].given)
        return CAIRN_OK;
    int rc = check_operands(o, err);
    for (int i = 0; !rc && i < OPTION_COUNT_; i++)
        if ((c->must & OPTION_BIT(i)) && !o->value[i].given)
            rc = usage(err, "option --%s %s is missing", definitions[i].name, definitions[i].arg);
    return rc;
}

int options_parse(int argc, char **argv, const struct command *commands, size_t n,
                  struct options *out, struct cairn_error *err)
{
    *out = (struct options){0};
    out->operands = calloc((size_t)argc + 1, sizeof(*out->operands));
    if (!out->operands)
        return error_oom(err, "command line");
    bool open = true;
    for (int i = 1; i < argc; i++) {
        int rc = CAIRN_OK;
        if (open && strcmp(argv[i], "--") == 0)
            open = false;
        else if (open && argv[i][0] == '-' && argv[i][1])
            rc = parse_option(out, argc, argv, &i, err);
        else if (!out->command)
            rc = find_command(out, argv[i], commands, n, err);
        else
            out->operands[out->n_operands++] = argv[i];
        if (rc)
            return rc;
    }
    return out->command ? check_command(out, err) : CAIRN_OK;
}

void options_release(struct options *o)
{
    for (size_t i = 0; i < o->n_expect; i++)
        free((void *)o->expect[i].path);
    free(o->expect);
    free(o->operands);
    *o = (struct options){0};
}

static int help_option(const struct definition *d, struct buf *out, struct cairn_error *err)
{
    char left[40];
    snprintf(left, sizeof(left), "%c%c%s --%s %s", d->letter ? '-' : ' ',
             d->letter ? d->letter : ' ', d->letter ? "," : " ", d->name, d->arg ? d->arg : "");
    return buf_addf(out, err, "  %-28s %s\n", left, d->help);
}

static int help_list(uint32_t options, int from, int to, struct buf *out, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (int i = from; !rc && i < to; i++)
        if (options & OPTION_BIT(i))
            rc = help_option(&definitions[i], out, err);
    return rc;
}

int options_help_command(const struct command *c, struct buf *out, struct cairn_error *err)
{
    bool own = c->options >> OPTION_CHUNK_SIZE;
    int rc = buf_addf(out, err, "Usage: cairn %s%s%s%s%s [OPTION]...\n%s.\n", c->name,
                      *c->operands ? " " : "", c->operands, *c->required ? " " : "", c->required,
                      c->summary);
    if (!rc && own)
        rc = buf_addf(out, err, "\nOptions:\n");
    if (!rc)
        rc = help_list(c->options, OPTION_CHUNK_SIZE, OPTION_COUNT_, out, err);
    if (!rc)
        rc = buf_addf(out, err, "\nCommon options:\n");
    return rc ? rc : help_list(c->options, 0, OPTION_CHUNK_SIZE, out, err);
}

int options_help(const struct command *commands, size_t n, struct buf *out, struct cairn_error *err)
{
    int rc = buf_addf(out, err,
                      "Usage: cairn [OPTION]... COMMAND [OPERAND]... [OPTION]...\n"
                      "Keep checkpoints of virtual machines in a content-addressed store.\n\n"
                      "Commands:\n");
    for (size_t i = 0; !rc && i < n; i++) {
        char left[64];
        snprintf(left, sizeof(left), "%s %s%s%s", commands[i].name, commands[i].operands,
                 *commands[i].operands && *commands[i].required ? " " : "", commands[i].required);
        rc = buf_addf(out, err, "  %-26s %s\n", left, commands[i].summary);
    }
    if (!rc)
        rc = buf_addf(out, err, "\nOptions:\n");
    if (!rc)
        rc = help_list(UINT32_MAX, 0, OPTION_CHUNK_SIZE, out, err);
    if (!rc)
        rc = buf_addf(out, err,
                      "\nAn ID is ck_ and 16 (a checkpoint, published once), or tp_ and 32 (a "
                      "template),\nlower-case hex digits. cairn COMMAND --help tells more of a "
                      "command, man cairn all.\nExit codes: 0 done, 1 failed, 2 usage, 3 not "
                      "found, 4 busy, 5 timeout, 6 corrupt,\n7 no space, 8 transient, 130 "
                      "interrupted.\n");
    return rc;
}
