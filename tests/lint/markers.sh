#!/bin/bash
# No path of one person's machine, no note of unfinished work. The words are put together here so
# that this file does not name them itself.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

paths="(^|[^A-Za-z0-9_./-])/(work|home|root|Users)/[A-Za-z0-9_.]"
notes="(^|[^A-Za-z0-9_])(TO""DO|FIX""ME|X""XX)([^A-Za-z0-9_]|\$)"
search() {
    while IFS=: read -r file line text; do
        offence "$file:$line" "$2: ${text:0:100}"
    done < <(cd "$root" && text_files | grep -vx LICENSE |
        xargs -r -d '\n' grep -HnE -e "$1" -- /dev/null)
}
search "$paths" "absolute path of a machine"
search "$notes" "unfinished"
finish
