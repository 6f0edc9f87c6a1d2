/* Random sequences of everything a store does, checked after each step against a small model of
 * what must be there. One step in a few is done by a child that is killed at a random time: then
 * what must be there is what was before it, or after.
 *
 *   CAIRN_SEED=N            repeat a run (the seed is told when a run fails)
 *   CAIRN_RANDOM_SECONDS=N  how long it goes on (20) */
#include "base/clock.h"
#include "base/util.h"
#include "store/current.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define EXPORTS 6
#define IDS     8

static struct cairn_error err;
static struct kit k;
static uint64_t seed, state;
static unsigned long steps;

/* In order. */
static const char *const ids[IDS] = {"ck_0000000000000000",
                                     "ck_0000000000000001",
                                     "ck_000000000000000f",
                                     "ck_0123456789abcdef",
                                     "ck_ffffffffffffffff",
                                     "tp_00000000000000000000000000000000",
                                     "tp_00000000000000000000000000000001",
                                     "tp_ffffffffffffffffffffffffffffffff"};

/* What must be there. */
struct slot {
    bool there;
    int export;
    char meta[16];
    bool half;  /* a removal was cut short: listed, and reads as not found */
    bool dying; /* a removal was begun, and all is still there: it cannot be held */
    bool held;
};
static struct slot model[IDS];

static unsigned pick(unsigned n)
{
    return (unsigned)(testing_random(&state) % n);
}

