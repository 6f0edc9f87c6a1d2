/* How many requests this process made to buckets, and how they came out: for metrics. Each attempt
 * counts, also one that is tried again. Thread-safe; never reset. */
#ifndef CAIRN_S3_COUNTS_H
#define CAIRN_S3_COUNTS_H

#include <stdint.h>

#define S3_COUNTS_VERBS   6  /* enum s3_verb */
#define S3_COUNTS_CLASSES 11 /* enum cairn_class */

void s3_counts_add(int verb, int error_class);
uint64_t s3_counts_get(int verb, int error_class);
/* "GET", "LIST", …; a literal. */
const char *s3_counts_verb(int verb);

#endif
