# shellcheck shell=bash
# What the fault tests share: a scratch folder, one small store, exports that depend on a seed, and the
# counting of cases. Sourced with BUILD as the first argument of the script.

BUILD=$(cd "${1:?usage: $0 BUILD}" && pwd) || exit 1
CAIRN=$BUILD/cli/cairn
W=$(mktemp -d "${TMPDIR:-/tmp}/cairn-fault-XXXXXX") || exit 1
passed=0 failed=0 skipped=0
# Whatever is mounted below it goes, too.
cleanup() {
    cd / || exit
    awk -v w="$W/" 'index($5, w) == 1 { print $5 }' /proc/self/mountinfo | tac |
        while read -r m; do umount -l "$m"; done
    rm -rf "$W"
}
trap cleanup EXIT

# shellcheck disable=SC2034
A=ck_00000000000000aa N=ck_00000000000000bb F=ck_00000000000000cc
# shellcheck disable=SC2034
T=tp_000000000000000000000000000000dd

ok() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "not ok: $*"
}
# The last command's last line, or the whole of a sanitizer's report.
message() { if grep -q Sanitizer "$W/stderr"; then cat "$W/stderr"; else tail -1 "$W/stderr"; fi; }
# expect STATUS WHAT COMMAND...
expect() {
    local want=$1 what=$2 got
    shift 2
    "$@" >"$W/stdout" 2>"$W/stderr"
    got=$?
    if [ "$got" = "$want" ]; then
        ok
    else
        fail "$what: status $got, not $want: $(message)"
        return 1
    fi
}
# says TEXT WHAT: the last command's message has it
says() {
    if grep -qF -- "$1" "$W/stderr"; then ok; else fail "$2: no \"$1\" in: $(cat "$W/stderr")"; fi
}
finish() {
    local more=
    [ $skipped = 0 ] || more=", $skipped skipped"
    echo "$passed passed, $failed failed$more"
    [ $failed = 0 ]
    exit
}

cairn() { "$CAIRN" --store "$W/store" --state "$W/state" "$@"; }

# random SEED BYTES: the same bytes for the same seed
random() {
    openssl enc -aes-128-ctr -K "$(printf '%032x' "$1")" -iv 0 -nosalt -in /dev/zero 2>/dev/null |
        head -c "$2"
}
# make_export DIR SEED [BYTES]: nested, sparse, one file empty
make_export() {
    mkdir -p "$1/disks"
    printf '{"n":%d}' "$2" >"$1/config.json"
    random "$2" "${3:-2500000}" >"$1/memory-ranges"
    truncate -s 64M "$1/disks/cow.raw"
    dd if="$1/memory-ranges" of="$1/disks/cow.raw" bs=64K count=3 seek=200 conv=notrunc status=none
    : >"$1/empty"
}
# same ID DIR: the record is that export, byte for byte
same() {
    rm -rf "$W/out"
    cairn fetch "$1" --to "$W/out" >/dev/null && diff -r "$W/out" "$2" >/dev/null
}
ids() { cairn ls --json | jq -r '.[] | select(.error == null) | .id' | tr '\n' ' '; }
unreadable() { cairn ls --json | jq -r '.[] | select(.error != null) | .id' | tr '\n' ' '; }
mount_tmpfs() { mkdir -p "$W/$1" && mount -t tmpfs -o "$2" cairn-test "$W/$1"; } # NAME OPTIONS
# mount_xfs SIZE: one that shares blocks, at $W/xfs; where there is none, the script ends as skipped
mount_xfs() {
    truncate -s "$1" "$W/image"
    mkdir "$W/xfs"
    if ! mkfs.xfs -q -m reflink=1 "$W/image" >"$W/mkfs" 2>&1 || ! mount -o loop "$W/image" "$W/xfs" 2>"$W/mount"; then
        echo "skipped: no XFS image can be mounted here: $(cat "$W/mkfs" "$W/mount" 2>/dev/null)"
        exit 77
    fi
}
