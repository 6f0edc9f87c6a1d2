#include "base/util.h"
#include "s3/status.h"
#include "tests/lib/testing.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>

static struct s3_outcome answer(int http, const char *code)
{
    struct s3_outcome o = {.http = http};
    s3_outcome_own(&o, code, "");
    return o;
}

/* What DESIGN says of each, and what their neighbours follow from. */
static const struct {
    int http;
    const char *code;
    int error_class;
    unsigned hints;
} answers[] = {
    {200, "", CAIRN_OK, 0},
    {204, "", CAIRN_OK, 0},
    {206, "", CAIRN_OK, 0},
    {404, "NoSuchKey", CAIRN_NOT_FOUND, 0},
    {404, "NoSuchBucket", CAIRN_PERMANENT, 0},
    {404, "", CAIRN_PERMANENT, 0}, /* another server: nothing is said to be missing */
    {404, "NoSuchWebsiteConfiguration", CAIRN_PERMANENT, 0},
    {400, "", CAIRN_PERMANENT, 0},
    {400, "InvalidArgument", CAIRN_PERMANENT, 0},
    {400, "ExpiredToken", CAIRN_PERMANENT, S3_HINT_REFRESH},
    {400, "RequestTimeout", CAIRN_TRANSIENT, 0},
    {400, "IncompleteBody", CAIRN_TRANSIENT, 0},
    {400, "BadDigest", CAIRN_TRANSIENT, 0},
    {400, "AuthorizationHeaderMalformed", CAIRN_PERMANENT, S3_HINT_REGION},
    {401, "", CAIRN_PERMANENT, S3_HINT_REFRESH},
    {403, "", CAIRN_PERMANENT, S3_HINT_REFRESH},
    {403, "AccessDenied", CAIRN_PERMANENT, S3_HINT_REFRESH},
    {403, "InvalidAccessKeyId", CAIRN_PERMANENT, S3_HINT_REFRESH},
    {403, "RequestTimeTooSkewed", CAIRN_PERMANENT, S3_HINT_SKEW},
    {403, "QuotaExceeded", CAIRN_NO_SPACE, 0},
    {405, "MethodNotAllowed", CAIRN_PERMANENT, 0},
    {408, "", CAIRN_TRANSIENT, 0},
    {409, "OperationAborted", CAIRN_TRANSIENT, 0},
    {412, "PreconditionFailed", CAIRN_TRANSIENT, 0},
    {416, "InvalidRange", CAIRN_CORRUPT, 0},
    {429, "", CAIRN_TRANSIENT, S3_HINT_THROTTLE},
    {429, "TooManyRequests", CAIRN_TRANSIENT, S3_HINT_THROTTLE},
    {500, "", CAIRN_TRANSIENT, 0},
    {500, "InternalError", CAIRN_TRANSIENT, 0},
    {501, "NotImplemented", CAIRN_PERMANENT, 0},
    {502, "", CAIRN_TRANSIENT, 0},
    {503, "", CAIRN_TRANSIENT, S3_HINT_THROTTLE},
    {503, "SlowDown", CAIRN_TRANSIENT, S3_HINT_THROTTLE},
    {503, "ServiceUnavailable", CAIRN_TRANSIENT, S3_HINT_THROTTLE},
    {504, "", CAIRN_TRANSIENT, 0},
    {507, "", CAIRN_NO_SPACE, 0},
    {599, "", CAIRN_TRANSIENT, 0},
    {301, "", CAIRN_PERMANENT, S3_HINT_REGION},
    {301, "PermanentRedirect", CAIRN_PERMANENT, S3_HINT_REGION},
    {307, "TemporaryRedirect", CAIRN_PERMANENT, S3_HINT_REGION},
    {200, "InternalError", CAIRN_TRANSIENT, 0},
    {200, "SlowDown", CAIRN_TRANSIENT, S3_HINT_THROTTLE},
    {200, "AccessDenied", CAIRN_PERMANENT, S3_HINT_REFRESH},
    {200, "NeverHeardOf", CAIRN_TRANSIENT, 0},
    {200, S3_OWN_BAD_DIGEST, CAIRN_CORRUPT, 0},
    {206, S3_OWN_OBJECT_SHORT, CAIRN_CORRUPT, 0},
    {206, S3_OWN_SHORT_BODY, CAIRN_TRANSIENT, 0},
    {206, S3_OWN_LONG_BODY, CAIRN_TRANSIENT, 0},
    {200, S3_OWN_RANGE_IGNORED, CAIRN_TRANSIENT, 0},
    {200, S3_OWN_BAD_XML, CAIRN_TRANSIENT, 0},
    {302, S3_OWN_FAR_REDIRECT, CAIRN_PERMANENT, 0},
    {0, "", CAIRN_TRANSIENT, 0},
};

