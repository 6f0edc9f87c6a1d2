#include "base/util.h"
#include "s3/creds.h"
#include "tests/s3/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The chain from an environment of nothing but what a test sets; s3fs answers for endpoints. */
static struct s3_credentials *chain(const char *profile)
{
    struct cairn_error err;
    struct s3_creds_env env;
    struct s3_credentials *c = NULL;
    ck_ok(s3_creds_env_read(profile, &env, &err));
    ck_ok(s3_credentials_new(&env, &c, &err));
    return c;
}

static void no_keys(void)
{
    server_start();
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
}

static void expect(struct s3_credentials *c, const char *key, const char *secret, const char *token)
{
    struct cairn_error err;
    CLEANUP_CREDS struct s3_creds k = {0};
    ck_ok(s3_credentials_get(c, NULL, &k, &err));
    ck_assert_str_eq(k.access_key, key);
    ck_assert_str_eq(k.secret, secret);
    ck_assert_str_eq(k.token ? k.token : "", token);
}

/* What an endpoint says: keys that end so many seconds from now. */
static void answer_with(const char *path, const char *key, int seconds)
{
    char line[600], until[40];
    time_t t = time(NULL) + seconds;
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(until, sizeof(until), "%Y-%m-%dT%H:%M:%SZ", &tm);
    snprintf(line, sizeof(line),
             "GET key=%s do raw {\"Code\":\"Success\",\"AccessKeyId\":\"%s\","
             "\"SecretAccessKey\":\"S%s\",\"Token\":\"T%s\",\"Expiration\":\"%s\"}",
             path, key, key, key, until);
    rule(line);
}

static void container(const char *path)
{
    char url[200];
    snprintf(url, sizeof(url), "%s%s", s3fs_endpoint(fs), path);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
}

START_TEST(test_s3_creds__the_environment_comes_first)
{
    server_start();
    setenv("AWS_SESSION_TOKEN", "tok", 1);
    struct s3_credentials *c = chain(NULL);
    expect(c, "key", "secret", "tok");
    expect(c, "key", "secret", "tok");
    ck_assert_uint_eq(s3_credentials_loads(c), 1);
    s3_credentials_free(c);
    s3fs_stop(fs);
}
END_TEST

START_TEST(test_s3_creds__then_the_shared_files_with_profiles)
{
    char path[300], config[300];
    struct cairn_error err;
    struct s3_creds k;
    server_start();
    snprintf(path, sizeof(path), "%s/credentials", testing_tmpdir());
    snprintf(config, sizeof(config), "%s/config", testing_tmpdir());
    write_file(path, "[default]\naws_access_key_id=D\naws_secret_access_key=DS\n"
                     "[p]\naws_access_key_id=P\naws_secret_access_key=PS\naws_session_token=PT\n");
    write_file(config,
               "[profile q]\naws_access_key_id=Q\naws_secret_access_key=QS\nregion=eu-north-1\n");
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    setenv("AWS_CONFIG_FILE", config, 1);
    /* A profile that the configuration names wins over the environment's keys. */
    struct s3_credentials *c = chain("p");
    expect(c, "P", "PS", "PT");
    s3_credentials_free(c);
    unsetenv("AWS_ACCESS_KEY_ID");
    c = chain(NULL);
    expect(c, "D", "DS", "");
    s3_credentials_free(c);
    setenv("AWS_PROFILE", "q", 1);
    c = chain(NULL);
    expect(c, "Q", "QS", "");
    s3_credentials_free(c);
    struct s3_creds_env env;
    char *region = NULL;
    ck_ok(s3_creds_env_read(NULL, &env, &err));
    ck_ok(s3_creds_region(&env, &region, &err));
    ck_assert_str_eq(region, "eu-north-1");
    free(region);
    s3_creds_env_release(&env);
    /* One that is not there is an error by its name, not a reason to look elsewhere. */
    c = chain("absent");
    ck_fails(s3_credentials_get(c, NULL, &k, &err), CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, "\"absent\""));
    s3_credentials_free(c);
    s3fs_stop(fs);
}
END_TEST

