/* Records in JSON, as the command and the service tell of them. */
#ifndef CAIRN_STORE_JSON_H
#define CAIRN_STORE_JSON_H

#include "base/jsonw.h"
#include "store/cairn.h"

/* A whole object. */
void json_list_entry(struct jsonw *w, const struct cairn_list_entry *e);
/* The members of a record, but for its meta and its files. */
void json_record(struct jsonw *w, const struct cairn_record_info *info);
/* A whole object. */
void json_file(struct jsonw *w, const struct cairn_file *file);

#endif
