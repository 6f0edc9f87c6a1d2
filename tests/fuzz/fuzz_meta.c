/* Names, keys and JSON: the small things that come from outside. */
#include "base/jval.h"
#include "base/util.h"
#include "store/layout.h"
#include "store/trace.h"
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

/* Some files without data, which a trace may name. */
static const struct manifest *sample(void)
{
    static const struct {
        const char *path;
        uint64_t size;
    } files[] = {{"config.json", 2},
                 {"empty", 0},
                 {"memory", (uint64_t)1 << 36},
                 {"nested/deep/a.bin", 4097}};
    static struct manifest *m;
    struct manifest_builder *b = NULL;
    struct manifest_info info = {.id = "ck_00000000000000aa", .gen = "0123456789abcdef"};
    uint8_t *data;
    size_t len;
    if (m)
        return m;
    FUZZ_CHECK(manifest_builder_new(4096, &b, NULL) == CAIRN_OK);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        FUZZ_CHECK(manifest_builder_file_begin(b, files[i].path, strlen(files[i].path),
                                               files[i].size, NULL) == CAIRN_OK);
        FUZZ_CHECK(manifest_builder_file_end(b, NULL) == CAIRN_OK);
    }
    FUZZ_CHECK(manifest_builder_encode(b, &info, &data, &len, NULL) == CAIRN_OK);
    manifest_builder_free(b);
    FUZZ_CHECK(manifest_decode(data, len, NULL, NULL, &m, NULL) == CAIRN_OK);
    return m;
}

/* A trace that is read names what the manifest has, and is the same when it was written again. */
static void check_trace(const uint8_t *data, size_t size)
{
    const struct manifest *m = sample();
    CLEANUP_TRACE struct trace t = {0}, none = {0}, again = {0};
    CLEANUP_BUF struct buf text = BUF_INIT(TRACE_MAX);
    struct cairn_error err;
    uint64_t chunks = 0;
    int rc = trace_decode(data, size, m, &t, &err);
    FUZZ_CHECK(trace_decode(data, size, NULL, &none, &err) == rc && !none.n);
    if (rc) {
        FUZZ_CHECK_ERROR(rc, &err, CAIRN_CORRUPT);
        return;
    }
    for (size_t i = 0; i < t.n; i++) {
        struct manifest_file f;
        FUZZ_CHECK(t.runs[i].file < manifest_info(m)->n_files && t.runs[i].count);
        manifest_file(m, t.runs[i].file, &f);
        uint64_t last = t.runs[i].first + t.runs[i].count - 1;
        FUZZ_CHECK(last * manifest_info(m)->chunk_size < f.size);
        chunks += t.runs[i].count;
    }
    FUZZ_CHECK(chunks == t.chunks && chunks <= TRACE_CHUNKS_MAX);
    FUZZ_CHECK(trace_encode(&t, m, &text, &err) == CAIRN_OK);
    FUZZ_CHECK(trace_decode(text.data, text.len, m, &again, &err) == CAIRN_OK);
    FUZZ_CHECK(again.n == t.n && again.chunks == t.chunks);
    FUZZ_CHECK(!t.n || memcmp(again.runs, t.runs, t.n * sizeof(t.runs[0])) == 0);
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
    check_trace(data, size);
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
