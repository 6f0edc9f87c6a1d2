#!/bin/bash
# What needs a real gateway, on one that lib/rgw.sh made (its environment is there): the contract
# suite with both signatures, then the gateway killed in the middle of work.
#
#   on_rgw.sh OUTAGE CONTRACT...   the programs
set -u
outage=$1
shift
failed=0
for kind in rgw-v4 rgw-v2; do
    for program in "$@"; do
        echo "== $kind ${program##*/}"
        CAIRN_TEST_BACKEND=$kind "$program" || failed=1
    done
done
echo "== ${outage##*/}"
"$outage" || failed=1
exit $failed
