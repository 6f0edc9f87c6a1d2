#!/bin/bash
# Full disks: the store, the state, and a fetch's target each on a small tmpfs. A command that runs out
# of space says so (status 7), leaves nothing behind, hurts nothing that was there, and succeeds when it
# is run again with room. Also read-only stores, and stores on another file system than the state.
# usage: space.sh BUILD   (as root: mounts tmpfs; needs jq)
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

make_export "$W/one" 1 3000000
make_export "$W/big" 2 40000000
if ! mount_tmpfs store size=16m; then
    fail "no tmpfs can be mounted"
    finish
fi
used() { du -s --apparent-size --block-size=1 "$W/$1" | cut -f1; }
only_before() { # WHAT: the same records as before, whole, and no temp file
    [ "$(ids)" = "$A " ] && ok || fail "$1: records: $(ids)"
    [ -z "$(ls -A "$W/store/tmp" 2>/dev/null)" ] && ok || fail "$1: left: $(ls "$W/store/tmp")"
    same $A "$W/one" && ok || fail "$1: $A is not what it was"
    expect 0 "$1: verify" cairn verify
}

# --- The store is full -----------------------------------------------------------------------------
expect 0 init cairn init
expect 0 'a record that fits' cairn publish $A --from "$W/one"
expect 7 'a record that does not' cairn publish $N --from "$W/big"
says 'no_space' 'a record that does not'
only_before 'store full'
expect 7 'the same again' cairn publish $N --from "$W/big" --json
jq -e '.error.class == "no_space"' "$W/stdout" >/dev/null && ok || fail "no class in JSON"
expect 0 'a fork in a full store' cairn fork $A $F
expect 0 'rm in a full store' cairn rm $F
mount -o remount,size=64m "$W/store"
expect 0 'with room' cairn publish $N --from "$W/big"
same $N "$W/big" && ok || fail "$N is not what was published"

# Every size of a store from nothing to enough: wherever the space ends, the outcome is clean.
for kb in 4 8 16 64 100 200 400 800 1200 1600 2000 2400 2800 3000 3100 3200 3300 3400; do
    umount "$W/store"
    mount_tmpfs store size=${kb}k
    rm -rf "$W/state"
    cairn init >"$W/stdout" 2>"$W/stderr"
    status=$?
    if [ $status = 0 ]; then
        cairn publish $A --from "$W/one" --meta "$W/one/config.json" >"$W/stdout" 2>"$W/stderr"
        status=$?
        [ "$(ids)" = "$([ $status = 0 ] && echo "$A ")" ] || fail "$kb KiB: status $status, records: $(ids)"
    fi
    case $status in
    0 | 7) ok ;;
    *) fail "$kb KiB: status $status: $(cat "$W/stderr")" ;;
    esac
    mount -o remount,size=16m "$W/store"
    [ -e "$W/store/format.json" ] || expect 0 "$kb KiB: init with room" cairn init
    expect 0 "$kb KiB: publish with room" cairn publish $A --from "$W/one" --meta "$W/one/config.json"
    same $A "$W/one" && ok || fail "$kb KiB: $A is not whole"
    expect 0 "$kb KiB: verify" cairn verify
    cairn rm $A >/dev/null
done

# --- No inodes left ---------------------------------------------------------------------------------
umount "$W/store"
mount_tmpfs store size=16m,nr_inodes=9
expect 0 'init with few inodes' cairn init
expect 7 'no inodes left' cairn publish $A --from "$W/one"
[ -z "$(ids)" ] && ok || fail "no inodes left: records: $(ids)"

# --- The state is full: a store without an index still works -----------------------------------------
umount "$W/store"
rm -rf "$W/state" && mount_tmpfs state size=16k
head -c 20000 /dev/zero >"$W/state/fill" 2>/dev/null
expect 0 'init' cairn init
expect 0 'publish with a full state' cairn publish $A --from "$W/one"
same $A "$W/one" && ok || fail "state full: $A is not whole"
expect 0 'verify with a full state' cairn verify
umount "$W/state"

# --- The target of a fetch is full --------------------------------------------------------------------
mount_tmpfs small size=1m
expect 7 'fetch to a full disk' cairn fetch $A --to "$W/small/out"
[ -z "$(ls -A "$W/small")" ] && ok || fail "fetch left: $(ls -A "$W/small")"
# Wherever the space ends, some of the work that was handed out is still under way.
for kb in 4 64 500 1000 1500 2000 2400 2600 2800 2900 3000 3100; do
    umount "$W/small"
    mount_tmpfs small size=${kb}k
    expect 7 "fetch with $kb KiB" cairn fetch $A --to "$W/small/out"
    [ -z "$(ls -A "$W/small")" ] && ok || fail "fetch with $kb KiB left: $(ls -A "$W/small")"
done
mount -o remount,size=16m "$W/small"
expect 0 'fetch with room' cairn fetch $A --to "$W/small/out"
diff -r "$W/small/out" "$W/one" >/dev/null && ok || fail 'fetch with room: other bytes'

# --- Read-only ------------------------------------------------------------------------------------------
mkdir -p "$W/rw" && mv "$W/store" "$W/rw/store" && mkdir "$W/store"
mount --bind "$W/rw/store" "$W/store" && mount -o remount,bind,ro "$W/store"
expect 0 'ls of a read-only store' cairn ls
expect 0 'verify of a read-only store' cairn verify
expect 0 'fetch from a read-only store' cairn fetch $A --to "$W/out2"
diff -r "$W/out2" "$W/one" >/dev/null && ok || fail 'fetch from a read-only store: other bytes'
for c in "publish $N --from $W/one" "fork $A $F" "rm $A" "hold $A"; do
    # shellcheck disable=SC2086
    expect 1 "read-only store: $c" cairn $c
    says 'Read-only file system' "$c"
done
umount "$W/store"

# --- A store that vanished is never an empty one ----------------------------------------------------------
rm -rf "$W/store"
expect 3 'no store' cairn ls
says 'no store' 'no store'
finish
