#!/bin/bash
# A sweep of a store that is full: packs that were buried before are deleted, and what could not be
# marked is told and marked by the next sweep.
# usage: gc_space.sh BUILD   (as root: mounts tmpfs; needs jq)
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
cat >"$W/config.json" <<'JSON'
{"generation_grace_seconds": 1, "gc_visibility_seconds": 0, "gc_young_seconds": 0,
 "gc_dead_margin_seconds": 0}
JSON
cairn() { "$CAIRN" --config "$W/config.json" --store "$W/store" --state "$W/state" "$@"; }
packs() { find "$W/store/packs" -type f | wc -l; }
fill() { # blocks and inodes
    cat /dev/zero >"$W/store/tmp/filler" 2>/dev/null
    local i
    for i in $(seq 2000); do : >"$W/store/tmp/filler$i" || break; done 2>/dev/null
}
make_export "$W/one" 1 2000000
make_export "$W/two" 2 2000000
make_export "$W/three" 3 2000000
if ! mount_tmpfs store size=16m,nr_inodes=400; then
    fail "no tmpfs can be mounted"
    finish
fi
expect 0 init cairn init
expect 0 'one' cairn publish $A --from "$W/one"
expect 0 'two' cairn publish $N --from "$W/two"
expect 0 'rm' cairn rm $A
expect 0 'bury it' cairn gc
expect 0 'three' cairn publish $F --from "$W/three"
expect 0 'rm' cairn rm $F
[ "$(packs)" = 3 ] && ok || fail "$(packs) packs before, not 3"
sleep 1.1
fill
: 2>/dev/null >"$W/store/tmp/one-more" && fail "the store is not full"
cairn gc --json >"$W/stdout" 2>"$W/stderr"
status=$?
# Deleting a pack makes the room that marks need, so that either end is right.
case $status in 0 | 7) ok ;; *) fail "a sweep of a full store: status $status: $(cat "$W/stderr")" ;; esac
jq -e '.aborted == false and .packs_deleted == 1' "$W/stdout" >/dev/null && ok ||
    fail "a sweep of a full store: $(cat "$W/stdout")"
[ "$(packs)" = 2 ] && ok || fail "$(packs) packs after, not 2"
rm -f "$W/store/tmp/filler"*
expect 0 'with room' cairn gc
sleep 1.1
expect 0 'and once more' cairn gc
[ "$(packs)" = 1 ] && ok || fail "$(packs) packs at the end, not 1"
same $N "$W/two" && ok || fail "$N is not what was published"
expect 0 verify cairn verify

# A state folder on a full disk, without even room for the lock.
mkdir "$W/full"
mount -t tmpfs -o size=1m,nr_inodes=20 cairn-test "$W/full" || fail "no tmpfs can be mounted"
full() { "$CAIRN" --config "$W/config.json" --store "$W/store" --state "$W/full" "$@"; }
expect 0 'a state folder' full gc
rm "$W/full"/*/gc.lock "$W/full"/*/sweep.db*
cat /dev/zero >"$W/full/filler" 2>/dev/null
for i in $(seq 20); do : >"$W/full/filler$i" || break; done 2>/dev/null
expect 0 'a full state folder' full gc
expect 0 'rm' cairn rm $N
expect 0 'a full state folder' full gc --json
jq -e '.packs_closed == 1' "$W/stdout" >/dev/null && ok || fail "a full state folder: $(cat "$W/stdout")"
finish
