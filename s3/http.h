/* One HTTP exchange at a time over kept-alive connections, by libcurl: nothing of S3 in it, no
 * redirect followed, no retry, nothing decided.
 *
 * Each running exchange has a slot (a connection and what libcurl needs around it) of its own;
 * slots are kept for the next one. A connection that the server closed meanwhile is replaced by
 * libcurl without the caller noticing. Every wait is bounded by the op, woken by its token, and by
 * stall_ns: that long without a byte in either direction ends the exchange as
 * CURLE_OPERATION_TIMEDOUT. Bodies are streamed; nothing here holds more than a buffer. A pool is
 * thread-safe; a request belongs to one thread. */
#ifndef CAIRN_S3_HTTP_H
#define CAIRN_S3_HTTP_H

#include "base/buf.h"
#include "base/op.h"
#include "s3/status.h"

#include <stdbool.h>
#include <stdint.h>

#define HTTP_CONNECT_NS (10 * 1000000000LL)
#define HTTP_STALL_NS   (10 * 1000000000LL)
/* After the last byte of a large body the server may be busy making it durable. */
#define HTTP_ANSWER_NS  (30 * 1000000000LL)
#define HTTP_REPORT_MAX ((size_t)64 * 1024) /* bytes of an error's body that are kept */

struct http_config {
    const char *ca_file;                     /* NULL: the system's */
    bool direct;                             /* never through a proxy, whatever the environment */
    int64_t connect_ns, stall_ns, answer_ns; /* 0: the defaults */
    unsigned keep;                           /* idle connections kept */
};

struct http_pool;

/* The text of config is copied. Errors: internal. */
CAIRN_MUST_CHECK int http_pool_new(const struct http_config *config, struct http_pool **out,
                                   struct cairn_error *err);
void http_pool_free(struct http_pool *pool); /* nobody may be using it; NULL is allowed */

/* What is sent. Either data, or len bytes of fd from off (read with pread). */
struct http_body {
    const void *data;
    int fd;
    uint64_t off, len;
};

/* Where the body of a 2xx goes: exactly as much as fits into dst, or onto the end of buf, or, as it
 * comes, to take, which gets cap bytes in all. What take has had it does not get again: `taken`
 * goes on counting from one exchange to the next, and the next one is to ask for the rest. */
struct http_sink {
    void *dst;
    size_t cap; /* of dst, or for take */
    struct buf *buf;
    size_t buf_start, max; /* buf is cut back to buf_start at the beginning; at most max on top */
    size_t got;            /* bytes of the body so far */
    /* Non-zero ends the exchange with that error, and sets refused: how much of the bytes it had is
     * not known, so nothing more is to be asked for. The time it takes is not the server's. */
    int (*take)(void *ctx, const void *data, size_t len, struct cairn_error *err);
    void *take_ctx;
    size_t taken;
    bool refused;
};

struct http_response {
    struct s3_outcome outcome;
    bool has_length; /* Content-Length was there */
    bool chunked;
    uint64_t length;
    bool has_range;                             /* a usable Content-Range: bytes from-to/total */
    uint64_t range_from, range_to, range_total; /* total UINT64_MAX: "*" */
    char etag[72];                              /* without quotes */
    int64_t last_modified;                      /* seconds since 1970; INT64_MIN: not said */
    int64_t date;
    char location[1024];
    char region[64];   /* x-amz-bucket-region */
    struct buf report; /* the body of an answer that is no 2xx; the caller releases it */
};

struct http_request {
    const char *method;         /* GET, HEAD, PUT, POST, DELETE */
    const char *url;            /* as it is to be sent: nothing is encoded, decoded or normalised */
    const char *const *headers; /* "Name: value" */
    size_t n_headers;
    const struct http_body *body; /* NULL: none */
    struct http_sink *sink;       /* NULL: a body is thrown away */
    /* Looks at the head of a 2xx before the first byte of its body; false: the exchange ends with
     * the fault that it put into res->outcome. NULL: everything is taken. */
    bool (*check)(void *ctx, struct http_response *res);
    void *ctx;
};

/* res is filled in every case. */
void http_exchange(struct http_pool *pool, const struct cairn_op *op,
                   const struct http_request *req, struct http_response *res);

#endif
