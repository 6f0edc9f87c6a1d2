#include "store/meta.h"

#include "base/clock.h"
#include "base/jsonw.h"
#include "base/jval.h"
#include "store/cairn.h"

#include <errno.h>
#include <string.h>

int meta_default(const char *id, struct buf *out, struct cairn_error *err)
{
    char now[CLOCK_RFC3339_MAX];
    clock_rfc3339(clock_realtime(), now);
    struct jsonw w = JSONW_INIT(out, err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "id", id);
    jsonw_str(&w, "created", now);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

static int check_one(const struct walk *files, const char *path, uint64_t size,
                     struct cairn_error *err)
{
    char shown[WALK_SHOWN];
    size_t len = strlen(path);
    const struct walk_file *f = walk_find(files, path, len);
    if (f && f->size == size)
        return CAIRN_OK;
    if (f)
        return error_set(
            err, CAIRN_INVALID, EINVAL, "export: %s has %llu bytes where %llu were expected",
            walk_shown(path, len, shown), (unsigned long long)f->size, (unsigned long long)size);
    return error_set(err, CAIRN_INVALID, EINVAL,
                     "export: %s is missing, where %llu bytes of it were expected",
                     walk_shown(path, len, shown), (unsigned long long)size);
}

struct member_check {
    const struct walk *files;
    struct cairn_error *err;
};

static int check_member(void *ctx, const char *name, const struct jval *value)
{
    struct member_check *c = ctx;
    int64_t size;
    if (!jval_int(value, &size) || size < 0)
        return error_set(c->err, CAIRN_INVALID, EINVAL,
                         "meta.json: cairn_expect: the size of a file is no number of bytes");
    return check_one(c->files, name, (uint64_t)size, c->err);
}

static bool looks_like_object(const char *text, size_t len)
{
    size_t at = len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < len && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    return at < len && text[at] == '{';
}

int meta_check_expected(const void *meta, size_t meta_len, const struct cairn_expect *expect,
                        size_t n_expect, const struct walk *files, struct cairn_error *err)
{
    for (size_t i = 0; i < n_expect; i++) {
        int rc = check_one(files, expect[i].path, expect[i].size, err);
        if (rc)
            return rc;
    }
    /* A meta that is no JSON is as good as any: it is the caller's. But an object that expects
     * something, and cannot be read, must not pass for one that expects nothing. */
    CLEANUP_JVAL struct jval *v = NULL;
    struct cairn_error e;
    if (!looks_like_object(meta, meta_len) || !memmem(meta, meta_len, "\"cairn_expect\"", 14))
        return CAIRN_OK;
    if (jval_parse(meta, meta_len, &v, &e))
        return error_set(err, CAIRN_INVALID, EINVAL,
                         "meta.json: it has a cairn_expect that cannot be read: %s", e.message);
    const struct jval *member = jval_get(v, "cairn_expect");
    if (member && !jval_is_object(member))
        return error_set(err, CAIRN_INVALID, EINVAL,
                         "meta.json: cairn_expect is no object of paths and sizes");
    struct member_check c = {.files = files, .err = err};
    return member ? jval_each(member, check_member, &c) : CAIRN_OK;
}
