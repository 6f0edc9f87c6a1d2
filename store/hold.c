#include "store/hold.h"

#include "store/current.h"
#include "store/lock.h"

#include <errno.h>

int hold_exists(struct cairn_store *s, const struct cairn_op *op, const char *id, bool *held,
                struct cairn_error *err)
{
    char key[KEY_MAX];
    layout_hold(id, key);
    return backend_exists(s->backend, op, key, held, err);
}

int cairn_hold(struct cairn_store *s, const struct cairn_op *op, const char *id,
               struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    int rc = id_check(id, err);
    if (!rc)
        rc = store_check_writer(s, err);
    if (rc)
        return rc;
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    char gen[GEN_TEXT], key[KEY_MAX];
    int lock = -1;
    /* Not between a removal's look for a hold and its end. */
    rc = lock_record(s, op, id, &lock, err);
    if (rc)
        return error_wrap(err, "hold %s", id);
    rc = store_get_meta(s, op, id, &meta, gen, err);
    layout_hold(id, key);
    /* A removal that was cut short will be finished, held or not. */
    bool dying = false;
    if (!rc)
        rc = current_is_dying(s, op, id, gen, &dying, err);
    if (!rc && dying)
        rc = error_set(err, CAIRN_BUSY, EBUSY, "its removal has begun");
    if (!rc)
        rc = s->backend->ops->put(s->backend, op, key, "held\n", 5, err);
    s->backend->ops->unlock(s->backend, id, lock);
    return rc ? error_wrap(err, "hold %s", id) : CAIRN_OK;
}

int cairn_release(struct cairn_store *s, const struct cairn_op *op, const char *id,
                  struct cairn_error *err)
{
    ERROR_OR_LOCAL(err);
    int rc = id_check(id, err);
    if (!rc)
        rc = store_check_writer(s, err);
    if (rc)
        return rc;
    char key[KEY_MAX];
    layout_hold(id, key);
    rc = backend_remove_one(s->backend, op, key, err);
    return rc ? error_wrap(err, "release %s", id) : CAIRN_OK;
}
