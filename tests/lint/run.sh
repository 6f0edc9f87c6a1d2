#!/bin/bash
# All lints over a tree (default: this one), and their self-test. Prints "ok NAME" or the offences,
# and "N passed, N failed" at the end.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
root=${1:-$here/../..}
passed=0
failed=0
for lint in format includes headers size markers shell links; do
    if out=$(bash "$here/$lint.sh" "$root" 2>&1); then
        echo "ok   $lint"
        passed=$((passed + 1))
    else
        printf 'FAIL %s\n%s\n' "$lint" "$out"
        failed=$((failed + 1))
    fi
done
out=$(bash "$here/selftest.sh" 2>&1)
summary=$(tail -n 1 <<<"$out")
if [[ $summary =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
else
    failed=$((failed + 1))
fi
if [[ $summary = *' 0 failed' ]]; then
    echo "ok   selftest (${summary%%,*})"
else
    printf 'FAIL selftest\n%s\n' "$out"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
