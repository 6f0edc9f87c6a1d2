/* struct service, for core.c (what it is made of) and life.c (what happens to it).
 *
 *   state     meaning                                    leaves it by
 *   STARTING  parts begin, nothing is accepted           all of them have: SERVING
 *   SERVING                                              a signal: DRAINING
 *   DRAINING  nothing new begins                         all is quiet: ENDED; drain_ns: CANCELLED
 *   CANCELLED what runs was told to end                  all is quiet: ENDED
 *   ENDED     the loop ends
 */
#ifndef CAIRN_SERVICE_CORE_PRIVATE_H
#define CAIRN_SERVICE_CORE_PRIVATE_H

#include "service/core.h"
#include "service/server.h"
#include "service/socket.h"

#include <pthread.h>

enum service_state { STARTING, SERVING, DRAINING, CANCELLED, ENDED };

/* The parts, ending with NULL. */
extern const struct part *const parts[];
#define PARTS_MAX 8

struct service {
    /* set before the first lane or part begins, and constant */
    struct service_config config; /* its texts are owned copies */
    struct listener listener;
    int state_lock, signal_fd;
    struct loop *loop;
    struct lane *lanes[LANE_COUNT_];
    struct metrics *metrics;
    struct gc_runner *runner;
    struct server *server;
    int64_t started_ns;
    /* loop thread */
    enum service_state state;
    void *selfs[PARTS_MAX];
    unsigned n_parts; /* that are started */
    struct loop_watch *signals;
    struct loop_timer *drain_timer, *watchdog_timer;
    int64_t watchdog_ns;
    struct lane_job reload_job;
    struct loop_task reload_task;
    bool reloading, reload_again;
    struct service_config reloaded; /* the lane's while reloading */
    int reload_rc;
    struct cairn_error reload_err;
    pthread_mutex_t lock;
    struct service_settings settings; /* guarded by lock */
    bool wake_posted;                 /* guarded by lock */
    struct loop_task wake_task;
};

/* life.c */
CAIRN_MUST_CHECK int life_start(struct service *s, struct cairn_error *err);
void life_stop(struct service *s);
/* Is there nothing left to wait for? Loop thread. */
void life_look(struct service *s);

#endif
