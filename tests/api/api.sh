#!/bin/bash
# What a user of the installed library meets: install a build into a scratch folder, then compile
# and run tour.c against that alone, as C and as C++, found by pkg-config. Argument: the build.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd -P)
build=$(cd "$1" && pwd -P) || exit 2
tmp=$(mktemp -d "${TMPDIR:-/tmp}/cairn-api-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
passed=0
failed=0

# expect NAME COMMAND...: one case; what a failing command says is shown.
expect() {
    local name=$1
    shift
    if "$@" >"$tmp/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name: $*"
        cat "$tmp/log"
    fi
}

# tour NAME COMPILER-AND-FLAGS...: compile, run, and take over its counts.
tour() {
    local name=$1
    shift
    mkdir "$tmp/$name.data"
    # Split on purpose: what pkg-config prints is a list of words.
    # shellcheck disable=SC2046
    expect "compile $name" "$@" -Wall -Wextra -Wpedantic -Werror -o "$tmp/$name" \
        $(pkg-config --cflags cairn) "$here/tour.c" -x none $(pkg-config --libs cairn)
    if [ -x "$tmp/$name" ]; then
        "$tmp/$name" "$tmp/$name.data" >"$tmp/tour" 2>&1
        local code=$?
        local bad=0
        if [[ $(tail -n 1 "$tmp/tour") =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
            passed=$((passed + BASH_REMATCH[1]))
            bad=${BASH_REMATCH[2]}
        fi
        if [ $code -ne 0 ]; then
            echo "FAIL $name: exit code $code"
            cat "$tmp/tour"
            failed=$((failed + (bad > 0 ? bad : 1)))
        fi
    fi
}

if ! meson install -C "$build" --no-rebuild --destdir "$tmp/root" >"$tmp/log" 2>&1; then
    cat "$tmp/log"
    echo "0 passed, 1 failed"
    exit 1
fi
pc=$(find "$tmp/root" -name cairn.pc)
library=$(dirname "$(dirname "$pc")")
program=$(find "$tmp/root" -path '*/bin/cairn')
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR=$tmp/root LD_LIBRARY_PATH=$library
version=$(pkg-config --modversion cairn)

tour c11 gcc -std=c11 -D_XOPEN_SOURCE=700 -D_FILE_OFFSET_BITS=64
tour cxx g++ -std=c++11 -D_FILE_OFFSET_BITS=64 -x c++
expect "soname" test -e "$library/libcairn.so.0"
expect "exports" bash "$here/../lint/exports.sh" "$library"
expect "program" test -x "$program"
expect "version of the program" grep -qF "$version" <("$program" version)

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
