/* What the store under the service tells: its cache, shared fetches, pins, requests to a bucket. */
#ifndef CAIRN_SERVICE_STORE_TEXT_H
#define CAIRN_SERVICE_STORE_TEXT_H

#include "service/metrics.h"

struct cairn_store;

/* Takes no lock that anybody holds over I/O. */
void store_text(struct cairn_store *store, struct metrics_text *t);

#endif
