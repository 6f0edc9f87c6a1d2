/* What mount.sh measures with:
 *
 *   mount-bench seq FILE            reads it once from its start, 1 MiB at a time
 *   mount-bench fault FILE N        touches N pages of it at random through a mapping, each once
 *   mount-bench map SECONDS FILE... one process for each maps it, touches every page and stays
 *   mount-bench drop FILE           its pages leave the page cache
 *
 * One line of figures on standard output. */
#include "base/clock.h"
#include "base/util.h"
#include "tests/lib/testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PIECE ((size_t)1 << 20)
#define PAGE  ((size_t)4096)

static int open_file(const char *path, size_t *size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        perror(path);
        exit(1);
    }
    *size = (size_t)st.st_size;
    return fd;
}

static const uint8_t *map_file(const char *path, size_t *size)
{
    CLEANUP_FD int fd = open_file(path, size);
    void *map = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return map;
}

/* A load that no compiler leaves out. */
static void touch_page(const uint8_t *at)
{
    (void)*(const volatile uint8_t *)at;
}

static int seq(const char *path)
{
    size_t size;
    CLEANUP_FD int fd = open_file(path, &size);
    CLEANUP_FREE uint8_t *buf = aligned_alloc(PAGE, PIECE);
    memset(buf, 1, PIECE);
    int64_t begun = clock_monotonic();
    for (size_t at = 0; at < size; at += PIECE)
        if (util_pread_full(fd, buf, PIECE, at) <= 0)
            return 1;
    double s = (double)(clock_monotonic() - begun) / 1e9;
    printf("%.2f GB/s\n", (double)size / s / 1e9);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int fault(const char *path, size_t n)
{
    size_t size;
    const uint8_t *map = map_file(path, &size);
    size_t pages = size / PAGE;
    CLEANUP_FREE uint32_t *order = calloc(pages, sizeof(*order));
    CLEANUP_FREE int64_t *took = calloc(n, sizeof(*took));
    if (!order || !took || n > pages)
        return 1;
    uint64_t seed = 5;
    for (size_t i = 0; i < pages; i++)
        order[i] = (uint32_t)i;
    for (size_t i = 0; i < n; i++) {
        size_t j = i + testing_random(&seed) % (pages - i);
        uint32_t other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    int64_t begun = clock_monotonic();
    for (size_t i = 0; i < n; i++) {
        int64_t before = clock_monotonic();
        touch_page(map + (size_t)order[i] * PAGE);
        took[i] = clock_monotonic() - before;
    }
    double s = (double)(clock_monotonic() - begun) / 1e9;
    qsort(took, n, sizeof(*took), by_value);
    printf("%.0f/s, p50 %.1f us, p90 %.1f us, p99 %.1f us\n", (double)n / s,
           (double)took[n / 2] / 1e3, (double)took[n * 9 / 10] / 1e3,
           (double)took[n * 99 / 100] / 1e3);
    return 0;
}

static void touch_all(const char *path, int tell, unsigned seconds)
{
    size_t size;
    const uint8_t *map = map_file(path, &size);
    for (size_t at = 0; at < size; at += PAGE)
        touch_page(map + at);
    if (write(tell, "x", 1) == 1)
        sleep(seconds);
    _exit(0);
}

static int map(unsigned seconds, char **paths, int n)
{
    int tell[2];
    char c;
    if (pipe(tell))
        return 1;
    for (int i = 0; i < n; i++)
        if (fork() == 0)
            touch_all(paths[i], tell[1], seconds);
    for (int i = 0; i < n; i++)
        if (read(tell[0], &c, 1) != 1)
            return 1;
    printf("%d processes have it mapped\n", n);
    fflush(stdout);
    while (wait(NULL) > 0)
        ;
    return 0;
}

static int drop(const char *path)
{
    size_t size;
    CLEANUP_FD int fd = open_file(path, &size);
    return posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "seq") == 0)
        return seq(argv[2]);
    if (argc == 4 && strcmp(argv[1], "fault") == 0)
        return fault(argv[2], strtoul(argv[3], NULL, 10));
    if (argc > 3 && strcmp(argv[1], "map") == 0)
        return map((unsigned)strtoul(argv[2], NULL, 10), argv + 3, argc - 3);
    if (argc == 3 && strcmp(argv[1], "drop") == 0)
        return drop(argv[2]);
    fprintf(stderr, "usage: mount-bench seq|fault|map|drop …\n");
    return 2;
}
