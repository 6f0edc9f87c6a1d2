#include "store/cache_private.h"

#include "base/util.h"
#include "tests/lib/testing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define CS    65536u
#define LIMIT (4u << 20)

static struct cairn_error err;
static const char *folder;
static uint8_t secret[XXH3_SECRET_LEN];

/* One process's view of the folder. */
struct view {
    struct budget *budget;
    struct cache *c;
};

static void open_view(struct view *v, int64_t limit)
{
    ck_ok(budget_new(folder, limit, &v->budget, &err));
    ck_ok(cache_new(folder, secret, CS, v->budget, &v->c, &err));
}

static void close_view(struct view *v)
{
    budget_free(v->budget);
    cache_free(v->c);
}

static void start(void)
{
    folder = testing_tmpdir();
    testing_fill(secret, sizeof(secret), 7);
}

static void pack_name(unsigned n, uint8_t out[PACK_ID_LEN])
{
    testing_fill(out, PACK_ID_LEN, 1000 + n);
}

/* The chunk at offset of pack n: its bytes depend on both. */
static const uint8_t *chunk_bytes(unsigned n, uint32_t offset, uint32_t len)
{
    static uint8_t bytes[CS];
    testing_fill(bytes, len, n * 1000003ull + offset);
    return bytes;
}

static void insert(struct view *v, unsigned n, uint32_t offset, uint32_t len)
{
    uint8_t pack[PACK_ID_LEN];
    pack_name(n, pack);
    struct cache_item item = {offset, len, chunk_bytes(n, offset, len)};
    cache_insert(v->c, pack, &item, 1);
}

enum is { ABSENT, WRONG, RIGHT };

/* What a reader would find: verified as it does, and said to the cache as it does. */
static enum is look(struct view *v, unsigned n, uint32_t offset, uint32_t len, bool *confirmed)
{
    uint8_t pack[PACK_ID_LEN];
    static uint8_t is[CS];
    struct cache_ref ref;
    pack_name(n, pack);
    if (!cache_find(v->c, pack, offset, &ref))
        return ABSENT;
    if (confirmed)
        *confirmed = ref.confirmed;
    ck_assert_uint_eq(ref.at % 4096, 0);
    bool right = ref.len == len && util_pread_full(ref.fd, is, len, ref.at) == (ssize_t)len &&
                 memcmp(is, chunk_bytes(n, offset, len), len) == 0;
    if (right && !ref.confirmed)
        cache_confirm(v->c, &ref);
    else if (!right)
        cache_reject(v->c, &ref);
    cache_put(v->c, &ref);
    return right ? RIGHT : WRONG;
}

static void path_of(unsigned n, char out[CACHE_PATH_MAX])
{
    uint8_t pack[PACK_ID_LEN];
    char hex[2 * PACK_ID_LEN + 1];
    pack_name(n, pack);
    util_hex(pack, PACK_ID_LEN, hex);
    snprintf(out, CACHE_PATH_MAX, "%s/%.2s/%s", folder, hex, hex);
}

static bool has_file(unsigned n)
{
    char path[CACHE_PATH_MAX];
    path_of(n, path);
    return access(path, F_OK) == 0;
}

/* A byte of the file of pack n is xored. */
static void flip(unsigned n, uint64_t at)
{
    char path[CACHE_PATH_MAX];
    uint8_t byte;
    path_of(n, path);
    CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(util_pread_full(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    ck_assert_int_eq(util_pwrite_full(fd, &byte, 1, at), 1);
}

START_TEST(test_cache__what_was_added_is_there_until_it_restarts_and_after)
{
    static const uint32_t lens[] = {CS, 1, 4095, 4096, 4097, CS - 1};
    struct view v;
    bool confirmed;
    start();
    open_view(&v, 1 << 30);
    ck_assert_int_eq(look(&v, 0, 4096, CS, NULL), ABSENT);
    for (uint32_t i = 0; i < 600; i++)
        insert(&v, i % 3, 64 + 7 * i, lens[i % 6]);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 600; i++) {
            ck_assert_int_eq(look(&v, i % 3, 64 + 7 * i, lens[i % 6], &confirmed), RIGHT);
            ck_assert(confirmed == (round == 0)); /* one process does not trust another */
            ck_assert_int_eq(look(&v, i % 3, 64 + 7 * i, lens[i % 6], &confirmed), RIGHT);
            ck_assert(confirmed);
            ck_assert_int_eq(look(&v, i % 3, 64 + 7 * i + 1, lens[i % 6], NULL), ABSENT);
        }
        close_view(&v);
        open_view(&v, 1 << 30);
    }
    close_view(&v);
}
END_TEST

