/* AWS Signature Version 4 in its header form, as S3 wants it: the path is percent-encoded exactly
 * once and never normalised, the payload's hash is always a part.
 *
 * Source: "Signature Calculations for the Authorization Header: Transferring Payload in a Single
 * Chunk", Amazon S3 API Reference. Checked against AWS's published vectors (tests/fixtures).
 * Pure functions, thread-safe. Errors: internal (memory). */
#ifndef CAIRN_S3_SIGV4_H
#define CAIRN_S3_SIGV4_H

#include "base/buf.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

#define SIGV4_HASH_TEXT 65 /* hex of SHA-256 and a NUL */
/* SHA-256 of no bytes. */
#define SIGV4_EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* Append data percent-encoded once: all but A-Z a-z 0-9 - . _ ~ becomes %XX with upper-case
 * digits; '/' stays as it is when slash is true. */
CAIRN_MUST_CHECK int sigv4_encode(const void *data, size_t len, bool slash, struct buf *out,
                                  struct cairn_error *err);

struct sigv4_param {
    const char *name;
    const char *value; /* raw bytes, not encoded; "" for a sub-resource such as ?delete */
};

/* Append the canonical query string: each name and value encoded once, sorted by encoded name, then
 * encoded value, "name=" for an empty value. It is both what is signed and what is sent. At most 16
 * parameters (more: internal). */
CAIRN_MUST_CHECK int sigv4_query(const struct sigv4_param *params, size_t n, struct buf *out,
                                 struct cairn_error *err);

struct sigv4_header {
    const char *name; /* any case */
    const char *value;
};

struct sigv4_request {
    const char *method;
    const char *path;  /* encoded, as sent */
    const char *query; /* as sigv4_query made it; "" for none */
    const struct sigv4_header *headers;
    size_t n_headers;         /* all are signed; at most 16; must hold host and x-amz-date */
    const char *payload_hash; /* hex of SHA-256 */
    const char *region, *service;
    const char *amz_date; /* stamp_amz */
    const char *access_key, *secret;
};

/* The canonical request, and the list of signed headers ("host;x-amz-date"). Both are appended. */
CAIRN_MUST_CHECK int sigv4_canonical(const struct sigv4_request *r, struct buf *canonical,
                                     struct buf *signed_headers, struct cairn_error *err);

/* The value of the Authorization header, appended. */
CAIRN_MUST_CHECK int sigv4_authorization(const struct sigv4_request *r, struct buf *out,
                                         struct cairn_error *err);

#endif
