/* Traces: their form, and that nothing in them is believed. */
#include "store/trace.h"

#include "base/util.h"
#include "tests/lib/kit.h"
#include "tests/unit/trace_kit.h"

#include <stdio.h>
#include <string.h>

static struct cairn_error err;
static struct kit k;
static struct manifest *m;
static char gen[GEN_TEXT];

#define CS 65536u

/* Two files: "disk/a" of 40 chunks and some bytes, "memory" of 100 chunks. */
static void start(void)
{
    CLEANUP_BUF struct buf meta = BUF_INIT(META_MAX);
    kit_start(&k, &(struct kit_options){.mem = true, .faulty = true});
    kit_fill(&k, "one", "disk/a", 40 * CS + 7, 0, 1);
    kit_fill(&k, "one", "memory", 100 * CS, 0, 2);
    kit_fill(&k, "one", "z\xff", 10, 0, 3);
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    ck_ok(store_load(k.s, NULL, CK_A, &meta, gen, &m, &err));
}

static void end(void)
{
    manifest_free(m);
    m = NULL;
    kit_stop(&k);
}

static void add(struct trace *t, uint32_t file, uint64_t first, uint32_t count)
{
    ck_ok(trace_add(t, &(struct trace_run){first, file, count}, &err));
}

START_TEST(test_trace__runs_that_go_on_are_joined_up_to_the_bound)
{
    CLEANUP_TRACE struct trace t = {0};
    add(&t, 1, 5, 1);
    add(&t, 1, 6, 2);
    add(&t, 1, 5, 1); /* not behind the last one */
    add(&t, 0, 6, 1); /* another file */
    add(&t, 0, 7, 0);
    ck_assert_uint_eq(t.n, 3);
    is(&t, 0, 1, 5, 3);
    is(&t, 1, 1, 5, 1);
    is(&t, 2, 0, 6, 1);
    ck_assert_uint_eq(t.chunks, 5);
    add(&t, 0, 7, TRACE_CHUNKS_MAX);
    ck_assert_uint_eq(t.chunks, TRACE_CHUNKS_MAX);
    is(&t, 2, 0, 6, TRACE_CHUNKS_MAX - 4);
    add(&t, 1, 90, 1);
    ck_assert_uint_eq(t.n, 3);
}
END_TEST

START_TEST(test_trace__what_is_written_is_read_back)
{
    CLEANUP_TRACE struct trace t = {0}, back = {0};
    CLEANUP_BUF struct buf text = BUF_INIT(TRACE_MAX);
    start();
    add(&t, 1, 99, 1);
    add(&t, 2, 0, 1); /* its path is no text */
    add(&t, 0, 3, 2);
    add(&t, 1, 0, 7);
    ck_ok(trace_encode(&t, m, &text, &err));
    ck_ok(buf_add(&text, "", 1, &err));
    ck_assert_str_eq((char *)text.data,
                     "{\"files\":[\"memory\",\"disk/a\"],\"touched\":[[0,99,1],[1,3,2],[0,0,7]]}");
    ck_ok(trace_decode(text.data, text.len - 1, m, &back, &err));
    ck_assert_uint_eq(back.n, 3);
    is(&back, 0, 1, 99, 1);
    is(&back, 1, 0, 3, 2);
    is(&back, 2, 1, 0, 7);
    ck_assert_uint_eq(back.chunks, 10);
    end();
}
END_TEST

START_TEST(test_trace__it_is_an_object_of_its_generation)
{
    CLEANUP_TRACE struct trace t = {0}, back = {0};
    char key[KEY_MAX];
    start();
    ck_fails(trace_get(k.s, NULL, CK_A, gen, m, &back, &err), CAIRN_NOT_FOUND);
    add(&t, 1, 4, 4);
    ck_ok(trace_put(k.s, NULL, m, &t, &err));
    layout_trace(CK_A, gen, key);
    ck_assert(kit_has(&k, key));
    ck_ok(trace_get(k.s, NULL, CK_A, gen, m, &back, &err));
    ck_assert_uint_eq(back.n, 1);
    is(&back, 0, 1, 4, 4);
    /* The record is what it was. */
    kit_same(&k, CK_A, "one");
    kit_verify(&k);
    end();
}
END_TEST

