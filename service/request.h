/* One request and its answer, as a handler sees them.
 *
 * A handler is a plain function that may block. It runs on the lane that its route names (route.h),
 * on one thread, and owns *r and *out while it runs. It returns CAIRN_OK with *out filled, or a
 * class with *err filled, which becomes the answer {"error": …} (whatever *out had is dropped).
 *
 * r->op carries the route's deadline and a token that fires when the client hangs up or when the
 * service has drained for long enough: pass it on, and the handler leaves at once. Work that is to
 * outlive its client is a job of its own (lane_submit), for which the handler waits with op_wait.
 */
#ifndef CAIRN_SERVICE_REQUEST_H
#define CAIRN_SERVICE_REQUEST_H

#include "base/buf.h"
#include "base/jsonw.h"
#include "base/jval.h"
#include "base/op.h"
#include "store/ids.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct service;
struct route;

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_OTHER };

/* Who made the connection (SO_PEERCRED). */
struct peer {
    uid_t uid;
    gid_t gid;
    pid_t pid; /* 0: not known */
};

struct request {
    struct service *service;   /* borrowed */
    const struct route *route; /* borrowed */
    uint64_t number;           /* from 1; in logs and in the answer's X-Request-Id */
    uint64_t connection;       /* from 1; see part.connection_closed */
    enum http_method method;
    char id[ID_MAX + 1];     /* {id} of the route, checked; "" without one */
    const char *rest;        /* {rest} or {path} of the route, decoded; "" without one */
    const struct jval *body; /* a JSON object; NULL: no body was sent. Of routes with max_body */
    const struct buf *meta;  /* body's member "meta" as it is written, without white space */
    char *query;             /* as sent; NULL without one; request_query takes it apart */
    const char *if_none_match, *range, *if_range; /* headers; NULL without one */
    struct peer peer;
    struct cairn_op op;
    int64_t begin_ns; /* CLOCK_MONOTONIC, when its head was complete */
};

/* A body in pieces, of known length, made while it is sent: at most two pieces are in memory. */
struct body_source {
    uint64_t length;
    /* Append the next bytes, at least one and at most BODY_PIECE. On a lane, one call at a time. A
     * failure, or another length than was said, cuts the connection: the client sees a short body.
     */
    int (*read)(struct body_source *s, const struct cairn_op *op, struct buf *piece,
                struct cairn_error *err);
    void (*free)(struct body_source *s); /* on a lane or on the loop: must not block for long */
};
#define BODY_PIECE ((size_t)256 * 1024)

struct response {
    int status;                 /* 200 at first */
    const char *content_type;   /* literal; "application/json" at first */
    struct buf headers;         /* by response_header */
    struct buf body;            /* JSON; a line feed is added */
    struct body_source *source; /* in place of body; transferred */
    bool keep_open; /* this connection is never closed for idleness: something hangs on it */
    /* Called once, on a lane, if the answer did not reach the client's socket whole (or the handler
     * failed), e.g. to give back a lease nobody knows of; not called if it did. May be NULL. */
    void (*lost)(void *ctx);
    /* Called once, on the loop or a lane, when the answer is over, after lost; e.g. free. */
    void (*done)(void *ctx);
    void *ctx;
};

typedef int request_handler(struct request *r, struct response *out, struct cairn_error *err);

CAIRN_MUST_CHECK int response_header(struct response *out, struct cairn_error *err,
                                     const char *name, const char *fmt, ...) CAIRN_PRINTF(4, 5);
/* A JSON writer into out->body. */
#define RESPONSE_JSON(out, err) JSONW_INIT(&(out)->body, (err))

/* The members of a JSON body, or the parameters of a query. */
enum field_type {
    FIELD_TEXT,    /* const char **: borrowed from the request */
    FIELD_ID,      /* const char **: the same, a valid record id */
    FIELD_BOOL,    /* bool * */
    FIELD_COUNT,   /* uint64_t *: 0 to 2^63 - 1; too large a number saturates */
    FIELD_SECONDS, /* double *: negative or null: as absent; too large a number saturates */
    FIELD_JSON,    /* const struct jval **: anything; body only */
};
struct field {
    const char *name;
    enum field_type type;
    void *out; /* left alone where the member is absent or null */
    bool required;
};
/* invalid, by name: a member that is not in fields, of another type, or missing. No body is an
 * empty one. */
CAIRN_MUST_CHECK int request_fields(const struct request *r, const struct field *fields, size_t n,
                                    struct cairn_error *err);
/* The same of the query, once (a name twice is invalid). A body or a query that comes to a route
 * that takes none is refused before its handler is called. */
CAIRN_MUST_CHECK int request_query(struct request *r, const struct field *fields, size_t n,
                                   struct cairn_error *err);

/* Shorten r->op to seconds from now (negative: leave it). */
void request_shorten(struct request *r, double seconds);

#endif
