#include "base/util.h"
#include "store/layout.h"
#include "tests/lib/testing.h"

#include <string.h>

#define CK   "ck_0123456789abcdef"
#define TP   "tp_0123456789abcdef0123456789abcdef"
#define GEN  "66e99f116e8d369c"
#define PACK "00112233445566778899aabbccddeeff"

static const uint8_t pack[PACK_ID_LEN] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                          0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};

/* key is the text and parses to exactly kind, id, gen, and pack if has_pack. */
static void is(const char *key, const char *text, enum layout_kind kind, const char *id,
               const char *gen, bool has_pack)
{
    struct layout_key k;
    ck_assert_str_eq(key, text);
    layout_parse(key, &k);
    ck_assert_msg(k.kind == kind, "%s is of kind %d", key, k.kind);
    ck_assert_str_eq(k.id, id);
    ck_assert_str_eq(k.gen, gen);
    ck_assert(has_pack ? memcmp(k.pack, pack, PACK_ID_LEN) == 0
                       : util_is_zero(k.pack, PACK_ID_LEN));
}

START_TEST(test_layout__every_key_that_is_made_parses_back)
{
    char key[KEY_MAX];
    layout_meta(CK, key);
    is(key, "records/" CK "/meta.json", LAYOUT_KIND_META, CK, "", false);
    layout_meta(TP, key);
    is(key, "records/" TP "/meta.json", LAYOUT_KIND_META, TP, "", false);
    layout_export(TP, GEN, key);
    is(key, "records/" TP "/export-" GEN, LAYOUT_KIND_EXPORT, TP, GEN, false);
    layout_staged(TP, GEN, key);
    is(key, "records/" TP "/meta-" GEN ".staged", LAYOUT_KIND_STAGED, TP, GEN, false);
    layout_trace(CK, GEN, key);
    is(key, "records/" CK "/trace-" GEN, LAYOUT_KIND_TRACE, CK, GEN, false);
    layout_hold(CK, key);
    is(key, "holds/" CK, LAYOUT_KIND_HOLD, CK, "", false);
    layout_hold(TP, key);
    is(key, "holds/" TP, LAYOUT_KIND_HOLD, TP, "", false);
    layout_tomb(CK, key);
    is(key, "gc/tomb/" CK, LAYOUT_KIND_TOMB, CK, "", false);
    layout_tomb(TP, key);
    is(key, "gc/tomb/" TP, LAYOUT_KIND_TOMB, TP, "", false);
    layout_pack(pack, key);
    is(key, "packs/00/" PACK, LAYOUT_KIND_PACK, "", "", true);
    layout_closed(pack, key);
    is(key, "gc/closed/" PACK, LAYOUT_KIND_CLOSED, "", "", true);
    layout_dead(pack, key);
    is(key, "gc/dead/" PACK, LAYOUT_KIND_DEAD, "", "", true);
    layout_record(CK, key);
    ck_assert_str_eq(key, "records/" CK "/");
    is("format.json", "format.json", LAYOUT_KIND_FORMAT, "", "", false);
    is("pins/node-1/abc", "pins/node-1/abc", LAYOUT_KIND_PIN, "", "", false);
    is("tmp/anything.x", "tmp/anything.x", LAYOUT_KIND_TMP, "", "", false);
    is("gc/clock", "gc/clock", LAYOUT_KIND_CLOCK, "", "", false);
    layout_pin("node-1", "abc", key);
    is(key, "pins/node-1/abc", LAYOUT_KIND_PIN, "", "", false);
    layout_intent(TP, GEN, "node-1", key);
    is(key, "gc/intent/" TP "/" GEN "/node-1", LAYOUT_KIND_INTENT, TP, GEN, false);
    layout_intent(CK, GEN, "n", key);
    is(key, "gc/intent/" CK "/" GEN "/n", LAYOUT_KIND_INTENT, CK, GEN, false);
}
END_TEST

