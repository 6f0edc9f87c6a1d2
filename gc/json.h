/* A sweep in JSON, as the command and the service tell of it. */
#ifndef CAIRN_GC_JSON_H
#define CAIRN_GC_JSON_H

#include "base/jsonw.h"
#include "store/cairn.h"

/* The members from "phase" to "waiting". */
void json_sweep(struct jsonw *w, const struct cairn_gc_result *r);

#endif
