/* The API: which handler answers which request (docs/api.md). */
#include "base/util.h"
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
    {HTTP_POST, "/v1/gc", "sweep", LANE_LOOP, ROUTE_BODY_SMALL, false, -1, sweeps_start},
    {HTTP_GET, "/v1/gc", "sweep_status", LANE_LOOP, 0, false, -1, sweeps_status},
};

const unsigned n_routes = ARRAY_SIZE(routes);
