/* What a listing of records costs in a bucket: requests are counted where they arrive. */
#include "base/util.h"
#include "store/store.h"
#include "tests/s3/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS 120u

static struct cairn_error err;
static struct cairn_store *s;
static const char *top;
static enum s3_signature signature;

static void open_store(const char *name)
{
    struct s3_config c = store_config();
    struct backend *b = NULL;
    char state[300];
    c.signature = signature;
    snprintf(state, sizeof(state), "%.200s/%s", top, name);
    ck_ok(backend_s3_open(&c, &b, &err));
    struct cairn_config config = {.state = state};
    s = NULL;
    ck_ok(store_new(b, &config, NULL, &s, &err));
}

static void id_of(unsigned i, char id[40])
{
    snprintf(id, 40, "ck_%016x", i);
}

static void start(int v)
{
    top = testing_tmpdir();
    signature = (enum s3_signature)v;
    server_start();
    struct s3_config c = store_config();
    c.signature = signature;
    struct backend *b = NULL;
    ck_ok(backend_s3_open(&c, &b, &err));
    ck_ok(store_format_init(b, NULL, NULL, &err));
    backend_free(b);
    open_store("maker");
    char folder[300], path[320], id[40], gen[CAIRN_GEN_TEXT];
    snprintf(folder, sizeof(folder), "%.200s/export", top);
    snprintf(path, sizeof(path), "%s/memory", folder);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    write_file(path, "some bytes");
    struct cairn_publish_options o = {.from = folder};
    struct cairn_publish_result r;
    id_of(0, id);
    ck_ok(cairn_publish(s, NULL, id, &o, &r, &err));
    for (unsigned i = 1; i < RECORDS; i++) {
        char new_id[40];
        id_of(i, new_id);
        ck_ok(cairn_fork(s, NULL, id, new_id, NULL, 0, gen, &err));
    }
    cairn_close(s);
    open_store("lister");
}

static void stop(void)
{
    cairn_close(s);
    s3fs_stop(fs);
    fs = NULL;
}

static unsigned seen, bad;

static int see(void *ctx, const struct cairn_list_entry *e)
{
    char id[40];
    (void)ctx;
    if (!bad) {
        id_of(seen, id);
        ck_assert_str_eq(e->id, id);
    }
    bad += e->error_class != 0;
    if (!e->error_class) {
        ck_assert_uint_eq(e->files, 1);
        ck_assert_uint_eq(e->logical_bytes, 10);
        ck_assert(gen_is_valid(e->gen));
    }
    seen++;
    return 0;
}

static struct s3fs_stats list(uint64_t limit)
{
    struct cairn_list_options o = {.limit = limit};
    s3fs_reset_stats(fs);
    seen = bad = 0;
    ck_ok(cairn_list(s, NULL, &o, see, NULL, &err));
    return stats();
}

/* Two reads of each record that is not known, none of one that is; and the pages of two listings:
 * of records/ and of holds/. */
START_TEST(test_s3_list__only_what_is_not_known_is_read)
{
    for (int v = S3_SIGNATURE_V4; v <= S3_SIGNATURE_V2; v++) {
        start(v);
        s3fs_page_size(fs, 100);
        const unsigned pages = (2 * RECORDS + 99) / 100 + 1;
        struct s3fs_stats st = list(0);
        ck_assert_uint_eq(seen, RECORDS);
        ck_assert_uint_eq(bad, 0);
        ck_assert_uint_eq(st.list, pages);
        ck_assert_uint_eq(st.get, 2 * RECORDS);
        ck_assert_uint_eq(st.requests, st.list + st.get);
        st = list(0);
        ck_assert_uint_eq(seen, RECORDS);
        ck_assert_uint_eq(st.requests, pages);
        /* Nor by the next process. */
        cairn_close(s);
        open_store("lister");
        st = list(0);
        ck_assert_uint_eq(seen, RECORDS);
        ck_assert_uint_eq(st.requests, pages);
        /* One more. */
        char id[40], new_id[40], gen[CAIRN_GEN_TEXT];
        id_of(0, id);
        id_of(RECORDS, new_id);
        ck_ok(cairn_fork(s, NULL, id, new_id, NULL, 0, gen, &err));
        st = list(0);
        ck_assert_uint_eq(seen, RECORDS + 1);
        ck_assert_uint_eq(st.get, 2);
        stop();
    }
}
END_TEST

START_TEST(test_s3_list__a_page_reads_its_own_records_at_once)
{
    start(S3_SIGNATURE_V4);
    struct s3fs_stats st = list(40);
    ck_assert_uint_eq(seen, 40);
    ck_assert_uint_eq(st.get, 80);
    ck_assert_uint_gt(st.connections, 1);
    st = list(0);
    ck_assert_uint_eq(seen, RECORDS);
    ck_assert_uint_eq(st.get, 2 * (RECORDS - 40));
    stop();
}
END_TEST

START_TEST(test_s3_list__one_that_cannot_be_read_keeps_no_other)
{
    start(S3_SIGNATURE_V4);
    rule("GET key=ck_0000000000000007/meta do status=403 code=AccessDenied");
    list(0);
    ck_assert_uint_eq(seen, RECORDS);
    ck_assert_uint_eq(bad, 1);
    s3fs_clear(fs);
    struct s3fs_stats st = list(0);
    ck_assert_uint_eq(bad, 0);
    ck_assert_uint_eq(st.get, 2);
    stop();
}
END_TEST

/* The caller goes while many reads hang: none is waited for longer than that takes. */
START_TEST(test_s3_list__a_caller_may_leave)
{
    start(S3_SIGNATURE_V4);
    rule("GET do hole");
    struct cairn_op op;
    int64_t before = clock_monotonic();
    cairn_op_init(&op, 0.3, NULL);
    ck_fails(cairn_list(s, &op, NULL, see, NULL, &err), CAIRN_TIMEOUT);
    ck_assert_int_lt(clock_monotonic() - before, 10 * NS_PER_S);
    s3fs_clear(fs);
    list(0);
    ck_assert_uint_eq(seen, RECORDS);
    ck_assert_uint_eq(bad, 0);
    stop();
}
END_TEST

TESTING_MAIN(s3_list, test_s3_list__only_what_is_not_known_is_read,
             test_s3_list__a_page_reads_its_own_records_at_once,
             test_s3_list__one_that_cannot_be_read_keeps_no_other, test_s3_list__a_caller_may_leave)
