# Cases of run.sh: odd names, outputs that break, terminals, signals, what the machine refuses.
# The ids hold no blanks.
# shellcheck shell=bash disable=SC2154,SC2086

case_odd_file_names_go_through() {
    export CAIRN_STORE=store CAIRN_STATE=state
    mkdir vm
    local long
    long=$(printf '%0255d' 0)
    local names=($'new\nline' $'\x01\e[31m' $'bad\xff\xfeutf' -dash 'sp ace' "$long" $'\xc3\xa9'
        'back\slash' $'\xc2\x9b')
    local name
    for name in "${names[@]}"; do
        printf '%s' "$name" >vm/"$name"
    done
    ends 0 init
    ends 0 publish $a --from vm
    ends 0 show $a
    grep -q $'[\e\x01]' out && fail "a control character got through"
    says 'new\\x0aline$'
    says 'bad\\xff\\xfeutf$'
    says $'\xc3\xa9$'
    says '\\xc2\\x9b$'
    says 'back\\\\slash$'
    ends 0 show $a --json
    json 'len(d["files"]) == 9' \
        '[bytes.fromhex(f["path_hex"]) for f in d["files"] if "path_hex" in f] == [b"bad\xff\xfeutf"]' \
        '"new\nline" in [f["path"] for f in d["files"]]'
    for name in "${names[@]}"; do
        ends 0 cat $a -- "$name"
        printf '%s' "$name" | cmp - out
    done
    ends 0 fetch $a --to $'back\xff\n'
    says '^fetched .* to back\\xff\\x0a$'
    diff -r vm $'back\xff\n'
}

case_a_full_output_is_an_error() {
    make_store
    local code
    for line in "ls" "ls --json" "show $a" "stats" "verify" "cat $a memory" "help" "version" \
        "publish $b --from vm --json" "fork $a $c"; do
        code=0
        # shellcheck disable=SC2086
        "$cairn" $line >/dev/full 2>errors || code=$?
        [ $code -eq 7 ] || fail "exit code $code of $line"
        complains 'no_space: write standard output: No space left'
    done
    ends 0 show $b # only the telling failed
}

case_a_closed_output_is_an_error() {
    make_store
    local code=0
    "$cairn" stats >&- 2>errors || code=$?
    [ $code -eq 1 ] || fail "exit code $code"
    complains 'Bad file descriptor'
    # Nor do messages go into a file that took the number of a closed descriptor.
    code=0
    "$cairn" publish $a --from vm --meta vm/memory >out 2>&- || code=$?
    [ $code -eq 4 ] || fail "exit code $code"
    code=0
    "$cairn" publish $b --from vm >out 2>errors <&- || code=$?
    [ $code -eq 0 ] || fail "exit code $code"
}

case_a_reader_that_leaves_early_ends_a_stream_quietly() {
    make_store
    fill vm/memory 8
    ends 0 publish $b --from vm
    local status
    set +e
    "$cairn" cat $b memory 2>errors | head -c 10 >/dev/null
    status=${PIPESTATUS[0]}
    set -e
    [ "$status" -eq 141 ] || fail "exit code $status"
    silent
    # What is no stream was not told to anybody.
    local code=0
    python3 -c 'import os, subprocess, sys
r, w = os.pipe()
os.close(r)
sys.exit(subprocess.run(sys.argv[1:], stdout=w).returncode)' "$cairn" stats --json 2>errors || code=$?
    [ $code -eq 1 ] || fail "exit code $code"
    complains 'Broken pipe'
}

case_progress_is_for_terminals_only() {
    make_store
    fill vm/memory 64
    ends 0 publish $b --from vm
    silent
    grep -q $'\r' out && fail "a bar in the output"
    fill vm/memory2 64
    on_terminal publish $c --from vm
    grep -q '%' tty || fail "no bar: $(od -c tty | head)"
    grep -q $'\r' tty
    # The last thing that is drawn is nothing.
    tail -c 200 tty | grep -q $'\r\033\\[K' || fail "the bar stays"
    fill vm/memory3 64
    on_terminal publish ck_00000000000000dd --from vm --json
    grep -q '%' tty && fail "a bar with --json"
    fill vm/memory4 64
    on_terminal publish ck_00000000000000ee --from vm --quiet
    grep -q '%' tty && fail "a bar with --quiet"
    true
}

case_an_interrupted_publish_leaves_nothing_visible() {
    make_store
    fill vm/memory 384
    local packs signal
    packs=$(find store/packs -type f | wc -l)
    for signal in INT TERM HUP; do
        for _ in 1 2 3 4 5; do
            interrupt $signal '[ "$(du -sm store | cut -f 1)" -gt 20 ]' publish $b --from vm --workers 1
            if [ "$code" -ne 0 ]; then
                break
            fi
            "$cairn" rm $b --quiet
            rm -rf store/packs state
            "$cairn" rm $a --quiet
            ends 0 publish $a --from vm/sub
        done
        [ "$code" -eq $((128 + $(kill -l $signal))) ] || fail "exit code $code after $signal: $(cat errors)"
        complains "^cairn: publish $b: cancelled: "
        ends 3 show $b
        ends 0 ls --json
        json '[r["id"] for r in d] == ["'$a'"]'
        [ -z "$(find store/tmp store/records -name '*tmp*' -type f 2>/dev/null)" ]
    done
    [ "$packs" -ge 1 ]
    ends 0 verify
    ends 0 publish $b --from vm
    ends 0 verify $b
}

