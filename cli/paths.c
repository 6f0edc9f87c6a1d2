#include "cli/paths.h"

#include "base/util.h"
#include "cli/files.h"
#include "cli/text.h"

#include <errno.h>
#include <pwd.h>
#include <string.h>

static const char *env(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static int copy(const char *text, char **out, struct cairn_error *err)
{
    *out = strdup(text);
    return *out ? CAIRN_OK : error_oom(err, "path");
}

static int home_dir(char **out, struct cairn_error *err)
{
    const char *home = env("HOME");
    if (home && *home == '/')
        return copy(home, out, err);
    char text[4096];
    struct passwd pw, *found = NULL;
    int e = getpwuid_r(geteuid(), &pw, text, sizeof(text), &found);
    if (e)
        return error_sys(err, e, "home folder of user %u", (unsigned)geteuid());
    if (!found || *pw.pw_dir != '/')
        return error_set(err, CAIRN_INVALID, EINVAL,
                         "no home folder: set HOME, or give --store and --state");
    return copy(pw.pw_dir, out, err);
}

/* $variable/tail, or roots for root, or ~/under/tail. */
static int default_path(const char *variable, const char *under, const char *tail,
                        const char *roots, char **out, struct cairn_error *err)
{
    const char *base = env(variable);
    if (base && *base != '/')
        base = NULL; /* "must be absolute, or it is to be ignored", says the specification */
    if (!base && geteuid() == 0)
        return copy(roots, out, err);
    CLEANUP_FREE char *home = NULL;
    int rc = base ? CAIRN_OK : home_dir(&home, err);
    if (rc)
        return rc;
    int n =
        base ? asprintf(out, "%s/%s", base, tail) : asprintf(out, "%s/%s/%s", home, under, tail);
    if (n < 0) {
        *out = NULL;
        return error_oom(err, "path");
    }
    return CAIRN_OK;
}

/* A default that is not there is no fault; one that was named is. */
static int read_default_config(const struct cairn_op *op, struct config *config,
                               struct cairn_error *err)
{
    CLEANUP_FREE char *path = NULL;
    int rc = default_path("XDG_CONFIG_HOME", ".config", "cairn/config.json",
                          "/etc/cairn/config.json", &path, err);
    if (rc)
        return rc;
    rc = config_read(config, path, op, err);
    if (rc == CAIRN_NOT_FOUND && geteuid() == 0 && strcmp(path, "/etc/cairn/config.json") != 0)
        rc = config_read(config, "/etc/cairn/config.json", op, err);
    return rc == CAIRN_NOT_FOUND ? CAIRN_OK : rc;
}

int paths_config(const struct options *o, const struct cairn_op *op, struct config *config,
                 struct cairn_error *err)
{
    const char *path =
        o->value[OPTION_CONFIG].text ? o->value[OPTION_CONFIG].text : env("CAIRN_CONFIG");
    int rc = path ? config_read(config, path, op, err) : read_default_config(op, config, err);
    if (rc == CAIRN_NOT_FOUND || rc == CAIRN_PERMANENT)
        err->error_class = rc = CAIRN_INVALID;
    return rc;
}

static int check_backend(const char *store, struct cairn_error *err)
{
    const char *scheme = strstr(store, "://");
    if (!scheme)
        return CAIRN_OK;
    if (paths_is_bucket(store))
        return CAIRN_OK;
    char shown[128];
    text_escape_cut(shown, sizeof(shown), store, TEXT_NAME);
    return error_set(err, CAIRN_INVALID, ENOTSUP,
                     "store %s: neither a directory nor s3://bucket/prefix", shown);
}

bool paths_is_bucket(const char *store)
{
    return strncmp(store, "s3://", 5) == 0;
}

/* The URL of the configuration's bucket. */
static int bucket_url(const struct config *config, char **out, struct cairn_error *err)
{
    const char *prefix = config->s3.prefix ? config->s3.prefix : "";
    if (asprintf(out, "s3://%s%s%s", config->s3.bucket, *prefix ? "/" : "", prefix) < 0) {
        *out = NULL;
        return error_oom(err, "store");
    }
    return CAIRN_OK;
}

static int find_store(const struct options *o, const struct config *config, struct paths *out,
                      struct cairn_error *err)
{
    const char *given = o->value[OPTION_STORE].text;
    if (!given)
        given = env("CAIRN_STORE");
    if (!given && config->kind == CONFIG_S3)
        return bucket_url(config, &out->store, err);
    if (!given)
        given = config->checkpoint_dir;
    if (given) {
        int rc = check_backend(given, err);
        return rc ? rc : copy(given, &out->store, err);
    }
    out->store_is_default = true;
    return default_path("XDG_DATA_HOME", ".local/share", "cairn", "/var/lib/cairn/store",
                        &out->store, err);
}

static int find_state(const struct options *o, const struct config *config, struct paths *out,
                      struct cairn_error *err)
{
    const char *given = o->value[OPTION_STATE].text;
    if (!given)
        given = env("CAIRN_STATE");
    if (!given)
        given = config->state_dir;
    if (given)
        return copy(given, &out->state, err);
    out->state_is_default = true;
    return default_path("XDG_STATE_HOME", ".local/state", "cairn", "/var/lib/cairn/state",
                        &out->state, err);
}

int paths_find(const struct options *o, const struct config *config, struct paths *out,
               struct cairn_error *err)
{
    *out = (struct paths){0};
    int rc = find_store(o, config, out, err);
    if (!rc)
        rc = find_state(o, config, out, err);
    /* Whatever lies in the store is taken for the store's: neither may hold the other. */
    return rc ? rc : paths_check_apart(out, out->state, true, "the state folder", err);
}

void paths_release(struct paths *p)
{
    free(p->store);
    free(p->state);
    *p = (struct paths){0};
}

int paths_check_apart(const struct paths *p, const char *dir, bool around, const char *what,
                      struct cairn_error *err)
{
    if (paths_is_bucket(p->store))
        return CAIRN_OK;
    CLEANUP_FREE char *store = NULL;
    CLEANUP_FREE char *other = NULL;
    int rc = files_canonical(p->store, &store, err);
    if (!rc)
        rc = files_canonical(dir, &other, err);
    if (rc)
        return rc;
    bool in = files_is_inside(other, store), holds = around && files_is_inside(store, other);
    if (!in && !holds)
        return CAIRN_OK;
    char shown_dir[160], shown_store[160];
    text_escape_cut(shown_dir, sizeof(shown_dir), other, TEXT_NAME);
    text_escape_cut(shown_store, sizeof(shown_store), store, TEXT_NAME);
    return error_set(err, CAIRN_INVALID, EINVAL, "%s %s must lie apart from the store %s (it %s)",
                     what, shown_dir, shown_store,
                     strcmp(other, store) == 0 ? "is the store"
                     : in                      ? "is inside"
                                               : "holds it");
}