#define check_that(what)                                                                           \
    ck_assert_msg(what, "step %lu, CAIRN_SEED=%llu: " #what, steps, (unsigned long long)seed)

static const char *export_name(int e)
{
    static char names[EXPORTS][8];
    snprintf(names[e], sizeof(names[e]), "e%d", e);
    return names[e];
}

/* Alike, but not the same: they share chunks at the same places and at others. */
static void make_exports(void)
{
    for (int e = 0; e < EXPORTS; e++) {
        const char *name = export_name(e);
        kit_sample(&k, name, 1 + (uint64_t)e / 3);
        for (unsigned i = 0; i < 6; i++)
            kit_fill(&k, name, "memory", 1 + pick(30000), pick(400000), pick(4));
        kit_fill(&k, name, "disks/own", 1 + pick(100000), pick(3) * 65536u, pick(3));
        if (e % 2)
            kit_truncate(&k, name, "memory", 100000 + pick(500000));
    }
}

/* ---- Looking ---- */

/* The record is this slot's, and so are its bytes. */
static bool is_slot(int i, const struct slot *s)
{
    struct cairn_record *r = NULL;
    int rc = cairn_record_open(k.s, NULL, ids[i], &r, &err);
    if (!s->there || s->half) {
        if (!rc)
            cairn_record_close(r);
        return rc == CAIRN_NOT_FOUND;
    }
    if (rc)
        return false;
    struct cairn_record_info info;
    cairn_record_info(r, &info);
    bool same = info.meta_len == strlen(s->meta) && memcmp(info.meta, s->meta, info.meta_len) == 0;
    if (same)
        kit_same_folder(r, kit_path(&k, export_name(s->export), NULL));
    cairn_record_close(r);
    return same;
}

struct listing {
    int next;
    bool right;
};

static int see(void *ctx, const struct cairn_list_entry *e)
{
    struct listing *l = ctx;
    const struct slot *s = NULL;
    while (l->next < IDS && strcmp(ids[l->next], e->id) < 0)
        l->right = l->right && !model[l->next++].there;
    if (l->next < IDS && strcmp(ids[l->next], e->id) == 0)
        s = &model[l->next++];
    l->right =
        l->right && s && s->there && e->error_class == (s->half ? CAIRN_NOT_FOUND : CAIRN_OK);
    return 0;
}

static void check_list(void)
{
    struct listing l = {.right = true};
    ck_ok(cairn_list(k.s, NULL, NULL, see, &l, &err));
    while (l.next < IDS)
        l.right = l.right && !model[l.next++].there;
    check_that(l.right);
}

/* ---- Steps: each returns the class it had, and what it must have is in *want; *after is what the
 * slot is then if it succeeded ---- */

struct step {
    enum { PUBLISH, FORK, REMOVE, HOLD, RELEASE, KINDS } kind;
    int id, other, export;
    const char *parent;
    char meta[16];
};

static void choose(struct step *s)
{
    static unsigned metas;
    *s = (struct step){.kind = pick(KINDS), .id = (int)pick(IDS), .other = (int)pick(IDS)};
    s->export = (int)pick(EXPORTS);
    const struct slot *t = &model[s->id];
    if (t->there && pick(4) == 0) /* what is published already */
        memcpy(s->meta, t->meta, sizeof(s->meta));
    else
        snprintf(s->meta, sizeof(s->meta), "m%u", metas++);
    if (model[s->other].there && !model[s->other].half && pick(2))
        s->parent = ids[s->other];
}

static int run(const struct step *s)
{
    switch (s->kind) {
    case PUBLISH:
        return kit_publish(&k, ids[s->id], export_name(s->export), s->meta, s->parent, &err);
    case FORK:
        return kit_fork(&k, ids[s->other], ids[s->id], s->meta, &err);
    case REMOVE:
        return cairn_delete(k.s, NULL, ids[s->id], &err);
    case HOLD:
        return cairn_hold(k.s, NULL, ids[s->id], &err);
    case RELEASE:
        return cairn_release(k.s, NULL, ids[s->id], &err);
    case KINDS:
        break;
    }
    return CAIRN_INTERNAL;
}

static int must_be(const struct step *s, struct slot *after)
{
    const struct slot *t = &model[s->id], *from = &model[s->other];
    *after = *t;
    bool stands = t->there && !t->half;
    bool same_meta = stands && strcmp(t->meta, s->meta) == 0;
    int export = s->kind == FORK ? from->export : s->export;
    switch (s->kind) {
    case FORK:
        if (!from->there || from->half)
            return CAIRN_NOT_FOUND;
        /* fall through */
    case PUBLISH:
        if (same_meta && t->export != export)
            return CAIRN_INVALID;
        if (stands && !same_meta && ids[s->id][0] == 'c')
            return CAIRN_BUSY;
        *after = (struct slot){.there = true, .export = export, .held = t->held};
        memcpy(after->meta, s->meta, sizeof(after->meta));
        return CAIRN_OK;
    case REMOVE:
        if (t->held)
            return CAIRN_BUSY;
        *after = (struct slot){.there = false};
        return CAIRN_OK;
    case HOLD:
        if (!t->there)
            return CAIRN_NOT_FOUND;
        if (t->half || t->dying)
            return CAIRN_BUSY;
        after->held = true;
        return CAIRN_OK;
    case RELEASE:
        after->held = false;
        return CAIRN_OK;
    case KINDS:
        break;
    }
    return CAIRN_INTERNAL;
}

static void do_step(void)
{
    struct step s;
    struct slot after;
    choose(&s);
    int want = must_be(&s, &after), rc = run(&s);
    ck_assert_msg(rc == want, "step %lu, CAIRN_SEED=%llu: kind %d of %s: %s, not %s: %s", steps,
                  (unsigned long long)seed, s.kind, ids[s.id], cairn_class_name(rc),
                  cairn_class_name(want), rc ? err.message : "");
    if (!rc)
        model[s.id] = after;
    check_that(is_slot(s.id, &model[s.id]));
}

/* ---- A step cut short ---- */

static const char *gen_of(const struct slot *s)
{
    static char gen[GEN_TEXT];
    ck_ok(gen_of_meta(s->meta, strlen(s->meta), gen, &err));
    return gen;
}

static bool is_held(int i)
{
    char key[KEY_MAX];
    layout_hold(ids[i], key);
    return kit_has(&k, key);
}

static void killed_step(void)
{
    struct step s;
    struct slot after;
    choose(&s);
    int want = must_be(&s, &after);
    unsigned micros = pick(3) ? pick(4000) : pick(40000);
    cairn_close(k.s); /* a database connection must not cross a fork */
    k.s = NULL;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        k.s = kit_open(&k);
        _exit(run(&s) == want ? 0 : 1);
    }
    nanosleep(&(struct timespec){.tv_nsec = micros * 1000L}, NULL);
    kill(child, SIGKILL);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    k.s = kit_open(&k);
    bool done = WIFEXITED(status);
    check_that(!done || WEXITSTATUS(status) == 0);

    struct slot *t = &model[s.id], before = *t;
    if (want)
        after = before;
    if (s.kind == HOLD || s.kind == RELEASE) {
        bool held = is_held(s.id);
        check_that(held == before.held || held == after.held);
        check_that(!done || held == after.held);
        t->held = held;
    } else if (kit_opens(&k, ids[s.id]) == CAIRN_OK) {
        check_that(is_slot(s.id, &after) || (!done && is_slot(s.id, &before)));
        *t = is_slot(s.id, &after) ? after : before;
        if (t->there && !done)
            ck_ok(current_is_dying(k.s, NULL, ids[s.id], gen_of(t), &t->dying, &err));
    } else {
        /* Never was or is gone; a removal cut short leaves a meta.json. */
        check_that(!after.there || after.half || !done);
        check_that(!before.there || before.half || s.kind == REMOVE);
        char key[KEY_MAX];
        layout_meta(ids[s.id], key);
        bool listed = kit_has(&k, key);
        check_that(!listed || s.kind == REMOVE || before.half);
        *t = (struct slot){.there = listed, .half = listed, .held = before.held && listed};
    }
    check_that(is_slot(s.id, t));
}

