/* A small store to sweep: on a backend whose clock is moved at will, or with times of zero; behind
 * the fault wrapper. All functions end the test on failure.
 *
 * CAIRN_TEST_BACKEND chooses where: unset, in memory and in a directory; "s3-v4", "rgw-v4" and the
 * like (contract/factory.h), both in a bucket, whose stamps a wrapper moves. There a test that
 * rests on a directory is left out, and the long loops take larger steps. */
#ifndef CAIRN_TESTS_GC_WORLD_H
#define CAIRN_TESTS_GC_WORLD_H

#include "store/manifest.h"
#include "store/store.h"
#include "tests/contract/factory.h"
#include "tests/lib/backend_clock.h"
#include "tests/lib/backend_fault.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/testing.h"

#define SECOND ((int64_t)1000000000)
#define HOUR   (3600 * SECOND)
#define DAY    (24 * HOUR)
#define SIGMA  (900 * SECOND)
#define GAMMA  (5400 * SECOND)

#define CK_A "ck_00000000000000aa"
#define CK_B "ck_00000000000000ab"
#define CK_C "ck_00000000000000ac"
#define TP_A "tp_000000000000000000000000000000aa"

struct world {
    struct backend *b;     /* the fault wrapper, owned by s */
    struct backend *inner; /* what it wraps, borrowed */
    struct cairn_store *s;
    bool dir, bucket;
    struct place place; /* of a bucket */
    struct cairn_gc_config config;
    struct cairn_gc_options options;
    struct cairn_gc_result result; /* of the last sweep */
    struct cairn_error err;        /* of the last sweep */
    char root[256];                /* scratch */
};

/* Default times. */
void world_init_mem(struct world *w);
/* Times of zero: all that is due is done by one sweep. In a bucket if that is chosen. */
void world_init_now(struct world *w);
/* The same, always in a directory. */
void world_init_dir(struct world *w);
/* 1, or less often where every call is a request. */
unsigned world_stride(unsigned in_bucket);
void world_release(struct world *w);
void world_advance(struct world *w, int64_t ns); /* not in a directory */

/* The file "f" of n bytes made from seed, published under that meta (NULL: "meta"). Incompressible.
 */
int world_try_publish(struct world *w, const char *id, const char *meta, uint64_t seed, size_t n,
                      struct cairn_error *err);
void world_publish(struct world *w, const char *id, const char *meta, uint64_t seed, size_t n);
/* The same of two pieces in a file each. */
void world_publish_two(struct world *w, const char *id, const char *meta, uint64_t seed1, size_t n1,
                       uint64_t seed2, size_t n2);
/* The generation that this meta names. */
void world_gen(const char *meta, char gen[GEN_TEXT]);
void world_delete(struct world *w, const char *id);
/* The record is the file of that seed and size. */
void world_is(struct world *w, const char *id, uint64_t seed, size_t n);

/* One sweep, which must succeed. */
void world_sweep(struct world *w);
/* One sweep, with its class in w->err and its result. */
int world_try_sweep(struct world *w);

/* Objects under a prefix. */
size_t world_count(struct world *w, const char *prefix);
/* The i-th key under prefix, in order. */
void world_key(struct world *w, const char *prefix, size_t i, char key[KEY_MAX]);
bool world_has(struct world *w, const char *key);
/* One byte changes as by rot: it is xored with mask. */
void world_damage(struct world *w, const char *key, uint64_t off, uint8_t mask);
void world_put(struct world *w, const char *key, const void *data, size_t len);
/* All keys but gc/clock with size and time, as text, to compare; free(). */
char *world_picture(struct world *w);
/* The mark of the i-th pack, or of the pack of the only one. */
void world_pack_id(struct world *w, size_t i, uint8_t id[PACK_ID_LEN]);
/* Every record verifies. */
void world_verify(struct world *w);

/* int main, as TESTING_MAIN. */
#define WORLD_MAIN(suite, ...)                                                                     \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *tests[] = {__VA_ARGS__};                                                      \
        return world_main(#suite, tests, sizeof(tests) / sizeof(tests[0]));                        \
    }
int world_main(const char *suite, const TTest **tests, size_t n);

#endif
