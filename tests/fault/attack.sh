#!/bin/bash
# Bad input and bad company: stores whose objects lie under right checksums, links, FIFOs and giants
# planted in them, staging folders full of traps, names made to be obeyed by a terminal, closed
# descriptors, limits. Every command ends, soon, with the status that fits; nothing outside of its
# folders is touched, and no byte is handed out that was not published.
# usage: attack.sh BUILD   (as root; needs jq, python3, cc)
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
trap 'chmod -R u+rwX "$W"; cleanup' EXIT
HOSTILE=$(cd "$(dirname "$0")" && pwd)/hostile.py
B=ck_00000000000000ee

# Nothing may hang: a command that has to be killed has status 137.
cairn() { timeout -s KILL 20 "$CAIRN" --store "$W/store" --state "$W/state" "$@"; }
plant() { python3 "$HOSTILE" "$W/store" "$@" || fail "planting $*"; }
fresh() {
    rm -rf "$W/store" "$W/state" "$W/out"
    cairn init -q && cairn publish -q $A --from "$W/one" --meta "$W/meta" &&
        cairn fork -q $A $F --meta "$W/meta-f" || fail 'a fresh store'
    R=$W/store/records/$A
    M=$(echo "$R"/export-*)
    P=$(find "$W/store/packs" -type f | head -1)
}
# every STATUS... : of show, fetch, cat, fork, rm
every() {
    local what=$1 c
    shift
    for c in "show $A" "fetch $A --to $W/out" "cat $A config.json" "fork $A $N" "rm $A"; do
        # shellcheck disable=SC2086
        expect "$1" "$what: $c" cairn $c
        shift
    done
    [ ! -e "$W/out" ] || rm -r "$W/out"
    expect 0 "$what: ls" cairn ls
    if grep -q "$F .* 4 *$" "$W/stdout"; then ok; else fail "$what: ls does not list the sound record"; fi
}
outside() { # WHAT: what lies outside is as it was
    [ "$(cat "$W/secret/shadow")" = secret ] && [ "$(ls -A "$W/secret")" = shadow ] && ok ||
        fail "$1: touched outside: $(ls -A "$W/secret")"
}
quiet() { # WHAT: no control byte in what the last command said
    if LC_ALL=C grep -q '[[:cntrl:]]' <(tr -d '\n\t' <"$W/stdout"; tr -d '\n' <"$W/stderr") ||
        LC_ALL=C grep -q $'\xc2\x9b' "$W/stdout" "$W/stderr"; then
        fail "$1: control bytes in the output"
    else
        ok
    fi
}

make_export "$W/one" 1 300000
echo '{"id":1}' >"$W/meta"
echo '{"id":2}' >"$W/meta-f"
mkdir "$W/secret" && echo secret >"$W/secret/shadow"

# --- Manifests and packs that lie ----------------------------------------------------------------
fresh
for lie in $(python3 "$HOSTILE" lies); do
    plant record "$lie" $B
    expect 6 "$lie: fetch" cairn fetch $B --to "$W/out"
    expect 6 "$lie: verify" cairn verify $B
    expect 6 "$lie: cat" cairn cat $B a
    [ -s "$W/stdout" ] && fail "$lie: cat wrote $(wc -c <"$W/stdout") bytes"
    [ ! -e "$W/out" ] && [ ! -e "$W/out-of-it" ] && [ ! -e /tmp/out-of-it ] && ok || fail "$lie: left files"
    rm -r "$W/store/records/$B"
done
for claim in sha xxh; do
    plant shared $A $B $claim
    expect 6 "verify finds another $claim of a chunk that is sound" cairn verify
    rm -r "$W/store/records/$B"
