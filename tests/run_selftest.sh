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
# One that is late may take down what it put up.
expect '0 1 0' 1 "trap 'touch $tmp/down' EXIT; sleep 100" --timeout 0.5
expect '1 0 0' 0 "[ -e $tmp/down ]"
expect '1 0 0' 0 'echo "  7 passed, 7 failed"'

# A build's programs run side by side, but those that want to be alone: each leaves its name while it
# runs. The one with a cost, which is the last that the build names, is among the first.
mkdir "$tmp/project" "$tmp/here"
cat >"$tmp/project/work.sh" <<'END'
#!/bin/sh
touch "$2/$1"
echo "$1" >>"$2.order"
sleep 0.3
n=$(ls "$2" | wc -l)
rm "$2/$1"
case $1 in
alone*) [ "$n" = 1 ] ;;
bad) echo '2 passed, 1 failed'; exit 1 ;;
esac
END
{
    echo "project('p')"
    for name in a b c alone1 d bad alone2 model; do
        case $name in alone*) parallel=false ;; *) parallel=true ;; esac
        echo "test('$name', find_program('work.sh'), args: ['$name', '$tmp/here']," \
            "is_parallel: $parallel, suite: 'model')"
    done
} >"$tmp/project/meson.build"
chmod +x "$tmp/project/work.sh"
meson setup "$tmp/build" "$tmp/project" >"$tmp/out" 2>&1 || cat "$tmp/out"
rm -f "$tmp/totals"
"$here/run.py" --build "$tmp/build" --jobs 2 --durations --totals "$tmp/totals" \
    --measure "$tmp/costs" >"$tmp/out" 2>&1
rc=$?
told=$(grep -c '^ok   \|^FAIL ' "$tmp/out")
if [ "$(cat "$tmp/totals") exit $rc, $told told" = '9 1 0 exit 1, 8 told' ] &&
    head -3 "$tmp/here.order" | grep -q model &&
    [ "$(tail -2 "$tmp/here.order" | tr '\n' ' ')" = 'alone1 alone2 ' ] &&
    grep -q '^---- the slowest 8 of 8' "$tmp/out" && [ -s "$tmp/costs" ]; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "FAIL a build's programs: $(cat "$tmp/totals") exit $rc, $told told"
    cat "$tmp/here.order" "$tmp/out"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
