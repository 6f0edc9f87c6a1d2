#!/bin/bash
# All lints over a tree (default: this one), and their self-test. Prints "ok NAME" or the offences,
# and "N passed, N failed" at the end.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
root=${1:-$here/../..}
passed=0
failed=0
lints=(format includes headers size markers shell links)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/cairn-lints-XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
# Side by side, and told in order.
for lint in "${lints[@]}"; do
    {
        bash "$here/$lint.sh" "$root" >"$tmp/$lint" 2>&1
        echo $? >"$tmp/$lint.rc"
    } &
done
bash "$here/selftest.sh" >"$tmp/selftest" 2>&1
wait
for lint in "${lints[@]}"; do
    if [ "$(cat "$tmp/$lint.rc")" = 0 ]; then
        echo "ok   $lint"
        passed=$((passed + 1))
    else
        printf 'FAIL %s\n%s\n' "$lint" "$(cat "$tmp/$lint")"
        failed=$((failed + 1))
    fi
done
out=$(cat "$tmp/selftest")
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
