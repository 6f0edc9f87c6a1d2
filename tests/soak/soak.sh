#!/bin/bash
# Several processes on one store publish exports that share nine tenths of their chunks, fork,
# publish again, delete, fetch and verify, while two nodes sweep with waits of seconds, and random
# processes are stopped for longer than those waits. Nothing that was committed may ever fail to
# verify; when all is quiet, sweeps alone make an end of the garbage.
# usage: soak.sh BUILD [SECONDS [SEED]]      (default 60 seconds; SOAK_SECONDS counts as well)
set -u
BUILD=$(cd "${1:?usage: $0 BUILD [SECONDS [SEED]]}" && pwd) || exit 1
SECONDS_TO_RUN=${2:-${SOAK_SECONDS:-60}}
SEED=${3:-${SOAK_SEED:-$((RANDOM * 32768 + RANDOM))}}
CAIRN=$BUILD/cli/cairn
W=$(mktemp -d "${TMPDIR:-/tmp}/cairn-soak-XXXXXX") || exit 1
echo "seed $SEED, $SECONDS_TO_RUN seconds"

pids=()
cleanup() {
    local p
    for p in "${pids[@]}"; do kill -CONT "$p" 2>/dev/null; kill -KILL "$p" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$W"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Waits of a second or two. A sweep must not hold what is younger than a publish needs.
cat >"$W/config.json" <<'JSON'
{"generation_grace_seconds": 1, "gc_visibility_seconds": 0, "gc_young_seconds": 1,
 "gc_dead_margin_seconds": 1, "workers": 1}
JSON
# Each node has a state folder of its own; stops are for longer than grace and margin.
cairn() { # NODE ARGUMENT...
    local node=$1
    shift
    exec "$CAIRN" --config "$W/config.json" --store "$W/store" --state "$W/state-$node" "$@"
}
random() { openssl enc -aes-128-ctr -K "$(printf '%032x' "$1")" -iv 0 -nosalt -in /dev/zero 2>/dev/null | head -c "$2"; }
say() { echo "$*" >>"$W/faults"; }
: >"$W/faults"

(cairn a init --chunk-size 4K) >/dev/null || exit 1
random $((SEED + 1)) 900000 >"$W/common"
# export DIR N: nine tenths are common, one is N's
export_of() {
    mkdir -p "$1" && cp "$W/common" "$1/memory" && random $((SEED + 1000 + $2)) 100000 >"$1/disk"
}
# The record that stays, so that the store is never empty.
export_of "$W/keep" 0
KEEP=ck_ffffffffffffffff
(cairn a publish $KEEP --from "$W/keep") >/dev/null || exit 1

# Exit codes that another process may cause: not found, busy, transient.
expected() {
    case $1 in 0 | 3 | 4 | 8) return 0 ;; esac
    return 1
}
checked() { # WHAT NODE ARGUMENT...
    local what=$1 status
    shift
    (cairn "$@") >/dev/null 2>"$W/err.$BASHPID"
    status=$?
    expected $status || say "$what: status $status: $(tail -1 "$W/err.$BASHPID")"
    rm -f "$W/err.$BASHPID"
    return $status
}
# A sweep that was stopped while it moved chunks of the record keeps it busy until it goes on.
removed() { # NODE ID
    local status
    for _ in $(seq 60); do
        checked rm "$1" rm "$2"
        status=$?
        [ $status = 4 ] || break
        sleep 0.5
    done
    [ $status = 0 ] || say "rm of $2 failed: status $status"
}
# A record of one's own comes back as it was published.
fetched_is() { # NODE ID DIR
    local out=$W/out.$2.$BASHPID
    rm -rf "$out"
    (cairn "$1" fetch "$2" --to "$out") >/dev/null 2>"$out.err" ||
        { say "fetch of $2, which was committed: $(tail -1 "$out.err")"; return; }
    diff -r "$out" "$3" >/dev/null || say "$2 is not what was published"
    rm -rf "$out" "$out.err"
}

