#!/bin/bash
# cairn gc as an operator meets it: what it prints, its JSON, its exit codes, and that it waits.
# usage: cli.sh BUILD   (needs jq)
set -u
# shellcheck source-path=SCRIPTDIR source=../fault/lib.sh
. "$(dirname "$0")/../fault/lib.sh"
times='"gc_visibility_seconds": 0, "gc_young_seconds": 0, "gc_dead_margin_seconds": 0'
printf '{"generation_grace_seconds": 1, %s}' "$times" >"$W/config.json"
cairn() { "$CAIRN" --config "$W/config.json" --store "$W/store" --state "$W/state" "$@"; }
holds() { # WHAT FILTER: of the last JSON
    jq -e "$2" "$W/stdout" >/dev/null && ok || fail "$1: $(cat "$W/stdout")"
}
prints() { # WHAT TEXT
    if grep -qF -- "$2" "$W/stdout"; then ok; else fail "$1: no \"$2\" in: $(cat "$W/stdout")"; fi
}
make_export "$W/one" 1
make_export "$W/two" 2
expect 0 init cairn init
expect 0 'an empty store' cairn gc
prints 'an empty store' 'nothing to collect'
printf 1 >"$W/m1" && printf 2 >"$W/m2"
expect 0 publish cairn publish $T --from "$W/one" --meta "$W/m1"
expect 0 publish cairn publish $T --from "$W/two" --meta "$W/m2"
expect 0 publish cairn publish $N --from "$W/two"
sleep 1.1

# Dry run: the defaults, the reasons, and no change.
expect 0 'defaults' "$CAIRN" --store "$W/store" --state "$W/state" gc --dry-run
for line in 'generation_grace_seconds  3600' 'gc_visibility_seconds     0' 'gc_young_seconds          86400' \
    'gc_dead_margin_seconds    1800' 'checkpoint_ttl_hours      0'; do prints defaults "$line"; done
before=$(find "$W/store" -type f ! -name clock | sort)
expect 0 'dry run' cairn gc --dry-run
prints 'dry run' "would delete records/$T/export-"
prints 'dry run' 'superseded'
[ "$(find "$W/store" -type f ! -name clock | sort)" = "$before" ] && ok || fail "a dry run changed something"

# The real one, in JSON with exactly its members.
expect 0 'json' cairn gc --json
holds 'members' '(keys | sort) == (["aborted","bytes_freed","generations_deleted","packs_closed","packs_dead",
    "packs_deleted","packs_repacked","packs_scanned","phase","records","records_expired","seconds","waiting"] | sort)'
holds 'values' '.aborted == false and .records == 2 and .generations_deleted == 1 and .phase == "done"
    and .packs_closed == 1 and .packs_dead == 1 and .waiting == {"closed": 0, "dead": 1} and .seconds > 0'
expect 0 'waiting' cairn gc
prints 'waiting' '1 pack waits for its time'
sleep 1.1
expect 0 'delete' cairn gc
prints 'delete' '1 pack ('
expect 0 'quiet' cairn gc --quiet
[ ! -s "$W/stdout" ] && ok || fail "quiet says: $(cat "$W/stdout")"

# What is garbage and young is told, or "deleted nothing" would be a riddle.
expect 0 'a publish' cairn publish $A --from "$W/one"
expect 0 'its end' cairn rm $A
expect 0 'young' "$CAIRN" --store "$W/store" --state "$W/state" gc
prints 'young' '1 pack that nobody refers to is young, and is left alone until '
expect 0 'not young' cairn gc
grep -q 'is young' "$W/stdout" && fail "a pack is young for ever" || ok
sleep 1.1
expect 0 'the end' cairn gc

# Retention and holds.
printf '{"checkpoint_ttl_hours": 1, "generation_grace_seconds": 1, %s}' "$times" >"$W/ttl.json"
expect 0 hold cairn hold $N
find "$W/store/records" -name meta.json -exec touch -d '-2 hours' {} +
expect 0 'retention' "$CAIRN" --config "$W/ttl.json" --store "$W/store" --state "$W/state" gc --json
holds 'retention' '.records_expired == 1'
[ "$(ids)" = "$N " ] && ok || fail "left: $(ids)"
expect 4 'rm of a held record' cairn rm $N
expect 0 release cairn release $N

# Doubts.
manifest=$(find "$W/store/records/$N" -name 'export-*')
cp "$manifest" "$W/manifest" && truncate -s -1 "$manifest"
expect 6 'a damaged manifest' cairn gc
says "records/$N/export-" 'a damaged manifest'
expect 6 'a damaged manifest' cairn gc --json
holds 'a damaged manifest' '.aborted and (.reason | contains("export-"))'
cp "$W/manifest" "$manifest"
mkdir -p "$W/store/pins/n" && printf x >"$W/store/pins/n/1"
expect 6 'a damaged pin' cairn gc
says 'pins/n/1' 'a damaged pin'
rm "$W/store/pins/n/1"
mv "$W/store/records/$N" "$W/kept"
expect 6 'a record that vanished' cairn gc
says "$N" 'a record that vanished'
mv "$W/kept" "$W/store/records/$N"
expect 0 'all is well again' cairn gc

# Another process sweeps: busy, or waited for; a dead one locks nothing.
lock=$(find "$W/state" -name gc.lock)
python3 - "$lock" "$W/locked" <<'PY' &
import fcntl, struct, sys, time
f = open(sys.argv[1], 'r+b')
fcntl.fcntl(f, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLK
open(sys.argv[2], 'w').close()
time.sleep(60)
PY
holder=$!
for _ in $(seq 100); do [ -e "$W/locked" ] || sleep 0.1; done
expect 4 'busy' cairn gc
says 'another process sweeps' 'busy'
expect 4 'busy' cairn gc --json
holds 'busy' '.aborted and (.reason | contains("another process"))'
expect 5 'waiting in vain' cairn gc --wait --timeout 0.3
(sleep 0.5 && kill -KILL $holder) &
expect 0 'waiting' cairn gc --wait --timeout 20
wait 2>/dev/null
expect 0 verify cairn verify
finish
