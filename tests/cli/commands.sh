# Cases of run.sh: each command, what it prints, how it ends.
# The ids hold no blanks.
# shellcheck shell=bash disable=SC2154,SC2086

case_init() {
    ends 0 --store s --state st init --chunk-size 128K --compression none --json
    json 'd["chunk_size"] == 131072' 'd["compression"] == "none"' 'd["format"] == 1' \
        'len(d["store_id"]) == 32' 'd["store"] == "s"'
    ends 4 --store s --state st init
    complains '^cairn: init: busy: '
    mkdir other
    touch other/file
    ends 1 --store other --state st2 init
    complains '^cairn: init: invalid: '
    mkdir empty
    ends 0 --store empty --state st3 init
    says 'chunks of 64 KiB, compression zstd'
    ends 0 --store q --state st4 init --quiet
    [ ! -s out ]
}

case_publish_json_has_its_fields() {
    export CAIRN_STORE=store CAIRN_STATE=state
    make_vm
    ends 0 init
    ends 0 publish $a --from vm --json
    silent
    json 'set(d) == {"id", "gen", "logical_bytes", "data_bytes", "new_bytes", "stored_bytes",
            "chunks", "new_chunks", "seconds", "unchanged"}' \
        'd["id"] == "'$a'"' 'len(d["gen"]) == 16' 'd["unchanged"] is False' \
        'd["logical_bytes"] == sum(__import__("os").path.getsize(f) for f in
            ("vm/memory", "vm/disk", "vm/sub/config.json"))' \
        '0 < d["data_bytes"] < d["logical_bytes"]' 'd["new_bytes"] <= d["data_bytes"]' \
        '0 < d["stored_bytes"] < d["new_bytes"]' 'd["new_chunks"] == d["chunks"] > 0' \
        '0 <= d["seconds"] < 60'
    ends 0 publish $b --from vm --parent $a --digest --json
    json 'd["digest"].startswith("sha256:")' 'len(d["digest"]) == 71' 'd["new_chunks"] == 0' \
        'd["new_bytes"] == 0'
}

case_publish_refusals() {
    make_store
    ends 4 publish $a --from vm --meta vm/sub/config.json
    complains "^cairn: publish $a: busy: "
    ends 3 publish $b --from absent
    ends 3 publish $b --from vm --parent $c
    ends 2 publish $b --from vm --parent nonsense
    ends 1 publish $b --from vm --expect memory=1G
    complains 'memory'
    ends 1 publish $b --from vm --expect absent=1
    mkfifo vm/fifo
    ends 1 publish $b --from vm
    complains "^cairn: publish $b: invalid: .*fifo"
    rm vm/fifo
    ends 3 publish $b --from vm/memory
    complains 'Not a directory'
    ends 0 ls --json
    json '[r["id"] for r in d] == ["'$a'"]'
    ends 0 publish $b --from vm --expect memory="$(stat -c %s vm/memory)" --expect disk=4M
}

case_publish_of_the_same_again_is_unchanged() {
    make_store
    echo '{"n": 1}' >m
    ends 0 publish $t --from vm --meta m --json
    json 'd["unchanged"] is False'
    ends 0 publish $t --from vm --meta m --json
    json 'd["unchanged"] is True'
    ends 0 publish $t --from vm --meta m
    says '^unchanged tp_'
    # Without a meta of its own the same command run again finds its work done.
    ends 0 publish $a --from vm --json
    json 'd["unchanged"] is True' 'd["id"] == "'$a'"'
    echo more >>vm/memory
    ends 4 publish $a --from vm
    ends 1 publish $t --from vm --meta m
    complains ': invalid: '
    echo '{"n": 2}' >m
    ends 0 publish $t --from vm --meta m
}

case_publish_takes_meta_from_standard_input() {
    make_store
    printf 'hello\n' | "$cairn" publish $b --from vm --meta - >out
    ends 0 show $b --json
    json 'd["meta"] == "hello\n"'
    : >empty
    ends 0 publish $c --from vm --meta empty
    ends 0 show $c --json
    json 'd["meta"] == ""'
}

