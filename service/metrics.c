#include "service/metrics.h"

#include "base/util.h"
#include "service/route.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t bounds_us[HISTOGRAM_BUCKETS] = {
    500,    1000,    2500,    5000,     10000,    25000,     100000,
    250000, 1000000, 2500000, 10000000, 30000000, 100000000, 1000000000,
};

void histogram_add(struct histogram *h, int64_t ns)
{
    int64_t us = ns / 1000;
    unsigned i = 0;
    while (i < HISTOGRAM_BUCKETS && us > bounds_us[i])
        i++;
    atomic_fetch_add_explicit(&h->bucket[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_us, us > 0 ? (uint64_t)us : 0, memory_order_relaxed);
}

CAIRN_PRINTF(2, 3) static void add(struct metrics_text *t, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (!t->rc && (n < 0 || (size_t)n >= sizeof(line)))
        t->rc = error_set(t->err, CAIRN_INTERNAL, 0, "a metric's line is too long");
    if (!t->rc)
        t->rc = buf_add(t->out, line, (size_t)n, t->err);
}

void metrics_head(struct metrics_text *t, const char *name, const char *type, const char *help)
{
    add(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static const char *open_brace(const char *labels)
{
    return *labels ? "{" : "";
}

static const char *close_brace(const char *labels)
{
    return *labels ? "}" : "";
}

void metrics_u64(struct metrics_text *t, const char *name, const char *labels, uint64_t value)
{
    add(t, "%s%s%s%s %" PRIu64 "\n", name, open_brace(labels), labels, close_brace(labels), value);
}

void metrics_real(struct metrics_text *t, const char *name, const char *labels, double value)
{
    add(t, "%s%s%s%s %.9g\n", name, open_brace(labels), labels, close_brace(labels), value);
}

void metrics_one(struct metrics_text *t, const char *name, const char *type, const char *help,
                 uint64_t value)
{
    metrics_head(t, name, type, help);
    metrics_u64(t, name, "", value);
}

void metrics_histogram(struct metrics_text *t, const char *name, const char *labels,
                       const struct histogram *h)
{
    const char *comma = *labels ? "," : "";
    uint64_t sum = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        sum += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
        add(t, "%s_bucket{%s%sle=\"%.9g\"} %" PRIu64 "\n", name, labels, comma,
            (double)bounds_us[i] / 1e6, sum);
    }
    sum += atomic_load_explicit(&h->bucket[HISTOGRAM_BUCKETS], memory_order_relaxed);
    add(t, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, comma, sum);
    add(t, "%s_sum%s%s%s %.9g\n", name, open_brace(labels), labels, close_brace(labels),
        (double)atomic_load_explicit(&h->sum_us, memory_order_relaxed) / 1e6);
    add(t, "%s_count%s%s%s %" PRIu64 "\n", name, open_brace(labels), labels, close_brace(labels),
        sum);
}

#define STATUSES 5 /* 1xx is never counted: 2xx, 3xx, 4xx, 5xx, and 499 */

struct route_counts {
    atomic_uint_fast64_t answers[STATUSES];
    struct histogram seconds;
};

struct metrics {
    struct route_counts *routes; /* one more than there are: for what has no route */
};

int metrics_new(struct metrics **out, struct cairn_error *err)
{
    struct metrics *m = calloc(1, sizeof(*m));
    if (m)
        m->routes = calloc(n_routes + 1, sizeof(*m->routes));
    if (!m || !m->routes) {
        free(m);
        return error_oom(err, "metrics");
    }
    *out = m;
    return CAIRN_OK;
}

void metrics_free(struct metrics *m)
{
    if (m)
        free(m->routes);
    free(m);
}

static unsigned status_index(int status)
{
    return status == 499 ? 4 : status < 300 ? 0 : status < 400 ? 1 : status < 500 ? 2 : 3;
}

void metrics_request(struct metrics *m, int route, int status, int64_t ns)
{
    struct route_counts *c = &m->routes[route < 0 ? (int)n_routes : route];
    atomic_fetch_add_explicit(&c->answers[status_index(status)], 1, memory_order_relaxed);
    histogram_add(&c->seconds, ns);
}

void metrics_requests_text(struct metrics *m, struct metrics_text *t)
{
    static const char *const codes[STATUSES] = {"2xx", "3xx", "4xx", "5xx", "499"};
    char labels[96];
    metrics_head(t, "cairn_http_requests_total", "counter",
                 "Requests that ended, by route and status (499: the client left).");
    for (unsigned i = 0; i <= n_routes; i++)
        for (unsigned k = 0; k < STATUSES; k++) {
            uint64_t n = atomic_load_explicit(&m->routes[i].answers[k], memory_order_relaxed);
            if (!n)
                continue;
            snprintf(labels, sizeof(labels), "route=\"%s\",code=\"%s\"",
                     i < n_routes ? routes[i].name : "none", codes[k]);
            metrics_u64(t, "cairn_http_requests_total", labels, n);
        }
    metrics_head(t, "cairn_http_request_seconds", "histogram",
                 "From a request's head to the last byte of its answer.");
    for (unsigned i = 0; i < n_routes; i++) {
        snprintf(labels, sizeof(labels), "route=\"%s\"", routes[i].name);
        metrics_histogram(t, "cairn_http_request_seconds", labels, &m->routes[i].seconds);
    }
}
