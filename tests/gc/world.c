#include "tests/gc/world.h"

#include "base/util.h"
#include "store/listing.h"
#include "tests/lib/objects.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A folder of its own for each store of a test. */
static void make_root(struct world *w)
{
    static const char *base;
    static unsigned n;
    if (!base)
        base = testing_tmpdir();
    snprintf(w->root, sizeof(w->root), "%s/%u", base, n++);
    ck_assert_int_eq(mkdir(w->root, 0700), 0);
}

static void init(struct world *w, struct backend *inner)
{
    struct cairn_error err;
    char state[300];
    snprintf(state, sizeof(state), "%s/state", w->root);
    w->inner = inner;
    ck_ok(backend_fault_new(inner, &w->b, &err));
    struct cairn_init_options options = {.chunk_size = 4096};
    ck_ok(store_format_init(w->b, &options, NULL, &err));
    struct cairn_config config = {.state = state, .workers = 1};
    ck_ok(store_new(w->b, &config, NULL, &w->s, &err));
    cairn_gc_config_init(&w->config);
    backend_fault_clear(w->b);
}

static bool in_bucket(void)
{
    const char *kind = getenv("CAIRN_TEST_BACKEND");
    return kind && *kind;
}

unsigned world_stride(unsigned bucket)
{
    return in_bucket() ? bucket : 1;
}

static void init_bucket(struct world *w)
{
    struct cairn_error err;
    struct backend *clock;
    w->bucket = true;
    place_start(&w->place);
    ck_ok(backend_clock_new(place_open(&w->place), &clock, &err));
    init(w, clock);
}

void world_init_mem(struct world *w)
{
    struct cairn_error err;
    struct backend *mem;
    *w = (struct world){0};
    make_root(w);
    if (in_bucket()) {
        init_bucket(w);
        return;
    }
    ck_ok(backend_mem_new(&mem, &err));
    init(w, mem);
}

void world_init_now(struct world *w)
{
    if (!in_bucket()) {
        world_init_dir(w);
        return;
    }
    *w = (struct world){0};
    make_root(w);
    init_bucket(w);
    w->config = (struct cairn_gc_config){0};
}

void world_init_dir(struct world *w)
{
    struct cairn_error err;
    struct backend *dir;
    char path[300];
    *w = (struct world){.dir = true};
    make_root(w);
    snprintf(path, sizeof(path), "%s/store", w->root);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_ok(backend_dir_open(path, &dir, &err));
    init(w, dir);
    w->config = (struct cairn_gc_config){0};
}

void world_release(struct world *w)
{
    cairn_close(w->s);
    if (w->bucket)
        place_stop(&w->place);
}

void world_advance(struct world *w, int64_t ns)
{
    if (w->bucket)
        backend_clock_advance(w->inner, ns);
    else
        backend_mem_advance(w->inner, ns);
}

/* ---- Records ---- */

static void fill_file(const char *folder, const char *name, uint64_t seed, size_t n)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    uint8_t *data = malloc(n ? n : 1);
    ck_assert_ptr_nonnull(data);
    testing_fill(data, n, seed);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(util_pwrite_full(fd, data, n, 0), (ssize_t)n);
    free(data);
}

static int publish(struct world *w, const char *id, const char *meta, struct cairn_error *err)
{
    char folder[300];
    snprintf(folder, sizeof(folder), "%s/export", w->root);
    meta = meta ? meta : "meta";
    struct cairn_publish_options options = {.from = folder, .meta = meta, .meta_len = strlen(meta)};
    struct cairn_publish_result result;
    return cairn_publish(w->s, NULL, id, &options, &result, err);
}

static void make_export(struct world *w, uint64_t seed1, size_t n1, uint64_t seed2, size_t n2)
{
    char folder[300], second[320];
    snprintf(folder, sizeof(folder), "%s/export", w->root);
    (void)mkdir(folder, 0700);
    snprintf(second, sizeof(second), "%s/g", folder);
    (void)unlink(second);
    fill_file(folder, "f", seed1, n1);
    if (n2)
        fill_file(folder, "g", seed2, n2);
}

int world_try_publish(struct world *w, const char *id, const char *meta, uint64_t seed, size_t n,
                      struct cairn_error *err)
{
    make_export(w, seed, n, 0, 0);
    return publish(w, id, meta, err);
}

void world_publish(struct world *w, const char *id, const char *meta, uint64_t seed, size_t n)
{
    struct cairn_error err;
    ck_ok(world_try_publish(w, id, meta, seed, n, &err));
}

void world_publish_two(struct world *w, const char *id, const char *meta, uint64_t seed1, size_t n1,
                       uint64_t seed2, size_t n2)
{
    struct cairn_error err;
    make_export(w, seed1, n1, seed2, n2);
    ck_ok(publish(w, id, meta, &err));
}

void world_gen(const char *meta, char gen[GEN_TEXT])
{
    struct cairn_error err;
    ck_ok(gen_of_meta(meta, strlen(meta), gen, &err));
}

