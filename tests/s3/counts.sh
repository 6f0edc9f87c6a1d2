#!/bin/bash
# How many requests each command makes on a bucket (docs/performance.md has the table): the fault server
# counts them. A host that knows nothing but the bucket is a state folder of its own.
# usage: counts.sh BUILD
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
start_server '{}'

on() { # HOST COMMAND...
    "$CAIRN" --config "$W/config.json" --state "$W/$1" "${@:2}"
}
# count MOST WHAT HOST COMMAND...: it succeeds in at most so many requests, packs counted apart: $packs
# are those that were put or asked for, each once.
count() {
    local most=$1 what=$2 fixed began=$SECONDS
    shift 2
    : >"$W/log"
    expect 0 "$what" on "$@" || return
    # A commit that comes more than 5 s after its first look at the record looks once more.
    [ $((SECONDS - began)) -lt 5 ] || most=$((most + 1))
    packs=$(grep -cE '^(PUT|HEAD) p/packs/' "$W/log")
    fixed=$(grep -cvE '^(PUT|HEAD) p/packs/' "$W/log")
    if [ "$fixed" -le "$most" ]; then ok; else fail "$what: $fixed requests, not $most: $(cat "$W/log")"; fi
    printf '%-44s %3d and %d of packs\n' "$what" "$fixed" "$packs"
    [ -z "$(grep -E '^(PUT|HEAD) p/packs/' "$W/log" | sort | uniq -d)" ] && ok || fail "$what: a pack twice: $(cat "$W/log")"
}

make_export "$W/one" 1 80000000 # two packs
cp -a --sparse=always "$W/one" "$W/two"
random 77 200000 | dd of="$W/two/memory-ranges" bs=64K seek=9 conv=notrunc status=none
expect 0 init on a init
expect 0 'a first publish, which learns what the bucket holds' on a publish "ck_00000000000000ff" --from "$W/two"

make_export "$W/new" 2 80000000
count 6 'publish' a publish $A --from "$W/new"
[ "$packs" = 2 ] && ok || fail "publish: $packs packs"
cp -a --sparse=always "$W/new" "$W/newer"
random 78 200000 | dd of="$W/newer/memory-ranges" bs=64K seek=9 conv=notrunc status=none
# The goal: at most 6, and one for each pack that the fork names, old or new.
count 6 'publish of a fork (--parent)' a publish $N --from "$W/newer" --parent $A
[ "$packs" = 3 ] && ok || fail "publish of a fork: $packs packs: $(cat "$W/log")"
expect 0 'another host learns of the packs' on b publish ck_00000000000000fe --from "$W/one"
count 8 'the same, the parent published elsewhere' b publish $F --from "$W/newer" --parent $A
count 8 'fork' a fork $N ck_00000000000000f0
count 3 'show' c show $N
# A read of a record that this host knows nothing of: format.json, meta, manifest, and one piece of a pack.
count 4 'first bytes of a cold record (cat)' d cat $N config.json
[ "$(grep -c 'GET p/packs' "$W/log")" = 1 ] && ok || fail "cat: $(cat "$W/log")"
# All of it: nothing is asked for twice, in pieces that shrink from 5 MB to 2 MiB.
: >"$W/log"
expect 0 fetch on e fetch $N --to "$W/out"
gets=$(grep -c '^GET p/packs' "$W/log") others=$(grep -cv '^GET p/packs' "$W/log")
printf '%-44s %3d and %d pieces of packs\n' 'fetch of 80 MB, cold' "$others" "$gets"
[ "$others" -le 3 ] && [ "$gets" -le 40 ] && ok || fail "fetch: $others requests and $gets pieces"
[ -z "$(grep '^GET p/packs' "$W/log" | sort | uniq -d)" ] && ok || fail "fetch: a piece twice"
count 4 'hold' c hold $N
count 3 'release' c release $N
[ $failed = 0 ] || grep . "$W/log"
finish
