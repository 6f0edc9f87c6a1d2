/* The head of an HTTP/1.1 request: a pure function from bytes to fields (RFC 9112), strict where
 * the standard lets a server choose. No library of the distribution does this by itself: libevent's
 * own server ends the process when bytes come while an answer is being made, which is just when the
 * service has to see whether its client is still there. */
#ifndef CAIRN_SERVICE_HEAD_H
#define CAIRN_SERVICE_HEAD_H

#include "service/request.h"

#define HEAD_MAX   ((size_t)32 * 1024) /* bytes of request line and header lines together */
#define HEAD_LINES 100

struct head_text {
    const char *text; /* into the bytes given; not terminated; NULL: absent */
    size_t len;
};

struct head {
    enum http_method method;
    struct head_text method_name, target; /* target begins with '/' */
    bool http_10;
    bool close;           /* after the answer */
    bool expect_continue; /* the client waits before it sends its body */
    bool chunked;         /* the body is in chunks; else it has length bytes */
    uint64_t length;
    struct head_text content_type, if_none_match, if_range, range;
};

/* Bytes of the head (> 0), with *out filled; 0: it is not complete yet; or minus the HTTP status to
 * refuse it with, and *why. Never reads behind len. */
long head_parse(const char *data, size_t len, struct head *out, const char **why);

/* The framing of a chunked body, fed piece by piece. Zero-initialised is its start. */
struct chunked {
    int state;
    uint64_t left; /* of the chunk */
    unsigned line; /* bytes of the line that is being read */
    bool done;     /* the last chunk and the trailer (which is dropped) are over */
};
/* Take up to len bytes of data; *used says how many were looked at, and what they held of the body
 * is appended to out. False: they are no chunked body, or more than out->max. */
bool chunked_feed(struct chunked *c, const char *data, size_t len, size_t *used, struct buf *out,
                  bool *too_large);

#endif
