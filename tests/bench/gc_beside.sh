#!/bin/bash
# What a sweep costs others: rounds of publish, fetch and rm, each alone and then beside sweeps that follow
# one another, on a store of many records (as gc.sh makes it), in turn so that the machine's mood counts
# for both. Prints every pair, and the median of the ratios (throughput beside to alone).
# usage: gc_beside.sh BUILD [PAIRS [PAUSE-BETWEEN-SWEEPS-IN-SECONDS]]
set -eu
BUILD=$(cd "${1:?usage: $0 BUILD [PAIRS [PAUSE]]}" && pwd)
pairs=${2:-5} pause=${3:-5}
W=$(mktemp -d "${TMPDIR:-/tmp}/cairn-bench-beside-XXXXXX")
trap 'rm -rf "$W"' EXIT
cairn() { "$BUILD/cli/cairn" --store "$W/store" --state "$W/state" "$@"; }
cairn init --compression none >/dev/null
"$BUILD/tests/bench/synth-store" "$W/store" 10000 100
mkdir "$W/vm"
openssl enc -aes-128-ctr -K 1 -iv 0 -nosalt -in /dev/zero 2>/dev/null | head -c 200M >"$W/vm/memory"
sleep 2
cairn gc >/dev/null

round() { # seconds of three times publish, fetch, rm
    local start
    start=$(date +%s%N)
    for _ in 1 2 3; do
        cairn publish -q ck_fffffffffffffff1 --from "$W/vm"
        cairn fetch -q ck_fffffffffffffff1 --to "$W/out"
        rm -rf "$W/out"
        cairn rm -q ck_fffffffffffffff1
    done
    echo $((($(date +%s%N) - start) / 1000000))
}
sweeps() {
    while [ ! -e "$W/enough" ]; do
        cairn gc -q >/dev/null || true
        sleep "$pause"
    done
}
round >/dev/null # the index knows the chunks from here on
for _ in $(seq "$pairs"); do
    alone=$(round)
    rm -f "$W/enough"
    sweeps &
    beside=$(round)
    : >"$W/enough"
    wait
    echo "alone $alone ms, beside $beside ms: $(awk "BEGIN { printf \"%.2f\", $alone / $beside }")"
done | tee "$W/pairs"
echo "median throughput beside to alone: $(sed 's/.*: //' "$W/pairs" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')"