static void reads_as(const char *text, size_t runs, uint32_t chunks)
{
    CLEANUP_TRACE struct trace t = {0};
    ck_ok(trace_decode(text, strlen(text), m, &t, &err));
    ck_assert_msg(t.n == runs && t.chunks == chunks, "%s: %zu runs, %u chunks", text, t.n,
                  t.chunks);
    for (size_t i = 0; i < t.n; i++) {
        struct manifest_file f;
        ck_assert_uint_lt(t.runs[i].file, manifest_info(m)->n_files);
        manifest_file(m, t.runs[i].file, &f);
        ck_assert_uint_le(t.runs[i].first + t.runs[i].count, (f.size + CS - 1) / CS);
    }
}

START_TEST(test_trace__what_does_not_fit_the_manifest_is_passed_over)
{
    start();
    reads_as("{\"files\":[],\"touched\":[]}", 0, 0);
    reads_as("{\"files\":[\"memory\"],\"touched\":[]}", 0, 0);
    reads_as("{\"files\":[\"other\"],\"touched\":[[0,1,2]]}", 0, 0);
    reads_as("{\"files\":[\"disk\"],\"touched\":[[0,1,2]]}", 0, 0);
    reads_as("{\"files\":[\"memory\"],\"touched\":[[0,99,1]],\"more\":{}}", 1, 1);
    reads_as("{\"files\":[\"memory\"],\"touched\":[[0,100,1]]}", 0, 0);
    reads_as("{\"files\":[\"memory\"],\"touched\":[[0,98,8000]]}", 1, 2);
    reads_as("{\"files\":[\"memory\"],\"touched\":[[0,9223372036854775807,8192]]}", 0, 0);
    reads_as("{\"files\":[\"disk/a\"],\"touched\":[[0,40,2]]}", 1, 1);
    reads_as("{\"files\":[\"x\",\"memory\"],\"touched\":[[0,5,2],[1,5,2],[1,0,1]]}", 2, 3);
    end();
}
END_TEST

START_TEST(test_trace__what_is_none_is_corrupt)
{
    static const char *const none[] = {
        "",
        "{",
        "[]",
        "null",
        "{}",
        "{\"files\":[]}",
        "{\"touched\":[]}",
        "{\"files\":{},\"touched\":[]}",
        "{\"files\":[],\"touched\":{}}",
        "{\"files\":[1],\"touched\":[]}",
        "{\"files\":[\"\"],\"touched\":[]}",
        "{\"files\":[\"/memory\"],\"touched\":[]}",
        "{\"files\":[\"a/../b\"],\"touched\":[]}",
        "{\"files\":[\"memory\"],\"touched\":[1]}",
        "{\"files\":[\"memory\"],\"touched\":[[]]}",
        "{\"files\":[\"memory\"],\"touched\":[[0,1]]}",
        "{\"files\":[\"memory\"],\"touched\":[[0,1,1,1]]}",
        "{\"files\":[\"memory\"],\"touched\":[[1,1,1]]}",
        "{\"files\":[\"memory\"],\"touched\":[[-1,1,1]]}",
        "{\"files\":[\"memory\"],\"touched\":[[0,-1,1]]}",
        "{\"files\":[\"memory\"],\"touched\":[[0,1,0]]}",
        "{\"files\":[\"memory\"],\"touched\":[[0,1,-5]]}",
        "{\"files\":[\"memory\"],\"touched\":[[0,1,8193]]}",
        "{\"files\":[\"memory\"],\"touched\":[[0,1.5,1]]}",
        "{\"files\":[\"memory\"],\"touched\":[[0,\"1\",1]]}",
        "{\"files\":[\"memory\"],\"touched\":[[0,0,8000],[0,0,8000]]}",
        "{\"files\":[\"memory\"],\"touched\":[[0,0,1]],\"touched\":[]}",
    };
    CLEANUP_TRACE struct trace t = {0};
    start();
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        for (int with = 0; with < 2; with++) {
            int rc = trace_decode(none[i], strlen(none[i]), with ? m : NULL, &t, &err);
            ck_assert_msg(rc == CAIRN_CORRUPT, "%s: %d", none[i], rc);
            ck_assert(err.message[0]);
            ck_assert_ptr_null(t.runs);
        }
    end();
}
END_TEST

