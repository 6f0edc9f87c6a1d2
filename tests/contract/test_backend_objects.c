/* The contract of store/backend.h, one object at a time: get, read, stat, put, remove, open_fd. */
#include "base/util.h"
#include "tests/contract/factory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define KEY "records/" ID_A "/export-" GEN1

CONTRACT_TEST(test_backend_objects__get_returns_what_put_took)
{
    static const size_t sizes[] = {0, 1, 4096, 65537, (3 << 20) + 7};
    struct cairn_error err;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        CLEANUP_FREE uint8_t *data = malloc(sizes[i] + 1);
        testing_fill(data, sizes[i], i);
        ck_ok(test_backend->ops->put(test_backend, NULL, KEY, data, sizes[i], &err));
        CLEANUP_BUF struct buf out = BUF_INIT(8 << 20);
        ck_ok(buf_add(&out, "before", 6, &err));
        struct backend_stat st, again;
        ck_ok(test_backend->ops->get(test_backend, NULL, KEY, sizes[i], &out, &st, &err));
        ck_assert_uint_eq(out.len, sizes[i] + 6);
        ck_assert_mem_eq(out.data, "before", 6);
        if (sizes[i])
            ck_assert_mem_eq(out.data + 6, data, sizes[i]);
        ck_assert_uint_eq(st.size, sizes[i]);
        ck_ok(test_backend->ops->stat(test_backend, NULL, KEY, &again, &err));
        ck_assert_uint_eq(again.size, sizes[i]);
        ck_assert_int_eq(again.mtime_ns, st.mtime_ns);
        ck_assert_str_eq(again.etag, st.etag);
    }
}

CONTRACT_TEST(test_backend_objects__put_replaces_and_changes_the_etag)
{
    struct cairn_error err;
    struct backend_stat one, two;
    put_text(KEY, "the longer text of the first");
    ck_ok(test_backend->ops->stat(test_backend, NULL, KEY, &one, &err));
    put_text(KEY, "short");
    ck_ok(test_backend->ops->stat(test_backend, NULL, KEY, &two, &err));
    ck_assert_str_eq(get_text(KEY), "short");
    ck_assert_uint_eq(two.size, 5);
    ck_assert_int_ge(two.mtime_ns, one.mtime_ns);
    if (test_place.factory->etags)
        ck_assert_str_ne(one.etag, two.etag);
    else
        ck_assert_str_eq(two.etag, "");
}

CONTRACT_TEST(test_backend_objects__absent_is_not_found_and_named)
{
    struct cairn_error err;
    CLEANUP_BUF struct buf out = BUF_INIT(100);
    struct backend_stat st;
    char bytes[4];
    int fd;
    /* Nothing at all; then a neighbour; then a key that only begins others. */
    for (int round = 0; round < 3; round++) {
        const char *key = round < 2 ? KEY : "records/" ID_A;
        if (round)
            put_text("records/" ID_A "/meta.json", "{}");
        ck_fails(test_backend->ops->get(test_backend, NULL, key, 100, &out, &st, &err),
                 CAIRN_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(err.message, key));
        ck_assert_uint_eq(out.len, 0);
        ck_fails(test_backend->ops->read(test_backend, NULL, key, 0, bytes, 4, &err),
                 CAIRN_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(err.message, key));
        ck_fails(test_backend->ops->stat(test_backend, NULL, key, &st, &err), CAIRN_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(err.message, key));
        if (test_place.factory->files)
            ck_fails(test_backend->ops->open_fd(test_backend, NULL, key, &fd, &err),
                     CAIRN_NOT_FOUND);
        ck_assert(!is_there(key));
    }
    /* Beneath an object there is nothing. */
    ck_fails(test_backend->ops->stat(test_backend, NULL, "records/" ID_A "/meta.json/x", &st, &err),
             CAIRN_NOT_FOUND);
}

CONTRACT_TEST(test_backend_objects__more_than_max_is_corrupt)
{
    struct cairn_error err;
    CLEANUP_BUF struct buf out = BUF_INIT(100);
    put_text(KEY, "12345");
    ck_fails(test_backend->ops->get(test_backend, NULL, KEY, 4, &out, NULL, &err), CAIRN_CORRUPT);
    ck_assert_uint_eq(out.len, 0);
    ck_ok(test_backend->ops->get(test_backend, NULL, KEY, 5, &out, NULL, &err));
    ck_assert_uint_eq(out.len, 5);
}

CONTRACT_TEST(test_backend_objects__read_is_exact_or_fails)
{
    struct cairn_error err;
    size_t size = (2 << 20) + 100;
    CLEANUP_FREE uint8_t *data = malloc(size), *got = malloc(size);
    testing_fill(data, size, 1);
    ck_ok(test_backend->ops->put(test_backend, NULL, KEY, data, size, &err));
    uint64_t seed = 1;
    for (int i = 0; i < 50; i++) {
        uint64_t off = testing_random(&seed) % size;
        size_t len = testing_random(&seed) % (size - off) + 1;
        ck_ok(test_backend->ops->read(test_backend, NULL, KEY, off, got, len, &err));
        ck_assert(memcmp(got, data + off, len) == 0);
    }
    ck_ok(test_backend->ops->read(test_backend, NULL, KEY, 0, got, size, &err));
    ck_assert(memcmp(got, data, size) == 0);
    ck_ok(test_backend->ops->read(test_backend, NULL, KEY, size, got, 0, &err));
    ck_fails(test_backend->ops->read(test_backend, NULL, KEY, size, got, 1, &err), CAIRN_CORRUPT);
    ck_fails(test_backend->ops->read(test_backend, NULL, KEY, size - 4, got, 5, &err),
             CAIRN_CORRUPT);
    ck_fails(test_backend->ops->read(test_backend, NULL, KEY, UINT64_MAX - 1, got, 8, &err),
             CAIRN_CORRUPT);
}

