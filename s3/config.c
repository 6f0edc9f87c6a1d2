#include "s3/config.h"

#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int invalid(struct cairn_error *err, const char *what, const char *text)
{
    return error_set(err, CAIRN_INVALID, EINVAL, "S3: %s: \"%.200s\"", what, text);
}

static bool bucket_is_valid(const char *b, size_t len)
{
    if (len < 3 || len > 63)
        return false;
    for (size_t i = 0; i < len; i++) {
        bool alnum = (b[i] >= 'a' && b[i] <= 'z') || (b[i] >= 'A' && b[i] <= 'Z') ||
                     (b[i] >= '0' && b[i] <= '9');
        if (!alnum && (i == 0 || !strchr("._-", b[i])))
            return false;
    }
    return true;
}

int s3_url_parse(const char *url, char **bucket, char **prefix, struct cairn_error *err)
{
    if (strncmp(url, "s3://", 5) != 0)
        return invalid(err, "not an s3:// URL", url);
    const char *b = url + 5;
    size_t n = strcspn(b, "/");
    if (!bucket_is_valid(b, n))
        return invalid(err, "not a bucket's name in a URL", url);
    *bucket = strndup(b, n);
    *prefix = strdup(b[n] ? b + n + 1 : "");
    if (*bucket && *prefix)
        return CAIRN_OK;
    free(util_steal(bucket));
    free(util_steal(prefix));
    return error_oom(err, "S3 URL");
}

static bool host_is_valid(const char *host, size_t len)
{
    if (len == 0 || len > 253)
        return false;
    if (host[0] == '[') {
        char text[64];
        struct in6_addr a;
        if (len < 3 || len - 2 >= sizeof(text) || host[len - 1] != ']')
            return false;
        snprintf(text, sizeof(text), "%.*s", (int)(len - 2), host + 1);
        return inet_pton(AF_INET6, text, &a) == 1;
    }
    for (size_t i = 0; i < len; i++) {
        char c = host[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '-' || c == '_'))
            return false;
    }
    return host[0] != '.';
}

/* Length of the host in "host[:port]". */
static size_t host_length(const char *authority)
{
    if (*authority == '[') {
        const char *end = strchr(authority, ']');
        return end ? (size_t)(end - authority) + 1 : strlen(authority);
    }
    return strcspn(authority, ":");
}

/* "scheme://host[:port]", stopping at *rest. False: it is none. */
static bool split(const char *text, struct s3_place *out, const char **rest)
{
    *out = (struct s3_place){.tls = true};
    if (strncasecmp(text, "https://", 8) == 0) {
        text += 8;
    } else if (strncasecmp(text, "http://", 7) == 0) {
        text += 7;
        out->tls = false;
    } else if (strstr(text, "://")) {
        return false;
    }
    size_t n = strcspn(text, "/?#");
    *rest = text + n;
    if (n >= sizeof(out->authority))
        return false;
    memcpy(out->authority, text, n);
    size_t host = host_length(out->authority);
    if (!host_is_valid(out->authority, host))
        return false;
    const char *port = out->authority + host;
    if (!*port)
        return true;
    char *end;
    errno = 0;
    long v = port[0] == ':' && port[1] >= '0' && port[1] <= '9' ? strtol(port + 1, &end, 10) : 0;
    if (v < 1 || v > 65535 || *end)
        return false;
    /* A client leaves the default port out of Host, which is signed. */
    if (v == (out->tls ? 443 : 80))
        out->authority[host] = 0;
    return true;
}

int s3_place_parse(const char *endpoint, struct s3_place *out, struct cairn_error *err)
{
    const char *rest;
    if (!split(endpoint, out, &rest) || (*rest && strcmp(rest, "/") != 0)) {
        /* It may hold a password: it is not repeated. */
        if (strchr(endpoint, '@'))
            return error_set(err, CAIRN_INVALID, EINVAL,
                             "S3: an endpoint takes no user: credentials "
                             "come from the usual chain");
        return invalid(err, "not an endpoint (http[s]://host[:port])", endpoint);
    }
    return CAIRN_OK;
}

