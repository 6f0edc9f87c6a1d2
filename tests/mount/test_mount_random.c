/* Random calls in a staging, each made in a plain folder as well: both answer the same, and in the
 * end hold the same, also as what was published. MOUNT_SEED and MOUNT_OPS change the run. */
#include "base/util.h"
#include "tests/mount/daemon.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CK_A  "ck_00000000000000aa"
#define FILES 12
#define OPEN  6
#define SIZE  ((uint64_t)3 << 20) /* of a file, at most */
#define PIECE ((size_t)200000)    /* of a write, at most */

static struct world w;
static uint64_t state;
static char side[2][512]; /* of the mount, and the plain one */
/* Descriptors of the same file on both sides. */
static int fds[OPEN][2];
static uint8_t data[PIECE], seen[2][PIECE];

static uint64_t pick(uint64_t n)
{
    return testing_random(&state) % n;
}

/* Names in the top, in one of two folders, and those folders themselves. */
static void name_of(char out[64])
{
    uint64_t k = pick(FILES);
    if (k < 2)
        text(out, 64, "d%d", (int)k);
    else if (k < 6)
        text(out, 64, "d%d/f%d", (int)k % 2, (int)k / 2);
    else
        text(out, 64, "f%d", (int)k);
}

static const char *at(int s, const char *name)
{
    return in(side[s], name, NULL);
}

#define BOTH(call)                                                                                 \
    do {                                                                                           \
        int e_[2];                                                                                 \
        for (int s = 0; s < 2; s++) {                                                              \
            errno = 0;                                                                             \
            e_[s] = (call) == -1 ? errno : 0;                                                      \
        }                                                                                          \
        ck_assert_msg(e_[0] == e_[1], "%s: %s on the mount, %s elsewhere", #call, strerror(e_[0]), \
                      strerror(e_[1]));                                                            \
    } while (0)

static int *some_fds(void)
{
    size_t k = pick(OPEN);
    for (size_t i = 0; i < OPEN; i++)
        if (fds[(k + i) % OPEN][0] >= 0)
            return fds[(k + i) % OPEN];
    return NULL;
}

static uint64_t size_of(const int *fd)
{
    struct stat st[2];
    for (int s = 0; s < 2; s++)
        ck_sys(fstat(fd[s], &st[s]));
    ck_assert_int_eq(st[0].st_size, st[1].st_size);
    ck_assert_uint_eq(st[0].st_mode, st[1].st_mode);
    ck_assert_uint_eq(st[0].st_nlink, st[1].st_nlink);
    return (uint64_t)st[0].st_size;
}

static void do_open(void)
{
    static const int flags[] = {O_RDWR | O_CREAT, O_RDWR | O_CREAT | O_TRUNC, O_RDWR,
                                O_RDWR | O_CREAT | O_EXCL};
    char name[64];
    int f = flags[pick(ARRAY_SIZE(flags))] | O_CLOEXEC, *slot = fds[pick(OPEN)];
    name_of(name);
    for (int s = 0; s < 2; s++)
        if (slot[s] >= 0)
            close(slot[s]);
    BOTH(slot[s] = open(at(s, name), f, 0600));
}

static void do_write(int *fd)
{
    size_t n = 1 + pick(PIECE);
    off_t off = (off_t)pick(SIZE - PIECE);
    testing_fill(data, n, testing_random(&state));
    for (int s = 0; s < 2; s++)
        ck_assert_int_eq(util_pwrite_full(fd[s], data, n, (uint64_t)off), (ssize_t)n);
}

static void do_read(int *fd)
{
    size_t n = 1 + pick(PIECE);
    off_t off = (off_t)pick(SIZE);
    ssize_t got[2];
    for (int s = 0; s < 2; s++)
        got[s] = ck_sys(util_pread_full(fd[s], seen[s], n, (uint64_t)off));
    ck_assert_int_eq(got[0], got[1]);
    ck_assert_mem_eq(seen[0], seen[1], (size_t)got[0]);
}

static void do_map(int *fd)
{
    uint64_t size = size_of(fd);
    if (!size)
        return;
    size_t off = pick(size), n = size - off < 5000 ? (size_t)(size - off) : 5000;
    testing_fill(data, n, testing_random(&state));
    for (int s = 0; s < 2; s++) {
        uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd[s], 0);
        ck_assert_ptr_ne(p, MAP_FAILED);
        memcpy(p + off, data, n);
        munmap(p, size);
    }
}

