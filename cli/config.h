/* The configuration file: one JSON object. Every key of the format is known, checked and kept here,
 * also those that only later commands use; a key that is not known is refused by its path, so that
 * a misspelt one cannot pass for a default. */
#ifndef CAIRN_CLI_CONFIG_H
#define CAIRN_CLI_CONFIG_H

#include "base/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_FILE_MAX (1024 * 1024)

enum config_kind { CONFIG_DIR, CONFIG_S3 };
enum config_signature { CONFIG_V4, CONFIG_V2 };
enum config_materialise { CONFIG_SECOND, CONFIG_ALWAYS, CONFIG_NEVER };

/* Text is owned; NULL where the file does not give it (or gives "", where that is allowed). */
struct config {
    int kind; /* enum config_kind */
    struct {
        char *bucket, *prefix, *endpoint, *region, *profile, *ca_file;
        bool force_path_style;
        int signature; /* enum config_signature */
        int64_t max_requests;
    } s3;
    char *checkpoint_dir, *state_dir;
    char *listen, *listen_group;
    int64_t listen_mode;
    char *mount;
    int materialise;     /* enum config_materialise */
    bool trace;          /* of the mount of a bucket */
    int64_t cache_bytes; /* -1: not given */
    int64_t fetch_budget_seconds, generation_grace_seconds, sweep_interval_seconds;
    int64_t checkpoint_ttl_hours;  /* 0: for ever */
    int64_t gc_visibility_seconds; /* -1: as the kind of store wants */
    int64_t gc_young_seconds, gc_dead_margin_seconds;
    int64_t staging_keep_seconds;
    int64_t workers; /* 0: as many as there are cores, at most 8 */
    int log_level;   /* enum log_level */
    bool log_level_given;
    int64_t drain_seconds;
};

/* The defaults, with nothing to release. */
void config_init(struct config *c);
void config_release(struct config *c);

/* Over *c, which config_init made. name is for messages. Invalid: no JSON object, an unknown or
 * wrongly typed key, a value out of range; each with the key's path. */
CAIRN_MUST_CHECK int config_parse(struct config *c, const char *name, const void *text, size_t len,
                                  struct cairn_error *err);
/* The same of a file. not_found: there is none. */
CAIRN_MUST_CHECK int config_read(struct config *c, const char *path, const struct cairn_op *op,
                                 struct cairn_error *err);

#endif
