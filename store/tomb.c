#include "store/tomb.h"

#include "base/jsonw.h"
#include "base/jval.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void tomb_release(struct tomb *t)
{
    free(t->gens);
    *t = (struct tomb){0};
}

static size_t find(const struct tomb *t, const char *gen)
{
    size_t i = 0;
    while (i < t->n && strcmp(t->gens[i], gen) != 0)
        i++;
    return i;
}

bool tomb_has_gen(const struct tomb *t, const char *gen)
{
    return find(t, gen) < t->n;
}

int tomb_add_gen(struct tomb *t, const char *gen, struct cairn_error *err)
{
    if (tomb_has_gen(t, gen))
        return CAIRN_OK;
    char(*gens)[GEN_TEXT] = reallocarray(t->gens, t->n + 1, GEN_TEXT);
    if (!gens)
        return error_oom(err, "tombstone");
    t->gens = gens;
    memcpy(t->gens[t->n++], gen, GEN_TEXT);
    return CAIRN_OK;
}

static int parse(const struct jval *v, struct tomb *out, struct cairn_error *err)
{
    const struct jval *gens = jval_get(v, "gens");
    if (!jval_is_array(gens))
        return error_set(err, CAIRN_CORRUPT, EIO, "no list of generations");
    for (size_t i = 0; i < jval_len(gens); i++) {
        const char *gen = jval_str(jval_at(gens, i));
        if (!gen || !gen_is_valid(gen))
            return error_set(err, CAIRN_CORRUPT, EIO, "a generation that is none");
        int rc = tomb_add_gen(out, gen, err);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

int tomb_get_stat(struct cairn_store *s, const struct cairn_op *op, const char *id,
                  struct tomb *out, struct backend_stat *st, struct cairn_error *err)
{
    char key[KEY_MAX];
    layout_tomb(id, key);
    *out = (struct tomb){0};
    CLEANUP_JVAL struct jval *v = NULL;
    int rc = store_get_json(s, op, key, TOMB_MAX, &v, st, err);
    if (rc || !(rc = parse(v, out, err)))
        return rc;
    tomb_release(out);
    return error_wrap(err, "%s", key);
}

int tomb_get(struct cairn_store *s, const struct cairn_op *op, const char *id, struct tomb *out,
             struct cairn_error *err)
{
    return tomb_get_stat(s, op, id, out, NULL, err);
}

int tomb_get_or_empty(struct cairn_store *s, const struct cairn_op *op, const char *id,
                      struct tomb *out, bool *exists, struct cairn_error *err)
{
    struct cairn_error e;
    int rc = tomb_get(s, op, id, out, &e);
    *exists = rc != CAIRN_NOT_FOUND;
    if (rc == CAIRN_CORRUPT)
        log_line(LOG_LEVEL_WARNING, "taken for empty: %s", e.message);
    if (!rc || rc == CAIRN_NOT_FOUND || rc == CAIRN_CORRUPT)
        return CAIRN_OK;
    return error_pass(err, &e);
}

int tomb_put(struct cairn_store *s, const struct cairn_op *op, const char *id, const struct tomb *t,
             struct cairn_error *err)
{
    char key[KEY_MAX];
    layout_tomb(id, key);
    CLEANUP_BUF struct buf text = BUF_INIT(TOMB_MAX);
    struct jsonw w = JSONW_INIT(&text, err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "id", id);
    jsonw_array(&w, "gens");
    for (size_t i = 0; i < t->n; i++)
        jsonw_str(&w, NULL, t->gens[i]);
    jsonw_array_end(&w);
    jsonw_object_end(&w);
    int rc = jsonw_end(&w);
    if (!rc)
        rc = s->backend->ops->put(s->backend, op, key, text.data, text.len, err);
    return rc;
}
