/* Places in a bucket for the contract suite (contract/factory.h).
 *
 *   s3-v4, s3-v2     the fault server without a script
 *   rgw-v4, rgw-v2   the gateway that S3_ENDPOINT, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY tell
 *                    of (rgw.sh), in bucket S3_BUCKET, each place under a prefix of its own */
#ifndef CAIRN_TESTS_FACTORY_S3_H
#define CAIRN_TESTS_FACTORY_S3_H

#include "tests/contract/factory.h"

extern const struct factory factory_s3_v4, factory_s3_v2, factory_rgw_v4, factory_rgw_v2;

/* A prefix that is hard on encoders. With v2 nothing that libs3 cannot send. */
#define HARD_PREFIX_V4 "dt=2024/a b+c@2x~(1)*\xc3\xa9%2F&=;:'!$,"
#define HARD_PREFIX_V2 "dt=2024/a+c@2x~(1)*\xc3\xa9%2F&=;:'!$,"

#endif
