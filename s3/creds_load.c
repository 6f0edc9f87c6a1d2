#include "s3/creds_load.h"

#include "base/clock.h"
#include "base/jval.h"
#include "base/util.h"
#include "s3/profile.h"
#include "s3/stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define TRIES      3
#define ANSWER_MAX ((size_t)64 * 1024)

void s3_creds_release(struct s3_creds *c)
{
    s3_wipe(c->access_key);
    s3_wipe(c->secret);
    s3_wipe(c->token);
    *c = (struct s3_creds){0};
}

static bool copy_env(const char *name, char **out)
{
    const char *v = getenv(name);
    *out = NULL;
    if (!v || !*v)
        return true;
    *out = strdup(v);
    return *out != NULL;
}

static bool home_path(const char *variable, const char *rest, char **out)
{
    if (!copy_env(variable, out))
        return false;
    const char *home = getenv("HOME");
    if (*out || !home || !*home)
        return true;
    return asprintf(out, "%s/%s", home, rest) >= 0;
}

static bool container_env(struct s3_creds_env *e)
{
    CLEANUP_FREE char *relative = NULL;
    if (!copy_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", &relative))
        return false;
    if (relative)
        return asprintf(&e->container_url, "http://169.254.170.2%s", relative) >= 0;
    return copy_env("AWS_CONTAINER_CREDENTIALS_FULL_URI", &e->container_url);
}

static bool imds_env(struct s3_creds_env *e)
{
    const char *off = getenv("AWS_EC2_METADATA_DISABLED");
    if (off && strcasecmp(off, "true") == 0)
        return true;
    if (!copy_env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &e->imds))
        return false;
    if (!e->imds)
        e->imds = strdup("http://169.254.169.254");
    size_t n = e->imds ? strlen(e->imds) : 0;
    while (n && e->imds[n - 1] == '/')
        e->imds[--n] = 0;
    return e->imds != NULL;
}

int s3_creds_env_read(const char *profile, struct s3_creds_env *out, struct cairn_error *err)
{
    *out = (struct s3_creds_env){.profile_chosen = profile != NULL};
    bool ok =
        copy_env("AWS_ACCESS_KEY_ID", &out->access_key) &&
        copy_env("AWS_SECRET_ACCESS_KEY", &out->secret) &&
        copy_env("AWS_SESSION_TOKEN", &out->token) &&
        home_path("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", &out->credentials_file) &&
        home_path("AWS_CONFIG_FILE", ".aws/config", &out->config_file) && container_env(out) &&
        copy_env("AWS_CONTAINER_AUTHORIZATION_TOKEN", &out->container_token) &&
        copy_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &out->container_token_file) &&
        imds_env(out);
    if (ok && profile)
        ok = (out->profile = strdup(profile)) != NULL;
    else if (ok)
        ok = copy_env("AWS_PROFILE", &out->profile);
    if (ok)
        return CAIRN_OK;
    s3_creds_env_release(out);
    return error_oom(err, "credentials");
}

void s3_creds_env_release(struct s3_creds_env *e)
{
    s3_wipe(e->access_key);
    s3_wipe(e->secret);
    s3_wipe(e->token);
    s3_wipe(e->container_token);
    free(e->profile);
    free(e->credentials_file);
    free(e->config_file);
    free(e->container_url);
    free(e->container_token_file);
    free(e->imds);
    *e = (struct s3_creds_env){0};
}

static int set_creds(struct s3_creds *out, const char *key, const char *secret, const char *token,
                     int64_t expires_ns, struct cairn_error *err)
{
    *out = (struct s3_creds){.access_key = strdup(key),
                             .secret = strdup(secret),
                             .token = token && *token ? strdup(token) : NULL,
                             .expires_ns = expires_ns};
    if (out->access_key && out->secret && (out->token || !token || !*token))
        return CAIRN_OK;
    s3_creds_release(out);
    return error_oom(err, "credentials");
}

