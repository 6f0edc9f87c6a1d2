#include "service/head.h"

#include "base/util.h"

#include <string.h>
#include <strings.h>

static bool is_token(unsigned char c)
{
    return c > ' ' && c < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", c);
}

static bool all_tokens(struct head_text t)
{
    for (size_t i = 0; i < t.len; i++)
        if (!is_token((unsigned char)t.text[i]))
            return false;
    return t.len > 0;
}

static bool is(struct head_text t, const char *word)
{
    return t.len == strlen(word) && strncasecmp(t.text, word, t.len) == 0;
}

static bool is_exactly(struct head_text t, const char *word)
{
    return t.len == strlen(word) && memcmp(t.text, word, t.len) == 0;
}

static enum http_method method_of(struct head_text name)
{
    static const struct {
        const char *name;
        enum http_method method;
    } known[] = {{"GET", HTTP_GET},
                 {"HEAD", HTTP_HEAD},
                 {"POST", HTTP_POST},
                 {"PUT", HTTP_PUT},
                 {"DELETE", HTTP_DELETE}};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (is_exactly(name, known[i].name))
            return known[i].method;
    return HTTP_OTHER;
}

/* "GET /path HTTP/1.1" */
static int request_line(struct head_text line, struct head *out, const char **why)
{
    const char *end = line.text + line.len;
    const char *a = memchr(line.text, ' ', line.len);
    const char *b = a ? memchr(a + 1, ' ', (size_t)(end - a) - 1) : NULL;
    *why = "the request line is not METHOD TARGET HTTP/1.1";
    if (!a || !b)
        return -400;
    out->method_name = (struct head_text){line.text, (size_t)(a - line.text)};
    out->target = (struct head_text){a + 1, (size_t)(b - a) - 1};
    struct head_text version = {b + 1, (size_t)(end - b) - 1};
    if (!all_tokens(out->method_name))
        return -400;
    if (version.len != 8 || memcmp(version.text, "HTTP/", 5) != 0)
        return -400;
    if (!is_exactly(version, "HTTP/1.1") && !is_exactly(version, "HTTP/1.0")) {
        *why = "only HTTP/1.1 and 1.0 are spoken here";
        return -505;
    }
    out->http_10 = version.text[7] == '0';
    out->close = out->http_10;
    out->method = method_of(out->method_name);
    *why = "the request's target must be a path that begins with / and has no spaces, controls or "
           "bytes above 0x7e (write them as %XX)";
    if (!out->target.len || *out->target.text != '/')
        return -400;
    for (size_t i = 0; i < out->target.len; i++)
        if ((unsigned char)out->target.text[i] <= ' ' || (unsigned char)out->target.text[i] > 0x7e)
            return -400;
    return 0;
}

static struct head_text trim(struct head_text t)
{
    while (t.len && (*t.text == ' ' || *t.text == '\t'))
        t.text++, t.len--;
    while (t.len && (t.text[t.len - 1] == ' ' || t.text[t.len - 1] == '\t'))
        t.len--;
    return t;
}

/* What must be there at most once has been seen already. */
struct seen {
    bool host, length, encoding;
};

static int content_length(struct head_text v, struct head *out, const char **why)
{
    *why = "Content-Length must be one decimal number";
    if (!v.len || v.len > 18)
        return -400;
    out->length = 0;
    for (size_t i = 0; i < v.len; i++) {
        if (v.text[i] < '0' || v.text[i] > '9')
            return -400;
        out->length = out->length * 10 + (uint64_t)(v.text[i] - '0');
    }
    return 0;
}

static void connection(struct head_text v, struct head *out)
{
    bool close = false, keep = false;
    for (size_t at = 0; at <= v.len;) {
        const char *comma = memchr(v.text + at, ',', v.len - at);
        size_t n = comma ? (size_t)(comma - v.text) - at : v.len - at;
        struct head_text word = trim((struct head_text){v.text + at, n});
        close |= is(word, "close");
        keep |= is(word, "keep-alive");
        at += n + 1;
    }
    if (close)
        out->close = true;
    else if (keep && out->http_10)
        out->close = false;
}

static int once(struct head_text *slot, struct head_text v, const char *message, const char **why)
{
    *why = message;
    if (slot->text)
        return -400;
    *slot = v;
    return 0;
}

static int header(struct head_text name, struct head_text v, struct seen *seen, struct head *out,
                  const char **why)
{
    if (is(name, "host")) {
        *why = "more than one Host";
        if (seen->host)
            return -400;
        seen->host = true;
    } else if (is(name, "content-length")) {
        *why = "more than one Content-Length";
        if (seen->length)
            return -400;
        seen->length = true;
        return content_length(v, out, why);
    } else if (is(name, "transfer-encoding")) {
        *why = "the only transfer encoding known here is chunked";
        if (seen->encoding || !is(v, "chunked"))
            return -501;
        seen->encoding = out->chunked = true;
    } else if (is(name, "connection")) {
        connection(v, out);
    } else if (is(name, "expect")) {
        *why = "the only expectation known here is 100-continue";
        if (!is(v, "100-continue"))
            return -417;
        out->expect_continue = !out->http_10;
    } else if (is(name, "content-type")) {
        return once(&out->content_type, v, "more than one Content-Type", why);
    } else if (is(name, "content-encoding")) {
        *why = "bodies are taken without Content-Encoding only";
        if (!is(v, "identity"))
            return -415;
    } else if (is(name, "range")) {
        return once(&out->range, v, "more than one Range", why);
    } else if (is(name, "if-range")) {
        return once(&out->if_range, v, "more than one If-Range", why);
    } else if (is(name, "if-none-match")) {
        return once(&out->if_none_match, v, "more than one If-None-Match", why);
    }
    return 0;
}

