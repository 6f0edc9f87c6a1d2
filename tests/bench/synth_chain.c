/* synth-chain: a chain of made-up checkpoints, the same bytes on every machine for the same
 * options.
 *
 * Stands in for real ones where a machine must not need QEMU, or where counts are compared. A
 * memory image is written whole, as a VMM dumps it: runs of zero, repeated, text-like, pointer-like
 * and random pages. A disk image is sparse. From one checkpoint to the next some pages change, in
 * clusters, most of them by a few small stores. */
#include "base/util.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <sys/stat.h>

#define PAGE   4096u
#define BATCH  256u /* pages a write */
#define WORDS  512u
#define MIB(n) ((uint64_t)(n) << 20)

enum kind { KIND_HOLE, KIND_ZERO, KIND_REPEATED, KIND_TEXT, KIND_POINTERS, KIND_RANDOM };

/* What a page holds follows from its place, its kind and how often it was written. */
struct page {
    uint8_t kind;
    uint8_t writes;
};

struct image {
    const char *name;
    struct page *pages; /* owned */
    uint64_t n, seed;
};

struct options {
    const char *out;
    uint64_t memory_mib, disk_mib, seed, forks, dirty_permille;
};

/* Shares of the kinds in 1/1000 of the runs, in the order of enum kind. Runs of holes and zeros are
 * eight times as long as others: about 3/5 of the memory is zero, 2/3 of the disk a hole. */
static const unsigned memory_mix[] = {0, 150, 140, 310, 270, 130};
static const unsigned disk_mix[] = {180, 15, 60, 320, 85, 340};

static char words[WORDS][12];
static unsigned word_len[WORDS];

static uint64_t below(uint64_t *rng, uint64_t n)
{
    return testing_random(rng) % n;
}

static uint64_t rng_for(uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t s = seed ^ a * 0x9e3779b97f4a7c15u ^ b * 0xc2b2ae3d27d4eb4fu;
    return testing_random(&s);
}

static void make_words(void)
{
    static const char consonants[] = "bcdfghklmnprstvw", vowels[] = "aeiou";
    uint64_t rng = 1;

    for (unsigned i = 0; i < WORDS; i++) {
        unsigned n = 0, syllables = 1 + (unsigned)below(&rng, 4);
        while (syllables--) {
            words[i][n++] = consonants[below(&rng, sizeof(consonants) - 1)];
            words[i][n++] = vowels[below(&rng, sizeof(vowels) - 1)];
        }
        words[i][n++] = i % 16 ? ' ' : '\n';
        word_len[i] = n;
    }
}

/* Common words come often: the smaller of two draws, squared. */
static void fill_text(uint8_t *out, size_t len, uint64_t *rng)
{
    size_t at = 0;
    while (at < len) {
        uint64_t a = below(rng, WORDS), w = a * a / WORDS;
        size_t n = word_len[w] < len - at ? word_len[w] : len - at;
        memcpy(out + at, words[w], n);
        at += n;
    }
}

/* Like a slab of kernel objects: addresses near each other, small counts, zeros. */
static void fill_pointers(uint8_t *out, uint64_t *rng)
{
    uint64_t base = 0xffff888000000000u + (below(rng, 1u << 20) << 12);
    unsigned stride = 8u << below(rng, 5); /* words an object */

    for (unsigned i = 0; i < PAGE / 8; i++) {
        uint64_t v = 0;
        if (i % stride == 0)
            v = base + below(rng, 1024) * 64;
        else if (below(rng, 4) == 0)
            v = below(rng, 2) ? below(rng, 256) : base + below(rng, 1u << 16) * 8;
        put_le64(out + (size_t)i * 8, v);
    }
}

static void fill_kind(uint8_t *out, enum kind kind, const struct image *image, uint64_t at,
                      uint64_t write)
{
    uint64_t rng = rng_for(image->seed, at, write);

    switch (kind) {
    case KIND_HOLE:
    case KIND_ZERO:
        memset(out, 0, PAGE);
        break;
    case KIND_REPEATED: /* one of 64 pages, which memory and disk share */
        testing_fill(out, PAGE, below(&rng, 64));
        break;
    case KIND_TEXT:
        fill_text(out, PAGE, &rng);
        break;
    case KIND_POINTERS:
        fill_pointers(out, &rng);
        break;
    case KIND_RANDOM:
        testing_fill(out, PAGE, testing_random(&rng));
        break;
    }
}

/* The nth write to a page: a few small stores, a longer run of text, or all of it. */
static void apply_write(uint8_t *out, const struct image *image, uint64_t at, unsigned nth)
{
    uint64_t rng = rng_for(image->seed, at, nth);
    uint64_t what = below(&rng, 10);

    if (what == 9) {
        fill_kind(out, KIND_TEXT, image, at, nth);
    } else if (what >= 7) {
        fill_text(out + below(&rng, PAGE - 512), 512, &rng);
    } else {
        for (uint64_t n = 1 + below(&rng, 8); n; n--)
            put_le64(out + below(&rng, PAGE / 8) * 8, testing_random(&rng));
    }
}

static void make_page(uint8_t *out, const struct image *image, uint64_t at)
{
    const struct page *p = &image->pages[at];

    fill_kind(out, p->kind, image, at, 0);
    for (unsigned i = 1; i <= p->writes; i++)
        apply_write(out, image, at, i);
}

static void lay_out(struct image *image, const unsigned *mix)
{
    uint64_t rng = image->seed, at = 0;

    while (at < image->n) {
        uint64_t len = 1 + below(&rng, 64), draw = below(&rng, 1000);
        unsigned kind = KIND_HOLE;
        while (draw >= mix[kind])
            draw -= mix[kind++];
        if (kind == KIND_HOLE || kind == KIND_ZERO)
            len *= 8;
        for (; len && at < image->n; len--)
            image->pages[at++].kind = (uint8_t)kind;
    }
}

