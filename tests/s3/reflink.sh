#!/bin/bash
# A state folder and a target on one XFS with reflinks: what a fetch downloads from a bucket is written
# once, into the cache, and shared with the target; the second fetch downloads nothing.
# usage: reflink.sh BUILD   (as root: mounts an image; needs mkfs.xfs, jq)
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
mount_xfs 600M
start_server '{"cache_bytes": "300M"}'

on() { # HOST COMMAND...: its state lies on the XFS
    "$CAIRN" --config "$W/config.json" --state "$W/xfs/$1" "${@:2}"
}
fetched() { # TARGET: bytes that were cloned
    on b fetch $A --to "$1" --json | jq -r .cloned_bytes
}
used() {
    sync -f "$W/xfs"
    df --output=used -B1 "$W/xfs" | tail -1
}

make_export "$W/one" 1 20000000
for ((i = 0; i < 8; i++)); do # compressible: decoded on the way
    random $((i + 50)) 8192 | cat - /dev/zero | head -c 65536
done >"$W/one/encoded"
expect 0 init on a init
expect 0 publish on a publish $A --from "$W/one"

before=$(used)
cloned=$(fetched "$W/xfs/out")
after=$(used)
[ "${cloned:-0}" -ge 19000000 ] && ok || fail "only ${cloned:-no} bytes cloned"
[ $((after - before)) -lt 24000000 ] && ok || fail "cache and copy took $((after - before)) bytes"
diff -r "$W/one" "$W/xfs/out" >/dev/null && ok || fail 'other bytes'
[ "$(stat -c %b "$W/xfs/out/disks/cow.raw")" -lt 8000 ] && ok || fail 'the hole is gone'

# Ours is ours: the cache does not change with it.
random 5 1000000 | dd of="$W/xfs/out/memory-ranges" bs=1M conv=notrunc status=none
: >"$W/log"
[ "$(fetched "$W/xfs/out2")" -ge 19000000 ] && ok || fail 'the second copy is not cloned'
diff -r "$W/one" "$W/xfs/out2" >/dev/null && ok || fail 'the second copy differs'
! grep -q 'GET p/packs/' "$W/log" && ok || fail "downloaded again: $(grep -c 'GET p/packs/' "$W/log") requests"

# To another file system: copied, and out of the cache as well.
: >"$W/log"
[ "$(fetched "$W/elsewhere")" = 0 ] && ok || fail 'cloned between file systems'
diff -r "$W/one" "$W/elsewhere" >/dev/null && ok || fail 'elsewhere: other bytes'
! grep -q 'GET p/packs/' "$W/log" && ok || fail 'elsewhere: downloaded again'

# What decays in the cache is found before it is cloned, and fetched again.
file=$(find "$W/xfs/b" -path '*/cache/packs/*' -type f | head -1)
printf 'XXXX' | dd of="$file" bs=1 seek=$((2097152 + 65536 * 20 + 5)) conv=notrunc status=none
: >"$W/log"
fetched "$W/xfs/out3" >/dev/null
diff -r "$W/one" "$W/xfs/out3" >/dev/null && ok || fail 'decay was cloned'
[ "$(grep -c 'GET p/packs/' "$W/log")" = 1 ] && ok || fail "decay: $(grep -c 'GET p/packs/' "$W/log") requests, not 1"
finish
