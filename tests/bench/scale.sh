#!/bin/bash
# What grows with what: the same commands on a small and on a large store, image or index.
#
#   scale.sh BUILD [PART...]      parts: image records index (default: all)
#
# image     a 64 GiB image with 2 GiB of data against a 2 GiB image that is full of the same data
# records   1,000, 10,000 and 100,000 records: ls, a page of ls, show, fork, two sweeps
# index     a publish of 1 GiB beside 0, 1 million and 10 million chunks in the index
# Needs some 12 GB in ${TMPDIR:-/tmp}, GNU time and jq. BUILD: a release build with its tests.
set -eu
BUILD=$(cd "${1:?usage: $0 BUILD [image|records|index]...}" && pwd)
shift
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(image records index)
W=$(mktemp -d "${TMPDIR:-/tmp}/cairn-bench-scale-XXXXXX")
trap 'rm -rf "$W"' EXIT
ck() { printf 'ck_%016x' "$1"; }
# timed WHAT ARGS...: the command's wall time, CPU time and peak memory on one line
timed() {
    local what=$1
    shift
    /usr/bin/time -f '%e s wall, %U + %S s CPU, %M KiB' -o "$W/time" \
        "$BUILD/cli/cairn" --store "$W/store" --state "$W/state" "$@" >"$W/out" 2>"$W/err" || {
        cat "$W/err" >&2
        exit 1
    }
    printf '%-46s %s\n' "$what" "$(cat "$W/time")"
}
fresh() {
    rm -rf "$W/store" "$W/state" "$W/to"
    "$BUILD/cli/cairn" --store "$W/store" --state "$W/state" init --compression none >/dev/null
}
# random_runs FILE SIZE-MiB RUNS RUN-MiB: runs of random bytes, evenly over a sparse file
random_runs() {
    truncate -s "$2M" "$1"
    local i
    for ((i = 0; i < $3; i++)); do
        dd if=/dev/urandom of="$1" bs=1M count="$4" seek=$((i * $2 / $3)) conv=notrunc status=none
    done
}

image() {
    mkdir -p "$W/dense" "$W/sparse"
    random_runs "$W/dense/memory-ranges" 2048 1 2048
    random_runs "$W/sparse/memory-ranges" 65536 512 4
    local kind
    for kind in dense sparse; do
        fresh
        timed "$kind: publish" publish "$(ck 1)" --from "$W/$kind"
        echo "$kind: manifest of $(stat -c %s "$W"/store/records/*/export-*) bytes"
        timed "$kind: publish with its parent, unchanged" publish "$(ck 2)" --from "$W/$kind" --parent "$(ck 1)"
        timed "$kind: fork" fork "$(ck 1)" "$(ck 3)"
        timed "$kind: 100 bytes from its middle (cat's open)" show "$(ck 1)"
        timed "$kind: fetch" fetch "$(ck 1)" --to "$W/to"
        cmp "$W/$kind/memory-ranges" "$W/to/memory-ranges"
    done
    rm -rf "$W/dense" "$W/sparse" "$W/to"
}

records() {
    local n
    for n in 1000 10000 100000; do
        fresh
        "$BUILD/tests/bench/synth-store" "$W/store" "$n" 10
        sleep 2 # younger objects are not remembered
        timed "$n records: ls, the first time" ls --json
        timed "$n records: ls again" ls --json
        timed "$n records: ls of one prefix" ls --prefix ck_0000000000000001
        timed "$n records: show" show "$(ck 77)"
        timed "$n records: fork" fork "$(ck 77)" "$(ck 4096000)"
        timed "$n records: first sweep" gc --json
        timed "$n records: second sweep" gc --json
    done
}

index() {
    local n
    mkdir -p "$W/one"
    random_runs "$W/one/memory-ranges" 1024 1 1024
    for n in 0 1000000 10000000; do
        fresh
        "$BUILD/tests/bench/synth-index" "$W/store" "$W/state" "$n"
        echo "$n chunks: index of $(du -sm "$W/state" | cut -f1) MiB"
        sync
        timed "$n chunks: publish of 1 GiB, all new" publish "$(ck 1)" --from "$W/one"
        timed "$n chunks: the same, all known" publish "$(ck 2)" --from "$W/one"
        timed "$n chunks: stats" stats
    done
}

for part in "${parts[@]}"; do
    echo "== $part"
    "$part"
done
