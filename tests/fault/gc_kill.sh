#!/bin/bash
# Kill a sweep with SIGKILL at every named step, while it deletes, marks, moves chunks and finishes
# what others left, and a removal at every step; then look: every committed record verifies, and the
# next sweeps finish the work, until nothing is left that nobody needs.
# usage: gc_kill.sh BUILD   (a build with -Dsteps=true; needs jq)
set -u
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
points=0
MOST=2 # passings of one step that are tried
B=ck_00000000000000ee K=ck_00000000000000ff L=tp_000000000000000000000000000000ff

# Nothing waits: one sweep does all that is to be done.
cat >"$W/config.json" <<'JSON'
{"generation_grace_seconds": 1, "gc_visibility_seconds": 0, "gc_young_seconds": 0,
 "gc_dead_margin_seconds": 0}
JSON
cairn() { "$CAIRN" --config "$W/config.json" --store "$W/store" --state "$W/state" "$@"; }
killed_at() { # STEP COMMAND...
    local step=$1
    shift
    CAIRN_STEP_KILL=$step:1 cairn "$@" >/dev/null 2>&1
    [ $? = 137 ] || fail "setting up: not killed at $step: $*"
}
# Let ten seconds pass for the store, as its files' times tell: longer than the grace.
age() { find "$W/store" -type f -exec sh -c 'for f; do touch -c -r "$f" -d "-10 seconds" "$f"; done' sh {} +; }
small() { printf 'ck_00000000000001%02x' "$1"; }

# --- A store with something of every kind to do ---------------------------------------------------
make_export "$W/one" 1
make_export "$W/two" 2
mkdir "$W/part" && cp "$W/one/config.json" "$W/part/" && head -c 300000 "$W/one/memory-ranges" >"$W/part/memory"
mkdir "$W/base"
cairn init >/dev/null || exit 1
printf 1 >"$W/m1" && printf 2 >"$W/m2" && printf 3 >"$W/m3"
cairn publish $A --from "$W/one" >/dev/null      # a pack of which less than half will be needed
cairn publish $B --from "$W/part" >/dev/null     # by this one
cairn publish $T --from "$W/part" --meta "$W/m1" >/dev/null # superseded
cairn publish $T --from "$W/two" --meta "$W/m2" >/dev/null
for i in 1 2 3 4 5 6 7 8 9; do # many small packs
    mkdir "$W/small$i"
    random "$((100 + i))" 100000 >"$W/small$i/data"
    cairn publish "$(small $i)" --from "$W/small$i" >/dev/null
done
cairn publish $L --from "$W/two" --meta "$W/m1" >/dev/null
cairn publish $K --from "$W/one" >/dev/null
cairn publish $F --from "$W/one" >/dev/null
cairn rm $A >/dev/null
killed_at remove.exports rm $K   # removals cut short, early and late
killed_at remove.tomb rm $F
make_export "$W/three" 3
make_export "$W/four" 4
killed_at commit.manifest publish $N --from "$W/three"             # an uncommitted generation
killed_at commit.staged publish $L --from "$W/two" --meta "$W/m3"  # a staged meta
killed_at pack.durable publish $N --from "$W/four" --meta "$W/m3"  # packs
killed_at pack.filled publish $N --from "$W/four" --meta "$W/m2"   # temporary files
age
mv "$W/store" "$W/state" "$W/base/"

fresh() {
    rm -rf "$W/store" "$W/state"
    cp -a "$W/base/store" "$W/base/state" "$W/"
}
# What is committed in the base store is there, byte for byte, and everything verifies.
whole() {
    local i out
    out=$(cairn verify --json) || echo "verify: $out"
    same $B "$W/part" || echo "$B is not what it was"
    same $T "$W/two" || echo "$T is not what it was"
    same $L "$W/two" || echo "$L is not what it was"
    for i in 1 5 9; do same "$(small $i)" "$W/small$i" || echo "$(small $i) is not what it was"; done
}
# Nothing is left to do, and nothing lies around.
clean() {
    local out
    out=$(cairn gc --dry-run 2>&1) || echo "dry run: $out"
    ! grep '^would ' <<<"$out" || echo "(a sweep still has something to do)"
    find "$W/store/pins" "$W/store/tmp" "$W/store/gc/closed" "$W/store/gc/dead" -type f 2>/dev/null
    find "$W/store/records" -name '*.staged'
    [ "$(find "$W/store/records" -name 'export-*' | wc -l)" = 12 ] || echo "wrong number of manifests"
    [ "$(find "$W/store/records" -name meta.json | wc -l)" = 12 ] || echo "wrong number of records"
}
sweep_to_the_end() {
    local i
    for i in 1 2 3 4; do
        cairn gc >"$W/out2" 2>&1 || {
            echo "sweep $i: $(tail -1 "$W/out2")"
            return
        }
        age
    done
}