static void do_fallocate(int *fd)
{
    static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE};
    int mode = modes[pick(ARRAY_SIZE(modes))];
    off_t off = (off_t)pick(SIZE), n = 1 + (off_t)pick(SIZE - (uint64_t)off);
    BOTH(fallocate(fd[s], mode, off, n));
}

static void do_copy(int *fd)
{
    int *to = some_fds();
    uint64_t size = size_of(fd), off = pick(SIZE), out = pick(SIZE - PIECE);
    size_t n = 1 + pick(PIECE);
    if (to == fd || off >= size)
        return;
    n = size - off < n ? (size_t)(size - off) : n;
    for (int s = 0; s < 2; s++)
        for (size_t done = 0; done < n;) {
            off_t a = (off_t)(off + done), b = (off_t)(out + done);
            ssize_t got = copy_file_range(fd[s], &a, to[s], &b, n - done, 0);
            /* Two descriptors of one file, and the ranges overlap. */
            if (got < 0 && errno == EINVAL)
                return;
            ck_assert_int_gt(got, 0);
            done += (size_t)got;
        }
}

/* Where the mount says that there is a hole, nothing is. */
static void do_seek(int *fd)
{
    uint64_t size = size_of(fd), off = pick(SIZE);
    if (off >= size) {
        BOTH(lseek(fd[s], (off_t)off, SEEK_DATA));
        return;
    }
    off_t hole = ck_sys(lseek(fd[0], (off_t)off, SEEK_HOLE));
    ck_assert_uint_ge((uint64_t)hole, off);
    ck_assert_uint_le((uint64_t)hole, size);
    off_t next = lseek(fd[0], hole, SEEK_DATA);
    if (next < 0)
        next = (off_t)size;
    while (hole < next) {
        size_t n = (size_t)(next - hole) < PIECE ? (size_t)(next - hole) : PIECE;
        ck_assert_int_eq(util_pread_full(fd[1], seen[1], n, (uint64_t)hole), (ssize_t)n);
        ck_assert(util_is_zero(seen[1], n));
        hole += (off_t)n;
    }
}

static void do_names(void)
{
    char a[64], b[64];
    name_of(a);
    name_of(b);
    struct timespec times[2] = {{.tv_sec = 5, .tv_nsec = (long)pick(1000000000)},
                                {.tv_sec = 6, .tv_nsec = (long)pick(1000000000)}};
    mode_t mode = pick(2) ? 0600 : 0640;
    switch (pick(8)) {
    case 0:
        BOTH(mkdir(at(s, a), 0750));
        break;
    case 1:
        BOTH(rmdir(at(s, a)));
        break;
    case 2:
        BOTH(unlink(at(s, a)));
        break;
    case 3:
    case 4:
        BOTH(rename(at(s, a), at(s, b)));
        break;
    case 5:
        BOTH(utimensat(AT_FDCWD, at(s, a), times, 0));
        break;
    case 6:
        BOTH(link(at(s, a), at(s, b)));
        break;
    default:
        if (a[0] == 'f')
            BOTH(chmod(at(s, a), mode));
        else
            BOTH(access(at(s, a), F_OK));
    }
}

