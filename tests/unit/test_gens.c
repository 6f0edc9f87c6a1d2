/* Copies on the local disk: what is trusted, what is not, and who may take them away. */
#include "store/gens.h"

#include "base/clock.h"
#include "base/util.h"
#include "store/record.h"
#include "tests/lib/kit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct cairn_error err;
static struct kit k;
static char gens_path_text[300];

static void start(void)
{
    kit_start(&k, &(struct kit_options){.faulty = true});
    kit_sample(&k, "one", 1);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    snprintf(gens_path_text, sizeof(gens_path_text), "%.250s/cache/gens", k.s->state);
}

static void fetch(struct cairn_fetch_shared_result *r)
{
    ck_ok(cairn_fetch_shared(k.s, NULL, CK_A, NULL, r, &err));
    struct cairn_record *record = NULL;
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &record, &err));
    kit_same_folder(record, r->path);
    cairn_record_close(record);
}

static void let_go(struct cairn_fetch_shared_result *r)
{
    ck_ok(cairn_lease_release(k.s, r->lease, &err));
    cairn_fetch_shared_result_release(r);
}

/* A file of a copy, or of what lies beside it. */
static char *file_of(const struct cairn_fetch_shared_result *r, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s", r->path, name);
    return path;
}

static void overwrite(const char *path, off_t at, const char *text)
{
    ck_assert_int_eq(chmod(path, 0600), 0);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, text, strlen(text), at), (ssize_t)strlen(text));
    ck_assert_int_eq(fchmod(fd, 0400), 0);
}

