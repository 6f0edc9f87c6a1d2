#!/bin/bash
# No shell script gives shellcheck anything to say. Left out is what test scripts do on purpose: quote
# what another program expands (2016), call a function by its name in a variable (2317), write
# "A && B || C" where B cannot fail (2015), list files whose names they made (2012).
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

if ! command -v shellcheck >/dev/null; then
    offence shell "shellcheck is not installed"
    finish
fi
while IFS= read -r file; do
    if ! out=$(cd "$root" && shellcheck --external-sources --format=gcc --severity=info \
        --exclude=SC2016,SC2317,SC2015,SC2012 -- "$file")
    then
        while IFS= read -r line; do
            offence "${line%%: *}" "${line#*: }"
        done <<<"$out"
    fi
done < <(shell_files)
finish
