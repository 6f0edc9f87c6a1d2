/* Where the configuration, the store and the local state are: the options win over the environment,
 * which wins over the configuration, which wins over the defaults.
 *
 *            option     environment    configuration    default
 *   config   --config   CAIRN_CONFIG                    $XDG_CONFIG_HOME/cairn/config.json, for
 * root else /etc/cairn/config.json, if it is there store    --store    CAIRN_STORE checkpoint_dir
 * $XDG_DATA_HOME/cairn, for root else /var/lib/cairn/store state    --state    CAIRN_STATE
 * state_dir        $XDG_STATE_HOME/cairn, for root else /var/lib/cairn/state
 *
 * For others than root the three folders of the XDG base directory specification have its defaults
 * (~/.config, ~/.local/share, ~/.local/state). For root they count only where they are set, so that
 * sudo never picks up a user's files. */
#ifndef CAIRN_CLI_PATHS_H
#define CAIRN_CLI_PATHS_H

#include "cli/config.h"
#include "cli/options.h"

struct paths {
    char *store, *state; /* owned */
    bool store_is_default, state_is_default;
};

/* Read the configuration into *config (which config_init made). Invalid for everything that is
 * wrong with it. op bounds the wait for a pipe. */
CAIRN_MUST_CHECK int paths_config(const struct options *o, const struct cairn_op *op,
                                  struct config *config, struct cairn_error *err);
/* "s3://…" */
bool paths_is_bucket(const char *store);

/* Invalid: a store that this program has no backend for, state and store inside each other. */
CAIRN_MUST_CHECK int paths_find(const struct options *o, const struct config *config,
                                struct paths *out, struct cairn_error *err);
void paths_release(struct paths *p);

/* Refuse (invalid) a folder of the user's that lies in the store or, if around, that holds it. what
 * names the option. */
CAIRN_MUST_CHECK int paths_check_apart(const struct paths *p, const char *dir, bool around,
                                       const char *what, struct cairn_error *err);

#endif
