#!/bin/bash
# How fast a mount serves an image: lazily from a directory store whose packs are in the page cache,
# and from a copy in the cache (passthrough), beside the image itself. As root.
# usage: mount.sh BUILD [MIB [WORK]]     (default 1024, and a folder under $TMPDIR)
set -eu
BUILD=$(cd "${1:?usage: $0 BUILD [MIB [WORK]]}" && pwd)
mib=${2:-1024}
W=$(mktemp -d "${3:-${TMPDIR:-/tmp}}/cairn-bench-mount-XXXXXX")
M=$W/mnt
cleanup() {
    umount -l "$M" 2>/dev/null || true
    rm -rf "$W"
}
trap cleanup EXIT
bench=$BUILD/tests/bench/mount-bench
cairn() { "$BUILD/cli/cairn" --store "$W/store" --state "$W/state" "$@"; }
mkdir "$W/export" "$M"
openssl enc -aes-128-ctr -pass pass:1 -nosalt -pbkdf2 -in /dev/zero 2>/dev/null |
    head -c "${mib}M" >"$W/export/memory" || true
image=$W/export/memory
id=ck_0000000000000001

mounted() { # POLICY
    printf '{"materialise":"%s"}' "$1" >"$W/config.json"
    cairn --config "$W/config.json" mount "$M"
    shown=$(echo "$M/$id"/export-*/memory)
}
unmounted() {
    until fusermount3 -q -u "$M"; do sleep 0.1; done
}
# The copy itself, and the same through the mount: nine of each in turn, so that what else the
# machine does falls on both alike; medians, and the median of the quotients.
column() { awk "{ print $1 }" "$W/turns" | sort -n | sed -n 5p; }
# shellcheck disable=SC2016 # awk's
in_turn() {
    local _ copy
    copy=$(find "$W"/state/*/cache/files -type f ! -name '.*')
    for _ in 1 2 3 4 5 6 7 8 9; do
        echo "$("$bench" seq "$copy" | cut -d' ' -f1) $("$bench" seq "$shown" | cut -d' ' -f1)" \
            "$("$bench" fault "$copy" 20000 | sed 's/.*p50 \([0-9.]*\) .*/\1/')" \
            "$("$bench" fault "$shown" 20000 | sed 's/.*p50 \([0-9.]*\) .*/\1/')"
    done >"$W/turns"
    echo "native $(column '$1'), mount $(column '$2') GB/s ($(column '$2 / $1'));" \
        "fault p50 native $(column '$3'), mount $(column '$4') us ($(column '$4 / $3'))"
}
# Median of five.
seq_read() { for _ in 1 2 3 4 5; do "$1" && "$bench" seq "$2"; done | sort -n | sed -n 3p; }
drop_shown() { "$bench" drop "$shown"; }
keep() { :; }

cairn init >/dev/null
echo "publish $mib MiB: $( { TIMEFORMAT=%R; time cairn publish $id --from "$W/export" >/dev/null; } 2>&1) s"
cat "$image" >/dev/null
echo "native, warm                sequential $(seq_read keep "$image"), faults $("$bench" fault "$image" 20000)"

mounted never
find "$W/store/packs" -type f -exec cat {} + >/dev/null
echo "mount, lazy, packs warm     sequential $(seq_read drop_shown "$shown")"
drop_shown
echo "                            faults $("$bench" fault "$shown" 20000)"
echo "mount, in the page cache    sequential $(seq_read keep "$shown")"
unmounted

mounted always
cat "$shown" >/dev/null
until [ -n "$(find "$W"/state/*/cache/files -type f ! -name '.*')" ]; do sleep 0.2; done
sleep 1.2
cat "$shown" >/dev/null
echo "passthrough, in turn        $(in_turn)"
unmounted

forks=()
for i in $(seq 50); do
    fork=$(printf 'ck_%016x' $((i + 100)))
    cairn fork $id "$fork" >/dev/null
    forks+=("$fork")
done
# Pages in the page cache, of what is shown (each inode once) and of what lies below.
resident() { # FILE...
    [ $# = 0 ] || fincore -nbo RES "$@" | awk '{ n += $1 } END { printf "%d", n / 1048576 }'
}
below() { find "$W/store/packs" "$W"/state/*/cache -type f -size +1M; }
map_all() { # WHAT
    local files=() fork job inodes beneath
    sync
    echo 3 >/proc/sys/vm/drop_caches
    for fork in "${forks[@]}"; do files+=("$(echo "$M/$fork"/export-*/memory)"); done
    "$bench" map 8 "${files[@]}" >/dev/null &
    job=$!
    sleep 6
    inodes=$(stat -c %i "${files[@]}" | sort -u | wc -l)
    mapfile -t beneath < <(below)
    echo "50 forks, 50 processes, $1: $inodes inode, $(resident "${files[0]}") MiB resident of it," \
        "$(resident "${beneath[@]}") MiB of packs and cache"
    wait "$job" || true
}
mounted always
map_all "with a copy"
unmounted
rm -rf "$W"/state/*/cache
mounted never
map_all "lazily"
unmounted
