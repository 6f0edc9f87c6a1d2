/* Where the contract suite gets its backends: the same tests run against each kind, chosen by the
 * environment variable CAIRN_TEST_BACKEND ("dir" if unset). To add one, add its row in factory.c.
 *
 *   dir    a directory under TMPDIR       mem    in memory
 *   fault  dir behind the fault wrapper, without a plan
 *   s3-v4, s3-v2, rgw-v4, rgw-v2   in a bucket (s3/factory_s3.h) */
#ifndef CAIRN_TESTS_FACTORY_H
#define CAIRN_TESTS_FACTORY_H

#include "store/backend.h"
#include "tests/lib/testing.h"

/* An empty store, and how to get at it. */
struct place;

struct factory {
    const char *name;
    bool locks;  /* lock excludes */
    bool stages; /* stage keeps an object that a collector can take away to fence the writer */
    bool files;  /* open_fd is there */
    bool etags;
    bool looks_first; /* commit once is a look and a write, not one step */
    bool no_spaces;   /* in keys */
    void (*start)(struct place *place);
    /* Any number of backends on one place, each as another process would have it. */
    int (*open)(struct place *place, struct backend **out, struct cairn_error *err);
    void (*stop)(struct place *place);
};

struct place {
    const struct factory *factory;
    const char *root;       /* dir: the store's folder */
    struct backend *shared; /* mem: keeps the store alive */
    void *server;           /* s3: the bucket's */
};

/* An empty place of the kind that the environment asks for. Fails the test for an unknown name. */
void place_start(struct place *place);
struct backend *place_open(struct place *place);
void place_stop(struct place *place); /* every backend on it was freed */

/* What most tests need: one place and one backend on it, both gone with the test. */
extern struct place test_place;
extern struct backend *test_backend;
void contract_start(void);
void contract_stop(void);

#define CONTRACT_TEST(name)                                                                        \
    static void name##_body(void);                                                                 \
    START_TEST(name)                                                                               \
    {                                                                                              \
        contract_start();                                                                          \
        name##_body();                                                                             \
        contract_stop();                                                                           \
    }                                                                                              \
    END_TEST                                                                                       \
    static void name##_body(void)

#define ID_A "ck_00000000000000aa"
#define ID_B "ck_00000000000000ab"
#define GEN1 "0123456789abcdef"
#define GEN2 "fedcba9876543210"

/* Short forms that fail the test: put text, the object's text (static buffer; NULL if it is not
 * there), and every key of a listing, a space between each two (static buffer). */
void put_text(const char *key, const char *text);
const char *get_text(const char *key);
const char *keys_of(const char *prefix, const char *after);
bool is_there(const char *key);

#endif
