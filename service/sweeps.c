/* The collector: start a sweep, and how it goes. */
#include "base/util.h"
#include "gc/json.h"
#include "gc/runner.h"
#include "service/core.h"
#include "service/route.h"

int sweeps_start(struct request *r, struct response *out, struct cairn_error *err)
{
    bool dry_run = false, joined;
    uint64_t sweep;
    const struct field fields[] = {{"dry_run", FIELD_BOOL, &dry_run, false}};
    int rc = request_fields(r, fields, ARRAY_SIZE(fields), err);
    if (!rc)
        rc = gc_runner_start(service_runner(r->service), dry_run, &sweep, &joined, err);
    if (rc)
        return rc;
    out->status = 202;
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    jsonw_u64(&w, "sweep", sweep);
    jsonw_bool(&w, "joined", joined);
    jsonw_object_end(&w);
    rc = jsonw_end(&w);
    return rc ? rc : response_header(out, err, "Location", "/v1/gc");
}

static void json_result(struct jsonw *w, const char *name, const struct cairn_gc_result *r)
{
    jsonw_object(w, name);
    json_sweep(w, r);
    jsonw_u64(w, "young", r->young);
    jsonw_u64(w, "failed", r->failed);
    jsonw_u64(w, "objects", r->objects);
    jsonw_u64(w, "bytes", r->bytes);
}

int sweeps_status(struct request *r, struct response *out, struct cairn_error *err)
{
    struct gc_runner_status s;
    gc_runner_status(service_runner(r->service), &s);
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    jsonw_u64(&w, "sweep", s.sweep);
    jsonw_bool(&w, "running", s.running);
    if (s.running) {
        jsonw_bool(&w, "dry_run", s.dry_run);
        json_result(&w, "progress", &s.progress);
        jsonw_object_end(&w);
    }
    if (s.last.phase) {
        json_result(&w, "last", &s.last);
        jsonw_bool(&w, "aborted", s.last.aborted);
        jsonw_real(&w, "seconds", s.last.seconds);
        if (s.error_class) {
            struct cairn_error e = {.error_class = s.error_class};
            memcpy(e.message, s.message, sizeof(e.message));
            jsonw_error(&w, "error", &e);
        }
        jsonw_object_end(&w);
    }
    if (s.good_ns)
        jsonw_time(&w, "last_good", s.good_ns);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}
