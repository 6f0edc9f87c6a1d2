/* What reads through the local cache cost in processor time, without any network: a directory, and
 * a bucket in memory. For each: first reads, reads of what this process verified, and first reads
 * after a restart. Under callgrind, with CK_FORK=no, --toggle-collect=hit_directory (or
 * hit_bucket) counts the instructions of ROUNDS times CAIRN_BENCH_CHUNKS (2048) chunks that are in
 * the cache: counts.sh does.
 * usage: cache_reads */
#include "base/util.h"
#include "store/record_map.h"
#include "tests/lib/kit.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define CS     65536u
#define PIECE  (16 * CS)
#define ROUNDS 50

static struct cairn_error err;
static struct kit k;
static unsigned chunks = 2048;

static double cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           ((double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_usec) / 1e6;
}

static void read_mapped(struct cairn_record *r)
{
    for (uint64_t at = 0; at < (uint64_t)chunks * CS; at += PIECE) {
        struct record_span spans[16];
        size_t n;
        ck_ok(record_map(r, NULL, 0, at, PIECE, spans, 16, &n, &err));
        record_spans_release(k.s, spans, n);
    }
}

__attribute__((noinline)) static void hit_directory(struct cairn_record *r)
{
    read_mapped(r);
}

__attribute__((noinline)) static void hit_bucket(struct cairn_record *r)
{
    read_mapped(r);
}

static void read_copied(struct cairn_record *r)
{
    static uint8_t out[PIECE];
    for (uint64_t at = 0; at < (uint64_t)chunks * CS; at += PIECE) {
        size_t got;
        ck_ok(cairn_record_pread(r, NULL, 0, out, PIECE, at, &got, &err));
    }
}

static void timed(const char *what, void (*read)(struct cairn_record *r), unsigned rounds)
{
    struct cairn_record *r = NULL;
    ck_ok(cairn_record_open(k.s, NULL, CK_A, &r, &err));
    double begin = cpu();
    for (unsigned i = 0; i < rounds; i++)
        read(r);
    double each = (cpu() - begin) / rounds / chunks;
    printf("  %-40s %8.2f us for a chunk of 64 KiB\n", what, each * 1e6);
    cairn_record_close(r);
}

/* Half of each chunk is random, so that all of them are encoded. */
static void run(bool mem)
{
    static uint8_t bytes[CS];
    kit_start(&k, &(struct kit_options){.mem = mem});
    for (unsigned i = 0; i < chunks; i++) {
        testing_fill(bytes, CS / 2, i);
        memset(bytes + CS / 2, (int)i, CS / 2);
        kit_write(&k, "one", "f", bytes, CS, (uint64_t)i * CS);
    }
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    printf("%s\n", mem ? "bucket" : "directory, encoded chunks");
    timed("mapped for the first time", read_mapped, 1);
    timed("mapped again", mem ? hit_bucket : hit_directory, ROUNDS);
    timed("read again, copied", read_copied, 5);
    kit_reopen(&k);
    timed("mapped after a restart", read_mapped, 1);
    kit_stop(&k);
}

START_TEST(cache_reads)
{
    const char *n = getenv("CAIRN_BENCH_CHUNKS");
    if (n)
        chunks = (unsigned)strtoul(n, NULL, 10);
    run(false);
    run(true);
    fflush(stdout);
}
END_TEST

TESTING_MAIN(cache_reads, cache_reads)
