#include "base/log.h"
#include "cli/config.h"
#include "tests/lib/testing.h"

#include <stdio.h>
#include <string.h>

static int parse(struct config *c, const char *text, struct cairn_error *err)
{
    config_init(c);
    return config_parse(c, "f.json", text, strlen(text), err);
}

/* The text is refused, and the message names what is wrong. */
static void check_refused(const char *text, const char *named)
{
    struct cairn_error err;
    struct config c;
    ck_fails(parse(&c, text, &err), CAIRN_INVALID);
    ck_assert_msg(strstr(err.message, named) != NULL, "%s: \"%s\" lacks \"%s\"", text, err.message,
                  named);
    ck_assert(strstr(err.message, "f.json") != NULL);
    config_release(&c);
}

START_TEST(test_config__an_empty_object_is_the_defaults)
{
    struct cairn_error err;
    struct config c;
    ck_ok(parse(&c, "{}", &err));
    ck_assert_int_eq(c.kind, CONFIG_DIR);
    ck_assert_ptr_null(c.checkpoint_dir);
    ck_assert_ptr_null(c.state_dir);
    ck_assert_int_eq(c.listen_mode, 0600);
    ck_assert_int_eq(c.materialise, CONFIG_SECOND);
    ck_assert(c.trace);
    ck_assert_int_eq(c.cache_bytes, -1);
    ck_assert_int_eq(c.fetch_budget_seconds, 1800);
    ck_assert_int_eq(c.generation_grace_seconds, 3600);
    ck_assert_int_eq(c.sweep_interval_seconds, 3600);
    ck_assert_int_eq(c.checkpoint_ttl_hours, 0);
    ck_assert_int_eq(c.gc_visibility_seconds, -1);
    ck_assert_int_eq(c.gc_young_seconds, 86400);
    ck_assert_int_eq(c.gc_dead_margin_seconds, 1800);
    ck_assert_int_eq(c.workers, 0);
    ck_assert_int_eq(c.log_level, LOG_LEVEL_INFO);
    ck_assert(!c.log_level_given);
    ck_assert_int_eq(c.drain_seconds, 30);
    ck_assert_int_eq(c.staging_keep_seconds, 86400);
    ck_assert_int_eq(c.s3.max_requests, 16);
    ck_assert_int_eq(c.s3.signature, CONFIG_V4);
    config_release(&c);
}
END_TEST

START_TEST(test_config__every_key_is_kept)
{
    struct cairn_error err;
    struct config c;
    ck_ok(parse(&c,
                "{\"checkpoint_store\": {\"kind\": \"s3\", \"s3\": {\"bucket\": \"b\", \"prefix\": "
                "\"p/q\", \"endpoint\": \"https://h:9000\", \"region\": \"r\", "
                "\"force_path_style\": true, \"signature\": \"v2\", \"profile\": \"me\", "
                "\"ca_file\": \"/ca.pem\", \"max_requests\": 256}},"
                "\"checkpoint_dir\": \"/d\", \"state_dir\": \"/s\", \"listen\": \"/l.sock\","
                "\"listen_mode\": \"0660\", \"listen_group\": \"kvm\", \"mount\": \"/m\","
                "\"materialise\": \"never\", \"trace\": false, \"cache_bytes\": \"10G\","
                "\"fetch_budget_seconds\": 60, \"generation_grace_seconds\": 61,"
                "\"sweep_interval_seconds\": 62, \"checkpoint_ttl_hours\": 63,"
                "\"gc_visibility_seconds\": 0, \"gc_young_seconds\": 0, \"workers\": 64,"
                "\"log_level\": \"debug\", \"drain_seconds\": 0,"
                "\"staging_keep_seconds\": 64}",
                &err));
    ck_assert_int_eq(c.kind, CONFIG_S3);
    ck_assert_str_eq(c.s3.bucket, "b");
    ck_assert_str_eq(c.s3.prefix, "p/q");
    ck_assert_str_eq(c.s3.endpoint, "https://h:9000");
    ck_assert_str_eq(c.s3.region, "r");
    ck_assert(c.s3.force_path_style);
    ck_assert_int_eq(c.s3.signature, CONFIG_V2);
    ck_assert_str_eq(c.s3.profile, "me");
    ck_assert_str_eq(c.s3.ca_file, "/ca.pem");
    ck_assert_int_eq(c.s3.max_requests, 256);
    ck_assert_str_eq(c.checkpoint_dir, "/d");
    ck_assert_str_eq(c.state_dir, "/s");
    ck_assert_str_eq(c.listen, "/l.sock");
    ck_assert_int_eq(c.listen_mode, 0660);
    ck_assert_str_eq(c.listen_group, "kvm");
    ck_assert_str_eq(c.mount, "/m");
    ck_assert_int_eq(c.materialise, CONFIG_NEVER);
    ck_assert(!c.trace);
    ck_assert_int_eq(c.cache_bytes, 10LL << 30);
    ck_assert_int_eq(c.fetch_budget_seconds, 60);
    ck_assert_int_eq(c.generation_grace_seconds, 61);
    ck_assert_int_eq(c.sweep_interval_seconds, 62);
    ck_assert_int_eq(c.checkpoint_ttl_hours, 63);
    ck_assert_int_eq(c.gc_visibility_seconds, 0);
    ck_assert_int_eq(c.gc_young_seconds, 0);
    ck_assert_int_eq(c.workers, 64);
    ck_assert_int_eq(c.log_level, LOG_LEVEL_DEBUG);
    ck_assert(c.log_level_given);
    ck_assert_int_eq(c.drain_seconds, 0);
    ck_assert_int_eq(c.staging_keep_seconds, 64);
    config_release(&c);
}
END_TEST

