/* The one place that says what an answer of S3, or the lack of one, means: every outcome of one
 * attempt (HTTP status and S3 error code, or a libcurl code) becomes an error class and hints for
 * whoever retries. Pure functions, thread-safe. */
#ifndef CAIRN_S3_STATUS_H
#define CAIRN_S3_STATUS_H

#include "s3/xml.h"

#include <stdint.h>

/* How one attempt ended. Success: http is 2xx, curl 0, code "" and local 0. */
struct s3_outcome {
    int http; /* 0: no answer */
    int curl; /* CURLcode; 0: the exchange was complete */
    /* CAIRN_TIMEOUT, CAIRN_CANCELLED or any other class that arose on this side, with detail and
     * sys_errno; nothing else counts then. */
    int local;
    int sys_errno;
    struct s3_fault fault;  /* code: what S3 said, or one of S3_OWN_* */
    int64_t retry_after_ns; /* 0: nothing said */
};

/* Faults that the clients find themselves, in the same table. */
#define S3_OWN_LONG_BODY     "BodyTooLong"       /* more bytes than were announced or asked for */
#define S3_OWN_SHORT_BODY    "BodyTooShort"      /* fewer bytes than were announced */
#define S3_OWN_RANGE_IGNORED "RangeIgnored"      /* 200 with something else than was asked for */
#define S3_OWN_BAD_XML       "UnreadableXml"     /* a cut or broken document in a 200 */
#define S3_OWN_BAD_ANSWER    "UnusableAnswer"    /* a header that must be there is not */
#define S3_OWN_BAD_DIGEST    "DigestMismatch"    /* the bytes are not those of the ETag */
#define S3_OWN_OBJECT_SHORT  "ObjectTooShort"    /* the object ends before what was asked for */
#define S3_OWN_FAR_REDIRECT  "RedirectRefused"   /* to a host outside the endpoint's domain */
#define S3_OWN_DISORDER      "ListingOutOfOrder" /* a page that goes back, or repeats */

enum s3_hint {
    S3_HINT_THROTTLE = 1, /* slow the whole process down */
    S3_HINT_REFRESH = 2,  /* worth one more attempt with fresh credentials */
    S3_HINT_SKEW = 4,     /* the clocks differ */
    S3_HINT_REGION = 8,   /* another region or endpoint */
};

struct s3_verdict {
    int error_class; /* CAIRN_OK for success */
    int sys_errno;
    unsigned hints; /* enum s3_hint */
};

/* The outcome of what went wrong on this side, and of a fault found by a client (S3_OWN_*, or a
 * code of S3). The text is cut to what there is room for. */
void s3_outcome_local(struct s3_outcome *o, int error_class, int sys_errno, const char *text);
void s3_outcome_own(struct s3_outcome *o, const char *code, const char *text);

struct s3_verdict s3_judge(const struct s3_outcome *o);

/* "CURLE_COULDNT_CONNECT (Failed to connect …)", "HTTP 503 SlowDown (Reduce your request rate)";
 * "(no detail)" where there is none. */
void s3_describe(const struct s3_outcome *o, char *out, size_t size);

#endif