START_TEST(test_s3_status__each_answer_has_its_class)
{
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct s3_outcome o = answer(answers[i].http, answers[i].code);
        struct s3_verdict v = s3_judge(&o);
        ck_assert_msg(v.error_class == answers[i].error_class, "%d %s: %s", answers[i].http,
                      answers[i].code, cairn_class_name(v.error_class));
        ck_assert_msg(v.hints == answers[i].hints, "%d %s: hints %u", answers[i].http,
                      answers[i].code, v.hints);
    }
}
END_TEST

START_TEST(test_s3_status__no_throttling_is_read_as_missing_or_final)
{
    static const int statuses[] = {429, 500, 502, 503, 504, 509};
    static const char *const codes[] = {"", "SlowDown", "ServiceUnavailable", "Unknown",
                                        "InternalError"};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
        for (size_t j = 0; j < ARRAY_SIZE(codes); j++) {
            struct s3_outcome o = answer(statuses[i], codes[j]);
            ck_assert_int_eq(s3_judge(&o).error_class, CAIRN_TRANSIENT);
        }
}
END_TEST

static const struct {
    int curl, error_class;
    const char *name;
} transports[] = {
    {CURLE_COULDNT_RESOLVE_HOST, CAIRN_TRANSIENT, "CURLE_COULDNT_RESOLVE_HOST"},
    {CURLE_COULDNT_CONNECT, CAIRN_TRANSIENT, "CURLE_COULDNT_CONNECT"},
    {CURLE_OPERATION_TIMEDOUT, CAIRN_TRANSIENT, "CURLE_OPERATION_TIMEDOUT"},
    {CURLE_PARTIAL_FILE, CAIRN_TRANSIENT, "CURLE_PARTIAL_FILE"},
    {CURLE_GOT_NOTHING, CAIRN_TRANSIENT, "CURLE_GOT_NOTHING"},
    {CURLE_RECV_ERROR, CAIRN_TRANSIENT, "CURLE_RECV_ERROR"},
    {CURLE_SEND_ERROR, CAIRN_TRANSIENT, "CURLE_SEND_ERROR"},
    {CURLE_SSL_CONNECT_ERROR, CAIRN_TRANSIENT, "CURLE_SSL_CONNECT_ERROR"},
    {CURLE_PEER_FAILED_VERIFICATION, CAIRN_PERMANENT, "CURLE_PEER_FAILED_VERIFICATION"},
    {CURLE_SSL_CACERT_BADFILE, CAIRN_PERMANENT, "CURLE_SSL_CACERT_BADFILE"},
    {CURLE_UNSUPPORTED_PROTOCOL, CAIRN_TRANSIENT, "CURLE_UNSUPPORTED_PROTOCOL"},
    {CURLE_OUT_OF_MEMORY, CAIRN_INTERNAL, "CURLE_OUT_OF_MEMORY"},
    {CURLE_LDAP_CANNOT_BIND, CAIRN_PERMANENT, "CURLE_38"},
};

START_TEST(test_s3_status__each_transport_error_has_its_class_and_name)
{
    for (size_t i = 0; i < ARRAY_SIZE(transports); i++) {
        struct s3_outcome o = {.curl = transports[i].curl};
        char text[200], want[200];
        ck_assert_int_eq(s3_judge(&o).error_class, transports[i].error_class);
        s3_describe(&o, text, sizeof(text));
        snprintf(want, sizeof(want), "%s (no detail)", transports[i].name);
        ck_assert_str_eq(text, want);
    }
}
END_TEST

START_TEST(test_s3_status__a_local_cause_wins)
{
    struct s3_outcome o = answer(503, "SlowDown");
    s3_outcome_local(&o, CAIRN_CANCELLED, ECANCELED, "cancelled");
    struct s3_verdict v = s3_judge(&o);
    ck_assert_int_eq(v.error_class, CAIRN_CANCELLED);
    ck_assert_int_eq(v.sys_errno, ECANCELED);
    ck_assert_uint_eq(v.hints, 0);
}
END_TEST

START_TEST(test_s3_status__describes_in_one_line_never_empty)
{
    char text[300];
    struct s3_outcome o = answer(503, "SlowDown");
    s3_describe(&o, text, sizeof(text));
    ck_assert_str_eq(text, "HTTP 503 SlowDown (no detail)");
    o = answer(500, "");
    s3_describe(&o, text, sizeof(text));
    ck_assert_str_eq(text, "HTTP 500 (no detail)");
    o = (struct s3_outcome){0};
    s3_describe(&o, text, sizeof(text));
    ck_assert_str_eq(text, "no answer (no detail)");
}
END_TEST

TESTING_MAIN(s3_status, test_s3_status__each_answer_has_its_class,
             test_s3_status__no_throttling_is_read_as_missing_or_final,
             test_s3_status__each_transport_error_has_its_class_and_name,
             test_s3_status__a_local_cause_wins, test_s3_status__describes_in_one_line_never_empty)