/* n times text between begin and end. */
static void repeated(struct buf *out, const char *begin, size_t n, const char *text,
                     const char *end_)
{
    buf_clear(out);
    ck_ok(buf_addf(out, &err, "%s", begin));
    for (size_t i = 0; i < n; i++)
        ck_ok(buf_addf(out, &err, "%s%s", i ? "," : "", text));
    ck_ok(buf_addf(out, &err, "%s", end_));
}

START_TEST(test_trace__the_bounds_hold)
{
    CLEANUP_BUF struct buf text = BUF_INIT(8 * TRACE_MAX);
    CLEANUP_TRACE struct trace t = {0}, back = {0};
    char key[KEY_MAX];
    start();
    repeated(&text, "{\"files\":[\"memory\"],\"touched\":[", TRACE_CHUNKS_MAX, "[0,1,1]", "]}");
    ck_ok(trace_decode(text.data, text.len, m, &t, &err));
    ck_assert_uint_eq(t.n, TRACE_CHUNKS_MAX);
    repeated(&text, "{\"files\":[\"memory\"],\"touched\":[", TRACE_CHUNKS_MAX + 1, "[0,1,1]", "]}");
    ck_fails(trace_decode(text.data, text.len, m, &back, &err), CAIRN_CORRUPT);
    repeated(&text, "{\"files\":[", TRACE_FILES_MAX, "\"a\"", "],\"touched\":[]}");
    ck_ok(trace_decode(text.data, text.len, m, &back, &err));
    repeated(&text, "{\"files\":[", TRACE_FILES_MAX + 1, "\"a\"", "],\"touched\":[]}");
    ck_fails(trace_decode(text.data, text.len, m, &back, &err), CAIRN_CORRUPT);
    /* The longest that is made has room. */
    buf_clear(&text);
    text.max = TRACE_MAX;
    ck_ok(trace_encode(&t, m, &text, &err));
    text.max = 8 * TRACE_MAX;
    /* An object that is larger than one may be is none, whatever is in it. */
    layout_trace(CK_A, gen, key);
    repeated(&text, "{\"files\":[],\"touched\":[", 1, "", "]}");
    while (text.len <= TRACE_MAX)
        ck_ok(buf_addf(&text, &err, "%1000s", " "));
    kit_put(&k, key, text.data, text.len);
    ck_fails(trace_get(k.s, NULL, CK_A, gen, m, &back, &err), CAIRN_CORRUPT);
    ck_assert_ptr_nonnull(strstr(err.message, key));
    end();
}
END_TEST

/* ---- A trace without its record ---- */

START_TEST(test_trace__a_lone_one_makes_no_record)
{
    struct cairn_stats st;
    char key[KEY_MAX];
    kit_start(&k, &(struct kit_options){.mem = true, .faulty = true});
    kit_sample(&k, "one", 1);
    ck_ok(gen_of_meta("x", 1, gen, &err));
    layout_trace(CK_A, gen, key);
    kit_put(&k, key, "{\"files\":[],\"touched\":[]}", 25);
    ck_assert_int_eq(kit_opens(&k, CK_A), CAIRN_NOT_FOUND);
    ck_fails(cairn_hold(k.s, NULL, CK_A, &err), CAIRN_NOT_FOUND);
    ck_ok(cairn_stats(k.s, NULL, &st, &err));
    ck_assert_uint_eq(st.records + st.generations + st.unreadable, 0);
    kit_verify(&k);
    /* Nor is it in the way of one, nor does its removal leave a tombstone. */
    ck_ok(kit_publish(&k, CK_A, "one", NULL, NULL, &err));
    kit_same(&k, CK_A, "one");
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_assert(!kit_has(&k, key));
    kit_put(&k, key, "x", 1);
    uint64_t tombs = kit_objects(&k, LAYOUT_TOMB);
    kit_remove(&k, "gc/tomb/" CK_A);
    ck_ok(cairn_delete(k.s, NULL, CK_A, &err));
    ck_assert(!kit_has(&k, key));
    ck_assert_uint_eq(kit_objects(&k, LAYOUT_TOMB), tombs - 1);
    kit_stop(&k);
}
END_TEST

TESTING_MAIN(trace, test_trace__runs_that_go_on_are_joined_up_to_the_bound,
             test_trace__what_is_written_is_read_back,
             test_trace__it_is_an_object_of_its_generation,
             test_trace__what_does_not_fit_the_manifest_is_passed_over,
             test_trace__what_is_none_is_corrupt, test_trace__the_bounds_hold,
             test_trace__a_lone_one_makes_no_record)