void world_delete(struct world *w, const char *id)
{
    struct cairn_error err;
    ck_ok(cairn_delete(w->s, NULL, id, &err));
}

void world_is(struct world *w, const char *id, uint64_t seed, size_t n)
{
    struct cairn_error err;
    struct cairn_record *r;
    uint8_t *want = malloc(n + 1), *got = malloc(n + 1);
    size_t len;
    ck_assert(want && got);
    testing_fill(want, n, seed);
    ck_ok(cairn_record_open(w->s, NULL, id, &r, &err));
    ck_ok(cairn_record_pread(r, NULL, 0, got, n + 1, 0, &len, &err));
    ck_assert_uint_eq(len, n);
    ck_assert_mem_eq(got, want, n);
    cairn_record_close(r);
    free(want);
    free(got);
}

/* ---- Sweeps ---- */

int world_try_sweep(struct world *w)
{
    w->err.message[0] = 0;
    int rc = cairn_gc(w->s, NULL, &w->config, &w->options, &w->result, &w->err);
    if (rc)
        ck_assert(w->err.message[0]);
    return rc;
}

void world_sweep(struct world *w)
{
    int rc = world_try_sweep(w);
    ck_assert_msg(rc == CAIRN_OK, "sweep: %s: %s", cairn_class_name(rc), w->err.message);
    ck_assert(!w->result.aborted);
}

/* ---- Objects ---- */

/* Beneath the wrapper, so that nothing counts or fails. */
size_t world_count(struct world *w, const char *prefix)
{
    return objects_count(w->inner, prefix, NULL);
}

void world_key(struct world *w, const char *prefix, size_t i, char key[KEY_MAX])
{
    ck_assert_msg(objects_nth(w->inner, prefix, i, key), "there is no object %zu under %s", i,
                  prefix);
}

bool world_has(struct world *w, const char *key)
{
    struct cairn_error err;
    bool exists;
    ck_ok(backend_exists(w->inner, NULL, key, &exists, &err));
    return exists;
}

void world_damage(struct world *w, const char *key, uint64_t off, uint8_t mask)
{
    struct cairn_error err;
    if (w->bucket)
        ck_ok(backend_clock_damage(w->inner, key, off, mask, &err));
    else
        ck_assert(backend_mem_damage(w->inner, key, off, mask));
}

void world_put(struct world *w, const char *key, const void *data, size_t len)
{
    struct cairn_error err;
    ck_ok(w->inner->ops->put(w->inner, NULL, key, data, len, &err));
}

char *world_picture(struct world *w)
{
    struct cairn_error err;
    struct buf text = BUF_INIT(1 << 20);
    CLEANUP_LISTING struct listing l;
    int rc = listing_open(&l, w->inner, NULL, "", "", &err);
    while (listing_next(&l, &rc, &err))
        if (l.key.kind != LAYOUT_KIND_CLOCK)
            rc = buf_addf(&text, &err, "%s %llu %lld\n", l.entry.key,
                          (unsigned long long)l.entry.stat.size, (long long)l.entry.stat.mtime_ns);
    ck_ok(rc);
    ck_ok(buf_add(&text, "", 1, &err));
    return (char *)text.data;
}

void world_pack_id(struct world *w, size_t i, uint8_t id[PACK_ID_LEN])
{
    char key[KEY_MAX];
    struct layout_key k;
    world_key(w, LAYOUT_PACKS, i, key);
    layout_parse(key, &k);
    ck_assert_int_eq(k.kind, LAYOUT_KIND_PACK);
    memcpy(id, k.pack, PACK_ID_LEN);
}

static void found(void *ctx, int error_class, const char *object, const char *message)
{
    (void)ctx;
    ck_assert_msg(false, "verify: %s %s: %s", cairn_class_name(error_class), object, message);
}

void world_verify(struct world *w)
{
    struct cairn_error err;
    struct cairn_verify_options options = {.found = found};
    struct cairn_verify_result result;
    ck_ok(cairn_verify(w->s, NULL, &options, &result, &err));
    ck_assert_uint_eq(result.errors, 0);
}

/* Locks, staged metas, temporary files, and rewriting a file behind the store's back. */
static const char *const of_a_directory[] = {
    "test_gc_generations__a_directory_needs_no_announcement",
    "test_gc_generations__a_locked_record_is_left_to_the_next_sweep",
    "test_gc_generations__an_old_writer_is_fenced_before_its_manifest_goes",
    "test_gc_generations__staged_metas_and_temporary_files_of_the_dead_go",
    "test_gc_memory__on_a_directory_the_trailer_is_compared",
};

int world_main(const char *suite, const TTest **tests, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool fits = true;
        for (size_t k = 0; in_bucket() && k < ARRAY_SIZE(of_a_directory); k++)
            fits = fits && strcmp(tests[i]->name, of_a_directory[k]) != 0;
        if (fits)
            tests[kept++] = tests[i];
    }
    return testing_run(suite, tests, kept);
}
