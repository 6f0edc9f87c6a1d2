#include "tests/contract/factory.h"

#include "tests/lib/backend_fault.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/objects.h"
#include "tests/s3/factory_s3.h"

#include <stdlib.h>
#include <string.h>

static void dir_start(struct place *place)
{
    place->root = testing_tmpdir();
}

static int dir_open(struct place *place, struct backend **out, struct cairn_error *err)
{
    return backend_dir_open(place->root, out, err);
}

static void dir_stop(struct place *place)
{
    place->root = NULL; /* the folder goes with the process */
}

static int fault_open(struct place *place, struct backend **out, struct cairn_error *err)
{
    struct backend *inner;
    int rc = dir_open(place, &inner, err);
    if (rc)
        return rc;
    rc = backend_fault_new(inner, out, err);
    if (rc)
        backend_free(inner);
    return rc;
}

static void mem_start(struct place *place)
{
    struct cairn_error err;
    ck_ok(backend_mem_new(&place->shared, &err));
}

static int mem_open(struct place *place, struct backend **out, struct cairn_error *err)
{
    return backend_mem_share(place->shared, out, err);
}

static void mem_stop(struct place *place)
{
    ck_assert_uint_eq(backend_mem_uploads(place->shared), 0);
    backend_free(place->shared);
}

static const struct factory factories[] = {
    {.name = "dir",
     .locks = true,
     .stages = true,
     .files = true,
     .start = dir_start,
     .open = dir_open,
     .stop = dir_stop},
    {.name = "fault",
     .locks = true,
     .stages = true,
     .files = true,
     .start = dir_start,
     .open = fault_open,
     .stop = dir_stop},
    {.name = "mem", .etags = true, .start = mem_start, .open = mem_open, .stop = mem_stop},
};

static const struct factory *const buckets[] = {&factory_s3_v4, &factory_s3_v2, &factory_rgw_v4,
                                                &factory_rgw_v2};

void place_start(struct place *place)
{
    const char *name = getenv("CAIRN_TEST_BACKEND");
    *place = (struct place){.factory = NULL};
    for (size_t i = 0; i < sizeof(factories) / sizeof(factories[0]); i++)
        if (strcmp(factories[i].name, name && *name ? name : "dir") == 0)
            place->factory = &factories[i];
    for (size_t i = 0; i < sizeof(buckets) / sizeof(buckets[0]); i++)
        if (name && strcmp(buckets[i]->name, name) == 0)
            place->factory = buckets[i];
    ck_assert_msg(place->factory != NULL, "CAIRN_TEST_BACKEND=%s is not known", name);
    place->factory->start(place);
}

struct backend *place_open(struct place *place)
{
    struct cairn_error err;
    struct backend *b = NULL;
    ck_ok(place->factory->open(place, &b, &err));
    return b;
}

void place_stop(struct place *place)
{
    place->factory->stop(place);
}

struct place test_place;
struct backend *test_backend;

void contract_start(void)
{
    place_start(&test_place);
    test_backend = place_open(&test_place);
}

void contract_stop(void)
{
    backend_free(test_backend);
    place_stop(&test_place);
}

void put_text(const char *key, const char *text)
{
    struct cairn_error err;
    ck_ok(test_backend->ops->put(test_backend, NULL, key, text, strlen(text), &err));
}

const char *get_text(const char *key)
{
    return objects_text(test_backend, key);
}

const char *keys_of(const char *prefix, const char *after)
{
    return objects_keys(test_backend, prefix, after);
}

bool is_there(const char *key)
{
    struct cairn_error err;
    bool there = false;
    ck_ok(backend_exists(test_backend, NULL, key, &there, &err));
    return there;
}
