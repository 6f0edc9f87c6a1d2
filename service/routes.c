/* The API: which handler answers which request (docs/api.md). */
#include "base/util.h"
#include "service/fetches.h"
#include "service/forks.h"
#include "service/publishes.h"
#include "service/route.h"

#define METADATA_SECONDS 60

const struct route routes[] = {
    {HTTP_GET, "/healthz", "health", LANE_LOOP, 0, false, -1, about_health},
    {HTTP_GET, "/metrics", "metrics", LANE_LOOP, 0, false, -1, about_metrics},
    {HTTP_GET, "/v1/info", "info", LANE_LOOP, 0, false, -1, about_info},
    {HTTP_GET, "/v1/records", "list", LANE_SHORT, 0, true, METADATA_SECONDS, records_list},
    {HTTP_GET, "/v1/records/{id}", "show", LANE_SHORT, 0, false, METADATA_SECONDS, records_show},
    {HTTP_GET, "/v1/records/{id}/meta", "meta", LANE_SHORT, 0, false, METADATA_SECONDS,
     records_meta},
    {HTTP_GET, "/v1/records/{id}/files/{path}", "file", LANE_SHORT, 0, false, METADATA_SECONDS,
     files_get},
    {HTTP_DELETE, "/v1/records/{id}", "delete", LANE_SHORT, 0, false, 5 * METADATA_SECONDS,
     records_delete},
    {HTTP_POST, "/v1/records/{id}/stage", "stage", LANE_LOCAL, ROUTE_BODY_SMALL, false,
     METADATA_SECONDS, publishes_stage},
    {HTTP_POST, "/v1/records/{id}/publish", "publish", LANE_WAIT, ROUTE_BODY_META, false, -1,
     publishes_publish},
    {HTTP_GET, "/v1/publishes/{rest}", "publish_status", LANE_LOCAL, 0, false, METADATA_SECONDS,
     publishes_look},
    {HTTP_DELETE, "/v1/publishes/{rest}", "publish_drop", LANE_LOCAL, 0, false, METADATA_SECONDS,
     publishes_drop},
    {HTTP_POST, "/v1/records/{id}/fork", "fork", LANE_FORK, ROUTE_BODY_META, false,
     5 * METADATA_SECONDS, forks_fork},
    {HTTP_POST, "/v1/records/{id}/hold", "hold", LANE_SHORT, ROUTE_BODY_SMALL, false,
     METADATA_SECONDS, forks_hold},
    {HTTP_POST, "/v1/records/{id}/release", "release", LANE_SHORT, ROUTE_BODY_SMALL, false,
     METADATA_SECONDS, forks_release},
    {HTTP_POST, "/v1/records/{id}/fetch", "fetch", LANE_WAIT, ROUTE_BODY_SMALL, false, -1,
     fetches_fetch},
    {HTTP_GET, "/v1/leases", "leases", LANE_LOCAL, 0, false, METADATA_SECONDS, fetches_leases},
    {HTTP_GET, "/v1/leases/{rest}", "lease", LANE_LOCAL, 0, false, METADATA_SECONDS, fetches_look},
    {HTTP_POST, "/v1/leases/{rest}/renew", "lease_renew", LANE_LOCAL, ROUTE_BODY_SMALL, false,
     METADATA_SECONDS, fetches_renew},
    {HTTP_DELETE, "/v1/leases/{rest}", "lease_release", LANE_LOCAL, 0, false, METADATA_SECONDS,
     fetches_release},
    {HTTP_POST, "/v1/gc", "sweep", LANE_LOOP, ROUTE_BODY_SMALL, false, -1, sweeps_start},
    {HTTP_GET, "/v1/gc", "sweep_status", LANE_LOOP, 0, false, -1, sweeps_status},
};

const unsigned n_routes = ARRAY_SIZE(routes);
