#include "tests/lib/s3_fault_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void text_add(struct text *t, const void *data, size_t len)
{
    if (t->len + len + 1 > t->cap) {
        t->cap = (t->len + len + 1) * 2;
        t->p = realloc(t->p, t->cap);
        if (!t->p)
            abort();
    }
    if (len)
        memcpy(t->p + t->len, data, len);
    t->len += len;
    t->p[t->len] = 0;
}

void text_addf(struct text *t, const char *fmt, ...)
{
    char *s;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    text_add(t, s, (size_t)n);
    free(s);
}

void text_free(struct text *t)
{
    free(t->p);
    *t = (struct text){0};
}

static int nibble(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

size_t unescape(const char *text, size_t len, bool plus, char *out)
{
    size_t o = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '%' && i + 2 < len && nibble(text[i + 1]) >= 0 && nibble(text[i + 2]) >= 0) {
            out[o++] = (char)(nibble(text[i + 1]) * 16 + nibble(text[i + 2]));
            i += 2;
        } else {
            out[o++] = plus && text[i] == '+' ? ' ' : text[i];
        }
    }
    return o;
}

void escape(struct text *out, const char *data, size_t len, bool keep_slash)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (size_t i = 0; i < len; i++)
        if (data[i] && (strchr(plain, data[i]) || (keep_slash && data[i] == '/')))
            text_add(out, data + i, 1);
        else
            text_addf(out, "%%%02X", (unsigned char)data[i]);
}

void xml_escape(struct text *out, const char *data)
{
    for (; *data; data++)
        if (*data == '&')
            text_add(out, "&amp;", 5);
        else if (*data == '<')
            text_add(out, "&lt;", 4);
        else if (*data == '>')
            text_add(out, "&gt;", 4);
        else if (*data == '"')
            text_add(out, "&quot;", 6);
        else
            text_add(out, data, 1);
}

const char *header_of(const struct request *r, const char *name)
{
    for (size_t i = 0; i < r->n_headers; i++)
        if (strcmp(r->headers[i].name, name) == 0)
            return r->headers[i].value;
    return NULL;
}

bool query_param(const struct request *r, const char *name, char *out, size_t size)
{
    for (const char *p = r->raw_query; *p;) {
        size_t n = strcspn(p, "&"), eq = strcspn(p, "=&");
        if (eq == strlen(name) && strncmp(p, name, eq) == 0) {
            char decoded[8192];
            size_t len = eq < n ? n - eq - 1 : 0;
            if (len >= sizeof(decoded))
                return false;
            len = unescape(p + eq + 1, len, true, decoded);
            if (len >= size)
                return false;
            memcpy(out, decoded, len);
            out[len] = 0;
            return true;
        }
        p += n + (p[n] == '&');
    }
    return false;
}
