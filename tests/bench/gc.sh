#!/bin/bash
# How long a sweep takes, and how much memory: a made-up store of many records and chunks, swept
# three times (nothing known, everything known, a tenth replaced).
# usage: gc.sh BUILD [RECORDS [CHUNKS-EACH]]     (default 10000 and 100: 1,000,000 chunks)
set -eu
BUILD=$(cd "${1:?usage: $0 BUILD [RECORDS [CHUNKS-EACH]]}" && pwd)
records=${2:-10000} each=${3:-100}
W=$(mktemp -d "${TMPDIR:-/tmp}/cairn-bench-gc-XXXXXX")
trap 'rm -rf "$W"' EXIT
cairn() { "$BUILD/cli/cairn" --store "$W/store" --state "$W/state" "$@"; }
cairn init --compression none >/dev/null
"$BUILD/tests/bench/synth-store" "$W/store" "$records" "$each"
sleep 2 # younger objects are not remembered
timed() { # WHAT
    /usr/bin/time -f '%e s, %M KiB' -o "$W/time" \
        "$BUILD/cli/cairn" --store "$W/store" --state "$W/state" gc --json >"$W/out"
    echo "$1: $(cat "$W/time"); $(jq -c '[.records, .packs_scanned, .packs_closed]' "$W/out") records, packs, closed"
}
echo "$records records, $((records * each)) chunks, $(find "$W/store/packs" -type f | wc -l) packs"
timed "first sweep "
timed "second sweep"
find "$W/store/records" -name 'export-*' | awk 'NR % 10 == 0' | xargs touch
sleep 2
timed "a tenth new "
