#!/bin/bash
# No shell script gives shellcheck anything to say. SC2016 is left out: quoting what another program
# expands is on purpose here.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

if ! command -v shellcheck >/dev/null; then
    offence shell "shellcheck is not installed"
    finish
fi
while IFS= read -r file; do
    if ! out=$(cd "$root" && shellcheck --external-sources --severity=info --exclude=SC2016 \
        --format=gcc -- "$file")
    then
        while IFS= read -r line; do
            offence "${line%%: *}" "${line#*: }"
        done <<<"$out"
    fi
done < <(shell_files)
finish
