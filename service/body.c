#include "service/body.h"

#include "base/util.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 32

/* Behind the string that begins at text[at], a quote. */
static size_t skip_string(const char *text, size_t len, size_t at)
{
    for (at++; at < len && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < len ? at + 1 : len;
}

static bool in_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* A literal of n bytes that no int64_t or double can hold. */
static bool overflows(const char *text, size_t n)
{
    char copy[400];
    bool whole = true;
    for (size_t i = 0; i < n; i++)
        whole &= text[i] != '.' && text[i] != 'e' && text[i] != 'E';
    if (whole)
        return n > 18;
    if (n >= sizeof(copy))
        return true;
    memcpy(copy, text, n);
    copy[n] = 0;
    return isinf(strtod(copy, NULL));
}

/* Numbers that overflow become 1e308 (all of them are longer than that); depth is counted. */
static int prepare(char *text, size_t len, struct cairn_error *err)
{
    unsigned depth = 0;
    for (size_t at = 0; at < len;) {
        char c = text[at];
        if (c == '"') {
            at = skip_string(text, len, at);
        } else if (c == '-' || (c >= '0' && c <= '9')) {
            size_t n = 1;
            while (at + n < len && in_number(text[at + n]))
                n++;
            const char *largest = c == '-' ? "-1e308" : "1e308";
            if (n >= strlen(largest) && overflows(text + at, n)) {
                memset(text + at, ' ', n);
                memcpy(text + at, largest, strlen(largest));
            }
            at += n;
        } else {
            depth += c == '{' || c == '[';
            depth -= depth && (c == '}' || c == ']');
            if (depth > DEPTH_MAX)
                return error_set(err, CAIRN_INVALID, EINVAL,
                                 "body: JSON nested deeper than %d levels", DEPTH_MAX);
            at++;
        }
    }
    return CAIRN_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

int body_member(const char *text, size_t len, const char *name, struct buf *out,
                struct cairn_error *err)
{
    unsigned depth = 0;
    bool inside = false; /* of the member that is looked for */
    size_t n = strlen(name), key = 0, key_len = 0;
    int rc = CAIRN_OK;
    for (size_t at = 0, next; !rc && at < len; at = next) {
        char c = text[at];
        next = c == '"' ? skip_string(text, len, at) : at + 1;
        if (inside && depth == 1 && (c == ',' || c == '}'))
            break;
        if (inside && !is_blank(c))
            rc = buf_add(out, text + at, next - at, err);
        if (depth == 1 && c == '"') {
            key = at + 1;
            key_len = next - at - 2;
        }
        if (depth == 1 && c == ':')
            inside = key_len == n && memcmp(text + key, name, n) == 0;
        depth += c == '{' || c == '[';
        depth -= depth && (c == '}' || c == ']');
    }
    return rc;
}

/* The parser quotes what stands there, which may be a token. */
static void drop_quotation(struct cairn_error *err)
{
    char *near = strstr(err->message, " near '");
    if (near)
        *near = 0;
}

int body_parse(char *text, size_t len, struct jval **out, struct cairn_error *err)
{
    *out = NULL;
    size_t blank = 0;
    while (blank < len && is_blank(text[blank]))
        blank++;
    if (blank == len)
        return CAIRN_OK;
    CLEANUP_JVAL struct jval *v = NULL;
    int rc = prepare(text, len, err);
    if (!rc && (rc = jval_parse(text, len, &v, err))) {
        drop_quotation(err);
        error_wrap(err, "body");
    }
    if (!rc && !jval_is_object(v))
        rc = error_set(err, CAIRN_INVALID, EINVAL, "body: must be a JSON object");
    if (!rc)
        *out = util_steal(&v);
    return rc;
}
