#!/bin/bash
# Counts that do not depend on how busy the machine is: instructions (callgrind) and system calls
# (strace) of each command on a small made-up chain, and instructions of a read of 64 KiB from the
# local cache, as the mount asks for it.
#
#   counts.sh BUILD [BASELINE] >counts.tsv
#
# Writes lines of COMMAND, WHAT, COUNT. With the output of an earlier run as BASELINE it adds that
# count and the ratio, and exits 1 if a count has grown by more than a tenth (and by more than 20).
# Instructions are those of valgrind's idea of the processor and of this machine's libraries:
# compare them on one machine. Debian: valgrind strace.
set -euo pipefail
export LC_ALL=C
[ $# = 1 ] || [ $# = 2 ] || {
    sed -n '2,/^# compare/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
build=$(realpath -e -- "$1")
baseline=${2:-}
[ -z "$baseline" ] || [ -r "$baseline" ] || {
    echo "counts.sh: $baseline is not readable" >&2
    exit 2
}
cairn=$build/cli/cairn synth=$build/tests/bench/synth-chain
reads=$build/tests/bench/cache-reads
shim=$build/tests/bench/libopenat2-shim.so # for valgrind, which lacks that call
for p in valgrind strace "$cairn" "$synth" "$reads" "$shim"; do
    command -v "$p" >/dev/null || {
        echo "counts.sh: $p is missing" >&2
        exit 2
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One worker: how threads meet would change the counts from run to run.
echo '{"workers": 1}' >"$work/config"
a=ck_000000000000000a b=ck_000000000000000b d=ck_000000000000000d
wanted='openat|openat2|fcntl|sync_file_range|close|read|pread64|write|pwrite64|lseek|fsync|fdatasync|renameat|renameat2|linkat|unlinkat|mkdirat|newfstatat|statx|getdents64|ioctl|copy_file_range|fallocate|ftruncate|mmap|futex'

commands() { # WRAPPER...: every command once, on a store of its own
    local name args
    rm -rf "$work/store" "$work/state" "$work/out"
    "$@" version "$cairn" version >"$work/stdout" 2>"$work/log" || return 1
    while read -r name args; do
        # shellcheck disable=SC2086
        "$@" "$name" "$cairn" --config "$work/config" --store "$work/store" --state "$work/state" \
            $args >"$work/stdout" 2>"$work/log" || {
            echo "counts.sh: $name failed: $(tail -n 3 "$work/log")" >&2
            return 1
        }
    done <<COMMANDS
init init
publish publish $a --from $work/chain/ck0
publish-parent publish $b --from $work/chain/ck1 --parent $a
fork fork $b $d
fetch fetch $b --to $work/out
cat cat $a memory-ranges
ls ls --json
COMMANDS
}
instructions() { # NAME COMMAND...
    local name=$1
    shift
    LD_PRELOAD=$shim valgrind -q --tool=callgrind --callgrind-out-file="$work/$name.callgrind" "$@" || return 1
    awk -v name="$name" '/^(totals|summary):/ { n = $2 } END { printf "%s\tinstructions\t%d\n", name, n }' \
        "$work/$name.callgrind" >>"$work/counts"
}
cached() { # NAME FUNCTION: of one chunk, among the 50 rounds of cache-reads over 128
    LD_PRELOAD=$shim CK_FORK=no CAIRN_BENCH_CHUNKS=128 valgrind -q --tool=callgrind --toggle-collect="$2" \
        --callgrind-out-file="$work/$1.callgrind" "$reads" >"$work/log" 2>&1 || {
        echo "counts.sh: cache-reads failed: $(tail -n 3 "$work/log")" >&2
        return 1
    }
    awk -v name="$1" '/^(totals|summary):/ { n = $2 } END { printf "%s\tinstructions\t%d\n", name, n / (50 * 128) }' \
        "$work/$1.callgrind" >>"$work/counts"
}
calls() { # NAME COMMAND...
    local name=$1
    shift
    strace -f -qq -c -U name,calls -o "$work/strace" "$@" || return 1
    awk -v name="$name" -v wanted="^($wanted)\$" \
        '$1 ~ wanted { printf "%s\t%s\t%d\n", name, $1, $2 }' "$work/strace" | sort >>"$work/counts"
}

"$synth" -m 16 -d 64 -n 1 "$work/chain"
: >"$work/counts"
commands instructions
cached cached-directory hit_directory
cached cached-bucket hit_bucket
commands calls
if [ -z "$baseline" ]; then
    cat "$work/counts"
    exit 0
fi
awk -F '\t' -v OFS='\t' '
    NR == FNR { before[$1, $2] = $3; next }
    {
        was = before[$1, $2] + 0
        print $1, $2, $3, was, was ? sprintf("%.2f", $3 / was) : "new"
        if ($2 != "futex" && $3 > was * 1.1 && $3 > was + 20) {
            print "counts.sh: more " $2 " in " $1 ": " $3 ", was " was >"/dev/stderr"
            worse = 1
        }
    }
    END { exit worse }' "$baseline" "$work/counts"
