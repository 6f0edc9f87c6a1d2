#include "store/json.h"

#include <string.h>

void json_list_entry(struct jsonw *w, const struct cairn_list_entry *e)
{
    jsonw_object(w, NULL);
    jsonw_str(w, "id", e->id);
    if (e->error_class) {
        jsonw_object(w, "error");
        jsonw_str(w, "class", cairn_class_name(e->error_class));
        jsonw_str(w, "message", e->error_message);
        jsonw_object_end(w);
    } else {
        jsonw_str(w, "gen", e->gen);
        jsonw_time(w, "created", e->created_ns);
        jsonw_u64(w, "logical_bytes", e->logical_bytes);
        jsonw_u64(w, "stored_bytes", e->stored_bytes);
        jsonw_u64(w, "files", e->files);
        if (*e->digest)
            jsonw_str(w, "digest", e->digest);
    }
    if (e->held)
        jsonw_bool(w, "held", true);
    jsonw_object_end(w);
}

void json_record(struct jsonw *w, const struct cairn_record_info *info)
{
    jsonw_str(w, "id", info->id);
    jsonw_str(w, "gen", info->gen);
    jsonw_time(w, "created", info->created_ns);
    if (*info->parent_id) {
        jsonw_object(w, "parent");
        jsonw_str(w, "id", info->parent_id);
        jsonw_str(w, "gen", info->parent_gen);
        jsonw_object_end(w);
    }
    if (*info->digest)
        jsonw_str(w, "digest", info->digest);
    jsonw_u64(w, "logical_bytes", info->logical_bytes);
    jsonw_u64(w, "data_bytes", info->data_bytes);
    jsonw_u64(w, "stored_bytes", info->stored_bytes);
    jsonw_u64(w, "chunks", info->chunks);
}

void json_file(struct jsonw *w, const struct cairn_file *file)
{
    jsonw_object(w, NULL);
    jsonw_bytes(w, "path", file->path, strlen(file->path));
    jsonw_u64(w, "size", file->size);
    jsonw_u64(w, "data_bytes", file->data_bytes);
    jsonw_object_end(w);
}