START_TEST(test_config__what_daemons_write_for_unset_is_unset)
{
    struct cairn_error err;
    struct config c;
    ck_ok(parse(&c,
                "{\"checkpoint_store\":{\"kind\":\"s3\",\"s3\":{\"bucket\":\"b\",\"prefix\":\"\","
                "\"endpoint\":\"\",\"region\":\"\",\"profile\":\"\"}}}",
                &err));
    ck_assert_ptr_null(c.s3.prefix);
    ck_assert_ptr_null(c.s3.endpoint);
    ck_assert_ptr_null(c.s3.region);
    ck_assert_ptr_null(c.s3.profile);
    config_release(&c);
}
END_TEST

START_TEST(test_config__unknown_keys_are_named_with_their_path)
{
    check_refused("{\"checkpoint_dirs\": \"/a\"}", ": checkpoint_dirs ");
    check_refused("{\"checkpoint_store\": {\"kind\": \"dir\", \"dir\": {}}}",
                  ": checkpoint_store.dir ");
    check_refused(
        "{\"checkpoint_store\": {\"kind\": \"s3\", \"s3\": {\"bucket\": \"b\", \"Region\": 1}}}",
        ": checkpoint_store.s3.Region ");
    check_refused("{\"\\u001b[2J\": 1}", "\\x1b[2J");
}
END_TEST

START_TEST(test_config__wrong_types_and_values_are_named)
{
    check_refused("[]", "object");
    check_refused("{", "line 1");
    check_refused("{} x", "line 1");
    check_refused("{\"workers\": 1, \"workers\": 2}", "duplicate");
    check_refused("{\"checkpoint_store\": \"s3\"}", "checkpoint_store must be an object");
    check_refused("{\"checkpoint_store\": {\"kind\": \"gs\"}}", "\"dir\" or \"s3\"");
    check_refused("{\"checkpoint_store\": {\"kind\": \"s3\"}}", "bucket");
    check_refused("{\"checkpoint_store\": {\"s3\": {\"bucket\": \"b\"}}}", "kind");
    check_refused("{\"checkpoint_store\": {\"kind\": \"s3\", \"s3\": {\"bucket\": \"\"}}}",
                  "bucket must not be empty");
    check_refused("{\"checkpoint_dir\": 7}", "checkpoint_dir must be a string");
    check_refused("{\"checkpoint_dir\": \"\"}", "empty");
    check_refused("{\"checkpoint_dir\": \"a/b\"}", "absolute");
    check_refused("{\"state_dir\": null}", "state_dir");
    check_refused("{\"workers\": 65}", "0 and 64");
    check_refused("{\"workers\": -1}", "0 and 64");
    check_refused("{\"workers\": 1.5}", "whole");
    check_refused("{\"workers\": \"2\"}", "whole");
    check_refused("{\"fetch_budget_seconds\": 0}", "fetch_budget_seconds");
    check_refused("{\"checkpoint_ttl_hours\": 9223372036854775807}", "checkpoint_ttl_hours");
    check_refused("{\"cache_bytes\": 10}", "cache_bytes");
    check_refused("{\"cache_bytes\": \"10X\"}", "cache_bytes");
    check_refused("{\"cache_bytes\": \"9223372036854775808\"}", "cache_bytes");
    check_refused("{\"listen_mode\": 600}", "octal");
    check_refused("{\"listen_mode\": \"0680\"}", "octal");
    check_refused("{\"listen_mode\": \"1777\"}", "0777");
    check_refused("{\"materialise\": \"sometimes\"}", "\"second\" or \"always\" or \"never\"");
    check_refused("{\"log_level\": 6}", "log_level");
    check_refused(
        "{\"checkpoint_store\":{\"kind\":\"s3\",\"s3\":{\"bucket\":\"b\",\"force_path_style\":1}}}",
        "true or false");
}
END_TEST

START_TEST(test_config__a_file_is_bounded_and_must_be_there)
{
    struct cairn_error err;
    struct config c;
    char path[512];
    snprintf(path, sizeof(path), "%s/c.json", testing_tmpdir());
    config_init(&c);
    ck_fails(config_read(&c, path, NULL, &err), CAIRN_NOT_FOUND);
    ck_assert(strstr(err.message, path) != NULL);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i <= CONFIG_FILE_MAX; i++)
        putc(' ', f);
    ck_assert_int_eq(fclose(f), 0);
    ck_fails(config_read(&c, path, NULL, &err), CAIRN_INVALID);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs("{\"workers\": 3}", f);
    ck_assert_int_eq(fclose(f), 0);
    ck_ok(config_read(&c, path, NULL, &err));
    ck_assert_int_eq(c.workers, 3);
    config_release(&c);
}
END_TEST

TESTING_MAIN(config, test_config__an_empty_object_is_the_defaults, test_config__every_key_is_kept,
             test_config__what_daemons_write_for_unset_is_unset,
             test_config__unknown_keys_are_named_with_their_path,
             test_config__wrong_types_and_values_are_named,
             test_config__a_file_is_bounded_and_must_be_there)
