/* The fault wrapper and the memory backend must themselves be right, or what they prove is not. */
#include "base/clock.h"
#include "base/util.h"
#include "tests/lib/backend_fault.h"
#include "tests/lib/backend_mem.h"
#include "tests/lib/objects.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

static struct backend *mem, *b;
static struct cairn_error err;

static void open_store(void)
{
    ck_ok(backend_mem_new(&mem, &err));
    ck_ok(backend_fault_new(mem, &b, &err));
    ck_assert_ptr_eq(backend_fault_inner(b), mem);
    ck_assert_str_eq(b->ops->kind, "mem");
    ck_assert_ptr_null(b->ops->open_fd);
}

static void plan(struct fault_plan p)
{
    ck_ok(backend_fault_add(b, &p, &err));
}

static int put(const char *key, const char *text)
{
    return b->ops->put(b, NULL, key, text, strlen(text), &err);
}

static const char *text_of(const char *key)
{
    return objects_text(mem, key);
}

START_TEST(test_backend_fault__the_planned_call_fails_and_no_other)
{
    open_store();
    plan((struct fault_plan){
        .op = FAULT_PUT, .nth = 2, .times = 2, .error_class = CAIRN_PERMANENT, .sys_errno = EIO});
    ck_ok(put("a", "1"));
    ck_fails(put("a", "2"), CAIRN_PERMANENT);
    ck_assert_int_eq(err.sys_errno, EIO);
    ck_assert_ptr_nonnull(strstr(err.message, "put a"));
    ck_assert_str_eq(text_of("a"), "1");
    ck_fails(put("a", "3"), CAIRN_PERMANENT);
    ck_ok(put("a", "4"));
    ck_assert_str_eq(text_of("a"), "4");
    ck_assert_uint_eq(backend_fault_calls(b, FAULT_PUT), 4);
    ck_assert_uint_eq(backend_fault_calls(b, FAULT_GET), 0);
    ck_assert_uint_eq(backend_fault_calls(b, FAULT_ANY), 4);
    ck_assert_uint_eq(backend_fault_fired(b), 2);
    backend_fault_clear(b);
    ck_assert_uint_eq(backend_fault_calls(b, FAULT_ANY), 0);
    backend_free(b);
}
END_TEST

START_TEST(test_backend_fault__a_plan_can_ask_for_any_call_or_a_key)
{
    open_store();
    struct backend_stat st;
    struct fault_plan never = {.op = FAULT_ANY, .nth = 0};
    ck_fails(backend_fault_add(b, &never, &err), CAIRN_INVALID);
    plan((struct fault_plan){.op = FAULT_ANY, .nth = 3});
    plan((struct fault_plan){.op = FAULT_ANY,
                             .nth = 1,
                             .times = UINT_MAX,
                             .key_part = "packs/",
                             .error_class = CAIRN_NO_SPACE});
    ck_ok(put("a", "1"));
    ck_fails(put("packs/x", "1"), CAIRN_NO_SPACE);
    ck_fails(b->ops->stat(b, NULL, "a", &st, &err), CAIRN_TRANSIENT);
    ck_ok(b->ops->stat(b, NULL, "a", &st, &err));
    for (int i = 0; i < 5; i++)
        ck_fails(b->ops->stat(b, NULL, "packs/x", &st, &err), CAIRN_NO_SPACE);
    backend_free(b);
}
END_TEST

