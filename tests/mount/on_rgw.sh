#!/bin/bash
# The daemon's sequences, and the kills, on a bucket of a real gateway that lib/rgw.sh made (its
# environment is there).
#
#   on_rgw.sh PROGRAM...
set -u
export CAIRN_TEST_ENDPOINT=$S3_ENDPOINT
export CAIRN_TEST_BUCKET=s3://$S3_BUCKET/mount
failed=0
for program in "$@"; do
    echo "== ${program##*/}"
    "$program" || failed=1
done
exit $failed
