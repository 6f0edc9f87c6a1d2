#!/bin/bash
# A restore that touches pages of an image in a bucket at random, cold: what the trace that the first
# one leaves saves the next. Run it below tests/lib/rgw.sh run, which sets the environment, as root.
# usage: mount_trace.sh BUILD [MIB [PAGES]]     (default 1024 and 1000)
#
# Three times each, on a fresh state directory: time and rate of the faults, then the GETs of all of it.
set -eu
BUILD=$(cd "${1:?usage: $0 BUILD [MIB [PAGES]]}" && pwd)
mib=${2:-1024} pages=${3:-1000}
: "${S3_ENDPOINT:?run this below tests/lib/rgw.sh run}" "${S3_BUCKET:?}"
W=$(mktemp -d "${TMPDIR:-/tmp}/cairn-bench-trace-XXXXXX")
M=$W/mnt
serving=
cleanup() {
    [ -z "$serving" ] || kill -9 "$serving" 2>/dev/null || true
    umount -l "$M" 2>/dev/null || true
    rm -rf "$W"
}
trap cleanup EXIT
cairn=$BUILD/cli/cairn
bench=$BUILD/tests/bench/mount-bench
mkdir "$W/export" "$M"
openssl enc -aes-128-ctr -pass pass:1 -nosalt -pbkdf2 -in /dev/zero 2>/dev/null |
    head -c "${mib}M" >"$W/export/image" || true
id=ck_0000000000000001
for trace in true false; do
    jq -n --arg e "$S3_ENDPOINT" --arg b "$S3_BUCKET" --argjson t $trace '{checkpoint_store: {kind: "s3",
        s3: {bucket: $b, prefix: "trace", endpoint: $e, region: "us-east-1", force_path_style: true}},
        materialise: "never", trace: $t}' >"$W/$trace.json"
done
gets() {
    curl -sS --unix-socket "$W/socket" http://localhost/metrics |
        awk '/^cairn_s3_requests_total{.*[Gg][Ee][Tt]/ {n += $NF} END {print n + 0}'
}
restore() { # CONFIG
    rm -rf "$W/state"
    mkdir "$W/state"
    "$cairn" --config "$W/$1.json" --state "$W/state" serve --listen "$W/socket" --mount "$M" 2>"$W/log" &
    serving=$!
    until mountpoint -q "$M" && curl -s --unix-socket "$W/socket" http://localhost/healthz >/dev/null; do
        sleep 0.1
    done
    local shown before begun ended
    shown=$(echo "$M/$id"/export-*/image)
    before=$(gets)
    begun=$(date +%s%N)
    line=$("$bench" fault "$shown" "$pages")
    ended=$(date +%s%N)
    sleep 1 # the trace is put
    echo "$(((ended - begun) / 1000000)) ms, $(($(gets) - before)) GETs: $line"
    kill "$serving"
    wait "$serving" || true
    serving=
}
"$cairn" --config "$W/true.json" --state "$W/state0" init >/dev/null
"$cairn" --config "$W/true.json" --state "$W/state0" publish $id --from "$W/export" >/dev/null
for _ in 1 2 3; do restore false | sed 's/^/without: /'; done
restore true | sed 's/^/the first one, which leaves a trace: /'
for _ in 1 2 3; do restore true | sed 's/^/with it: /'; done