CONTRACT_TEST(test_backend_objects__remove_takes_absent_keys_for_success)
{
    struct cairn_error err;
    put_text("gc/closed/a", "1");
    put_text("gc/closed/ab", "2");
    put_text("packs/aa/x", "3");
    put_text("packs/ab/x", "4");
    const char *keys[] = {
        "packs/ab/x",  "gc/closed/a", "packs/zz/absent", "gc/closed/none", "packs/aa/x",
        "none/at/all", "gc",          "gc/closed/a/x",   "gc/closed/a"};
    bool failed[ARRAY_SIZE(keys)];
    memset(failed, 1, sizeof(failed));
    ck_ok(test_backend->ops->remove(test_backend, NULL, keys, ARRAY_SIZE(keys), failed, &err));
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        ck_assert(!failed[i]);
    ck_assert_str_eq(keys_of("", ""), "gc/closed/ab");
    ck_ok(test_backend->ops->remove(test_backend, NULL, keys, ARRAY_SIZE(keys), NULL, &err));
    ck_ok(test_backend->ops->remove(test_backend, NULL, keys, 0, NULL, &err));
    ck_assert_str_eq(get_text("gc/closed/ab"), "2");
    ck_ok(backend_remove_one(test_backend, NULL, "gc/closed/ab", &err));
    ck_assert_str_eq(keys_of("", ""), "");
}

CONTRACT_TEST(test_backend_objects__remove_tries_every_key_and_flags_the_failed)
{
    struct cairn_error err;
    put_text("a/1", "x");
    put_text("b/1", "x");
    /* An empty key is refused everywhere. */
    const char *keys[] = {"a/1", "", "b/1", ""};
    bool failed[4] = {true, false, true, false};
    ck_fails(test_backend->ops->remove(test_backend, NULL, keys, 4, failed, &err), CAIRN_INVALID);
    ck_assert(!failed[0] && failed[1] && !failed[2] && failed[3]);
    ck_assert_ptr_nonnull(strstr(err.message, "2 of 4"));
    ck_assert_str_eq(keys_of("", ""), "");
}

CONTRACT_TEST(test_backend_objects__odd_keys_are_kept_as_they_are)
{
    const char *const keys[] = {
        test_place.factory->no_spaces ? "pins/n_1/a+b%2F~(1)*=&;:@,?#"
                                      : "pins/n 1/a+b%2F~(1)*=&;:@,?#",
        "pins/n\xc3\xa9\xcc\x81/\xe2\x82\xac",
        "pins/...hidden/.x",
        "pins/a\\b/'\"<>|`$",
    };
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        put_text(keys[i], keys[i]);
        ck_assert_str_eq(get_text(keys[i]), keys[i]);
        ck_assert_str_eq(keys_of(keys[i], ""), keys[i]);
    }
    struct cairn_error err;
    ck_ok(test_backend->ops->remove(test_backend, NULL, keys, ARRAY_SIZE(keys), NULL, &err));
    ck_assert_str_eq(keys_of("", ""), "");
}

CONTRACT_TEST(test_backend_objects__open_fd_reads_and_cannot_write)
{
    if (!test_place.factory->files) {
        ck_assert_ptr_null(test_backend->ops->open_fd);
        return;
    }
    struct cairn_error err;
    CLEANUP_FD int fd = -1;
    char bytes[8];
    put_text(KEY, "content");
    ck_ok(test_backend->ops->open_fd(test_backend, NULL, KEY, &fd, &err));
    put_text(KEY, "another");
    ck_ok(backend_remove_one(test_backend, NULL, KEY, &err));
    /* What was opened stays what it was. */
    ck_assert_int_eq(util_pread_full(fd, bytes, sizeof(bytes), 0), 7);
    ck_assert_mem_eq(bytes, "content", 7);
    ck_assert_int_eq(write(fd, "x", 1), -1);
    ck_assert_int_eq(errno, EBADF);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
}

CONTRACT_TEST(test_backend_objects__space_is_told)
{
    struct cairn_error err;
    uint64_t avail = 0, total = 0;
    ck_ok(test_backend->ops->space(test_backend, &avail, &total, &err));
    ck_assert_uint_gt(total, 0);
    ck_assert_uint_le(avail, total);
}

CONTRACT_TEST(test_backend_objects__a_second_backend_sees_it_at_once)
{
    struct backend *other = place_open(&test_place);
    struct cairn_error err;
    struct backend_stat st;
    put_text(KEY, "1");
    ck_ok(other->ops->stat(other, NULL, KEY, &st, &err));
    ck_ok(backend_remove_one(other, NULL, KEY, &err));
    ck_assert(!is_there(KEY));
    backend_free(other);
}

TESTING_MAIN(backend_objects, test_backend_objects__get_returns_what_put_took,
             test_backend_objects__put_replaces_and_changes_the_etag,
             test_backend_objects__absent_is_not_found_and_named,
             test_backend_objects__more_than_max_is_corrupt,
             test_backend_objects__read_is_exact_or_fails,
             test_backend_objects__remove_takes_absent_keys_for_success,
             test_backend_objects__remove_tries_every_key_and_flags_the_failed,
             test_backend_objects__odd_keys_are_kept_as_they_are,
             test_backend_objects__open_fd_reads_and_cannot_write,
             test_backend_objects__space_is_told,
             test_backend_objects__a_second_backend_sees_it_at_once)
