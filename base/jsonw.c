#include "base/jsonw.h"

#include "base/clock.h"
#include "base/util.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void put(struct jsonw *w, const void *data, size_t len)
{
    if (!w->rc)
        w->rc = buf_add(w->out, data, len, w->err);
}

static void put_text(struct jsonw *w, const char *text)
{
    put(w, text, strlen(text));
}

/* Length of the UTF-8 sequence at p, 0 where there is none. */
static size_t sequence(const uint8_t *p, size_t left)
{
    for (size_t n = 1; n <= 4 && n <= left; n++)
        if (util_is_utf8(p, n))
            return n;
    return 0;
}

static void put_string(struct jsonw *w, const uint8_t *p, size_t len)
{
    put(w, "\"", 1);
    const uint8_t *end = p + len, *plain = p;
    while (p < end) {
        if (*p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\') {
            p++;
            continue;
        }
        put(w, plain, (size_t)(p - plain));
        size_t n = sequence(p, (size_t)(end - p));
        if (n == 1) {
            char esc[8];
            snprintf(esc, sizeof(esc), *p == '"' || *p == '\\' ? "\\%c" : "\\u%04x", *p);
            put_text(w, esc);
        } else if (n) {
            put(w, p, n);
        } else {
            put_text(w, "\xef\xbf\xbd");
            n = 1;
        }
        p += n;
        plain = p;
    }
    put(w, plain, (size_t)(p - plain));
    put(w, "\"", 1);
}

static void begin(struct jsonw *w, const char *name)
{
    if (w->comma)
        put(w, ",", 1);
    w->comma = true;
    if (name) {
        put_string(w, (const uint8_t *)name, strlen(name));
        put(w, ":", 1);
    }
}

void jsonw_object(struct jsonw *w, const char *name)
{
    begin(w, name);
    put(w, "{", 1);
    w->comma = false;
}

void jsonw_object_end(struct jsonw *w)
{
    put(w, "}", 1);
    w->comma = true;
}

void jsonw_array(struct jsonw *w, const char *name)
{
    begin(w, name);
    put(w, "[", 1);
    w->comma = false;
}

void jsonw_array_end(struct jsonw *w)
{
    put(w, "]", 1);
    w->comma = true;
}

void jsonw_str(struct jsonw *w, const char *name, const char *text)
{
    jsonw_strn(w, name, text, strlen(text));
}

void jsonw_strn(struct jsonw *w, const char *name, const void *text, size_t len)
{
    begin(w, name);
    put_string(w, text, len);
}

void jsonw_bytes(struct jsonw *w, const char *name, const void *data, size_t len)
{
    const uint8_t *p = data;
    char text[65];
    jsonw_strn(w, name, data, len);
    if (util_is_utf8(data, len))
        return;
    snprintf(text, sizeof(text), "%s_hex", name);
    begin(w, text);
    put(w, "\"", 1);
    for (size_t at = 0, n; at < len; at += n) {
        n = len - at < 32 ? len - at : 32;
        util_hex(p + at, n, text);
        put(w, text, 2 * n);
    }
    put(w, "\"", 1);
}

void jsonw_u64(struct jsonw *w, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    jsonw_raw(w, name, text, strlen(text));
}

void jsonw_i64(struct jsonw *w, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, value);
    jsonw_raw(w, name, text, strlen(text));
}

void jsonw_real(struct jsonw *w, const char *name, double value)
{
    char text[340];
    if (isfinite(value))
        snprintf(text, sizeof(text), "%.6f", value);
    else
        memcpy(text, "null", 5);
    jsonw_raw(w, name, text, strlen(text));
}

void jsonw_bool(struct jsonw *w, const char *name, bool value)
{
    jsonw_raw(w, name, value ? "true" : "false", value ? 4 : 5);
}

void jsonw_null(struct jsonw *w, const char *name)
{
    jsonw_raw(w, name, "null", 4);
}

void jsonw_raw(struct jsonw *w, const char *name, const void *text, size_t len)
{
    begin(w, name);
    put(w, text, len);
}

int jsonw_end(struct jsonw *w)
{
    return w->rc;
}

void jsonw_time(struct jsonw *w, const char *name, int64_t realtime_ns)
{
    char text[CLOCK_RFC3339_MAX];
    clock_rfc3339(realtime_ns, text);
    jsonw_str(w, name, text);
}

void jsonw_error(struct jsonw *w, const char *name, const struct cairn_error *err)
{
    jsonw_object(w, name);
    jsonw_str(w, "class", cairn_class_name(err->error_class));
    jsonw_str(w, "message", err->message);
    jsonw_i64(w, "errno", err->sys_errno);
    jsonw_object_end(w);
}
