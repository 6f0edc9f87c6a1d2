/* What GET /metrics tells, in the text format of Prometheus 0.0.4.
 *
 * The core counts requests by route and class of status, their seconds as histograms, connections,
 * lanes and sweeps; a part adds its own through part.metrics. No label ever holds an id. */
#ifndef CAIRN_SERVICE_METRICS_H
#define CAIRN_SERVICE_METRICS_H

#include "base/buf.h"

#include <stdatomic.h>
#include <stdint.h>

struct metrics_text {
    struct buf *out;         /* borrowed */
    struct cairn_error *err; /* of the first failure */
    int rc;
};

/* HELP and TYPE lines (type: "counter", "gauge", "histogram"), then samples of the same name.
 * labels is "" or like `route="fetch",code="2xx"`. */
void metrics_head(struct metrics_text *t, const char *name, const char *type, const char *help);
void metrics_u64(struct metrics_text *t, const char *name, const char *labels, uint64_t value);
void metrics_real(struct metrics_text *t, const char *name, const char *labels, double value);
/* Both in one, without labels. */
void metrics_one(struct metrics_text *t, const char *name, const char *type, const char *help,
                 uint64_t value);

/* Seconds in fixed buckets, 0.5 ms to 1,000 s. Thread-safe. Zero-initialised is empty. */
#define HISTOGRAM_BUCKETS 14
struct histogram {
    atomic_uint_fast64_t bucket[HISTOGRAM_BUCKETS + 1]; /* the last: above all bounds */
    atomic_uint_fast64_t sum_us;
};
void histogram_add(struct histogram *h, int64_t ns);
/* name_bucket, name_sum and name_count lines. */
void metrics_histogram(struct metrics_text *t, const char *name, const char *labels,
                       const struct histogram *h);

/* What the core counts: requests. */
struct metrics;
CAIRN_MUST_CHECK int metrics_new(struct metrics **out, struct cairn_error *err);
void metrics_free(struct metrics *m);
/* route: index in routes, -1: none. Thread-safe. */
void metrics_request(struct metrics *m, int route, int status, int64_t ns);
void metrics_requests_text(struct metrics *m, struct metrics_text *t);

#endif
