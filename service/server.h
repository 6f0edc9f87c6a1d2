/* The HTTP server: connections, their requests, and the lanes that answer them. Loop thread only,
 * but for what runs on lanes (exchange.c).
 *
 * Bounds: connections, bytes of a head and of a body, bytes of all bodies together, time for a head
 * and a body to arrive, time without any progress of an answer. */
#ifndef CAIRN_SERVICE_SERVER_H
#define CAIRN_SERVICE_SERVER_H

#include "service/lane.h"
#include "service/loop.h"
#include "service/metrics.h"
#include "service/request.h"
#include "service/service.h"

struct server;

struct server_config {
    struct service *service; /* for handlers; borrowed, as all that follows */
    struct loop *loop;
    struct lane **lanes; /* LANE_COUNT_ */
    struct metrics *metrics;
    void (*connection_closed)(void *ctx, uint64_t connection);
    void (*quiet)(void *ctx); /* draining, and the last connection and request has gone */
    void *ctx;
};

CAIRN_MUST_CHECK int server_new(const struct server_config *config,
                                const struct service_settings *settings, struct server **out,
                                struct cairn_error *err);
/* fd: a listening socket, borrowed. */
CAIRN_MUST_CHECK int server_listen(struct server *s, int fd, struct cairn_error *err);
void server_configure(struct server *s, const struct service_settings *settings);

/* Accept no more; close connections that ask for nothing, and every other behind its answer. */
void server_drain(struct server *s);
/* Fire the tokens of all requests that run: they are answered with transient, ESHUTDOWN. */
void server_cancel(struct server *s);
/* Close every connection as it is. Requests that run on a lane come back later. */
void server_abandon(struct server *s);
bool server_is_quiet(const struct server *s);
/* It must be quiet, and the lanes ended. NULL is allowed. */
void server_free(struct server *s);

struct server_load {
    unsigned connections, requests;
    uint64_t accepted, refused; /* connections, ever */
    uint64_t bytes_in, bytes_out;
    size_t body_bytes; /* promised to bodies that arrive, now */
};
void server_load(const struct server *s, struct server_load *out);

#endif
