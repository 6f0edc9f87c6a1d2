# What the lints share. Sourced: each lint is "NAME.sh ROOT", prints one line for each offence, and
# exits 1 if there was one.
# shellcheck shell=bash

set -u
export LC_ALL=C

if [ $# -lt 1 ] || [ ! -d "$1" ]; then
    echo "usage: $0 ROOT" >&2
    exit 2
fi
root=$(cd "$1" && pwd -P)
offences=0

# offence WHERE WHAT
offence() {
    printf '%s: %s\n' "$1" "$2"
    offences=$((offences + 1))
}

finish() {
    [ "$offences" -eq 0 ]
    exit
}

# The files of the tree, relative to its root, one a line: those git tracks, or in a tree that is no
# checkout all but build folders. Symbolic links and removed files are left out.
tree_files() {
    if [ "$(git -C "$root" rev-parse --show-toplevel 2>/dev/null)" = "$root" ]; then
        git -C "$root" ls-files
    else
        (cd "$root" && find . \( -name .git -o -path './build*' \) -prune -o -type f -print) |
            sed 's,^\./,,'
    fi | LC_ALL=C sort | while IFS= read -r file; do
        if [ -f "$root/$file" ] && [ ! -h "$root/$file" ]; then
            printf '%s\n' "$file"
        fi
    done
}

# Those of them that hold text (an empty file counts).
text_files() {
    tree_files | while IFS= read -r file; do
        if [ ! -s "$root/$file" ] || grep -qI '' "$root/$file"; then
            printf '%s\n' "$file"
        fi
    done
}

c_files() {
    tree_files | grep -E '\.[ch]$'
}

# Shell scripts: by name, or by their first line.
shell_files() {
    text_files | while IFS= read -r file; do
        case $file in
        *.sh) printf '%s\n' "$file" ;;
        *)
            if head -n 1 "$root/$file" | grep -qE '^#!.*/(env )?(ba|da)?sh( |$)'; then
                printf '%s\n' "$file"
            fi
            ;;
        esac
    done
}