/* Neighbours in one call are neighbours in the file, for one read of all of them. */
START_TEST(test_cache__a_batch_lies_in_one_piece)
{
    struct view v;
    uint8_t pack[PACK_ID_LEN];
    static uint8_t bytes[40 * CS];
    struct cache_item items[40];
    struct cache_stats st;
    start();
    open_view(&v, 1 << 30);
    pack_name(0, pack);
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t len = i == 39 ? 100 : CS;
        memcpy(bytes + (size_t)i * CS, chunk_bytes(0, 5000 * (i + 1), len), len);
        items[i] = (struct cache_item){5000 * (i + 1), len, bytes + (size_t)i * CS};
    }
    cache_insert(v.c, pack, items, 20);
    cache_insert(v.c, pack, items + 10, 30); /* the first ten of them are there */
    cache_stats(v.c, &st);
    ck_assert_uint_eq(st.inserted, 40);
    ck_assert_uint_eq(st.inserted_bytes, 39 * CS + 100);
    uint64_t first = 0;
    for (uint32_t i = 0; i < 40; i++) {
        struct cache_ref ref;
        ck_assert(cache_find(v.c, pack, 5000 * (i + 1), &ref));
        if (i == 0)
            first = ref.at;
        ck_assert_uint_eq(ref.at, first + (uint64_t)i * CS);
        cache_put(v.c, &ref);
        ck_assert_int_eq(look(&v, 0, 5000 * (i + 1), i == 39 ? 100 : CS, NULL), RIGHT);
    }
    close_view(&v);
}
END_TEST

START_TEST(test_cache__flipped_bytes_are_never_right_and_heal)
{
    struct view v;
    uint64_t data = CACHE_DATA_AT;
    start();
    for (unsigned where = 0; where < 6; where++) {
        open_view(&v, 1 << 30);
        for (uint32_t i = 0; i < 4; i++)
            insert(&v, where, 64 + i, CS);
        close_view(&v);
        uint64_t at[] = {data + CS + 100,                         /* a chunk */
                         CACHE_HEADER_LEN + CACHE_RECORD_LEN,     /* its offset */
                         CACHE_HEADER_LEN + CACHE_RECORD_LEN + 4, /* its length */
                         CACHE_HEADER_LEN + CACHE_RECORD_LEN + 9, /* its checksum */
                         0,                                       /* the header */
                         17};                                     /* another pack's */
        flip(where, at[where]);
        open_view(&v, 1 << 30);
        for (uint32_t i = 0; i < 4; i++) {
            enum is is = look(&v, where, 64 + i, CS, NULL);
            /* Behind a damaged record nothing is found before somebody has the lock. */
            bool may_lack = where >= 4 || (i >= 1 && where >= 1);
            ck_assert(is == RIGHT || (is == ABSENT && may_lack) ||
                      (is == WRONG && where == 0 && i == 1));
            ck_assert(!(is == WRONG && look(&v, where, 64 + i, CS, NULL) != ABSENT));
        }
        for (uint32_t i = 0; i < 4; i++) {
            insert(&v, where, 64 + i, CS);
            ck_assert_int_eq(look(&v, where, 64 + i, CS, NULL), RIGHT);
        }
        close_view(&v);
        open_view(&v, 1 << 30);
        insert(&v, where, 64 + 9, CS); /* reads past the damaged record */
        for (uint32_t i = 0; i < 4; i++)
            ck_assert_int_eq(look(&v, where, 64 + i, CS, NULL), RIGHT);
        close_view(&v);
    }
}
END_TEST

/* As after a power failure: the map says more than the data, or was cut. */
START_TEST(test_cache__a_file_cut_anywhere_is_no_lie)
{
    struct view v;
    char path[CACHE_PATH_MAX];
    start();
    path_of(0, path);
    static const uint64_t lens[] = {0,
                                    1,
                                    47,
                                    CACHE_HEADER_LEN,
                                    CACHE_HEADER_LEN + 1,
                                    CACHE_HEADER_LEN + CACHE_RECORD_LEN - 1,
                                    CACHE_HEADER_LEN + 2 * CACHE_RECORD_LEN + 5,
                                    CACHE_DATA_AT,
                                    CACHE_DATA_AT + 1,
                                    CACHE_DATA_AT + CS + 4096};
    for (size_t k = 0; k < ARRAY_SIZE(lens); k++) {
        open_view(&v, 1 << 30);
        for (uint32_t i = 0; i < 3; i++)
            insert(&v, 0, 64 + i, CS);
        close_view(&v);
        ck_assert_int_eq(truncate(path, (off_t)lens[k]), 0);
        open_view(&v, 1 << 30);
        for (uint32_t i = 0; i < 3; i++) {
            enum is is = look(&v, 0, 64 + i, CS, NULL);
            ck_assert(is != RIGHT || lens[k] >= CACHE_DATA_AT + (uint64_t)(i + 1) * CS);
            insert(&v, 0, 64 + i, CS);
            ck_assert_int_eq(look(&v, 0, 64 + i, CS, NULL), RIGHT);
        }
        close_view(&v);
        ck_assert_int_eq(unlink(path), 0);
    }
}
END_TEST

