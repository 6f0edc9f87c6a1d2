#include "store/pin.h"

#include "base/jsonw.h"
#include "base/jval.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define NODE_LEN (LAYOUT_NODE_TEXT / 2)

void pin_release(struct pin *p)
{
    pack_set_release(&p->packs);
}

/* ---- The node's name ---- */

static int random_name(char out[LAYOUT_NODE_TEXT], struct cairn_error *err)
{
    uint8_t raw[NODE_LEN];
    if (!util_random(raw, sizeof(raw))) {
        int e = errno;
        return error_sys(err, e, "random name of a pin");
    }
    util_hex(raw, sizeof(raw), out);
    return CAIRN_OK;
}

/* False: none there, or it is damaged. */
static bool read_node(const char *path, char node[LAYOUT_NODE_TEXT])
{
    uint8_t raw[NODE_LEN];
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || util_pread_full(fd, node, LAYOUT_NODE_TEXT - 1, 0) != LAYOUT_NODE_TEXT - 1)
        return false;
    node[LAYOUT_NODE_TEXT - 1] = 0;
    return util_unhex(node, raw, sizeof(raw));
}

/* Two processes that make it at once agree on one: the first link wins. */
static int make_node(const char *path, char node[LAYOUT_NODE_TEXT], struct cairn_error *err)
{
    char text[LAYOUT_NODE_TEXT];
    int rc = random_name(text, err);
    CLEANUP_FREE char *temp = NULL;
    if (!rc && asprintf(&temp, "%s.%s", path, text) < 0) {
        temp = NULL;
        rc = error_oom(err, "path");
    }
    if (rc)
        return rc;
    CLEANUP_FD int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool bad = fd < 0 || util_pwrite_full(fd, text, LAYOUT_NODE_TEXT - 1, 0) < 0 || fsync(fd) != 0;
    if (!bad && link(temp, path) != 0) {
        /* One that cannot be read is replaced. */
        bad = errno != EEXIST || (!read_node(path, node) && rename(temp, path) != 0);
    }
    int e = errno;
    (void)unlink(temp);
    if (bad)
        return error_sys(err, e, "writing %s", path);
    return read_node(path, node) ? CAIRN_OK
                                 : error_set(err, CAIRN_PERMANENT, EIO, "reading %s", path);
}

int pin_node(const struct cairn_store *s, char node[LAYOUT_NODE_TEXT], struct cairn_error *err)
{
    if (!s->state)
        return random_name(node, err);
    CLEANUP_FREE char *path = NULL;
    if (asprintf(&path, "%s/node", s->state) < 0) {
        path = NULL;
        return error_oom(err, "path");
    }
    return read_node(path, node) ? CAIRN_OK : make_node(path, node, err);
}

/* ---- The object ---- */

int pin_init(struct pin *out, const char *node, const char *id, const char *gen,
             struct cairn_error *err)
{
    char nonce[LAYOUT_NODE_TEXT];
    *out = (struct pin){0};
    int rc = random_name(nonce, err);
    if (rc)
        return rc;
    layout_pin(node, nonce, out->key);
    memcpy(out->id, id, strlen(id) + 1);
    memcpy(out->gen, gen, GEN_TEXT);
    return CAIRN_OK;
}

int pin_put(struct cairn_store *s, const struct cairn_op *op, const struct pin *p,
            struct cairn_error *err)
{
    CLEANUP_BUF struct buf text = BUF_INIT(PIN_MAX);
    struct jsonw w = JSONW_INIT(&text, err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "id", p->id);
    jsonw_str(&w, "gen", p->gen);
    jsonw_array(&w, "packs");
    for (size_t i = 0; i < p->packs.n; i++) {
        char hex[PACK_TEXT];
        util_hex(p->packs.packs[i], PACK_ID_LEN, hex);
        jsonw_str(&w, NULL, hex);
    }
    jsonw_array_end(&w);
    jsonw_object_end(&w);
    int rc = jsonw_end(&w);
    if (!rc)
        rc = s->backend->ops->put(s->backend, op, p->key, text.data, text.len, err);
    return rc;
}

static int parse(const struct jval *v, struct pin *out, struct cairn_error *err)
{
    const char *id = jval_str(jval_get(v, "id")), *gen = jval_str(jval_get(v, "gen"));
    const struct jval *packs = jval_get(v, "packs");
    if (!id || !id_is_valid(id) || !gen || !gen_is_valid(gen) || !jval_is_array(packs))
        return error_set(err, CAIRN_CORRUPT, EIO, "it names no generation");
    memcpy(out->id, id, strlen(id) + 1);
    memcpy(out->gen, gen, GEN_TEXT);
    for (size_t i = 0; i < jval_len(packs); i++) {
        const char *hex = jval_str(jval_at(packs, i));
        uint8_t pack[PACK_ID_LEN];
        if (!hex || !util_unhex(hex, pack, PACK_ID_LEN))
            return error_set(err, CAIRN_CORRUPT, EIO, "it names a pack that is none");
        int rc = pack_set_add(&out->packs, pack, err);
        if (rc)
            return rc;
    }
    return CAIRN_OK;
}

int pin_get(struct cairn_store *s, const struct cairn_op *op, const char *key, struct pin *out,
            struct cairn_error *err)
{
    *out = (struct pin){0};
    size_t len = strlen(key);
    if (len >= KEY_MAX)
        return error_set(err, CAIRN_CORRUPT, ENAMETOOLONG, "pin %.80s…: its name is too long", key);
    memcpy(out->key, key, len + 1);
    CLEANUP_JVAL struct jval *v = NULL;
    int rc = store_get_json(s, op, key, PIN_MAX, &v, NULL, err);
    if (rc || !(rc = parse(v, out, err)))
        return rc;
    pin_release(out);
    return error_wrap(err, "%s", key);
}

int pin_remove(struct cairn_store *s, const struct cairn_op *op, const struct pin *p,
               struct cairn_error *err)
{
    return backend_remove_one(s->backend, op, p->key, err);
}
