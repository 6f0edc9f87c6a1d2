#!/bin/bash
# A real gateway that is killed with SIGKILL and started again in the middle of publish, fetch, ls and gc:
# the command gets over it within its deadline, or fails with a class that says "try again"; nothing
# committed is lost, all verifies, and what is left lying is the collector's.
# Run below tests/lib/rgw.sh run, which sets the environment. CAIRN_SEED chooses the moments.
# usage: kill_on_rgw.sh BUILD
set -u
# shellcheck source-path=SCRIPTDIR source=../fault/lib.sh
. "$(dirname "$0")/../fault/lib.sh"
: "${S3_ENDPOINT:?run this below tests/lib/rgw.sh run}" "${S3_BUCKET:?}" "${RGW_SH:?}" "${RGW_DIR:?}"
RANDOM=${CAIRN_SEED:=1}
MOMENTS=3
DEADLINE=60
hits=0

jq -n --arg p "kill-$$" --arg e "$S3_ENDPOINT" --arg b "$S3_BUCKET" '{checkpoint_store: {kind: "s3",
    s3: {bucket: $b, prefix: $p, endpoint: $e, region: "us-east-1", force_path_style: true}},
    gc_visibility_seconds: 0, gc_young_seconds: 0, generation_grace_seconds: 1,
    gc_dead_margin_seconds: 0}' >"$W/config.json"
cairn() { "$CAIRN" --config "$W/config.json" --state "$W/state" "$@"; }
# A host that has read nothing yet.
fresh() { rm -rf "$W/fresh" && "$CAIRN" --config "$W/config.json" --state "$W/fresh" "$@"; }
gateway() { "$RGW_SH" "$1" "$RGW_DIR" "${@:2}" || fail "the gateway does not $1"; }
now() { date +%s%N; }
same() { # ID DIR
    rm -rf "$W/out"
    fresh fetch "$1" --to "$W/out" >/dev/null 2>"$W/stderr" && diff -r "$W/out" "$2" >/dev/null
}
id() { printf 'ck_%016x' "$1"; }

declare -A committed # id -> folder
whole() { # WHAT
    local r
    for r in "${!committed[@]}"; do
        same "$r" "${committed[$r]}" && ok || fail "$1: $r is not what was committed: $(message)"
    done
    expect 0 "$1: verify" cairn verify --json && {
        jq -e '.ok and .unknown == []' "$W/stdout" >/dev/null && ok || fail "$1: $(cat "$W/stdout")"
    }
}

# during WHAT STATUSES COMMAND...: kill and restart the gateway at a moment of the command, which takes
# about $time ns; its status is one of these. $status is it.
during() {
    local what=$1 allowed=$2 at down pid
    shift 2
    at=$((time * (RANDOM % 900 + 50) / 1000000))
    down=$((RANDOM % 900 + 100))
    "$@" >"$W/stdout" 2>"$W/stderr" &
    pid=$!
    sleep "$(printf '%d.%06d' $((at / 1000000)) $((at % 1000000)))"
    # One that was quicker than the one that was timed: the next is hit earlier.
    if kill -0 $pid 2>/dev/null; then hits=$((hits + 1)); else time=$((time / 2)); fi
    gateway stop KILL
    sleep "0.$(printf %03d $down)"
    gateway start
    wait $pid
    status=$?
    case " $allowed " in
    *" $status "*) ok ;;
    *) fail "$what, killed after $((at / 1000)) ms for $down ms (seed $CAIRN_SEED): status $status: $(message)" ;;
    esac
}
# How long a command takes undisturbed.
timed() {
    local start
    start=$(now)
    "$@" >"$W/stdout" 2>"$W/stderr" || fail "$*: $(message)"
    time=$(($(now) - start))
}

expect 0 init cairn init
make_export "$W/one" 1 24000000
timed cairn publish "$(id 1)" --from "$W/one"
committed[$(id 1)]=$W/one