try_point() { # STEP K
    local step=$1 k=$2 status wrong
    fresh
    CAIRN_STEP_KILL=$step:$k cairn gc >"$W/out1" 2>&1
    status=$?
    points=$((points + 1))
    if [ $status != 137 ]; then
        fail "gc: not killed at $step, passing $k (status $status): $(tail -1 "$W/out1")"
        return
    fi
    wrong=$(whole 2>&1)$(sweep_to_the_end 2>&1)$(whole 2>&1)$(clean 2>&1)
    if [ -n "$wrong" ]; then fail "gc killed at $step, passing $k: $wrong"; else ok; fi
}

fresh
rm -f "$W/steps"
CAIRN_STEP_LOG=$W/steps cairn gc >"$W/out1" 2>&1 || fail "gc does not even work: $(tail -1 "$W/out1")"
for step in gc.clock gc.scanned gc.packs-deleted gc.generation-fenced gc.generation-deleted \
    gc.removal-finished gc.leftover-deleted gc.marked gc.unmarked gc.repack-copied gc.repack-pinned \
    gc.repack-checked gc.repack-replaced gc.repack-unpinned gc.acted; do
    # Packs die only after the grace: that is a sweep by itself.
    case $step in gc.packs-deleted | gc.unmarked) age && CAIRN_STEP_LOG=$W/steps2 cairn gc >/dev/null ;; esac
    if grep -qx "$step" "$W/steps" "$W/steps2" 2>/dev/null; then ok; else fail "no sweep passes $step"; fi
done
wrong=$(sweep_to_the_end 2>&1)$(whole 2>&1)$(clean 2>&1)
if [ -n "$wrong" ]; then fail "without a kill: $wrong"; else ok; fi
while read -r count step; do
    for k in $(seq "$count" | head -n $MOST); do try_point "$step" "$k"; done
done < <(sort "$W/steps" | uniq -c)

# --- From a store whose packs are dead already: deleting them -------------------------------------
fresh
cairn gc >/dev/null && age
rm -rf "$W/base2" && mkdir "$W/base2" && mv "$W/store" "$W/state" "$W/base2/"
rm -rf "$W/base" && mv "$W/base2" "$W/base"
fresh
rm -f "$W/steps"
CAIRN_STEP_LOG=$W/steps cairn gc >/dev/null 2>&1
while read -r count step; do
    for k in $(seq "$count" | head -n $MOST); do try_point "$step" "$k"; done
done < <(grep '^gc\.\|unlinked' "$W/steps" | sort | uniq -c)

# --- A removal that dies is finished by sweeps ----------------------------------------------------
fresh
CAIRN_STEP_LOG=$W/steps3 cairn rm $T >/dev/null
while read -r step; do
    fresh
    CAIRN_STEP_KILL=$step:1 cairn rm $T >/dev/null 2>&1
    points=$((points + 1))
    wrong=$(sweep_to_the_end 2>&1)
    left=$(find "$W/store/records/$T" -type f 2>/dev/null | wc -l)
    case $left in
    0) ;;
    2) same $T "$W/two" || wrong="$wrong; $T is half removed" ;;
    *) wrong="$wrong; $left objects of $T are left" ;;
    esac
    same $L "$W/two" || wrong="$wrong; $L, which shares its chunks, is not what it was"
    if [ -n "$wrong" ]; then fail "rm killed at $step: $wrong"; else ok; fi
done < <(sort -u "$W/steps3")

if [ $points -lt 60 ]; then fail "only $points points: the steps are not where they were"; fi
echo "$points points"
finish
