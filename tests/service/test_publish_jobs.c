#include "base/clock.h"
#include "base/util.h"
#include "service/publish_jobs.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct cairn_error err;
static struct kit k;
static struct lane *lane;
static struct publish_jobs *jobs;
static atomic_int idled;
static char staging[300], tickets[300];

static void idle(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&idled, 1);
}

static void open_jobs(int64_t keep_ns)
{
    snprintf(staging, sizeof(staging), "%s/staging", k.state);
    snprintf(tickets, sizeof(tickets), "%s/publishes", k.state);
    struct publish_jobs_options o = {.store = k.s,
                                     .lane = lane,
                                     .staging = staging,
                                     .tickets = tickets,
                                     .keep_ns = keep_ns,
                                     .idle = idle};
    ck_ok(publish_jobs_new(&o, &jobs, &err));
}

static void setup_with(const struct kit_options *options)
{
    kit_start(&k, options);
    ck_ok(lane_new("test", 8, 64, &lane, &err));
    open_jobs(3600 * NS_PER_S);
}

static void setup(void)
{
    setup_with(NULL);
}

static void teardown(void)
{
    publish_jobs_free(jobs);
    lane_free(lane);
    kit_stop(&k);
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(util_pwrite_full(fd, text, strlen(text), 0), (ssize_t)strlen(text));
    close(fd);
}

struct staged {
    char token[TOKEN_TEXT], *path;
};

