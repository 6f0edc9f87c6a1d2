#!/bin/bash
# A real gateway: what was touched first on one node is here at the next open on another, as the
# metrics of the service tell; removing the record leaves nothing. Run below tests/lib/rgw.sh run.
# usage: trace_on_rgw.sh BUILD
# Its functions are called by others here.
# shellcheck disable=SC2317 source-path=SCRIPTDIR source=../fault/lib.sh
. "$(dirname "$0")/../fault/lib.sh"
: "${S3_ENDPOINT:?run this below tests/lib/rgw.sh run}" "${S3_BUCKET:?}"

declare -A serving
cleanup() {
    local node
    for node in "${!serving[@]}"; do
        kill -9 "${serving[$node]}" 2>/dev/null
        umount -l "$W/$node" 2>/dev/null
    done
    rm -rf "$W"
}
trap cleanup EXIT
jq -n --arg p "trace-$$" --arg e "$S3_ENDPOINT" --arg b "$S3_BUCKET" '{checkpoint_store: {kind: "s3",
    s3: {bucket: $b, prefix: $p, endpoint: $e, region: "us-east-1", force_path_style: true}},
    materialise: "never", gc_young_seconds: 0}' >"$W/config.json"
cairn() { "$CAIRN" --config "$W/config.json" --state "$W/state" "$@"; }

start() { # NODE: a host with nothing on its disk
    rm -rf "$W/state-$1"
    mkdir -p "$W/state-$1" "$W/$1"
    "$CAIRN" --config "$W/config.json" --state "$W/state-$1" serve --listen "$W/$1.sock" --mount "$W/$1" \
        2>"$W/$1.log" &
    serving[$1]=$!
    for _ in {1..300}; do
        mountpoint -q "$W/$1" && metric "$1" cairn_s3_requests_total >/dev/null && return 0
        sleep 0.1
    done
    fail "node $1 does not start: $(cat "$W/$1.log")"
}
metric() { # NODE NAME [LABEL]: the sum of its values
    curl -sf --unix-socket "$W/$1.sock" http://localhost/metrics |
        awk -v name="$2" -v label="${3-}" '{split($1, part, "{")}
            part[1] == name && index($1, label) {n += $NF} END {printf "%d\n", n}'
}
gets() { metric "$1" cairn_s3_requests_total 'verb="GET"'; }
wait_for() { # NODE NAME VALUE: until it is at least that
    for _ in {1..300}; do
        [ "$(metric "$1" "$2")" -lt "$3" ] || { ok && return; }
        sleep 0.1
    done
    fail "node $1: $2 is $(metric "$1" "$2"), not $3"
}
have_pages() { # of descriptor 7: a page of each of 37 chunks, in an order of no file's
    local i
    for ((i = 0; i < 37; i++)); do
        dd if=/dev/fd/7 bs=4096 count=1 skip=$((i * 13 % 37 * 16 + i % 16)) status=none
    done | sha256sum
}

make_export "$W/export" 1
exec 7<"$W/export/memory-ranges"
want=$(have_pages)
expect 0 init cairn init
expect 0 publish cairn publish $A --from "$W/export"
expect 0 fork cairn fork $A $N

start a
exec 7<"$(echo "$W/a/$A"/export-*/memory-ranges)" # dd opens it again and again
if [ "$(have_pages)" = "$want" ]; then ok; else fail "node a read something else"; fi
exec 7<&-
wait_for a cairn_mount_traces_total 1

# The record itself, and its fork, each on a host that never saw it.
for id in $A $N; do
    start b
    exec 7<"$(echo "$W/b/$id"/export-*/memory-ranges)"
    wait_for b cairn_mount_prefetched_bytes_total $((36 * 65536 + 1))
    before=$(gets b)
    if [ "$(have_pages)" = "$want" ]; then ok; else fail "node b read something else"; fi
    after=$(gets b)
    if [ "$after" = "$before" ]; then ok; else fail "$id: $((after - before)) GETs were made for what was traced"; fi
    exec 7<&-
    [ "$id" = $A ] || wait_for b cairn_mount_traces_total 1
    kill "${serving[b]}"
    if wait "${serving[b]}"; then ok; else fail "node b does not end: $(cat "$W/b.log")"; fi
done
expect 0 verify cairn verify
expect 0 rm cairn rm $A $N
for _ in 1 2 3; do expect 0 gc cairn gc; done
expect 0 "verify what is left" cairn verify --json
kill "${serving[a]}"
if wait "${serving[a]}"; then ok; else fail "node a does not end: $(cat "$W/a.log")"; fi
finish