START_TEST(test_s3_creds__a_container_endpoint_never_by_a_proxy)
{
    no_keys();
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    container("/creds");
    answer_with("/creds", "C", 3600);
    struct s3_credentials *c = chain(NULL);
    expect(c, "C", "SC", "TC");
    s3_credentials_free(c);
    s3fs_stop(fs);
}
END_TEST

START_TEST(test_s3_creds__a_container_endpoint_elsewhere_is_refused)
{
    struct cairn_error err;
    struct s3_creds k;
    no_keys();
    static const char *const far[] = {"http://example.org/c", "http://127.0.0.1.example.org/c",
                                      "http://127.0.0.1@example.org/", "ftp://127.0.0.1/"};
    for (size_t i = 0; i < ARRAY_SIZE(far); i++) {
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", far[i], 1);
        struct s3_credentials *c = chain(NULL);
        ck_fails(s3_credentials_get(c, NULL, &k, &err), CAIRN_PERMANENT);
        ck_assert_ptr_nonnull(strstr(err.message, "neither https nor this machine"));
        s3_credentials_free(c);
    }
    s3fs_stop(fs);
}
END_TEST

static void imds(void)
{
    unsetenv("AWS_EC2_METADATA_DISABLED");
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s3fs_endpoint(fs), 1);
}

START_TEST(test_s3_creds__instance_metadata_by_a_session)
{
    no_keys();
    imds();
    rule("PUT key=/latest/api/token do raw session");
    answer_with("security-credentials/role-1", "I", 3600);
    rule("GET key=security-credentials/ do raw role-1");
    struct s3_credentials *c = chain(NULL);
    expect(c, "I", "SI", "TI");
    ck_assert_uint_eq(stats().requests, 3);
    s3_credentials_free(c);
    s3fs_stop(fs);
}
END_TEST

START_TEST(test_s3_creds__a_metadata_address_that_is_silent_costs_five_seconds)
{
    struct cairn_error err;
    struct s3_creds k;
    no_keys();
    imds();
    rule("ANY do hole");
    struct s3_credentials *c = chain(NULL);
    int64_t start = clock_monotonic();
    ck_fails(s3_credentials_get(c, NULL, &k, &err), CAIRN_PERMANENT);
    ck_assert_double_lt(seconds_since(start), 9); /* two requests, five seconds for both */
    ck_assert_ptr_nonnull(strstr(err.message, "no credentials: instance metadata"));
    /* A caller leaves at its own deadline, and stopping does not wait for the load. */
    struct cairn_op op;
    cairn_op_init(&op, 0.2, NULL);
    start = clock_monotonic();
    ck_fails(s3_credentials_get(c, &op, &k, &err), CAIRN_TIMEOUT);
    s3_credentials_free(c);
    ck_assert_double_lt(seconds_since(start), 4); /* another five */
    s3fs_stop(fs);
}
END_TEST

static struct s3_credentials *shared;
static atomic_int failures;

static void *getter(void *arg)
{
    (void)arg;
    struct cairn_error err;
    for (int i = 0; i < 60; i++) {
        CLEANUP_CREDS struct s3_creds k = {0};
        if (s3_credentials_get(shared, NULL, &k, &err) || !k.token)
            atomic_fetch_add(&failures, 1);
        usleep(50000);
    }
    return NULL;
}

START_TEST(test_s3_creds__one_thread_renews_for_all_ahead_of_the_end)
{
    pthread_t t[8];
    no_keys();
    container("/creds");
    /* Each load gives 4 s: three quarters of them are used. Times are of the rules' making. */
    answer_with("/creds", "A", 4);
    shared = chain(NULL);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, getter, NULL), 0);
    usleep(500000);
    ck_assert_uint_eq(stats().requests, 1);
    s3fs_clear(fs);
    answer_with("/creds", "B", 3600);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    usleep(1500000);
    ck_assert_int_eq(atomic_load(&failures), 0);
    expect(shared, "B", "SB", "TB");
    ck_assert_uint_eq(stats().requests, 2);
    s3_credentials_free(shared);
    s3fs_stop(fs);
}
END_TEST