# Retrying carries a publish over the outage; if not, it says so and the same command does it later.
for i in $(seq $MOMENTS); do
    make_export "$W/p$i" $((10 + i)) 24000000
    printf '%d' "$i" >"$W/meta$i"
    publish=(cairn --timeout "$DEADLINE" publish "$(id $((16 + i)))" --from "$W/p$i" --meta "$W/meta$i")
    during "publish $i" "0 5 8" "${publish[@]}"
    [ "$status" = 0 ] || expect 0 "publish $i again" "${publish[@]}"
    committed[$(id $((16 + i)))]=$W/p$i
done
whole "after publishes"

timed fresh fetch "$(id 1)" --to "$W/fetched"
for i in $(seq $MOMENTS); do
    rm -rf "$W/fetched" "$W/fresh"
    during "fetch $i" "0 5 8" "$CAIRN" --config "$W/config.json" --state "$W/fresh" \
        --timeout "$DEADLINE" fetch "$(id 1)" --to "$W/fetched"
    if [ "$status" = 0 ]; then
        diff -r "$W/fetched" "$W/one" >/dev/null && ok || fail "fetch $i: other bytes"
    else
        [ ! -e "$W/fetched" ] && ok || fail "fetch $i failed and left its target"
    fi
done

for i in $(seq 40); do
    cairn fork "$(id 1)" "$(id $((256 + i)))" >/dev/null 2>"$W/stderr" || fail "fork $i: $(message)"
done
timed fresh ls --json
for i in $(seq $MOMENTS); do
    rm -rf "$W/fresh"
    during "ls $i" "0 5 8" "$CAIRN" --config "$W/config.json" --state "$W/fresh" \
        --timeout "$DEADLINE" ls --json
    if [ "$status" = 0 ]; then
        [ "$(jq '[.[] | select(.error == null)] | length' "$W/stdout")" = $((1 + MOMENTS + 40)) ] && ok ||
            fail "ls $i is short: $(jq -c '[.[] | select(.error)]' "$W/stdout")"
    fi
done

# Garbage for each sweep.
for i in $(seq 40); do cairn rm "$(id $((256 + i)))" >/dev/null 2>"$W/stderr" || fail "rm: $(message)"; done
time=300000000
for i in $(seq $MOMENTS); do
    make_export "$W/g" $((30 + i)) 3000000
    cairn publish $N --from "$W/g" >/dev/null 2>"$W/stderr" || fail "garbage $i: $(message)"
    cairn rm $N >/dev/null 2>"$W/stderr" || fail "rm: $(message)"
    sleep 1.1
    during "gc $i" "0 5 8" cairn --timeout "$DEADLINE" gc
done
whole "after sweeps"

# It stays away: the deadline ends the command, in one line that tells what was asked for.
gateway stop KILL
start=$(now)
cairn --timeout 3 ls >"$W/stdout" 2>"$W/stderr"
status=$? # which of the two depends on whether another try would still fit
[ $status = 5 ] || [ $status = 8 ] && ok || fail "ls without a gateway: status $status: $(message)"
[ $((($(now) - start) / 1000000)) -lt 10000 ] && ok || fail "ls without a gateway took longer than its deadline"
says "GET format.json" "ls without a gateway"
says "CURLE_COULDNT_CONNECT" "ls without a gateway"
says " attempts in " "ls without a gateway"
gateway start

# What died is the collector's: in the end nothing is left that nobody needs.
cairn rm "${!committed[@]}" >/dev/null 2>"$W/stderr" || fail "rm of all: $(message)"
for i in $(seq 12); do
    sleep 1.1
    expect 0 "the last gc $i" cairn gc || break
    [ "$(cairn stats --json | jq .packs)" != 0 ] || break
done
[ "$(cairn stats --json | jq .packs)" = 0 ] && ok || fail "packs are left: $(cairn stats)"
[ $hits -ge $((2 * MOMENTS)) ] && ok || fail "only $hits of $((4 * MOMENTS)) commands were at work when killed"
echo "$hits of $((4 * MOMENTS)) kills hit a command at work"
finish
