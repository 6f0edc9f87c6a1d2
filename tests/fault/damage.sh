#!/bin/bash
# Damage each kind of object of a store in every way, then use the store: only the record that is
# damaged fails, with a status and a message that name it; every other record and the store as a
# whole go on working; what can be repaired is. Nothing crashes: run it on a build with sanitizers.
# usage: damage.sh BUILD   (needs jq, python3)
set -u
# Nothing here depends on fsync, and there are thousands.
[ -n "${TMPDIR:-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
damage() { python3 "$(dirname "$0")/damage.py" "$1" "$2" || exit 1; }

# A is alone with its pack, B shares one with its fork F.
make_export "$W/one" 1 300000
make_export "$W/two" 2 200000
make_export "$W/three" 3 100000
head -c 200000 /dev/zero | tr '\0' x >"$W/one/encoded"
B=ck_00000000000000b0 F2=ck_00000000000000f2 N2=ck_00000000000000e2
printf '{"n":1}' >"$W/meta"
printf '{"n":2}' >"$W/meta2"
mkdir "$W/base"
cairn init >/dev/null && cairn publish $A --from "$W/one" --meta "$W/meta" >/dev/null || exit 1
pack_of_a=$(cd "$W/store" && find packs -type f)
cairn publish $B --from "$W/two" >/dev/null && cairn fork $B $F >/dev/null || exit 1
mv "$W/store" "$W/state" "$W/base/"
fresh() {
    rm -rf "$W/store" "$W/state" "$W/target"
    cp -a "$W/base/store" "$W/base/state" "$W/"
}

# run WHAT COMMAND...: the status; whatever it is, it is one that the manual knows, and no crash
run() {
    local what=$1
    shift
    "$@" >"$W/stdout" 2>"$W/stderr"
    status=$?
    case $status in
    0 | 1 | 3 | 4 | 6) ok ;;
    *) fail "$what: status $status: $(tail -3 "$W/stderr")" ;;
    esac
    if grep -qE 'Sanitizer|runtime error' "$W/stderr"; then fail "$what: $(cat "$W/stderr")"; fi
    if [ $status != 0 ] && ! grep -q '^cairn: .' "$W/stderr"; then fail "$what: status $status without a message"; fi
}
# gives "STATUS..." WHAT COMMAND...
gives() {
    local want=$1 what=$2
    shift
    run "$@"
    case " $want " in
    *" $status "*) ok ;;
    *) fail "$what: status $status, not one of $want: $(tail -1 "$W/stderr")" ;;
    esac
}
# The last failure, or what verify found, is told with this text.
names() {
    [ $status = 0 ] || grep -qF -- "$1" "$W/stdout" "$W/stderr" && ok || fail "$2: no \"$1\" in: $(cat "$W/stdout" "$W/stderr")"
}
# Everything but A works.
others_work() { # WHAT
    local what=$1 id
    run "$what: ls" cairn ls --json
    cp "$W/stdout" "$W/ls"
    for id in $B $F; do
        jq -e --arg id "$id" '[.[] | select(.id == $id and .error == null)] | length == 1' "$W/ls" >/dev/null &&
            ok || fail "$what: ls does not show $id"
        gives 0 "$what: show $id" cairn show "$id"
        same "$id" "$W/two" && ok || fail "$what: $id is not what it was"
    done
    gives 0 "$what: cat $B" cairn cat $B config.json
    gives 0 "$what: verify $B $F" cairn verify $B $F
    gives 0 "$what: publish" cairn publish $N --from "$W/three"
    gives 0 "$what: publish what B has" cairn publish $N2 --from "$W/two" --parent $B
    gives 0 "$what: fork $B" cairn fork $B $F2
    same $N "$W/three" && same $N2 "$W/two" && same $F2 "$W/two" && ok || fail "$what: what was published is not whole"
    gives 0 "$what: rm $N2 $F2" cairn rm $N2 $F2
    gives 0 "$what: stats" cairn stats
}
# A fails, with one of these statuses, and says what is wrong; or it is whole.
a_fails() { # "STATUS..." WHAT NAME
    local want=$1 what=$2 name=$3 command may
    for command in "show $A" "cat $A memory-ranges" "fetch $A --to $W/target" "verify $A"; do
        may=$want
        case $command in verify*) may="$want 6" ;; esac # a finding is damage, whatever its class
        # shellcheck disable=SC2086
        gives "$may" "$what: $command" cairn $command
        names "$name" "$what: $command"
        [ $status = 0 ] || [ ! -e "$W/target" ] && ok || fail "$what: $command left a target"
    done
}
a_is_removed() { # WHAT
    gives 0 "$1: rm" cairn rm $A
    gives 3 "$1: show after rm" cairn show $A
    case " $(ids)$(unreadable) " in *" $A "*) fail "$1: listed after rm" ;; *) ok ;; esac
}