case_publish_bounds_the_meta() {
    make_store
    head -c 1048576 /dev/zero | tr '\0' x >m
    ends 0 publish $b --from vm --meta m
    echo x >>m
    ends 1 publish $c --from vm --meta m
    complains "^cairn: publish $c: invalid: meta m: more than the 1048576 bytes allowed"
    # Refused as soon as it is known, not at the end of what may have none.
    local code=0
    timeout 20 "$cairn" publish $c --from vm --meta - </dev/zero >out 2>errors || code=$?
    [ $code -eq 1 ] || fail "exit code $code"
    ends 3 publish $c --from vm --meta absent
    ends 3 show $c
}

case_publish_tells_of_folders_it_does_not_keep() {
    make_store
    mkdir vm/empty
    ends 0 publish $b --from vm
    complains 'warning: 1 folder without files not kept'
    ends 0 publish $c --from vm --quiet
    silent
    [ ! -s out ]
}

case_show() {
    make_store --digest
    ends 0 show $a
    says '^id +'$a
    says '^ *[0-9.]+ [KM]iB +[0-9.]+ [KM]iB  memory$'
    says 'sub/config.json$'
    says '^meta.json'
    ends 0 show $a --json
    json 'd["id"] == "'$a'"' 'd["meta_json"]["id"] == "'$a'"' '"meta" not in d' \
        'd["created"].endswith("Z") and len(d["created"]) == 30' 'd["digest"].startswith("sha256:")' \
        '[f["path"] for f in d["files"]] == ["disk", "memory", "sub/config.json"]' \
        'all(set(f) == {"path", "size", "data_bytes"} for f in d["files"])' \
        'd["files"][0]["size"] == 4 << 20' 'd["files"][0]["data_bytes"] < 1 << 20' \
        'd["logical_bytes"] == sum(f["size"] for f in d["files"])'
    ends 0 publish $b --from vm --parent $a
    ends 0 show $b --json
    json 'd["parent"]["id"] == "'$a'"' 'len(d["parent"]["gen"]) == 16'
    ends 3 show $c
    complains "^cairn: show $c: not_found: "
    ends 3 show $c --json
    json 'd["error"]["class"] == "not_found"'
}

case_show_of_any_meta() {
    make_store
    printf 'a\\u00e9 {' >m
    ends 0 publish $b --from vm --meta m
    ends 0 show $b --json
    json 'd["meta"] == "a\\u00e9 {"' '"meta_json" not in d' '"meta_hex" not in d'
    printf '\xff\x00\x1b[2J' >m
    ends 0 publish $c --from vm --meta m
    ends 0 show $c --json
    json 'bytes.fromhex(d["meta_hex"]) == b"\xff\x00\x1b[2J"' 'd["meta"] == "\ufffd\ufffd\x1b[2J"'
    ends 0 show $c
    grep -q $'\e' out && fail "an escape got through"
    says '\\xff\\x00\\x1b\[2J'
    printf '[1, {"x": "\xc3\xa9"}]\n' >m
    ends 0 publish $t --from vm --meta m
    ends 0 show $t --json
    json 'd["meta_json"] == [1, {"x": "\u00e9"}]'
    printf '{"n": 123456789012345678901234567890}' >m # more than an integer of C holds
    ends 0 publish $t --from vm --meta m
    ends 0 show $t --json
    json 'd["meta_json"] == {"n": 123456789012345678901234567890}'
    printf '{"x": 1, "x": 2}' >m
    ends 0 publish $t --from vm --meta m
    ends 0 show $t --json
    json 'd["meta"].startswith("{")'
}