START_TEST(test_backend_fault__a_lost_answer_was_done)
{
    open_store();
    plan((struct fault_plan){.op = FAULT_ANY, .nth = 1, .times = UINT_MAX, .kind = FAULT_LOST});
    ck_fails(put("a", "1"), CAIRN_TRANSIENT);
    ck_assert_str_eq(text_of("a"), "1");
    CLEANUP_BUF struct buf out = BUF_INIT(10);
    ck_fails(b->ops->get(b, NULL, "a", 10, &out, NULL, &err), CAIRN_TRANSIENT);
    ck_assert_uint_eq(out.len, 0);
    const char *keys[] = {"a", "b"};
    bool failed[2] = {false, false};
    ck_fails(b->ops->remove(b, NULL, keys, 2, failed, &err), CAIRN_TRANSIENT);
    ck_assert(failed[0] && failed[1]);
    ck_assert_ptr_null(text_of("a"));
    ck_fails(
        b->ops->commit(b, NULL, "ck_0123456789abcdef", "0123456789abcdef", "{}", 2, true, &err),
        CAIRN_TRANSIENT);
    ck_assert_str_eq(text_of("records/ck_0123456789abcdef/meta.json"), "{}");
    backend_fault_clear(b);
    struct backend_upload *up;
    ck_ok(b->ops->upload_new(b, NULL, &up, &err));
    ck_assert_int_eq(util_pwrite_full(up->fd, "pack", 4, 0), 4);
    plan((struct fault_plan){.op = FAULT_UPLOAD_COMMIT, .nth = 1, .kind = FAULT_LOST});
    ck_fails(b->ops->upload_commit(up, NULL, "p", 4, &err), CAIRN_TRANSIENT);
    ck_assert_str_eq(text_of("p"), "pack");
    ck_assert_uint_eq(backend_mem_uploads(mem), 0);
    backend_free(b);
}
END_TEST

START_TEST(test_backend_fault__a_torn_write_leaves_a_part)
{
    open_store();
    plan((struct fault_plan){.op = FAULT_PUT, .nth = 1, .kind = FAULT_TEAR});
    plan((struct fault_plan){.op = FAULT_PUT, .nth = 2, .kind = FAULT_TEAR, .keep = 7});
    ck_fails(put("a", "0123456789"), CAIRN_TRANSIENT);
    ck_assert_str_eq(text_of("a"), "01234");
    ck_fails(put("a", "0123456789"), CAIRN_TRANSIENT);
    ck_assert_str_eq(text_of("a"), "0123456");
    struct backend_upload *up;
    ck_ok(b->ops->upload_new(b, NULL, &up, &err));
    ck_assert_int_eq(util_pwrite_full(up->fd, "pack", 4, 0), 4);
    plan((struct fault_plan){.op = FAULT_UPLOAD_COMMIT, .nth = 1, .kind = FAULT_TEAR});
    ck_fails(b->ops->upload_commit(up, NULL, "p", 4, &err), CAIRN_TRANSIENT);
    ck_assert_str_eq(text_of("p"), "pa");
    plan((struct fault_plan){.op = FAULT_REMOVE, .nth = 1, .kind = FAULT_TEAR});
    const char *keys[] = {"a", "p"};
    bool failed[2] = {false, false};
    ck_fails(b->ops->remove(b, NULL, keys, 2, failed, &err), CAIRN_TRANSIENT);
    ck_assert(!failed[0] && failed[1]);
    ck_assert_ptr_null(text_of("a"));
    ck_assert_str_eq(text_of("p"), "pa");
    backend_free(b);
}
END_TEST

START_TEST(test_backend_fault__reads_come_short_or_flipped)
{
    open_store();
    ck_ok(put("a", "01234567"));
    CLEANUP_BUF struct buf out = BUF_INIT(100);
    char bytes[8];
    plan((struct fault_plan){.op = FAULT_GET, .nth = 1, .kind = FAULT_SHORT});
    plan((struct fault_plan){.op = FAULT_GET, .nth = 2, .kind = FAULT_FLIP, .keep = 8 + 1});
    plan((struct fault_plan){.op = FAULT_READ, .nth = 1, .kind = FAULT_SHORT});
    plan((struct fault_plan){.op = FAULT_READ, .nth = 2, .kind = FAULT_FLIP});
    ck_ok(b->ops->get(b, NULL, "a", 100, &out, NULL, &err));
    ck_assert_uint_eq(out.len, 4);
    ck_ok(b->ops->get(b, NULL, "a", 100, &out, NULL, &err));
    ck_assert_uint_eq(out.len, 12);
    ck_assert_mem_eq(out.data,
                     "0123"
                     "03234567",
                     12);
    ck_fails(b->ops->read(b, NULL, "a", 0, bytes, 8, &err), CAIRN_CORRUPT);
    ck_ok(b->ops->read(b, NULL, "a", 0, bytes, 8, &err));
    ck_assert_mem_eq(bytes, "11234567", 8);
    ck_ok(b->ops->read(b, NULL, "a", 0, bytes, 8, &err));
    ck_assert_mem_eq(bytes, "01234567", 8);
    backend_free(b);
}
END_TEST