# --- A manifest -------------------------------------------------------------------------------------
export_of_a=$(cd "$W/base/store" && ls records/$A/export-*)
for how in empty half short flip:0 flip:5 flip:12 flip:16 garbage newer removed; do
    what="manifest $how" want=6
    [ $how != removed ] || want=3
    fresh
    damage "$W/store/$export_of_a" $how
    a_fails "$want" "$what" "${export_of_a##*export-}"
    gives "$want" "$what: fork" cairn fork $A $F2
    gives "3 6" "$what: verify" cairn verify
    names "$A" "$what: verify"
    others_work "$what"
    # Publishing it again repairs it; a checkpoint with another meta is refused.
    gives 4 "$what: publish with another meta" cairn publish $A --from "$W/one" --meta "$W/meta2"
    gives 0 "$what: publish again" cairn publish $A --from "$W/one" --meta "$W/meta"
    same $A "$W/one" && ok || fail "$what: publishing again does not repair it"
    gives 0 "$what: verify once repaired" cairn verify
    fresh
    damage "$W/store/$export_of_a" $how
    a_is_removed "$what"
    gives 0 "$what: verify after rm" cairn verify
done

# --- A meta.json: any bytes are one, and name a generation that is not there --------------------------
for how in empty half flip:0 garbage huge removed; do
    what="meta.json $how" want=3
    [ $how != huge ] || want=6
    fresh
    damage "$W/store/records/$A/meta.json" $how
    a_fails "$want" "$what" $A
    gives "$want" "$what: fork" cairn fork $A $F2
    gives "0 3 6" "$what: verify" cairn verify
    [ $how = removed ] || [ $status != 0 ] && ok || fail "$what: verify finds nothing"
    names "$A" "$what: verify"
    others_work "$what"
    a_is_removed "$what"
    gives 0 "$what: verify after rm" cairn verify
    gives 0 "$what: publish after rm" cairn publish $A --from "$W/one" --meta "$W/meta"
    same $A "$W/one" && ok || fail "$what: published after rm, it is not whole"
done

# --- A pack -------------------------------------------------------------------------------------------
for how in empty half short flip:0 flip:4 flip:8 flip:16 garbage newer removed; do
    what="pack $how"
    fresh
    damage "$W/store/$pack_of_a" $how
    gives 0 "$what: show" cairn show $A
    gives "0 6" "$what: fetch" cairn fetch $A --to "$W/target"
    if [ $status = 0 ]; then
        diff -r "$W/target" "$W/one" >/dev/null && ok || fail "$what: fetch gives other bytes"
        # Only what is not a chunk's may be damaged.
        case $how in flip:* | short | newer) ok ;; *) fail "$what: fetch succeeds" ;; esac
    else
        [ ! -e "$W/target" ] && ok || fail "$what: a target is left"
        [ $how = removed ] || names "$pack_of_a" "$what: fetch"
        names $A "$what: fetch"
    fi
    gives "0 6" "$what: cat" cairn cat $A config.json
    [ $status != 0 ] || cmp -s "$W/stdout" "$W/one/config.json" && ok || fail "$what: cat gives other bytes"
    gives 6 "$what: verify" cairn verify
    names "$pack_of_a" "$what: verify"
    others_work "$what"
    # A pack that is plainly not there (any more) is not built upon.
    case $how in empty | half | removed)
        gives 0 "$what: publish what it had" cairn publish $N2 --from "$W/one"
        same $N2 "$W/one" && ok || fail "$what: published again, it is not whole"
        ;;
    esac
    gives "0 3 6" "$what: fork" cairn fork $A $F2
    gives 0 "$what: verify $B" cairn verify $B
    gives 0 "$what: repair" cairn verify $B --repair-index
    a_is_removed "$what"
    same $B "$W/two" && ok || fail "$what: $B after all"
done

# --- The index: a hint -----------------------------------------------------------------------------------
index=$(cd "$W/base/state" && find . -name index.db)
for how in empty half short flip:0 flip:1 flip:5 flip:12 garbage huge removed; do
    for rest in keep drop; do
        case $rest:$how in drop:flip:* | drop:short | drop:huge) continue ;; esac
        what="index $how, $rest"
        fresh
        damage "$W/state/$index" $how
        [ $rest = keep ] || rm -f "$W/state/$index"-*
        others_work "$what"
        same $A "$W/one" && ok || fail "$what: $A is not what it was"
        gives 0 "$what: verify" cairn verify
        gives 0 "$what: repair" cairn verify --repair-index
        before=$(find "$W/store/packs" -type f | wc -l)
        gives 0 "$what: publish what is known" cairn publish $F2 --from "$W/one"
        [ "$(find "$W/store/packs" -type f | wc -l)" = "$before" ] && ok || fail "$what: known chunks are stored again"
    done
done

# --- format.json: nothing works, and nothing is harmed ---------------------------------------------------------
sums() { (cd "$W/store" && find . -type f ! -name format.json -exec sha256sum {} + | sort); }
for how in empty half short flip:3 garbage huge newer removed; do
    what="format.json $how" want=6
    case $how in
    newer) want=1 ;;
    removed) want=3 ;;
    esac
    fresh
    before=$(sums)
    damage "$W/store/format.json" $how
    for command in ls "show $A" "fetch $A --to $W/target" "cat $A config.json" verify stats "hold $A" \
        "publish $N --from $W/three" "fork $A $F2" "rm $A" gc; do
        # shellcheck disable=SC2086
        gives $want "$what: $command" cairn $command
        names format.json "$what: $command"
    done
    gives "1 4 6" "$what: init" cairn init
    [ "$(sums)" = "$before" ] && ok || fail "$what: the store is not what it was"
    [ ! -e "$W/target" ] && ok || fail "$what: a target"
    cp "$W/base/store/format.json" "$W/store/"
    same $A "$W/one" && ok || fail "$what: with its format.json again it does not work"
done
finish
