/* The keeper of pins, on a clock that the test moves (clock_boottime is wrapped by the linker). */
#include "store/pin_keeper.h"

#include "base/clock.h"
#include "base/log.h"
#include "store/pin.h"
#include "store/record.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/kit.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define HOUR (3600 * NS_PER_S)

static struct cairn_error err;
static struct kit k;
static _Atomic int64_t skew;
static atomic_uint lines; /* logged */

int64_t __real_clock_boottime(void);
int64_t __wrap_clock_boottime(void);
int64_t __wrap_clock_boottime(void)
{
    return __real_clock_boottime() + atomic_load(&skew);
}

static void count_line(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    atomic_fetch_add(&lines, strstr(line, "pin of ") != NULL);
}

/* On the store's clock as well, so that both are one. */
static void advance(int64_t ns)
{
    atomic_fetch_add(&skew, ns);
    backend_mem_advance(k.shared, ns);
    keeper_wake(k.s);
}

static struct keeper_stats stats(void)
{
    struct keeper_stats st;
    keeper_stats(k.s, &st);
    return st;
}

/* The keeper has done so many calls, and goes on to do nothing else. */
static void puts_are(uint64_t n)
{
    while (stats().puts < n || stats().busy)
        usleep(1000);
    usleep(20000);
    ck_assert_uint_eq(stats().puts, n);
}

static void pins_become(uint64_t n)
{
    while (kit_objects(&k, LAYOUT_PINS) != n)
        usleep(1000);
}

static void start(void)
{
    log_set_sink(count_line, NULL, LOG_LEVEL_DEBUG);
    kit_start(&k, &(struct kit_options){.mem = true, .faulty = true});
    kit_sample(&k, "one", 1);
    kit_fill(&k, "two", "memory", 200000, 0, 9); /* shares nothing with the other */
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_ok(kit_publish(&k, CK_B, "two", NULL, NULL, &err));
}

static struct cairn_record *hold(const char *id)
{
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, id, &r, &err));
    return r;
}

static void stop(void)
{
    kit_stop(&k);
    log_set_sink(NULL, NULL, LOG_LEVEL_DEBUG);
}

START_TEST(test_pin_keeper__short_reads_cost_nothing)
{
    start();
    struct cairn_record *r = hold(CK_A);
    advance(HOUR / 2 - NS_PER_S);
    puts_are(0);
    cairn_record_close(r);
    advance(HOUR);
    puts_are(0);
    ck_assert_uint_eq(stats().removes, 0);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PINS), 0);
    stop();
}
END_TEST

START_TEST(test_pin_keeper__what_is_held_for_long_is_pinned_and_let_go)
{
    struct pin p;
    start();
    struct cairn_record *r = hold(CK_A);
    advance(HOUR / 2);
    puts_are(1);
    pins_become(1);
    char key[KEY_MAX];
    snprintf(key, sizeof(key), "%s", kit_first(&k, LAYOUT_PINS));
    ck_ok(pin_get(k.s, NULL, key, &p, &err));
    struct cairn_record_info info;
    cairn_record_info(r, &info);
    ck_assert_str_eq(p.id, CK_A);
    ck_assert_str_eq(p.gen, info.gen);
    const struct manifest *m = atomic_load(&r->manifest);
    ck_assert_uint_ge(manifest_info(m)->n_packs, 1);
    ck_assert_uint_eq(p.packs.n, manifest_info(m)->n_packs);
    for (uint32_t i = 0; i < p.packs.n; i++)
        ck_assert(pack_set_has(&p.packs, manifest_pack(m, i)));
    pin_release(&p);
    /* Each quarter of the grace, under the same name. */
    for (unsigned i = 2; i < 6; i++) {
        advance(HOUR / 4 - 10 * NS_PER_S);
        puts_are(i - 1);
        advance(10 * NS_PER_S);
        puts_are(i);
    }
    pins_become(1);
    ck_assert_str_eq(kit_first(&k, LAYOUT_PINS), key);
    cairn_record_close(r);
    pins_become(0);
    ck_assert_uint_eq(stats().holds, 0);
    stop();
}
END_TEST

