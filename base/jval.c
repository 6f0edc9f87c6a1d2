#include "base/jval.h"

#include <errno.h>
#include <jansson.h>

/* struct jval is jansson's json_t under another name. */
static json_t *in(const struct jval *v)
{
    return (json_t *)v;
}

int jval_parse(const void *text, size_t len, struct jval **out, struct cairn_error *err)
{
    json_error_t e;
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    if (!v && json_error_code(&e) == json_error_out_of_memory)
        return error_oom(err, "JSON");
    if (!v)
        return error_set(err, CAIRN_INVALID, EINVAL, "JSON, line %d column %d: %s", e.line,
                         e.column, e.text[0] ? e.text : "(no detail)");
    *out = (struct jval *)v;
    return CAIRN_OK;
}

bool jval_is_json(const void *text, size_t len)
{
    json_t *v = json_loadb(
        text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
    json_decref(v);
    return v;
}

void jval_free(struct jval *v)
{
    json_decref(in(v));
}

void jval_freep(struct jval **v)
{
    jval_free(*v);
}

bool jval_is_object(const struct jval *v)
{
    return json_is_object(in(v));
}

bool jval_is_array(const struct jval *v)
{
    return json_is_array(in(v));
}

const struct jval *jval_get(const struct jval *v, const char *name)
{
    return (const struct jval *)json_object_get(in(v), name);
}

const char *jval_str(const struct jval *v)
{
    return json_string_value(in(v));
}

bool jval_int(const struct jval *v, int64_t *out)
{
    if (!json_is_integer(in(v)))
        return false;
    *out = json_integer_value(in(v));
    return true;
}

bool jval_real(const struct jval *v, double *out)
{
    if (!json_is_number(in(v)))
        return false;
    *out = json_number_value(in(v));
    return true;
}

bool jval_bool(const struct jval *v, bool *out)
{
    if (!json_is_boolean(in(v)))
        return false;
    *out = json_is_true(in(v));
    return true;
}

size_t jval_len(const struct jval *v)
{
    return json_array_size(in(v));
}

const struct jval *jval_at(const struct jval *v, size_t i)
{
    return (const struct jval *)json_array_get(in(v), i);
}

int jval_each(const struct jval *v,
              int (*fn)(void *ctx, const char *name, const struct jval *value), void *ctx)
{
    const char *key;
    json_t *value;
    json_object_foreach(in(v), key, value)
    {
        int rc = fn(ctx, key, (const struct jval *)value);
        if (rc)
            return rc;
    }
    return 0;
}
