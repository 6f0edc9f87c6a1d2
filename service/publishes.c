#include "service/publishes.h"

#include "base/clock.h"
#include "base/util.h"
#include "service/meta_field.h"
#include "service/metrics.h"
#include "service/publish_jobs.h"

#include <stdio.h>
#include <string.h>

#define LOOK_SECONDS 5

static void wake(void *service)
{
    service_wake(service);
}

static int start(struct service *s, void **self, struct cairn_error *err)
{
    CLEANUP_FREE char *staging = NULL;
    CLEANUP_FREE char *tickets = NULL;
    const char *state = service_state(s);
    struct service_settings settings;
    service_settings_get(s, &settings);
    if (asprintf(&staging, "%s/staging", state) < 0) {
        staging = NULL;
        return error_oom(err, "path");
    }
    if (asprintf(&tickets, "%s/publishes", state) < 0) {
        tickets = NULL;
        return error_oom(err, "path");
    }
    struct publish_jobs_options o = {.store = service_store(s),
                                     .lane = service_lane(s, LANE_LONG),
                                     .staging = staging,
                                     .tickets = tickets,
                                     .keep_ns = settings.staging_keep_ns,
                                     .idle = wake,
                                     .ctx = s};
    struct publish_jobs *p;
    int rc = publish_jobs_new(&o, &p, err);
    if (!rc)
        *self = p;
    return rc;
}

static bool busy(void *self)
{
    return publish_jobs_busy(self);
}

static void cancel(void *self)
{
    publish_jobs_cancel_all(self);
}

static void stop(void *self)
{
    publish_jobs_free(self);
}

static void metrics(void *self, struct metrics_text *out)
{
    struct publish_jobs_counts c;
    publish_jobs_count(self, &c);
    metrics_one(out, "cairn_publishes_active", "gauge", "Publishes that are queued or run.",
                c.active);
    metrics_one(out, "cairn_stagings_total", "counter", "Staging folders given out.", c.staged);
    metrics_head(out, "cairn_publishes_total", "counter", "Publishes that ended, by outcome.");
    metrics_u64(out, "cairn_publishes_total", "outcome=\"done\"", c.done);
    metrics_u64(out, "cairn_publishes_total", "outcome=\"failed\"", c.failed);
    metrics_one(out, "cairn_publishes_joined_total", "counter",
                "Requests that joined a publish that was asked for before.", c.joined);
}

const struct part publishes_part = {.name = "publishes",
                                    .start = start,
                                    .busy = busy,
                                    .cancel = cancel,
                                    .metrics = metrics,
                                    .stop = stop};

static struct publish_jobs *jobs_of(struct service *s)
{
    return service_part(s, &publishes_part);
}

int publishes_tidy(struct service *s, const struct cairn_op *op, struct cairn_error *err)
{
    struct service_settings settings;
    service_settings_get(s, &settings);
    publish_jobs_keep(jobs_of(s), settings.staging_keep_ns);
    return publish_jobs_tidy(jobs_of(s), op, err);
}

/* ---- Handlers -------------------------------------------------------------------------------- */

int publishes_stage(struct request *r, struct response *out, struct cairn_error *err)
{
    CLEANUP_FREE char *path = NULL;
    char token[TOKEN_TEXT];
    struct service_settings settings;
    service_settings_get(r->service, &settings);
    int rc = request_fields(r, NULL, 0, err);
    if (!rc)
        rc = publish_jobs_stage(jobs_of(r->service), r->id, r->peer.uid, r->peer.gid, token, &path,
                                err);
    if (rc)
        return rc;
    out->status = 201;
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    jsonw_str(&w, "token", token);
    jsonw_str(&w, "path", path);
    jsonw_i64(&w, "keep_seconds", settings.staging_keep_ns / NS_PER_S);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

static int answer(struct response *out, const struct ticket *t, struct cairn_error *err)
{
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    ticket_json(&w, t);
    jsonw_object_end(&w);
    return jsonw_end(&w);
}

int publishes_publish(struct request *r, struct response *out, struct cairn_error *err)
{
    const char *token = "";
    const struct jval *meta = NULL;
    bool wait = true;
    CLEANUP_BUF struct buf bytes = {0};
    struct publish_request p = {.id = r->id, .uid = r->peer.uid, .seconds = -1};
    const struct field fields[] = {
        {"token", FIELD_TEXT, &token, false},
        {"staging", FIELD_TEXT, &p.staging, false},
        {"parent", FIELD_ID, &p.parent, false},
        {"meta", FIELD_JSON, &meta, false},
        {"digest", FIELD_BOOL, &p.digest, false},
        {"keep", FIELD_BOOL, &p.keep, false},
        {"wait", FIELD_BOOL, &wait, false},
        {"timeout_seconds", FIELD_SECONDS, &p.seconds, false},
    };
    int rc = request_fields(r, fields, ARRAY_SIZE(fields), err);
    if (!rc && meta)
        rc = meta_field(r, meta, &bytes, err);
    if (rc)
        return rc;
    p.token = token;
    p.meta = bytes.data;
    p.meta_len = bytes.len;
    struct ticket t;
    rc = publish_jobs_run(jobs_of(r->service), &p, wait, &r->op, &t, err);
    if (rc)
        return rc;
    out->status = t.state == TICKET_DONE ? 200 : 202;
    return answer(out, &t, err);
}

int publishes_look(struct request *r, struct response *out, struct cairn_error *err)
{
    struct ticket t;
    /* Where the store has to be asked how it ended, not for long. */
    request_shorten(r, LOOK_SECONDS);
    int rc = publish_jobs_look(jobs_of(r->service), r->rest, r->peer.uid, &r->op, &t, err);
    return rc ? rc : answer(out, &t, err);
}

int publishes_drop(struct request *r, struct response *out, struct cairn_error *err)
{
    bool cancelling;
    int rc = publish_jobs_drop(jobs_of(r->service), r->rest, r->peer.uid, &r->op, &cancelling, err);
    if (rc)
        return rc;
    struct jsonw w = RESPONSE_JSON(out, err);
    jsonw_object(&w, NULL);
    jsonw_bool(&w, "cancelling", cancelling);
    jsonw_object_end(&w);
    out->status = cancelling ? 202 : 200;
    return jsonw_end(&w);
}
