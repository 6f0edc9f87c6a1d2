#!/bin/sh
# What a host daemon does with Cairn's service, in the least words: checkpoint a folder, branch a checkpoint,
# bring it back. Needs curl and jq. Every request is safe to send again, so whatever may pass is tried again.
#
#   host-daemon.sh checkpoint DIR [NAME [PARENT]]   prints the new id
#   host-daemon.sh branch ID [NAME]                 prints the new id
#   host-daemon.sh restore ID DIR                   DIR is made
#   host-daemon.sh list | delete ID
#
# CAIRN_SOCKET names the socket (/run/cairn/cairn.sock).
set -eu
socket=${CAIRN_SOCKET:-/run/cairn/cairn.sock}
tries=${CAIRN_TRIES:-10}

die() {
    echo "host-daemon: $*" >&2
    exit 1
}

# ask METHOD PATH [BODY]: the answer. Classes transient and timeout (503, 504), and a service that is being
# restarted, pass; everything else is final.
ask() {
    n=0
    while :; do
        answer=$(curl -sS --unix-socket "$socket" -X "$1" -w '\n%{http_code}' \
            ${3:+-H 'Content-Type: application/json' -d "$3"} "http://cairn$2" 2>&1) || answer=$answer'
000'
        status=$(printf %s "$answer" | tail -n 1)
        answer=$(printf %s "$answer" | sed '$d')
        case $status in
        2*) break ;;
        000 | 503 | 504) ;;
        *) die "$1 $2: $(printf %s "$answer" | jq -r '.error | .class + ": " + .message')" ;;
        esac
        n=$((n + 1))
        [ "$n" -lt "$tries" ] || die "$1 $2: $answer"
        sleep 1
    done
    printf '%s\n' "$answer"
}

new_id() { echo "ck_$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')"; }
# The meta says what a daemon wants to know later; to the store it is any bytes.
meta() { jq -cn --arg name "$1" --arg at "$(date -u +%FT%TZ)" '{name: $name, at: $at}'; }

checkpoint() { # DIR NAME PARENT
    [ -d "$1" ] || die "$1 is no folder"
    id=$(new_id)
    staged=$(ask POST "/v1/records/$id/stage")
    token=$(printf %s "$staged" | jq -r .token)
    staging=$(printf %s "$staged" | jq -r .path)
    # A VM tool would write its snapshot there itself.
    cp -R "$1" "$staging/export"
    body=$(jq -cn --arg token "$token" --argjson meta "$(meta "$2")" --arg parent "$3" \
        '{token: $token, meta: $meta} + if $parent == "" then {} else {parent: $parent} end')
    ask POST "/v1/records/$id/publish" "$body" >/dev/null
    echo "$id"
}

branch() { # ID NAME
    id=$(new_id)
    body=$(jq -cn --arg id "$id" --argjson meta "$(meta "$2")" '{new_id: $id, meta: $meta}')
    ask POST "/v1/records/$1/fork" "$body" >/dev/null
    echo "$id"
}

restore() { # ID DIR
    [ ! -e "$2" ] || die "$2 is there already"
    fetched=$(ask POST "/v1/records/$1/fetch" '{"lease_seconds": 600}')
    lease=$(printf %s "$fetched" | jq -r .lease)
    # The lease keeps the files while they are copied. A VMM that maps them would keep it for as long as it runs
    # (renew it), and copy nothing.
    trap 'ask DELETE "/v1/leases/$lease" >/dev/null' EXIT
    cp -R "$(printf %s "$fetched" | jq -r .path)" "$2"
    chmod -R u+w "$2"
}

list() { # a page at a time
    after=
    while :; do
        page=$(ask GET "/v1/records?after=$after")
        printf %s "$page" | jq -r '.records[] | [.id, .created // "-", .logical_bytes // .error.class] | @tsv'
        after=$(printf %s "$page" | jq -r '.next // ""')
        [ -n "$after" ] || break
    done
}

case ${1:-} in
checkpoint) checkpoint "${2:?DIR}" "${3:-}" "${4:-}" ;;
branch) branch "${2:?ID}" "${3:-}" ;;
restore) restore "${2:?ID}" "${3:?DIR}" ;;
list) list ;;
delete) ask DELETE "/v1/records/${2:?ID}" ;;
*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