/* The same, unnoticed: as a crash of the machine leaves files whose data was not written. */
static void overwrite_secretly(const char *path, off_t at, const char *text)
{
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    overwrite(path, at, text);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void of_another_boot(const struct cairn_fetch_shared_result *r)
{
    const char *seal = file_of(r, "../seal");
    FILE *f = fopen(seal, "w");
    ck_assert_ptr_nonnull(f);
    fputs("{\"version\":1,\"boot\":\"11111111-2222-3333-4444-555555555555\",\"bytes\":1000}", f);
    ck_assert_int_eq(fclose(f), 0);
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* ---- Trust ----------------------------------------------------------------------------------- */

START_TEST(test_gens__what_somebody_changed_is_fetched_again)
{
    static const char *const ways[] = {"write", "mode", "more", "less", "link", "gone", "extra"};
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        struct cairn_fetch_shared_result a, b;
        char path[4096];
        start();
        fetch(&a);
        snprintf(path, sizeof(path), "%s", file_of(&a, "memory"));
        if (i == 0)
            overwrite(path, 5000, "changed");
        else if (i == 1)
            ck_assert_int_eq(chmod(path, 0600), 0);
        else if (i == 2)
            overwrite(path, 500000, "longer");
        else if (i == 3)
            ck_assert_int_eq(truncate(path, 4096), 0);
        else if (i < 6)
            ck_assert_int_eq(unlink(path), 0);
        if (i == 4)
            ck_assert_int_eq(symlink("/etc/passwd", path), 0);
        if (i == 6)
            close(open(file_of(&a, "disks/extra"), O_CREAT | O_WRONLY, 0600));
        fetch(&b);
        ck_assert_msg(!b.ready, "%s", ways[i]);
        ck_assert_str_ne(a.path, b.path);
        /* Who uses the spoiled one keeps it, nobody else gets it. */
        ck_assert(exists(a.path));
        char spoiled[4096];
        snprintf(spoiled, sizeof(spoiled), "%s", a.path);
        let_go(&a);
        ck_assert(!exists(spoiled));
        ck_assert(exists(b.path));
        let_go(&b);
        kit_stop(&k);
    }
}
END_TEST

START_TEST(test_gens__one_of_an_earlier_boot_is_read_once)
{
    struct cairn_fetch_shared_result a, b;
    start();
    fetch(&a);
    ck_ok(cairn_lease_release(k.s, a.lease, &err));
    of_another_boot(&a);
    kit_reopen(&k);
    backend_fault_clear(k.s->backend);
    ck_ok(cairn_fetch_shared(k.s, NULL, CK_A, NULL, &b, &err));
    ck_assert(b.ready);
    ck_assert_str_eq(a.path, b.path);
    ck_assert_uint_eq(backend_fault_calls(k.s->backend, FAULT_OPEN_FD), 0);
    let_go(&b);
    /* From then on it is trusted: damage that nothing shows is not looked for again. */
    char seal[256];
    CLEANUP_FD int fd = open(file_of(&a, "../seal"), O_RDONLY);
    ssize_t n = pread(fd, seal, sizeof(seal) - 1, 0);
    ck_assert_int_gt(n, 0);
    seal[n] = 0;
    ck_assert_ptr_null(strstr(seal, "11111111-2222"));
    cairn_fetch_shared_result_release(&a);
    kit_stop(&k);
}
END_TEST

START_TEST(test_gens__one_that_a_crash_damaged_is_fetched_again)
{
    static const struct {
        const char *file;
        off_t at;
    } where[] = {{"memory", 0},
                 {"memory", 299990},
                 {"disks/cow.raw", 0},
                 {"disks/cow.raw", 7 << 20},
                 {"memory", 350000}};
    for (size_t i = 0; i < ARRAY_SIZE(where); i++) {
        struct cairn_fetch_shared_result a, b;
        start();
        fetch(&a);
        ck_ok(cairn_lease_release(k.s, a.lease, &err));
        overwrite_secretly(file_of(&a, where[i].file), where[i].at, "x");
        of_another_boot(&a);
        kit_reopen(&k);
        fetch(&b);
        ck_assert(!b.ready);
        ck_assert(!exists(a.path));
        cairn_fetch_shared_result_release(&a);
        let_go(&b);
        kit_stop(&k);
    }
}
END_TEST

START_TEST(test_gens__one_without_a_seal_goes_at_the_next_start)
{
    static const char *const seals[] = {"", "{\"version\":1,",
                                        "{\"version\":2,\"boot\":\"\",\"bytes\":1}",
                                        "{\"version\":1,\"boot\":\"\",\"bytes\":-1}", NULL};
    for (size_t i = 0; i < ARRAY_SIZE(seals); i++) {
        struct cairn_fetch_shared_result a;
        start();
        fetch(&a);
        ck_ok(cairn_lease_release(k.s, a.lease, &err));
        const char *seal = file_of(&a, "../seal");
        ck_assert_int_eq(unlink(seal), 0);
        if (seals[i]) {
            FILE *f = fopen(seal, "w");
            fputs(seals[i], f);
            fclose(f);
        }
        kit_reopen(&k);
        ck_assert(!exists(a.path));
        cairn_fetch_shared_result_release(&a);
        fetch(&a);
        let_go(&a);
        kit_stop(&k);
    }
}
END_TEST

START_TEST(test_gens__what_the_dead_left_goes_and_what_the_living_make_stays)
{
    char dead[512], alive[512], file[600], other[512];
    start();
    snprintf(dead, sizeof(dead), "%s/.tmp-0123456789abcdef", gens_path_text);
    snprintf(alive, sizeof(alive), "%s/.tmp-fedcba9876543210", gens_path_text);
    snprintf(other, sizeof(other), "%s/somebody-elses", gens_path_text);
    snprintf(file, sizeof(file), "%s/export", dead);
    ck_assert_int_eq(mkdir(dead, 0700), 0);
    ck_assert_int_eq(mkdir(file, 0700), 0);
    ck_assert_int_eq(mkdir(alive, 0700), 0);
    ck_assert_int_eq(mkdir(other, 0700), 0);
    int fd = open(alive, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(flock(fd, LOCK_SH), 0);
    kit_reopen(&k);
    ck_assert(!exists(dead));
    ck_assert(exists(alive));
    ck_assert(exists(other));
    close(fd);
    kit_reopen(&k);
    ck_assert(!exists(alive));
    kit_stop(&k);
}
END_TEST

/* ---- The budget ------------------------------------------------------------------------------ */

struct items {
    unsigned n, in_use;
    uint64_t bytes;
    struct budget_item last;
};

static int emit(void *to, const struct budget_item *item, struct cairn_error *e)
{
    struct items *i = to;
    (void)e;
    i->n++;
    i->in_use += item->in_use;
    i->bytes += item->bytes;
    i->last = *item;
    return CAIRN_OK;
}

START_TEST(test_gens__only_what_nobody_leases_can_be_evicted)
{
    struct cairn_fetch_shared_result a;
    struct items i = {0};
    int64_t before = clock_realtime();
    start();
    fetch(&a);
    ck_ok(gens_scan(k.s->gens, emit, &i, &err));
    ck_assert_uint_eq(i.n, 1);
    ck_assert_uint_eq(i.in_use, 1);
    ck_assert_uint_ge(i.bytes, 300000);
    ck_assert_uint_lt(i.bytes, 1 << 20); /* holes cost nothing */
    ck_assert_int_ge(i.last.used_ns, before - 2 * NS_PER_S);
    ck_fails(gens_evict(k.s->gens, &i.last, &err), CAIRN_BUSY);
    ck_assert(!gens_clear(k.s->gens));
    ck_assert(exists(a.path));
    ck_ok(cairn_lease_release(k.s, a.lease, &err));
    ck_assert(exists(a.path));
    i = (struct items){0};
    ck_ok(gens_scan(k.s->gens, emit, &i, &err));
    ck_assert_uint_eq(i.in_use, 0);
    ck_assert_uint_eq(gens_removed(k.s->gens), 0);
    ck_ok(gens_evict(k.s->gens, &i.last, &err));
    ck_ok(gens_evict(k.s->gens, &i.last, &err));
    ck_ok(gens_settle(k.s->gens, NULL, &err));
    ck_assert_uint_eq(gens_removed(k.s->gens), 1);
    ck_assert(!exists(a.path));
    i = (struct items){0};
    ck_ok(gens_scan(k.s->gens, emit, &i, &err));
    ck_assert_uint_eq(i.n, 0);
    cairn_fetch_shared_result_release(&a);
    kit_stop(&k);
}
END_TEST

/* Past the bound what was used least recently goes, by itself; what is leased does not count. */
START_TEST(test_gens__the_bound_holds_for_what_nobody_leases)
{
    static const char *const ids[] = {CK_A, CK_B, CK_C};
    struct cairn_fetch_shared_result r[3];
    kit_start(&k, NULL);
    for (unsigned i = 0; i < 3; i++) {
        kit_fill(&k, ids[i], "memory", 3 << 20, 0, i);
        ck_ok(kit_publish(&k, ids[i], ids[i], NULL, NULL, &err));
    }
    cairn_close(k.s);
    struct backend *b = NULL;
    ck_ok(backend_dir_open(k.root, &b, &err));
    struct cairn_config config = {.state = k.state, .workers = 2, .cache_bytes = 8 << 20};
    ck_ok(store_new(b, &config, NULL, &k.s, &err));
    ck_ok(cairn_fetch_shared(k.s, NULL, ids[0], NULL, &r[0], &err));
    ck_ok(cairn_fetch_shared(k.s, NULL, ids[1], NULL, &r[1], &err));
    ck_ok(cairn_lease_release(k.s, r[1].lease, &err));
    ck_ok(cairn_fetch_shared(k.s, NULL, ids[2], NULL, &r[2], &err));
    while (exists(r[1].path))
        usleep(2000);
    ck_assert(exists(r[0].path));
    ck_assert(exists(r[2].path));
    for (unsigned i = 0; i < 3; i++)
        cairn_fetch_shared_result_release(&r[i]);
    kit_stop(&k);
}
END_TEST

/* ---- Two processes --------------------------------------------------------------------------- */

/* A process of its own on the same state takes a lease and keeps it until it is killed. */
START_TEST(test_gens__another_process_keeps_what_it_leases)
{
    struct cairn_fetch_shared_result a;
    int up[2];
    char path[4096];
    start();
    cairn_close(k.s);
    k.s = NULL;
    ck_assert_int_eq(pipe(up), 0);
    pid_t pid = fork();
    if (pid == 0) {
        k.s = kit_open(&k);
        if (cairn_fetch_shared(k.s, NULL, CK_A, NULL, &a, &err))
            _exit(1);
        if (write(up[1], a.path, strlen(a.path) + 1) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    ck_assert_int_gt(read(up[0], path, sizeof(path)), 0);
    k.s = kit_open(&k);
    ck_assert(!gens_clear(k.s->gens));
    ck_assert(exists(path));
    /* It is found here too, and what is removed here stays there. */
    backend_fault_clear(k.s->backend);
    ck_ok(cairn_fetch_shared(k.s, NULL, CK_A, NULL, &a, &err));
    ck_assert(a.ready);
    ck_assert_str_eq(a.path, path);
    ck_assert_uint_eq(backend_fault_calls(k.s->backend, FAULT_OPEN_FD), 0);
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    let_go(&a);
    ck_assert(exists(path));
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert(gens_clear(k.s->gens));
    ck_assert(!exists(path));
    kit_stop(&k);
}
END_TEST

/* Folders of any kind in the folder of copies, and in those of its ids; *name: one of the latter.
 */
static size_t count_copies(char name[512])
{
    size_t n = 0;
    CLEANUP_DIR DIR *dir = opendir(gens_path_text);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *d; (d = readdir(dir));) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        char path[512];
        snprintf(path, sizeof(path), "%.200s/%.200s", gens_path_text, d->d_name);
        CLEANUP_DIR DIR *of_id = opendir(path);
        if (d->d_name[0] == '.')
            n++;
        for (const struct dirent *e; d->d_name[0] != '.' && (e = readdir(of_id));)
            if (e->d_name[0] != '.') {
                snprintf(name, 512, "%.200s", e->d_name);
                n++;
            }
    }
    return n;
}

/* Find the copy, or make one, with so many descriptors and no more. */
static int with_descriptors(unsigned extra, struct cairn_record *r, bool make)
{
    struct rlimit was, low;
    struct gens_key key;
    struct gens_entry *e = NULL;
    struct gens_build b = GENS_BUILD_INIT;
    const struct manifest *m = atomic_load(&r->manifest);
    ck_ok(gens_key(m, &key, &err));
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
    low = was;
    low.rlim_cur = 0;
    for (unsigned fd = 0, left = extra; low.rlim_cur == 0; fd++)
        if (fcntl((int)fd, F_GETFD) < 0 && left-- == 0)
            low.rlim_cur = fd;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    int rc = make ? gens_build_begin(k.s->gens, 1, &b, &err)
                  : gens_find(k.s->gens, NULL, &key, m, true, &e, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
    if (!rc && !make)
        ck_assert_ptr_nonnull(e);
    gens_unref(e);
    if (make && !rc)
        gens_build_release(&b);
    return rc;
}

START_TEST(test_gens__without_descriptors_nothing_is_lost_or_left)
{
    start();
    struct cairn_fetch_shared_result r;
    struct cairn_record *record = NULL;
    char name[512], now[512];
    fetch(&r);
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &record, &err));
    for (int in_use = 1; in_use >= 0; in_use--) {
        ck_assert_uint_eq(count_copies(name), 1);
        unsigned extra = 0;
        for (int rc = CAIRN_TRANSIENT; rc; extra++) {
            rc = with_descriptors(extra, record, false);
            ck_assert_msg(!rc || err.sys_errno == EMFILE, "%u: %s", extra, err.message);
            ck_assert_uint_eq(count_copies(now), 1);
            ck_assert_str_eq(now, name);
        }
        ck_assert_uint_gt(extra, 1);
        if (in_use)
            let_go(&r);
    }
    ck_assert_int_ne(with_descriptors(0, record, true), CAIRN_OK);
    ck_assert_int_eq(err.sys_errno, EMFILE);
    ck_assert_uint_eq(count_copies(now), 1);
    ck_assert_int_eq(with_descriptors(1, record, true), CAIRN_OK);
    ck_assert_uint_eq(count_copies(now), 1);
    cairn_record_close(record);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(gens, test_gens__without_descriptors_nothing_is_lost_or_left,
             test_gens__what_somebody_changed_is_fetched_again,
             test_gens__one_of_an_earlier_boot_is_read_once,
             test_gens__one_that_a_crash_damaged_is_fetched_again,
             test_gens__one_without_a_seal_goes_at_the_next_start,
             test_gens__what_the_dead_left_goes_and_what_the_living_make_stays,
             test_gens__only_what_nobody_leases_can_be_evicted,
             test_gens__the_bound_holds_for_what_nobody_leases,
             test_gens__another_process_keeps_what_it_leases)
