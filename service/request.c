#include "service/request.h"

#include "base/util.h"
#include "service/uri.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int response_header(struct response *out, struct cairn_error *err, const char *name,
                    const char *fmt, ...)
{
    char value[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(value, sizeof(value), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(value) || strpbrk(value, "\r\n"))
        return error_set(err, CAIRN_INTERNAL, 0, "header %s cannot be sent", name);
    return buf_addf(&out->headers, err, "%s: %s\r\n", name, value);
}

void request_shorten(struct request *r, double seconds)
{
    struct cairn_op op;
    cairn_op_init(&op, seconds, r->op.cancel);
    if (op.deadline_ns < r->op.deadline_ns)
        r->op.deadline_ns = op.deadline_ns;
}

/* A name from outside, for a message: cut, odd bytes shown as '?'. */
static void show(char out[64], const char *name)
{
    size_t n = strnlen(name, 63);
    for (size_t i = 0; i < n; i++)
        out[i] = name[i] >= ' ' && name[i] < 0x7f ? name[i] : '?';
    out[n] = 0;
}

static const struct field *find(const struct field *fields, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

static int unknown(const char *what, const char *name, const struct field *fields, size_t n,
                   struct cairn_error *err)
{
    char shown[64], known[256] = "";
    show(shown, name);
    for (size_t i = 0, at = 0; i < n && at < sizeof(known); i++)
        at +=
            (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i ? ", " : "", fields[i].name);
    return error_set(err, CAIRN_INVALID, EINVAL, "unknown %s \"%s\" (known: %s)", what, shown,
                     n ? known : "none");
}

static int wrong_type(const struct field *f, struct cairn_error *err)
{
    static const char *const wanted[] = {
        [FIELD_TEXT] = "a string",
        [FIELD_ID] = "a record id",
        [FIELD_BOOL] = "true or false",
        [FIELD_COUNT] = "a whole number, not negative",
        [FIELD_SECONDS] = "a number of seconds",
        [FIELD_JSON] = "JSON",
    };
    return error_set(err, CAIRN_INVALID, EINVAL, "\"%s\" must be %s", f->name, wanted[f->type]);
}

static int take_text(const struct field *f, const char *text, struct cairn_error *err)
{
    if (!text)
        return wrong_type(f, err);
    if (f->type == FIELD_ID && id_check(text, err))
        return error_wrap(err, "\"%s\"", f->name);
    *(const char **)f->out = text;
    return CAIRN_OK;
}

static int take_real(const struct field *f, double v, struct cairn_error *err)
{
    if (isnan(v))
        return wrong_type(f, err);
    if (f->type == FIELD_SECONDS) {
        if (v >= 0)
            *(double *)f->out = v;
        return CAIRN_OK;
    }
    if (v < 0 || v != floor(v))
        return wrong_type(f, err);
    *(uint64_t *)f->out = v < 0x1p63 ? (uint64_t)v : INT64_MAX;
    return CAIRN_OK;
}

struct members {
    const struct field *fields;
    size_t n;
    uint64_t seen; /* bit of each field */
    struct cairn_error *err;
};

/* JSON's null is an absent member. */
static bool is_null(const struct jval *v)
{
    bool b;
    double d;
    return !jval_is_object(v) && !jval_is_array(v) && !jval_str(v) && !jval_bool(v, &b) &&
           !jval_real(v, &d);
}

static int member(void *ctx, const char *name, const struct jval *v)
{
    struct members *m = ctx;
    const struct field *f = find(m->fields, m->n, name);
    int64_t whole;
    double real;
    if (!f)
        return unknown("member", name, m->fields, m->n, m->err);
    if (is_null(v) && f->type != FIELD_JSON)
        return CAIRN_OK;
    m->seen |= 1ULL << (f - m->fields);
    switch (f->type) {
    case FIELD_TEXT:
    case FIELD_ID:
        return take_text(f, jval_str(v), m->err);
    case FIELD_BOOL:
        return jval_bool(v, f->out) ? CAIRN_OK : wrong_type(f, m->err);
    case FIELD_COUNT:
        if (jval_int(v, &whole)) {
            if (whole < 0)
                return wrong_type(f, m->err);
            *(uint64_t *)f->out = (uint64_t)whole;
            return CAIRN_OK;
        } /* fall through */
    case FIELD_SECONDS:
        return jval_real(v, &real) ? take_real(f, real, m->err) : wrong_type(f, m->err);
    case FIELD_JSON:
        *(const struct jval **)f->out = v;
        return CAIRN_OK;
    }
    return error_set(m->err, CAIRN_INTERNAL, 0, "member %s is of no type", name);
}

static int check_required(const struct members *m)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->fields[i].required && !(m->seen & 1ULL << i))
            return error_set(m->err, CAIRN_INVALID, EINVAL, "\"%s\" is missing", m->fields[i].name);
    return CAIRN_OK;
}

int request_fields(const struct request *r, const struct field *fields, size_t n,
                   struct cairn_error *err)
{
    struct members m = {.fields = fields, .n = n, .err = err};
    int rc = r->body ? jval_each(r->body, member, &m) : CAIRN_OK;
    return rc ? rc : check_required(&m);
}

static int take_number(const struct field *f, const char *text, struct cairn_error *err)
{
    char *end;
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text))
        return wrong_type(f, err);
    double v = strtod(text, &end); /* too large: infinity */
    return *end ? wrong_type(f, err) : take_real(f, v, err);
}

/* text lives as long as the request: fields of a query point into it. */
static int parameter(const struct field *f, const char *text, struct cairn_error *err)
{
    switch (f->type) {
    case FIELD_TEXT:
    case FIELD_ID:
        return take_text(f, text, err);
    case FIELD_BOOL:
        if (strcmp(text, "true") && strcmp(text, "false"))
            return wrong_type(f, err);
        *(bool *)f->out = *text == 't';
        return CAIRN_OK;
    case FIELD_COUNT:
    case FIELD_SECONDS:
        return take_number(f, text, err);
    case FIELD_JSON:
        break;
    }
    return error_set(err, CAIRN_INTERNAL, 0, "parameter %s is of no type", f->name);
}

int request_query(struct request *r, const struct field *fields, size_t n, struct cairn_error *err)
{
    struct members m = {.fields = fields, .n = n, .err = err};
    char *at = r->query, *name, *value;
    r->query = NULL;
    for (int got; (got = uri_next_parameter(&at, &name, &value)) != 0;) {
        if (got < 0)
            return error_set(err, CAIRN_INVALID, EINVAL,
                             "the query holds a NUL or a '%%' without two hex digits");
        const struct field *f = find(fields, n, name);
        if (!f)
            return unknown("parameter", name, fields, n, err);
        uint64_t bit = 1ULL << (f - fields);
        if (m.seen & bit)
            return error_set(err, CAIRN_INVALID, EINVAL, "parameter \"%s\" is given twice",
                             f->name);
        m.seen |= bit;
        int rc = parameter(f, value, err);
        if (rc)
            return rc;
    }
    return check_required(&m);
}
