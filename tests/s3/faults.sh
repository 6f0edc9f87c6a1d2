#!/bin/bash
# The command against a bucket that misbehaves: what each fault costs, which status it ends with, and that
# nothing half done is ever seen. The fault server does what it is told (tests/lib/s3_fault_server.h).
# usage: faults.sh BUILD
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_server '{}'

cairn() { "$CAIRN" --config "$W/config.json" --state "$W/state" "$@"; }
fresh() { rm -rf "$W/fresh" && "$CAIRN" --config "$W/config.json" --state "$W/fresh" "$@"; }
tell() { # to the server; it has done it when this returns
    local lines
    lines=$(wc -l <"$W/said")
    printf '%s\nstats\n' "$*" >&9
    for _ in $(seq 200); do [ "$(wc -l <"$W/said")" -gt "$lines" ] && return; sleep 0.02; done
    fail "the server does not answer"
}
rules() { # replaces all rules
    tell clear
    for r in "$@"; do tell "rule $r"; done
    : >"$W/log"
}
requests() { grep -c "${1:-.}" "$W/log"; }
same() { # ID DIR
    rm -rf "$W/out"
    fresh fetch "$1" --to "$W/out" >/dev/null 2>"$W/stderr" && diff -r "$W/out" "$2" >/dev/null
}
id() { printf 'ck_%016x' "$1"; }
# either STATUSES WHAT COMMAND...: one of these, with a message
either() {
    local want=$1 what=$2
    shift 2
    "$@" >"$W/stdout" 2>"$W/stderr"
    status=$?
    case " $want " in
    *" $status "*) [ -s "$W/stderr" ] && ok || fail "$what: no message" ;;
    *) fail "$what: status $status, not one of $want: $(message)" ;;
    esac
}

make_export "$W/one" 1 3000000
make_export "$W/big" 2 8000000
expect 0 init cairn init
expect 0 publish cairn publish $A --from "$W/one"

# --- Each write of a publish fails, for good or with its answer lost --------------------------------
n=0
for key in packs/ /export- /meta.json; do
    for how in 'status=500 code=InternalError' 'status=403 code=AccessDenied' 'inner=AccessDenied' 'status=507 bare'; do
        n=$((n + 1))
        make_export "$W/p" $((100 + n)) 300000
        printf '%d' $n >"$W/meta"
        publish=(cairn publish "$(id $n)" --from "$W/p" --meta "$W/meta")
        rules "PUT key=$key do $how"
        case $how in *500*) want='5 8' ;; *507*) want=7 ;; *) want=1 ;; esac
        either "$want" "PUT $key: $how" "${publish[0]}" --timeout 3 "${publish[@]:1}"
        grep -q "$key" "$W/stderr" && ok || fail "PUT $key: $how: the object is not named: $(message)"
        rules
        [ "$(ids)" = "$( ((n > 1)) && for k in $(seq $((n - 1))); do printf '%s ' "$(id "$k")"; done)$A " ] && ok ||
            fail "PUT $key: $how: listed: $(ids)"
        expect 0 "PUT $key: $how, again" "${publish[@]}"
        same "$(id $n)" "$W/p" && ok || fail "PUT $key: $how: not what was published: $(message)"
    done
done
# Carried out, and the answer lost: tried again, which changes nothing.
make_export "$W/p" 200 300000
rules 'PUT times=1 key=packs/ do nothing stored' 'PUT times=1 key=/export- do status=500 stored' \
    'PUT times=1 key=/meta.json do reset stored'
expect 0 'answers lost' cairn publish "$(id 200)" --from "$W/p"
rules
same "$(id 200)" "$W/p" && ok || fail 'answers lost: not what was published'

