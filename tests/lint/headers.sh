#!/bin/bash
# Every header compiles alone, twice in one file (its guard), and without a warning.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

banned=()
if [ -f "$root/base/banned.h" ]; then
    banned=(-include base/banned.h)
fi
while IFS= read -r file; do
    if ! out=$(cd "$root" && printf '#include "%s"\n#include "%s"\n' "$file" "$file" |
        "${CC:-gcc}" -std=gnu17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DCAIRN_BUILDING \
            "${banned[@]}" -I. -Wall -Wextra -Wundef -Wstrict-prototypes -Werror -fsyntax-only \
            -x c - 2>&1); then
        offence "$file" "does not compile alone"
        printf '%s\n' "$out" | sed 's/^/    /'
    fi
done < <(c_files | grep '\.h$')
finish
