#!/bin/bash
# The cairn command as a user or a script meets it: every command, every exit code, JSON, messages,
# signals, broken outputs. Arguments: the build folder, then names of cases (default: all).
# A case is a function case_NAME; it runs in a folder of its own, in a shell that stops at the first
# thing that is not as it should be. Exit code 77 of a case means that this machine cannot try it.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd -P)
build=$(cd "$1" && pwd -P) || exit 2
shift
cairn=$build/cli/cairn
[ -x "$cairn" ] || {
    echo "run.sh: there is no $cairn" >&2
    exit 2
}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/cairn-cli-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
unset CAIRN_STORE CAIRN_STATE CAIRN_CONFIG
# A memory checker's own exit codes stay apart from ours.
export ASAN_OPTIONS=${ASAN_OPTIONS:-exitcode=99}

# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"
# shellcheck source=tests/cli/usage.sh
. "$here/usage.sh"
# shellcheck source=tests/cli/commands.sh
. "$here/commands.sh"
# shellcheck source=tests/cli/faults.sh
. "$here/faults.sh"

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    mapfile -t names < <(compgen -A function case_)
fi
passed=0 failed=0 skipped=0
for name in "${names[@]}"; do
    name=${name#case_}
    mkdir -p "$tmp/$name/home"
    (
        cd "$tmp/$name" || exit 1
        export HOME=$PWD/home XDG_CONFIG_HOME=$PWD/home/config XDG_DATA_HOME=$PWD/home/data \
            XDG_STATE_HOME=$PWD/home/state
        trap 'echo "line $LINENO: $BASH_COMMAND"' ERR
        set -eE
        "case_$name"
    ) >"$tmp/log" 2>&1 </dev/null
    case $? in
    0)
        echo "ok   $name"
        passed=$((passed + 1))
        ;;
    77)
        echo "skip $name"
        skipped=$((skipped + 1))
        ;;
    *)
        echo "FAIL $name"
        sed 's/^/  | /' "$tmp/log" | head -40
        failed=$((failed + 1))
        ;;
    esac
    chmod -R u+w "$tmp/$name" && rm -rf "${tmp:?}/$name"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
