/* What the service says of itself: health, metrics, info. All three answer on the loop. */
#include "base/util.h"
#include "gc/runner.h"
#include "service/core.h"
#include "service/route.h"
#include "service/server.h"
#include "service/store_text.h"
#include "store/cairn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int about_health(struct request *r, struct response *out, struct cairn_error *err)
{
    bool stopping = service_is_stopping(r->service);
    struct jsonw w = RESPONSE_JSON(out, err);
    out->status = stopping ? 503 : 200;
    jsonw_object(&w, NULL);
    jsonw_str(&w, "status", stopping ? "stopping" : "ok");
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

int about_info(struct request *r, struct response *out, struct cairn_error *err)
{
    struct service *s = r->service;
    struct cairn_store_info info;
    cairn_store_info(service_store(s), &info);
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "version", cairn_version());
    jsonw_u64(&w, "api", 1);
    jsonw_u64(&w, "pid", (uint64_t)getpid());
    jsonw_time(&w, "started", service_started_ns(s));
    jsonw_bool(&w, "stopping", service_is_stopping(s));
    jsonw_object(&w, "store");
    jsonw_bytes(&w, "name", service_store_name(s), strlen(service_store_name(s)));
    jsonw_str(&w, "id", info.store_id);
    jsonw_u64(&w, "format", info.format);
    jsonw_u64(&w, "chunk_size", info.chunk_size);
    jsonw_str(&w, "compression", info.compression == CAIRN_COMPRESSION_NONE ? "none" : "zstd");
    jsonw_object_end(&w);
    jsonw_bytes(&w, "state", service_state(s), strlen(service_state(s)));
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

static void process_text(struct service *s, struct metrics_text *t)
{
    char text[128] = "";
    unsigned long long pages = 0;
    CLEANUP_FD int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && util_pread_full(fd, text, sizeof(text) - 1, 0) > 0 &&
        sscanf(text, "%*u %llu", &pages) == 1)
        metrics_one(t, "process_resident_memory_bytes", "gauge", "Resident memory.",
                    pages * (uint64_t)sysconf(_SC_PAGESIZE));
    metrics_head(t, "process_start_time_seconds", "gauge", "Start of the process since 1970.");
    metrics_real(t, "process_start_time_seconds", "", (double)service_started_ns(s) / 1e9);
}

static void lanes_text(struct service *s, struct metrics_text *t)
{
    static const char *const names[LANE_COUNT_] = {
        [LANE_SHORT] = "short", [LANE_READ] = "read", [LANE_FORK] = "fork",
        [LANE_LOCAL] = "local", [LANE_WAIT] = "wait", [LANE_LONG] = "long"};
    struct lane_load load[LANE_COUNT_];
    char labels[32];
    for (unsigned i = 0; i < LANE_COUNT_; i++)
        lane_load(service_lane(s, i), &load[i]);
    metrics_head(t, "cairn_lane_running", "gauge", "Jobs that run, by lane.");
    for (unsigned i = 0; i < LANE_COUNT_; i++) {
        snprintf(labels, sizeof(labels), "lane=\"%s\"", names[i]);
        metrics_u64(t, "cairn_lane_running", labels, load[i].running);
    }
    metrics_head(t, "cairn_lane_queued", "gauge", "Jobs that wait for a thread, by lane.");
    for (unsigned i = 0; i < LANE_COUNT_; i++) {
        snprintf(labels, sizeof(labels), "lane=\"%s\"", names[i]);
        metrics_u64(t, "cairn_lane_queued", labels, load[i].queued);
    }
}

static void server_text(struct service *s, struct metrics_text *t)
{
    struct server_load load;
    server_load(service_server(s), &load);
    metrics_one(t, "cairn_http_connections", "gauge", "Connections that are open.",
                load.connections);
    metrics_one(t, "cairn_http_requests_running", "gauge", "Requests under way.", load.requests);
    metrics_one(t, "cairn_http_connections_total", "counter", "Connections accepted.",
                load.accepted);
    metrics_one(t, "cairn_http_connections_refused_total", "counter",
                "Connections turned away because too many were open.", load.refused);
    metrics_one(t, "cairn_http_received_bytes_total", "counter", "Bytes of requests.",
                load.bytes_in);
    metrics_one(t, "cairn_http_sent_bytes_total", "counter", "Bytes of answers.", load.bytes_out);
}

static void sweeps_text(struct service *s, struct metrics_text *t)
{
    struct gc_runner_status st;
    gc_runner_status(service_runner(s), &st);
    metrics_head(t, "cairn_sweeps_total", "counter", "Sweeps that ended, by how.");
    metrics_u64(t, "cairn_sweeps_total", "result=\"good\"", st.good);
    metrics_u64(t, "cairn_sweeps_total", "result=\"failed\"", st.failed);
    metrics_one(t, "cairn_sweep_running", "gauge", "Whether a sweep runs.", st.running);
    if (st.running && st.progress.phase) {
        char labels[96];
        snprintf(labels, sizeof(labels), "phase=\"%s\"", st.progress.phase);
        metrics_head(t, "cairn_sweep_phase", "gauge", "What the sweep that runs is at.");
        metrics_u64(t, "cairn_sweep_phase", labels, 1);
    }
    metrics_head(t, "cairn_sweep_last_good_timestamp_seconds", "gauge",
                 "When a sweep last ended well, since 1970; 0: not since the service began.");
    metrics_real(t, "cairn_sweep_last_good_timestamp_seconds", "", (double)st.good_ns / 1e9);
    metrics_one(t, "cairn_sweep_last_freed_bytes", "gauge", "Bytes that the last sweep freed.",
                st.last.bytes_freed);
}

int about_metrics(struct request *r, struct response *out, struct cairn_error *err)
{
    struct service *s = r->service;
    struct metrics_text t = {.out = &out->body, .err = err};
    char labels[64];
    out->content_type = "text/plain; version=0.0.4; charset=utf-8";
    snprintf(labels, sizeof(labels), "version=\"%s\"", cairn_version());
    metrics_head(&t, "cairn_build_info", "gauge", "The version that runs.");
    metrics_u64(&t, "cairn_build_info", labels, 1);
    process_text(s, &t);
    server_text(s, &t);
    lanes_text(s, &t);
    sweeps_text(s, &t);
    metrics_requests_text(service_metrics(s), &t);
    service_parts_text(s, &t);
    store_text(service_store(s), &t);
    return t.rc;
}
