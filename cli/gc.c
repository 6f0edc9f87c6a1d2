/* gc. */
#include "base/clock.h"
#include "base/util.h"
#include "cli/commands.h"
#include "cli/term.h"
#include "gc/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static int64_t seconds(int64_t s)
{
    return s < 0 ? -1 : s > INT64_MAX / NS_PER_S ? INT64_MAX : s * NS_PER_S;
}

struct cairn_gc_config app_gc_config(const struct config *c)
{
    struct cairn_gc_config out;
    cairn_gc_config_init(&out);
    out.grace_ns = seconds(c->generation_grace_seconds);
    out.visibility_ns = seconds(c->gc_visibility_seconds);
    out.young_ns = seconds(c->gc_young_seconds);
    out.dead_margin_ns = seconds(c->gc_dead_margin_seconds);
    out.ttl_ns = seconds(c->checkpoint_ttl_hours * 3600);
    return out;
}

struct printer {
    struct app *app;
    bool dry_run;
};

static void show_progress(void *ctx, const struct cairn_gc_result *r)
{
    (void)ctx;
    char bytes[TEXT_SIZE_MAX];
    text_size(r->bytes, bytes);
    term_progress_line("gc: %s  %" PRIu64 " object%s  %s", r->phase, r->objects, text_s(r->objects),
                       bytes);
}

/* In a dry run the actions are what was asked for. */
static void show_action(void *ctx, const char *verb, const char *object, const char *reason)
{
    const struct printer *p = ctx;
    if (!p->dry_run || p->app->json)
        return;
    char shown[256], why[256];
    text_escape_cut(shown, sizeof(shown), object, TEXT_NAME);
    text_escape_cut(why, sizeof(why), reason, TEXT_MESSAGE);
    output_printf(&p->app->out, "would %s %s: %s\n", verb, shown, why);
    output_piece(&p->app->out);
}

static void print_json(struct app *app, const struct cairn_gc_result *r,
                       const struct cairn_error *err)
{
    struct jsonw *w = &app->out.json;
    jsonw_object(w, NULL);
    jsonw_bool(w, "aborted", r->aborted);
    if (err)
        jsonw_str(w, "reason", err->message);
    json_sweep(w, r);
    jsonw_real(w, "seconds", r->seconds);
    jsonw_object_end(w);
    output_json_end(&app->out);
}

static void print_settings(struct app *app, const struct cairn_gc_config *c)
{
    struct cairn_gc_config all;
    cairn_gc_settings(app->store, c, &all);
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {
        {"generation_grace_seconds", all.grace_ns / NS_PER_S},
        {"gc_visibility_seconds", all.visibility_ns / NS_PER_S},
        {"gc_young_seconds", all.young_ns / NS_PER_S},
        {"gc_dead_margin_seconds", all.dead_margin_ns / NS_PER_S},
        {"checkpoint_ttl_hours", all.ttl_ns / NS_PER_S / 3600},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        output_printf(&app->out, "%-25s %" PRId64 "\n", rows[i].name, rows[i].value);
}

static void print_waiting(struct app *app, const struct cairn_gc_result *r)
{
    uint64_t n = r->waiting_closed + r->waiting_dead;
    char when[TEXT_TIME_MAX];
    if (!n)
        return;
    output_printf(
        &app->out, "%" PRIu64 " pack%s for %s time (%" PRIu64 " closed, %" PRIu64 " dead)", n,
        n == 1 ? " waits" : "s wait", n == 1 ? "its" : "their", r->waiting_closed, r->waiting_dead);
    if (r->next_ns < 0) {
        output_printf(&app->out, ", until what refers to %s is gone\n", n == 1 ? "it" : "them");
        return;
    }
    text_time(clock_add(clock_realtime(), r->next_ns), when);
    output_printf(&app->out, ", the first until %s\n", when);
}

static void print_young(struct app *app, const struct cairn_gc_result *r)
{
    char when[TEXT_TIME_MAX];
    if (!r->young)
        return;
    text_time(clock_add(clock_realtime(), r->young_ns), when);
    output_printf(&app->out,
                  "%" PRIu64 " pack%s that nobody refers to %s young, and %s left alone until %s\n",
                  r->young, text_s(r->young), r->young == 1 ? "is" : "are",
                  r->young == 1 ? "is" : "are", when);
}

static void print_text(struct app *app, const struct cairn_gc_result *r, bool dry_run)
{
    char freed[TEXT_SIZE_MAX];
    text_size(r->bytes_freed, freed);
    output_printf(&app->out,
                  "%" PRIu64 " record%s, %" PRIu64 " pack%s; %sdeleted %" PRIu64
                  " generation%s, %" PRIu64 " record%s, %" PRIu64 " pack%s (%s); closed %" PRIu64
                  ", buried %" PRIu64 ", repacked %" PRIu64 "\n",
                  r->records, text_s(r->records), r->packs_scanned, text_s(r->packs_scanned),
                  dry_run ? "would have " : "", r->generations_deleted,
                  text_s(r->generations_deleted), r->records_expired, text_s(r->records_expired),
                  r->packs_deleted, text_s(r->packs_deleted), freed, r->packs_closed, r->packs_dead,
                  r->packs_repacked);
    print_young(app, r);
    print_waiting(app, r);
}

int command_gc(struct app *app, struct cairn_error *err)
{
    /* Nobody waits for a sweep, and publishes and fetches run beside it. Threads inherit this. */
    (void)setpriority(PRIO_PROCESS, 0, 10);
    int rc = app_open(app, err);
    if (rc)
        return rc;
    struct printer p = {.app = app, .dry_run = app_flag(app, OPTION_DRY_RUN)};
    struct cairn_gc_config config = app_gc_config(&app->config);
    struct cairn_gc_options options = {.dry_run = p.dry_run,
                                       .wait = app_flag(app, OPTION_WAIT),
                                       .progress = show_progress,
                                       .action = show_action,
                                       .ctx = &p};
    struct cairn_gc_result result;
    if (p.dry_run && !app->json && !app->quiet)
        print_settings(app, &config);
    rc = cairn_gc(app->store, &app->op, &config, &options, &result, err);
    term_progress_end();
    if (app->json)
        print_json(app, &result, rc ? err : NULL);
    else if (!app->quiet && !result.aborted && result.packs_scanned + result.records)
        print_text(app, &result, p.dry_run);
    else if (!app->quiet && !rc)
        output_printf(&app->out, "nothing to collect\n");
    if (rc) {
        app_report(app, NULL, err);
        app->reported = true;
    }
    return rc;
}
