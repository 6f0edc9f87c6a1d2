/* Which handler answers which request: one constant table, in route.c. */
#ifndef CAIRN_SERVICE_ROUTE_H
#define CAIRN_SERVICE_ROUTE_H

#include "service/lane.h"
#include "service/request.h"

/* A meta in a JSON string: six bytes for one at worst (\u00XX), and some room for the rest. */
#define ROUTE_BODY_META  ((size_t)6 * META_MAX + 64 * 1024)
#define ROUTE_BODY_SMALL ((size_t)64 * 1024)

struct route {
    enum http_method method; /* HTTP_GET also answers HEAD */
    /* Components: literal, {id} (a record id, checked), {rest} (one component), {path} (all that
     * follow, at least one). They are percent-decoded; empty, "." and ".." components and NUL bytes
     * are refused, before and after decoding. */
    const char *pattern;
    const char *name; /* in logs and metrics */
    enum lane_id lane;
    size_t max_body; /* 0: takes none; else a JSON object, Content-Type: application/json */
    bool query;      /* takes parameters */
    double seconds;  /* until its op's deadline; negative: none */
    request_handler *handler;
};

extern const struct route routes[];
extern const unsigned n_routes;

/* Find the route of a path (terminated, without its query; decoded in place) and fill r->route, id,
 * rest and method. Returns 0, or the HTTP status to refuse it with (400, 404, 405) with *err; for
 * 405, allow lists the methods there are. */
#define ROUTE_ALLOW_MAX 64
int route_find(enum http_method method, char *path, struct request *r, char allow[ROUTE_ALLOW_MAX],
               struct cairn_error *err);

/* records.c */
int records_list(struct request *r, struct response *out, struct cairn_error *err);
int records_show(struct request *r, struct response *out, struct cairn_error *err);
int records_meta(struct request *r, struct response *out, struct cairn_error *err);
int records_delete(struct request *r, struct response *out, struct cairn_error *err);
/* files.c */
int files_get(struct request *r, struct response *out, struct cairn_error *err);
/* sweeps.c */
int sweeps_start(struct request *r, struct response *out, struct cairn_error *err);
int sweeps_status(struct request *r, struct response *out, struct cairn_error *err);
/* about.c */
int about_health(struct request *r, struct response *out, struct cairn_error *err);
int about_metrics(struct request *r, struct response *out, struct cairn_error *err);
int about_info(struct request *r, struct response *out, struct cairn_error *err);

#endif