static int header_line(struct head_text line, struct seen *seen, struct head *out, const char **why)
{
    *why = "a header line is not NAME: VALUE";
    const char *colon = memchr(line.text, ':', line.len);
    if (!colon)
        return -400;
    struct head_text name = {line.text, (size_t)(colon - line.text)};
    struct head_text value = {colon + 1, line.len - name.len - 1};
    if (!all_tokens(name)) /* no space before the colon, no continued line */
        return -400;
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.text[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return -400;
    }
    return header(name, trim(value), seen, out, why);
}

static int finish(const struct seen *seen, const struct head *out, const char **why)
{
    if (!out->http_10 && !seen->host) {
        *why = "no Host";
        return -400;
    }
    if (out->chunked && (seen->length || out->http_10)) {
        *why = "Transfer-Encoding together with Content-Length or HTTP/1.0";
        return -400;
    }
    return 0;
}

/* The line that starts at *at, without its CRLF. 0: not complete; 1: there; else refused. */
static int next_line(const char *data, size_t len, size_t *at, struct head_text *line,
                     const char **why)
{
    const char *start = data + *at;
    const char *lf = memchr(start, '\n', len - *at);
    size_t n = lf ? (size_t)(lf - start) : len - *at;
    *why = "a line of the head holds a NUL or does not end in CRLF";
    const char *cr = memchr(start, '\r', n);
    if (memchr(start, 0, n) || (cr && cr + 1 < start + n) || (lf && (!n || lf[-1] != '\r')))
        return -400;
    if (!lf)
        return 0;
    *line = (struct head_text){start, n - 1};
    *at += n + 1;
    return 1;
}

long head_parse(const char *data, size_t len, struct head *out, const char **why)
{
    *out = (struct head){0};
    struct seen seen = {0};
    size_t max = len < HEAD_MAX ? len : HEAD_MAX, at = 0;
    int rc = 0;
    /* Some clients send an empty line behind a body (RFC 9112, 2.2). */
    while (at + 1 < max && at < 8 && data[at] == '\r' && data[at + 1] == '\n')
        at += 2;
    for (unsigned lines = 0; !rc; lines++) {
        struct head_text line;
        int got = next_line(data, max, &at, &line, why);
        if (got < 0)
            return got;
        if (lines > HEAD_LINES || (!got && max == HEAD_MAX)) {
            *why = lines ? "the head is too large" : "the target is too long";
            return lines ? -431 : -414;
        }
        if (!got)
            return 0;
        if (lines && !line.len)
            break;
        rc = lines ? header_line(line, &seen, out, why) : request_line(line, out, why);
    }
    if (!rc)
        rc = finish(&seen, out, why);
    return rc ? rc : (long)at;
}

enum chunked_state {
    SIZE,      /* the digits of a chunk's size */
    EXTENSION, /* what follows them; dropped */
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER, /* at the start of a line */
    TRAILER_TEXT,
    TRAILER_LF,
    END_LF,
};

#define LINE_MAX_ 1024

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool size_byte(struct chunked *c, char b)
{
    int digit = hex_digit(b);
    if (digit >= 0) {
        if (c->line++ >= 15)
            return false;
        c->left = c->left * 16 + (uint64_t)digit;
        return true;
    }
    if (!c->line)
        return false;
    c->state = b == '\r' ? SIZE_LF : EXTENSION;
    return b == '\r' || b == ';' || b == ' ' || b == '\t';
}

/* Every state but DATA. */
static bool frame_byte(struct chunked *c, char b)
{
    switch (c->state) {
    case SIZE:
        return size_byte(c, b);
    case EXTENSION:
    case TRAILER_TEXT:
        if (b == '\r')
            c->state = c->state == EXTENSION ? SIZE_LF : TRAILER_LF;
        return b != '\n' && b != 0 && c->line++ < LINE_MAX_;
    case SIZE_LF:
        c->line = 0;
        c->state = c->left ? DATA : TRAILER;
        return b == '\n';
    case DATA_CR:
        c->state = DATA_LF;
        return b == '\r';
    case DATA_LF:
        c->state = SIZE;
        return b == '\n';
    case TRAILER:
        c->state = b == '\r' ? END_LF : TRAILER_TEXT;
        return b != '\n' && c->line++ < LINE_MAX_;
    case TRAILER_LF:
        c->state = TRAILER;
        return b == '\n';
    case END_LF:
        c->done = true;
        return b == '\n';
    }
    return false;
}

bool chunked_feed(struct chunked *c, const char *data, size_t len, size_t *used, struct buf *out,
                  bool *too_large)
{
    *too_large = false;
    for (*used = 0; *used < len && !c->done;) {
        if (c->state != DATA) {
            if (!frame_byte(c, data[(*used)++]))
                return false;
            continue;
        }
        size_t n = len - *used < c->left ? len - *used : (size_t)c->left;
        if (buf_add(out, data + *used, n, NULL)) {
            *too_large = true;
            return false;
        }
        *used += n;
        c->left -= n;
        if (!c->left)
            c->state = DATA_CR;
    }
    return true;
}