/* A staging with an export (that of a seed) and, unless it is NULL, a meta.json. */
static void stage(struct staged *s, const char *id, const char *text, const char *meta)
{
    char path[600];
    ck_ok(publish_jobs_stage(jobs, id, geteuid(), getegid(), s->token, &s->path, &err));
    snprintf(path, sizeof(path), "%s/export", s->path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/export/memory", s->path);
    put(path, text);
    snprintf(path, sizeof(path), "%s/meta.json", s->path);
    if (meta)
        put(path, meta);
}

static struct publish_request request(const char *id, const char *token)
{
    return (struct publish_request){.id = id, .token = token, .seconds = -1, .uid = geteuid()};
}

static int run(const struct publish_request *r, struct ticket *t)
{
    return publish_jobs_run(jobs, r, true, NULL, t, &err);
}

START_TEST(test_publish_jobs__the_same_request_again_is_told_the_same)
{
    setup();
    struct staged s;
    struct ticket t, u;
    stage(&s, CK_A, "hello", "{\"n\":1}");
    struct publish_request r = request(CK_A, s.token);
    r.digest = true;
    ck_ok(publish_jobs_look(jobs, s.token, geteuid(), NULL, &t, &err));
    ck_assert_int_eq(t.state, TICKET_STAGED);
    ck_ok(run(&r, &t));
    ck_assert_int_eq(t.state, TICKET_DONE);
    char gen[GEN_TEXT];
    ck_ok(gen_of_meta("{\"n\":1}", 7, gen, &err));
    ck_assert_str_eq(t.gen, gen);
    ck_assert_uint_eq(t.result.logical_bytes, 5);
    ck_assert_str_ne(t.result.digest, "");
    for (int i = 0; i < 3; i++) {
        ck_ok(run(&r, &u));
        ck_assert_int_eq(u.state, TICKET_DONE);
        ck_assert_str_eq(u.result.digest, t.result.digest);
        ck_assert_int_eq(u.updated_ns, t.updated_ns);
    }
    /* Also by a service that was started anew. */
    publish_jobs_free(jobs);
    open_jobs(3600 * NS_PER_S);
    ck_ok(run(&r, &u));
    ck_assert_int_eq(u.updated_ns, t.updated_ns);
    ck_ok(publish_jobs_look(jobs, s.token, geteuid(), NULL, &u, &err));
    ck_assert_int_eq(u.state, TICKET_DONE);
    ck_assert_uint_eq(u.result.logical_bytes, 5);
    /* The staging is gone, since the publish succeeded. */
    while (access(s.path, F_OK) == 0)
        usleep(1000);
    free(s.path);
    while (!atomic_load(&idled))
        usleep(1000);
    teardown();
}
END_TEST

START_TEST(test_publish_jobs__another_request_under_the_same_token_is_refused)
{
    setup();
    struct staged s;
    struct ticket t;
    stage(&s, CK_A, "hello", "{\"n\":1}");
    struct publish_request r = request(CK_A, s.token);
    r.keep = true;
    struct publish_request other_id = r, other_meta = r, other_user = r, folder = r, bad = r;
    other_id.id = CK_B;
    other_meta.meta = "{}";
    other_meta.meta_len = 2;
    other_user.uid = geteuid() + 1;
    folder.staging = "/tmp";
    ck_fails(run(&other_id, &t), CAIRN_INVALID);
    ck_fails(run(&other_user, &t), CAIRN_NOT_FOUND);
    ck_fails(run(&folder, &t), CAIRN_INVALID);
    ck_fails(publish_jobs_look(jobs, s.token, geteuid() + 1, NULL, &t, &err), CAIRN_NOT_FOUND);
    bool cancelling;
    ck_ok(publish_jobs_drop(jobs, s.token, geteuid() + 1, NULL, &cancelling, &err));
    ck_ok(run(&r, &t));
    ck_assert_int_eq(access(s.path, F_OK), 0); /* keep */
    ck_fails(run(&other_meta, &t), CAIRN_BUSY);
    ck_fails(run(&other_id, &t), CAIRN_INVALID);
    ck_fails(run(&other_user, &t), CAIRN_NOT_FOUND);
    static const char *const tokens[] = {"x", "../../../../etc",
                                         "00000000000000000000000000000000"};
    static const int want[] = {CAIRN_INVALID, CAIRN_INVALID, CAIRN_NOT_FOUND};
    for (size_t i = 0; i < ARRAY_SIZE(tokens); i++) {
        bad.token = tokens[i];
        ck_fails(run(&bad, &t), want[i]);
        ck_fails(publish_jobs_look(jobs, tokens[i], 0, NULL, &t, &err), CAIRN_NOT_FOUND);
        ck_ok(publish_jobs_drop(jobs, tokens[i], 0, NULL, &cancelling, &err));
    }
    bad.token = "";
    ck_fails(run(&bad, &t), CAIRN_INVALID);
    bad.id = "no id";
    ck_fails(run(&bad, &t), CAIRN_INVALID);
    free(s.path);
    teardown();
}
END_TEST

START_TEST(test_publish_jobs__a_folder_of_ones_own_needs_no_staging)
{
    setup();
    struct ticket t, u;
    char mine[300], path[400];
    snprintf(mine, sizeof(mine), "%s/mine", testing_tmpdir());
    snprintf(path, sizeof(path), "%s/export", mine);
    ck_assert_int_eq(mkdir(mine, 0700), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    struct publish_request r = request(CK_A, "");
    r.staging = mine;
    r.meta = "{}";
    r.meta_len = 2;
    ck_ok(run(&r, &t));
    ck_assert(ticket_token_is_valid(t.token));
    ck_assert_int_eq(access(path, F_OK), 0); /* never removed */
    /* With the token that it was given, or one of its own, the request can be repeated. */
    char token[TOKEN_TEXT];
    memcpy(token, t.token, TOKEN_TEXT);
    r.token = token;
    ck_ok(run(&r, &u));
    ck_assert_int_eq(u.updated_ns, t.updated_ns);
    ck_ok(ticket_token(token, &err));
    r.id = CK_B;
    ck_ok(run(&r, &u));
    ck_assert_str_eq(u.token, token);
    if (geteuid() == 0) {
        r.uid = 12345;
        r.id = CK_C;
        ck_ok(ticket_token(token, &err));
        ck_fails(run(&r, &t), CAIRN_PERMANENT);
        /* Theirs, but with a file in it that is not. */
        ck_assert_int_eq(chown(mine, 12345, 12345), 0);
        snprintf(path, sizeof(path), "%s/export/memory", mine);
        put(path, "a secret of somebody else");
        ck_fails(run(&r, &t), CAIRN_PERMANENT);
        ck_assert_ptr_nonnull(strstr(err.message, "memory"));
        ck_assert_int_eq(t.state, TICKET_FAILED);
        ck_assert_int_eq(chown(path, 12345, 12345), 0);
        ck_ok(run(&r, &t));
    }
    teardown();
}
END_TEST

START_TEST(test_publish_jobs__a_failed_one_is_remembered_and_may_be_tried_again)
{
    setup();
    struct staged s;
    struct ticket t;
    char path[600];
    stage(&s, CK_A, "hello", "{\"cairn_expect\":{\"memory\":6}}");
    struct publish_request r = request(CK_A, s.token);
    ck_fails(run(&r, &t), CAIRN_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "memory"));
    ck_assert_int_eq(t.state, TICKET_FAILED);
    ck_ok(publish_jobs_look(jobs, s.token, geteuid(), NULL, &t, &err));
    ck_assert_int_eq(t.state, TICKET_FAILED);
    ck_assert_int_eq(t.error.error_class, CAIRN_INVALID);
    ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_NOT_FOUND);
    snprintf(path, sizeof(path), "%s/export/memory", s.path);
    put(path, "hello!");
    ck_ok(run(&r, &t));
    ck_assert_int_eq(t.state, TICKET_DONE);
    ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_OK);
    free(s.path);
    teardown();
}
END_TEST

