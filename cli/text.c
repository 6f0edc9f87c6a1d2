#include "cli/text.h"

#include "base/clock.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The digits at the front of text; NULL where there are none or they do not fit. */
static const char *parse_digits(const char *text, uint64_t *out)
{
    if (!is_digit(*text))
        return NULL;
    uint64_t v = 0;
    for (; is_digit(*text); text++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *text - '0', &v))
            return NULL;
    *out = v;
    return text;
}

bool text_parse_count(const char *text, uint64_t *out)
{
    uint64_t v;
    const char *rest = parse_digits(text, &v);
    if (!rest || *rest)
        return false;
    *out = v;
    return true;
}

bool text_parse_size(const char *text, uint64_t *out)
{
    uint64_t v;
    const char *rest = parse_digits(text, &v);
    if (!rest)
        return false;
    static const char letters[] = "KkMmGgTt";
    const char *at = *rest ? strchr(letters, *rest) : NULL;
    if (at) {
        unsigned shift = 10 * (unsigned)((at - letters) / 2 + 1);
        if (v > UINT64_MAX >> shift)
            return false;
        v <<= shift;
        rest++;
        if (strcmp(rest, "iB") == 0)
            rest += 2;
    }
    if (strcmp(rest, "B") == 0)
        rest++;
    if (*rest)
        return false;
    *out = v;
    return true;
}

bool text_parse_seconds(const char *text, double *out)
{
    unsigned digits = 0, points = 0;
    for (const char *p = text; *p; p++) {
        if (is_digit(*p))
            digits = 1;
        else if (*p == '.')
            points++;
        else
            return false;
    }
    if (!digits || points > 1)
        return false;
    *out = strtod(text, NULL);
    return true;
}

const char *text_s(uint64_t n)
{
    return n == 1 ? "" : "s";
}

void text_size(uint64_t bytes, char out[TEXT_SIZE_MAX])
{
    static const char units[] = "KMGTPE";
    if (bytes < 1024) {
        snprintf(out, TEXT_SIZE_MAX, "%u B", (unsigned)bytes);
        return;
    }
    unsigned unit = 0;
    /* As long as one decimal would show 1024.0 or more. */
    while (unit < 5 && bytes >> (10 * (unit + 1)) >= 1024)
        unit++;
    double v = (double)bytes / (double)(1ULL << (10 * (unit + 1)));
    if (v >= 1023.95 && unit < 5) {
        unit++;
        v /= 1024;
    }
    snprintf(out, TEXT_SIZE_MAX, "%.1f %ciB", v, units[unit]);
}

void text_time(int64_t realtime_ns, char out[TEXT_TIME_MAX])
{
    char full[CLOCK_RFC3339_MAX];
    clock_rfc3339(realtime_ns, full);
    snprintf(out, TEXT_TIME_MAX, "%.19sZ", full);
}

/* Bytes of the UTF-8 character at p that may be shown as it is; 0 for none. */
static size_t plain_len(const uint8_t *p, size_t left, enum text_mode mode)
{
    if (*p == '\n' || *p == '\t')
        return mode == TEXT_LINES;
    if (*p == '\\')
        return mode != TEXT_NAME;
    if (*p < 0x80)
        return *p >= 0x20 && *p != 0x7f;
    for (size_t n = 2; n <= 4 && n <= left; n++) {
        if (!util_is_utf8(p, n))
            continue;
        bool c1 = n == 2 && p[0] == 0xc2 && p[1] < 0xa0;
        /* U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069 reorder what is seen. */
        bool turns =
            n == 3 && p[0] == 0xe2 &&
            ((p[1] == 0x80 && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xaa && p[2] <= 0xae))) ||
             (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9));
        return c1 || turns ? 0 : n;
    }
    return 0;
}

/* The next character of text as it is to be shown, in out; returns the bytes of text used. */
static size_t escape_one(const uint8_t *p, size_t left, enum text_mode mode, char out[5])
{
    size_t n = plain_len(p, left, mode);
    if (n) {
        memcpy(out, p, n);
        out[n] = 0;
        return n;
    }
    if (*p == '\\')
        memcpy(out, "\\\\", 3);
    else
        snprintf(out, 5, "\\x%02x", *p);
    return 1;
}

int text_escape(struct buf *out, const void *text, size_t len, enum text_mode mode,
                struct cairn_error *err)
{
    const uint8_t *p = text, *end = p + len;
    while (p < end) {
        char one[5];
        p += escape_one(p, (size_t)(end - p), mode, one);
        int rc = buf_add(out, one, strlen(one), err);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

void text_escape_cut(char *out, size_t size, const char *text, enum text_mode mode)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + strlen(text);
    size_t used = 0;
    while (p < end) {
        char one[5];
        p += escape_one(p, (size_t)(end - p), mode, one);
        size_t n = strlen(one);
        if (used + n >= size)
            break;
        memcpy(out + used, one, n);
        used += n;
    }
    out[used] = 0;
}
