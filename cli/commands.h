/* What runs each command. Each returns its class with *err filled, after which main tells the error
 * and chooses the exit code; failures of standard output stick in app->out and need no return. */
#ifndef CAIRN_CLI_COMMANDS_H
#define CAIRN_CLI_COMMANDS_H

#include "cli/app.h"

/* Print the help of a command, or (NULL) of all. */
CAIRN_MUST_CHECK int about_help(struct app *app, const struct command *c, struct cairn_error *err);

int command_init(struct app *app, struct cairn_error *err); /* about.c */
int command_version(struct app *app, struct cairn_error *err);
int command_help(struct app *app, struct cairn_error *err);
int command_publish(struct app *app, struct cairn_error *err); /* publish.c */
int command_fork(struct app *app, struct cairn_error *err);
int command_fetch(struct app *app, struct cairn_error *err); /* fetch.c */
int command_cat(struct app *app, struct cairn_error *err);   /* cat.c */
int command_ls(struct app *app, struct cairn_error *err);    /* list.c */
int command_show(struct app *app, struct cairn_error *err);  /* show.c */
int command_rm(struct app *app, struct cairn_error *err);    /* keep.c */
int command_hold(struct app *app, struct cairn_error *err);
int command_release(struct app *app, struct cairn_error *err);
int command_verify(struct app *app, struct cairn_error *err); /* check.c */
int command_stats(struct app *app, struct cairn_error *err);
int command_mount(struct app *app, struct cairn_error *err); /* mount.c */
/* What a mount of app's store on dir is told; socket: another path that must lie elsewhere. */
struct mount_config;
void mount_command_config(const struct app *app, const char *dir, const char *socket,
                          struct mount_config *out);
int command_gc(struct app *app, struct cairn_error *err);    /* gc.c */
int command_serve(struct app *app, struct cairn_error *err); /* serve.c */

#endif
