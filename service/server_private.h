/* What server.c, conn.c and exchange.c share.
 *
 *   a connection is    it                                      and leaves that by
 *   HEAD               has no request, or part of its head     a whole head: BODY or RUN
 *   BODY               reads a body                            its end: RUN
 *   RUN                has an exchange that is being worked on its answer: SEND
 *   SEND               writes the answer                       its end: HEAD, LINGER, or gone
 *   LINGER             drops what still comes, answered and    the client's close, or 2 s
 *                      shut down for writing
 *
 * An exchange is one request and its answer. It belongs to the loop thread but for the time between
 * lane_submit and its task's return to the loop (busy), when only request, response, text, body,
 * piece, rc and err of it are the lane's. If the connection goes while it is busy, conn becomes
 * NULL, its token is fired, and it ends when it comes back. */
#ifndef CAIRN_SERVICE_SERVER_PRIVATE_H
#define CAIRN_SERVICE_SERVER_PRIVATE_H

#include "service/head.h"
#include "service/route.h"
#include "service/server.h"

#include <stdatomic.h>

struct bufferevent;
struct conn;

struct exchange {
    struct request request;
    struct response response;
    struct server *server;
    struct conn *conn;                      /* NULL: its client has gone */
    char *target;                           /* owned; what request.rest and query point into */
    char *range, *if_none_match, *if_range; /* owned */
    struct buf text;                        /* of the body */
    struct buf meta;                        /* of its member "meta" */
    struct jval *body;                      /* owned; request.body */
    struct cairn_cancel *cancel;            /* owned; NULL: it never left the loop */
    atomic_bool stopping;                   /* the service fired the token, not the client */
    struct lane_job job;
    struct loop_task task;
    bool busy;
    struct buf piece; /* what response.source read last */
    uint64_t sent;    /* bytes of response.source handed to the connection */
    int rc;           /* of response.source's last read */
    struct cairn_error err;
    struct exchange *next, **link; /* in server->exchanges */
};

enum conn_state { CONN_HEAD, CONN_BODY, CONN_RUN, CONN_SEND, CONN_LINGER };

struct conn {
    struct server *server;
    struct bufferevent *bev; /* owns the descriptor */
    uint64_t number;
    struct peer peer;
    enum conn_state state;
    struct loop_timer *timer; /* its meaning depends on state: see on_timer */
    int64_t since_ns;         /* HEAD, BODY: when the first byte came; 0: none yet */
    struct exchange *exchange;
    struct chunked chunked;
    struct head head;  /* texts in it are not valid any more once the state is BODY */
    size_t promised;   /* of server->body_bytes */
    uint64_t left;     /* BODY: to come */
    uint64_t out_seen; /* SEND: bytes written when the timer looked last */
    uint64_t out_added;
    bool close; /* after the answer */
    bool keep_open;
    bool half_closed;          /* the client sends no more, but may still listen */
    bool unread;               /* the rest of a body will be dropped: linger */
    struct conn *next, **link; /* in server->conns */
};

struct server {
    struct server_config c;
    struct service_settings settings;
    int listen_fd; /* borrowed; -1: not yet, or no more */
    struct loop_watch *listener;
    struct loop_timer *accept_again; /* after accept failed for want of something */
    struct conn *conns;
    struct exchange *exchanges;
    unsigned losing; /* exchanges that are over, but give something back */
    bool draining, cancelled;
    int64_t complained_ns;
    uint64_t last_connection, last_request;
    struct server_load load;
};

/* conn.c */
CAIRN_MUST_CHECK int conn_new(struct server *s, int fd, struct cairn_error *err); /* fd: transferred
                                                                                   on success */
void conn_close(struct conn *c);
/* A draining connection that has nothing under way goes. */
void conn_drain(struct conn *c);
void conn_set_state(struct conn *c, enum conn_state state);
void conn_start_timer(struct conn *c);
/* So many bytes of bodies are this connection's. */
void conn_promise(struct conn *c, size_t bytes);

/* conn_in.c */
/* Take what the state can use of the input. The connection may be gone afterwards. */
void conn_go_on(struct conn *c);
/* Make the exchange. False: without memory there is nothing to be said either, the connection is
 * gone. */
bool conn_begin(struct conn *c);
/* Answer the exchange with an error of HTTP. The connection may be gone afterwards. */
void conn_refuse(struct conn *c, int status, const char *fmt, ...) CAIRN_PRINTF(3, 4);

/* conn_out.c */
/* The exchange's response is ready; or the piece that was asked for. The connection may be gone
 * afterwards. */
void conn_send(struct conn *c);
void conn_send_piece(struct conn *c);
/* Output was written, down to the low-water mark. */
void conn_written(struct bufferevent *bev, void *arg);
CAIRN_MUST_CHECK bool conn_add(struct conn *c, const void *data, size_t len);

/* exchange.c */
CAIRN_MUST_CHECK int exchange_new(struct server *s, struct exchange **out, struct cairn_error *err);
/* The request is complete: have it answered. conn_send follows, perhaps at once. */
void exchange_start(struct exchange *ex);
/* Have the next piece of the body read; conn_send_piece follows. */
void exchange_read(struct exchange *ex);
/* Fill the response with an error; status 0: as its class says. */
void exchange_refuse(struct exchange *ex, int status, const struct cairn_error *err);
/* The connection has gone. */
void exchange_desert(struct exchange *ex);
/* It is over: count, log, give back, free. It must not be busy. */
void exchange_end(struct exchange *ex, bool delivered);

/* server.c */
void server_look(struct server *s); /* is it quiet now? */

#endif
