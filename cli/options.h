/* The command line: which commands there are is the caller's table, which options there are is
 * ours. Options may stand before or after the command, as --name VALUE or --name=VALUE; "--" ends
 * them. Names are never abbreviated, so that a new option cannot break a script. Where an option is
 * given twice the last one counts (but --expect adds up). */
#ifndef CAIRN_CLI_OPTIONS_H
#define CAIRN_CLI_OPTIONS_H

#include "base/buf.h"
#include "store/cairn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option {
    OPTION_CONFIG,
    OPTION_STORE,
    OPTION_STATE,
    OPTION_WORKERS,
    OPTION_TIMEOUT,
    OPTION_JSON,
    OPTION_QUIET,
    OPTION_HELP,
    OPTION_VERSION,
    /* from here on: not of every command */
    OPTION_CHUNK_SIZE,
    OPTION_COMPRESSION,
    OPTION_FROM,
    OPTION_META,
    OPTION_PARENT,
    OPTION_DIGEST,
    OPTION_EXPECT,
    OPTION_TO,
    OPTION_PREFIX,
    OPTION_AFTER,
    OPTION_LIMIT,
    OPTION_REPAIR_INDEX,
    OPTION_DRY_RUN,
    OPTION_WAIT,
    OPTION_LISTEN,
    OPTION_SOCKET,
    OPTION_FOREGROUND,
    OPTION_MOUNT,
    OPTION_COUNT_,
};

#define OPTION_BIT(o) (1U << (o))
/* Options that say something to every command, or to every command that opens a store. */
#define OPTIONS_COMMON (OPTION_BIT(OPTION_HELP) | OPTION_BIT(OPTION_QUIET))
#define OPTIONS_STORE                                                                              \
    (OPTIONS_COMMON | OPTION_BIT(OPTION_CONFIG) | OPTION_BIT(OPTION_STORE) |                       \
     OPTION_BIT(OPTION_STATE) | OPTION_BIT(OPTION_WORKERS) | OPTION_BIT(OPTION_TIMEOUT))

struct app;

struct command {
    const char *name;
    const char *operands; /* as shown in the usage: "ID PATH"; "" for none */
    const char *required; /* options that must be there, as shown in the usage */
    const char *summary;  /* one line */
    uint32_t options;     /* OPTION_BITs it takes */
    uint32_t must;        /* of them those it cannot do without */
    unsigned min_operands, max_operands;
    unsigned ids;     /* so many of the first operands are record ids */
    bool needs_store; /* read the configuration and find the store first */
    bool streams;     /* its output is of any length: a reader that leaves early is no fault */
    int (*run)(struct app *app, struct cairn_error *err);
};

struct option_value {
    bool given;
    const char *text;
    uint64_t number; /* counts, sizes, and the place of a choice in its list */
    double seconds;
};

struct options {
    const struct command *command; /* NULL: none was named */
    struct option_value value[OPTION_COUNT_];
    struct cairn_expect *expect; /* owned, as are its paths */
    size_t n_expect;
    const char **operands; /* the array is owned, the text is argv's */
    size_t n_operands;
};

/* Errors: invalid (a wrong command line, or a bad id in it), internal. *out is to be released in
 * any case, and holds what was understood. */
CAIRN_MUST_CHECK int options_parse(int argc, char **argv, const struct command *commands, size_t n,
                                   struct options *out, struct cairn_error *err);
void options_release(struct options *o);

/* The help: of one command, or of all of them. */
CAIRN_MUST_CHECK int options_help_command(const struct command *c, struct buf *out,
                                          struct cairn_error *err);
CAIRN_MUST_CHECK int options_help(const struct command *commands, size_t n, struct buf *out,
                                  struct cairn_error *err);

#endif
