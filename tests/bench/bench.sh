#!/bin/bash
# Cairn beside restic, borg, casync and cp on one chain of checkpoints, in one run.
#
#   bench.sh [OPTIONS] CHAIN WORK
#
# CHAIN holds ck0..ckN (vm-chain.sh makes a real one, synth-chain a made-up one). WORK is a scratch
# folder that must be absent or empty; it needs about six times the size of one checkpoint, and for
# a fair comparison it lies on the file system on which the store would. Left there at the end:
# raw.tsv (each single measurement) and report.md (medians, ratios, goals). docs/performance.md
# explains what is measured and why.
#
#   --cairn PROGRAM  a release build of cairn          (default: cairn of the PATH)
#   --runs N         runs, from which medians are made (default: 3)
#   --tools LIST     of cairn,cairn-none,restic,borg,casync,cp (default: all)
#   --xfs yes|no     the reflink part, as root only    (default: yes as root)
#   --cold yes|no    restores from a dropped page cache as well, as root only (default: no; it drops
#                    the caches of the whole machine)
#   --big GIB        memory use on a random file of that size as well (default: 0 = left out)
#   --strict         exit 1 on a missed goal too, not only on a failure or a difference
#
# Needs: time, and the tools of the list (Debian: time restic borgbackup casync); --xfs: xfsprogs;
# --big: openssl.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    sed -n '2,/^# --big: /s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
die() {
    echo "bench.sh: $*" >&2
    exit 1
}

cairn=cairn runs=3 tools=cairn,cairn-none,restic,borg,casync,cp big=0 strict=no xfs=no cold=no
[ "$(id -u)" != 0 ] || xfs=yes
while [ $# -gt 0 ]; do
    case $1 in
    --cairn | --runs | --tools | --xfs | --cold | --big)
        [ $# -ge 2 ] || usage
        declare "${1#--}=$2"
        shift
        ;;
    --strict) strict=yes ;;
    -*) usage ;;
    *) break ;;
    esac
    shift
done
[ $# = 2 ] || usage
[[ $runs =~ ^[1-9][0-9]*$ && $big =~ ^[0-9]+$ && $xfs =~ ^(yes|no)$ && $cold =~ ^(yes|no)$ ]] || usage
IFS=, read -r -a tools <<<"$tools"

# ---- What must be there --------------------------------------------------------------------------

has_tool() {
    local t
    for t in "${tools[@]}"; do
        [ "$t" != "$1" ] || return 0
    done
    return 1
}
need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null || missing+=("$1 (package $2)")
}
missing=()
[ -x /usr/bin/time ] || missing+=("/usr/bin/time (package time)")
for t in "${tools[@]}"; do
    case $t in
    cairn | cairn-none) need "$cairn" "built here: meson setup BUILD --buildtype=release" ;;
    restic) need restic restic ;;
    borg) need borg borgbackup ;;
    casync) need casync casync ;;
    cp) ;;
    *) usage ;;
    esac
done
if ! has_tool cairn; then
    xfs=no
