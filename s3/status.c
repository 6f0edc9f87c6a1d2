#include "s3/status.h"

#include "base/util.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What S3 says in words wins over the HTTP status; http 0 stands for any status. Sources: "Error
 * responses" of the Amazon S3 API Reference; rgw_common.cc of Ceph for its own additions. */
static const struct code_row {
    const char *code;
    int error_class, sys_errno;
    unsigned hints;
} codes[] = {
    {"NoSuchKey", CAIRN_NOT_FOUND, ENOENT, 0},
    {"NoSuchBucket", CAIRN_PERMANENT, 0, 0},
    {"InvalidBucketName", CAIRN_PERMANENT, 0, 0},
    {"AccessDenied", CAIRN_PERMANENT, EACCES, S3_HINT_REFRESH},
    {"AllAccessDisabled", CAIRN_PERMANENT, EACCES, 0},
    {"AccountProblem", CAIRN_PERMANENT, EACCES, 0},
    {"UserSuspended", CAIRN_PERMANENT, EACCES, 0},
    {"InvalidAccessKeyId", CAIRN_PERMANENT, EACCES, S3_HINT_REFRESH},
    {"SignatureDoesNotMatch", CAIRN_PERMANENT, EACCES, S3_HINT_REFRESH},
    {"ExpiredToken", CAIRN_PERMANENT, EACCES, S3_HINT_REFRESH},
    {"ExpiredTokenException", CAIRN_PERMANENT, EACCES, S3_HINT_REFRESH},
    {"InvalidToken", CAIRN_PERMANENT, EACCES, S3_HINT_REFRESH},
    {"TokenRefreshRequired", CAIRN_PERMANENT, EACCES, S3_HINT_REFRESH},
    {"RequestTimeTooSkewed", CAIRN_PERMANENT, EACCES, S3_HINT_SKEW},
    {"RequestExpired", CAIRN_PERMANENT, EACCES, S3_HINT_SKEW},
    {"AuthorizationHeaderMalformed", CAIRN_PERMANENT, EINVAL, S3_HINT_REGION},
    {"IllegalLocationConstraintException", CAIRN_PERMANENT, EINVAL, S3_HINT_REGION},
    {"PermanentRedirect", CAIRN_PERMANENT, 0, S3_HINT_REGION},
    {"TemporaryRedirect", CAIRN_PERMANENT, 0, S3_HINT_REGION},
    {"Redirect", CAIRN_PERMANENT, 0, S3_HINT_REGION},
    {"QuotaExceeded", CAIRN_NO_SPACE, EDQUOT, 0},
    {"InsufficientCapacity", CAIRN_NO_SPACE, ENOSPC, 0},
    {"XMinioStorageFull", CAIRN_NO_SPACE, ENOSPC, 0},
    {"InvalidRange", CAIRN_CORRUPT, 0, 0},
    {"PreconditionFailed", CAIRN_TRANSIENT, EAGAIN, 0},
    {"OperationAborted", CAIRN_TRANSIENT, EAGAIN, 0},
    {"ConditionalRequestConflict", CAIRN_TRANSIENT, EAGAIN, 0},
    {"ConcurrentModification", CAIRN_TRANSIENT, EAGAIN, 0},
    {"InternalError", CAIRN_TRANSIENT, EIO, 0},
    {"RequestTimeout", CAIRN_TRANSIENT, EAGAIN, 0},
    {"IncompleteBody", CAIRN_TRANSIENT, EAGAIN, 0},
    /* The hash is of the bytes we hold: what arrived was damaged on the way. */
    {"BadDigest", CAIRN_TRANSIENT, EAGAIN, 0},
    {"XAmzContentSHA256Mismatch", CAIRN_TRANSIENT, EAGAIN, 0},
    {"SlowDown", CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {"ServiceUnavailable", CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {"Busy", CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {"Throttling", CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {"ThrottlingException", CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {"TooManyRequests", CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {"RequestLimitExceeded", CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {"BandwidthLimitExceeded", CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {"EntityTooLarge", CAIRN_PERMANENT, EFBIG, 0},
    {"KeyTooLongError", CAIRN_INVALID, ENAMETOOLONG, 0},
    {"KeyTooLong", CAIRN_INVALID, ENAMETOOLONG, 0},
    {"InvalidURI", CAIRN_INVALID, EINVAL, 0},

    {S3_OWN_LONG_BODY, CAIRN_TRANSIENT, EIO, 0},
    {S3_OWN_SHORT_BODY, CAIRN_TRANSIENT, EIO, 0},
    {S3_OWN_RANGE_IGNORED, CAIRN_TRANSIENT, EIO, 0},
    {S3_OWN_BAD_XML, CAIRN_TRANSIENT, EBADMSG, 0},
    {S3_OWN_BAD_ANSWER, CAIRN_TRANSIENT, EBADMSG, 0},
    {S3_OWN_DISORDER, CAIRN_TRANSIENT, EBADMSG, 0},
    {S3_OWN_BAD_DIGEST, CAIRN_CORRUPT, 0, 0},
    {S3_OWN_OBJECT_SHORT, CAIRN_CORRUPT, 0, 0},
    {S3_OWN_FAR_REDIRECT, CAIRN_PERMANENT, 0, 0},
    /* Names of libs3 for what is none of S3's; the rest of them is transient, as silence is. */
    {"ServerFailedVerification", CAIRN_PERMANENT, 0, 0},
};

/* Where S3 said nothing that is known. The first row that matches counts. A bare 404 is no object's
 * absence: S3 names what is missing, so it is another server, or another path. */
static const struct http_row {
    int from, to;
    int error_class, sys_errno;
    unsigned hints;
} statuses[] = {
    {200, 299, CAIRN_OK, 0, 0},
    {300, 399, CAIRN_PERMANENT, 0, S3_HINT_REGION},
    {401, 401, CAIRN_PERMANENT, EACCES, S3_HINT_REFRESH},
    {403, 403, CAIRN_PERMANENT, EACCES, S3_HINT_REFRESH},
    {404, 404, CAIRN_PERMANENT, 0, 0},
    {408, 408, CAIRN_TRANSIENT, EAGAIN, 0},
    {409, 409, CAIRN_TRANSIENT, EAGAIN, 0},
    {412, 412, CAIRN_TRANSIENT, EAGAIN, 0},
    {413, 413, CAIRN_PERMANENT, EFBIG, 0},
    {414, 414, CAIRN_INVALID, ENAMETOOLONG, 0},
    {416, 416, CAIRN_CORRUPT, 0, 0},
    {425, 425, CAIRN_TRANSIENT, EAGAIN, 0},
    {429, 429, CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {400, 499, CAIRN_PERMANENT, 0, 0},
    {501, 501, CAIRN_PERMANENT, 0, 0},
    {503, 503, CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {505, 505, CAIRN_PERMANENT, 0, 0},
    {507, 507, CAIRN_NO_SPACE, ENOSPC, 0},
    {509, 509, CAIRN_TRANSIENT, EAGAIN, S3_HINT_THROTTLE},
    {500, 599, CAIRN_TRANSIENT, EIO, 0},
    {INT32_MIN, INT32_MAX, CAIRN_TRANSIENT, EIO, 0},
};

#define ROW(code, error_class, sys_errno)                                                          \
    {                                                                                              \
        code, #code, error_class, sys_errno, 0                                                     \
    }
/* Where a redirect led to may be gone: the way back is through the configured endpoint. */
#define ROW_PLACE(code, error_class, sys_errno)                                                    \
    {                                                                                              \
        code, #code, error_class, sys_errno, S3_HINT_REGION                                        \
    }
/* libcurl's codes that a request of ours can end with; any other is permanent. */
static const struct curl_row {
    int code;
    const char *name;
    int error_class, sys_errno;
    unsigned hints;
} curls[] = {
    /* What does not begin like an answer: bytes left over from the one before it, say. */
    ROW(CURLE_UNSUPPORTED_PROTOCOL, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_FAILED_INIT, CAIRN_INTERNAL, 0),
    ROW(CURLE_URL_MALFORMAT, CAIRN_PERMANENT, EINVAL),
    ROW(CURLE_COULDNT_RESOLVE_PROXY, CAIRN_TRANSIENT, EAGAIN),
    ROW_PLACE(CURLE_COULDNT_RESOLVE_HOST, CAIRN_TRANSIENT, EAGAIN),
    ROW_PLACE(CURLE_COULDNT_CONNECT, CAIRN_TRANSIENT, ECONNREFUSED),
    ROW(CURLE_WEIRD_SERVER_REPLY, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_REMOTE_ACCESS_DENIED, CAIRN_PERMANENT, EACCES),
    ROW(CURLE_HTTP2, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_PARTIAL_FILE, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_HTTP_RETURNED_ERROR, CAIRN_PERMANENT, 0),
    ROW(CURLE_WRITE_ERROR, CAIRN_INTERNAL, 0),
    ROW(CURLE_UPLOAD_FAILED, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_READ_ERROR, CAIRN_INTERNAL, 0),
    ROW(CURLE_OUT_OF_MEMORY, CAIRN_INTERNAL, ENOMEM),
    ROW(CURLE_OPERATION_TIMEDOUT, CAIRN_TRANSIENT, EAGAIN),
    ROW(CURLE_SSL_CONNECT_ERROR, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_ABORTED_BY_CALLBACK, CAIRN_INTERNAL, 0),
    ROW(CURLE_BAD_FUNCTION_ARGUMENT, CAIRN_INTERNAL, EINVAL),
    ROW(CURLE_INTERFACE_FAILED, CAIRN_PERMANENT, 0),
    ROW(CURLE_TOO_MANY_REDIRECTS, CAIRN_PERMANENT, 0),
    ROW(CURLE_GOT_NOTHING, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_SEND_ERROR, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_RECV_ERROR, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_SSL_CERTPROBLEM, CAIRN_PERMANENT, 0),
    ROW(CURLE_SSL_CIPHER, CAIRN_PERMANENT, 0),
    ROW(CURLE_PEER_FAILED_VERIFICATION, CAIRN_PERMANENT, 0),
    ROW(CURLE_BAD_CONTENT_ENCODING, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_SEND_FAIL_REWIND, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_SSL_CACERT_BADFILE, CAIRN_PERMANENT, 0),
    ROW(CURLE_SSL_SHUTDOWN_FAILED, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_AGAIN, CAIRN_TRANSIENT, EAGAIN),
    ROW(CURLE_SSL_ISSUER_ERROR, CAIRN_PERMANENT, 0),
    ROW(CURLE_SSL_PINNEDPUBKEYNOTMATCH, CAIRN_PERMANENT, 0),
    ROW(CURLE_SSL_INVALIDCERTSTATUS, CAIRN_PERMANENT, 0),
    ROW(CURLE_HTTP2_STREAM, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_PROXY, CAIRN_TRANSIENT, EIO),
    ROW(CURLE_UNRECOVERABLE_POLL, CAIRN_TRANSIENT, EIO),
};

static void copy_text(char *out, size_t size, const char *text)
{
    size_t n = strnlen(text, size - 1);
    memcpy(out, text, n);
    out[n] = 0;
}

void s3_outcome_local(struct s3_outcome *o, int error_class, int sys_errno, const char *text)
{
    o->local = error_class;
    o->sys_errno = sys_errno;
    copy_text(o->fault.message, sizeof(o->fault.message), text);
}

void s3_outcome_own(struct s3_outcome *o, const char *code, const char *text)
{
    copy_text(o->fault.code, sizeof(o->fault.code), code);
    copy_text(o->fault.message, sizeof(o->fault.message), text);
}

static const struct curl_row *find_curl(int curl)
{
    for (size_t i = 0; i < ARRAY_SIZE(curls); i++)
        if (curls[i].code == curl)
            return &curls[i];
    return NULL;
}

static const struct code_row *find_code(const char *code)
{
    for (size_t i = 0; *code && i < ARRAY_SIZE(codes); i++)
        if (strcmp(codes[i].code, code) == 0)
            return &codes[i];
    return NULL;
}

struct s3_verdict s3_judge(const struct s3_outcome *o)
{
    if (o->local)
        return (struct s3_verdict){.error_class = o->local, .sys_errno = o->sys_errno};
    const struct code_row *c = find_code(o->fault.code);
    if (c)
        return (struct s3_verdict){c->error_class, c->sys_errno, c->hints};
    if (o->curl) {
        const struct curl_row *r = find_curl(o->curl);
        return r ? (struct s3_verdict){r->error_class, r->sys_errno, r->hints}
                 : (struct s3_verdict){.error_class = CAIRN_PERMANENT};
    }
    if (!o->http)
        return (struct s3_verdict){.error_class = CAIRN_TRANSIENT, .sys_errno = EIO};
    /* An error inside a 200 that is not known is the server's, as a 500 is. */
    if (o->fault.code[0] && o->http >= 200 && o->http <= 299)
        return (struct s3_verdict){.error_class = CAIRN_TRANSIENT, .sys_errno = EIO};
    size_t i = 0;
    while (o->http < statuses[i].from || o->http > statuses[i].to)
        i++;
    return (struct s3_verdict){statuses[i].error_class, statuses[i].sys_errno, statuses[i].hints};
}

/* The text is in buf or static. */
static const char *curl_name(int curl, char buf[24])
{
    const struct curl_row *r = find_curl(curl);
    if (r)
        return r->name;
    snprintf(buf, 24, "CURLE_%d", curl);
    return buf;
}

void s3_describe(const struct s3_outcome *o, char *out, size_t size)
{
    const char *detail = o->fault.message[0] ? o->fault.message : "no detail";
    char name[24];
    if (o->local)
        snprintf(out, size, "%s", detail);
    else if (o->curl)
        snprintf(out, size, "%s (%s)", curl_name(o->curl, name), detail);
    else if (!o->http)
        snprintf(out, size, "%s (%s)", o->fault.code[0] ? o->fault.code : "no answer", detail);
    else
        snprintf(out, size, "HTTP %d%s%s (%s)", o->http, o->fault.code[0] ? " " : "", o->fault.code,
                 detail);
}
