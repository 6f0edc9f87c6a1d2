#!/bin/bash
# Run the fuzz targets for a while, from the fixtures and the seeds on:
#
#   smoke.sh BUILD SECONDS [TARGET...]
#
# SECONDS are shared by the targets (all of BUILD's, or those named: format, http, manifest, meta,
# pack, reseal, store). Inputs that a target fails at are copied to BUILD/fuzz-finds. The last line counts.
set -u
if [ $# -lt 2 ]; then
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 2
fi
build=$1 seconds=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd) || exit 1
if [ $# -eq 0 ]; then
    set -- format http manifest meta pack reseal store
fi
share=$((seconds / $#))
if [ "$share" -lt 1 ]; then
    share=1
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/cairn-fuzz-XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0
for target; do
    # What an engine finds worth keeping goes into the first folder; the others are only read.
    mkdir -p "$scratch/$target/new" "$scratch/$target/finds"
    if "$build/tests/fuzz/fuzz_$target" -seed=1 -max_total_time="$share" -rss_limit_mb=2048 \
        -artifact_prefix="$scratch/$target/finds/" "$scratch/$target/new" "$here/seeds" \
        "$here/../fixtures" >"$scratch/$target/log" 2>&1; then
        echo "ok   $target: $(grep -v '^INFO\|^$' "$scratch/$target/log" | tail -1)"
        passed=$((passed + 1))
    else
        echo "FAIL $target"
        tail -40 "$scratch/$target/log"
        mkdir -p "$build/fuzz-finds/$target"
        cp "$scratch/$target/finds/"* "$build/fuzz-finds/$target/" 2>/dev/null
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
