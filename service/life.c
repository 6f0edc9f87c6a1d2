/* What happens to the service from outside: signals, reloads, the watchdog; and how it ends. */
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "gc/runner.h"
#include "service/core_private.h"
#include "service/journal.h"
#include "service/notify.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

/* After cancelling, answers get so long to reach their clients. */
#define LAST_WORDS_NS (3 * NS_PER_S)

/* ---- Ending ---------------------------------------------------------------------------------- */

static bool parts_busy(const struct service *s)
{
    for (unsigned i = 0; i < s->n_parts; i++)
        if (parts[i]->busy && parts[i]->busy(s->selfs[i]))
            return true;
    return false;
}

void life_look(struct service *s)
{
    if (s->state < DRAINING || s->state == ENDED || !server_is_quiet(s->server) || parts_busy(s))
        return;
    s->state = ENDED;
    loop_end(s->loop);
}

static void on_wake(struct loop_task *task)
{
    struct service *s = (struct service *)((char *)task - offsetof(struct service, wake_task));
    pthread_mutex_lock(&s->lock);
    s->wake_posted = false;
    pthread_mutex_unlock(&s->lock);
    life_look(s);
}

void service_wake(struct service *s)
{
    pthread_mutex_lock(&s->lock);
    bool post = !s->wake_posted;
    s->wake_posted = true;
    pthread_mutex_unlock(&s->lock);
    if (post)
        loop_post(s->loop, &s->wake_task);
}

static void drain(struct service *s, int signo)
{
    struct service_settings settings;
    service_settings_get(s, &settings);
    s->state = DRAINING;
    log_line(LOG_LEVEL_INFO, "draining: signal=%d seconds=%lld", signo,
             (long long)(settings.drain_ns / NS_PER_S));
    notify_send("STOPPING=1\nSTATUS=Waiting for what runs");
    for (unsigned i = 0; i < s->n_parts; i++)
        if (parts[i]->drain)
            parts[i]->drain(s->selfs[i]);
    loop_timer_set(s->drain_timer, settings.drain_ns);
    server_drain(s->server);
    /* Whoever was on the way in sees it now, not when all is over. */
    listener_shut(&s->listener);
    life_look(s);
}

static void on_drain_timer(void *ctx)
{
    struct service *s = ctx;
    if (s->state == DRAINING) {
        s->state = CANCELLED;
        log_line(LOG_LEVEL_NOTICE, "cancelling: what runs did not end in time");
        for (unsigned i = 0; i < s->n_parts; i++)
            if (parts[i]->cancel)
                parts[i]->cancel(s->selfs[i]);
        server_cancel(s->server);
        loop_timer_set(s->drain_timer, LAST_WORDS_NS);
    } else if (s->state == CANCELLED) {
        server_abandon(s->server);
    }
    life_look(s);
}

/* As if it had never been caught: whoever started us sees by what signal we died. */
static void end_at_once(struct service *s, int signo)
{
    sigset_t set;
    log_line(LOG_LEVEL_WARNING, "ending at once: signal=%d came again", signo);
    listener_unlink(&s->listener);
    signal(signo, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, signo);
    kill(getpid(), signo);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + signo);
}

/* ---- Reloading ------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* What can be read anew, but not be changed. */
static void refuse_changes(const struct service *s)
{
    const struct service_config *a = &s->config, *b = &s->reloaded;
    const struct {
        const char *key;
        bool same;
    } keys[] = {
        {"checkpoint_store", same_text(a->store_name, b->store_name)},
        {"state_dir", same_text(a->state, b->state)},
        {"listen", same_text(a->listen, b->listen)},
        {"listen_mode", a->listen_mode == b->listen_mode},
        {"listen_group", same_text(a->listen_group, b->listen_group)},
        {"generation_grace_seconds", a->gc.grace_ns == b->gc.grace_ns},
        {"gc_visibility_seconds", a->gc.visibility_ns == b->gc.visibility_ns},
        {"gc_dead_margin_seconds", a->gc.dead_margin_ns == b->gc.dead_margin_ns},
        {"fetch_budget_seconds", a->settings.fetch_budget_ns == b->settings.fetch_budget_ns},
    };
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (!keys[i].same)
            log_line(LOG_LEVEL_ERROR,
                     "reload: key=%s refused: it cannot change while the service runs",
                     keys[i].key);
}

