/* Threads that fetch, hold, publish, remove and clear at random, on two stores that share one state
 * directory as two processes would. Whatever was leased stays what its meta says until it is let
 * go; no error but those that such company explains; nothing is left over. */
#include "base/clock.h"
#include "base/util.h"
#include "store/gens.h"
#include "store/pin_keeper.h"
#include "tests/lib/kit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define THREADS 8
#define SEEDS   6
#define SIZE    150000
#define SECONDS 2

static const char *const ids[] = {TP_A, TP_B, CK_A};

static struct kit k;
static struct cairn_store *stores[2];
static atomic_uint given, refused; /* fetches */

struct worker {
    pthread_t thread;
    uint64_t random;
    int64_t until;
    uint8_t want[SIZE], is[SIZE];
};

static void must_be_one_of(int rc, const struct cairn_error *e, unsigned allowed)
{
    ck_assert_msg(rc == CAIRN_OK || (allowed & 1u << rc), "%s: %s", cairn_class_name(rc),
                  e->message);
}

#define ALLOW(class) (1u << (class))

/* The meta says of which seed the file is. */
static void check(struct worker *w, const struct cairn_fetch_shared_result *r)
{
    char path[4096];
    const char *seed = memchr(r->meta, ':', r->meta_len);
    ck_assert_ptr_nonnull(seed);
    testing_fill(w->want, SIZE, strtoull(seed + 1, NULL, 10));
    snprintf(path, sizeof(path), "%.4000s/memory", r->path);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s", path);
    ck_assert_int_eq(util_pread_full(fd, w->is, SIZE, 0), SIZE);
    ck_assert_msg(memcmp(w->is, w->want, SIZE) == 0, "%s", path);
}

static void fetch(struct worker *w, struct cairn_store *s, const char *id)
{
    struct cairn_fetch_shared_result r;
    struct cairn_error e;
    struct cairn_op op;
    uint64_t dice = testing_random(&w->random) % 4;
    cairn_op_init(&op, dice == 0 ? 0.002 : dice == 1 ? 0.02 : -1, NULL);
    int rc = cairn_fetch_shared(s, &op, id, NULL, &r, &e);
    must_be_one_of(rc, &e, ALLOW(CAIRN_NOT_FOUND) | ALLOW(CAIRN_TRANSIENT) | ALLOW(CAIRN_TIMEOUT));
    atomic_fetch_add(rc ? &refused : &given, 1);
    if (rc)
        return;
    check(w, &r);
    usleep((useconds_t)(testing_random(&w->random) % 5000));
    check(w, &r);
    ck_assert_int_eq(cairn_lease_renew(s, r.lease, 60, NULL, &e), CAIRN_OK);
    ck_assert_int_eq(cairn_lease_release(s, r.lease, &e), CAIRN_OK);
    cairn_fetch_shared_result_release(&r);
}

static void publish(struct worker *w, struct cairn_store *s, const char *id)
{
    char meta[64], from[4200];
    struct cairn_error e;
    struct cairn_publish_result r;
    unsigned seed = (unsigned)(testing_random(&w->random) % SEEDS);
    int n = snprintf(meta, sizeof(meta), "{\"seed\":%u}", seed);
    snprintf(from, sizeof(from), "%.4000s/%u", k.stage, seed);
    struct cairn_publish_options o = {.from = from, .meta = meta, .meta_len = (size_t)n};
    int rc = cairn_publish(s, NULL, id, &o, &r, &e);
    must_be_one_of(rc, &e, ALLOW(CAIRN_BUSY));
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct cairn_error e;
    while (clock_monotonic() < w->until) {
        struct cairn_store *s = stores[testing_random(&w->random) % 2];
        const char *id = ids[testing_random(&w->random) % ARRAY_SIZE(ids)];
        uint64_t dice = testing_random(&w->random) % 20;
        if (dice < 14)
            fetch(w, s, id);
        else if (dice < 17)
            publish(w, s, id);
        else if (dice < 18)
            must_be_one_of(cairn_delete(s, NULL, id, &e), &e, ALLOW(CAIRN_BUSY));
        else if (dice < 19)
            (void)gens_clear(s->gens);
        else
            (void)cairn_lease_expire(s, NULL);
    }
    return NULL;
}

static unsigned half_made(void)
{
    char path[512];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/cache/gens", k.s->state);
    CLEANUP_DIR DIR *dir = opendir(path);
    const struct dirent *d;
    while (dir && (d = readdir(dir)))
        n += strncmp(d->d_name, ".tmp-", 5) == 0;
    return n;
}

START_TEST(test_shared_stress__leased_files_are_what_they_were)
{
    static struct worker workers[THREADS];
    kit_start(&k, NULL);
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", seed);
        kit_fill(&k, name, "memory", SIZE, 0, seed);
        kit_truncate(&k, name, "disks/empty", 0);
    }
    stores[0] = k.s;
    stores[1] = kit_open(&k);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].random = 1000 + i;
        workers[i].until = clock_monotonic() + SECONDS * NS_PER_S;
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
    ck_assert_uint_gt(given, 0);
    for (unsigned i = 0; i < 2; i++) {
        struct cairn_fetch_shared_stats st;
        struct keeper_stats held;
        for (;;) { /* flights whose callers have left */
            cairn_fetch_shared_stats(stores[i], &st);
            keeper_stats(stores[i], &held);
            if (!st.running && !held.holds)
                break;
            usleep(1000);
        }
    }
    cairn_close(stores[1]);
    ck_assert_uint_eq(half_made(), 0);
    kit_verify(&k);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(shared_stress, test_shared_stress__leased_files_are_what_they_were)
