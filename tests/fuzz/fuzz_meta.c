/* Names, keys and JSON: the small things that come from outside. */
#include "base/jval.h"
#include "base/util.h"
#include "store/layout.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* A key that was understood is the key that we would make of what it says. */
static void check_key(const char *key)
{
    struct layout_key k;
    char again[KEY_MAX] = "";
    layout_parse(key, &k);
    switch (k.kind) {
    case LAYOUT_KIND_META:
        layout_meta(k.id, again);
        break;
    case LAYOUT_KIND_EXPORT:
        layout_export(k.id, k.gen, again);
        break;
    case LAYOUT_KIND_STAGED:
        layout_staged(k.id, k.gen, again);
        break;
    case LAYOUT_KIND_TRACE:
        layout_trace(k.id, k.gen, again);
        break;
    case LAYOUT_KIND_PACK:
        layout_pack(k.pack, again);
        break;
    case LAYOUT_KIND_HOLD:
        layout_hold(k.id, again);
        break;
    case LAYOUT_KIND_CLOSED:
        layout_closed(k.pack, again);
        break;
    case LAYOUT_KIND_DEAD:
        layout_dead(k.pack, again);
        break;
    case LAYOUT_KIND_TOMB:
        layout_tomb(k.id, again);
        break;
    case LAYOUT_KIND_FORMAT:
    case LAYOUT_KIND_PIN:
    case LAYOUT_KIND_TMP:
    case LAYOUT_KIND_CLOCK:
    case LAYOUT_KIND_INTENT:
    case LAYOUT_KIND_UNKNOWN:
        return;
    }
    FUZZ_CHECK(strcmp(key, again) == 0);
}

static int walk_member(void *ctx, const char *name, const struct jval *value);

static void walk_value(const struct jval *v, int depth)
{
    int64_t i;
    double d;
    bool b;
    FUZZ_CHECK(depth <= 2049); /* jansson's limit */
    (void)jval_int(v, &i);
    (void)jval_real(v, &d);
    (void)jval_bool(v, &b);
    const char *text = jval_str(v);
    FUZZ_CHECK(!text || util_is_utf8(text, strlen(text)));
    for (size_t n = 0; n < jval_len(v); n++)
        walk_value(jval_at(v, n), depth + 1);
    if (jval_is_object(v))
        FUZZ_CHECK(jval_each(v, walk_member, &(int){depth + 1}) == 0);
}

static int walk_member(void *ctx, const char *name, const struct jval *value)
{
    FUZZ_CHECK(name && value);
    walk_value(value, *(int *)ctx);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cairn_error err;
    char gen[GEN_TEXT], *text = malloc(size + 1);
    FUZZ_CHECK(text);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    int rc = id_check(text, &err);
    FUZZ_CHECK((rc == CAIRN_OK) == id_is_valid(text));
    if (rc)
        FUZZ_CHECK_ERROR(rc, &err, CAIRN_INVALID);
    (void)gen_is_valid(text);
    check_key(text);
    rc = gen_of_meta(data, size, gen, &err);
    FUZZ_CHECK(rc == (size > META_MAX ? CAIRN_INVALID : CAIRN_OK));
    FUZZ_CHECK(rc || gen_is_valid(gen));
    CLEANUP_JVAL struct jval *v = NULL;
    rc = jval_parse(data, size, &v, &err);
    if (rc)
        FUZZ_CHECK_ERROR(rc, &err, CAIRN_INVALID);
    else
        walk_value(v, 0);
    free(text);
    return 0;
}