static void apply(struct service *s)
{
    const struct service_settings *now = &s->reloaded.settings;
    refuse_changes(s);
    pthread_mutex_lock(&s->lock);
    s->settings.log_level = now->log_level;
    s->settings.drain_ns = now->drain_ns;
    s->settings.sweep_interval_ns = now->sweep_interval_ns;
    s->settings.staging_keep_ns = now->staging_keep_ns;
    struct service_settings settings = s->settings;
    pthread_mutex_unlock(&s->lock);
    s->config.gc.ttl_ns = s->reloaded.gc.ttl_ns;
    s->config.gc.young_ns = s->reloaded.gc.young_ns;
    gc_runner_configure(s->runner, &s->config.gc);
    journal_set_level((enum log_level)settings.log_level);
    server_configure(s->server, &settings);
    for (unsigned i = 0; i < s->n_parts; i++)
        if (parts[i]->reloaded)
            parts[i]->reloaded(s->selfs[i]);
    log_line(LOG_LEVEL_NOTICE, "reload: done");
}

static void reload(struct service *s);

static void on_reloaded(struct loop_task *task)
{
    struct service *s = (struct service *)((char *)task - offsetof(struct service, reload_task));
    s->reloading = false;
    if (s->reload_rc)
        log_line(LOG_LEVEL_ERROR, "reload: nothing is changed: class=%s message=\"%s\"",
                 cairn_class_name(s->reload_rc), s->reload_err.message);
    else
        apply(s);
    notify_send(service_is_stopping(s) ? "READY=1\nSTOPPING=1" : "READY=1\nSTATUS=Serving");
    if (s->reload_again)
        reload(s);
}

static void run_reload(struct lane_job *job)
{
    struct service *s = (struct service *)((char *)job - offsetof(struct service, reload_job));
    s->reloaded = s->config;
    s->reload_rc = s->config.reload(s->config.reload_ctx, &s->reloaded, &s->reload_err);
    loop_post(s->loop, &s->reload_task);
}

static void reload(struct service *s)
{
    struct cairn_error err;
    s->reload_again = s->reloading;
    if (s->reloading || !s->config.reload)
        return;
    notify_reloading();
    s->reloading = true;
    s->reload_job.run = run_reload;
    s->reload_task.run = on_reloaded;
    if (lane_submit(s->lanes[LANE_LONG], &s->reload_job, &err)) {
        s->reloading = false;
        log_line(LOG_LEVEL_ERROR, "reload: class=%s message=\"%s\"",
                 cairn_class_name(err.error_class), err.message);
        notify_send("READY=1");
    }
}

/* ---- Signals and the watchdog ---------------------------------------------------------------- */

static void on_signal(void *ctx)
{
    struct service *s = ctx;
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        int signo = (int)info.ssi_signo;
        if (signo == SIGHUP)
            reload(s);
        else if (s->state == SERVING)
            drain(s, signo);
        else
            end_at_once(s, signo);
    }
}

static void on_watchdog(void *ctx)
{
    struct service *s = ctx;
    notify_send("WATCHDOG=1");
    loop_timer_set(s->watchdog_timer, s->watchdog_ns);
}

static void service_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
}

int life_start(struct service *s, struct cairn_error *err)
{
    sigset_t set;
    service_signals(&set);
    s->wake_task.run = on_wake;
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int rc = s->signal_fd < 0 ? error_sys(err, errno, "signalfd") : CAIRN_OK;
    if (!rc)
        rc = loop_watch_new(s->loop, s->signal_fd, on_signal, s, &s->signals, err);
    if (!rc)
        rc = loop_timer_new(s->loop, on_drain_timer, s, &s->drain_timer, err);
    if (!rc)
        rc = loop_timer_new(s->loop, on_watchdog, s, &s->watchdog_timer, err);
    if (!rc && (s->watchdog_ns = notify_watchdog_ns()) > 0)
        on_watchdog(s);
    return rc;
}

void life_stop(struct service *s)
{
    sigset_t set;
    loop_watch_free(s->signals);
    loop_timer_free(s->drain_timer);
    loop_timer_free(s->watchdog_timer);
    s->signals = NULL;
    s->drain_timer = s->watchdog_timer = NULL;
    if (s->signal_fd < 0)
        return;
    util_closep(&s->signal_fd);
    s->signal_fd = -1;
    /* The loop has ended: a second signal finds its default action, which ends what is left. */
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_IGN);
    service_signals(&set);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
