#include "store/cache_fill.h"

#include "base/clock.h"
#include "base/util.h"
#include "store/record_map.h"
#include "tests/lib/backend_fault.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct cairn_error err;
static struct kit k;

#define CS 65536u

static void start(const struct kit_options *shape)
{
    struct kit_options o = *shape;
    o.mem = o.faulty = true;
    kit_start(&k, &o);
}

/* As another process, or the next one, would see it. */
static void restart(void)
{
    kit_reopen(&k);
}

static struct cairn_record *open_record(const char *id)
{
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, id, &r, &err));
    return r;
}

static unsigned reads(void)
{
    return backend_fault_calls(k.s->backend, FAULT_READ);
}

/* File 0 of r is the len bytes of seed from off on. */
static void read_same(struct cairn_record *r, uint64_t off, size_t len, uint64_t size,
                      uint64_t seed)
{
    CLEANUP_FREE uint8_t *want = malloc(size), *is = malloc(len);
    size_t got;
    testing_fill(want, size, seed);
    ck_ok(cairn_record_pread(r, NULL, 0, is, len, off, &got, &err));
    ck_assert_uint_eq(got, len);
    ck_assert_int_eq(memcmp(is, want + off, len), 0);
}

#define MB ((size_t)1 << 20)

START_TEST(test_cache_fill__a_random_read_is_one_request_for_its_chunk_and_then_none)
{
    start(&(struct kit_options){0});
    kit_fill(&k, "one", "f", 8 * MB, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    backend_fault_clear(k.s->backend);
    static const uint64_t at[] = {5 * MB + 77, 0, 7 * MB, 3 * MB + 4096, 2 * MB};
    for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
        read_same(r, at[i], 4096, 8 * MB, 1);
        ck_assert_uint_eq(reads(), i + 1);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(at); i++)
        read_same(r, at[i], 4096, 8 * MB, 1);
    ck_assert_uint_eq(reads(), ARRAY_SIZE(at));
    cairn_record_close(r);
    restart();
    r = open_record(CK_A);
    backend_fault_clear(k.s->backend);
    for (unsigned i = 0; i < ARRAY_SIZE(at); i++)
        read_same(r, at[i], 4096, 8 * MB, 1);
    ck_assert_uint_eq(reads(), 0);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

START_TEST(test_cache_fill__a_large_read_is_cut_at_four_megabytes)
{
    start(&(struct kit_options){0});
    kit_fill(&k, "one", "f", 16 * MB, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    backend_fault_clear(k.s->backend);
    read_same(r, 0, 16 * MB, 16 * MB, 1);
    ck_assert_uint_eq(reads(), 4);
    read_same(r, 0, 16 * MB, 16 * MB, 1);
    ck_assert_uint_eq(reads(), 4);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* Pages one after the other: few requests, and none for what lies behind a jump. */
START_TEST(test_cache_fill__reading_on_in_order_reads_ahead)
{
    start(&(struct kit_options){0});
    kit_fill(&k, "one", "f", 16 * MB, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    backend_fault_clear(k.s->backend);
    CLEANUP_FREE uint8_t *want = malloc(16 * MB);
    testing_fill(want, 16 * MB, 1);
    for (uint64_t at = 0; at < 16 * MB; at += 16384) {
        static uint8_t is[16384];
        size_t got;
        ck_ok(cairn_record_pread(r, NULL, 0, is, sizeof(is), at, &got, &err));
        ck_assert_uint_eq(got, sizeof(is));
        ck_assert_int_eq(memcmp(is, want + at, sizeof(is)), 0);
    }
    /* Chunks 0, 1 and 2 alone; then 1, 2, 4, 4 and 4 MiB. */
    ck_assert_uint_le(reads(), 9);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* A fork that changed a little of every chunk: each is stored against the one that it replaces. */
static void stage_fork(void)
{
    kit_fill(&k, "two", "f", 2 * MB, 0, 1);
    for (unsigned i = 0; i < 32; i++)
        kit_fill(&k, "two", "f", 100, (uint64_t)i * CS + 1000, 100 + i);
}

/* Both, published where packs are files and bases therefore used, in a store where they are not. */
static void start_with_fork(void)
{
    struct kit dir;
    kit_start(&k, &(struct kit_options){0});
    kit_fill(&k, "one", "f", 2 * MB, 0, 1);
    stage_fork();
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_ok(kit_publish(&k, CK_B, "two", NULL, CK_A, &err));
    ck_assert_uint_lt(k.result.stored_bytes, 64 * 1024);
    dir = k;
    start(&(struct kit_options){0});
    struct backend *from = dir.s->backend, *to = k.s->backend;
    struct backend_iter *it = NULL;
    ck_ok(from->ops->list(from, NULL, "", "", &it, &err));
    for (struct backend_entry e;;) {
        ck_ok(from->ops->iter_next(it, NULL, &e, &err));
        if (!e.key)
            break;
        CLEANUP_BUF struct buf data = BUF_INIT(64 << 20);
        ck_ok(from->ops->get(from, NULL, e.key, 64 << 20, &data, NULL, &err));
        ck_ok(to->ops->put(to, NULL, e.key, data.data, data.len, &err));
    }
    from->ops->iter_free(it);
    kit_stop(&dir);
    restart();
}

static void same_fork(struct cairn_record *r)
{
    CLEANUP_FREE uint8_t *want = malloc(2 * MB), *is = malloc(2 * MB);
    size_t got;
    testing_fill(want, 2 * MB, 1);
    for (unsigned i = 0; i < 32; i++)
        testing_fill(want + (size_t)i * CS + 1000, 100, 100 + i);
    ck_ok(cairn_record_pread(r, NULL, 0, is, 2 * MB, 0, &got, &err));
    ck_assert_uint_eq(got, 2 * MB);
    ck_assert_int_eq(memcmp(is, want, 2 * MB), 0);
}

START_TEST(test_cache_fill__bases_are_fetched_with_what_needs_them_and_kept)
{
    start_with_fork();
    for (int cached = 1; cached >= 0; cached--) {
        k.opt.no_cache = !cached;
        restart();
        struct cairn_record *r = open_record(CK_B);
        backend_fault_clear(k.s->backend);
        same_fork(r);
        ck_assert_uint_eq(reads(), cached ? 2 : 2); /* its own chunks, and the bases */
        cairn_record_close(r);
        r = open_record(CK_A);
        read_same(r, 0, 2 * MB, 2 * MB, 1);
        ck_assert_uint_eq(reads(), cached ? 2 : 3);
        cairn_record_close(r);
        if (cached) {
            /* The cache keeps both. */
            r = open_record(CK_B);
            same_fork(r);
            ck_assert_uint_eq(reads(), 2);
            cairn_record_close(r);
            char folder[600];
            snprintf(folder, sizeof(folder), "rm -r %s/*/cache/packs/*", k.state);
            ck_assert_int_eq(system(folder), 0);
        }
    }
    kit_stop(&k);
}
END_TEST

/* ---- Many at once ---- */

#define READERS 50

struct reader {
    pthread_t thread;
    struct cairn_record *r;
    pthread_barrier_t *barrier;
    struct cairn_op op;
    int rc;
    struct cairn_error err;
    uint8_t is[4096];
};

static void *read_one(void *arg)
{
    struct reader *x = arg;
    size_t got;
    pthread_barrier_wait(x->barrier);
    x->rc = cairn_record_pread(x->r, &x->op, 0, x->is, sizeof(x->is), 3 * CS + 8192, &got, &x->err);
    return NULL;
}

static void fifty(struct reader readers[READERS], struct cairn_record *r, double seconds)
{
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, READERS);
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.r = r, .barrier = &barrier};
        cairn_op_init(&readers[i].op, seconds, NULL);
        ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, read_one, &readers[i]), 0);
    }
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
}