static uint64_t kept(void)
{
    uint64_t bytes = 0;
    for (unsigned n = 0; n < 2000; n++) {
        char path[CACHE_PATH_MAX];
        struct stat st;
        path_of(n, path);
        if (stat(path, &st) == 0)
            bytes += (uint64_t)st.st_blocks * 512;
    }
    return bytes;
}

/* Add new packs until this one had to go. */
static void push_out(struct view *v, unsigned n)
{
    static unsigned fresh = 1000;
    for (int i = 0; i < 1000 && has_file(n); i++) {
        for (uint32_t k = 0; k < 10; k++)
            insert(v, fresh, 64 + k, CS);
        fresh++;
        (void)!usleep(10000);
    }
    ck_assert(!has_file(n));
}

static void set_use(unsigned n, int64_t seconds_ago)
{
    char path[CACHE_PATH_MAX];
    path_of(n, path);
    time_t then = time(NULL) - seconds_ago;
    struct timespec times[2] = {{.tv_sec = then}, {.tv_sec = then}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

START_TEST(test_cache__the_bound_holds_and_the_oldest_go_first)
{
    struct view v;
    start();
    open_view(&v, LIMIT);
    /* Five packs of 7 chunks: 5 * (7 * 64 KiB + 8 KiB) = 2.2 MiB. */
    for (unsigned n = 0; n < 5; n++)
        for (uint32_t i = 0; i < 7; i++)
            insert(&v, n, 64 + i, CS);
    close_view(&v);
    for (unsigned n = 0; n < 5; n++)
        set_use(n, 1000 - 100 * (int64_t)((n + 2) % 5)); /* 3 is the oldest, then 4, 0, … */
    open_view(&v, LIMIT);
    ck_assert_int_eq(look(&v, 3, 64, CS, NULL), RIGHT); /* is used again */
    push_out(&v, 4);
    ck_assert(has_file(3));
    close_view(&v);
    ck_assert_uint_le(kept(), LIMIT + LIMIT / 8);
}
END_TEST

START_TEST(test_cache__never_past_the_bound_whoever_adds)
{
    struct view a, b;
    start();
    open_view(&a, LIMIT);
    open_view(&b, LIMIT);
    for (unsigned n = 0; n < 40; n++) {
        for (uint32_t i = 0; i < 10; i++)
            insert(n % 2 ? &a : &b, n, 64 + i, CS);
        /* Each learns of the other a megabyte late. */
        ck_assert_uint_le(kept(), 2 * LIMIT);
    }
    close_view(&a);
    close_view(&b);
    ck_assert_uint_le(kept(), LIMIT + LIMIT / 8);
}
END_TEST

/* A reader keeps what it has; nobody finds it any more; what is added goes to a new file. */
START_TEST(test_cache__an_evicted_file_stays_readable)
{
    struct view a, b;
    uint8_t pack[PACK_ID_LEN], is[CS];
    struct cache_ref ref;
    start();
    open_view(&a, 1 << 30);
    open_view(&b, 1 << 30);
    pack_name(0, pack);
    insert(&a, 0, 64, CS);
    ck_assert(cache_find(a.c, pack, 64, &ref));
    struct budget_item item = {0};
    char path[CACHE_PATH_MAX];
    path_of(0, path);
    snprintf(item.name, sizeof(item.name), "%.120s", path + strlen(folder) + 1);
    struct budget_source source = cache_source;
    ck_ok(source.evict(b.c, &item, &err));
    ck_ok(source.evict(b.c, &item, &err)); /* gone is success */
    ck_assert(!has_file(0));
    ck_assert_int_eq(util_pread_full(ref.fd, is, CS, ref.at), CS);
    ck_assert_int_eq(memcmp(is, chunk_bytes(0, 64, CS), CS), 0);
    insert(&a, 0, 128, CS); /* finds out that its file was replaced */
    ck_assert(has_file(0));
    ck_assert_int_eq(look(&b, 0, 128, CS, NULL), RIGHT);
    ck_assert_int_eq(look(&a, 0, 128, CS, NULL), RIGHT);
    ck_assert_int_eq(look(&a, 0, 64, CS, NULL), ABSENT);
    ck_assert_int_eq(util_pread_full(ref.fd, is, CS, ref.at), CS);
    ck_assert_int_eq(memcmp(is, chunk_bytes(0, 64, CS), CS), 0);
    cache_put(a.c, &ref);
    close_view(&a);
    close_view(&b);
}
END_TEST

START_TEST(test_cache__two_processes_share_what_they_add)
{
    struct view a, b;
    uint8_t pack[PACK_ID_LEN];
    start();
    open_view(&a, 1 << 30);
    open_view(&b, 1 << 30);
    pack_name(0, pack);
    insert(&a, 0, 64, CS);
    ck_assert_int_eq(look(&b, 0, 64, CS, NULL), RIGHT);
    insert(&a, 0, 65, CS);
    ck_assert_int_eq(look(&b, 0, 65, CS, NULL), ABSENT); /* it does not look at every miss */
    cache_refresh(b.c, pack);
    ck_assert_int_eq(look(&b, 0, 65, CS, NULL), RIGHT);
    insert(&a, 0, 66, CS);
    insert(&b, 0, 66, CS); /* is not stored twice */
    insert(&b, 0, 67, CS);
    struct cache_stats st;
    cache_stats(b.c, &st);
    ck_assert_uint_eq(st.inserted, 1);
    cache_refresh(a.c, pack);
    for (uint32_t i = 64; i < 68; i++) {
        ck_assert_int_eq(look(&a, 0, i, CS, NULL), RIGHT);
        ck_assert_int_eq(look(&b, 0, i, CS, NULL), RIGHT);
    }
    close_view(&a);
    close_view(&b);
}
END_TEST

/* More packs than are kept open: what left the table is found again. */
START_TEST(test_cache__more_packs_than_descriptors)
{
    struct view v;
    bool confirmed;
    start();
    open_view(&v, 1 << 30);
    for (unsigned n = 0; n < CACHE_OPEN_MAX + 20; n++)
        insert(&v, n, 64, 100);
    for (unsigned n = 0; n < CACHE_OPEN_MAX + 20; n++)
        ck_assert_int_eq(look(&v, n, 64, 100, &confirmed), RIGHT);
    close_view(&v);
}
END_TEST

static size_t descriptors(void)
{
    size_t n = 0;
    CLEANUP_DIR DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        n++;
    return n;
}

/* Who does not read any more does not keep the space of what others evicted, either. */
START_TEST(test_cache__files_that_were_removed_are_let_go)
{
    struct view v;
    struct cache_ref ref;
    uint8_t pack[PACK_ID_LEN];
    char path[CACHE_PATH_MAX];
    start();
    open_view(&v, 1 << 30);
    insert(&v, 0, 64, CS);
    insert(&v, 1, 64, CS);
    insert(&v, 2, 64, CS);
    pack_name(1, pack);
    ck_assert(cache_find(v.c, pack, 64, &ref));
    size_t before = descriptors();
    for (unsigned n = 0; n < 2; n++) {
        path_of(n, path);
        ck_assert_int_eq(unlink(path), 0);
    }
    cache_tidy(v.c);
    ck_assert_uint_eq(descriptors(), before - 1);
    cache_put(v.c, &ref); /* the last who reads it */
    ck_assert_uint_eq(descriptors(), before - 2);
    ck_assert_int_eq(look(&v, 0, 64, CS, NULL), ABSENT);
    ck_assert_int_eq(look(&v, 2, 64, CS, NULL), RIGHT);
    cache_tidy(v.c);
    ck_assert_int_eq(look(&v, 2, 64, CS, NULL), RIGHT);
    close_view(&v);
}
END_TEST

/* Somebody cleans up beneath it. */
START_TEST(test_cache__a_folder_that_was_taken_away_is_made_again)
{
    struct view v;
    char command[300];
    start();
    open_view(&v, 1 << 30);
    for (int round = 0; round < 3; round++) {
        insert(&v, 0, 64, CS);
        ck_assert_int_eq(look(&v, 0, 64, CS, NULL), RIGHT);
        if (round == 2)
            break;
        snprintf(command, sizeof(command), "rm -r %.200s%s", folder, round ? "" : "/*");
        ck_assert_int_eq(system(command), 0);
        /* What is open stays readable; what is added finds out. */
        ck_assert_int_eq(look(&v, 0, 64, CS, NULL), RIGHT);
        insert(&v, 0, 65 + (uint32_t)round, CS);
        ck_assert(has_file(0));
        ck_assert_int_eq(look(&v, 0, 65 + (uint32_t)round, CS, NULL), RIGHT);
    }
    close_view(&v);
}
END_TEST

/* A disk that is full: nothing is added, nothing fails, what is there is right; and later it goes
 * on where there is room again. */
START_TEST(test_cache__a_full_disk_fails_nobody)
{
    struct view v;
    struct cache_stats st;
    struct rlimit was, low;
    start();
    signal(SIGXFSZ, SIG_IGN);
    open_view(&v, 1 << 30);
    for (uint32_t i = 0; i < 4; i++)
        insert(&v, 0, 64 + i, CS);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
    low = was;
    low.rlim_cur = CACHE_DATA_AT + 5 * CS + 4096; /* the sixth chunk is cut */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    for (uint32_t i = 4; i < 10; i++)
        insert(&v, 0, 64 + i, CS);
    cache_stats(v.c, &st);
    ck_assert_uint_eq(st.inserted, 5);
    ck_assert_uint_eq(st.not_kept, 5);
    for (uint32_t i = 0; i < 10; i++)
        ck_assert_int_eq(look(&v, 0, 64 + i, CS, NULL), i < 5 ? RIGHT : ABSENT);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &was), 0);
    insert(&v, 0, 70, CS); /* too early: it is left alone for a while */
    ck_assert_int_eq(look(&v, 0, 70, CS, NULL), ABSENT);
    for (int i = 0; i < 1000 && cache_paused(v.c); i++)
        (void)!usleep(10000);
    for (uint32_t i = 4; i < 10; i++) {
        insert(&v, 0, 64 + i, CS);
        ck_assert_int_eq(look(&v, 0, 64 + i, CS, NULL), RIGHT);
    }
    close_view(&v);
    open_view(&v, 1 << 30);
    for (uint32_t i = 0; i < 10; i++)
        ck_assert_int_eq(look(&v, 0, 64 + i, CS, NULL), RIGHT);
    close_view(&v);
}
END_TEST

