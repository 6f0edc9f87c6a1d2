#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "service/body.h"
#include "service/server_private.h"
#include "service/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A page of 1,000 records, a meta in hex, a long list of files: what is made in one piece. */
#define ANSWER_MAX ((size_t)64 * 1024 * 1024)

int exchange_new(struct server *s, struct exchange **out, struct cairn_error *err)
{
    struct exchange *ex = calloc(1, sizeof(*ex));
    if (!ex)
        return error_oom(err, "request");
    ex->server = s;
    ex->request = (struct request){.service = s->c.service,
                                   .number = ++s->last_request,
                                   .rest = "",
                                   .begin_ns = clock_monotonic(),
                                   .op = {.deadline_ns = CAIRN_NO_DEADLINE}};
    ex->response = (struct response){.status = 200,
                                     .content_type = "application/json",
                                     .headers = BUF_INIT(8192),
                                     .body = BUF_INIT(ANSWER_MAX)};
    ex->piece = BUF_INIT(BODY_PIECE);
    ex->next = s->exchanges;
    ex->link = &s->exchanges;
    if (ex->next)
        ex->next->link = &ex->next;
    s->exchanges = ex;
    s->load.requests++;
    *out = ex;
    return CAIRN_OK;
}

static void drop_response(struct response *r)
{
    if (r->source)
        r->source->free(r->source);
    buf_release(&r->body);
    buf_release(&r->headers);
    r->source = NULL;
}

static void exchange_free(struct exchange *ex)
{
    drop_response(&ex->response);
    buf_release(&ex->piece);
    buf_release(&ex->text);
    buf_release(&ex->meta);
    jval_free(ex->body);
    cairn_cancel_free(ex->cancel);
    free(ex->target);
    free(ex->range);
    free(ex->if_none_match);
    free(ex->if_range);
    free(ex);
}

/* The handler failed, or its answer cannot be made: nobody will get what it gave. */
static void give_back(struct response *r)
{
    if (r->lost)
        r->lost(r->ctx);
    if (r->done)
        r->done(r->ctx);
    r->lost = r->done = NULL;
}

void exchange_refuse(struct exchange *ex, int status, const struct cairn_error *why)
{
    struct response *r = &ex->response;
    struct cairn_error err = *why;
    drop_response(r);
    r->content_type = "application/json";
    r->status = status ? status : status_of_class(err.error_class);
    struct jsonw w = JSONW_INIT(&r->body, NULL);
    jsonw_object(&w, NULL);
    jsonw_error(&w, "error", &err);
    jsonw_object_end(&w);
    int rc = jsonw_end(&w);
    if (r->status == 503 && !rc)
        rc = response_header(r, NULL, "Retry-After", "1");
    if (rc) /* no memory: the status has to speak for itself */
        drop_response(r);
}

static int stopping_error(struct cairn_error *err)
{
    return error_set(err, CAIRN_TRANSIENT, ESHUTDOWN, "the service is stopping");
}

/* An error is logged once, here, if it is of interest to whoever runs the service. */
static void log_failure(const struct exchange *ex, const struct cairn_error *err)
{
    int c = err->error_class;
    bool bad =
        c == CAIRN_CORRUPT || c == CAIRN_PERMANENT || c == CAIRN_INTERNAL || c == CAIRN_NO_SPACE;
    /* Double quotes are what a reader of key="value" looks for. */
    char message[CAIRN_ERROR_MESSAGE_MAX];
    size_t n = strnlen(err->message, sizeof(message) - 1);
    for (size_t i = 0; i < n; i++)
        message[i] = err->message[i] == '"' ? '\'' : err->message[i];
    message[n] = 0;
    log_line(bad ? LOG_LEVEL_WARNING : LOG_LEVEL_DEBUG,
             "request=%" PRIu64 " route=%s id=%s class=%s errno=%d message=\"%s\"",
             ex->request.number, ex->request.route ? ex->request.route->name : "-",
             *ex->request.id ? ex->request.id : "-", cairn_class_name(c), err->sys_errno, message);
}

/* Any thread: the request becomes a response. */
static void answer(struct exchange *ex)
{
    struct request *r = &ex->request;
    struct cairn_error err;
    int rc = CAIRN_OK;
    ex->meta = BUF_INIT(ex->text.len);
    if (ex->text.len)
        rc = body_member((char *)ex->text.data, ex->text.len, "meta", &ex->meta, &err);
    if (!rc && ex->text.len)
        rc = body_parse((char *)ex->text.data, ex->text.len, &ex->body, &err);
    buf_release(&ex->text);
    r->body = ex->body;
    r->meta = &ex->meta;
    if (!rc)
        rc = op_check(&r->op, r->route->name, &err);
    if (!rc)
        rc = r->route->handler(r, &ex->response, &err);
    if (!rc && ex->response.body.len && strcmp(ex->response.content_type, "application/json") == 0)
        rc = buf_add(&ex->response.body, "\n", 1, &err);
    if (!rc)
        return;
    give_back(&ex->response);
    if (rc == CAIRN_CANCELLED && atomic_load(&ex->stopping))
        (void)stopping_error(&err);
    log_failure(ex, &err);
    exchange_refuse(ex, 0, &err);
}

