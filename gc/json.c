#include "gc/json.h"

void json_sweep(struct jsonw *w, const struct cairn_gc_result *r)
{
    jsonw_str(w, "phase", r->phase ? r->phase : "");
    jsonw_u64(w, "records", r->records);
    jsonw_u64(w, "generations_deleted", r->generations_deleted);
    jsonw_u64(w, "records_expired", r->records_expired);
    jsonw_u64(w, "packs_scanned", r->packs_scanned);
    jsonw_u64(w, "packs_closed", r->packs_closed);
    jsonw_u64(w, "packs_dead", r->packs_dead);
    jsonw_u64(w, "packs_deleted", r->packs_deleted);
    jsonw_u64(w, "packs_repacked", r->packs_repacked);
    jsonw_u64(w, "bytes_freed", r->bytes_freed);
    jsonw_object(w, "waiting");
    jsonw_u64(w, "closed", r->waiting_closed);
    jsonw_u64(w, "dead", r->waiting_dead);
    jsonw_object_end(w);
}