fi
[ $xfs = no ] || need mkfs.xfs xfsprogs
[ "$big" = 0 ] || need openssl openssl
[ ${#missing[@]} = 0 ] || die "missing: $(printf '%s; ' "${missing[@]}")"
cairn=$(command -v "$cairn" || true)

chain=$(realpath -e -- "$1")
mkdir -p -- "$2"
work=$(realpath -e -- "$2")
[ -z "$(ls -A "$work")" ] || die "$work is not empty"
mapfile -t steps < <(find "$chain" -mindepth 1 -maxdepth 1 -name 'ck[0-9]*' -printf '%f\n' | sort -V)
[ "${steps[0]:-}" = ck0 ] || die "$chain holds no ck0"
last=${steps[-1]}

export HOME=$work/home XDG_CACHE_HOME=$work/home/cache RESTIC_PASSWORD=bench BORG_PASSPHRASE=bench
export BORG_BASE_DIR=$work/home BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes
restic_sparse=()
! has_tool restic || ! restic restore --help | grep -q -- --sparse || restic_sparse=(--sparse)

# ---- Measuring -----------------------------------------------------------------------------------

raw=$work/raw.tsv
failed=0 compared=0 mounted=
cleanup() {
    [ -z "$mounted" ] || umount "$mounted" || true
}
trap cleanup EXIT

say() {
    printf '%s\n' "$*" >&2
}
# row TOOL STEP WALL USER SYS RSS_KIB APPARENT ALLOCATED
row() {
    local IFS=$'\t'
    printf '%s\n' "$run	$*" >>"$raw"
}
# Exact size of the files below a folder, and what they take on the disk.
sizes() {
    local a b
    a=$(du -s -B1 --apparent-size -- "$1")
    b=$(du -s -B1 -- "$1")
    echo "${a%%[[:space:]]*} ${b%%[[:space:]]*}"
}
# measure TOOL STEP REPO COMMAND...: one row; REPO ("" = none) is measured after the command.
measure() {
    local tool=$1 step=$2 repo=$3 t0 t1 rc=0 us size="- -"
    shift 3
    sync -f "$work"
    t0=$EPOCHREALTIME
    /usr/bin/time -q -f '%U %S %M' -o "$work/time" "$@" >"$work/out" 2>"$work/log" || rc=$?
    t1=$EPOCHREALTIME
    if [ $rc != 0 ]; then
        say "FAILED ($rc): $*"
        tail -n 5 "$work/log" >&2
        failed=$((failed + 1))
        return 1
    fi
    us=$((${t1/./} - ${t0/./}))
    [ -z "$repo" ] || size=$(sizes "$repo")
    # shellcheck disable=SC2046,SC2086
    row "$tool" "$step" "$(printf '%d.%06d' $((us / 1000000)) $((us % 1000000)))" \
        $(cat "$work/time") $size
    say "$(printf 'run %s  %-10s %-12s %9.3f s' "$run" "$tool" "$step" "$((us))e-6")"
}
# verify TOOL STEP DIR: the restored tree is that of the last checkpoint.
verify() {
    local f n=0
    while IFS= read -r -d '' f; do
        if ! cmp -s -- "$chain/$2/$f" "$3/$f"; then
            say "DIFFERS: $1 $2/$f"
            failed=$((failed + 1))
        fi
        n=$((n + 1))
    done < <(cd "$chain/$2" && find . -type f -print0)
    if [ "$n" = 0 ] || [ "$n" != "$(find "$3" -type f | wc -l)" ]; then
        say "DIFFERS: $1 $2: $(find "$3" -type f | wc -l) files, not $n"
        failed=$((failed + 1))
    fi
    compared=$((compared + n))
}
warm() {
    find "$chain" -type f -exec cat {} + >/dev/null
}

# ---- The tools -----------------------------------------------------------------------------------

record_id() { # ckN -> the record's id
    printf 'ck_%016x' "${1#ck}"
}
cairn_at() { # DIR COMMAND...: sets cmd
    cmd=("$cairn" --store "$1/store" --state "$1/state" "${@:2}")
}
tool_init() { # TOOL DIR
    case $1 in
    cairn) cairn_at "$2" init ;;
    cairn-none) cairn_at "$2" init --compression none ;;
    restic)
        cmd=(restic -q -r "$2/store" init --repository-version 2)
        restic init --help | grep -q -- --repository-version || cmd=(restic -q -r "$2/store" init)
        ;;
    borg) cmd=(borg init -e none "$2/store") ;;
    casync) cmd=(mkdir "$2/store") ;;
    cp) cmd=(true) ;;
    esac
    "${cmd[@]}" >"$work/out" 2>"$work/log" || die "$1 init failed: $(tail -n 3 "$work/log")"
}
tool_store() { # TOOL DIR CK PREVIOUS: sets cmd
    local parent=()
    [ -z "$4" ] || parent=(--parent "$(record_id "$4")")
    case $1 in
    cairn | cairn-none)
        cairn_at "$2" publish "$(record_id "$3")" --from "$chain/$3" "${parent[@]}" --json
        ;;
    restic) cmd=(restic -q -r "$2/store" backup "$chain/$3") ;;
    borg) cmd=(env -C "$chain" borg create "$2/store::$3" "$3") ;;
    casync) cmd=(casync make --store="$2/store" "$2/$3.caidx" "$chain/$3") ;;
    esac
}
tool_restore() { # TOOL DIR CK TARGET: sets cmd, and restored: where the tree then is
    restored=$4
    case $1 in
    cairn | cairn-none) cairn_at "$2" fetch "$(record_id "$3")" --to "$4" ;;
    restic)
        cmd=(restic -q -r "$2/store" restore latest --target "$4" "${restic_sparse[@]}")
        restored=$4$chain/$3
        ;;
    borg)
        mkdir "$4"
        cmd=(env -C "$4" borg extract --sparse "$2/store::$3")
        restored=$4/$3
        ;;
    casync) cmd=(casync extract --store="$2/store" "$2/$3.caidx" "$4") ;;
    cp) cmd=(cp -r --sparse=always --reflink=never "$chain/$3" "$4") ;;
    esac
}
# Restore the last checkpoint into the page cache; onto the disk; from the disk.
restores() { # TOOL DIR
    tool_restore "$1" "$2" "$last" "$2/out"
    measure "$1" restore "" "${cmd[@]}" || return 1
    verify "$1" "$last" "$restored"
    rm -rf "$2/out"
    tool_restore "$1" "$2" "$last" "$2/out"
    # shellcheck disable=SC2016
    measure "$1" restore-synced "" sh -c 'to=$1; shift; "$@" && sync -f "$to"' sh "$2" \
        "${cmd[@]}" || return 1
    rm -rf "$2/out"
    [ $cold = yes ] || return 0
    tool_restore "$1" "$2" "$last" "$2/out"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    measure "$1" restore-cold "" "${cmd[@]}" || return 1
    rm -rf "$2/out"
}
one_tool() { # TOOL
    local tool=$1 dir=$work/$1 k previous=
    rm -rf "$dir"
    mkdir "$dir"
    warm
    tool_init "$tool" "$dir"
    if [ "$tool" != cp ]; then
        for k in "${steps[@]}"; do
            tool_store "$tool" "$dir" "$k" "$previous"
            measure "$tool" "store-$k" "$dir/store" "${cmd[@]}" || return 0
            [[ $tool != cairn* || $run != 1 ]] || echo "# $tool $k: $(cat "$work/out")" >>"$raw"
            previous=$k
        done
    fi
    restores "$tool" "$dir" || return 0
    if [ "$tool" = cairn ] && [ "$run" = 1 ]; then
        forks "$dir"
    fi
    rm -rf "$dir"
}