done
plant record huge $B
expect 1 'fetch 8 EiB' cairn fetch $B --to "$W/out"
[ "$(cairn cat $B a | head -c 70000 | wc -c)" = 70000 ] && ok || fail 'cat of 8 EiB'
plant record names $B
expect 0 'show hostile names' cairn show $B
quiet 'show hostile names'
expect 0 'fetch hostile names' cairn fetch $B --to "$W/out"
[ "$(find "$W/out" -type f -printf x | wc -c)" = 7 ] && ok || fail 'hostile names: not all there'
plant record deep $B
(ulimit -n 64 && cairn fetch $B --to "$W/deep" 2>/dev/null)
[ $? = 6 ] && [ -z "$(ls -dA "$W"/.deep* 2>/dev/null)" ] && ok || fail 'a fetch of 2000 levels left some'
# A pack of as many chunks on bases that are nowhere as fit: quadratic, it would take hours.
fresh
plant index-bomb
expect 0 'verify a pack of 838860 chunks' cairn verify
expect 5 'verify it in no time' cairn verify --timeout 0.01

# --- Settings that lie ---------------------------------------------------------------------------
for m in chunk_size=0 chunk_size=-1 chunk_size=4097 chunk_size=4294967296 chunk_size=65536.0 \
    min_reader=0 format=18446744073709551616 'compression="lz4"' 'secret="00"' 'cairn="x"' \
    'store_id="../../../../../../tmp/x00000000"'; do
    fresh
    plant format "$m"
    expect 6 "format.json: $m" cairn ls
done
fresh
plant format chunk_size=4096
expect 6 'another chunk size' cairn cat $A config.json

# --- Planted links, FIFOs, folders, giants -------------------------------------------------------
fresh && ln -sf "$W/secret/shadow" "$R/meta.json"
every 'meta a link' 1 1 1 1 1
outside 'meta a link'
fresh && rm -r "$R" && ln -s "$W/secret" "$R"
every 'record a link' 1 1 1 1 1
expect 1 'publish into a link' cairn publish $A --from "$W/one"
outside 'record a link'
fresh && rm -rf "$W/store/tmp" && ln -s "$W/secret" "$W/store/tmp"
every 'tmp a link' 0 0 0 1 1
outside 'tmp a link'
fresh && ln -s "$W/secret" "$W/store/holds"
expect 1 'hold into a link' cairn hold $A
expect 1 'rm where holds cannot be seen' cairn rm $A
expect 0 'fetch all the same' cairn fetch $A --to "$W/out"
outside 'holds a link'
fresh && rm "$R/meta.json" && mkfifo "$R/meta.json"
every 'meta a FIFO' 1 1 1 1 1
fresh && rm "$M" && mkfifo "$M"
every 'manifest a FIFO' 1 1 1 1 0
fresh && rm "$P" && mkfifo "$P"
every 'pack a FIFO' 0 1 1 1 0
fresh && rm "$W/store/format.json" && mkfifo "$W/store/format.json"
expect 1 'format.json a FIFO' cairn ls
fresh && mkdir -p "$W/store/gc/tomb" && mkfifo "$W/store/gc/tomb/$A"
expect 1 'tombstone a FIFO' cairn rm $A
fresh && rm "$R/meta.json" && mkdir "$R/meta.json"
expect 3 'meta a folder' cairn show $A
fresh && truncate -s 10G "$R/meta.json"
every 'meta of 10 GiB' 6 6 6 6 0
fresh && truncate -s 15G "$M" # as much as a manifest may have
SECONDS=0
every 'manifest of 15 GiB' 6 6 6 6 0
[ $SECONDS -lt 10 ] && ok || fail "manifest of 15 GiB: read, in $SECONDS s"
fresh && truncate -s 100G "$P"
expect 6 'pack of 100 GiB' cairn verify
fresh && truncate -s 100G "$W/store/format.json"
expect 6 'format.json of 100 GiB' cairn ls

