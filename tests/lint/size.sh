#!/bin/bash
# No source file or script above 800 lines: one idea per file.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

while IFS= read -r file; do
    lines=$(wc -l <"$root/$file")
    if [ "$lines" -gt 800 ]; then
        offence "$file" "$lines lines, the most is 800"
    fi
done < <({
    c_files
    shell_files
    tree_files | grep -E '(\.(py|md)|(^|/)meson\.build)$'
} | sort -u)
finish
