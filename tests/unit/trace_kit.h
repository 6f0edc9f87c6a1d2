/* What the tests of traces share. Included by these only. */
#ifndef CAIRN_TESTS_TRACE_KIT_H
#define CAIRN_TESTS_TRACE_KIT_H

#include "store/trace.h"
#include "tests/lib/testing.h"

/* Run i of t is this one. */
static inline void is(const struct trace *t, size_t i, uint32_t file, uint64_t first,
                      uint32_t count)
{
    ck_assert_uint_lt(i, t->n);
    ck_assert_uint_eq(t->runs[i].file, file);
    ck_assert_uint_eq(t->runs[i].first, first);
    ck_assert_uint_eq(t->runs[i].count, count);
}

#endif
