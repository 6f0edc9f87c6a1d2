#!/bin/bash
# The unit and the example of a configuration: understood by those who read them.
#   unit.sh BUILD
set -u
export LC_ALL=C
build=$(cd "${1:?usage: $0 BUILD}" && pwd) || exit 1
top=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
W=$(mktemp -d "${TMPDIR:-/tmp}/cairn-unit-XXXXXX") || exit 1
trap 'rm -rf "$W"' EXIT
passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "not ok: $*"
}

# Every key of the example is known, and its values are taken.
"$build/cli/cairn" --store "$W/store" --state "$W/state" init --quiet || fail init
if "$build/cli/cairn" --config "$top/dist/config.json.example" --store "$W/store" --state "$W/state" \
    ls --json >"$W/out" 2>&1; then ok; else fail "the example: $(cat "$W/out")"; fi

unit=$build/cli/cairn.service
if grep -q '^ExecStart=/.*/bin/cairn serve' "$unit" && ! grep -q '@' <(grep -v '^SystemCall\|^#' "$unit"); then
    ok
else
    fail "ExecStart: $(grep ExecStart "$unit")"
fi
# Time to drain before systemd kills, with the default and the margin of the last words.
stop=$(sed -n 's/^TimeoutStopSec=//p' "$unit")
if [ "$stop" -gt 40 ]; then ok; else fail "TimeoutStopSec=$stop"; fi
if command -v systemd-analyze >/dev/null; then
    # The program need not be installed where the unit says.
    sed "s|^ExecStart=[^ ]*|ExecStart=$build/cli/cairn|" "$unit" >"$W/cairn.service"
    systemd-analyze verify --man=no "$W/cairn.service" >"$W/out" 2>&1
    code=$?
    grep -v 'Failed to \(connect\|open\|load\)\|SO_PASSCRED\|cgroup' "$W/out" | grep 'cairn.service' >"$W/said"
    if [ -s "$W/said" ]; then fail "verify: $code: $(cat "$W/said")"; else ok; fi
    if systemd-analyze security --offline=true --threshold=30 "$W/cairn.service" >"$W/out" 2>&1; then
        ok
    else
        fail "security: $(tail -n 3 "$W/out")"
    fi
else
    skipped=2
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