case_an_interrupted_fetch_leaves_nothing_half_made() {
    make_store
    fill vm/memory 384
    ends 0 publish $b --from vm
    mkdir there
    for _ in 1 2 3 4 5; do
        interrupt INT '[ "$(du -sm there | cut -f 1)" -gt 5 ]' fetch $b --to there/back
        [ "$code" -ne 0 ] && break
        rm -rf there/back
    done
    [ "$code" -eq 130 ] || fail "exit code $code: $(cat errors)"
    complains "^cairn: fetch $b: cancelled: "
    [ -z "$(ls -A there)" ] || fail "left: $(ls -A there)"
}

case_a_signal_ends_waiting_for_input_and_output() {
    make_store
    mkfifo wait
    # First without anyone at the other end, then with one who says nothing.
    interrupt TERM 'sleep 0.3' publish $b --from vm --meta wait
    [ "$code" -eq 143 ] || fail "exit code $code"
    exec 7<>./wait
    interrupt TERM 'sleep 0.3' publish $b --from vm --meta wait
    [ "$code" -eq 143 ] || fail "exit code $code"
    ends 3 show $b
    exec 7>&-
    printf 'said at last' | cat >./wait &
    ends 0 publish $c --from vm --meta wait
    ends 0 show $c --json
    json 'd["meta"] == "said at last"'
    exec 7<>./wait
    # A reader that does not read: the pipe is full long before the file ends.
    fill vm/memory 4
    ends 0 publish $b --from vm
    env --default-signal=INT "$cairn" cat $b memory >&7 2>errors &
    local pid=$!
    sleep 0.5
    kill -s INT $pid
    code=0
    wait $pid || code=$?
    exec 7>&-
    [ "$code" -eq 130 ] || fail "exit code $code: $(cat errors)"
}

case_an_ignored_signal_stays_ignored() {
    make_store
    mkfifo wait
    exec 7<>./wait
    env --ignore-signal=HUP "$cairn" publish $b --from vm --meta wait >out 2>errors &
    local pid=$!
    sleep 0.3
    kill -s HUP $pid
    sleep 0.2
    kill -0 $pid || fail "it died"
    kill -s TERM $pid
    code=0
    wait $pid || code=$?
    [ "$code" -eq 143 ] || fail "exit code $code"
}

case_no_descriptors_is_transient() {
    make_store
    local code=0
    (
        exec >out 2>errors
        ulimit -n 4
        exec "$cairn" ls --json
    ) || code=$?
    [ $code -eq 8 ] || fail "exit code $code: $(cat errors)"
    complains ': transient: .*Too many open files'
    json 'd["error"]["class"] == "transient"' 'd["error"]["errno"] == 24'
}

case_a_full_disk_is_exit_7() {
    mkdir small
    mount -t tmpfs -o size=16M none small 2>/dev/null || exit 77
    trap 'umount small' EXIT
    export CAIRN_STORE=$PWD/small/store CAIRN_STATE=$PWD/state
    make_vm
    ends 0 init
    ends 0 publish $a --from vm
    fill vm/memory 64
    ends 7 publish $b --from vm --json
    json 'd["error"]["class"] == "no_space"'
    complains "^cairn: publish $b: no_space: "
    ends 3 show $b
    ends 0 verify $a
    rm vm/memory
    ends 0 publish $b --from vm
    fill vm/memory 64
    ends 0 --store store --state state init
    ends 0 --store store --state state publish $b --from vm
    ends 7 --store store --state state fetch $b --to small/back
    [ "$(ls small)" = store ]
}

case_no_permission_is_said_in_words() {
    [ "$(id -u)" -eq 0 ] || exit 77
    command -v setpriv >/dev/null || exit 77
    make_store
    cp "$cairn" ./copy
    chmod 755 . copy
    # The folder above belongs to root alone, too.
    setpriv --reuid=65534 --regid=65534 --clear-groups ./copy version >out 2>/dev/null || exit 77
    as_nobody() {
        local code=0 want=$1
        shift
        env -u CAIRN_STORE -u CAIRN_STATE -u XDG_CONFIG_HOME -u XDG_DATA_HOME -u XDG_STATE_HOME \
            HOME=/nonexistent setpriv --reuid=65534 --regid=65534 \
            --clear-groups ./copy "$@" >out 2>errors || code=$?
        [ $code -eq "$want" ] || fail "exit code $code: $(cat errors)"
    }
    chmod 700 store
    as_nobody 1 --store store --state /tmp/cairn-nobody-$$ ls
    complains ': permanent: .*Permission denied'
    as_nobody 1 publish $b --from vm
    complains ': permanent: .*/nonexistent.*Permission denied'
    rm -rf /tmp/cairn-nobody-$$
}
