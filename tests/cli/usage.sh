# Cases of run.sh: help, wrong command lines, the configuration, where things are.
# The ids hold no blanks.
# shellcheck shell=bash disable=SC2154,SC2086

case_help_lists_the_commands() {
    for way in help --help -h; do
        ends 0 $way
        silent
        for command in init publish fetch cat ls show fork rm verify stats gc hold release mount serve version; do
            says "^  $command "
        done
    done
}

case_help_of_each_command() {
    for command in init publish fetch cat ls show fork rm verify stats hold release mount serve version help; do
        ends 0 $command --help
        says "^Usage: cairn $command"
        cp out first
        ends 0 help $command
        cmp first out
        ends 0 -h $command
        cmp first out
    done
    ends 2 help nonsense
    complains 'no command "nonsense"'
}

case_version() {
    ends 0 version
    says '^cairn [0-9]+\.[0-9]+\.[0-9]+$'
    cp out first
    ends 0 --version
    cmp first out
    ends 0 version --json
    json 'set(d) == {"version", "format"}' 'd["format"] == 1'
}

case_usage_errors_are_exit_2_and_name_what_is_wrong() {
    ends 2
    complains 'no command'
    ends 2 frobnicate
    complains 'unknown command "frobnicate"'
    ends 2 ls --nonsense
    complains '^cairn: ls: invalid: unknown option --nonsense$'
    ends 2 publish $a
    complains 'option --from DIR is missing'
    ends 2 fetch $a --to
    complains 'option --to needs a value'
    ends 2 show
    complains 'too few operands'
    ends 2 show $a $b
    complains 'unexpected operand'
    ends 2 show ck_XYZ
    complains '^cairn: show ck_XYZ: invalid: bad id "ck_XYZ"'
    ends 2 rm $a ../../etc
    complains 'bad id "../../etc"'
    for seconds in -1 abc 1e5 nan inf 0x10 ''; do
        ends 2 fetch $a --to x --timeout "$seconds"
        complains 'timeout'
    done
    ends 2 init --chunk-size 12K
    complains 'power of two'
    ends 2 init --chunk-size 2M
    ends 2 init --compression lz4
    [ ! -e store ] && [ ! -s out ]
}

case_usage_errors_in_json() {
    ends 2 ls --json --nonsense
    json 'set(d) == {"error"}' 'd["error"]["class"] == "invalid"' \
        '"--nonsense" in d["error"]["message"]' 'isinstance(d["error"]["errno"], int)'
    complains 'unknown option'
}

case_odd_arguments_are_shown_escaped() {
    ends 2 show $'ck_\e[2J\n'
    complains 'ck_\\x1b\[2J\\x0a'
    ends 2 $'a\x9bb'
    complains 'a\\x9bb'
    [ "$(wc -l <errors)" -eq 1 ]
}

case_options_win_over_environment_over_configuration() {
    for s in option env file; do
        ends 0 --store $s --state $s.state init
    done
    printf '{"checkpoint_dir": "%s/file", "state_dir": "%s/file.state"}' "$PWD" "$PWD" >c.json
    make_vm
    ends 0 --config c.json publish $a --from vm
    ends 0 --store file --state file.state ls
    says $a
    CAIRN_STORE=env CAIRN_STATE=env.state ends 0 --config c.json publish $b --from vm
    ends 0 --store env --state env.state ls
    says $b
    CAIRN_STORE=env CAIRN_STATE=env.state ends 0 --config c.json --store option \
        --state option.state publish $c --from vm
    ends 0 --store option --state option.state ls
    says $c
    CAIRN_CONFIG=$PWD/c.json ends 0 ls
    says $a
    mkdir -p xdg/cairn
    cp c.json xdg/cairn/config.json
    XDG_CONFIG_HOME=$PWD/xdg ends 0 ls
    says $a
    echo '{' >broken.json
    CAIRN_CONFIG=$PWD/broken.json ends 2 ls
    CAIRN_CONFIG=$PWD/broken.json ends 0 --config c.json ls
}

case_configuration_is_checked() {
    ends 2 --config absent.json ls
    complains 'absent.json: No such file'
    printf '{"checkpoint_store": {"kind": "dir", "s4": {}}}' >c.json
    ends 2 --config c.json ls
    complains 'c.json: checkpoint_store.s4 is not a known key'
    printf '{"workers": "many"}' >c.json
    ends 2 --config c.json ls --json
    json 'd["error"]["class"] == "invalid"' '"workers must be" in d["error"]["message"]'
    printf '{"workers": 1,}' >c.json
    ends 2 --config c.json ls
    complains 'line 1'
    mkdir folder
    ends 2 --config folder ls
    complains 'Is a directory'
}

