#include "tests/lib/testing.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int testing_run(const char *suite, const TTest *const *tests, size_t n)
{
    Suite *s = suite_create(suite);
    TCase *tc = tcase_create(suite);
    tcase_set_timeout(tc, 300);
    for (size_t i = 0; i < n; i++)
        tcase_add_test(tc, tests[i]);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static char folders[16][256];
static size_t n_folders;
static pid_t folders_pid;

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void remove_folders(void)
{
    if (folders_pid != getpid())
        return;
    for (size_t i = 0; i < n_folders; i++)
        nftw(folders[i], remove_entry, 32, FTW_DEPTH | FTW_PHYS);
}

const char *testing_tmpdir(void)
{
    if (folders_pid != getpid()) {
        folders_pid = getpid();
        n_folders = 0;
        atexit(remove_folders);
    }
    ck_assert(n_folders < sizeof(folders) / sizeof(folders[0]));
    const char *base = getenv("TMPDIR");
    char *out = folders[n_folders];
    snprintf(out, sizeof(folders[0]), "%s/cairn-test-XXXXXX", base && *base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(out));
    n_folders++;
    return out;
}

uint64_t testing_random(uint64_t *state)
{
    /* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014) */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void testing_fill(void *out, size_t len, uint64_t seed)
{
    uint8_t *p = out;
    while (len) {
        uint64_t v = testing_random(&seed);
        size_t n = len < sizeof(v) ? len : sizeof(v);
        memcpy(p, &v, n);
        p += n;
        len -= n;
    }
}