case_ls() {
    make_store
    ends 0 publish $t --from vm
    ends 0 publish $c --from vm --digest
    ends 0 publish $b --from vm
    ends 0 ls
    silent
    says '^ID +GENERATION +CREATED +SIZE +STORED +FILES$'
    [ "$(awk 'NR > 1 { print $1 }' out | paste -sd ' ')" = "$a $b $c $t" ]
    # Aligned: every row as long as the heading.
    [ "$(awk '{ print length($0) }' out | sort -u | wc -l)" -eq 1 ]
    says '20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z'
    ends 0 ls --json
    json 'len(d) == 4' 'all(set(r) - {"digest"} == {"id", "gen", "created", "logical_bytes",
            "stored_bytes", "files"} for r in d)' 'd[0]["files"] == 3' \
        '[("digest" in r) for r in d] == [False, False, True, False]'
    ends 0 ls --json --prefix ck_
    json '[r["id"] for r in d] == ["'$a'", "'$b'", "'$c'"]'
    ends 0 ls --json --prefix=
    json 'len(d) == 4'
    ends 0 ls --json --after $b
    json '[r["id"] for r in d] == ["'$c'", "'$t'"]'
    ends 0 ls --json --after $a --limit 1
    json '[r["id"] for r in d] == ["'$b'"]'
    ends 0 ls --json --prefix zz
    json 'd == []'
    ends 0 ls --prefix zz
    [ ! -s out ]
}

case_ls_shows_what_it_cannot_read() {
    make_store
    ends 0 publish $b --from vm
    for manifest in "store/records/$a"/export-*; do
        chmod u+w "$manifest"
        printf 'garbage' | dd of="$manifest" bs=1 seek=40 conv=notrunc status=none
    done
    ends 0 ls --json
    json 'len(d) == 2' 'set(d[0]) == {"id", "error"}' 'd[0]["error"]["class"] == "corrupt"' \
        'd[0]["error"]["message"]' 'd[1]["id"] == "'$b'"'
    ends 0 ls
    says "^$a +corrupt: "
    ends 6 show $a
    ends 6 fetch $a --to back
    [ ! -e back ]
}

case_ls_of_many() {
    make_store
    local i
    for ((i = 1; i <= 400; i++)); do
        printf 'ck_%016x\n' $((i + 4096))
    done >ids
    while read -r id; do
        "$cairn" fork $a "$id" --quiet || exit 1
    done <ids
    ends 0 publish $t --from vm
    ends 0 ls --json
    json 'len(d) == 402' '[r["id"] for r in d] == sorted(r["id"] for r in d)'
    ends 0 ls
    [ "$(wc -l <out)" -eq 403 ]
}

case_fetch() {
    make_store --digest
    ends 0 fetch $a --to back
    silent
    says "^fetched $a, generation "
    diff -r vm back
    [ "$(stat -c %b back/disk)" -lt 1000 ]
    ends 0 fetch $a --to back2 --json
    json 'd["id"] == "'$a'"' 'd["path"] == "back2"' 'd["files"] == 3' \
        'd["digest"].startswith("sha256:")' 'd["data_bytes"] <= d["logical_bytes"]' \
        '"cloned_bytes" in d' 'd["seconds"] >= 0'
    ends 4 fetch $a --to back
    complains ': busy: '
    mkdir empty
    ends 0 fetch $a --to empty --quiet
    [ ! -s out ]
    diff -r vm empty
    ends 3 fetch $c --to none
    ends 3 fetch $a --to no/such/folder
    [ ! -e none ] && [ ! -e no ]
    [ "$(find . -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | paste -sd ' ')" = 'back back2 empty errors home out state store vm' ]
}

case_fetch_gives_the_meta_too() {
    make_vm
    export CAIRN_STORE=store CAIRN_STATE=state
    ends 0 init
    printf '\x00meta\xff' >m
    ends 0 publish $a --from vm --meta m
    echo old >got
    ends 0 fetch $a --to b1 --meta got
    cmp m got
    ends 0 fetch $a --to b2 --meta -
    cmp m out
    ends 2 fetch $a --to b3 --meta - --json
    ends 3 fetch $a --to b4 --meta no/such/file
    ends 7 fetch $a --to b5 --meta /dev/full
    [ ! -e b3 ] && [ ! -e b4 ]
    # A fetch that fails leaves the old file.
    echo old >got
    ends 4 fetch $a --to b1 --meta got
    [ "$(cat got)" = old ]
    [ -z "$(find . -maxdepth 1 -name 'got.*')" ]
}