START_TEST(test_backend_fault__a_listing_breaks_where_planned)
{
    open_store();
    static const char *const keys[] = {"a", "b", "c"};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        ck_ok(put(keys[i], "1"));
    plan((struct fault_plan){.op = FAULT_ITER_NEXT, .nth = 3});
    plan((struct fault_plan){.op = FAULT_LIST, .nth = 2});
    struct backend_iter *it, *none;
    struct backend_entry e;
    ck_ok(b->ops->list(b, NULL, "", "", &it, &err));
    ck_ok(it->ops->iter_next(it, NULL, &e, &err));
    ck_ok(it->ops->iter_next(it, NULL, &e, &err));
    ck_assert_str_eq(e.key, "b");
    ck_fails(it->ops->iter_next(it, NULL, &e, &err), CAIRN_TRANSIENT);
    ck_assert_ptr_null(e.key);
    ck_ok(it->ops->iter_next(it, NULL, &e, &err));
    ck_assert_str_eq(e.key, "c");
    it->ops->iter_free(it);
    ck_fails(b->ops->list(b, NULL, "", "", &none, &err), CAIRN_TRANSIENT);
    backend_free(b);
}
END_TEST

static void *fire_soon(void *cancel)
{
    cairn_cancel_fire(cancel);
    return NULL;
}

START_TEST(test_backend_fault__a_delay_ends_with_the_op)
{
    open_store();
    ck_ok(put("a", "1"));
    plan((struct fault_plan){.op = FAULT_ANY, .nth = 1, .times = UINT_MAX, .kind = FAULT_DELAY});
    struct cairn_op op;
    int64_t start = clock_monotonic();
    cairn_op_init(&op, 0.05, NULL);
    ck_fails(b->ops->put(b, &op, "a", "2", 1, &err), CAIRN_TIMEOUT);
    ck_assert_int_ge(clock_monotonic() - start, 50000000);
    ck_fails(b->ops->put(b, NULL, "a", "2", 1, &err), CAIRN_TIMEOUT);
    struct cairn_cancel *cancel;
    pthread_t thread;
    ck_ok(cairn_cancel_new(&cancel, &err));
    cairn_op_init(&op, -1, cancel);
    ck_assert_int_eq(pthread_create(&thread, NULL, fire_soon, cancel), 0);
    ck_fails(b->ops->put(b, &op, "a", "2", 1, &err), CAIRN_CANCELLED);
    pthread_join(thread, NULL);
    cairn_cancel_free(cancel);
    ck_assert_str_eq(text_of("a"), "1");
    backend_free(b);
}
END_TEST

START_TEST(test_backend_fault__the_memory_store_has_a_clock_and_can_rot)
{
    open_store();
    struct backend_stat st;
    ck_ok(put("a", "1"));
    int64_t t0 = backend_mem_now(mem);
    ck_ok(mem->ops->stat(mem, NULL, "a", &st, &err));
    ck_assert_int_eq(st.mtime_ns, t0);
    backend_mem_advance(mem, 3600 * NS_PER_S);
    ck_ok(put("b", "12"));
    ck_ok(mem->ops->stat(mem, NULL, "b", &st, &err));
    ck_assert_int_eq(st.mtime_ns, t0 + 3600 * NS_PER_S);
    ck_assert(backend_mem_damage(mem, "b", 1, 1));
    ck_assert(!backend_mem_damage(mem, "b", 2, 1));
    ck_assert(!backend_mem_damage(mem, "c", 0, 1));
    ck_assert_str_eq(text_of("b"), "13");
    ck_assert_uint_eq(backend_mem_objects(mem), 2);
    backend_free(b);
}
END_TEST

TESTING_MAIN(backend_fault, test_backend_fault__the_planned_call_fails_and_no_other,
             test_backend_fault__a_plan_can_ask_for_any_call_or_a_key,
             test_backend_fault__a_lost_answer_was_done,
             test_backend_fault__a_torn_write_leaves_a_part,
             test_backend_fault__reads_come_short_or_flipped,
             test_backend_fault__a_listing_breaks_where_planned,
             test_backend_fault__a_delay_ends_with_the_op,
             test_backend_fault__the_memory_store_has_a_clock_and_can_rot)
