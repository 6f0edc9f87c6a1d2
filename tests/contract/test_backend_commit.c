/* The contract of store/backend.h on uploads, the two halves of a commit, and locks. */
#include "base/util.h"
#include "tests/contract/factory.h"

#include <errno.h>
#include <string.h>

#define PACK   "packs/ab/ab000000000000000000000000000000"
#define META_A "records/" ID_A "/meta.json"

static const struct backend_ops *ops(void)
{
    return test_backend->ops;
}

static struct backend_upload *upload_new(void)
{
    struct cairn_error err;
    struct backend_upload *up = NULL;
    ck_ok(ops()->upload_new(test_backend, NULL, &up, &err));
    return up;
}

CONTRACT_TEST(test_backend_commit__an_upload_appears_whole_at_its_commit)
{
    struct cairn_error err;
    size_t size = 3 << 20;
    CLEANUP_FREE uint8_t *data = calloc(1, size), *got = malloc(size);
    testing_fill(data, 1 << 20, 1);
    testing_fill(data + (2 << 20), 1 << 20, 2);
    struct backend_upload *up = upload_new();
    ck_assert_int_eq(util_pwrite_full(up->fd, data + (2 << 20), 1 << 20, 2 << 20), 1 << 20);
    ck_assert_int_eq(util_pwrite_full(up->fd, data, 1 << 20, 0), 1 << 20);
    ck_assert(!is_there(PACK));
    ck_assert_str_eq(keys_of(LAYOUT_PACKS, ""), "");
    ck_ok(ops()->upload_commit(up, NULL, PACK, size, &err));
    ck_ok(ops()->read(test_backend, NULL, PACK, 0, got, size, &err));
    ck_assert(memcmp(got, data, size) == 0);
    ck_assert_str_eq(keys_of("", ""), PACK);
}

CONTRACT_TEST(test_backend_commit__an_upload_has_the_size_of_its_commit)
{
    struct cairn_error err;
    struct backend_upload *up = upload_new();
    ck_assert_int_eq(util_pwrite_full(up->fd, "0123456789", 10, 0), 10);
    ck_ok(ops()->upload_commit(up, NULL, PACK, 4, &err));
    ck_assert_str_eq(get_text(PACK), "0123");
    ck_ok(ops()->upload_commit(upload_new(), NULL, "packs/00/empty", 0, &err));
    ck_assert_str_eq(get_text("packs/00/empty"), "");
    /* Fewer bytes than promised never become an object. */
    up = upload_new();
    ck_assert_int_eq(util_pwrite_full(up->fd, "0123456789", 10, 0), 10);
    ck_fails(ops()->upload_commit(up, NULL, "packs/00/short", 11, &err), CAIRN_INTERNAL);
    ck_assert_str_eq(keys_of("", ""), "packs/00/empty " PACK);
}

CONTRACT_TEST(test_backend_commit__an_abort_leaves_nothing)
{
    struct backend_upload *up = upload_new();
    ck_assert_int_eq(util_pwrite_full(up->fd, "0123456789", 10, 0), 10);
    ops()->upload_abort(up);
    ck_assert_str_eq(keys_of("", ""), "");
}

CONTRACT_TEST(test_backend_commit__a_staged_meta_is_not_visible_and_leaves_nothing)
{
    struct cairn_error err;
    ck_ok(ops()->stage(test_backend, NULL, ID_A, GEN1, "{1}", 3, &err));
    ck_assert(!is_there(META_A));
    ck_ok(ops()->stage(test_backend, NULL, ID_A, GEN1, "{1}", 3, &err));
    ck_ok(ops()->commit(test_backend, NULL, ID_A, GEN1, "{1}", 3, true, &err));
    ck_assert_str_eq(get_text(META_A), "{1}");
    ck_assert_str_eq(keys_of("", ""), META_A);
    ops()->unstage(test_backend, ID_A, GEN1);
    ck_ok(ops()->stage(test_backend, NULL, ID_A, GEN2, "{22}", 4, &err));
    ck_assert_str_eq(get_text(META_A), "{1}");
    ck_ok(ops()->commit(test_backend, NULL, ID_A, GEN2, "{22}", 4, false, &err));
    ck_assert_str_eq(get_text(META_A), "{22}");
    ck_assert_str_eq(keys_of("", ""), META_A);
}

