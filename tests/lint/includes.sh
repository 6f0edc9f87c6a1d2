#!/bin/bash
# Who may include whom: base <- store <- {s3, gc} <- {fuse, service} <- cli, tests see all. Each
# third-party library is known to one folder only, and to no header of ours.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

# Folders that a folder may include from, itself included.
declare -A may=(
    [base]="base"
    [store]="base store"
    [s3]="base store s3"
    [lib]="base store s3 gc lib"
    [gc]="base store gc"
    [fuse]="base store s3 gc fuse"
    [service]="base store s3 gc service"
    [cli]="base store s3 gc lib fuse service cli"
    [tests]="base store s3 gc lib fuse service cli tests"
)

# The one folder that may know a third-party header, by a pattern of its name.
third_party() {
    case $1 in
    openssl/* | xxhash.h | jansson.h) echo base ;;
    zstd.h | zstd_*.h | sqlite3.h) echo store ;;
    curl/* | libs3.h | expat.h) echo s3 ;;
    fuse.h | fuse_*.h | fuse3/*) echo fuse ;;
    event2/* | systemd/*) echo service ;;
    check.h) echo tests ;;
    *) return 1 ;;
    esac
}

# Headers of the C library and the kernel.
system_header() {
    case $1 in
    sys/* | linux/* | netinet/* | arpa/* | sanitizer/*) ;;
    assert.h | ctype.h | dirent.h | dlfcn.h | endian.h | errno.h | fcntl.h | float.h | fnmatch.h) ;;
    ftw.h | getopt.h | glob.h | grp.h | inttypes.h | libgen.h | limits.h | locale.h | malloc.h) ;;
    math.h | mntent.h | net/if.h | netdb.h | poll.h | pthread.h | pwd.h | sched.h | search.h) ;;
    semaphore.h | setjmp.h | signal.h | spawn.h | stdalign.h | stdarg.h | stdatomic.h) ;;
    stdbool.h | stddef.h | stdint.h | stdio.h | stdlib.h | stdnoreturn.h | string.h | strings.h) ;;
    syslog.h | termios.h | time.h | ucontext.h | uchar.h | unistd.h | utime.h | wchar.h) ;;
    *) return 1 ;;
    esac
}

while IFS=$'\t' read -r file no quote name; do
    folder=${file%%/*}
    if [ "$folder" = "$file" ] || [ -z "${may[$folder]:-}" ]; then
        offence "$file" "a C file outside the known folders (give its folder a place here)"
        continue
    fi
    # The programs under tests/api see only what is installed.
    case $file in tests/api/*)
        if [ "$name" = cairn.h ]; then
            continue
        fi
        ;;
    esac
    if [ "$quote" = '"' ]; then
        target=${name%%/*}
        case " ${may[$folder]} " in
        *" $target "*) ;;
        *) offence "$file:$no" "$folder may not include \"$name\"" ;;
        esac
        if [ ! -f "$root/$name" ]; then
            offence "$file:$no" "\"$name\" is no file (paths start at the top folder)"
        fi
    elif owner=$(third_party "$name"); then
        # A test program may look into a format with the library that wrote it.
        case $folder:$file in
        tests:*.c | tests:tests/lib/testing.h) continue ;;
        esac
        if [ "$owner" != "$folder" ]; then
            offence "$file:$no" "<$name> is known to $owner/ only"
        elif [[ $file = *.h ]]; then
            offence "$file:$no" "<$name> in a header of ours"
        fi
    elif ! system_header "$name"; then
        offence "$file:$no" "<$name> is unknown: name the folder it belongs to in includes.sh"
    fi
done < <(cd "$root" && c_files | xargs -r -d '\n' awk '
    FNR == 1 { print_name = FILENAME }
    match($0, /^[ \t]*#[ \t]*include[ \t]*["<][^">]*[">]/) {
        text = substr($0, RSTART, RLENGTH)
        sub(/^[ \t]*#[ \t]*include[ \t]*/, "", text)
        printf "%s\t%d\t%s\t%s\n", print_name, FNR, substr(text, 1, 1), substr(text, 2, length(text) - 2)
    }')
finish