# --- Killed and asked to stop in the middle of an upload --------------------------------------------
for signal in TERM KILL; do
    make_export "$W/p" 21$((${#signal} % 2)) 300000
    rules 'PUT key=packs/ do delay=60000'
    cairn publish "$(id 300)" --from "$W/p" >"$W/stdout" 2>"$W/stderr" &
    pid=$!
    for _ in $(seq 200); do grep -q 'PUT p/packs/' "$W/log" && break; sleep 0.05; done
    kill -$signal $pid
    wait $pid 2>/dev/null
    status=$?
    [ $status = $((128 + $(kill -l $signal))) ] && ok || fail "SIG$signal: status $status: $(message)"
    rules
    fresh show "$(id 300)" >/dev/null 2>&1 && fail "SIG$signal: the record is there"
    [ -z "$(find "$W/state" -name 'spool-*')" ] && ok || fail "SIG$signal: files are left in the spool"
done
expect 0 'after the signals' cairn publish "$(id 300)" --from "$W/p"
same "$(id 300)" "$W/p" && ok || fail 'after the signals: not what was published'

# --- Bytes that are wrong ---------------------------------------------------------------------------
rules 'GET key=packs/ times=1 do flip=20000'
same $A "$W/one" && ok || fail "a bit flipped once is fetched again: $(message)"
rules 'GET key=packs/ do flip=20000'
rm -rf "$W/out"
expect 6 'a bit flipped for good' fresh fetch $A --to "$W/out"
says packs/ 'a bit flipped for good'
[ ! -e "$W/out" ] && ok || fail 'a bit flipped for good: the target is there'
rules 'GET key=/export- do cut=300' # which Content-Length agrees with
expect 6 'a cut manifest' fresh fetch $A --to "$W/out"
says /export- 'a cut manifest'
rules 'GET key=packs/ times=1 do close=1000' 'GET key=packs/ times=1 do claim=10' \
    'GET key=packs/ times=1 do norange' 'GET key=packs/ times=1 do status=429 bare' \
    'GET key=/export- times=1 do close=100' 'GET key=meta.json times=1 do status=502 bare' \
    'GET key=format.json times=1 do inner=InternalError'
same $A "$W/one" && ok || fail "one fault of each kind: $(message)"
# Throttled for a while: everybody slows down, and gets there.
make_export "$W/throttled" 3 3000000
rules 'ANY pct=60 times=12 do status=503 code=SlowDown'
cairn publish "$(id 600)" --from "$W/throttled" >"$W/stdout2" 2>"$W/stderr2" &
pid=$!
same $A "$W/one" && ok || fail "a fetch while throttled: $(message)"
wait $pid && ok || fail "a publish while throttled: $(cat "$W/stderr2")"
[ "$(requests)" -ge 20 ] && ok || fail "throttled: only $(requests) requests"
rules
same "$(id 600)" "$W/throttled" && ok || fail 'a publish while throttled: not what was published'
# Missing is what the server says is missing, and nothing else.
rules 'GET key=meta.json do status=503 code=SlowDown'
either '5 8' 'throttled is not missing' fresh --timeout 1 fetch $A --to "$W/out"
rules 'GET key=meta.json do status=404 code=NoSuchBucket'
expect 1 'no such bucket' fresh fetch $A --to "$W/out"
says NoSuchBucket 'no such bucket'

# --- Time -------------------------------------------------------------------------------------------
rules 'ANY do hole'
start=$(date +%s%N)
expect 5 'a black hole' cairn --timeout 1 ls
took=$((($(date +%s%N) - start) / 1000000))
[ $took -ge 950 ] && [ $took -lt 8000 ] && ok || fail "a black hole took $took ms of a second"
rules
expect 5 'a spent deadline' cairn --timeout 0 ls
[ "$(requests)" = 0 ] && ok || fail "a spent deadline sent $(requests) requests"

# --- No room for what waits to be sent ----------------------------------------------------------------
mkdir "$W/small"
if mount -t tmpfs -o size=3m cairn-test "$W/small" 2>/dev/null; then
    rules
    expect 7 'a full spool' "$CAIRN" --config "$W/config.json" --state "$W/small" publish "$(id 500)" --from "$W/big"
    fresh show "$(id 500)" >/dev/null 2>&1 && fail 'a full spool: the record is there'
    [ "$(requests '^PUT p/records')" = 0 ] && ok || fail 'a full spool: something was put'
    mount -o remount,size=64m "$W/small"
    expect 0 'with room' "$CAIRN" --config "$W/config.json" --state "$W/small" publish "$(id 500)" --from "$W/big"
    umount "$W/small"
    same "$(id 500)" "$W/big" && ok || fail 'with room: not what was published'
else
    skipped=$((skipped + 1))
fi

# --- Who asks, where, and when ----------------------------------------------------------------------
rules
tell 'skew 7200'
expect 0 'a clock two hours off' fresh show $A
tell 'skew 0'
tell 'region eu-west-3'
expect 0 'another region' fresh show $A
tell 'region us-east-1'
printf '[default]\naws_access_key_id=key\naws_secret_access_key=secret\n' >"$W/credentials"
(
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    export AWS_SHARED_CREDENTIALS_FILE=$W/credentials AWS_CONFIG_FILE=$W/none
    rules 'PUT key=packs/ times=1 do delay=1500'
    "$CAIRN" --config "$W/config.json" --state "$W/state" publish "$(id 400)" --from "$W/p" \
        >"$W/stdout" 2>"$W/stderr" &
    pid=$!
    printf '[default]\naws_access_key_id=key2\naws_secret_access_key=secret2\naws_session_token=tok\n' >"$W/new"
    for _ in $(seq 200); do grep -qE 'GET p/records' "$W/log" && break; sleep 0.02; done
    mv "$W/new" "$W/credentials"
    tell 'rotate key2 secret2 tok'
    wait $pid
) && ok || fail "rotated in the middle of a publish: $(message)"
AWS_ACCESS_KEY_ID=key expect 1 'expired credentials, and no others' cairn ls
says ExpiredToken 'expired credentials, and no others'
grep -q secret "$W/stderr" && fail 'a secret is in the message'
export AWS_ACCESS_KEY_ID=key2 AWS_SECRET_ACCESS_KEY=secret2 AWS_SESSION_TOKEN=tok

# --- A sweep that cannot see all deletes nothing; keys that are not deleted are told ----------------
rules 'LIST key=records/ do status=500'
either '5 8' 'a sweep whose listing fails' cairn --timeout 1 gc
[ "$(requests '^POST\|^DELETE')" = 0 ] && ok || fail 'a sweep whose listing fails: it deleted'
rules 'GET key=/export- do cut=200'
either '6' 'a sweep that finds a cut manifest' fresh gc
[ "$(requests '^POST\|^DELETE')" = 0 ] && ok || fail 'a sweep that finds a cut manifest: it deleted'
rules 'DELETE do status=403 code=AccessDenied' 'POST do keep=records/ code=AccessDenied'
expect 1 'an rm that is refused' cairn rm "$(id 1)"
says AccessDenied 'an rm that is refused'
rules
expect 0 'the rm again' cairn rm "$(id 1)"
expect 0 'verify in the end' cairn verify --json
jq -e '.ok and .unknown == []' "$W/stdout" >/dev/null && ok || fail "verify: $(cat "$W/stdout")"
finish