# --- The local state -----------------------------------------------------------------------------
fresh
DB=$(echo "$W"/state/*/index.db)
python3 - "$DB" <<'PY' || fail 'no trigger'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("""CREATE TRIGGER t AFTER INSERT ON pack BEGIN SELECT (WITH RECURSIVE c(x) AS
    (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c); END""")
db.commit()
PY
make_export "$W/two" 2 300000
expect 0 'publish beside an endless trigger' cairn publish $N --from "$W/two"
rm "$DB"* && ln -s "$W/secret/shadow" "$DB"
expect 0 'index.db a link' cairn publish $T --from "$W/two"
outside 'index.db a link'
rm -f "$DB"* && mkfifo "$DB" "$DB-wal"
expect 0 'index.db a FIFO' cairn publish $T --from "$W/one"
same $T "$W/one" && ok || fail 'index.db a FIFO: other bytes'

# --- What is staged ------------------------------------------------------------------------------
fresh
mkdir "$W/trap"
for make in 'ln -s /etc/passwd' mkfifo 'mknod c 1 5'; do
    # shellcheck disable=SC2086
    set -- $make
    # shellcheck disable=SC2086
    if [ "$1" = mknod ]; then mknod "$W/trap/$(printf '\e[31m\302\233x\n\377')" $2 $3 $4; else
        $make "$W/trap/$(printf '\e[31m\302\233x\n\377')"; fi
    expect 1 "publish a trap: $make" cairn publish $N --from "$W/trap"
    quiet "publish a trap: $make"
    rm -r "$W/trap" && mkdir "$W/trap"
done
# Files that change by themselves: refused for what they are, or (4) for having changed.
cairn publish $N --from /proc/self/net >"$W/stdout" 2>"$W/stderr"
status=$?
[ $status = 1 ] || [ $status = 4 ] && ok || fail "publish /proc: status $status: $(message)"
[ -z "$(ls -A "$W/store/tmp")" ] && ok || fail "left: $(ls "$W/store/tmp")"
# Data so far out that tmpfs does not find it.
mkdir "$W/tmpfs"
if mount -t tmpfs cairn-test "$W/tmpfs"; then
    truncate -s 9223372036854775807 "$W/tmpfs/far"
    printf x | dd of="$W/tmpfs/far" bs=1 seek=9223372036854775800 conv=notrunc status=none
    expect 1 'publish 8 EiB' cairn publish $N --from "$W/tmpfs"
    umount "$W/tmpfs"
else
    skipped=$((skipped + 1))
fi
for meta in '{"cairn_expect":{"empty":5},"x":"\u0000"}' '{"cairn_expect":{"empty":5,"empty":0}}' \
    '{"cairn_expect":{"empty":5},"x":1e999}' '{"cairn_expect":{"empty":99999999999999999999}}' \
    '{"cairn_expect":[0]}' '{"cairn_expect":{"../one/empty":0}}'; do
    printf '%s' "$meta" >"$W/m"
    expect 1 "expected: $meta" cairn publish $N --from "$W/one" --meta "$W/m"
done
head -c 1048576 /dev/zero >"$W/m"
expect 0 'a meta of 1 MiB' cairn publish $N --from "$W/one" --meta "$W/m"
expect 0 'fetch its meta' cairn fetch $N --to "$W/out" --meta "$W/m2"
cmp -s "$W/m" "$W/m2" && ok || fail 'a meta of 1 MiB: other bytes'
echo >>"$W/m"
expect 1 'one byte more' cairn publish $B --from "$W/one" --meta "$W/m"
# A file system that finds a hole where data begins is not believed that the rest is one.
cat >"$W/seek.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
long lseek64(int fd, long off, int whence);
long lseek64(int fd, long off, int whence)
{
    long (*next)(int, long, int) = (long (*)(int, long, int))dlsym(RTLD_NEXT, "lseek64");
    return whence == SEEK_HOLE ? off : next(fd, off, whence);
}
C
if cc -shared -fPIC -o "$W/seek.so" "$W/seek.c" -ldl 2>/dev/null; then
    expect 0 'holes everywhere' env LD_PRELOAD="$W/seek.so" \
        ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" \
        "$CAIRN" --store "$W/store" --state "$W/state" publish $T --from "$W/two"
    same $T "$W/two" && ok || fail 'holes everywhere: other bytes'
else
    skipped=$((skipped + 1))
fi

# --- Waits that somebody else does not end -------------------------------------------------------
mkfifo "$W/fifo"
expect 5 'a FIFO as configuration' cairn --config "$W/fifo" --timeout 0.3 ls
expect 5 'a FIFO as meta' cairn publish $B --from "$W/one" --meta "$W/fifo" --timeout 0.3
expect 5 'a FIFO to put the meta in' cairn fetch $A --to "$W/new" --meta "$W/fifo" --timeout 0.3
[ ! -e "$W/new" ] && ok || fail 'a FIFO to put the meta in: fetched all the same'
timeout 10 cat "$W/fifo" >"$W/m2" &
expect 0 'a FIFO that is read' cairn fetch $A --to "$W/new" --meta "$W/fifo" --timeout 10
wait $! && cmp -s "$W/m2" "$W/meta" && ok || fail 'a FIFO that is read: other bytes'
mkdir "$W/new-store"
(
    flock 9
    exec sleep 10
) 9<"$W/new-store" >/dev/null 2>&1 &
locker=$!
sleep 0.2
expect 5 'init of a locked folder' timeout -s KILL 5 "$CAIRN" --store "$W/new-store" --timeout 0.3 init
kill $locker

# --- Descriptors, limits, modes ------------------------------------------------------------------
fresh
make_export "$W/three" 3 900000
for fds in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
    rm -rf "$W/new"
    eval "cairn publish $T --from '$W/three' $fds" >/dev/null 2>&1
    eval "cairn cat $A nothing $fds" >/dev/null 2>&1
    eval "cairn fetch $T --to '$W/new' $fds" >/dev/null 2>&1
    diff -r "$W/new" "$W/three" >/dev/null && ok || fail "descriptors $fds: other bytes"
done
expect 0 'verify what was written without descriptors' cairn verify
make_export "$W/four" 4 900000
before=$(ids)
for kb in 0 1 20 100 500; do
    (
        ulimit -f $kb
        cairn publish $N --from "$W/four" 2>"$W/stderr" # standard output is no file
    ) | cat >/dev/null
    status=${PIPESTATUS[0]}
    [ "$status" = 1 ] && [ "$(ids)" = "$before" ] && [ -z "$(ls -A "$W/store/tmp")" ] && ok ||
        fail "files of $kb KiB: status $status, $(ids), $(ls -A "$W/store/tmp")"
done
(
    ulimit -f 100
    cairn fetch $T --to "$W/short" 2>/dev/null
) | cat >/dev/null
[ -z "$(ls -dA "$W"/.short* "$W/short" 2>/dev/null)" ] && ok || fail 'a fetch past the limit left some'
chmod 711 "$W" && mkdir -m 777 "$W/nobody"
nobody() {
    setpriv --reuid 65534 --regid 65534 --clear-groups env HOME="$W/nobody" \
        timeout -s KILL 20 bash -c "$*"
}
if nobody "'$CAIRN' --version && cd '$W/nobody'" >/dev/null 2>&1; then
    N_CAIRN="'$CAIRN' --store '$W/nobody/store' --state '$W/nobody/state'"
    chmod -R a+rX "$W/one"
    expect 0 'nobody: init' nobody "$N_CAIRN init"
    expect 0 'nobody: publish with umask 0' nobody "umask 0; $N_CAIRN publish $A --from '$W/one'"
    [ -z "$(find "$W/nobody/store" -perm /077)" ] && ok || fail 'umask 0: others may see the store'
    for mask in 0777 0377 0277; do
        expect 1 "nobody: fetch with umask $mask" nobody "umask $mask; $N_CAIRN fetch $A --to '$W/nobody/out'"
        [ "$(ls -A "$W/nobody" | tr '\n' ' ')" = 'state store ' ] && ok ||
            fail "umask $mask: left $(ls -A "$W/nobody" | tr '\n' ' ')"
    done
    mkdir -p "$W/closed/d" && : >"$W/closed/file" && chmod 0 "$W/closed/file"
    expect 1 'nobody: a file that may not be read' nobody "$N_CAIRN publish $N --from '$W/closed'"
else
    skipped=$((skipped + 1))
fi
finish
