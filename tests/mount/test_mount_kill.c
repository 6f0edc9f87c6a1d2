/* The mount is killed at any time while a daemon works on it: what a rename committed is there
 * afterwards, whole, on every node; what was being done is there wholly or not at all; and the
 * staging goes on where it was. MOUNT_KILLS changes how often, MOUNT_SEED when. */
#include "base/clock.h"
#include "base/util.h"
#include "tests/mount/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define RECORDS 6

static struct world w;
static uint64_t state;

/* What is known of a record: committed with a number, or absent (0). doing: what was begun and not
 * heard to have ended. */
struct known {
    unsigned is, doing; /* numbers of saves; doing 0: a delete, if busy */
    bool busy;
};
static struct known known[RECORDS];

/* The last of them are templates, which are saved again and again. */
static void id_of(unsigned r, char id[64])
{
    if (r < RECORDS / 2)
        text(id, 64, "ck_%016x", r + 1);
    else
        text(id, 64, "tp_%032x", r + 1);
}

static struct image image_of(unsigned r, unsigned number)
{
    struct image im = IMAGE_SMALL(r * 100000 + number);
    im.memory = (1 << 20) + 4096 * (number % 700);
    im.disk = 4 << 20;
    im.nested = number % 3 == 0;
    return im;
}

static void meta_of(unsigned r, unsigned number, char meta[64])
{
    text(meta, 64, "{\"r\":%u,\"n\":%u}", r, number);
}

/* One line to the parent before and after each thing done: it knows then what may have happened. */
struct line {
    unsigned record, number; /* 0: deleted */
    bool done;
};

static void tell(int fd, unsigned r, unsigned number, bool done)
{
    struct line l = {.record = r, .number = number, .done = done};
    if (write(fd, &l, sizeof(l)) != sizeof(l))
        _exit(2);
}

static _Noreturn void work(int fd, unsigned number)
{
    const char *root = w.node[0].dir;
    for (;; number++) {
        char id[64], meta[64];
        unsigned r = (unsigned)(testing_random(&state) % RECORDS);
        bool there = known[r].is != 0, template = r >= RECORDS / 2;
        bool delete = there && (!template || testing_random(&state) % 4 == 0);
        id_of(r, id);
        meta_of(r, number, meta);
        struct image im = image_of(r, number);
        tell(fd, r, delete ? 0 : number, false);
        int e = delete ? daemon_delete(root, id)
                       : daemon_save(root, id, &im, meta, testing_random(&state) % 2);
        if (e) {
            /* Killed in the middle, as intended; anything else is a failure of the test. */
            if (access(world_path(&w, 0, "x"), F_OK) == 0 || errno != ENOTCONN)
                fprintf(stderr, "%s %s: %s\n", delete ? "delete" : "save", id, strerror(e));
            _exit(errno == ENOTCONN ? 0 : 1);
        }
        tell(fd, r, delete ? 0 : number, true);
        known[r].is = delete ? 0 : number;
    }
}

static unsigned listen_to(int fd)
{
    struct line l;
    unsigned last = 0;
    while (read(fd, &l, sizeof(l)) == sizeof(l)) {
        known[l.record].doing = l.number;
        known[l.record].busy = !l.done;
        if (l.done)
            known[l.record].is = l.number;
        last = l.number > last ? l.number : last;
    }
    return last;
}

/* The number of the save that a record shows on a node, 0: there is none. *export: its folder. */
static unsigned shown(size_t node, unsigned r, char export[1024])
{
    char id[64], meta[4096], sum[80];
    unsigned record, number;
    id_of(r, id);
    int e = daemon_fetch(w.node[node].dir, id, meta, sum, export);
    if (e == ENOENT)
        return 0;
    ck_assert_msg(e == 0, "%s on node %zu: %s", id, node, strerror(e));
    ck_assert_int_eq(sscanf(meta, "{\"r\":%u,\"n\":%u}", &record, &number), 2);
    ck_assert_uint_eq(record, r);
    return number;
}

static void check(unsigned r)
{
    struct known *k = &known[r];
    char export[1024];
    unsigned got = shown(0, r, export);
    ck_assert_msg(got == k->is || (k->busy && got == k->doing),
                  "record %u shows save %u, not %u (or %u)", r, got, k->is, k->doing);
    struct image im = image_of(r, got);
    if (got)
        image_same(export, &im);
    /* The other node may show for two seconds what was there before. */
    int64_t end = clock_monotonic() + 5 * NS_PER_S;
    while (shown(1, r, export) != got) {
        ck_assert_int_lt(clock_monotonic(), end);
        usleep(50000);
    }
    if (got)
        image_same(export, &im);
    k->is = got;
    k->busy = false;
}

static void one_round(unsigned *number)
{
    int ends[2], status;
    ck_sys(pipe2(ends, O_CLOEXEC));
    pid_t pid = (pid_t)ck_sys(fork());
    if (pid == 0)
        work(ends[1], *number);
    close(ends[1]);
    /* A save in a bucket takes longer. */
    unsigned ms = 20 + (unsigned)(testing_random(&state) % (w.s3 ? 4000 : 500));
    poll(NULL, 0, (int)ms);
    world_kill(&w, 0);
    *number = listen_to(ends[0]) + 1;
    close(ends[0]);
    ck_sys(waitpid(pid, &status, 0));
    ck_assert_int_eq(status, 0);
    world_mount(&w, 0);
    for (unsigned r = 0; r < RECORDS; r++)
        check(r);
    if (testing_random(&state) % 2)
        daemon_start(w.node[0].dir);
}

START_TEST(test_mount_kill__what_was_committed_outlives_the_mount)
{
    const char *kills = getenv("MOUNT_KILLS"), *seed = getenv("MOUNT_SEED");
    unsigned long n = kills ? strtoul(kills, NULL, 10) : 8;
    unsigned number = 1;
    state = seed ? strtoul(seed, NULL, 10) : (unsigned long)clock_realtime();
    fprintf(stderr, "seed %llu\n", (unsigned long long)state);
    world_start(&w, 2, NULL);
    for (unsigned long i = 0; i < n; i++)
        one_round(&number);
    fprintf(stderr, "%u saves\n", number);
    /* Whatever was left of a staging goes, and nothing else. */
    daemon_start(w.node[0].dir);
    for (unsigned r = 0; r < RECORDS; r++) {
        char id[64];
        check(r);
        id_of(r, id);
        if (known[r].is)
            ck_assert_int_eq(daemon_delete(w.node[0].dir, id), 0);
    }
    world_stop(&w);
    world_verify(&w);
}
END_TEST

TESTING_MAIN(mount_kill, test_mount_kill__what_was_committed_outlives_the_mount)