static void came_back(struct loop_task *task)
{
    struct exchange *ex = (struct exchange *)((char *)task - offsetof(struct exchange, task));
    ex->busy = false;
    if (!ex->conn)
        exchange_end(ex, false);
    else if (ex->conn->state == CONN_RUN)
        conn_send(ex->conn);
    else
        conn_send_piece(ex->conn);
}

static struct exchange *of_job(struct lane_job *job)
{
    return (struct exchange *)((char *)job - offsetof(struct exchange, job));
}

static void run_answer(struct lane_job *job)
{
    struct exchange *ex = of_job(job);
    answer(ex);
    loop_post(ex->server->c.loop, &ex->task);
}

static void run_read(struct lane_job *job)
{
    struct exchange *ex = of_job(job);
    struct body_source *source = ex->response.source;
    buf_clear(&ex->piece);
    ex->rc = source->read(source, &ex->request.op, &ex->piece, &ex->err);
    if (ex->rc)
        log_failure(ex, &ex->err);
    loop_post(ex->server->c.loop, &ex->task);
}

static int submit(struct exchange *ex, enum lane_id lane, void (*run)(struct lane_job *job),
                  struct cairn_error *err)
{
    ex->job.run = run;
    ex->task.run = came_back;
    ex->busy = true;
    int rc = lane_submit(ex->server->c.lanes[lane], &ex->job, err);
    if (rc)
        ex->busy = false;
    return rc;
}

void exchange_start(struct exchange *ex)
{
    const struct route *route = ex->request.route;
    struct cairn_error err;
    if (route->lane == LANE_LOOP) {
        answer(ex);
        conn_send(ex->conn);
        return;
    }
    int rc = cairn_cancel_new(&ex->cancel, &err);
    if (!rc)
        cairn_op_init(&ex->request.op, route->seconds, ex->cancel);
    if (!rc && ex->server->cancelled)
        rc = stopping_error(&err);
    if (!rc)
        rc = submit(ex, route->lane, run_answer, &err);
    if (!rc)
        return;
    exchange_refuse(ex, 0, &err);
    conn_send(ex->conn);
}

void exchange_read(struct exchange *ex)
{
    struct cairn_error err;
    int rc = submit(ex, LANE_READ, run_read, &err);
    if (!rc)
        return; /* from here on rc and err of ex are the lane's */
    ex->rc = rc;
    ex->err = err;
    conn_send_piece(ex->conn);
}

void exchange_desert(struct exchange *ex)
{
    ex->conn = NULL;
    if (ex->cancel)
        cairn_cancel_fire(ex->cancel);
    if (!ex->busy)
        exchange_end(ex, false);
}

/* Parts, to which what was given back may belong, stay until this has been seen. */
static void lost_is_over(struct loop_task *task)
{
    struct exchange *ex = (struct exchange *)((char *)task - offsetof(struct exchange, task));
    struct server *s = ex->server;
    exchange_free(ex);
    s->losing--;
    server_look(s);
}

static void run_lost(struct lane_job *job)
{
    struct exchange *ex = of_job(job);
    give_back(&ex->response);
    loop_post(ex->server->c.loop, &ex->task);
}

static void count(const struct exchange *ex, bool delivered, int64_t ns)
{
    const struct request *r = &ex->request;
    int status = delivered ? ex->response.status : 499;
    metrics_request(ex->server->c.metrics, r->route ? (int)(r->route - routes) : -1, status, ns);
    log_line(LOG_LEVEL_DEBUG,
             "request=%" PRIu64 " connection=%" PRIu64
             " route=%s id=%s status=%d ms=%.3f uid=%u pid=%d",
             r->number, r->connection, r->route ? r->route->name : "-", *r->id ? r->id : "-",
             status, (double)ns / 1e6, (unsigned)r->peer.uid, (int)r->peer.pid);
}

void exchange_end(struct exchange *ex, bool delivered)
{
    struct server *s = ex->server;
    *ex->link = ex->next;
    if (ex->next)
        ex->next->link = ex->link;
    s->load.requests--;
    count(ex, delivered, clock_monotonic() - ex->request.begin_ns);
    if (delivered)
        ex->response.lost = NULL;
    if (!ex->response.lost) {
        give_back(&ex->response);
        exchange_free(ex);
    } else {
        ex->job.run = run_lost;
        ex->task.run = lost_is_over;
        s->losing++;
        /* Without a thread to be had it is done here: late is worse than slow. */
        if (lane_submit_always(s->c.lanes[LANE_LOCAL], &ex->job, NULL))
            run_lost(&ex->job);
    }
    server_look(s);
}
