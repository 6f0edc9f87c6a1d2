/* What a command has at hand, and how it ends. */
#ifndef CAIRN_CLI_APP_H
#define CAIRN_CLI_APP_H

#include "cli/config.h"
#include "cli/http.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "store/cairn.h"

/* Of the process. A cancelled command ends as its signal would: 128 + signal. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_NOT_FOUND = 3,
    EXIT_BUSY = 4,
    EXIT_TIMED_OUT = 5,
    EXIT_CORRUPT = 6,
    EXIT_NO_SPACE = 7,
    EXIT_TRANSIENT = 8,
};

struct app {
    struct options options;
    struct config config; /* with needs_store, as are the next two */
    struct paths paths;
    struct cairn_store *store;   /* owned; NULL until app_open */
    struct http_client *service; /* owned; in place of store where --socket is given */
    struct output out;
    struct cairn_cancel *cancel;
    struct cairn_op op;
    bool json, quiet;
    bool usage;    /* the failure is one of the command line */
    bool reported; /* the failure has been told already, in text and JSON */
};

/* The i-th operand; text of an option, NULL where it is not given; whether it is given. */
const char *app_operand(const struct app *app, size_t i);
const char *app_text(const struct app *app, enum option o);
bool app_flag(const struct app *app, enum option o);

/* What the library needs to know of where things are. */
struct cairn_config app_config(const struct app *app, struct cairn_s3_config *s3);
/* The collector's times. */
struct cairn_gc_config app_gc_config(const struct config *c); /* gc.c */
/* Open the store into app->store, or, for commands that can go through a service, with --socket the
 * connection to one into app->service. */
CAIRN_MUST_CHECK int app_open(struct app *app, struct cairn_error *err);
/* The same for a writer: a default store that is not there is made. */
CAIRN_MUST_CHECK int app_open_or_init(struct app *app, struct cairn_error *err);
/* Make the folders above a default store and a default state, which nobody was asked to make. */
CAIRN_MUST_CHECK int app_make_defaults(struct app *app, struct cairn_error *err);

/* The bytes of --meta. *meta is NULL where it is not given; else it points into storage. */
CAIRN_MUST_CHECK int app_meta(struct app *app, struct buf *storage, const void **meta, size_t *len,
                              struct cairn_error *err);

/* Fail with EXIT_USAGE. */
CAIRN_MUST_CHECK int app_usage(struct app *app, struct cairn_error *err, const char *fmt, ...)
    CAIRN_PRINTF(3, 4);

/* "cairn: COMMAND ID: CLASS: MESSAGE" on standard error. subject may be NULL. */
void app_report(const struct app *app, const char *subject, const struct cairn_error *err);

int app_exit_code(int error_class);
/* The one of two classes that matters more where several things were tried. */
int app_worse(int a, int b);

extern const struct command commands[];
extern const size_t n_commands;

#endif