CONTRACT_TEST(test_backend_commit__once_is_once)
{
    struct cairn_error err;
    ck_ok(ops()->stage(test_backend, NULL, ID_A, GEN1, "{1}", 3, &err));
    ck_ok(ops()->commit(test_backend, NULL, ID_A, GEN1, "{1}", 3, true, &err));
    ck_ok(ops()->stage(test_backend, NULL, ID_A, GEN2, "{2}", 3, &err));
    ck_fails(ops()->commit(test_backend, NULL, ID_A, GEN2, "{2}", 3, true, &err), CAIRN_BUSY);
    ck_assert_int_ne(err.sys_errno, ENOENT);
    ops()->unstage(test_backend, ID_A, GEN2);
    ck_assert_str_eq(get_text(META_A), "{1}");
    ck_assert_str_eq(keys_of("", ""), META_A);
}

CONTRACT_TEST(test_backend_commit__a_writer_whose_staged_meta_is_gone_is_fenced)
{
    struct cairn_error err;
    char staged[KEY_MAX];
    layout_staged(ID_A, GEN1, staged);
    if (!test_place.factory->stages) {
        ck_ok(ops()->stage(test_backend, NULL, ID_A, GEN1, "{1}", 3, &err));
        ck_assert_str_eq(keys_of("", ""), "");
        return;
    }
    for (int once = 0; once < 2; once++) {
        ck_ok(ops()->stage(test_backend, NULL, ID_A, GEN1, "{1}", 3, &err));
        ck_assert_str_eq(get_text(staged), "{1}");
        ck_ok(backend_remove_one(test_backend, NULL, staged, &err));
        ck_fails(ops()->commit(test_backend, NULL, ID_A, GEN1, "{1}", 3, once, &err), CAIRN_BUSY);
        ck_assert_int_eq(err.sys_errno, ENOENT);
        ck_assert_str_eq(keys_of("", ""), "");
    }
    ck_ok(ops()->stage(test_backend, NULL, ID_A, GEN1, "{1}", 3, &err));
    ops()->unstage(test_backend, ID_A, GEN1);
    ops()->unstage(test_backend, ID_A, GEN1);
    ops()->unstage(test_backend, ID_B, GEN1);
    ck_fails(ops()->commit(test_backend, NULL, ID_A, GEN1, "{1}", 3, false, &err), CAIRN_BUSY);
    ck_assert_int_eq(err.sys_errno, ENOENT);
    /* Nothing was ever staged here, nor is there a folder for it. */
    ck_fails(ops()->commit(test_backend, NULL, ID_B, GEN1, "{1}", 3, true, &err), CAIRN_BUSY);
    ck_assert_int_eq(err.sys_errno, ENOENT);
}

CONTRACT_TEST(test_backend_commit__a_lock_excludes_until_it_is_given_back)
{
    struct cairn_error err;
    struct backend *other = place_open(&test_place);
    int one = -2, two = -2, three = -2;
    ck_ok(ops()->lock(test_backend, NULL, ID_A, &one, &err));
    ck_ok(ops()->lock(test_backend, NULL, ID_B, &two, &err));
    if (test_place.factory->locks) {
        ck_assert_int_ge(one, 0);
        ck_fails(other->ops->lock(other, NULL, ID_A, &three, &err), CAIRN_BUSY);
        ck_fails(ops()->lock(test_backend, NULL, ID_A, &three, &err), CAIRN_BUSY);
    } else {
        ck_assert_int_eq(one, -1);
    }
    ops()->unlock(test_backend, ID_A, one);
    ck_ok(other->ops->lock(other, NULL, ID_A, &three, &err));
    put_text(META_A, "{1}");
    other->ops->unlock(other, ID_A, three);
    ops()->unlock(test_backend, ID_B, two);
    ck_assert_str_eq(get_text(META_A), "{1}");
    ck_ok(ops()->lock(test_backend, NULL, ID_A, &one, &err));
    ops()->unlock(test_backend, ID_A, one);
    ck_assert_str_eq(keys_of("", ""), META_A);
    backend_free(other);
}

TESTING_MAIN(backend_commit, test_backend_commit__an_upload_appears_whole_at_its_commit,
             test_backend_commit__an_upload_has_the_size_of_its_commit,
             test_backend_commit__an_abort_leaves_nothing,
             test_backend_commit__a_staged_meta_is_not_visible_and_leaves_nothing,
             test_backend_commit__once_is_once,
             test_backend_commit__a_writer_whose_staged_meta_is_gone_is_fenced,
             test_backend_commit__a_lock_excludes_until_it_is_given_back)
