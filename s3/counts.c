#include "s3/counts.h"

#include "s3/client.h"

#include <stdatomic.h>

static atomic_uint_fast64_t counts[S3_COUNTS_VERBS][S3_COUNTS_CLASSES];

_Static_assert(S3_DELETE_MANY == S3_COUNTS_VERBS - 1, "a verb has no place");
_Static_assert(CAIRN_INTERNAL == S3_COUNTS_CLASSES - 1, "a class has no place");

void s3_counts_add(int verb, int error_class)
{
    atomic_fetch_add_explicit(&counts[verb][error_class], 1, memory_order_relaxed);
}

uint64_t s3_counts_get(int verb, int error_class)
{
    return atomic_load_explicit(&counts[verb][error_class], memory_order_relaxed);
}

const char *s3_counts_verb(int verb)
{
    static const char *const names[S3_COUNTS_VERBS] = {
        [S3_GET] = "GET",   [S3_PUT] = "PUT",       [S3_HEAD] = "HEAD",
        [S3_LIST] = "LIST", [S3_DELETE] = "DELETE", [S3_DELETE_MANY] = "DELETE_MANY"};
    return names[verb];
}
