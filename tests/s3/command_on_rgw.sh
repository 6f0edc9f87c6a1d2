#!/bin/bash
# The whole command on a real object gateway, with either signature: what a directory store does, a
# bucket does. Run below tests/lib/rgw.sh run, which sets the environment.
# usage: command_on_rgw.sh BUILD
set -u
# shellcheck source-path=SCRIPTDIR source=../fault/lib.sh
. "$(dirname "$0")/../fault/lib.sh"
: "${S3_ENDPOINT:?run this below tests/lib/rgw.sh run}" "${S3_BUCKET:?}"

make_export "$W/one" 1 3000000
cp -a --sparse=always "$W/one" "$W/two"
random 77 200000 | dd of="$W/two/memory-ranges" bs=64K seek=9 conv=notrunc status=none

config() { # SIGNATURE PREFIX
    jq -n --arg s "$1" --arg p "$2" --arg e "$S3_ENDPOINT" --arg b "$S3_BUCKET" '{checkpoint_store:
        {kind: "s3", s3: {bucket: $b, prefix: $p, endpoint: $e, region: "us-east-1",
         force_path_style: true, signature: $s}}, gc_visibility_seconds: 0, gc_young_seconds: 0,
         generation_grace_seconds: 1, gc_dead_margin_seconds: 0}' >"$W/config.json"
}
cairn() { "$CAIRN" --config "$W/config.json" --state "$W/$node" --timeout 120 "$@"; }
back() { # ID DIR
    rm -rf "$W/out"
    cairn fetch "$1" --to "$W/out" >/dev/null && diff -r "$W/out" "$2" >/dev/null
}

# Times of objects are whole seconds there.
sweep() { # TIMES at most: until no pack is left
    local n
    for n in $(seq "$1"); do
        [ "$n" = 1 ] || sleep 1.1
        expect 0 "$what: gc $n" cairn gc || return
        [ "$(cairn stats --json | jq .packs)" != 0 ] || return
    done
}

try() { # SIGNATURE PREFIX
    local what="$1, prefix \"$2\""
    config "$1" "$2"
    node=a
    expect 0 "$what: init" cairn init
    expect 4 "$what: init again" cairn init
    expect 0 "$what: publish" cairn publish $A --from "$W/one" --digest
    expect 0 "$what: publish a successor" cairn publish $N --from "$W/two" --parent $A --json
    jq -e '.new_chunks > 0 and .new_chunks < 8' "$W/stdout" >/dev/null && ok || fail "$what: $(cat "$W/stdout")"
    expect 0 "$what: a template" cairn publish $T --from "$W/one"
    expect 4 "$what: a taken id" cairn publish $A --from "$W/two"
    node=b # another host
    expect 0 "$what: fork" cairn fork $N $F
    for r in "$A one" "$N two" "$F two" "$T one"; do
        # shellcheck disable=SC2086
        set -- $r
        back "$1" "$W/$2" && ok || fail "$what: $1 is not what was published"
    done
    cairn cat $N memory-ranges | cmp -s - "$W/two/memory-ranges" && ok || fail "$what: cat"
    [ "$(cairn ls --json | jq -r '[.[].id] | join(" ")')" = "$A $N $F $T" ] && ok || fail "$what: ls"
    expect 3 "$what: no such record" cairn show ck_ffffffffffffffff
    expect 0 "$what: hold" cairn hold $N
    expect 4 "$what: rm of a held record" cairn rm $N
    expect 0 "$what: release" cairn release $N
    expect 0 "$what: verify" cairn verify --json
    jq -e '.ok and .unknown == []' "$W/stdout" >/dev/null && ok || fail "$what: $(cat "$W/stdout")"
    node=a
    expect 0 "$what: publish the template again" cairn publish $T --from "$W/two"
    back $T "$W/two" && ok || fail "$what: the template is not the new one"
    expect 0 "$what: rm" cairn rm $A $N
    sweep 5
    back $F "$W/two" && back $T "$W/two" && ok || fail "$what: a sweep took too much"
    expect 0 "$what: verify after sweeps" cairn verify
    expect 0 "$what: rm of the rest" cairn rm $F $T
    sweep 12
    [ "$(cairn stats --json | jq .packs)" = 0 ] && ok || fail "$what: packs are left: $(cairn stats)"
}

try v4 'plain'
try v4 "a b+c=d&e%f(g)*h~i'j"
try v2 'old'
AWS_SECRET_ACCESS_KEY=wrongwrongwrong expect 1 'a wrong secret' cairn ls
grep -q wrongwrongwrong "$W/stderr" && fail 'the secret is in the message'
finish