case_timeouts() {
    make_store
    ends 5 fetch $a --to back --timeout 0
    complains "^cairn: fetch $a: timeout: "
    ends 5 fetch $a --to back --timeout 0.0 --json
    json 'd["error"]["class"] == "timeout"'
    [ ! -e back ]
    ends 0 fetch $a --to back --timeout 99999999999999999999999999
    ends 0 fetch $a --to back2 --timeout 60.5
    # Waiting for a meta that does not come.
    local code=0
    mkfifo wait
    exec 7<>./wait
    timeout 20 "$cairn" publish $b --from vm --meta - --timeout 0.3 >out 2>errors <&7 || code=$?
    [ $code -eq 5 ] || fail "exit code $code"
}

case_cat() {
    make_store
    for file in memory disk sub/config.json; do
        ends 0 cat $a $file
        silent
        cmp vm/$file out
        "$cairn" cat $a $file | cmp - vm/$file
    done
    ends 3 cat $a absent
    complains "^cairn: cat $a: not_found: it has no file \"absent\""
    ends 3 cat $a sub
    ends 3 cat $c memory
    : >vm/nothing
    ends 0 publish $b --from vm
    ends 0 cat $b nothing
    [ ! -s out ]
}

case_cat_keeps_holes_and_never_shows_old_bytes() {
    make_vm
    export CAIRN_STORE=store CAIRN_STATE=state
    ends 0 init
    truncate -s 1G vm/disk
    printf x | dd of=vm/disk bs=1 seek=500M conv=notrunc status=none
    ends 0 publish $a --from vm
    ends 0 cat $a disk
    cmp vm/disk out
    [ "$(stat -c %s out)" -eq $((1 << 30)) ]
    [ "$(stat -c %b out)" -lt 1000 ]
    truncate -s 3000000 vm/small
    printf x | dd of=vm/small bs=1 seek=1000000 conv=notrunc status=none
    ends 0 publish $b --from vm
    # Over a file that holds other bytes, behind one, and at its end.
    tr '\0' y </dev/zero | head -c 2000000 >over
    "$cairn" cat $b small 1<>over
    cmp vm/small over
    printf start >behind
    { printf head && "$cairn" cat $b small; } >behind
    { printf head && cat vm/small; } | cmp - behind
    printf start >appended
    "$cairn" cat $b small >>appended
    { printf start && cat vm/small; } | cmp - appended
}

case_fork() {
    make_store
    ends 0 fork $a $b --json
    json 'd["id"] == "'$b'"' 'd["from"] == "'$a'"' 'len(d["gen"]) == 16'
    ends 0 fetch $b --to back
    diff -r vm back
    echo '{"fork": true}' >m
    ends 0 fork $a $c --meta m
    says "^forked $a as $c"
    ends 0 show $c --json
    json 'd["meta_json"] == {"fork": True}'
    ends 4 fork $a $c --meta vm/memory
    # The same command run again, its meta made of the time: its work is done. Another source is not.
    ends 0 fork $a $b
    mkdir other && echo other >other/file
    ends 0 publish ck_dddddddddddddddd --from other
    ends 4 fork ck_dddddddddddddddd $b
    ends 0 rm ck_dddddddddddddddd
    ends 3 fork ck_ffffffffffffffff ck_eeeeeeeeeeeeeeee
    ends 2 fork $a nonsense
    ends 2 fork $a
    ends 0 stats --json
    json 'd["records"] == 3'
}

