#!/bin/bash
# How long the service takes to answer: a warm fetch, show, a page of 1,000 records, the fork of a record with
# an image of 1 GiB; alone, and beside sweeps that follow one another on a store of 10,000 records (as gc.sh makes
# it), in turn, so that the machine's mood counts for both. One connection, one request at a time.
# usage: service.sh BUILD [PAIRS [REQUESTS [WHAT...]]]      (health fetch show meta list fork)
set -eu
BUILD=$(cd "${1:?usage: $0 BUILD [PAIRS [REQUESTS [WHAT...]]]}" && pwd)
pairs=${2:-5} n=${3:-2000}
whats=(health fetch show meta list fork)
[ $# -lt 4 ] || whats=("${@:4}")
W=$(mktemp -d "${TMPDIR:-/tmp}/cairn-bench-service-XXXXXX")
pid=
trap '[ -z "$pid" ] || kill "$pid"; wait; rm -rf "$W"' EXIT
SOCKET=$W/state/cairn.sock BIG=ck_fffffffffffffff1
cairn() { "$BUILD/cli/cairn" --store "$W/store" --state "$W/state" --config "$W/config.json" "$@"; }
ask() { curl -sS --fail --unix-socket "$SOCKET" -H 'Content-Type: application/json' "http://x$1" "${@:2}"; }

echo '{"log_level": "warning", "sweep_interval_seconds": 2592000}' >"$W/config.json"
cairn init --compression none >/dev/null
"$BUILD/tests/bench/synth-store" "$W/store" 10000 100
mkdir "$W/vm"
openssl enc -aes-128-ctr -K 1 -iv 0 -nosalt -in /dev/zero 2>/dev/null | head -c 1G >"$W/vm/memory"
cairn publish -q "$BIG" --from "$W/vm"
"$BUILD/cli/cairn" --store "$W/store" --state "$W/state" --config "$W/config.json" serve >"$W/log" 2>&1 &
pid=$!
until ask /healthz >/dev/null 2>&1; do sleep 0.1; done
ask /v1/gc -X POST >/dev/null
ask "/v1/records/$BIG/fetch" -d '{}' >/dev/null
rm -r "$W/vm"
sleep 3

cat >"$W/fetch" <<A
fetch 200 POST /v1/records/$BIG/fetch {"lease_seconds": 1}
A
cat >"$W/show" <<A
show 200 GET /v1/records/$BIG
A
cat >"$W/meta" <<A
meta 200 GET /v1/records/$BIG/meta
A
cat >"$W/list" <<A
list 200 GET /v1/records?limit=1000
A
cat >"$W/health" <<A
health 200 GET /healthz
A
# Forks that were made are deleted, so that the store stays as large as it was.
forks=0
ask_fork() {
    echo "fork 201 POST /v1/records/$BIG/fork {\"new_id\": \"ck_e$(printf %07x $forks)@08\", \"meta\": {\"n\": \"$forks.@08\"}}" >"$W/fork"
    forks=$((forks + 1))
}
drop_forks() {
    curl -s --unix-socket "$SOCKET" "http://x/v1/records?prefix=ck_e&limit=10000" | jq -r '.records[].id' |
        sed 's/.*/delete 204 DELETE \/v1\/records\/&/' >"$W/all"
    split -l 250 "$W/all" "$W/drop."
    for part in "$W"/drop.*; do
        "$BUILD/tests/service/load" "$SOCKET" 1 "$(wc -l <"$part")" <"$part" >/dev/null
        rm "$part"
    done
}
# One after the other until $W/enough is there. One process and one connection: whatever asks by starting
# curl and jq takes more of two cores than a sweep does.
sweeps() {
    python3 - "$SOCKET" "$W/enough" <<'A' >"$W/sweeps"
import http.client, json, os, socket, sys, time

c = http.client.HTTPConnection("x")
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect(sys.argv[1])


def ask(method):
    c.request(method, "/v1/gc")
    return json.loads(c.getresponse().read())


count = 0
while not os.path.exists(sys.argv[2]):
    ask("POST")
    while ask("GET")["running"]:
        time.sleep(0.02)
    count += 1
print(count)
A
}
count_of() { case $1 in fork) echo $((n / 10)) ;; list) echo $((n / 10)) ;; *) echo "$n" ;; esac }
measure() { # WHAT: "p50 p99" in microseconds
    [ "$1" != fork ] || ask_fork
    "$BUILD/tests/service/load" "$SOCKET" 1 "$(count_of "$1")" <"$W/$1" >"$W/line"
    sed 's/.*p50=\([0-9]*\) p99=\([0-9]*\).*/\1 \2/' "$W/line"
    [ "$1" != fork ] || drop_forks
}
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

echo "load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) cores; microseconds, medians of $pairs rounds"
printf '%-8s %9s %9s %11s %11s %10s\n' '' p50 p99 'p50 sweep' 'p99 sweep' 'p99 ratio'
for what in "${whats[@]}"; do
    measure "$what" >/dev/null
    : >"$W/alone"
    : >"$W/beside"
    for _ in $(seq "$pairs"); do
        measure "$what" >>"$W/alone"
        rm -f "$W/enough"
        sweeps &
        sweeper=$!
        sleep 0.3
        measure "$what" >>"$W/beside"
        : >"$W/enough"
        wait "$sweeper"
    done
    printf '%-8s %9s %9s %11s %11s %10s\n' "$what" \
        "$(cut -d' ' -f1 "$W/alone" | median)" "$(cut -d' ' -f2 "$W/alone" | median)" \
        "$(cut -d' ' -f1 "$W/beside" | median)" "$(cut -d' ' -f2 "$W/beside" | median)" \
        "$(paste -d' ' "$W/alone" "$W/beside" | awk '{ printf "%.2f\n", $4 / $2 }' | median)"
done
[ ! -s "$W/log" ] || head -3 "$W/log"
echo "load $(cut -d' ' -f1-3 /proc/loadavg)"
