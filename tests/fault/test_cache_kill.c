/* Processes that share a cache and are killed at any moment: whoever is left, or comes later, finds
 * nothing that passes for verified and is not. */
#include "base/util.h"
#include "store/cache.h"
#include "tests/lib/testing.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CS     4096u
#define PACKS  1
#define CHUNKS 400
#define LIMIT  (1024 * 1024)

static struct cairn_error err;
static const char *folder;
static uint8_t secret[XXH3_SECRET_LEN];

struct view {
    struct budget *budget;
    struct cache *c;
};

static int open_view(struct view *v)
{
    *v = (struct view){0};
    int rc = budget_new(folder, LIMIT, &v->budget, &err);
    return rc ? rc : cache_new(folder, secret, CS, v->budget, &v->c, &err);
}

static void close_view(struct view *v)
{
    budget_free(v->budget);
    cache_free(v->c);
}

static void name_and_bytes(unsigned n, uint32_t offset, uint8_t pack[PACK_ID_LEN],
                           uint8_t bytes[CS])
{
    testing_fill(pack, PACK_ID_LEN, 1000 + n);
    testing_fill(bytes, CS, n * 1000003ull + offset);
}

enum did { HIT = 0, MISS = 1, LIE = 2 };

/* One chunk as a reader takes it. LIE: this process had verified it, and it is something else. */
static enum did use(struct view *v, unsigned n, uint32_t offset, bool *right)
{
    uint8_t pack[PACK_ID_LEN], want[CS], is[CS];
    struct cache_ref ref;
    enum did did = HIT;
    name_and_bytes(n, offset, pack, want);
    if (!cache_find(v->c, pack, offset, &ref)) {
        cache_insert(v->c, pack, &(struct cache_item){offset, CS, want}, 1);
        return MISS;
    }
    *right = util_pread_full(ref.fd, is, CS, ref.at) == CS && memcmp(is, want, CS) == 0;
    if (*right && !ref.confirmed)
        cache_confirm(v->c, &ref);
    else if (!*right && ref.confirmed)
        did = LIE;
    else if (!*right)
        cache_reject(v->c, &ref);
    cache_put(v->c, &ref);
    return did;
}

/* rounds 0: until it is killed. Returns what the process exits with. */
static int work(uint64_t seed, unsigned rounds)
{
    struct view v;
    if (open_view(&v))
        return 10;
    for (unsigned i = 0; !rounds || i < rounds; i++) {
        uint8_t pack[PACK_ID_LEN], bytes[CS];
        bool right;
        unsigned n = (unsigned)(testing_random(&seed) % PACKS);
        if (use(&v, n, 64 + (uint32_t)(testing_random(&seed) % CHUNKS), &right) == LIE)
            return 11;
        name_and_bytes(n, 64, pack, bytes);
        if (i % 16 == 0)
            cache_refresh(v.c, pack);
        if (i % 500 == 499) { /* forgets all that it verified */
            close_view(&v);
            if (open_view(&v))
                return 12;
        }
    }
    close_view(&v);
    return 0;
}

static pid_t start_worker(uint64_t seed, unsigned rounds, const char *kill_at)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (kill_at)
            setenv("CAIRN_STEP_KILL", kill_at, 1);
        _exit(work(seed, rounds));
    }
    return pid;
}

static int end_of(pid_t pid)
{
    int status = -1;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

/* Everything can be had, and is right, once it was verified. */
static void sound(void)
{
    struct view v;
    ck_ok(open_view(&v));
    for (unsigned n = 0; n < PACKS; n++)
        for (uint32_t offset = 64; offset < 64 + CHUNKS; offset++) {
            bool right = false;
            enum did did = use(&v, n, offset, &right);
            ck_assert_int_ne(did, LIE);
            if (did == HIT && !right)
                use(&v, n, offset, &right); /* heals */
            if (use(&v, n, offset, &right) == HIT)
                ck_assert(right);
        }
    close_view(&v);
}

static void start(void)
{
    static char path[300];
    static const char *top;
    static unsigned n;
    if (!top)
        top = testing_tmpdir();
    snprintf(path, sizeof(path), "%.250s/%u", top, n++);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    folder = path;
    testing_fill(secret, sizeof(secret), 7);
}

START_TEST(test_cache_kill__one_of_three_is_killed_again_and_again)
{
    uint64_t seed = 5;
    start();
    pid_t steady[2] = {start_worker(1, 4000, NULL), start_worker(2, 4000, NULL)};
    for (unsigned i = 0; i < 40; i++) {
        pid_t victim = start_worker(100 + i, 0, NULL);
        nanosleep(&(struct timespec){.tv_nsec = (long)(testing_random(&seed) % 20000000)}, NULL);
        ck_assert_int_eq(kill(victim, SIGKILL), 0);
        int status = end_of(victim);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        if (i % 8 == 0)
            sound();
    }
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(end_of(steady[i]), 0);
    sound();
}
END_TEST

#ifdef CAIRN_STEPS
START_TEST(test_cache_kill__killed_at_each_step)
{
    static const char *const steps[] = {"cache.opened",  "cache.locked",  "cache.recorded",
                                        "cache.writing", "cache.written", "cache.removed"};
    for (size_t k = 0; k < ARRAY_SIZE(steps); k++)
        for (unsigned nth = 1; nth <= 3; nth++) {
            char at[64];
            start();
            snprintf(at, sizeof(at), "%s:%u", steps[k], nth);
            pid_t other = start_worker(1, 400, NULL);
            int status = end_of(start_worker(2, 3000, at));
            ck_assert_msg(WIFSIGNALED(status), "%s was not passed", at);
            ck_assert_int_eq(end_of(other), 0);
            sound();
        }
}
END_TEST

TESTING_MAIN(cache_kill, test_cache_kill__one_of_three_is_killed_again_and_again,
             test_cache_kill__killed_at_each_step)
#else
TESTING_MAIN(cache_kill, test_cache_kill__one_of_three_is_killed_again_and_again)
#endif
