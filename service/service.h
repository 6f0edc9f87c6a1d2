/* The service: one process that serves one store over HTTP/1.1 on a Unix socket (docs/api.md).
 *
 * Threads. The *loop* thread (the one that calls service_run) accepts, parses, and answers what
 * needs no waiting; it never blocks on the store, on a disk or on a lock held over either. All else
 * runs on *lanes* (lane.h): threads in groups that are bounded apart, so that long work of one kind
 * never keeps short work of another waiting. Whoever may use the socket may do everything: access
 * is a matter of the socket's mode and group alone. */
#ifndef CAIRN_SERVICE_SERVICE_H
#define CAIRN_SERVICE_SERVICE_H

#include "store/cairn.h"

#include <sys/types.h>

struct service;
struct metrics_text; /* metrics.h */

/* What can change while the service runs. */
struct service_settings {
    int log_level;             /* enum log_level */
    int64_t drain_ns;          /* from the first SIGTERM until what runs is cancelled */
    int64_t sweep_interval_ns; /* between two sweeps */
    int64_t staging_keep_ns;   /* stagings nobody uses, and outcomes of publishes, are kept */
    int64_t fetch_budget_ns;   /* of one flight */
    int64_t head_timeout_ns;   /* for a whole request head and body to arrive */
    int64_t idle_timeout_ns;   /* of a connection between two requests, and of a reader that
                                * takes nothing of its answer */
    unsigned max_connections;  /* more are answered with 503 and closed */
};

struct service_config {
    struct cairn_store *store; /* borrowed */
    const char *store_name;    /* as given by the user, for GET /v1/info */
    const char *state;  /* private folder, must exist; the lock and default socket are there */
    const char *listen; /* path of the socket */
    mode_t listen_mode;
    const char *listen_group; /* NULL: as the process */
    struct cairn_gc_config gc;
    struct service_settings settings;
    /* Read the configuration anew into *out, whose text the callee keeps until it is called again
     * (NULL: nothing to read). Called on a lane, one call at a time. */
    int (*reload)(void *ctx, struct service_config *out, struct cairn_error *err);
    void *reload_ctx;
    /* Add to what GET /metrics tells (NULL: nothing). On the loop thread: must not block. */
    void (*metrics)(void *ctx, struct metrics_text *out);
    void *metrics_ctx;
};

void service_settings_init(struct service_settings *s); /* the defaults */

/* Take the lock and make the socket; nothing is accepted before service_run. Everything in config
 * is copied but what is borrowed. Errors: busy: another instance serves this state folder, or
 * listens there; invalid: the path or group is wrong; others as the system says. */
CAIRN_MUST_CHECK int service_new(const struct service_config *config, struct service **out,
                                 struct cairn_error *err);
/* Serve until SIGTERM or SIGINT, which the caller has blocked in all threads, as well as SIGHUP.
 * The second one of the first two ends the process. Returns when everything has ended. */
CAIRN_MUST_CHECK int service_run(struct service *s, struct cairn_error *err);
void service_free(struct service *s); /* NULL is allowed */

#endif
