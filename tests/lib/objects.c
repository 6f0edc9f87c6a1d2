#include "tests/lib/objects.h"

#include "store/listing.h"
#include "tests/lib/testing.h"

#include <stdio.h>
#include <string.h>

static struct cairn_error err;

size_t objects_count(struct backend *b, const char *prefix, uint64_t *bytes)
{
    CLEANUP_LISTING struct listing l;
    size_t n = 0;
    int rc = listing_open(&l, b, NULL, prefix, "", &err);
    for (; listing_next(&l, &rc, &err); n++)
        if (bytes)
            *bytes += l.entry.stat.size;
    ck_ok(rc);
    return n;
}

bool objects_nth(struct backend *b, const char *prefix, size_t i, char key[KEY_MAX])
{
    CLEANUP_LISTING struct listing l;
    int rc = listing_open(&l, b, NULL, prefix, "", &err);
    while (listing_next(&l, &rc, &err))
        if (i-- == 0) {
            snprintf(key, KEY_MAX, "%s", l.entry.key);
            return true;
        }
    ck_ok(rc);
    return false;
}

const char *objects_keys(struct backend *b, const char *prefix, const char *after)
{
    static char text[65536];
    CLEANUP_LISTING struct listing l;
    size_t n = 0;
    int rc = listing_open(&l, b, NULL, prefix, after, &err);
    while (listing_next(&l, &rc, &err)) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n ? " " : "", l.entry.key);
        ck_assert_uint_lt(n, sizeof(text));
    }
    ck_ok(rc);
    text[n] = 0;
    return text;
}

const char *objects_text(struct backend *b, const char *key)
{
    static char text[4097];
    CLEANUP_BUF struct buf out = BUF_INIT(sizeof(text) - 1);
    int rc = b->ops->get(b, NULL, key, sizeof(text) - 1, &out, NULL, &err);
    if (rc == CAIRN_NOT_FOUND)
        return NULL;
    ck_ok(rc);
    if (out.len)
        memcpy(text, out.data, out.len);
    text[out.len] = 0;
    return text;
}