# ---- What only Cairn does ------------------------------------------------------------------------

forks() { # DIR: fork one record again and again; what starting the program and one fsync cost
    local i
    say "run $run  cairn      50 forks"
    exec 3>&2 2>/dev/null
    for i in $(seq 50); do
        cairn_at "$1" fork "$(record_id ck0)" "$(printf 'ck_%016x' $((0xf0000 + i)))"
        measure cairn fork-record "" "${cmd[@]}" || break
        measure cairn start "" "$cairn" version || break
        measure dd fsync "" dd if=/dev/zero of="$1/fsync" bs=4k count=1 conv=fsync || break
    done
    exec 2>&3 3>&-
    rm -f "$1/fsync"
}

# Fetch by reflink beside a copy, both inside one XFS.
on_xfs() {
    local dir=$work/xfs need_bytes
    need_bytes=$(($(sizes "$chain/ck0" | cut -d' ' -f2) * 5 + (2 << 30)))
    truncate -s "$need_bytes" "$work/xfs.img"
    mkfs.xfs -q -m reflink=1 "$work/xfs.img"
    mkdir "$dir"
    if ! mount -o loop "$work/xfs.img" "$dir" 2>"$work/log"; then
        say "no loop mount, the XFS part is left out: $(cat "$work/log")"
        return 0
    fi
    mounted=$dir
    cp -r --sparse=always "$chain/ck0" "$dir/ck0"
    cairn_at "$dir" init --compression none
    "${cmd[@]}"
    cairn_at "$dir" publish "$(record_id ck0)" --from "$dir/ck0"
    "${cmd[@]}" >/dev/null
    for run in $(seq "$runs"); do
        sync -f "$dir"
        find "$dir/ck0" "$dir/store" -type f -exec cat {} + >/dev/null
        measure cp xfs-copy "" cp -r --sparse=always --reflink=never "$dir/ck0" "$dir/copy"
        rm -rf "$dir/copy"
        sync -f "$dir"
        cairn_at "$dir" fetch "$(record_id ck0)" --to "$dir/fetched"
        measure cairn-none xfs-fetch "" "${cmd[@]}"
        verify cairn-none ck0 "$dir/fetched"
        rm -rf "$dir/fetched"
        sync -f "$dir"
        measure cp xfs-clone "" cp -r --reflink=always "$dir/ck0" "$dir/clone"
        rm -rf "$dir/clone"
    done
    umount "$dir"
    mounted=
    rm -f "$work/xfs.img"
}