START_TEST(test_pin_keeper__all_holds_of_a_generation_share_a_pin)
{
    start();
    struct cairn_record *a = hold(CK_A), *b = hold(CK_B), *more[20];
    for (unsigned i = 0; i < 20; i++)
        more[i] = hold(CK_A);
    ck_assert_uint_eq(stats().holds, 22);
    ck_assert_uint_eq(stats().held_generations, 2);
    advance(HOUR / 2);
    puts_are(2);
    for (unsigned i = 0; i < 20; i++)
        cairn_record_close(more[i]);
    pins_become(2);
    cairn_record_close(a);
    pins_become(1);
    /* Held anew: young again. */
    a = hold(CK_A);
    advance(HOUR / 4 - 10 * NS_PER_S);
    puts_are(2);
    cairn_record_close(a);
    cairn_record_close(b);
    pins_become(0);
    stop();
}
END_TEST

START_TEST(test_pin_keeper__a_failed_put_is_tried_again_at_its_rate)
{
    start();
    struct cairn_record *r = hold(CK_A);
    lines = 0;
    ck_ok(backend_fault_add(
        k.s->backend,
        &(struct fault_plan){
            .op = FAULT_PUT, .kind = FAULT_FAIL, .nth = 1, .times = 3, .key_part = "pins/"},
        &err));
    advance(HOUR / 2);
    puts_are(1);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PINS), 0);
    for (unsigned i = 2; i <= 4; i++) {
        advance(HOUR / 64); /* not yet */
        puts_are(i - 1);
        advance(HOUR / 64 + NS_PER_S);
        puts_are(i);
    }
    pins_become(1);
    ck_assert_uint_eq(stats().failures, 3);
    ck_assert_uint_eq(lines, 2); /* when it began, and when it was over */
    cairn_record_close(r);
    pins_become(0);
    stop();
}
END_TEST

/* One put hangs, another pin's removal fails: nobody who reads or closes waits for it. */
START_TEST(test_pin_keeper__nobody_waits_for_it)
{
    start();
    struct cairn_record *a = hold(CK_A);
    ck_ok(backend_fault_add(
        k.s->backend,
        &(struct fault_plan){.op = FAULT_PUT, .kind = FAULT_DELAY, .nth = 1, .key_part = "pins/"},
        &err));
    advance(HOUR / 2);
    while (!backend_fault_fired(k.s->backend))
        usleep(1000);
    int64_t begun = clock_monotonic();
    struct cairn_record *b = hold(CK_B);
    cairn_record_close(b);
    cairn_record_close(a);
    ck_assert_int_lt(clock_monotonic() - begun, 10 * NS_PER_S);
    begun = clock_monotonic();
    cairn_close(k.s); /* ends the put */
    ck_assert_int_lt(clock_monotonic() - begun, 20 * NS_PER_S);
    k.s = kit_open(&k);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PINS), 0);
    stop();
}
END_TEST

START_TEST(test_pin_keeper__a_removal_that_fails_is_tried_some_times)
{
    start();
    struct cairn_record *a = hold(CK_A);
    advance(HOUR / 2);
    puts_are(1);
    ck_ok(backend_fault_add(
        k.s->backend,
        &(struct fault_plan){
            .op = FAULT_REMOVE, .kind = FAULT_FAIL, .nth = 1, .times = 2, .key_part = "pins/"},
        &err));
    cairn_record_close(a);
    for (unsigned i = 1; i <= 3; i++) {
        while (stats().removes < i || stats().busy)
            usleep(1000);
        advance(HOUR / 32 + NS_PER_S);
    }
    pins_become(0);
    ck_assert_uint_eq(stats().removes, 3);
    stop();
}
END_TEST

START_TEST(test_pin_keeper__pins_go_when_the_store_is_closed)
{
    struct cairn_fetch_shared_result r;
    struct cairn_fetch_shared_options o = {.lease_seconds = 86400};
    start();
    ck_ok(cairn_fetch_shared(k.s, NULL, CK_A, &o, &r, &err));
    advance(HOUR / 2);
    puts_are(1);
    pins_become(1);
    kit_reopen(&k);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PINS), 0);
    cairn_fetch_shared_result_release(&r);
    stop();
}
END_TEST

/* ---- With a collector ------------------------------------------------------------------------ */

static void sweep(void)
{
    struct cairn_gc_result r;
    ck_ok(cairn_gc(k.s, NULL, NULL, NULL, &r, &err));
}

/* Sweeps an hour apart, for long enough to delete what nobody needs. */
static void sweep_for(unsigned hours)
{
    for (unsigned i = 0; i < hours; i++) {
        uint64_t before = stats().puts;
        bool pinned = stats().holds > 0;
        for (unsigned j = 0; j < 4; j++)
            advance(HOUR / 4);
        while (pinned && stats().puts == before)
            usleep(1000);
        sweep();
    }
}

