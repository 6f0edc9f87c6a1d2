#include "s3/xml.h"

#include "base/buf.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <string.h>

#define PATH_LEN_MAX 256
#define DEPTH_MAX    16
#define TEXT_LEN_MAX ((size_t)64 * 1024)

struct reader {
    XML_Parser parser;
    xml_leaf *leaf;
    void *ctx;
    struct cairn_error *err;
    int rc;
    char path[PATH_LEN_MAX];
    size_t ends[DEPTH_MAX]; /* length of path outside of the element at each depth */
    struct buf text[DEPTH_MAX];
    int depth;
};

static void stop(struct reader *r, int rc)
{
    r->rc = rc;
    XML_StopParser(r->parser, XML_FALSE);
}

static void on_start(void *user, const XML_Char *name, const XML_Char **attrs)
{
    (void)attrs;
    struct reader *r = user;
    const char *colon = strrchr(name, ':');
    if (colon)
        name = colon + 1;
    size_t len = strlen(r->path), n = strlen(name);
    if (r->depth == DEPTH_MAX || len + 1 + n >= sizeof(r->path)) {
        stop(r, error_set(r->err, CAIRN_TRANSIENT, EBADMSG, "XML: nested too deeply"));
        return;
    }
    r->ends[r->depth] = len;
    buf_clear(&r->text[r->depth]);
    r->depth++;
    if (len)
        r->path[len++] = '/';
    memcpy(r->path + len, name, n + 1);
}

static void on_text(void *user, const XML_Char *text, int len)
{
    struct reader *r = user;
    if (r->rc || !r->depth)
        return;
    struct buf *b = &r->text[r->depth - 1];
    if (b->len + (size_t)len >= b->max) {
        stop(r, error_set(r->err, CAIRN_TRANSIENT, EBADMSG, "XML: too much text in <%s>", r->path));
        return;
    }
    int rc = buf_add(b, text, (size_t)len, r->err);
    if (rc)
        stop(r, rc);
}

static void on_end(void *user, const XML_Char *name)
{
    (void)name;
    struct reader *r = user;
    if (r->rc)
        return;
    struct buf *b = &r->text[r->depth - 1];
    int rc = buf_add(b, "", 1, r->err);
    if (!rc)
        rc = r->leaf(r->ctx, r->path, (const char *)b->data, b->len - 1, r->err);
    if (rc) {
        stop(r, rc);
        return;
    }
    r->depth--;
    r->path[r->ends[r->depth]] = 0;
}

static void on_doctype(void *user, const XML_Char *name, const XML_Char *sysid,
                       const XML_Char *pubid, int internal)
{
    (void)name, (void)sysid, (void)pubid, (void)internal;
    struct reader *r = user;
    stop(r, error_set(r->err, CAIRN_TRANSIENT, EBADMSG, "XML: has a DOCTYPE"));
}

static int failed(struct reader *r)
{
    enum XML_Error e = XML_GetErrorCode(r->parser);
    if (e == XML_ERROR_NO_MEMORY)
        return error_oom(r->err, "XML");
    return error_set(r->err, CAIRN_TRANSIENT, EBADMSG, "XML, line %lu: %s",
                     (unsigned long)XML_GetCurrentLineNumber(r->parser), XML_ErrorString(e));
}

int xml_parse(const void *data, size_t len, xml_leaf *leaf, void *ctx, struct cairn_error *err)
{
    struct reader r = {.leaf = leaf, .ctx = ctx, .err = err};
    for (int i = 0; i < DEPTH_MAX; i++)
        r.text[i] = BUF_INIT(TEXT_LEN_MAX);
    r.parser = XML_ParserCreate(NULL);
    if (!r.parser)
        return error_oom(err, "XML");
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetCharacterDataHandler(r.parser, on_text);
    XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
    enum XML_Status st = XML_STATUS_OK;
    const char *p = data;
    /* expat counts in int */
    do {
        size_t n = len < (1 << 20) ? len : (1 << 20);
        st = XML_Parse(r.parser, p, (int)n, n == len);
        p += n;
        len -= n;
    } while (len && st == XML_STATUS_OK);
    int rc = r.rc;
    if (!rc && st != XML_STATUS_OK)
        rc = failed(&r);
    XML_ParserFree(r.parser);
    for (int i = 0; i < DEPTH_MAX; i++)
        buf_release(&r.text[i]);
    return rc;
}

/* A server's text goes into messages and logs: one line of printable ASCII. */
static void copy_text(char *out, size_t size, const char *text)
{
    size_t i = 0;
    for (; text[i] && i + 1 < size; i++)
        out[i] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
    out[i] = 0;
}

struct fault_reader {
    struct s3_fault *out;
    bool is_error, seen;
};

static int fault_leaf(void *ctx, const char *path, const char *text, size_t len,
                      struct cairn_error *err)
{
    (void)len;
    struct fault_reader *f = ctx;
    if (!f->seen) {
        f->seen = true;
        f->is_error = strcmp(path, "Error") == 0 || strncmp(path, "Error/", 6) == 0;
    }
    if (!f->is_error)
        return error_set(err, CAIRN_INVALID, 0, "not an <Error>");
    if (strcmp(path, "Error/Code") == 0)
        copy_text(f->out->code, sizeof(f->out->code), text);
    else if (strcmp(path, "Error/Message") == 0)
        copy_text(f->out->message, sizeof(f->out->message), text);
    else if (strcmp(path, "Error/Region") == 0)
        copy_text(f->out->region, sizeof(f->out->region), text);
    else if (strcmp(path, "Error/Endpoint") == 0)
        copy_text(f->out->endpoint, sizeof(f->out->endpoint), text);
    return CAIRN_OK;
}

bool s3_fault_parse(const void *data, size_t len, struct s3_fault *out)
{
    *out = (struct s3_fault){0};
    struct fault_reader f = {.out = out};
    struct cairn_error err;
    /* A cut document still says what its first elements say. */
    int rc = len ? xml_parse(data, len, fault_leaf, &f, &err) : CAIRN_INVALID;
    if (rc && !f.is_error)
        *out = (struct s3_fault){0};
    return f.is_error;
}
