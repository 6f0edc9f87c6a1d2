#!/bin/bash
# Refuse single system calls (by strace) at every place where a command makes them, then look: the
# command fails with a class and a message or did its work, nothing half-made is visible, and the same
# command simply run again succeeds.
# usage: inject.sh BUILD   (needs strace, jq)
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
missed=0 refused=0
MOST=${CAIRN_INJECT_MOST:-12} # places of one system call that are tried, spread over all

make_export "$W/one" 1 300000
cp -a --sparse=always "$W/one" "$W/two"
random 77 70000 | dd of="$W/two/memory-ranges" bs=64K seek=2 conv=notrunc status=none
for i in 1 2 3; do printf '{"meta":%d}' $i >"$W/meta$i"; done
mkdir "$W/base"
cairn init >/dev/null && cairn publish $A --from "$W/one" --meta "$W/meta1" >/dev/null || exit 1
mv "$W/store" "$W/state" "$W/base/"

command_of() { # NAME: words of the command, a line each
    case $1 in
    publish) printf '%s\n' publish $N --from "$W/two" --meta "$W/meta2" --parent $A ;;
    fork) printf '%s\n' fork $A $F --meta "$W/meta3" ;;
    rm) printf '%s\n' rm $A ;;
    fetch) printf '%s\n' fetch $A --to "$W/target" ;;
    ls) printf '%s\n' ls --json ;;
    verify) printf '%s\n' verify ;;
    esac
}
fresh() {
    rm -rf "$W/store" "$W/state" "$W/target" "$W"/.target.cairn-*
    cp -a "$W/base/store" "$W/base/state" "$W/"
}
# The program and its words in "${words[@]}".
words_of() {
    mapfile -t words < <(command_of "$1")
    words=("$CAIRN" --store "$W/store" --state "$W/state" "${words[@]}")
}

check_after() { # NAME STATUS
    local name=$1 status=$2
    case $status in
    0 | 1 | 3 | 4 | 6 | 7 | 8) ;;
    2) grep -q configuration "$W/stderr" || echo "status 2" ;; # it could not be read
    *) echo "status $status" ;;
    esac
    [ "$status" = 0 ] || grep -q '^cairn: ' "$W/stderr" || echo "no message"
    if grep -q ': $' "$W/stderr"; then echo "an empty message"; fi
    [ "$name" = rm ] || same $A "$W/one" || echo "$A is not what it was"
    case $name in
    publish)
        case " $(ids)" in *" $N "*) same $N "$W/two" || echo "$N is not whole" ;; esac
        [ "$status" != 0 ] || same $N "$W/two" || echo "success, and $N is not there"
        ;;
    fork)
        case " $(ids)" in *" $F "*) same $F "$W/one" || echo "$F is not whole" ;; esac
        [ "$status" != 0 ] || same $F "$W/one" || echo "success, and $F is not there"
        ;;
    fetch)
        if [ "$status" = 0 ]; then
            diff -r "$W/target" "$W/one" >/dev/null || echo "success, and the target is not whole"
        else
            [ ! -e "$W/target" ] || diff -r "$W/target" "$W/one" >/dev/null || echo "half a target"
        fi
        ;;
    rm) [ "$status" != 0 ] || [ -z "$(ids)$(unreadable)" ] || echo "success, and $A is there" ;;
    esac
    cairn verify >"$W/verify" 2>&1 || echo "verify: $(tail -3 "$W/verify")"
}
try() { # NAME SYSCALL ERRNO K
    local name=$1 wrong status
    fresh
    words_of "$name"
    timeout -s KILL 60 strace -f -o "$W/trace1" -e "trace=$2" -e "inject=$2:error=$3:when=$4" "${words[@]}" \
        >"$W/stdout" 2>"$W/stderr"
    status=$?
    # What the loader needs before the program begins is not ours to survive.
    if [ $status = 127 ]; then return; fi
    [ $status != 137 ] || pkill -KILL -f "$W/store"
    grep -q INJECTED "$W/trace1" || missed=$((missed + 1))
    [ $status = 0 ] || refused=$((refused + 1))
    wrong=$(check_after "$name" $status 2>&1)
    "${words[@]}" >"$W/stdout" 2>"$W/again"
    status=$?
    if [ $status != 0 ] && ! { [ "$name" = fetch ] && [ -e "$W/target" ]; }; then
        wrong="$wrong; again: status $status: $(tail -1 "$W/again")"
    fi
    if [ -n "$wrong" ]; then
        fail "$name, $2 number $4 refused with $3: $wrong ($(tail -1 "$W/stderr"))"
    else
        ok
    fi
}

calls=openat,openat2,read,pread64,write,pwrite64,fsync,ftruncate,mkdir,mkdirat,rename,renameat
calls=$calls,renameat2,unlinkat,newfstatat,getdents64,lseek,flock,getrandom
for name in publish fork rm fetch ls verify; do
    fresh
    words_of $name
    strace -f -qq -o "$W/trace" -e "trace=$calls" "${words[@]}" >/dev/null 2>&1
    before=$((passed + failed))
    while read -r count call; do
        case $call in
        pwrite64 | write | mkdir | mkdirat | ftruncate) errnos='ENOSPC EIO' ;;
        openat2) errnos='EACCES ENOSPC EMFILE' ;;
        *) errnos=EIO ;;
        esac
        for errno in $errnos; do
            for k in $(seq 1 $(((count + MOST - 1) / MOST)) "$count"); do
                try $name "$call" "$errno" "$k"
            done
        done
    done < <(sed -n 's/^[0-9]* *\([a-z0-9]*\)(.*/\1/p' "$W/trace" | sort | uniq -c)
    echo "$name: $((passed + failed - before)) places"
done
# Threads differ from run to run, so a few places may not be reached; many would mean that this test
# refuses nothing. Much of what a command opens first (index, cache, local copies) it can do without.
if [ $((missed * 10)) -gt $((passed + failed)) ]; then fail "$missed places were never reached"; fi
if [ $((refused * 4)) -lt $((passed + failed)) ]; then fail "only $refused commands failed"; fi
finish