#define WORKERS 8

struct worker {
    pthread_t thread;
    struct view *v;
    uint64_t seed;
    unsigned right;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < 400; i++) {
        unsigned n = (unsigned)(testing_random(&w->seed) % 6);
        uint32_t offset = 64 + (uint32_t)(testing_random(&w->seed) % 12);
        uint8_t pack[PACK_ID_LEN], bytes[4096], is[4096];
        struct cache_ref ref;
        pack_name(n, pack);
        testing_fill(bytes, sizeof(bytes), n * 1000003ull + offset);
        if (cache_find(w->v->c, pack, offset, &ref)) {
            bool right = util_pread_full(ref.fd, is, sizeof(is), ref.at) == sizeof(is) &&
                         memcmp(is, bytes, sizeof(is)) == 0;
            if (right)
                cache_confirm(w->v->c, &ref);
            else if (!ref.confirmed)
                cache_reject(w->v->c, &ref);
            else
                w->right = UINT32_MAX / 2; /* confirmed, and wrong */
            w->right += right;
            cache_put(w->v->c, &ref);
        } else {
            struct cache_item item = {offset, sizeof(bytes), bytes};
            cache_insert(w->v->c, pack, &item, 1);
        }
    }
    return NULL;
}

START_TEST(test_cache__threads_of_two_processes_at_once_with_evictions)
{
    struct view v[2];
    struct worker w[WORKERS];
    unsigned right = 0;
    start();
    open_view(&v[0], 96 * 1024);
    open_view(&v[1], 96 * 1024);
    for (unsigned i = 0; i < WORKERS; i++) {
        w[i] = (struct worker){.v = &v[i % 2], .seed = i + 1};
        ck_assert_int_eq(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        ck_assert_int_eq(pthread_join(w[i].thread, NULL), 0);
        ck_assert_uint_lt(w[i].right, UINT32_MAX / 2);
        right += w[i].right;
    }
    ck_assert_uint_gt(right, 0);
    close_view(&v[0]);
    close_view(&v[1]);
}
END_TEST

/* A cold fetch asks for every chunk of a pack that has no file. */
START_TEST(test_cache__a_file_that_is_not_there_is_looked_for_once)
{
    struct view a, b;
    struct cache_stats st;
    uint8_t pack[PACK_ID_LEN];
    start();
    open_view(&a, 1 << 30);
    open_view(&b, 1 << 30);
    cache_stats(a.c, &st);
    uint64_t before = st.opened;
    for (uint32_t i = 0; i < 1000; i++)
        ck_assert_int_eq(look(&a, 3, 64 + i, CS, NULL), ABSENT);
    cache_stats(a.c, &st);
    ck_assert_uint_le(st.opened - before, 10); /* a second may have passed, and another */
    /* Who asks for it is told of what another process made meanwhile; its own file is seen at once.
     */
    insert(&b, 3, 64, CS);
    pack_name(3, pack);
    cache_refresh(a.c, pack);
    ck_assert_int_eq(look(&a, 3, 64, CS, NULL), RIGHT);
    ck_assert_int_eq(look(&a, 4, 64, CS, NULL), ABSENT);
    insert(&a, 4, 64, CS);
    ck_assert_int_eq(look(&a, 4, 64, CS, NULL), RIGHT);
    /* Without asking, after a while. */
    ck_assert_int_eq(look(&a, 5, 64, CS, NULL), ABSENT);
    insert(&b, 5, 64, CS);
    usleep(CACHE_ABSENT_NS / 1000 + 50000);
    ck_assert_int_eq(look(&a, 5, 64, CS, NULL), RIGHT);
    close_view(&a);
    close_view(&b);
}
END_TEST

/* Places taken before the bytes are there: nobody finds the bytes there, wherever they are written
 * later is one piece, and they count once. */
START_TEST(test_cache__reserved_places_lie_in_one_piece)
{
    enum { N = 12 };
    struct view a, b;
    struct cache_item items[N];
    static uint8_t plain[N][CS];
    struct cache_ref ref;
    struct budget_stats used;
    uint8_t pack[PACK_ID_LEN];
    start();
    open_view(&a, 1 << 30);
    open_view(&b, 1 << 30);
    pack_name(6, pack);
    for (uint32_t i = 0; i < N; i++) {
        memcpy(plain[i], chunk_bytes(6, 4096 + i * CS, CS), CS);
        items[i] = (struct cache_item){4096 + i * CS, CS, plain[i]};
    }
    cache_reserve(a.c, pack, items, N);
    for (uint32_t i = 0; i < N; i++) {
        ck_assert_int_eq(look(&a, 6, items[i].offset, CS, NULL), ABSENT);
        ck_assert_int_ne(look(&b, 6, items[i].offset, CS, NULL), RIGHT);
    }
    budget_stats(a.budget, &used);
    ck_assert_uint_lt(used.used, CS);
    cache_insert(a.c, pack, items + N / 2, N / 2);
    cache_insert(a.c, pack, items, N / 2);
    uint64_t first = 0;
    for (uint32_t i = 0; i < N; i++) {
        ck_assert_int_eq(look(&a, 6, items[i].offset, CS, NULL), RIGHT);
        ck_assert(cache_find(a.c, pack, items[i].offset, &ref));
        if (!i)
            first = ref.at;
        ck_assert_uint_eq(ref.at, first + (uint64_t)i * CS);
        cache_put(a.c, &ref);
    }
    budget_stats(a.budget, &used);
    ck_assert_uint_ge(used.used, N * CS);
    ck_assert_uint_lt(used.used, (N + 1) * CS);
    close_view(&a);
    close_view(&b);
}
END_TEST

TESTING_MAIN(
    cache, test_cache__a_file_that_is_not_there_is_looked_for_once,
    test_cache__reserved_places_lie_in_one_piece,
    test_cache__what_was_added_is_there_until_it_restarts_and_after,
    test_cache__a_batch_lies_in_one_piece, test_cache__flipped_bytes_are_never_right_and_heal,
    test_cache__a_file_cut_anywhere_is_no_lie, test_cache__the_bound_holds_and_the_oldest_go_first,
    test_cache__never_past_the_bound_whoever_adds, test_cache__an_evicted_file_stays_readable,
    test_cache__two_processes_share_what_they_add, test_cache__files_that_were_removed_are_let_go,
    test_cache__a_folder_that_was_taken_away_is_made_again, test_cache__more_packs_than_descriptors,
    test_cache__a_full_disk_fails_nobody,
    test_cache__threads_of_two_processes_at_once_with_evictions)
