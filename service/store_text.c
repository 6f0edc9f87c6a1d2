#include "service/store_text.h"

#include "s3/counts.h"
#include "store/budget.h"
#include "store/cache.h"
#include "store/pin_keeper.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>

static void cache_text(struct cairn_store *s, struct metrics_text *t)
{
    struct cache_stats c;
    cache_stats(s->cache, &c);
    metrics_head(t, "cairn_cache_lookups_total", "counter",
                 "Chunks looked for in the cache of chunks, by outcome.");
    metrics_u64(t, "cairn_cache_lookups_total", "outcome=\"hit\"", c.hits);
    metrics_u64(t, "cairn_cache_lookups_total", "outcome=\"miss\"", c.misses);
    metrics_one(t, "cairn_cache_added_bytes_total", "counter", "Bytes of chunks put into it.",
                c.inserted_bytes);
    metrics_one(t, "cairn_cache_rejected_total", "counter",
                "Chunks found in it whose bytes were not what they should be.", c.rejected);
    metrics_one(t, "cairn_cache_not_kept_total", "counter", "Chunks for which there was no room.",
                c.not_kept);
}

static void budget_text(struct cairn_store *s, struct metrics_text *t)
{
    struct budget_stats b;
    budget_stats(s->budget, &b);
    metrics_one(t, "cairn_local_bytes", "gauge", "What is kept on the local disk.", b.used);
    metrics_one(t, "cairn_local_limit_bytes", "gauge", "The bound of that.", b.limit);
    metrics_one(t, "cairn_local_evicted_bytes_total", "counter",
                "Bytes that went to make room for others.", b.evicted_bytes);
}

static void flights_text(struct cairn_store *s, struct metrics_text *t)
{
    struct cairn_fetch_shared_stats f;
    cairn_fetch_shared_stats(s, &f);
    metrics_one(t, "cairn_flights_running", "gauge", "Downloads of generations that run.",
                f.running);
    metrics_head(t, "cairn_flights_total", "counter", "Downloads that ended, by how.");
    metrics_u64(t, "cairn_flights_total", "result=\"good\"", f.downloaded);
    metrics_u64(t, "cairn_flights_total", "result=\"failed\"", f.failed);
    metrics_one(t, "cairn_flights_bytes_total", "counter", "Bytes of those that succeeded.",
                f.downloaded_bytes);
}

static void pins_text(struct cairn_store *s, struct metrics_text *t)
{
    struct keeper_stats k;
    keeper_stats(s, &k);
    metrics_one(t, "cairn_pins", "gauge", "Pins in the store for what is held for long.", k.pins);
    metrics_one(t, "cairn_pin_failures_total", "counter",
                "Pins that could not be put or taken away, and were tried again.", k.failures);
}

static void s3_text(struct metrics_text *t)
{
    char labels[64];
    metrics_head(t, "cairn_s3_requests_total", "counter",
                 "Attempts of requests to the bucket, by verb and class of their outcome.");
    for (int v = 0; v < S3_COUNTS_VERBS; v++)
        for (int c = 0; c < S3_COUNTS_CLASSES; c++) {
            uint64_t n = s3_counts_get(v, c);
            if (!n)
                continue;
            snprintf(labels, sizeof(labels), "verb=\"%s\",class=\"%s\"", s3_counts_verb(v),
                     cairn_class_name(c));
            metrics_u64(t, "cairn_s3_requests_total", labels, n);
        }
}

void store_text(struct cairn_store *s, struct metrics_text *t)
{
    if (s->cache)
        cache_text(s, t);
    if (s->budget)
        budget_text(s, t);
    if (s->shared)
        flights_text(s, t);
    if (s->keeper)
        pins_text(s, t);
    if (strcmp(s->backend->ops->kind, "s3") == 0)
        s3_text(t);
}