START_TEST(test_cache_fill__fifty_readers_of_one_chunk_cost_one_request)
{
    static struct reader readers[READERS];
    static uint8_t want[8 * CS];
    start(&(struct kit_options){0});
    kit_fill(&k, "one", "f", 8 * CS, 0, 1);
    testing_fill(want, sizeof(want), 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    backend_fault_clear(k.s->backend);
    fifty(readers, r, 60);
    for (int i = 0; i < READERS; i++) {
        ck_assert_msg(readers[i].rc == CAIRN_OK, "%s", readers[i].err.message);
        ck_assert_int_eq(memcmp(readers[i].is, want + 3 * CS + 8192, 4096), 0);
    }
    ck_assert_uint_eq(reads(), 1);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* Who has little time leaves in time; the failure of one read is not remembered. */
START_TEST(test_cache_fill__readers_leave_at_their_own_deadline)
{
    static struct reader readers[READERS];
    start(&(struct kit_options){0});
    kit_fill(&k, "one", "f", 8 * CS, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    backend_fault_clear(k.s->backend);
    struct fault_plan black_hole = {.op = FAULT_READ, .kind = FAULT_DELAY, .nth = 1};
    ck_ok(backend_fault_add(k.s->backend, &black_hole, &err));
    int64_t begin = clock_monotonic();
    fifty(readers, r, 0.3);
    ck_assert_int_lt(clock_monotonic() - begin, 30 * NS_PER_S);
    for (int i = 0; i < READERS; i++)
        ck_assert_int_eq(readers[i].rc, CAIRN_TIMEOUT);
    ck_assert_uint_eq(reads(), 1);
    struct cairn_op spent;
    cairn_op_init(&spent, 0, NULL);
    uint8_t is[100];
    size_t got;
    ck_fails(cairn_record_pread(r, &spent, 0, is, 100, 6 * CS, &got, &err), CAIRN_TIMEOUT);
    ck_assert_uint_eq(reads(), 1); /* sent nothing */
    read_same(r, 6 * CS, 100, 8 * CS, 1);
    cairn_record_close(r);
    kit_stop(&k); /* ends the one that hangs */
    ck_assert_int_lt(clock_monotonic() - begin, 60 * NS_PER_S);
}
END_TEST

START_TEST(test_cache_fill__an_error_reaches_all_who_waited_and_nobody_later)
{
    static struct reader readers[READERS];
    for (int c = CAIRN_TRANSIENT; c <= CAIRN_PERMANENT; c++) {
        start(&(struct kit_options){0});
        kit_fill(&k, "one", "f", 8 * CS, 0, 1);
        ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
        struct cairn_record *r = open_record(CK_A);
        backend_fault_clear(k.s->backend);
        struct fault_plan p = {
            .op = FAULT_READ, .nth = 1, .times = UINT_MAX, .error_class = c, .sys_errno = EIO};
        ck_ok(backend_fault_add(k.s->backend, &p, &err));
        fifty(readers, r, 60);
        for (int i = 0; i < READERS; i++) {
            ck_assert_int_eq(readers[i].rc, c);
            ck_assert_ptr_nonnull(strstr(readers[i].err.message, "packs/"));
        }
        backend_fault_clear(k.s->backend);
        read_same(r, 3 * CS, 4096, 8 * CS, 1);
        ck_assert_uint_eq(reads(), 1);
        cairn_record_close(r);
        kit_stop(&k);
    }
}
END_TEST

/* ---- What it does not trust ---- */

/* Every byte of every cache file is xored with mask, from CACHE_DATA_AT on. */
static unsigned spoil(uint64_t step)
{
    char command[700];
    unsigned n = 0;
    snprintf(command, sizeof(command), "find %s/*/cache/packs -type f", k.state);
    FILE *f = popen(command, "r");
    char path[600];
    while (fgets(path, sizeof(path), f)) {
        path[strcspn(path, "\n")] = 0;
        CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        for (uint64_t at = 2 * MB + 5; at < (uint64_t)st.st_size; at += step, n++) {
            uint8_t byte = 0;
            ck_assert_int_eq(util_pread_full(fd, &byte, 1, at), 1);
            byte ^= 1;
            ck_assert_int_eq(util_pwrite_full(fd, &byte, 1, at), 1);
        }
    }
    pclose(f);
    return n;
}

START_TEST(test_cache_fill__decay_of_the_cache_is_found_at_first_use_and_healed)
{
    start_with_fork();
    restart();
    struct cairn_record *r = open_record(CK_A);
    read_same(r, 0, 2 * MB, 2 * MB, 1);
    cairn_record_close(r);
    restart();
    ck_assert_uint_ge(spoil(2 * CS), 16); /* every second chunk */
    r = open_record(CK_B);
    backend_fault_clear(k.s->backend);
    same_fork(r); /* by way of spoiled bases */
    cairn_record_close(r);
    r = open_record(CK_A);
    read_same(r, 0, 2 * MB, 2 * MB, 1);
    cairn_record_close(r);
    ck_assert_uint_gt(reads(), 1);
    restart();
    r = open_record(CK_A);
    backend_fault_clear(k.s->backend);
    read_same(r, 0, 2 * MB, 2 * MB, 1);
    ck_assert_uint_eq(reads(), 0);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* What came damaged is not kept; twice is corrupt, and only that chunk. */
START_TEST(test_cache_fill__damage_on_the_way_is_read_again_and_never_kept)
{
    start(&(struct kit_options){0});
    kit_fill(&k, "one", "f", 8 * CS, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    static uint8_t is[8 * CS];
    size_t got;
    struct fault_plan p = {.op = FAULT_READ,
                           .kind = FAULT_FLIP,
                           .nth = 1,
                           .times = 2,
                           .key_part = "packs/",
                           .keep = 8 * (2 * CS + 100)};
    backend_fault_clear(k.s->backend);
    ck_ok(backend_fault_add(k.s->backend, &p, &err));
    ck_fails(cairn_record_pread(r, NULL, 0, is, sizeof(is), 0, &got, &err), CAIRN_CORRUPT);
    ck_assert_uint_eq(got, 2 * CS);
    ck_assert_uint_eq(reads(), 2);
    backend_fault_clear(k.s->backend);
    read_same(r, 0, 2 * CS, 8 * CS, 1);
    read_same(r, 3 * CS, 5 * CS, 8 * CS, 1);
    ck_assert_uint_eq(reads(), 0);
    read_same(r, 2 * CS, CS, 8 * CS, 1);
    ck_assert_uint_eq(reads(), 1);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* ---- Without a cache to put it into ---- */

START_TEST(test_cache_fill__a_bound_too_small_for_anything_fails_nobody)
{
    start(&(struct kit_options){0});
    kit_fill(&k, "one", "f", 8 * MB, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    budget_take(k.s->budget, UINT64_MAX / 4);
    struct cairn_record *r = open_record(CK_A);
    backend_fault_clear(k.s->backend);
    read_same(r, 0, 8 * MB, 8 * MB, 1);
    ck_assert_uint_eq(reads(), 2); /* what was fetched for one call serves all of it */
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* ---- Mapping ---- */

static void map_same(struct cairn_record *r, uint64_t i, const uint8_t *want, uint64_t size,
                     uint64_t off, uint64_t len, size_t max)
{
    struct record_span spans[8];
    CLEANUP_FREE uint8_t *is = malloc(len + 1);
    uint64_t end = off + len < size ? off + len : size, at = off;
    while (at < end) {
        size_t n;
        ck_ok(record_map(r, NULL, i, at, len - (at - off), spans, max, &n, &err));
        ck_assert(n >= 1 && n <= max);
        for (size_t x = 0; x < n; x++) {
            ck_assert_uint_ge(spans[x].len, 1);
            ck_assert_uint_le(spans[x].len, end - at);
            if (spans[x].fd >= 0)
                ck_assert_int_eq(util_pread_full(spans[x].fd, is, spans[x].len, spans[x].offset),
                                 (ssize_t)spans[x].len);
            else if (spans[x].data)
                memcpy(is, spans[x].data, spans[x].len);
            else
                memset(is, 0, spans[x].len);
            ck_assert_int_eq(memcmp(is, want + at, spans[x].len), 0);
            at += spans[x].len;
        }
        record_spans_release(k.s, spans, n);
    }
    ck_assert_uint_eq(at, end);
}

/* Data, holes, zeros, chunks that are encoded, an odd end. */
static uint8_t *stage_mixed(uint64_t *size)
{
    *size = 40 * CS + 100;
    uint8_t *bytes = calloc(1, *size);
    kit_truncate(&k, "mix", "f", *size);
    for (uint64_t c = 0; c < 41; c++) {
        size_t len = c == 40 ? 100 : CS;
        if (c % 7 == 3)
            continue;
        testing_fill(bytes + c * CS, len, c + 1);
        if (c % 5 == 2) /* compresses */
            memset(bytes + c * CS, (int)c, len - len / 8);
        kit_write(&k, "mix", "f", bytes + c * CS, len, c * CS);
    }
    return bytes;
}

static void every_map(struct kit_options shape)
{
    uint64_t size, seed = 1;
    kit_start(&k, &shape);
    CLEANUP_FREE uint8_t *want = stage_mixed(&size);
    ck_ok(kit_publish(&k, CK_A, "mix", NULL, NULL, &err));
    for (int round = 0; round < 3; round++) {
        struct cairn_record *r = open_record(CK_A);
        map_same(r, 0, want, size, 0, size + 1000, 8);
        for (int i = 0; i < 60; i++) {
            uint64_t off = testing_random(&seed) % size, len = testing_random(&seed) % (6 * CS);
            if (len)
                map_same(r, 0, want, size, off, len, 1 + i % 8);
        }
        struct record_span span;
        size_t n = 7;
        ck_ok(record_map(r, NULL, 0, size, 10, &span, 1, &n, &err));
        ck_assert_uint_eq(n, 0);
        ck_ok(record_map(r, NULL, 0, 5, 0, &span, 1, &n, &err));
        ck_assert_uint_eq(n, 0);
        ck_fails(record_map(r, NULL, 1, 0, 10, &span, 1, &n, &err), CAIRN_INVALID);
        cairn_record_close(r);
        if (round == 1)
            kit_reopen(&k);
    }
    kit_stop(&k);
}

START_TEST(test_cache_fill__mapped_bytes_are_the_files)
{
    for (int mem = 0; mem < 2; mem++) {
        every_map((struct kit_options){.mem = mem});
        every_map((struct kit_options){.mem = mem, .no_cache = true});
        every_map((struct kit_options){.mem = mem, .no_index = true});
        every_map((struct kit_options){.mem = mem, .chunk_size = 4096});
        every_map((struct kit_options){.mem = mem, .compression = CAIRN_COMPRESSION_NONE});
    }
}
END_TEST

/* Spans keep what they point at, whatever happens to the record and the cache. */
START_TEST(test_cache_fill__spans_outlive_record_eviction_and_pack)
{
    for (int mem = 0; mem < 2; mem++) {
        kit_start(&k, &(struct kit_options){.mem = mem});
        uint64_t size;
        CLEANUP_FREE uint8_t *want = stage_mixed(&size), *is = malloc(size);
        ck_ok(kit_publish(&k, CK_A, "mix", NULL, NULL, &err));
        struct cairn_record *r = open_record(CK_A);
        struct record_span spans[64];
        size_t n;
        ck_ok(record_map(r, NULL, 0, 0, size, spans, 64, &n, &err));
        cairn_record_close(r);
        char command[600];
        snprintf(command, sizeof(command), "rm -r %s/*/cache", k.state);
        ck_assert_int_eq(system(command), 0);
        ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
        kit_remove(&k, kit_first(&k, LAYOUT_PACKS));
        uint64_t at = 0;
        for (size_t x = 0; x < n; at += spans[x++].len) {
            if (spans[x].fd >= 0)
                ck_assert_int_eq(util_pread_full(spans[x].fd, is, spans[x].len, spans[x].offset),
                                 (ssize_t)spans[x].len);
            else
                memset(is, 0, spans[x].len);
            ck_assert_int_eq(memcmp(is, want + at, spans[x].len), 0);
        }
        ck_assert_uint_eq(at, size);
        record_spans_release(k.s, spans, n);
        kit_stop(&k);
    }
}
END_TEST

/* What a collector of another process deleted does not stay on the disk because it was once read.
 */
START_TEST(test_cache_fill__deleted_packs_are_let_go_when_nobody_reads_them)
{
    kit_start(&k, &(struct kit_options){.compression = CAIRN_COMPRESSION_NONE});
    kit_fill(&k, "one", "f", 4 * CS, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    struct cairn_record *r = open_record(CK_A);
    struct record_span spans[8];
    size_t n;
    ck_ok(record_map(r, NULL, 0, 0, 4 * CS, spans, 8, &n, &err));
    size_t before = kit_descriptors();
    pack_files_tidy(k.s->packs);
    kit_remove(&k, kit_first(&k, LAYOUT_PACKS));
    pack_files_tidy(k.s->packs);
    ck_assert_uint_eq(kit_descriptors(), before); /* it is being read */
    record_spans_release(k.s, spans, n);
    pack_files_tidy(k.s->packs);
    ck_assert_uint_eq(kit_descriptors(), before - 1);
    ck_fails(record_map(r, NULL, 0, 0, 4 * CS, spans, 8, &n, &err), CAIRN_CORRUPT);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* A directory's raw chunks are verified once, and found damaged before they are handed out. */
START_TEST(test_cache_fill__a_damaged_raw_chunk_is_not_mapped)
{
    kit_start(&k, &(struct kit_options){.compression = CAIRN_COMPRESSION_NONE});
    kit_fill(&k, "one", "f", 4 * CS, 0, 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    kit_damage(&k, kit_first(&k, LAYOUT_PACKS), 2 * CS + 4096 + 10);
    struct cairn_record *r = open_record(CK_A);
    struct record_span spans[8];
    size_t n;
    ck_fails(record_map(r, NULL, 0, 0, 4 * CS, spans, 8, &n, &err), CAIRN_CORRUPT);
    ck_assert_uint_eq(n, 0);
    ck_fails(record_map_part(r, NULL, 0, 0, 4 * CS, spans, 8, &n, &err), CAIRN_CORRUPT);
    ck_assert_uint_eq(n, 1); /* chunks 0 and 1, in one piece */
    ck_assert_uint_eq(spans[0].len, 2 * CS);
    record_spans_release(k.s, spans, n);
    ck_ok(record_map(r, NULL, 0, 3 * CS, CS, spans, 8, &n, &err));
    record_spans_release(k.s, spans, n);
    kit_damage(&k, kit_first(&k, LAYOUT_PACKS), 2 * CS + 4096 + 10);
    ck_ok(record_map(r, NULL, 0, 0, 4 * CS, spans, 8, &n, &err));
    ck_assert_uint_eq(n, 1);
    record_spans_release(k.s, spans, n);
    cairn_record_close(r);
    kit_stop(&k);
}
END_TEST

/* ---- Everything at once ---- */

struct walker {
    pthread_t thread;
    const char *id;
    uint64_t seed;
    const uint8_t *want;
    int wrong;
};

static void *walk(void *arg)
{
    struct walker *w = arg;
    struct cairn_error e;
    uint8_t is[3 * 4096];
    for (int i = 0; i < 60; i++) {
        struct cairn_record *r = NULL;
        size_t got = 0;
        uint64_t off = testing_random(&w->seed) % (2 * MB - sizeof(is));
        if (cairn_record_open(k.s, NULL, w->id, &r, &e) ||
            cairn_record_pread(r, NULL, 0, is, sizeof(is), off, &got, &e) || got != sizeof(is) ||
            memcmp(is, w->want + off, got) != 0)
            w->wrong++;
        cairn_record_close(r);
    }
    return NULL;
}

/* Two records whose chunks are each other's bases and neighbours, read by many, under evictions. */
START_TEST(test_cache_fill__many_readers_of_based_chunks_never_wait_in_a_circle)
{
    struct walker w[12];
    CLEANUP_FREE uint8_t *one = malloc(2 * MB), *two = malloc(2 * MB);
    start_with_fork();
    testing_fill(one, 2 * MB, 1);
    testing_fill(two, 2 * MB, 1);
    for (unsigned i = 0; i < 32; i++)
        testing_fill(two + (size_t)i * CS + 1000, 100, 100 + i);
    for (unsigned i = 0; i < ARRAY_SIZE(w); i++) {
        w[i] = (struct walker){.id = i % 2 ? CK_A : CK_B, .seed = i + 1, .want = i % 2 ? one : two};
        ck_assert_int_eq(pthread_create(&w[i].thread, NULL, walk, &w[i]), 0);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(w); i++) {
        pthread_join(w[i].thread, NULL);
        ck_assert_int_eq(w[i].wrong, 0);
    }
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(cache_fill, test_cache_fill__a_random_read_is_one_request_for_its_chunk_and_then_none,
             test_cache_fill__a_large_read_is_cut_at_four_megabytes,
             test_cache_fill__reading_on_in_order_reads_ahead,
             test_cache_fill__bases_are_fetched_with_what_needs_them_and_kept,
             test_cache_fill__fifty_readers_of_one_chunk_cost_one_request,
             test_cache_fill__readers_leave_at_their_own_deadline,
             test_cache_fill__an_error_reaches_all_who_waited_and_nobody_later,
             test_cache_fill__decay_of_the_cache_is_found_at_first_use_and_healed,
             test_cache_fill__damage_on_the_way_is_read_again_and_never_kept,
             test_cache_fill__a_bound_too_small_for_anything_fails_nobody,
             test_cache_fill__mapped_bytes_are_the_files,
             test_cache_fill__spans_outlive_record_eviction_and_pack,
             test_cache_fill__deleted_packs_are_let_go_when_nobody_reads_them,
             test_cache_fill__a_damaged_raw_chunk_is_not_mapped,
             test_cache_fill__many_readers_of_based_chunks_never_wait_in_a_circle)