worker() { # NUMBER NODE
    local me=$1 node=$2 i=0 id fork t
    RANDOM=$((SEED + me))
    local template
    template=$(printf 'tp_%032x' "$me")
    while [ ! -e "$W/stop" ]; do
        i=$((i + 1))
        id=$(printf 'ck_%08x%08x' "$me" $i)
        fork=$(printf 'ck_%08x%08x' $((me + 100)) $i)
        t=$W/w$me
        rm -rf "$t"
        export_of "$t" $((me * 100 + RANDOM % 5))
        if checked publish "$node" publish "$id" --from "$t"; then
            fetched_is "$node" "$id" "$t"
            if checked fork "$node" fork "$id" "$fork"; then
                removed "$node" "$id"
                fetched_is "$node" "$fork" "$t"
                removed "$node" "$fork"
            fi
        fi
        printf '%d %d' "$me" $((RANDOM % 3)) >"$W/meta$me"
        rm -rf "$W/t$me"
        export_of "$W/t$me" $((me * 100 + 50 + $(cut -d' ' -f2 "$W/meta$me")))
        if checked republish "$node" publish "$template" --from "$W/t$me" --meta "$W/meta$me"; then
            fetched_is "$node" "$template" "$W/t$me"
        fi
        [ $((i % 4)) != 0 ] || fetched_is "$node" $KEEP "$W/keep"
    done
    echo "$i" >"$W/done$me"
}
sweeper() { # NODE
    local status
    while [ ! -e "$W/stop" ]; do
        (cairn "$1" gc --json) >>"$W/gc-$1.log" 2>"$W/gc-$1.err"
        status=$?
        expected $status || say "sweep of $1: status $status: $(tail -1 "$W/gc-$1.err")"
    done
}
# Stop a random cairn process of ours for longer than any wait.
stopper() {
    RANDOM=$((SEED + 99))
    local all pid n=0
    while [ ! -e "$W/stop" ]; do
        mapfile -t all < <(pgrep -f -- "--store $W/store" | grep -vx "$BASHPID")
        if [ ${#all[@]} -gt 0 ]; then
            pid=${all[RANDOM % ${#all[@]}]}
            if kill -STOP "$pid" 2>/dev/null; then
                n=$((n + 1))
                sleep "$((2 + RANDOM % 3)).5"
                kill -CONT "$pid" 2>/dev/null
            fi
        fi
        sleep 0.0$((RANDOM % 9))
    done
    echo $n >"$W/stops"
}
for w in 1 2 3 4; do
    if [ $((w % 2)) = 0 ]; then node=a; else node=b; fi
    worker $w $node &
    pids+=($!)
done
sweeper a & pids+=($!)
sweeper b & pids+=($!)
for _ in 1 2; do stopper & pids+=($!); done
end=$((SECONDS + SECONDS_TO_RUN))
while [ $SECONDS -lt $end ] && [ ! -s "$W/faults" ]; do
    (cairn c verify) >"$W/verify" 2>&1
    case $? in
    0 | 3 | 8) ;;
    *) # what verify reads may be deleted or moved meanwhile: a fault is one that stays
        sleep 1
        (cairn c verify $KEEP) >"$W/verify" 2>&1 || say "verify of $KEEP: $(cat "$W/verify")" ;;
    esac
    sleep 1
done
touch "$W/stop"
wait "${pids[@]}"

rounds=$(cat "$W"/done* 2>/dev/null | awk '{ s += $1 } END { print s + 0 }')
echo "$rounds rounds of 4 workers, $(wc -l <"$W/gc-a.log") and $(wc -l <"$W/gc-b.log") sweeps, $(cat "$W/stops" 2>/dev/null) stops by one of two"
(cairn c verify) >"$W/verify" 2>&1 || say "verify: $(cat "$W/verify")"
for i in 1 2 3 4 5 6 7 8; do
    sleep 1.5
    (cairn a gc) >"$W/last" 2>&1 || say "last sweeps: $(tail -1 "$W/last")"
done
(cairn c verify) >"$W/verify" 2>&1 || say "verify at the end: $(cat "$W/verify")"
left=$( (cairn a gc --dry-run) 2>&1 | grep '^would ')
[ -z "$left" ] || say "garbage is left: $left"
more=$(find "$W/store/pins" "$W/store/gc/closed" "$W/store/gc/dead" "$W/store/gc/intent" "$W/store/tmp" -type f 2>/dev/null | head -5)
[ -z "$more" ] || say "left: $more"
for w in 1 2 3 4; do
    id=$(printf 'tp_%032x' $w)
    [ ! -d "$W/store/records/$id" ] || [ "$(find "$W/store/records/$id" -name 'export-*' | wc -l)" = 1 ] ||
        say "$id keeps generations: $(ls "$W/store/records/$id")"
done
[ "$rounds" -gt 0 ] || say "no worker got anywhere"
if [ -s "$W/faults" ]; then
    head -20 "$W/faults"
    echo "seed $SEED"
    echo "0 passed, $(wc -l <"$W/faults") failed"
    exit 1
fi
echo "1 passed, 0 failed"
