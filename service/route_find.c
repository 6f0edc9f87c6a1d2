#include "service/route.h"
#include "service/uri.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Where a component of s ends. */
static size_t component(const char *s)
{
    return strcspn(s, "/");
}

static bool is_dots(const char *s, size_t n)
{
    return n == 0 || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.');
}

static bool components_good(const char *s)
{
    for (;; s++) {
        size_t n = component(s);
        if (is_dots(s, n))
            return false;
        s += n;
        if (!*s)
            return true;
    }
}

/* What a pattern's variables matched, still encoded. */
struct match {
    const char *id, *rest;
    size_t id_len, rest_len;
};

static bool match(const char *pattern, const char *path, struct match *m)
{
    *m = (struct match){0};
    for (;;) {
        if (*pattern != '/' || *path != '/')
            return !*pattern && !*path;
        pattern++, path++;
        size_t n = component(pattern), k = component(path);
        if (n == 6 && memcmp(pattern, "{path}", n) == 0) {
            m->rest = path;
            m->rest_len = strlen(path);
            return true;
        }
        if (k == 0)
            return false;
        if (n == 4 && memcmp(pattern, "{id}", n) == 0) {
            m->id = path;
            m->id_len = k;
        } else if (n == 6 && memcmp(pattern, "{rest}", n) == 0) {
            m->rest = path;
            m->rest_len = k;
        } else if (n != k || memcmp(pattern, path, n) != 0) {
            return false;
        }
        pattern += n;
        path += k;
    }
}

static bool answers(const struct route *route, enum http_method method)
{
    return route->method == method || (route->method == HTTP_GET && method == HTTP_HEAD);
}

static void allow_add(char allow[ROUTE_ALLOW_MAX], enum http_method method)
{
    static const char *const names[] = {
        [HTTP_GET] = "GET, HEAD", [HTTP_HEAD] = "HEAD",     [HTTP_POST] = "POST",
        [HTTP_PUT] = "PUT",       [HTTP_DELETE] = "DELETE", [HTTP_OTHER] = ""};
    size_t at = strlen(allow);
    snprintf(allow + at, ROUTE_ALLOW_MAX - at, "%s%s", at ? ", " : "", names[method]);
}

/* rest stays in the path's own memory, which is long enough for what it decodes to. */
static int take_variables(const struct match *m, char *path, struct request *r,
                          struct cairn_error *err)
{
    if (m->id) {
        char id[3 * (ID_MAX + 1)];
        if (m->id_len >= sizeof(id) || !uri_decode(m->id, m->id_len, false, id))
            return error_set(err, CAIRN_INVALID, EINVAL, "the path holds no record id");
        int rc = id_check(id, err);
        if (rc)
            return rc;
        memcpy(r->id, id, strlen(id) + 1);
    }
    if (m->rest) {
        char *rest = path + (m->rest - path);
        if (!uri_decode(m->rest, m->rest_len, false, rest) || !components_good(rest))
            return error_set(err, CAIRN_INVALID, EINVAL,
                             "the path holds an empty, \".\" or \"..\" component, a NUL, or a '%%' "
                             "without two hex digits");
        r->rest = rest;
    }
    return CAIRN_OK;
}

int route_find(enum http_method method, char *path, struct request *r, char allow[ROUTE_ALLOW_MAX],
               struct cairn_error *err)
{
    const struct route *found = NULL;
    struct match m, of_found = {0};
    *allow = 0;
    r->method = method;
    r->rest = "";
    for (unsigned i = 0; i < n_routes; i++) {
        if (!match(routes[i].pattern, path, &m))
            continue;
        if (!answers(&routes[i], method)) {
            allow_add(allow, routes[i].method);
        } else if (!found) {
            found = &routes[i];
            of_found = m;
        }
    }
    if (!found && *allow) {
        error_set(err, CAIRN_INVALID, EOPNOTSUPP, "this path answers %s only", allow);
        return 405;
    }
    if (!found) {
        error_set(err, CAIRN_NOT_FOUND, ENOENT, "no such path in this API");
        return 404;
    }
    r->route = found;
    return take_variables(&of_found, path, r, err) ? 400 : 0;
}
