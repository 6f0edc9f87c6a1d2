/* A client of the service: HTTP/1.1 over its Unix socket, one request at a time on one connection.
 * Every wait is bounded by the op. Not thread-safe. */
#ifndef CAIRN_CLI_HTTP_H
#define CAIRN_CLI_HTTP_H

#include "base/buf.h"
#include "base/jval.h"
#include "base/op.h"

struct http_client;

/* transient: nobody listens there. The caller owns *out. */
CAIRN_MUST_CHECK int http_client_open(const char *socket, const struct cairn_op *op,
                                      struct http_client **out, struct cairn_error *err);
void http_client_close(struct http_client *c); /* NULL is allowed */

/* Takes the next bytes of a body; non-zero ends the call with that class and *err. */
typedef int http_sink(void *ctx, const void *data, size_t len, struct cairn_error *err);

/* Ask. body (JSON, may be NULL) is sent as it is. The body of a 2xx answer goes to sink (which may
 * be NULL). An answer of the service's that tells of an error comes back as its class, errno and
 * message; one that is none, or is cut: transient. The connection is of no more use after an error
 * that is not the service's. */
CAIRN_MUST_CHECK int http_client_ask(struct http_client *c, const struct cairn_op *op,
                                     const char *method, const char *path, const struct buf *body,
                                     http_sink *sink, void *ctx, struct cairn_error *err);
/* The same, and the answer is a JSON object. The caller owns *out. */
CAIRN_MUST_CHECK int http_client_json(struct http_client *c, const struct cairn_op *op,
                                      const char *method, const char *path, const struct buf *body,
                                      struct jval **out, struct cairn_error *err);

/* Append text so that it is one component of a path, or the value of a parameter. */
CAIRN_MUST_CHECK int http_client_escape(struct buf *out, const char *text, bool keep_slashes,
                                        struct cairn_error *err);

#endif