/* Write to permille of the pages, in clusters of 1 to 32. A hole or a zero page that is written to
 * becomes text; three clusters of four keep to pages in use. */
static void dirty(struct image *image, uint64_t permille, uint64_t step)
{
    uint64_t rng = rng_for(image->seed, step, ~0ull), left = image->n * permille / 1000;
    unsigned tries = 0;

    while (left) {
        uint64_t at = below(&rng, image->n), len = 1 + below(&rng, 32);
        if (image->pages[at].kind <= KIND_ZERO && below(&rng, 4) && ++tries % 64)
            continue;
        for (; len && left && at < image->n; at++, len--, left--) {
            struct page *p = &image->pages[at];
            if (p->kind <= KIND_ZERO)
                p->kind = KIND_TEXT;
            else if (p->writes < UINT8_MAX)
                p->writes++;
        }
    }
}

static int failed(const char *what, const char *path)
{
    fprintf(stderr, "synth-chain: %s %s: %s\n", what, path, strerror(errno));
    return 1;
}

static int write_image(int dir, const struct image *image)
{
    CLEANUP_FREE uint8_t *buf = malloc((size_t)PAGE * BATCH);
    CLEANUP_FD int fd = openat(dir, image->name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

    if (!buf || fd < 0 || ftruncate(fd, (off_t)(image->n * PAGE)) != 0)
        return failed("create", image->name);
    for (uint64_t at = 0; at < image->n;) {
        uint64_t first = at;
        size_t len = 0;
        if (image->pages[at].kind == KIND_HOLE) {
            at++;
            continue;
        }
        for (; at < image->n && len < (size_t)PAGE * BATCH; at++, len += PAGE) {
            if (image->pages[at].kind == KIND_HOLE)
                break;
            make_page(buf + len, image, at);
        }
        if (util_pwrite_full(fd, buf, len, first * PAGE) != (ssize_t)len)
            return failed("write", image->name);
    }
    return 0;
}

static int write_config(int dir, const struct options *o, uint64_t step)
{
    char text[128];
    int n = snprintf(text, sizeof(text), "{\"memory_mib\":%" PRIu64 ",\"step\":%" PRIu64 "}\n",
                     o->memory_mib, step);
    CLEANUP_FD int fd = openat(dir, "config.json", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

    if (fd < 0 || util_pwrite_full(fd, text, (size_t)n, 0) != n)
        return failed("write", "config.json");
    return 0;
}

static int write_checkpoint(int out, const struct options *o, const struct image *memory,
                            const struct image *disk, uint64_t step)
{
    char name[32];
    CLEANUP_FD int dir = -1;

    snprintf(name, sizeof(name), "ck%" PRIu64, step);
    if (mkdirat(out, name, 0755) != 0)
        return failed("mkdir", name);
    dir = openat(out, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return failed("open", name);
    if (write_image(dir, memory) != 0 || write_image(dir, disk) != 0)
        return 1;
    return write_config(dir, o, step);
}

static int make_chain(const struct options *o)
{
    struct image memory = {"memory-ranges", NULL, MIB(o->memory_mib) / PAGE, o->seed};
    struct image disk = {"cow.raw", NULL, MIB(o->disk_mib) / PAGE, o->seed + 1};
    CLEANUP_FREE struct page *mp = calloc(memory.n ? memory.n : 1, sizeof(*mp));
    CLEANUP_FREE struct page *dp = calloc(disk.n ? disk.n : 1, sizeof(*dp));
    CLEANUP_FD int out = -1;

    memory.pages = mp;
    disk.pages = dp;
    if (!mp || !dp)
        return failed("allocate the page tables of", o->out);
    if (mkdir(o->out, 0755) != 0 && errno != EEXIST)
        return failed("mkdir", o->out);
    out = open(o->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out < 0)
        return failed("open", o->out);
    make_words();
    lay_out(&memory, memory_mix);
    lay_out(&disk, disk_mix);
    for (uint64_t step = 0; step <= o->forks; step++) {
        if (step) {
            dirty(&memory, o->dirty_permille, step);
            dirty(&disk, o->dirty_permille / 10, step);
        }
        if (write_checkpoint(out, o, &memory, &disk, step) != 0)
            return 1;
    }
    return 0;
}

static int usage(void)
{
    fputs("usage: synth-chain [-m MEMORY_MIB=256] [-d DISK_MIB=1024] [-n FORKS=2]\n"
          "                   [-p DIRTY_PERMILLE=20] [-s SEED=1] OUT\n"
          "Makes OUT/ck0..ckN, each memory-ranges, cow.raw and config.json.\n",
          stderr);
    return 2;
}

static bool number(const char *text, uint64_t max, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *out <= max;
}

int main(int argc, char **argv)
{
    struct options o = {
        .memory_mib = 256, .disk_mib = 1024, .seed = 1, .forks = 2, .dirty_permille = 20};
    int c;

    while ((c = getopt(argc, argv, "m:d:n:p:s:")) != -1) {
        bool ok = c == 'm'   ? number(optarg, 1 << 20, &o.memory_mib)
                  : c == 'd' ? number(optarg, 1 << 24, &o.disk_mib)
                  : c == 'n' ? number(optarg, 200, &o.forks)
                  : c == 'p' ? number(optarg, 1000, &o.dirty_permille)
                  : c == 's' ? number(optarg, UINT64_MAX, &o.seed)
                             : false;
        if (!ok)
            return usage();
    }
    if (argc - optind != 1)
        return usage();
    o.out = argv[optind];
    return make_chain(&o);
}
