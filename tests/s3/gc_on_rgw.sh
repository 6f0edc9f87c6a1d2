#!/bin/bash
# The collector's suite in a bucket of a real gateway, which lib/rgw.sh made.
#
#   gc_on_rgw.sh PROGRAM...
set -u
failed=0
for program in "$@"; do
    echo "== ${program##*/}"
    CAIRN_TEST_BACKEND=rgw-v4 "$program" || failed=1
done
exit $failed