START_TEST(test_s3_creds__valid_ones_outlive_a_failing_renewal)
{
    struct cairn_error err;
    no_keys();
    container("/creds");
    answer_with("/creds", "A", 8);
    struct s3_credentials *c = chain(NULL);
    expect(c, "A", "SA", "TA");
    s3fs_clear(fs);
    rule("ANY do status=500");
    /* Renewed when three quarters of their time are over, in vain. */
    for (int i = 0; i < 900 && s3_credentials_loads(c) < 2; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    ck_assert_uint_ge(s3_credentials_loads(c), 2);
    expect(c, "A", "SA", "TA");
    sleep(4);
    struct s3_creds k;
    ck_fails(s3_credentials_get(c, NULL, &k, &err), CAIRN_TRANSIENT);
    /* The failure is not remembered. */
    s3fs_clear(fs);
    answer_with("/creds", "B", 3600);
    expect(c, "B", "SB", "TB");
    s3_credentials_free(c);
    s3fs_stop(fs);
}
END_TEST

START_TEST(test_s3_creds__a_rotated_file_is_read_again_when_the_old_keys_are_refused)
{
    char path[300];
    struct cairn_error err;
    CLEANUP_BUF struct buf out = BUF_INIT(1 << 20);
    no_keys();
    snprintf(path, sizeof(path), "%s/credentials", testing_tmpdir());
    write_file(path, "[default]\naws_access_key_id=key\naws_secret_access_key=secret\n");
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    struct s3_config c = store_config();
    store_open(&c);
    ck_ok(put(NULL, "a", "1", &err));
    s3fs_rotate(fs, "key2", "secret2", "token2");
    write_file(path, "[default]\naws_access_key_id=key2\naws_secret_access_key=secret2\n"
                     "aws_session_token=token2\n");
    ck_ok(get(NULL, "a", &out, &err));
    ck_assert_uint_eq(stats().refused, 1);
    ck_ok(put(NULL, "b", "2", &err));
    ck_assert_uint_eq(stats().refused, 1);
    /* Refused again without new ones: one more look, then the error, and no secret in it. */
    s3fs_rotate(fs, "key3", "secret3", "");
    ck_fails(put(NULL, "c", "3", &err), CAIRN_PERMANENT);
    ck_assert_ptr_nonnull(strstr(err.message, "ExpiredToken"));
    ck_assert_uint_eq(stats().refused, 2);
    ck_assert_ptr_null(strstr(err.message, "secret"));
    ck_assert_ptr_null(strstr(err.message, "token2"));
    store_stop();
}
END_TEST

static void *refused(void *arg)
{
    struct cairn_error err;
    bool changed;
    (void)arg;
    if (s3_credentials_refused(shared, NULL, 1, &changed, &err) || changed)
        atomic_fetch_add(&failures, 1);
    return NULL;
}

START_TEST(test_s3_creds__many_refusals_load_once)
{
    pthread_t t[16];
    server_start();
    shared = chain(NULL);
    expect(shared, "key", "secret", "");
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, refused, NULL), 0);
    for (int i = 0; i < 16; i++)
        pthread_join(t[i], NULL);
    ck_assert_int_eq(atomic_load(&failures), 0);
    ck_assert_uint_le(s3_credentials_loads(shared), 3);
    s3_credentials_free(shared);
    s3fs_stop(fs);
}
END_TEST

TESTING_MAIN(s3_creds, test_s3_creds__the_environment_comes_first,
             test_s3_creds__then_the_shared_files_with_profiles,
             test_s3_creds__a_container_endpoint_never_by_a_proxy,
             test_s3_creds__a_container_endpoint_elsewhere_is_refused,
             test_s3_creds__instance_metadata_by_a_session,
             test_s3_creds__a_metadata_address_that_is_silent_costs_five_seconds,
             test_s3_creds__one_thread_renews_for_all_ahead_of_the_end,
             test_s3_creds__valid_ones_outlive_a_failing_renewal,
             test_s3_creds__a_rotated_file_is_read_again_when_the_old_keys_are_refused,
             test_s3_creds__many_refusals_load_once)
