#!/bin/bash
# A small made-up chain through the whole of cairn: publish, publish with a parent, fork, fetch,
# compare. Untimed, seconds. usage: smoke.sh BUILD
set -u
export LC_ALL=C
[ $# = 1 ] || {
    echo "usage: smoke.sh BUILD" >&2
    exit 2
}
build=$(realpath -e -- "$1") || exit 2
cairn=$build/cli/cairn synth=$build/tests/bench/synth-chain
for p in "$cairn" "$synth"; do
    [ -x "$p" ] || {
        echo "smoke.sh: $p is not built" >&2
        exit 2
    }
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

passed=0 failed=0
check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$work/out" 2>"$work/log"; then
        passed=$((passed + 1))
        echo "ok: $name"
    else
        failed=$((failed + 1))
        echo "NOT OK: $name: $*"
        tail -n 5 "$work/out" "$work/log"
    fi
}
c() {
    "$cairn" --store "$work/store" --state "$work/state" "$@"
}
# A number of the last JSON answer.
field() {
    sed -n "s/.*\"$1\": *\([0-9][0-9]*\).*/\1/p" "$work/answer"
}
same_tree() {
    diff -r "$1" "$2"
}
allocated() {
    du -s -B1 -- "$1" | cut -f1
}
size() {
    du -s -B1 --apparent-size -- "$1" | cut -f1
}
sum_is() { # FOLDER SHA256: of all files by name
    [ "$(cd "$1" && find . -type f | sort | xargs cat | sha256sum | cut -d' ' -f1)" = "$2" ]
}

# The same bytes on every machine: else no count could be compared.
check "the chain is made" "$synth" -m 16 -d 64 -n 2 "$work/chain"
check "the chain is the one known" sum_is "$work/chain" \
    79f25f43c590b61b919b3503b5f915c1e5d2c61645e8bed0ae255410510427ff

a=ck_000000000000000a b=ck_000000000000000b d=ck_000000000000000d e=ck_000000000000000e
check "init" c init
c publish $a --from "$work/chain/ck0" --json >"$work/answer"
check "ck0 is published" test "$(field logical_bytes)" -gt 80000000
first=$(field stored_bytes) chunks=$(field new_chunks)
check "zeros, holes and repeats are not stored" test "$first" -lt 30000000
c publish $b --from "$work/chain/ck1" --parent $a --json >"$work/answer"
check "a successor stores few chunks" test "$(field new_chunks)" -lt $((chunks / 4))
check "and few bytes" test "$(field stored_bytes)" -lt $((first / 20))
c publish $d --from "$work/chain/ck2" --json >"$work/answer"
check "without a parent as well" test "$(field new_chunks)" -lt $((chunks / 4))
before=$(size "$work/store/packs")
check "fork" c fork $b $e
check "a fork stores no chunk" \
    test "$(size "$work/store/packs")" = "$before"
for pair in $a:ck0 $b:ck1 $d:ck2 $e:ck1; do
    id=${pair%:*} ck=${pair#*:}
    check "$id is fetched" c fetch "$id" --to "$work/$id"
    check "$id equals $ck" same_tree "$work/chain/$ck" "$work/$id"
    check "$id is sparse" test "$(allocated "$work/$id")" -le "$(allocated "$work/chain/$ck")"
done
check "verify" c verify

echo "$passed passed, $failed failed"
[ $failed = 0 ]
