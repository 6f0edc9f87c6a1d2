#!/bin/bash
# Each lint passes a good tree and fails a bad one, with the offence named. Prints one line a case
# and "N passed, N failed" at the end.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd -P)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/cairn-lint-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
passed=0
failed=0

good_tree() {
    rm -rf "$tmp/tree"
    mkdir -p "$tmp/tree/base" "$tmp/tree/store" "$tmp/tree/s3" "$tmp/tree/gc" "$tmp/tree/fuse" \
        "$tmp/tree/service" "$tmp/tree/cli" "$tmp/tree/tests/unit" "$tmp/tree/docs"
    cd "$tmp/tree" || exit 2
    cp "$here/../../.clang-format" .
    printf '#ifndef A_H\n#define A_H\n#include <stddef.h>\nsize_t a_len(void);\n#endif\n' >base/a.h
    printf '#include "base/a.h"\n\n#include <openssl/evp.h>\n' >base/a.c
    printf '#ifndef S_H\n#define S_H\n#include "base/a.h"\n#endif\n' >store/s.h
    printf '#include "store/s.h"\n\n#include <zstd.h>\n' >store/s.c
    printf '#include "s3/net.h"\n\n#include "store/s.h"\n\n#include <curl/curl.h>\n' >s3/net.c
    printf '#ifndef NET_H\n#define NET_H\n#endif\n' | tee s3/net.h gc/mark.h >fuse/mount.h
    printf '#include "fuse/mount.h"\n#include "gc/mark.h"\n#include "s3/net.h"\n' >cli/main.c
    printf '#include "base/a.h"\n\n#include <check.h>\n' >tests/unit/test_a.c
    printf '#!/bin/bash\necho "$1"\n' >tool
    printf '# Top\nSee [docs](docs/a.md#some-words-here), [web](https://example.org/x).\n' >README.md
    printf '# A\n## Some words, here\n[up](../README.md)\n' >docs/a.md
}

# expect NAME LINT WANT: a pass ("") or an offence whose line holds WANT.
expect() {
    local out rc=0
    out=$(bash "$here/$2.sh" "$tmp/tree" 2>&1) || rc=$?
    if [ -z "$3" ] && [ "$rc" -eq 0 ] && [ -z "$out" ]; then
        passed=$((passed + 1))
    elif [ -n "$3" ] && [ "$rc" -eq 1 ] && [[ $out = *"$3"* ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL %s: %s exited %d, wanted "%s"; it said:\n%s\n' "$1" "$2" "$rc" "$3" "$out"
    fi
}

# bad LINT FILE CONTENT WANT: the good tree with one file (re)written fails.
bad() {
    good_tree
    mkdir -p "$(dirname "$2")"
    printf '%b' "$3" >"$2"
    expect "$2" "$1" "$4"
}

good_tree
for lint in format includes headers size markers shell links; do
    expect good "$lint" ""
done

bad format base/a.c 'int  a;\n' 'base/a.c: not formatted'
bad includes base/a.c '#include "store/s.h"\n' 'base/a.c:1: base may not include "store/s.h"'
bad includes store/s.c '#include "gc/mark.h"\n' 'store may not include "gc/mark.h"'
bad includes s3/net.c '#include "gc/mark.h"\n' 's3 may not include "gc/mark.h"'
bad includes gc/mark.c '#include "s3/net.h"\n' 'gc may not include "s3/net.h"'
bad includes service/x.c '#include "fuse/mount.h"\n' 'service may not include "fuse/mount.h"'
bad includes fuse/x.c '  #  include "cli/x.h"\n' 'fuse may not include "cli/x.h"'
bad includes cli/main.c '#include "tests/x.h"\n' 'cli may not include "tests/x.h"'
bad includes base/a.c '#include "a.h"\n' 'base may not include "a.h"'
bad includes base/a.c '#include "base/none.h"\n' '"base/none.h" is no file'
bad includes store/s.c '#include <openssl/evp.h>\n' '<openssl/evp.h> is known to base/ only'
bad includes base/a.c '#include <sqlite3.h>\n' '<sqlite3.h> is known to store/ only'
bad includes cli/main.c '#include <fuse_lowlevel.h>\n' '<fuse_lowlevel.h> is known to fuse/ only'
bad includes base/a.c '#include <check.h>\n' '<check.h> is known to tests/ only'
bad includes store/s.h '#include <zstd.h>\n' '<zstd.h> in a header of ours'
bad includes base/a.c '#include <lz4.h>\n' '<lz4.h> is unknown'
bad includes other/a.c '#include <stdio.h>\n' 'outside the known folders'
bad headers base/a.h '#ifndef A_H\n#define A_H\nsize_t a_len(void);\n#endif\n' \
    'base/a.h: does not compile alone'
bad headers base/a.h 'struct a {\n    int b;\n};\n' 'base/a.h: does not compile alone'
bad size base/a.c "$(printf '\\n%.0s' {1..801})" 'base/a.c: 801 lines'
bad size tool "#!/bin/sh\n$(printf ':\\n%.0s' {1..800})" 'tool: 801 lines'
bad markers docs/b.md 'see /''home/jo/x\n' 'docs/b.md:1: absolute path'
bad markers base/a.c '/* FIX''ME: later */\n' 'base/a.c:1: unfinished'
bad markers tool 'x\ny # TO''DO\n' 'tool:2: unfinished'
bad shell tool '#!/bin/bash\nrm $1\n' 'tool:2'
bad shell x.sh 'cd $(pwd)\n' 'x.sh:1'
bad links README.md '[x](docs/none.md)\n' 'README.md: link to docs/none.md: no such file'
bad links docs/a.md '[x](/README.md)\n' 'not relative'
bad links docs/a.md '[x](../README.md#bottom)\n' 'no such heading'

# exports looks at a library, so it is given one.
good_tree
lib="$tmp/tree/libcairn.so"
echo 'int cairn_open(void) { return 0; } int cairn_close(void) { return 0; }' |
    gcc -x c -shared -fPIC -o "$lib" -
expect good exports ""
echo 'int cairn_open(void) { return 0; } int error_set(void) { return 0; }' |
    gcc -x c -shared -fPIC -o "$lib" -
expect bad exports 'libcairn.so: offers error_set'
echo 'static int a;' | gcc -x c -shared -fPIC -o "$lib" -
expect bad exports 'does not offer cairn_open'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
