#!/bin/bash
# Every C file is as clang-format 14 lays it out (.clang-format). Other versions differ in details,
# so no other is asked.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

if ! command -v clang-format-14 >/dev/null; then
    offence format "clang-format-14 is not installed"
    finish
fi
while IFS= read -r file; do
    if ! (cd "$root" && clang-format-14 --style=file --dry-run -Werror -- "$file") >/dev/null 2>&1
    then
        offence "$file" "not formatted (clang-format-14 -i $file)"
    fi
done < <(c_files)
finish