/* Both files, credentials first; not_found when neither has keys for the profile. */
static int load_profile(const struct s3_creds_env *e, struct s3_profile *p, struct cairn_error *err)
{
    const char *name = e->profile ? e->profile : "default";
    CLEANUP_FREE char *section = NULL;
    int rc = CAIRN_OK;
    if (e->credentials_file)
        rc = s3_profile_load(e->credentials_file, name, p, err);
    if (rc || !e->config_file)
        return rc;
    bool is_default = strcmp(name, "default") == 0;
    if (asprintf(&section, is_default ? "%s" : "profile %s", name) < 0) {
        section = NULL;
        return error_oom(err, "credentials");
    }
    return s3_profile_load(e->config_file, section, p, err);
}

static int from_files(const struct s3_creds_env *e, struct s3_creds *out, struct cairn_error *err)
{
    struct s3_profile p = {0};
    int rc = load_profile(e, &p, err);
    if (!rc && p.access_key && p.secret)
        rc = set_creds(out, p.access_key, p.secret, p.token, CREDS_NEVER, err);
    else if (!rc)
        rc = error_set(err, CAIRN_NOT_FOUND, ENOENT, "profile \"%s\" has no keys in %s or %s",
                       e->profile ? e->profile : "default",
                       e->credentials_file ? e->credentials_file : "(no file)",
                       e->config_file ? e->config_file : "(no file)");
    s3_profile_release(&p);
    return rc;
}

int s3_creds_region(const struct s3_creds_env *e, char **out, struct cairn_error *err)
{
    *out = NULL;
    if (!copy_env("AWS_REGION", out) || (!*out && !copy_env("AWS_DEFAULT_REGION", out)))
        return error_oom(err, "region");
    if (*out)
        return CAIRN_OK;
    struct s3_profile p = {0};
    int rc = load_profile(e, &p, err);
    if (!rc)
        *out = util_steal(&p.region);
    s3_profile_release(&p);
    return rc;
}

/* One request to a metadata endpoint, tried again while that makes sense. The answer is at most
 * ANSWER_MAX bytes and ends in a NUL. */
static int ask(struct http_pool *pool, const struct cairn_op *op, const char *method,
               const char *url, const char *header, struct buf *answer, struct cairn_error *err)
{
    int rc = CAIRN_OK;
    for (int i = 0; i < TRIES; i++) {
        rc = op_check(op, "credentials", err);
        if (rc)
            return rc;
        struct cairn_op one = {.cancel = op->cancel,
                               .deadline_ns = clock_add(clock_monotonic(), CREDS_REQUEST_NS)};
        if (op->deadline_ns < one.deadline_ns)
            one.deadline_ns = op->deadline_ns;
        struct http_sink sink = {.buf = answer, .max = ANSWER_MAX - 1};
        struct http_body none = {.data = "", .fd = -1};
        struct http_request req = {.method = method,
                                   .url = url,
                                   .headers = &header,
                                   .n_headers = header ? 1 : 0,
                                   .body = strcmp(method, "PUT") == 0 ? &none : NULL,
                                   .sink = &sink};
        struct http_response res;
        http_exchange(pool, &one, &req, &res);
        struct s3_verdict v = s3_judge(&res.outcome);
        buf_release(&res.report);
        if (v.error_class == CAIRN_OK)
            return buf_add(answer, "", 1, err);
        char text[300];
        if (v.error_class == CAIRN_TIMEOUT)
            snprintf(text, sizeof(text), "no answer in time");
        else
            s3_describe(&res.outcome, text, sizeof(text));
        rc = error_set(err, v.error_class, v.sys_errno, "%s", text);
        if (rc == CAIRN_CANCELLED || (rc != CAIRN_TRANSIENT && rc != CAIRN_TIMEOUT))
            return rc;
    }
    return rc;
}

