#include "store/manifest_private.h"

#include <string.h>

bool manifest_path_is_valid(const char *path, size_t len)
{
    if (len == 0 || len > MANIFEST_PATH_MAX)
        return false;
    size_t start = 0;
    for (size_t i = 0; i <= len; i++) {
        if (i < len && path[i] == 0)
            return false;
        if (i < len && path[i] != '/')
            continue;
        size_t n = i - start;
        if (n == 0 || n > 255 || (path[start] == '.' && n == 1) ||
            (path[start] == '.' && n == 2 && path[start + 1] == '.'))
            return false;
        start = i + 1;
    }
    return true;
}

static int compare(const uint8_t *a, uint32_t a_len, const uint8_t *b, uint32_t b_len)
{
    int c = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return c ? c : (a_len > b_len) - (a_len < b_len);
}

const char *path_order_next(struct path_order *o, const uint8_t *names, uint32_t off, uint32_t len)
{
    const uint8_t *path = names + off;
    if (!manifest_path_is_valid((const char *)path, len))
        return "is no path of an export";
    /* The last path is on top: it is a prefix of itself. */
    if (o->n && compare(names + o->off[o->n - 1], o->len[o->n - 1], path, len) >= 0)
        return "is not greater than the path before it";
    uint32_t n = o->n;
    while (n && (o->len[n - 1] >= len || memcmp(names + o->off[n - 1], path, o->len[n - 1]) != 0))
        n--;
    /* Only the longest prefix matters: a shorter one followed by '/' would have had that one, too,
     * in its folder. */
    if (n && path[o->len[n - 1]] == '/')
        return "lies below another file";
    o->off[n] = off;
    o->len[n] = len;
    o->n = n + 1;
    return NULL;
}
