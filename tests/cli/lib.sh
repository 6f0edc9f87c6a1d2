# What the cases of run.sh share. Sourced; $cairn and $here are set.
# shellcheck shell=bash disable=SC2154

# shellcheck disable=SC2034
a=ck_00000000000000aa b=ck_00000000000000bb c=ck_00000000000000cc
t=tp_00000000000000000000000000000001

fail() {
    echo "line ${BASH_LINENO[*]}: $*"
    exit 1
}

# ends CODE ARGUMENT...: run the command; its output is in out and errors.
ends() {
    local want=$1 got=0
    shift
    timeout -k 5 120 "$cairn" "$@" >out 2>errors || got=$?
    [ "$got" -eq "$want" ] || {
        head -c 2000 out errors
        fail "exit code $got, not $want: cairn $*"
    }
}

# says PATTERN / complains PATTERN: an extended expression in the output / the errors.
says() {
    grep -qE -e "$1" out || fail "no \"$1\" in: $(head -c 1000 out)"
}
complains() {
    grep -qE -e "$1" errors || fail "no \"$1\" in: $(head -c 1000 errors)"
}
silent() {
    [ ! -s errors ] || fail "unexpected: $(head -c 1000 errors)"
}

# json EXPRESSION...: each is true in Python of d, the one document in out.
json() {
    python3 "$here/json_holds.py" out "$@" || fail "$(head -c 1000 out)"
}

# A small export in ./vm.
make_vm() {
    mkdir -p vm/sub
    seq 1 40000 >vm/memory
    truncate -s 4M vm/disk
    printf 'tail' | dd of=vm/disk bs=1 seek=3000000 conv=notrunc status=none
    echo '{"cpus": 2}' >vm/sub/config.json
}

# A store in ./store with the record $a in it. Every command then finds it by the environment.
make_store() {
    export CAIRN_STORE=$PWD/store CAIRN_STATE=$PWD/state
    make_vm
    ends 0 init
    ends 0 publish "$a" --from vm "$@"
}

# fill FILE MIB: bytes that neither compress nor repeat.
fill() {
    openssl enc -aes-128-ctr -pass pass:"$1" -nosalt -pbkdf2 -in /dev/zero 2>/dev/null |
        head -c "$2"M >"$1" || true
}

# interrupt SIGNAL CONDITION ARGUMENT...: run the command, send the signal as soon as the shell
# command CONDITION holds; sets code. A background job's ignored SIGINT is put back.
interrupt() {
    local signal=$1 condition=$2 pid
    shift 2
    env --default-signal=INT,TERM,HUP "$cairn" "$@" >out 2>errors &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! eval "$condition"; do
        sleep 0.005
    done
    kill -s "$signal" $pid 2>/dev/null || true
    code=0
    wait $pid || code=$?
}

# on_terminal ARGUMENT...: the command's standard error is a terminal, what it got there is in tty.
on_terminal() {
    local line
    printf -v line '%q ' "$cairn" "$@"
    TERM=xterm script -qec "$line >out" tty </dev/null >/dev/null
}