/* A lease keeps the packs of a record that was deleted from every node's sweeps, and not longer. */
START_TEST(test_pin_keeper__sweeps_keep_the_packs_of_a_lease)
{
    struct cairn_fetch_shared_result r;
    struct cairn_fetch_shared_options o = {.lease_seconds = 1e6};
    start();
    uint64_t packs = kit_objects(&k, LAYOUT_PACKS);
    ck_assert_uint_eq(packs, 2);
    struct cairn_record *b = hold(CK_B);
    ck_ok(cairn_fetch_shared(k.s, NULL, CK_A, &o, &r, &err));
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    cairn_record_close(b);
    sweep_for(40);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PACKS), packs);
    ck_ok(cairn_lease_release(k.s, r.lease, &err));
    pins_become(0);
    sweep_for(8);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PACKS), packs - 1);
    kit_same(&k, CK_B, "two");
    cairn_fetch_shared_result_release(&r);
    stop();
}
END_TEST

/* Its holder was killed: it counts for twice the grace. */
START_TEST(test_pin_keeper__the_pin_of_the_dead_expires)
{
    start();
    struct pin p;
    char node[LAYOUT_NODE_TEXT], gen[GEN_TEXT];
    snprintf(gen, sizeof(gen), "%s", k.result.gen);
    ck_ok(cairn_delete(k.s, NULL, CK_B, &err));
    ck_ok(pin_node(k.s, node, &err));
    ck_ok(pin_init(&p, node, CK_B, gen, &err));
    ck_ok(pin_put(k.s, NULL, &p, &err));
    pin_release(&p);
    sweep_for(1);
    pins_become(1);
    sweep_for(2);
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_PINS), 0);
    stop();
}
END_TEST

/* ---- A store that does not answer ---- */

/* Each put fails after more time than until the next one is due. */
static int slow_put(void *ctx, struct backend *b, const char *key, struct cairn_error *e)
{
    (void)ctx, (void)b;
    if (strncmp(key, LAYOUT_PINS, strlen(LAYOUT_PINS)) != 0)
        return CAIRN_OK;
    atomic_fetch_add(&skew, HOUR / 16);
    return error_set(e, CAIRN_TRANSIENT, ETIMEDOUT, "no answer");
}

START_TEST(test_pin_keeper__leases_end_while_the_store_does_not_answer)
{
    static const char *const ids[] = {CK_A, CK_B, CK_C};
    struct cairn_record *r[3];
    struct cairn_fetch_shared_result shared;
    kit_start(&k, &(struct kit_options){.mem = true});
    kit_sample(&k, "one", 1);
    for (unsigned i = 0; i < 3; i++) {
        ck_ok(kit_publish(&k, ids[i], "one", NULL, NULL, &err));
        ck_ok(cairn_record_open(k.s, NULL, ids[i], &r[i], &err));
    }
    struct cairn_fetch_shared_options o = {.lease_seconds = 7200};
    ck_ok(cairn_fetch_shared(k.s, NULL, CK_A, &o, &shared, &err));
    cairn_fetch_shared_result_release(&shared);
    ck_assert_uint_eq(stats().holds, 4);
    kit_hook(&k, &(struct kit_hooks){.before_put = slow_put});
    advance(HOUR);
    int64_t until = clock_monotonic() + 30 * NS_PER_S;
    while (stats().holds > 3) {
        ck_assert_int_lt(clock_monotonic(), until);
        usleep(1000);
    }
    for (unsigned i = 0; i < 3; i++)
        cairn_record_close(r[i]);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(pin_keeper, test_pin_keeper__leases_end_while_the_store_does_not_answer,
             test_pin_keeper__short_reads_cost_nothing,
             test_pin_keeper__what_is_held_for_long_is_pinned_and_let_go,
             test_pin_keeper__all_holds_of_a_generation_share_a_pin,
             test_pin_keeper__a_failed_put_is_tried_again_at_its_rate,
             test_pin_keeper__nobody_waits_for_it,
             test_pin_keeper__a_removal_that_fails_is_tried_some_times,
             test_pin_keeper__pins_go_when_the_store_is_closed,
             test_pin_keeper__sweeps_keep_the_packs_of_a_lease,
             test_pin_keeper__the_pin_of_the_dead_expires)
