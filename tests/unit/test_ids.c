#include "base/util.h"
#include "store/ids.h"
#include "tests/lib/testing.h"

#include <string.h>

static const char *const good[] = {"ck_0123456789abcdef", "ck_0000000000000000",
                                   "tp_0123456789abcdef0123456789abcdef"};
static const char *const bad[] = {
    "",
    "c",
    "ck",
    "ck_",
    "ck_0123456789abcde",
    "ck_0123456789abcdef0",
    "ck_0123456789abcdeF",
    "ck_0123456789abcdeg",
    "ck_0123456789abcde/",
    "ck_0123456789abcdef/",
    "ck_0123456789abcdef\n",
    " ck_0123456789abcdef",
    "CK_0123456789abcdef",
    "ck-0123456789abcdef",
    "ck_0123456789abcdef0123456789abcdef",
    "tp_0123456789abcdef",
    "tp_0123456789abcdef0123456789abcde",
    "tp_0123456789abcdef0123456789abcdef0",
    "tp_0123456789abcdef0123456789abcde\xff",
    "../ck_0123456789abcdef",
    "xx_0123456789abcdef",
};

START_TEST(test_ids__only_the_two_forms_are_ids)
{
    struct cairn_error err;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        ck_assert_msg(id_is_valid(good[i]), "%s", good[i]);
        ck_ok(id_check(good[i], &err));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_assert_msg(!id_is_valid(bad[i]), "%s", bad[i]);
        ck_fails(id_check(bad[i], &err), CAIRN_INVALID);
    }
    ck_assert(!id_is_template(good[0]));
    ck_assert(id_is_template(good[2]));
}
END_TEST

START_TEST(test_ids__a_bad_id_is_shown_cut_and_escaped)
{
    struct cairn_error err;
    ck_fails(id_check("a\n\xff\"b", &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "a\\x0a\\xff"));
    ck_assert_ptr_null(strchr(err.message, '\n'));
    char id[4000];
    memset(id, 1, sizeof(id) - 1);
    id[sizeof(id) - 1] = 0;
    ck_fails(id_check(id, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "\\x01...\""));
    ck_assert_uint_lt(strlen(err.message), 400);
    id[48] = 0;
    ck_fails(id_check(id, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "\\x01\""));
}
END_TEST

START_TEST(test_ids__generation_names_are_16_digits)
{
    ck_assert(gen_is_valid("0123456789abcdef"));
    ck_assert(!gen_is_valid("0123456789abcdeF"));
    ck_assert(!gen_is_valid("0123456789abcde"));
    ck_assert(!gen_is_valid("0123456789abcdef0"));
    ck_assert(!gen_is_valid(""));
}
END_TEST

START_TEST(test_ids__generation_is_named_by_its_meta)
{
    /* the values that other daemons of this field compute */
    static const struct {
        const char *meta, *gen;
    } vectors[] = {{"{\"id\":\"ck_00000000000000aa\"}", "66e99f116e8d369c"},
                   {"{\"id\":\"ck_00000000000000aa\",\"gen\":2}", "10e86d34ff89ba4c"},
                   {"{\"id\":\"first\"}", "5927e236febd2ea7"},
                   {"", "e3b0c44298fc1c14"}};
    struct cairn_error err;
    char gen[GEN_TEXT];
    for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
        ck_ok(gen_of_meta(vectors[i].meta, strlen(vectors[i].meta), gen, &err));
        ck_assert_str_eq(gen, vectors[i].gen);
        ck_assert(gen_is_valid(gen));
    }
}
END_TEST

START_TEST(test_ids__meta_is_at_most_1_mib)
{
    struct cairn_error err;
    char gen[GEN_TEXT];
    CLEANUP_FREE char *meta = calloc(1, META_MAX + 1);
    ck_assert_ptr_nonnull(meta);
    ck_ok(gen_of_meta(meta, META_MAX, gen, &err));
    ck_fails(gen_of_meta(meta, META_MAX + 1, gen, &err), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "1048577"));
}
END_TEST

TESTING_MAIN(ids, test_ids__only_the_two_forms_are_ids, test_ids__a_bad_id_is_shown_cut_and_escaped,
             test_ids__generation_names_are_16_digits, test_ids__generation_is_named_by_its_meta,
             test_ids__meta_is_at_most_1_mib)