START_TEST(test_layout__all_other_keys_are_unknown)
{
    static const char *const keys[] = {
        "",
        "/",
        "format.json/",
        "format.jso",
        "/format.json",
        "Format.json",
        "records",
        "records/",
        "records/" CK,
        "records/" CK "/",
        "records//" CK "/meta.json",
        "records/" CK "//meta.json",
        "records/" CK "/meta.json/",
        "records/" CK "/meta.json.tmp",
        "records/" CK "/meta.jsonx",
        "records/" CK "/../meta.json",
        "records/" CK "x/meta.json",
        "records/ck_0123456789abcdeF/meta.json",
        "records/ck_0123456789abcde/meta.json",
        "records/" TP "0/meta.json",
        "records/" TP TP TP "/meta.json",
        "records/../meta.json",
        "records/" CK "/export-",
        "records/" CK "/export-" GEN "0",
        "records/" CK "/export-66e99f116e8d369",
        "records/" CK "/export-66e99f116e8d369C",
        "records/" CK "/export-" GEN "/",
        "records/" CK "/trace-" GEN "0",
        "records/" CK "/trace-",
        "records/" CK "/trace-66e99f116e8d369G",
        "records/" CK "/meta-" GEN,
        "records/" CK "/meta-" GEN ".stage",
        "records/" CK "/meta-" GEN ".staged2",
        "records/" CK "/meta-66e99f116e8d369.staged",
        "records/" CK "/meta-66e99f116e8d369G.staged",
        "packs/" PACK,
        "packs/00/",
        "packs/00" PACK,
        "packs/01/" PACK,
        "packs/00/" PACK "0",
        "packs/00/" PACK ".tmp",
        "packs/00/00112233445566778899aabbccddeef",
        "packs/AA/AA112233445566778899aabbccddeeff",
        "packs/00//0112233445566778899aabbccddeeff",
        "gc/closed/",
        "gc/closed/" PACK "0",
        "gc/closed/00/" PACK,
        "gc/dead/" CK,
        "gc/dead/0",
        "gc/tomb/" PACK,
        "gc/tomb/" CK "/",
        "gc/other/" CK,
        "gc/" CK,
        "holds/",
        "holds/" CK "/x",
        "holds/" GEN,
        "pins/",
        "pins/node",
        "pins//nonce",
        "pins/node/",
        "pins/node/a/b",
        "tmp/",
        "tmp/a/b",
        "tmp",
        "packs/\xff\xfe/\xff\xfe",
        "records/\xff/meta.json",
    };
    struct layout_key k;
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        memset(&k, 0xee, sizeof(k));
        layout_parse(keys[i], &k);
        ck_assert_msg(k.kind == LAYOUT_KIND_UNKNOWN, "\"%s\" is of kind %d", keys[i], k.kind);
        ck_assert_str_eq(k.id, "");
        ck_assert_str_eq(k.gen, "");
    }
}
END_TEST

START_TEST(test_layout__keys_far_too_long_are_unknown)
{
    static const char *const prefixes[] = {
        "records/", "packs/", "holds/", "gc/tomb/", "records/" CK "/export-", "packs/00/"};
    char key[20000];
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        struct layout_key k;
        memset(key, 'a', sizeof(key) - 1);
        key[sizeof(key) - 1] = 0;
        memcpy(key, prefixes[i], strlen(prefixes[i]));
        layout_parse(key, &k);
        ck_assert_int_eq(k.kind, LAYOUT_KIND_UNKNOWN);
    }
}
END_TEST

START_TEST(test_layout__longest_key_fits)
{
    char key[KEY_MAX];
    layout_staged(TP, GEN, key);
    ck_assert_uint_lt(strlen(key), KEY_MAX - 1);
    ck_assert_str_eq(key + strlen(key) - 7, ".staged");
}
END_TEST

TESTING_MAIN(layout, test_layout__every_key_that_is_made_parses_back,
             test_layout__all_other_keys_are_unknown, test_layout__keys_far_too_long_are_unknown,
             test_layout__longest_key_fits)
