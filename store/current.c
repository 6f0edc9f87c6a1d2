#include "store/current.h"

#include "base/log.h"
#include "store/remove.h"
#include "store/tomb.h"

#include <errno.h>
#include <string.h>

void current_release(struct current *c)
{
    manifest_free(c->manifest);
    *c = (struct current){0};
}

int current_is_dying(struct cairn_store *s, const struct cairn_op *op, const char *id,
                     const char *gen, bool *dying, struct cairn_error *err)
{
    CLEANUP_TOMB struct tomb t = {0};
    bool exists;
    int rc = tomb_get_or_empty(s, op, id, &t, &exists, err);
    *dying = !rc && tomb_has_gen(&t, gen);
    return rc;
}

/* A meta.json without its export: a removal that was cut short, or a loss. */
static int without_export(struct cairn_store *s, const struct cairn_op *op, const char *id,
                          struct current *c, struct cairn_error *err)
{
    bool dying;
    int rc = current_is_dying(s, op, id, c->gen, &dying, err);
    if (rc || !dying)
        return rc;
    *c = (struct current){0};
    return remove_record(s, op, id, err);
}

int current_load(struct cairn_store *s, const struct cairn_op *op, const char *id,
                 struct current *out, struct cairn_error *err)
{
    *out = (struct current){0};
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    struct cairn_error e;
    int rc = store_get_meta(s, op, id, &meta, out->gen, &e);
    if (rc == CAIRN_NOT_FOUND)
        return CAIRN_OK;
    if (!rc) {
        out->exists = true;
        rc = store_load_manifest(s, op, id, out->gen, &out->manifest, &e);
        if (rc == CAIRN_NOT_FOUND)
            return without_export(s, op, id, out, err);
        if (rc == CAIRN_CORRUPT) {
            log_line(LOG_LEVEL_WARNING, "%s", e.message);
            return CAIRN_OK;
        }
    }
    return rc ? error_pass(err, &e) : CAIRN_OK;
}

int current_allows(const struct current *c, const char *id, const char *gen,
                   struct cairn_error *err)
{
    if (!c->exists || id_is_template(id) || strcmp(c->gen, gen) == 0)
        return CAIRN_OK;
    if (!c->manifest)
        return error_set(err, CAIRN_BUSY, EEXIST,
                         "%s has a meta.json (generation %s) whose export is missing or "
                         "damaged: remove it first",
                         id, c->gen);
    return error_set(err, CAIRN_BUSY, EEXIST,
                     "%s is published already (generation %s), and a checkpoint is published once",
                     id, c->gen);
}
