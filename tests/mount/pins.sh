#!/bin/bash
# What is open or mapped through a mount stays readable whatever becomes of its record: beside
# sweeps that wait for nothing but what is held.
# Its functions are called by others here.
# shellcheck disable=SC2317 source=tests/fault/lib.sh
. "$(dirname "$0")/../fault/lib.sh"

M=$W/mnt
cairn() { "$CAIRN" --config "$W/config.json" --store "$W/store" --state "$W/$node" "$@"; }
check() {
    local what=$1
    shift
    if "$@"; then ok; else fail "$what"; fi
}

node=state
cat >"$W/config.json" <<'END'
{"generation_grace_seconds": 4, "gc_young_seconds": 0, "gc_visibility_seconds": 0,
 "gc_dead_margin_seconds": 0, "materialise": "never"}
END
mkdir "$M"
make_export "$W/export" 1 3000000
expect 0 init cairn init
expect 0 publish cairn publish $A --from "$W/export"
expect 0 mount cairn mount "$M"
exec 7<"$(echo "$M/$A"/export-*/memory-ranges)"
sleep 3 # half of the grace: the pin is put
check "a pin" test -n "$(find "$W/store/pins" -type f)"
node=other
expect 0 "the record goes" cairn rm $A
for _ in 1 2 3 4; do
    expect 0 sweep cairn gc
    sleep 2.2
done
check "its packs are there" test -n "$(find "$W/store/packs" -type f)"
check "what is open is whole" cmp -s - "$W/export/memory-ranges" <&7
exec 7<&-
check "its name is gone" test ! -e "$M/$A"
gone() { [ -z "$(find "$W/store/packs" -type f)" ]; }
for _ in $(seq 60); do
    cairn gc >/dev/null 2>&1
    ! gone || break
    sleep 2
done
check "closed, it is let go" gone
check "unmount" fusermount3 -u "$M"
finish