case_a_bucket_that_cannot_be_reached() {
    # Nothing listens there, so nothing leaves the machine.
    printf '{"checkpoint_store": {"kind": "s3", "s3": {"bucket": "bucket1", "endpoint": "http://127.0.0.1:1"}}}' \
        >c.json
    export AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=verysecret
    ends 8 --config c.json --state state --timeout 0.5 ls
    complains "s3://bucket1"
    grep -q verysecret err && fail "a secret in a message"
    ends 0 --config c.json --store store --state state init
    ends 2 --store gs://bucket ls
    complains 's3://bucket/prefix'
    ends 1 --config c.json --store s3:///x --state state ls
    complains "s3:///x"
    [ ! -e gs: ] && [ ! -e s3: ]
}

case_store_and_state_lie_apart() {
    ends 2 --store x --state x init
    complains 'must lie apart'
    ends 2 --store x --state x/state init
    complains 'is inside'
    ends 2 --store x/store --state x init
    complains 'holds it'
    mkdir real
    ln -s real link
    ends 2 --store link --state real/state init
    [ -z "$(ls -A real)" ] && [ ! -e x ]
    ends 0 --store real/store --state real/state init
    ends 0 --store st --state st-state init
}

case_from_and_to_lie_apart_from_the_store() {
    make_store
    ends 1 publish $b --from .
    complains 'apart from the store'
    ends 1 publish $b --from store/packs
    ends 1 fetch $a --to store/new
    complains 'apart from the store'
    [ ! -e store/new ]
}

case_the_default_store_is_made_by_the_first_publish() {
    export XDG_DATA_HOME=$PWD/data XDG_STATE_HOME=$PWD/state
    make_vm
    ends 3 ls
    complains '^cairn: ls: not_found: '
    ends 3 ls --json
    json 'd["error"]["class"] == "not_found"'
    [ ! -e data ]
    ends 0 publish $a --from vm
    complains "made a new store in $PWD/data/cairn"
    ends 0 publish $b --from vm
    silent
    ends 0 ls --json
    json '[r["id"] for r in d] == ["'$a'", "'$b'"]'
    [ "$(stat -c %a state/cairn)" = 700 ]
    ends 4 init
}

case_a_named_store_is_not_made_by_publish() {
    make_vm
    ends 3 --store named --state state publish $a --from vm
    [ ! -e named ]
}

case_first_publishers_at_once_make_one_store() {
    export XDG_DATA_HOME=$PWD/data XDG_STATE_HOME=$PWD/state
    make_vm
    local i pids=()
    for i in 1 2 3 4 5 6; do
        "$cairn" publish ck_000000000000000$i --from vm >out.$i 2>errors.$i &
        pids+=($!)
    done
    for i in 0 1 2 3 4 5; do
        wait "${pids[i]}" || fail "$(cat errors.*)"
    done
    ends 0 ls --json
    json 'len(d) == 6'
    [ "$(cat errors.* | grep -c 'made a new store')" -eq 1 ]
}

case_the_manual_names_every_command_and_option() {
    local manual=$here/../../docs/cairn.1 command option
    ends 0 help
    sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' out >commands
    [ "$(wc -l <commands)" -ge 14 ]
    while read -r command; do
        grep -qE "^\.It Ic (.* , )?$command( |\$)" "$manual" || fail "the manual lacks $command"
        ends 0 help "$command"
        grep -oE -- '^ .*--[a-z-]+ ' out | grep -oE -- '--[a-z-]+' >options
        [ -s options ]
        while read -r option; do
            grep -qE "Fl (.* )?${option#-}( |,|\$)" "$manual" || fail "the manual lacks $option"
        done <options
    done <commands
}

case_completion_offers_what_there_is() {
    # shellcheck source=dist/completion/cairn
    . "$here/../../dist/completion/cairn"
    make_store
    # offers LINE WORD...: the words are among those offered for the last word of LINE.
    offers() {
        local word
        read -ra COMP_WORDS <<<"$1"
        if [[ $1 == *' ' ]]; then
            COMP_WORDS+=('')
        fi
        COMP_WORDS[0]=$cairn
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        shift
        _cairn
        for word in "$@"; do
            [[ " ${COMPREPLY[*]} " == *" $word "* ]] || fail "no $word in ${COMPREPLY[*]}"
        done
    }
    offers 'cairn ' init publish verify
    offers 'cairn ver' version verify
    [ ${#COMPREPLY[@]} -eq 2 ]
    offers 'cairn --store x publish --p' --parent
    offers 'cairn show ck' $a
    offers 'cairn publish x --parent ' $a
    offers 'cairn init --compression z' zstd
    offers 'cairn help fe' fetch
}