static int parse_answer(const struct buf *answer, struct s3_creds *out, struct cairn_error *err)
{
    CLEANUP_JVAL struct jval *v = NULL;
    struct cairn_error ignored; /* may hold a piece of the text */
    if (jval_parse(answer->data, answer->len - 1, &v, &ignored))
        return error_set(err, CAIRN_TRANSIENT, EBADMSG, "the answer is no JSON");
    const char *key = jval_str(jval_get(v, "AccessKeyId"));
    const char *secret = jval_str(jval_get(v, "SecretAccessKey"));
    const char *token = jval_str(jval_get(v, "Token"));
    const char *until = jval_str(jval_get(v, "Expiration"));
    int64_t expires = CREDS_NEVER;
    if (!key || !secret || !*key || !*secret || (until && !stamp_parse_iso(until, &expires)))
        return error_set(err, CAIRN_TRANSIENT, EBADMSG, "the answer holds no credentials");
    return set_creds(out, key, secret, token, expires, err);
}

static void wipe_buf(struct buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_release(b);
}

/* Keys in clear only to this machine and to the addresses that AWS gives to such endpoints. */
static bool container_url_is_safe(const char *url)
{
    static const char *const hosts[] = {"127.0.0.1",     "localhost",      "[::1]",
                                        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    if (strncasecmp(url, "https://", 8) == 0)
        return true;
    if (strncasecmp(url, "http://", 7) != 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        size_t n = strlen(hosts[i]);
        if (strncasecmp(url + 7, hosts[i], n) == 0 && strchr(":/", url[7 + n]))
            return true;
    }
    return false;
}

static int read_token(const char *path, char *out, size_t size, struct cairn_error *err)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_sys(err, errno, "opening %s", path);
    ssize_t n = util_pread_full(fd, out, size - 1, 0);
    if (n < 0)
        return error_sys(err, errno, "reading %s", path);
    while (n && (out[n - 1] == '\n' || out[n - 1] == '\r'))
        n--;
    out[n] = 0;
    return CAIRN_OK;
}

static int from_container(const struct s3_creds_env *e, struct http_pool *pool,
                          const struct cairn_op *op, struct s3_creds *out, struct cairn_error *err)
{
    char token[4096] = "", header[4200] = "";
    struct buf answer = BUF_INIT(ANSWER_MAX);
    if (!container_url_is_safe(e->container_url))
        return error_set(err, CAIRN_PERMANENT, EACCES,
                         "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor this machine");
    int rc = CAIRN_OK;
    if (e->container_token_file)
        rc = read_token(e->container_token_file, token, sizeof(token), err);
    else if (e->container_token)
        snprintf(token, sizeof(token), "%s", e->container_token);
    if (!rc && strpbrk(token, "\r\n"))
        rc = error_set(err, CAIRN_PERMANENT, EINVAL, "the container's token holds a line feed");
    if (*token)
        snprintf(header, sizeof(header), "Authorization: %s", token);
    if (!rc)
        rc = ask(pool, op, "GET", e->container_url, *header ? header : NULL, &answer, err);
    if (!rc)
        rc = parse_answer(&answer, out, err);
    explicit_bzero(token, sizeof(token));
    explicit_bzero(header, sizeof(header));
    wipe_buf(&answer);
    return rc ? error_wrap(err, "container endpoint") : rc;
}

#define IMDS_ROLES "/latest/meta-data/iam/security-credentials/"

static int imds_session(const struct s3_creds_env *e, struct http_pool *pool,
                        const struct cairn_op *op, char *header, size_t size,
                        struct cairn_error *err)
{
    CLEANUP_BUF struct buf answer = BUF_INIT(ANSWER_MAX);
    char url[1024];
    snprintf(url, sizeof(url), "%s/latest/api/token", e->imds);
    int rc = ask(pool, op, "PUT", url, "X-aws-ec2-metadata-token-ttl-seconds: 21600", &answer, err);
    if (rc)
        return rc;
    size_t n = strcspn((const char *)answer.data, "\r\n");
    snprintf(header, size, "X-aws-ec2-metadata-token: %.*s", (int)n, (const char *)answer.data);
    return CAIRN_OK;
}