# Peak memory on a file that is all new and does not compress.
on_big() {
    local dir=$work/big
    mkdir -p "$dir/ck0"
    head -c "$((big << 30))" /dev/zero |
        openssl enc -aes-128-ctr -K 00 -iv 00 -nosalt >"$dir/ck0/memory-ranges" 2>/dev/null
    run=1
    cairn_at "$dir" init
    "${cmd[@]}"
    cairn_at "$dir" publish "$(record_id ck0)" --from "$dir/ck0"
    measure cairn big-store "" "${cmd[@]}"
    cairn_at "$dir" fetch "$(record_id ck0)" --to "$dir/out"
    measure cairn big-restore "" "${cmd[@]}"
    cmp -- "$dir/ck0/memory-ranges" "$dir/out/memory-ranges" || failed=$((failed + 1))
    rm -rf "$dir"
}

# ---- The run -------------------------------------------------------------------------------------

{
    echo "# date: $(date -u +%Y-%m-%dT%H:%MZ)"
    echo "# cores: $(nproc), $(sed -n '/^model name/{s/.*: //p;q}' /proc/cpuinfo)"
    echo "# memory: $(awk '/^MemTotal/{printf "%d MiB", $2/1024}' /proc/meminfo)"
    echo "# kernel: Linux $(uname -r | cut -d. -f1,2)"
    echo "# file system: $(stat -f -c %T "$work")"
    ! has_tool cairn || echo "# cairn: $("$cairn" version | head -n 1)"
    ! has_tool restic || echo "# restic: $(restic version | cut -d' ' -f2)"
    ! has_tool borg || echo "# borg: $(borg --version | cut -d' ' -f2)"
    ! has_tool casync || echo "# casync: $(casync --version | head -n 1)"
    echo "# chain: ${#steps[@]} checkpoints, ck0: $(sizes "$chain/ck0") bytes (size, on disk)"
    echo "# load at the start: $(cut -d' ' -f1-3 /proc/loadavg)"
    printf 'run\ttool\tstep\twall_s\tuser_s\tsys_s\trss_kib\trepo_bytes\trepo_disk_bytes\n'
} >"$raw"

# Each run takes the tools in another order, so that none always follows the same neighbour.
for run in $(seq "$runs"); do
    for i in "${!tools[@]}"; do
        one_tool "${tools[$(((i + run - 1) % ${#tools[@]}))]}"
    done
done
[ $xfs = no ] || on_xfs
[ "$big" = 0 ] || on_big
echo "# load at the end: $(cut -d' ' -f1-3 /proc/loadavg)" >>"$raw"
rm -rf "${work:?}/home" "$work/time" "$work/out" "$work/log"

awk -f "$here/report.awk" "$raw" >"$work/report.md"
cat "$work/report.md"
echo
echo "$compared files compared, $failed failures; raw figures: $raw"
[ $failed = 0 ] || exit 1
[ $strict = no ] || ! grep -q '| MISS |' "$work/report.md"
