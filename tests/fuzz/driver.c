/* The main of a fuzz target where no fuzzing engine is at hand: runs each file of the folders and
 * files given, then bytes made of them by seeded mutation. Takes libFuzzer's flags of the same
 * names: -seed=N -runs=N -max_total_time=SECONDS -artifact_prefix=P. A run that dies leaves its
 * input at P + "crash". */
#include "base/clock.h"
#include "base/util.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define INPUT_MAX 65536u
#define SEEDS_MAX 1024

struct seed {
    uint8_t *data;
    size_t len;
};

static struct seed seeds[SEEDS_MAX];
static size_t n_seeds;
static uint8_t current[INPUT_MAX];
static volatile size_t current_len;
static char artifact[4096] = "crash";

static void on_crash(int sig)
{
    int fd = open(artifact, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0 && util_pwrite_full(fd, current, current_len, 0) >= 0)
        fsync(fd);
    signal(sig, SIG_DFL);
    raise(sig);
}

static void run(void)
{
    /* exactly as many bytes as there are, so that a sanitizer sees every step past them */
    uint8_t *data = malloc(current_len ? current_len : 1);
    if (!data)
        exit(2);
    memcpy(data, current, current_len);
    LLVMFuzzerTestOneInput(data, current_len);
    free(data);
}

static void load_file(const char *path)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : util_pread_full(fd, current, sizeof(current), 0);
    if (n < 0 || n_seeds == SEEDS_MAX) {
        fprintf(stderr, "cannot take %s\n", path);
        exit(2);
    }
    struct seed *s = &seeds[n_seeds++];
    s->len = current_len = (size_t)n;
    s->data = malloc(s->len + 1);
    if (!s->data)
        exit(2);
    memcpy(s->data, current, s->len);
    run();
}

static void load(const char *path)
{
    struct stat st;
    CLEANUP_DIR DIR *dir = opendir(path);
    if (!dir) {
        load_file(path);
        return;
    }
    for (struct dirent *d; (d = readdir(dir));) {
        char file[4096];
        snprintf(file, sizeof(file), "%s/%s", path, d->d_name);
        if (stat(file, &st) == 0 && S_ISREG(st.st_mode))
            load_file(file);
    }
}

/* ---- Mutation -------------------------------------------------------------------------------- */

static uint64_t below(uint64_t *state, uint64_t n)
{
    return n ? testing_random(state) % n : 0;
}

static void set_word(uint64_t *state, size_t width)
{
    static const uint64_t values[] = {
        0,        1,        63,       64,       255,       4095,       4096,      65535,     65536,
        1u << 20, 1u << 24, 1u << 26, 1u << 31, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
    if (current_len < width)
        return;
    uint64_t v = values[below(state, ARRAY_SIZE(values))] + below(state, 3) - 1;
    uint8_t le[8], *p = current + below(state, (current_len - width) / width + 1) * width;
    put_le64(le, v);
    memcpy(p, le, width);
}

static void copy_piece(uint64_t *state, const struct seed *from)
{
    size_t n = below(state, 65);
    if (n > from->len || n > current_len)
        return;
    memcpy(current + below(state, current_len - n + 1),
           from->data + below(state, from->len - n + 1), n);
}

static void resize(uint64_t *state)
{
    size_t n = below(state, 129), at = below(state, current_len + 1);
    if (below(state, 2)) {
        n = n < current_len - at ? n : current_len - at;
        memmove(current + at, current + at + n, current_len - at - n);
        current_len -= n;
    } else if (n <= INPUT_MAX - current_len) {
        memmove(current + at + n, current + at, current_len - at);
        testing_fill(current + at, n, testing_random(state));
        current_len += n;
    }
}

static void mutate(uint64_t *state)
{
    const struct seed *s = &seeds[below(state, n_seeds)];
    memcpy(current, s->data, s->len);
    current_len = s->len;
    for (uint64_t k = 1 + below(state, 4); k; k--) {
        switch (below(state, 6)) {
        case 0:
            if (current_len)
                current[below(state, current_len)] ^= (uint8_t)(1u << below(state, 8));
            break;
        case 1:
        case 2:
            set_word(state, 4);
            break;
        case 3:
            set_word(state, below(state, 2) ? 8 : 1);
            break;
        case 4:
            copy_piece(state, &seeds[below(state, n_seeds)]);
            break;
        default:
            resize(state);
        }
    }
}

/* ---- Main ------------------------------------------------------------------------------------ */

static const char *flag(const char *arg, const char *name)
{
    size_t n = strlen(name);
    return strncmp(arg, name, n) == 0 ? arg + n : NULL;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, runs = UINT64_MAX, done = 0;
    int64_t end = -1;
    const char *v;
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGABRT, SIGFPE};
    for (int i = 1; i < argc; i++) {
        if ((v = flag(argv[i], "-seed=")))
            seed = strtoull(v, NULL, 10);
        else if ((v = flag(argv[i], "-runs=")))
            runs = strtoull(v, NULL, 10);
        else if ((v = flag(argv[i], "-max_total_time=")))
            end = clock_monotonic() + (int64_t)strtoull(v, NULL, 10) * NS_PER_S;
        else if ((v = flag(argv[i], "-artifact_prefix=")))
            snprintf(artifact, sizeof(artifact), "%scrash", v);
    }
    for (size_t i = 0; i < ARRAY_SIZE(fatal); i++)
        signal(fatal[i], on_crash);
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-')
            load(argv[i]);
    size_t files = n_seeds;
    if (!n_seeds)
        seeds[n_seeds++] = (struct seed){calloc(1, 1), 0};
    bool loop = runs != UINT64_MAX || end >= 0;
    for (; loop && done < runs && (end < 0 || clock_monotonic() < end); done++) {
        mutate(&seed);
        run();
    }
    printf("%zu files, %llu mutations\n", files, (unsigned long long)done);
    for (size_t i = 0; i < n_seeds; i++)
        free(seeds[i].data);
    return 0;
}
