/* Fetching ahead what a trace names. On a backend that is far away, and counts. */
#include "store/prefetch.h"

#include "base/clock.h"
#include "base/util.h"
#include "store/cache.h"
#include "tests/lib/backend_fault.h"
#include "tests/lib/kit.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

static struct cairn_error err;
static struct kit k;
static struct prefetch_result result;

#define CS     65536u
#define CHUNKS 400u

static struct cairn_record *start(const struct kit_options *shape)
{
    struct cairn_record *r = NULL;
    struct kit_options o = *shape;
    o.mem = o.faulty = true;
    kit_start(&k, &o);
    kit_fill(&k, "one", "f", CHUNKS * CS, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", "{}", NULL, &err));
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    backend_fault_clear(k.s->backend);
    return r;
}

static void end(struct cairn_record *r)
{
    cairn_record_close(r);
    kit_stop(&k);
}

static unsigned reads(void)
{
    return backend_fault_calls(k.s->backend, FAULT_READ);
}

static void add(struct trace *t, uint64_t first, uint32_t count)
{
    ck_ok(trace_add(t, &(struct trace_run){first, 0, count}, &err));
}

/* Every step-th chunk, backwards. */
static void backwards(struct trace *t, unsigned step)
{
    for (unsigned no = CHUNKS; no >= step; no -= step)
        add(t, no - step, 1);
}

static void is_here(struct cairn_record *r, const struct trace *t)
{
    CLEANUP_FREE uint8_t *want = malloc((size_t)CHUNKS * CS), *is = malloc(CS);
    unsigned before = reads();
    size_t got;
    testing_fill(want, (size_t)CHUNKS * CS, 1);
    for (size_t i = 0; i < t->n; i++)
        for (uint64_t no = t->runs[i].first; no < t->runs[i].first + t->runs[i].count; no++) {
            ck_ok(cairn_record_pread(r, NULL, 0, is, CS, no * CS, &got, &err));
            ck_assert(memcmp(is, want + no * CS, CS) == 0);
        }
    ck_assert_uint_eq(reads(), before);
}

START_TEST(test_prefetch__neighbours_cost_one_read_whatever_their_order)
{
    CLEANUP_TRACE struct trace t = {0};
    struct cairn_record *r = start(&(struct kit_options){0});
    backwards(&t, 1);
    ck_assert_uint_eq(t.n, CHUNKS);
    ck_ok(prefetch_run(r, NULL, &t, &result, &err));
    ck_assert_uint_eq(result.chunks, CHUNKS);
    ck_assert_uint_eq(result.bytes, (uint64_t)CHUNKS * CS);
    ck_assert(!result.full);
    /* Windows of 8 MiB, in pieces of at most 1. */
    ck_assert_uint_le(reads(), CHUNKS / 16 + 5);
    is_here(r, &t);
    /* What is here is not fetched again. */
    backend_fault_clear(k.s->backend);
    ck_ok(prefetch_run(r, NULL, &t, &result, &err));
    ck_assert_uint_eq(reads(), 0);
    ck_assert_uint_eq(result.bytes, 0);
    end(r);
}
END_TEST

START_TEST(test_prefetch__scattered_chunks_are_fetched_and_no_others)
{
    CLEANUP_TRACE struct trace t = {0};
    struct cairn_record *r = start(&(struct kit_options){0});
    backwards(&t, 3);
    add(&t, 10, 2);
    add(&t, CHUNKS - 3, 1); /* once more */
    ck_ok(prefetch_run(r, NULL, &t, &result, &err));
    ck_assert_uint_le(reads(), CHUNKS / 3 + 2);
    ck_assert_uint_le(result.bytes, (CHUNKS / 3 + 3) * (uint64_t)CS);
    is_here(r, &t);
    end(r);
}
END_TEST

START_TEST(test_prefetch__a_small_cache_keeps_most_of_its_room)
{
    CLEANUP_TRACE struct trace t = {0};
    struct cairn_record *r = start(&(struct kit_options){.cache_bytes = 8 << 20});
    struct cache_stats st;
    backwards(&t, 2);
    ck_ok(prefetch_run(r, NULL, &t, &result, &err));
    ck_assert(result.full);
    ck_assert_uint_le(result.bytes, 1 << 20);
    ck_assert_uint_gt(result.bytes, 0);
    cache_stats(k.s->cache, &st);
    ck_assert_uint_le(st.inserted_bytes, 1 << 20);
    end(r);
}
END_TEST

START_TEST(test_prefetch__where_nothing_is_kept_nothing_is_fetched)
{
    CLEANUP_TRACE struct trace t = {0};
    struct cairn_record *r = start(&(struct kit_options){.no_index = true});
    ck_assert_ptr_null(k.s->cache);
    backwards(&t, 2);
    ck_ok(prefetch_run(r, NULL, &t, &result, &err));
    ck_assert_uint_eq(reads(), 0);
    end(r);
    /* Nor in a directory. */
    kit_start(&k, NULL);
    kit_fill(&k, "one", "f", 20 * CS, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", "{}", NULL, &err));
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    t.n = 1;
    t.runs[0] = (struct trace_run){0, 0, 20};
    ck_ok(prefetch_run(r, NULL, &t, &result, &err));
    ck_assert_uint_eq(result.chunks, 0);
    end(r);
}
END_TEST

START_TEST(test_prefetch__a_damaged_chunk_is_passed_over)
{
    CLEANUP_TRACE struct trace t = {0};
    char pack[KEY_MAX];
    struct cairn_record *r = start(&(struct kit_options){.compression = CAIRN_COMPRESSION_NONE});
    snprintf(pack, sizeof(pack), "%s", kit_first(&k, LAYOUT_PACKS));
    kit_damage(&k, pack, 4096 + 100 * CS + 77);
    for (unsigned no = 0; no < CHUNKS; no += 2)
        if (no != 100)
            add(&t, no, 1);
    CLEANUP_TRACE struct trace all = {0};
    add(&all, 100, 1);
    for (size_t i = 0; i < t.n; i++)
        add(&all, t.runs[i].first, 1);
    ck_ok(prefetch_run(r, NULL, &all, &result, &err));
    is_here(r, &t);
    end(r);
}
END_TEST

START_TEST(test_prefetch__an_error_ends_it)
{
    CLEANUP_TRACE struct trace t = {0};
    struct cairn_record *r = start(&(struct kit_options){0});
    struct fault_plan p = {
        .op = FAULT_READ, .nth = 5, .times = UINT_MAX, .error_class = CAIRN_TRANSIENT};
    ck_ok(backend_fault_add(k.s->backend, &p, &err));
    backwards(&t, 2);
    ck_fails(prefetch_run(r, NULL, &t, &result, &err), CAIRN_TRANSIENT);
    ck_assert_uint_lt(reads(), 40);
    end(r);
}
END_TEST

static void *fire_soon(void *arg)
{
    while (reads() < 4)
        op_pause(NULL, NS_PER_S / 1000);
    cairn_cancel_fire(arg);
    return NULL;
}

START_TEST(test_prefetch__it_ends_at_once_when_it_is_cancelled)
{
    CLEANUP_TRACE struct trace t = {0};
    struct cairn_record *r = start(&(struct kit_options){0});
    struct fault_plan p = {.op = FAULT_READ, .kind = FAULT_DELAY, .nth = 1, .times = UINT_MAX};
    struct cairn_op op = {.deadline_ns = CAIRN_NO_DEADLINE};
    pthread_t thread;
    ck_ok(cairn_cancel_new(&op.cancel, &err));
    ck_ok(backend_fault_add(k.s->backend, &p, &err));
    backwards(&t, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, fire_soon, op.cancel), 0);
    /* A read alone would last for minutes. */
    int64_t begun = clock_monotonic();
    ck_fails(prefetch_run(r, &op, &t, &result, &err), CAIRN_CANCELLED);
    ck_assert_int_lt((clock_monotonic() - begun) / NS_PER_S, 30);
    pthread_join(thread, NULL);
    /* Few reads were under way. */
    ck_assert_uint_le(reads(), 8);
    cairn_cancel_free(op.cancel);
    end(r);
}
END_TEST

START_TEST(test_prefetch__chunks_that_were_moved_are_found)
{
    CLEANUP_TRACE struct trace t = {0};
    char old[KEY_MAX];
    struct cairn_record *r = start(&(struct kit_options){0});
    backwards(&t, 2);
    /* The same export in another pack, under the same name. */
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    while (kit_first(&k, LAYOUT_PACKS)) {
        snprintf(old, sizeof(old), "%s", kit_first(&k, LAYOUT_PACKS));
        kit_remove(&k, old);
    }
    ck_ok(kit_publish(&k, CK_A, "one", "{}", NULL, &err));
    ck_ok(prefetch_run(r, NULL, &t, &result, &err));
    is_here(r, &t);
    end(r);
}
END_TEST

TESTING_MAIN(prefetch, test_prefetch__neighbours_cost_one_read_whatever_their_order,
             test_prefetch__scattered_chunks_are_fetched_and_no_others,
             test_prefetch__a_small_cache_keeps_most_of_its_room,
             test_prefetch__where_nothing_is_kept_nothing_is_fetched,
             test_prefetch__a_damaged_chunk_is_passed_over, test_prefetch__an_error_ends_it,
             test_prefetch__it_ends_at_once_when_it_is_cancelled,
             test_prefetch__chunks_that_were_moved_are_found)