/* ---- At the same time ------------------------------------------------------------------------ */

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static bool gate_shut;
static int at_gate;

static int wait_at_gate(void *ctx, struct backend *b, struct cairn_error *e)
{
    (void)ctx, (void)b, (void)e;
    pthread_mutex_lock(&gate_lock);
    at_gate++;
    pthread_cond_broadcast(&gate_moved);
    while (gate_shut)
        pthread_cond_wait(&gate_moved, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
    return CAIRN_OK;
}

static void shut_gate(void)
{
    static const struct kit_hooks hooks = {.before_commit = wait_at_gate};
    gate_shut = true;
    at_gate = 0;
    kit_hook(&k, &hooks);
}

static void wait_until_at_gate(int n)
{
    pthread_mutex_lock(&gate_lock);
    while (at_gate < n)
        pthread_cond_wait(&gate_moved, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
}

static void open_gate(void)
{
    pthread_mutex_lock(&gate_lock);
    gate_shut = false;
    pthread_cond_broadcast(&gate_moved);
    pthread_mutex_unlock(&gate_lock);
}

struct caller {
    struct publish_request r;
    struct ticket t;
    struct cairn_op op;
    pthread_t thread;
    int rc;
};

static void *call(void *arg)
{
    struct caller *c = arg;
    struct cairn_error e;
    c->rc = publish_jobs_run(jobs, &c->r, true, &c->op, &c->t, &e);
    return NULL;
}

static void begin(struct caller *c, const struct publish_request *r)
{
    *c = (struct caller){.r = *r, .op = {.deadline_ns = CAIRN_NO_DEADLINE}};
    ck_assert_int_eq(pthread_create(&c->thread, NULL, call, c), 0);
}

START_TEST(test_publish_jobs__calls_with_one_token_share_one_publish)
{
    static const struct kit_options options = {.faulty = true};
    setup_with(&options);
    shut_gate();
    struct staged s;
    struct caller c[8];
    stage(&s, CK_A, "hello", "{}");
    struct publish_request r = request(CK_A, s.token);
    for (size_t i = 0; i < ARRAY_SIZE(c); i++)
        begin(&c[i], &r);
    wait_until_at_gate(1);
    struct ticket t;
    ck_ok(publish_jobs_look(jobs, s.token, geteuid(), NULL, &t, &err));
    ck_assert_int_eq(t.state, TICKET_RUNNING);
    ck_assert(publish_jobs_busy(jobs));
    /* One that does not want to wait, one that waits in vain, one of another request. */
    ck_ok(publish_jobs_run(jobs, &r, false, NULL, &t, &err));
    ck_assert_int_eq(t.state, TICKET_RUNNING);
    struct cairn_op spent;
    cairn_op_init(&spent, 0.01, NULL);
    ck_fails(publish_jobs_run(jobs, &r, true, &spent, &t, &err), CAIRN_TIMEOUT);
    struct publish_request other = r;
    other.digest = true;
    ck_fails(run(&other, &t), CAIRN_BUSY);
    /* Another publish of the same record: this one would win over it, or the other way round. */
    struct staged s2;
    stage(&s2, CK_A, "other", "{\"x\":1}");
    struct publish_request second = request(CK_A, s2.token);
    ck_fails(run(&second, &t), CAIRN_BUSY);
    open_gate();
    for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
        pthread_join(c[i].thread, NULL);
        ck_assert_int_eq(c[i].rc, CAIRN_OK);
        ck_assert_int_eq(c[i].t.state, TICKET_DONE);
        ck_assert_int_eq(c[i].t.updated_ns, c[0].t.updated_ns);
    }
    ck_assert_int_eq(at_gate, 1);
    ck_fails(run(&second, &t), CAIRN_BUSY); /* a checkpoint is published once */
    free(s.path);
    free(s2.path);
    teardown();
}
END_TEST

START_TEST(test_publish_jobs__a_publish_goes_on_without_its_caller_and_ends_when_it_is_dropped)
{
    static const struct kit_options options = {.faulty = true};
    setup_with(&options);
    shut_gate();
    struct staged s;
    struct caller c;
    struct ticket t;
    stage(&s, TP_A, "hello", "{}");
    struct publish_request r = request(TP_A, s.token);
    *(&c) = (struct caller){.r = r};
    cairn_op_init(&c.op, -1, NULL);
    ck_ok(cairn_cancel_new(&c.op.cancel, &err));
    ck_assert_int_eq(pthread_create(&c.thread, NULL, call, &c), 0);
    wait_until_at_gate(1);
    cairn_cancel_fire(c.op.cancel);
    pthread_join(c.thread, NULL);
    ck_assert_int_eq(c.rc, CAIRN_CANCELLED);
    cairn_cancel_free(c.op.cancel);
    ck_ok(publish_jobs_look(jobs, s.token, geteuid(), NULL, &t, &err));
    ck_assert_int_eq(t.state, TICKET_RUNNING);
    open_gate();
    ck_ok(run(&r, &t));
    ck_assert_int_eq(t.state, TICKET_DONE);
    free(s.path);

    /* Dropped while it runs: it ends by itself, is remembered so, and can be tried again. */
    shut_gate();
    stage(&s, TP_B, "hello", "{}");
    r = request(TP_B, s.token);
    bool cancelling;
    ck_ok(publish_jobs_run(jobs, &r, false, NULL, &t, &err));
    wait_until_at_gate(1);
    ck_ok(publish_jobs_drop(jobs, s.token, geteuid() + 1, NULL, &cancelling, &err));
    ck_assert(!cancelling);
    ck_ok(publish_jobs_drop(jobs, s.token, geteuid(), NULL, &cancelling, &err));
    ck_assert(cancelling);
    open_gate();
    while (publish_jobs_busy(jobs))
        usleep(1000);
    ck_ok(publish_jobs_look(jobs, s.token, geteuid(), NULL, &t, &err));
    /* It may have been too late. */
    ck_assert(t.state == TICKET_DONE || t.error.error_class == CAIRN_CANCELLED);
    ck_assert_int_eq(kit_opens(&k, TP_B), t.state == TICKET_DONE ? CAIRN_OK : CAIRN_NOT_FOUND);
    ck_ok(publish_jobs_drop(jobs, s.token, geteuid(), NULL, &cancelling, &err));
    ck_assert(!cancelling);
    ck_fails(publish_jobs_look(jobs, s.token, geteuid(), NULL, &t, &err), CAIRN_NOT_FOUND);
    ck_assert_int_eq(access(s.path, F_OK), -1);
    free(s.path);
    teardown();
}
END_TEST

static void *open_later(void *arg)
{
    (void)arg;
    usleep(50000);
    open_gate();
    return NULL;
}

START_TEST(test_publish_jobs__stopping_ends_what_runs_and_begins_nothing)
{
    static const struct kit_options options = {.faulty = true};
    setup_with(&options);
    shut_gate();
    struct staged s[3];
    struct ticket t;
    static const char *const ids[] = {CK_A, CK_B, TP_A};
    for (int i = 0; i < 3; i++) {
        stage(&s[i], ids[i], "hello", "{}");
        struct publish_request r = request(ids[i], s[i].token);
        ck_ok(publish_jobs_run(jobs, &r, false, NULL, &t, &err));
    }
    wait_until_at_gate(3);
    publish_jobs_cancel_all(jobs);
    pthread_t later;
    ck_assert_int_eq(pthread_create(&later, NULL, open_later, NULL), 0);
    publish_jobs_free(jobs); /* waits */
    pthread_join(later, NULL);
    open_jobs(3600 * NS_PER_S);
    for (int i = 0; i < 3; i++) {
        ck_ok(publish_jobs_look(jobs, s[i].token, geteuid(), NULL, &t, &err));
        ck_assert(t.state == TICKET_DONE || t.state == TICKET_FAILED);
        ck_assert_int_eq(kit_opens(&k, ids[i]),
                         t.state == TICKET_DONE ? CAIRN_OK : CAIRN_NOT_FOUND);
        struct publish_request r = request(ids[i], s[i].token);
        ck_ok(run(&r, &t));
        ck_assert_int_eq(t.state, TICKET_DONE);
        free(s[i].path);
    }
    teardown();
}
END_TEST

/* ---- After a death --------------------------------------------------------------------------- */

/* As a process leaves it that died between the ticket and the end of the publish. */
static void leave_queued(const char *token, const char *meta)
{
    int dir = open(tickets, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct ticket t;
    ck_ok(ticket_read(dir, token, &t, &err));
    t.state = TICKET_QUEUED;
    ck_ok(gen_of_meta(meta, strlen(meta), t.gen, &err));
    ck_ok(ticket_write(dir, &t, &err));
    close(dir);
}

START_TEST(test_publish_jobs__what_a_dead_process_left_is_found_out)
{
    setup();
    struct staged done, lost, again;
    struct ticket t;
    char from[600];
    stage(&done, CK_A, "one", "{\"n\":1}");
    stage(&lost, CK_B, "two", "{\"n\":2}");
    stage(&again, CK_C, "three", "{\"n\":3}");
    /* The first was committed, the others were not. */
    snprintf(from, sizeof(from), "%s/export", done.path);
    struct cairn_publish_options o = {.from = from, .meta = "{\"n\":1}", .meta_len = 7};
    struct cairn_publish_result result;
    ck_ok(cairn_publish(k.s, NULL, CK_A, &o, &result, &err));
    leave_queued(done.token, "{\"n\":1}");
    leave_queued(lost.token, "{\"n\":2}");
    leave_queued(again.token, "{\"n\":3}");
    publish_jobs_free(jobs);
    open_jobs(3600 * NS_PER_S);
    ck_ok(publish_jobs_look(jobs, done.token, geteuid(), NULL, &t, &err));
    ck_assert_int_eq(t.state, TICKET_DONE);
    ck_assert(t.recovered);
    ck_assert_str_eq(t.result.gen, result.gen);
    ck_assert_int_eq(access(done.path, F_OK), -1);
    /* Upkeep finds out what nobody asks for. */
    ck_ok(publish_jobs_tidy(jobs, NULL, &err));
    int dir = open(tickets, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_ok(ticket_read(dir, lost.token, &t, &err));
    close(dir);
    ck_assert_int_eq(t.state, TICKET_FAILED);
    ck_assert_int_eq(t.error.error_class, CAIRN_TRANSIENT);
    ck_assert_ptr_nonnull(strstr(t.error.message, "interrupted"));
    /* The id can be used again, by the same token or another. */
    struct publish_request r = request(CK_C, again.token);
    ck_ok(run(&r, &t));
    ck_assert_int_eq(t.state, TICKET_DONE);
    ck_assert(!t.recovered);
    struct staged fresh;
    stage(&fresh, CK_B, "two", "{\"n\":4}");
    r = request(CK_B, fresh.token);
    ck_ok(run(&r, &t));
    free(done.path), free(lost.path), free(again.path), free(fresh.path);
    teardown();
}
END_TEST

START_TEST(test_publish_jobs__what_is_old_goes_and_what_is_used_stays)
{
    setup();
    struct staged s, d;
    struct ticket t;
    stage(&s, CK_A, "one", "{}");
    stage(&d, CK_B, "two", "{}");
    struct publish_request r = request(CK_B, d.token);
    ck_ok(run(&r, &t));
    ck_ok(publish_jobs_tidy(jobs, NULL, &err));
    ck_ok(publish_jobs_look(jobs, s.token, geteuid(), NULL, &t, &err));
    ck_ok(publish_jobs_look(jobs, d.token, geteuid(), NULL, &t, &err));
    publish_jobs_free(jobs);
    open_jobs(0);
    /* A folder without its ticket, and something that is none of ours. */
    char orphan[400], strange[400];
    snprintf(orphan, sizeof(orphan), "%s/%032x", staging, 7);
    snprintf(strange, sizeof(strange), "%s/strange", staging);
    ck_assert_int_eq(mkdir(orphan, 0700), 0);
    ck_assert_int_eq(mkdir(strange, 0700), 0);
    ck_ok(publish_jobs_tidy(jobs, NULL, &err));
    ck_fails(publish_jobs_look(jobs, s.token, geteuid(), NULL, &t, &err), CAIRN_NOT_FOUND);
    ck_fails(publish_jobs_look(jobs, d.token, geteuid(), NULL, &t, &err), CAIRN_NOT_FOUND);
    ck_assert_int_eq(access(s.path, F_OK), -1);
    ck_assert_int_eq(access(orphan, F_OK), -1);
    ck_assert_int_eq(access(strange, F_OK), 0);
    ck_assert_int_eq(kit_opens(&k, CK_B), CAIRN_OK);
    free(s.path), free(d.path);
    teardown();
}
END_TEST

TESTING_MAIN(publish_jobs, test_publish_jobs__the_same_request_again_is_told_the_same,
             test_publish_jobs__another_request_under_the_same_token_is_refused,
             test_publish_jobs__a_folder_of_ones_own_needs_no_staging,
             test_publish_jobs__a_failed_one_is_remembered_and_may_be_tried_again,
             test_publish_jobs__calls_with_one_token_share_one_publish,
             test_publish_jobs__a_publish_goes_on_without_its_caller_and_ends_when_it_is_dropped,
             test_publish_jobs__stopping_ends_what_runs_and_begins_nothing,
             test_publish_jobs__what_a_dead_process_left_is_found_out,
             test_publish_jobs__what_is_old_goes_and_what_is_used_stays)
