#!/bin/bash
# tests/run.py counts what a program did, and lets no failure pass.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/cairn-runner-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
passed=0
failed=0

# expect TOTALS EXIT SCRIPT [OPTION...]: the counts, and the runner's exit code, of a script.
expect() {
    local want="$1 exit $2" script=$3 got rc=0
    shift 3
    rm -f "$tmp/totals"
    "$here/run.py" --name case --logs "$tmp" --totals "$tmp/totals" --timeout 20 "$@" -- \
        bash -c "$script" >"$tmp/out" 2>&1 || rc=$?
    got="$(cat "$tmp/totals") exit $rc"
    if [ "$got" = "$want" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL '$script': $got, not $want"
        cat "$tmp/out"
    fi
}

expect '1 0 0' 0 'echo hello'
expect '0 1 0' 1 'exit 3'
expect '0 0 1' 0 'exit 77'
expect '5 0 0' 0 'echo "100%: Checks: 2, Failures: 0, Errors: 0
100%: Checks: 3, Failures: 0, Errors: 0"'
expect '1 2 0' 1 'echo "33%: Checks: 3, Failures: 1, Errors: 1"; exit 1'
expect '1 2 0' 1 'echo "33%: Checks: 3, Failures: 1, Errors: 1"; exit 0'
expect '3 1 0' 1 'echo "100%: Checks: 3, Failures: 0, Errors: 0"; exit 1'
expect '0 1 0' 1 'echo "100%: Checks: 0, Failures: 0, Errors: 0"'
expect '4 0 2' 0 'echo "1 passed, 1 failed"; echo "4 passed, 0 failed, 2 skipped"'
expect '4 1 0' 1 'echo "4 passed, 1 failed"'
expect '0 1 0' 1 'echo "0 passed, 0 failed"'
expect '0 1 0' 1 'kill -SEGV $$'
expect '2 1 0' 1 'echo "2 passed, 0 failed"; kill -KILL $$'
expect '2 1 0' 1 'echo "2 passed, 0 failed"; sleep 100' --timeout 0.5
expect '2 1 0' 1 'echo "2 passed, 0 failed"; sleep 100' --within 0.5
expect '2 1 0' 1 'sleep 100 & echo "2 passed, 0 failed"'
expect '1 0 0' 0 'echo "  7 passed, 7 failed"'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
