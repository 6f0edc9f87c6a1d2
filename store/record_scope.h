/* An open record as a local variable. */
#ifndef CAIRN_STORE_RECORD_SCOPE_H
#define CAIRN_STORE_RECORD_SCOPE_H

#include "store/cairn.h"

static inline void record_closep(struct cairn_record **record)
{
    cairn_record_close(*record);
}

#define CLEANUP_RECORD __attribute__((cleanup(record_closep)))

#endif
