#include "service/etag.h"

#include <string.h>
#include <strings.h>

static bool is_tag(const char *quoted, size_t n, const char *tag)
{
    return n == strlen(tag) + 2 && quoted[0] == '"' && quoted[n - 1] == '"' &&
           memcmp(quoted + 1, tag, n - 2) == 0;
}

bool etag_matches(const char *header, const char *tag)
{
    for (const char *at = header; at && *at;) {
        at += strspn(at, ", \t");
        size_t n = strcspn(at, ",");
        size_t used = n;
        while (used && (at[used - 1] == ' ' || at[used - 1] == '\t'))
            used--;
        if (used == 1 && *at == '*')
            return true;
        size_t weak = used > 2 && at[0] == 'W' && at[1] == '/' ? 2 : 0;
        if (is_tag(at + weak, used - weak, tag))
            return true;
        at += n;
    }
    return false;
}

bool etag_is(const char *header, const char *tag)
{
    return !header || is_tag(header, strlen(header), tag);
}

/* Digits at *at, saturated; false: none. */
static bool number(const char **at, uint64_t *out)
{
    const char *start = *at;
    *out = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        *out = *out > (UINT64_MAX - 9) / 10 ? UINT64_MAX / 16 : *out * 10 + (uint64_t)(**at - '0');
    return *at > start;
}

enum range_kind range_parse(const char *header, uint64_t size, uint64_t *from, uint64_t *len)
{
    uint64_t first, last;
    if (!header || strncasecmp(header, "bytes=", 6) != 0)
        return RANGE_ALL;
    const char *at = header + 6;
    bool has_first = number(&at, &first);
    if (*at++ != '-')
        return RANGE_ALL;
    bool has_last = number(&at, &last);
    if (*at || (!has_first && !has_last) || (has_first && has_last && last < first))
        return RANGE_ALL;
    if (!has_first) { /* the last so many */
        first = last < size ? size - last : 0;
        if (!last || !size)
            return RANGE_OUTSIDE;
        last = size - 1;
    }
    if (first >= size)
        return RANGE_OUTSIDE;
    if (!has_last || last >= size)
        last = size - 1;
    *from = first;
    *len = last - first + 1;
    return RANGE_PART;
}
