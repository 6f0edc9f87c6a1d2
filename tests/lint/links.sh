#!/bin/bash
# Every relative link of a document leads to a file, and its fragment to a heading.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

# The anchors of a Markdown file: headings in lower case, punctuation dropped, spaces to hyphens.
anchors() {
    awk '/^```/ { code = !code } !code && /^#+ / { sub(/^#+ /, ""); print }' "$1" |
        tr '[:upper:]' '[:lower:]' | sed -e 's/[^a-z0-9 _-]//g' -e 's/ /-/g'
}

while IFS= read -r file; do
    dir=$(dirname "$file")
    while IFS= read -r target; do
        case $target in
        '' | *://* | mailto:*) continue ;;
        esac
        path=${target%%#*}
        if [ -z "$path" ]; then
            path=$file
        elif [[ $path = /* ]]; then
            offence "$file" "link to $target: not relative"
            continue
        else
            path=$dir/$path
        fi
        if [ ! -e "$root/$path" ]; then
            offence "$file" "link to $target: no such file"
        elif [[ $target = *'#'* && $path = *.md ]] &&
            ! anchors "$root/$path" | grep -qxF -e "${target#*#}"; then
            offence "$file" "link to $target: no such heading"
        fi
    done < <(awk '/^```/ { code = !code } !code { gsub(/`[^`]*`/, ""); print }' "$root/$file" |
        grep -oE '\]\([^) ]*' | sed 's/^](//')
done < <(tree_files | grep '\.md$')
finish