static int from_instance(const struct s3_creds_env *e, struct http_pool *pool,
                         const struct cairn_op *op, struct s3_creds *out, struct cairn_error *err)
{
    char header[2048] = "", url[1024];
    struct buf role = BUF_INIT(ANSWER_MAX), answer = BUF_INIT(ANSWER_MAX);
    int rc = imds_session(e, pool, op, header, sizeof(header), err);
    snprintf(url, sizeof(url), "%s" IMDS_ROLES, e->imds);
    if (!rc)
        rc = ask(pool, op, "GET", url, header, &role, err);
    if (!rc) {
        /* The first role of the list; its name is a word of letters and digits. */
        size_t n = strspn((const char *)role.data, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                   "abcdefghijklmnopqrstuvwxyz0123456789+=,.@_-");
        if (!n || n > 256)
            rc = error_set(err, CAIRN_PERMANENT, 0, "the instance has no role");
        else
            snprintf(url, sizeof(url), "%s" IMDS_ROLES "%.*s", e->imds, (int)n,
                     (const char *)role.data);
    }
    if (!rc)
        rc = ask(pool, op, "GET", url, header, &answer, err);
    if (!rc)
        rc = parse_answer(&answer, out, err);
    explicit_bzero(header, sizeof(header));
    buf_release(&role);
    wipe_buf(&answer);
    return rc ? error_wrap(err, "instance metadata") : rc;
}

static int from(enum s3_creds_source source, const struct s3_creds_env *e, struct http_pool *pool,
                const struct cairn_op *op, struct s3_creds *out, struct cairn_error *err)
{
    switch (source) {
    case CREDS_ENVIRONMENT:
        if (e->profile_chosen || !e->access_key || !e->secret)
            return error_set(err, CAIRN_NOT_FOUND, 0, "AWS_ACCESS_KEY_ID is not set");
        return set_creds(out, e->access_key, e->secret, e->token, CREDS_NEVER, err);
    case CREDS_FILES:
        return from_files(e, out, err);
    case CREDS_CONTAINER:
        if (!e->container_url)
            return error_set(err, CAIRN_NOT_FOUND, 0, "no container endpoint");
        return from_container(e, pool, op, out, err);
    case CREDS_INSTANCE:
        if (!e->imds)
            return error_set(err, CAIRN_NOT_FOUND, 0, "instance metadata is switched off");
        return from_instance(e, pool, op, out, err);
    default:
        return error_set(err, CAIRN_INTERNAL, 0, "no such source of credentials");
    }
}

int s3_creds_load(const struct s3_creds_env *e, struct http_pool *pool, const struct cairn_op *op,
                  enum s3_creds_source known, struct s3_creds *out, enum s3_creds_source *source,
                  struct cairn_error *err)
{
    struct cairn_op bounded = *op;
    int64_t until = clock_add(clock_monotonic(), CREDS_ALL_NS);
    if (until < bounded.deadline_ns)
        bounded.deadline_ns = until;
    struct cairn_error last;
    int first = known ? (int)known : CREDS_ENVIRONMENT;
    int end = known ? (int)known : CREDS_INSTANCE, rc = CAIRN_NOT_FOUND;
    for (int s = first; s <= end; s++) {
        rc = from((enum s3_creds_source)s, e, pool, &bounded, out, &last);
        if (!rc) {
            *source = (enum s3_creds_source)s;
            return CAIRN_OK;
        }
        /* A profile that was asked for by name is not passed over. */
        if (rc != CAIRN_NOT_FOUND || (s == CREDS_FILES && e->profile))
            break;
    }
    if (rc == CAIRN_CANCELLED || rc == CAIRN_INTERNAL)
        return error_pass(err, &last);
    bool transient = known && rc != CAIRN_PERMANENT && rc != CAIRN_NOT_FOUND;
    return error_set(err, transient ? CAIRN_TRANSIENT : CAIRN_PERMANENT, EACCES,
                     "no credentials: %s", last.message);
}