void s3_place_aws(const char *region, struct s3_place *out)
{
    *out = (struct s3_place){.tls = true};
    snprintf(out->authority, sizeof(out->authority), "s3.%.*s.amazonaws.com%s", S3_REGION_MAX,
             region, strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
}

/* host is suffix itself, or lies below it. */
static bool is_within(const char *host, size_t len, const char *suffix, size_t suffix_len)
{
    if (len < suffix_len || strncasecmp(host + len - suffix_len, suffix, suffix_len) != 0)
        return false;
    return len == suffix_len || host[len - suffix_len - 1] == '.';
}

static bool is_aws_host(const char *host, size_t len)
{
    return is_within(host, len, "amazonaws.com", 13) ||
           is_within(host, len, "amazonaws.com.cn", 16);
}

static bool is_address(const char *host, size_t len)
{
    char text[64];
    struct in_addr a;
    if (host[0] == '[')
        return true;
    if (len >= sizeof(text))
        return false;
    snprintf(text, sizeof(text), "%.*s", (int)len, host);
    return inet_pton(AF_INET, text, &a) == 1;
}

bool s3_place_fits_virtual(const struct s3_place *place, const char *bucket)
{
    size_t len = host_length(place->authority);
    if (is_address(place->authority, len) || (place->tls && strchr(bucket, '.')))
        return false;
    for (const char *p = bucket; *p; p++)
        if ((*p >= 'A' && *p <= 'Z') || *p == '_')
            return false;
    size_t n = strlen(bucket);
    return !strstr(bucket, "..") && bucket[n - 1] != '-' && bucket[n - 1] != '.' &&
           len + 1 + n <= 253;
}

bool s3_place_redirect(const struct s3_place *home, const char *bucket, const char *location,
                       struct s3_place *out)
{
    const char *rest;
    size_t n = strlen(bucket);
    bool bare = !strstr(location, "://");
    if (!split(location, out, &rest))
        return false;
    if (bare) /* <Endpoint> names a host only */
        out->tls = home->tls;
    if (home->tls && !out->tls)
        return false;
    size_t home_len = host_length(home->authority), len = host_length(out->authority);
    bool allowed = is_within(out->authority, len, home->authority, home_len);
    if (is_address(home->authority, home_len))
        allowed = len == home_len && strncasecmp(out->authority, home->authority, len) == 0;
    if (is_aws_host(home->authority, home_len) && is_aws_host(out->authority, len))
        allowed = true;
    if (!allowed)
        return false;
    out->virtual_host = home->virtual_host;
    if (len > n + 1 && strncasecmp(out->authority, bucket, n) == 0 && out->authority[n] == '.') {
        memmove(out->authority, out->authority + n + 1, strlen(out->authority + n + 1) + 1);
        out->virtual_host = true;
    } else if (rest[0] == '/' && strncmp(rest + 1, bucket, n) == 0 &&
               (!rest[n + 1] || strchr("/?", rest[n + 1]))) {
        out->virtual_host = false;
    }
    return true;
}

bool s3_region_is_valid(const char *region)
{
    size_t n = strlen(region);
    return n > 0 && n < S3_REGION_MAX &&
           strspn(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == n;
}

bool s3_key_has_dots(const char *key)
{
    for (const char *p = key; *p; p += strcspn(p, "/"), p += *p == '/') {
        size_t n = strcspn(p, "/");
        if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return true;
    }
    return false;
}

int s3_key_check(const char *key, struct cairn_error *err)
{
    if (!*key || s3_key_has_dots(key))
        return invalid(err, "not a key", key);
    return CAIRN_OK;
}

int s3_config_check(const struct s3_config *c, struct cairn_error *err)
{
    struct s3_place place = {.tls = true};
    const char *prefix = c->prefix ? c->prefix : "";
    if (!c->bucket || !bucket_is_valid(c->bucket, strlen(c->bucket)))
        return invalid(err, "not a bucket's name", c->bucket ? c->bucket : "");
    if (strlen(prefix) > S3_PREFIX_MAX)
        return invalid(err, "the prefix is too long", prefix);
    if (s3_key_has_dots(prefix))
        return invalid(err, "a prefix may not hold \".\" or \"..\" as a component", prefix);
    if (!c->spool_dir || !*c->spool_dir)
        return invalid(err, "no folder for the spool", "");
    if (c->region && !s3_region_is_valid(c->region))
        return invalid(err, "not a region's name", c->region);
    int rc = c->endpoint ? s3_place_parse(c->endpoint, &place, err) : CAIRN_OK;
    if (rc || c->signature != S3_SIGNATURE_V2)
        return rc;
    /* What libs3 2.0 cannot do safely is refused before anything is sent. */
    if (!c->endpoint || place.tls)
        return invalid(
            err,
            "signature v2 is for http:// endpoints on a trusted network only: its client "
            "library does not check certificates",
            c->endpoint ? c->endpoint : "AWS");
    if (strchr(prefix, ' '))
        return invalid(err, "signature v2: its client library cannot send a space in a key",
                       prefix);
    return CAIRN_OK;
}
