#!/bin/bash
# A store and a target on one XFS with reflinks: a fetch shares blocks with the packs, the bytes are
# right, and what is written to the fetched files later does not reach the store.
# usage: reflink.sh BUILD   (as root: mounts an image; needs mkfs.xfs, jq)
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
mount_xfs 400M
cairn() { "$CAIRN" --store "$W/xfs/store" --state "$W/state" "$@"; }
fetched() { # TARGET: bytes that were cloned
    cairn fetch $A --to "$W/xfs/$1" --json | jq -r .cloned_bytes
}

make_export "$W/one" 1 20000000
head -c 300000 /dev/zero | tr '\0' x >"$W/one/encoded"
truncate -s 500000 "$W/one/encoded"
random 9 4096 | dd of="$W/one/encoded" bs=4096 seek=100 conv=notrunc status=none
for chunk in 4K 64K 1M; do
    rm -rf "$W/xfs/store" "$W/state" "$W"/xfs/out*
    expect 0 "$chunk: init" cairn init --chunk-size $chunk
    expect 0 "$chunk: publish" cairn publish $A --from "$W/one"
    before=$(df --output=used -B1 "$W/xfs" | tail -1)
    cloned=$(fetched out)
    # Short last chunks and encoded ones are written, all others cloned.
    [ "${cloned:-0}" -ge 19000000 ] && ok || fail "$chunk: only ${cloned:-no} bytes cloned"
    sync -f "$W/xfs"
    after=$(df --output=used -B1 "$W/xfs" | tail -1)
    [ $((after - before)) -lt 6000000 ] && ok || fail "$chunk: the copy took $((after - before)) bytes"
    diff -r "$W/one" "$W/xfs/out" >/dev/null && ok || fail "$chunk: other bytes"
    [ "$(stat -c %b "$W/xfs/out/disks/cow.raw")" -lt 8000 ] && ok || fail "$chunk: the hole is gone"
    # Ours is ours.
    random 5 1000000 | dd of="$W/xfs/out/memory-ranges" bs=1M conv=notrunc status=none
    rm -f "$W/xfs/out/disks/cow.raw"
    expect 0 "$chunk: verify" cairn verify
    fetched out2 >/dev/null
    diff -r "$W/one" "$W/xfs/out2" >/dev/null && ok || fail "$chunk: the second copy differs"
    # A damaged chunk is not cloned, either.
    pack=$(find "$W/xfs/store/packs" -type f | head -1)
    chmod u+w "$pack"
    printf 'X' | dd of="$pack" bs=1 seek=$((4096 * 300 + 5)) conv=notrunc status=none
    expect 6 "$chunk: a damaged chunk" cairn fetch $A --to "$W/xfs/out3"
    [ ! -e "$W/xfs/out3" ] && ok || fail "$chunk: a target with damage"
done
# To another file system: copied.
rm -rf "$W/xfs/store" "$W/state"
expect 0 'init' cairn init
expect 0 'publish' cairn publish $A --from "$W/one"
[ "$(cairn fetch $A --to "$W/elsewhere" --json | jq -r .cloned_bytes)" = 0 ] && ok || fail 'cloned between file systems'
diff -r "$W/one" "$W/elsewhere" >/dev/null && ok || fail 'elsewhere: other bytes'
finish