static void one_call(void)
{
    int *fd = some_fds();
    uint64_t k = pick(20);
    off_t size = (off_t)pick(SIZE);
    char name[64];
    if (k < 3 || !fd)
        do_open();
    else if (k < 7)
        do_names();
    else if (k < 10)
        do_write(fd);
    else if (k < 12)
        do_read(fd);
    else if (k == 12)
        BOTH(ftruncate(fd[s], size));
    else if (k == 13) {
        name_of(name);
        BOTH(truncate(at(s, name), size));
    } else if (k == 14)
        do_map(fd);
    else if (k == 15)
        do_fallocate(fd);
    else if (k == 16)
        do_copy(fd);
    else if (k == 17)
        do_seek(fd);
    else if (k == 18)
        BOTH(pick(2) ? fsync(fd[s]) : fdatasync(fd[s]));
    else
        for (int s = 0; s < 2; s++) {
            close(fd[s]);
            fd[s] = -1;
        }
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static void same_file(const char *a, const char *b)
{
    CLEANUP_FD int fa = ck_sys(open(a, O_RDONLY | O_CLOEXEC));
    CLEANUP_FD int fb = ck_sys(open(b, O_RDONLY | O_CLOEXEC));
    for (uint64_t off = 0;; off += PIECE) {
        ssize_t n = util_pread_full(fa, seen[0], PIECE, off);
        ck_assert_int_ge(n, 0);
        ck_assert_int_eq(util_pread_full(fb, seen[1], PIECE, off), n);
        ck_assert_msg(memcmp(seen[0], seen[1], (size_t)n) == 0, "%s and %s differ near %llu", a, b,
                      (unsigned long long)off);
        if ((size_t)n < PIECE)
            return;
    }
}

static size_t same_folder(const char *a, const char *b, bool staged)
{
    size_t files = 0, there = 0;
    CLEANUP_DIR DIR *da = opendir(a);
    CLEANUP_DIR DIR *db = opendir(b);
    ck_assert(da && db);
    for (const struct dirent *d; (d = readdir(db));) {
        struct stat sa, sb;
        char pa[2048], pb[2048];
        if (d->d_name[0] == '.')
            continue;
        text(pa, sizeof(pa), "%s/%s", a, d->d_name);
        text(pb, sizeof(pb), "%s/%s", b, d->d_name);
        ck_sys(lstat(pb, &sb));
        /* A store keeps no empty folders. */
        if (!staged && S_ISDIR(sb.st_mode) && lstat(pa, &sa) != 0)
            continue;
        there++;
        ck_sys(lstat(pa, &sa));
        if (staged) {
            ck_assert_uint_eq(sa.st_mode, sb.st_mode);
            if (sb.st_mtim.tv_sec == 6)
                ck_assert_int_eq(sa.st_mtim.tv_nsec, sb.st_mtim.tv_nsec);
        }
        if (S_ISDIR(sb.st_mode)) {
            files += same_folder(pa, pb, staged);
        } else {
            same_file(pa, pb);
            files++;
        }
    }
    for (const struct dirent *d; (d = readdir(da));)
        if (d->d_name[0] != '.') {
            ck_assert_uint_gt(there, 0);
            there--;
        }
    ck_assert_uint_eq(there, 0);
    return files;
}

/* While some of it may still wait to be chunked, or is being. */
static void publish_and_compare(void)
{
    struct stat st;
    char stage[512], target[1024];
    text(stage, sizeof(stage), "%.500s", side[0]);
    *strrchr(stage, '/') = 0;
    if (mkdir(world_path(&w, 0, CK_A), 0750) != 0)
        ck_assert_int_eq(errno, EEXIST);
    ck_assert_int_eq(daemon_stage_meta(stage, "{}"), 0);
    ck_assert_int_eq(daemon_publish(world_path(&w, 0, NULL), CK_A, stage, NULL), 0);
    text(target, sizeof(target), "%s", gen_path(world_path(&w, 0, NULL), CK_A, "export", "{}"));
    ck_sys(stat(target, &st));
    same_folder(target, side[1], false);
}

START_TEST(test_mount_random__a_staging_behaves_like_a_plain_folder)
{
    const char *seed = getenv("MOUNT_SEED"), *ops = getenv("MOUNT_OPS");
    unsigned long n = ops ? strtoul(ops, NULL, 10) : 1500;
    char stage[512];
    world_start(&w, 1, NULL);
    for (unsigned round = 0; round < 3; round++) {
        uint64_t first = seed ? strtoul(seed, NULL, 10) : 1000 + round;
        state = first;
        ck_assert_int_eq(daemon_stage(world_path(&w, 0, NULL), CK_A, stage), 0);
        text(side[0], sizeof(side[0]), "%s/export", stage);
        text(side[1], sizeof(side[1]), "%.200s/plain%u", w.top, round);
        BOTH(mkdir(side[s], 0755));
        for (size_t i = 0; i < OPEN; i++)
            fds[i][0] = fds[i][1] = -1;
        for (unsigned long i = 0; i < n; i++)
            one_call();
        for (size_t i = 0; i < OPEN; i++)
            for (int s = 0; s < 2; s++)
                if (fds[i][s] >= 0)
                    close(fds[i][s]);
        fprintf(stderr, "seed %llu: %zu files\n", (unsigned long long)first,
                same_folder(side[0], side[1], true));
        publish_and_compare();
        ck_assert_int_eq(daemon_delete(world_path(&w, 0, NULL), CK_A), 0);
        ck_assert_int_eq(daemon_remove_all(stage), 0);
    }
    world_stop(&w);
    world_verify(&w);
}
END_TEST

TESTING_MAIN(mount_random, test_mount_random__a_staging_behaves_like_a_plain_folder)