/* ---- Other things that happen ---- */

static void fetch_one(void)
{
    int i = (int)pick(IDS);
    if (!model[i].there || model[i].half)
        return;
    struct cairn_record *r = NULL;
    struct cairn_fetch_result f;
    ck_ok(cairn_record_open(k.s, NULL, ids[i], &r, &err));
    char target[300], cmd[5000];
    snprintf(target, sizeof(target), "%.200s/out", k.stage);
    ck_ok(cairn_record_fetch(r, NULL, target, NULL, &f, &err));
    kit_same_folder(r, target);
    cairn_record_close(r);
    snprintf(cmd, sizeof(cmd), "diff -r '%s' '%s' >/dev/null && rm -rf '%s'", target,
             kit_path(&k, export_name(model[i].export), NULL), target);
    check_that(system(cmd) == 0);
}

static void read_some(void)
{
    static uint8_t want[100000], is[100000];
    int i = (int)pick(IDS);
    if (!model[i].there || model[i].half)
        return;
    struct cairn_record *r = NULL;
    struct cairn_record_info info;
    struct cairn_file f;
    ck_ok(cairn_record_open(k.s, NULL, ids[i], &r, &err));
    cairn_record_info(r, &info);
    for (int n = 0; n < 20; n++) {
        uint64_t file = pick((unsigned)info.files), off;
        cairn_record_file(r, file, &f);
        off = f.size ? testing_random(&state) % f.size : 0;
        size_t len = pick(sizeof(is)), got;
        ck_ok(cairn_record_pread(r, NULL, file, is, len, off, &got, &err));
        CLEANUP_FD int fd =
            open(kit_path(&k, export_name(model[i].export), f.path), O_RDONLY | O_CLOEXEC);
        ck_assert_int_eq(util_pread_full(fd, want, len, off), (ssize_t)got);
        check_that(memcmp(want, is, got) == 0);
        uint64_t data = cairn_record_seek(r, file, off, false);
        check_that(data >= off || data == f.size);
    }
    cairn_record_close(r);
}

static void lose_index(void)
{
    if (k.opt.no_index)
        return;
    char cmd[400];
    cairn_close(k.s);
    if (pick(2))
        snprintf(cmd, sizeof(cmd), "rm -rf '%s'", k.state);
    else
        snprintf(cmd, sizeof(cmd), "for d in '%s'/*; do echo garbage > \"$d/index.db\"; done",
                 k.state);
    ck_assert_int_eq(system(cmd), 0);
    k.s = kit_open(&k);
}

static void other_step(void)
{
    switch (pick(6)) {
    case 0:
        kit_reopen(&k);
        break;
    case 1:
        lose_index();
        break;
    case 2:
        kit_verify(&k);
        break;
    case 3:
        fetch_one();
        break;
    default:
        read_some();
    }
}

static uint64_t from_environment(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : fallback;
}

static void random_run(const struct kit_options *options, double seconds)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1);
    seed = from_environment("CAIRN_SEED", (uint64_t)clock_realtime() % 1000000007);
    state = seed;
    printf("CAIRN_SEED=%llu\n", (unsigned long long)seed);
    memset(model, 0, sizeof(model));
    kit_start(&k, options);
    make_exports();
    int64_t end = clock_add(clock_monotonic(), clock_from_seconds(seconds, 0));
    for (steps = 0; clock_monotonic() < end; steps++) {
        switch (pick(5)) {
        case 0:
            killed_step();
            break;
        case 1:
            other_step();
            break;
        default:
            do_step();
        }
        check_list();
    }
    for (int i = 0; i < IDS; i++)
        check_that(is_slot(i, &model[i]));
    kit_verify(&k);
    ck_assert_uint_gt(steps, 20);
    kit_stop(&k);
}

static double seconds_each(void)
{
    return (double)from_environment("CAIRN_RANDOM_SECONDS", 20) / 2;
}

START_TEST(test_random__a_store_does_what_its_model_says)
{
    random_run(&(struct kit_options){.chunk_size = 4096}, seconds_each());
}
END_TEST

START_TEST(test_random__a_store_without_index_too)
{
    random_run(&(struct kit_options){.chunk_size = 65536,
                                     .no_index = true,
                                     .compression = CAIRN_COMPRESSION_NONE},
               seconds_each());
}
END_TEST

TESTING_MAIN(random, test_random__a_store_does_what_its_model_says,
             test_random__a_store_without_index_too)
