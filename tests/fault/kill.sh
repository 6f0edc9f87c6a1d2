#!/bin/bash
# Kill the program with SIGKILL at every named step of every command that changes something, then
# look at what is left: committed records verify, nothing uncommitted shows, and the same command
# simply run again succeeds.
# usage: kill.sh BUILD   (a build with -Dsteps=true; needs jq)
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
points=0
MOST=3 # passings of one step that are tried in one command

# --- What the commands work on: several packs' worth is not needed, several batches are -----------
make_export "$W/one" 1
cp -a --sparse=always "$W/one" "$W/two"
printf 'changed' | dd of="$W/two/memory-ranges" bs=1 seek=777777 conv=notrunc status=none
openssl enc -aes-128-ctr -K 77 -iv 0 -nosalt -in /dev/zero 2>/dev/null | head -c 300000 |
    dd of="$W/two/memory-ranges" bs=64K seek=20 conv=notrunc status=none
for i in 1 2 3; do printf '{"meta":%d}' $i >"$W/meta$i"; done

mkdir "$W/base"
cairn init >/dev/null && cairn publish $A --from "$W/one" --meta "$W/meta1" >/dev/null &&
    cairn publish $T --from "$W/one" --meta "$W/meta1" >/dev/null || exit 1
mv "$W/store" "$W/state" "$W/base/"

# --- Commands under test --------------------------------------------------------------------------
run() { # NAME: the command as an operator would type it
    case $1 in
    init) cairn init ;;
    publish) cairn publish $N --from "$W/two" --meta "$W/meta2" ;;
    publish-parent) cairn publish $N --from "$W/two" --meta "$W/meta2" --parent $A --digest ;;
    publish-known) cairn publish $N --from "$W/one" --meta "$W/meta2" ;;
    republish) cairn publish $T --from "$W/two" --meta "$W/meta2" ;;
    fork) cairn fork $A $F --meta "$W/meta3" ;;
    rm) cairn rm $A ;;
    rm-template) cairn rm $T ;;
    fetch) cairn fetch $A --to "$W/target" ;;
    hold) cairn hold $A ;;
    release) cairn release $A ;;
    esac
}
fresh() { # NAME: the store as it is before the command
    rm -rf "$W/store" "$W/state" "$W/target" "$W"/.target.cairn-*
    [ "$1" = init ] || cp -a "$W/base/store" "$W/base/state" "$W/"
    case $1 in release) cairn hold $A >/dev/null ;; esac
}
is_one_of() { # ID DIR...: the record is one of these exports
    local id=$1 d
    shift
    for d; do same "$id" "$d" && return 0; done
    return 1
}
# After the kill: what must hold whatever the step was.
check_killed() { # NAME
    local name=$1 out
    if [ "$name" = init ]; then
        [ ! -e "$W/store/format.json" ] || cairn ls >/dev/null || echo "a store that does not open"
        return
    fi
    out=$(cairn verify --json) || echo "verify: $out"
    case $name in
    rm) ;;
    *) same $A "$W/one" || echo "$A is not what it was" ;;
    esac
    case $name in
    republish) is_one_of $T "$W/one" "$W/two" || echo "$T is neither the old nor the new one" ;;
    rm-template) ;;
    *) same $T "$W/one" || echo "$T is not what it was" ;;
    esac
    case $name in
    rm | rm-template) ;;
    *) [ -z "$(unreadable)" ] || echo "unreadable: $(unreadable)" ;;
    esac
    case " $(ids)" in
    *" $N "*) is_one_of $N "$W/two" "$W/one" || echo "$N is listed and not whole" ;;
    esac
    case " $(ids)" in
    *" $F "*) same $F "$W/one" || echo "$F is listed and not whole" ;;
    esac
    [ "$name" != fetch ] || [ ! -e "$W/target" ] || diff -r "$W/target" "$W/one" >/dev/null ||
        echo "the target is there and not whole"
}
# After the same command was simply run again.
check_again() { # NAME
    local name=$1
    case $name in
    init) [ "$(cairn ls --json)" = "[]" ] || echo "the new store is not empty" ;;
    publish | publish-parent) same $N "$W/two" || echo "$N is not what was published" ;;
    publish-known) same $N "$W/one" || echo "$N is not what was published" ;;
    republish) same $T "$W/two" || echo "$T is not what was published" ;;
    fork) same $F "$W/one" || echo "$F is not the fork" ;;
    rm) case " $(ids) $(unreadable) " in *" $A "*) echo "$A is still listed" ;; esac ;;
    rm-template) case " $(ids) $(unreadable) " in *" $T "*) echo "$T is still listed" ;; esac ;;
    fetch)
        diff -r "$W/target" "$W/one" >/dev/null || echo "the target is not the export"
        [ -z "$(ls -d "$W"/.target.cairn-* 2>/dev/null)" ] || echo "a folder is left beside the target"
        ;;
    hold)
        cairn rm $A >/dev/null 2>&1
        [ $? = 4 ] || echo "$A is not held"
        ;;
    release) cairn rm $A >/dev/null 2>&1 || echo "$A is still held" ;;
    esac
    cairn verify >/dev/null || echo "verify fails after the second run"
}
# A second run meets what the first left: these may find their work done.
already_done() { # NAME STATUS
    case $1 in
    init) [ "$2" = 4 ] && [ -e "$W/store/format.json" ] ;;
    fetch) [ "$2" = 4 ] && [ -e "$W/target" ] ;;
    *) false ;;
    esac
}

try_point() { # NAME STEP K
    local name=$1 step=$2 k=$3 status wrong
    fresh "$name"
    CAIRN_STEP_KILL=$step:$k run "$name" >"$W/out1" 2>&1
    status=$?
    points=$((points + 1))
    if [ $status != 137 ]; then
        fail "$name: not killed at $step, passing $k (status $status): $(tail -1 "$W/out1")"
        return
    fi
    wrong=$(check_killed "$name" 2>&1)
    run "$name" >"$W/out2" 2>&1
    status=$?
    if [ $status != 0 ] && ! already_done "$name" $status; then
        wrong="$wrong; run again: status $status: $(tail -1 "$W/out2")"
    fi
    wrong="$wrong$(check_again "$name" 2>&1)"
    if [ -n "$wrong" ]; then
        fail "$name killed at $step, passing $k: $wrong"
    else
        ok
    fi
}

for name in init publish publish-parent publish-known republish fork rm rm-template fetch hold release; do
    fresh $name
    rm -f "$W/steps"
    if ! CAIRN_STEP_LOG=$W/steps run $name >"$W/out1" 2>&1; then
        fail "$name does not even work: $(tail -1 "$W/out1")"
        continue
    fi
    before=$points
    while read -r count step; do
        for k in $(seq "$count" | head -n $MOST); do try_point $name "$step" "$k"; done
    done < <(sort "$W/steps" | uniq -c)
    echo "$name: $((points - before)) points"
done
if [ $points -lt 60 ]; then fail "only $points points: the steps are not where they were"; fi
finish
