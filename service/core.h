/* The inside of the service that its parts build on.
 *
 * A *part* is a piece of the service with a life of its own: the staging folders, the leases, the
 * timers. The table of parts is in parts.c; its order is the order of starting, and stopping is the
 * other way round. */
#ifndef CAIRN_SERVICE_CORE_H
#define CAIRN_SERVICE_CORE_H

#include "service/lane.h"
#include "service/loop.h"
#include "service/service.h"

struct gc_runner;
struct metrics;
struct metrics_text;

/* Every function may be NULL. */
struct part {
    const char *name;
    /* Before the first request, on the loop thread; local disk only, as the store may be far away
     * (what needs the store is a job). *self is handed to the others. */
    int (*start)(struct service *s, void **self, struct cairn_error *err);
    /* Loop thread, must not block. */
    void (*connection_closed)(void *self, uint64_t connection);
    void (*reloaded)(void *self); /* service_settings_get gives others now */
    /* Draining has begun: begin nothing new by yourself. */
    void (*drain)(void *self);
    /* While true, draining waits for it (as for requests), until drain_seconds are over. */
    bool (*busy)(void *self);
    /* They are over: fire what runs. */
    void (*cancel)(void *self);
    void (*metrics)(void *self, struct metrics_text *out);
    /* Loop thread, once no request is left; jobs of the part may still run, and it waits for them.
     */
    void (*stop)(void *self);
};

struct cairn_store *service_store(struct service *s);
const char *service_state(struct service *s); /* the private folder */
struct lane *service_lane(struct service *s, enum lane_id id);
struct loop *service_loop(struct service *s);
struct gc_runner *service_runner(struct service *s);
struct metrics *service_metrics(struct service *s);
/* Loop thread only: a reload may change it. */
const struct cairn_gc_config *service_gc_config(struct service *s);
/* Thread-safe: a copy. */
void service_settings_get(struct service *s, struct service_settings *out);
/* self of a part (an extern const struct part of its header); for handlers. NULL: not started. */
void *service_part(struct service *s, const struct part *part);

struct server *service_server(struct service *s);
const char *service_store_name(struct service *s);
int64_t service_started_ns(struct service *s); /* CLOCK_REALTIME */
bool service_is_stopping(struct service *s);   /* loop thread */
/* What the parts add to the metrics. Loop thread. */
void service_parts_text(struct service *s, struct metrics_text *out);

/* To be called by a part that is no longer busy, from any thread: draining looks again. */
void service_wake(struct service *s);

#endif
