/* The packs that this process has made durable lately. Their names are random, so it does not
 * matter in which store. Thread-safe; the table is small, and forgets the oldest. */
#ifndef CAIRN_STORE_FRESH_H
#define CAIRN_STORE_FRESH_H

#include "store/ids.h"

#include <stdbool.h>
#include <stdint.h>

/* For so long, on CLOCK_BOOTTIME, a pack that was made is there. */
#define FRESH_MAX_NS ((int64_t)600 * 1000000000)

void fresh_note(const uint8_t pack[PACK_ID_LEN]);
/* Made at since_ns or later, and less than FRESH_MAX_NS ago. */
bool fresh_has(const uint8_t pack[PACK_ID_LEN], int64_t since_ns);

#endif