case_rm() {
    make_store
    ends 0 fork $a $b
    ends 0 fork $a $c
    ends 0 rm $a
    says "^deleted $a"
    ends 3 show $a
    ends 0 rm $a
    says "^$a was not there"
    ends 0 hold $b
    ends 4 rm $b $c ck_ffffffffffffffff
    complains "^cairn: rm $b: busy: "
    says "^deleted $c"
    [ "$(wc -l <errors)" -eq 1 ]
    ends 0 ls --json
    json '[r["id"] for r in d] == ["'$b'"]'
    ends 4 rm $b $c --json
    json 'len(d) == 2' 'd[0]["id"] == "'$b'"' 'd[0]["error"]["class"] == "busy"' \
        'd[1] == {"id": "'$c'", "removed": False}'
    ends 2 rm
    ends 2 rm $b nonsense
    ends 0 release $b
    ends 0 rm --quiet $b
    [ ! -s out ]
}

case_hold_and_release() {
    make_store
    ends 0 hold $a --json
    json 'd == {"id": "'$a'", "held": True}'
    ends 0 hold $a
    says "^held $a"
    ends 0 ls
    says "^$a .*  held$"
    ends 0 ls --json
    json 'd[0]["held"] is True'
    ends 4 rm $a
    ends 0 release $a --json
    json 'd == {"id": "'$a'", "held": False}'
    ends 0 release $a
    ends 0 rm $a
    ends 3 hold $c
}

case_stats() {
    make_store
    ends 0 stats --json
    json 'set(d) == {"records", "generations", "packs", "chunks", "logical_bytes", "stored_bytes",
            "index_bytes", "manifest_bytes", "unreadable"}' 'd["records"] == 1' 'd["generations"] == 1' 'd["packs"] == 1' \
        'd["chunks"] > 0' 'd["stored_bytes"] > 0' 'd["index_bytes"] > 0' \
        'all(isinstance(v, int) for v in d.values())'
    ends 0 stats
    says '^records +1$'
    says '^stored +[0-9.]+ KiB \([0-9]+ bytes\)$'
    ends 2 stats extra
}

case_verify_of_a_whole_store() {
    make_store
    ends 0 publish $b --from vm
    ends 0 verify
    says 'checked 2 records, .*: no fault$'
    ends 0 verify --json
    json 'd["ok"] is True' 'd["checked_chunks"] > 0' 'd["checked_records"] == 2' 'd["errors"] == []' \
        'd["unknown"] == []'
    ends 0 verify $b --json
    json 'd["ok"] is True' 'd["checked_records"] == 1'
    ends 3 verify $b $c --json
    json 'd["error"]["class"] == "not_found"'
    ends 0 verify --repair-index
    rm -rf state
    ends 0 verify --repair-index --quiet
    [ ! -s out ]
    echo foreign >store/foreign
    ends 0 verify --json
    json 'd["ok"] is True' 'd["unknown"] == ["foreign"]'
    ends 0 verify
    complains 'unknown key foreign'
}

case_verify_finds_damage() {
    make_store
    local pack at
    pack=$(find store/packs -type f | head -n 1)
    chmod u+w "$pack"
    at=$(($(stat -c %s "$pack") / 4))
    printf '\x5a\xa5\x5a\xa5\x5a\xa5\x5a\xa5' | dd of="$pack" bs=1 seek=$at conv=notrunc status=none
    ends 6 verify --json
    json 'd["ok"] is False' 'len(d["errors"]) >= 1' 'set(d["errors"][0]) == {"class", "object",
        "message"}' 'd["errors"][0]["class"] == "corrupt"' \
        'd["errors"][0]["object"] and d["errors"][0]["message"]'
    ends 6 verify
    says '^corrupt  '
    says 'fault'
    complains '^cairn: verify: corrupt: [0-9]+ fault'
    local code=0
    "$cairn" cat $a memory >out 2>errors || code=$?
    [ $code -eq 6 ] || { "$cairn" cat $a disk >out 2>errors || code=$?; }
    [ $code -eq 6 ] || fail "cat ended with $code"
    complains "^cairn: cat $a: corrupt: "
    ends 6 fetch $a --to back
    [ ! -e back ]
}
