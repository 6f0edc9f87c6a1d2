#!/bin/bash
# How `cairn mount` begins and ends: in the background and in the foreground, over dead and foreign
# mounts, by signals and by umount, for root and for others, alone and inside `cairn serve`.
# Its functions are called by others here.
# shellcheck disable=SC2317 source=tests/fault/lib.sh
. "$(dirname "$0")/../fault/lib.sh"

M=$W/mnt
background=
trap '[ -z "$background" ] || kill -9 "$background" 2>/dev/null; cleanup' EXIT

# The process that serves $M, by its command line and state folder.
server() { pgrep -f -- "--state $W/state mount $M" | head -n 1; }
mounted() { grep -q " $1 fuse.cairn " /proc/self/mounts; }
# within SECONDS COMMAND...: it comes true
within() {
    local i limit=$(($1 * 20))
    shift
    for ((i = 0; i < limit; i++)); do
        if "$@"; then return 0; fi
        sleep 0.05
    done
    return 1
}
gone() { ! kill -0 "$1" 2>/dev/null; }
check() {
    local what=$1
    shift
    if "$@"; then ok; else fail "$what"; fi
}
not() { ! "$@"; }
is_readable() { cmp -s "$W/export/memory-ranges" "$(shown memory-ranges)"; }
shown() { echo "$M/$A"/export-*/"$1"; }
threads() { find "/proc/$1/task" -mindepth 1 -maxdepth 1 | wc -l; }

mkdir "$M"
make_export "$W/export" 1 300000
expect 0 init cairn init
expect 0 publish cairn publish $A --from "$W/export"

# In the background: ready when it returns, with nothing of the caller's kept open.
check "a mount whose output is waited for" test -z "$(cairn mount "$M" 2>&1)"
check "ready at once" is_readable
pid=$(server)
check "it leads a session" test "$(ps -o sid= -p "$pid" | tr -d ' ')" = "$pid"
check "it keeps no folder in use" test "$(readlink "/proc/$pid/cwd")" = /
in_background=$(threads "$pid")
mkdir "$W/second"
expect 4 "a second mount of this state folder" cairn mount "$W/second"
expect 4 "a second mount on this folder" "$CAIRN" --store "$W/store" --state "$W/state2" mount "$M"
check "the first one goes on" is_readable
check "fusermount3 -u" fusermount3 -u "$M"
check "its process ends" within 5 gone "$pid"

# In the foreground: the same, until a signal.
"$CAIRN" --store "$W/store" --state "$W/state" mount "$M" --foreground 2>"$W/stderr" &
background=$!
check "mounted" within 10 is_readable
check "as many threads in both ways" test "$(threads "$background")" = "$in_background"
kill -TERM "$background"
check "SIGTERM ends an idle mount" within 5 gone "$background"
wait "$background"
check "with success" test $? = 0
check "and unmounts" not mounted "$M"

# In use while it is to end.
"$CAIRN" --store "$W/store" --state "$W/state" mount "$M" --foreground 2>"$W/stderr" &
background=$!
check "mounted again" within 10 is_readable
exec 7<"$(shown memory-ranges)"
kill -TERM "$background"
check "SIGTERM ends a mount in use, too" within 20 gone "$background"
wait "$background"
check "but says so" test $? = 4
says "was in use" "mount in use"
check "and its name is free" not mounted "$M"
exec 7<&-

# umount -l: what is open goes on, and when it is closed the process ends.
expect 0 "mount" cairn mount "$M"
pid=$(server)
exec 7<"$(shown memory-ranges)"
umount -l "$M"
check "what is open can still be read" cmp -s - "$W/export/memory-ranges" <&7
check "the process lives on" kill -0 "$pid"
exec 7<&-
check "until the last file is closed" within 5 gone "$pid"

# The place was taken by another mount meanwhile: ending the first one leaves the second alone.
expect 0 "mount" cairn mount "$M"
pid=$(server)
exec 7<"$(shown memory-ranges)"
umount -l "$M"
expect 0 "another state folder's mount there" "$CAIRN" --store "$W/store" --state "$W/state2" mount "$M"
kill -TERM "$pid"
check "the first one ends" within 20 gone "$pid"
exec 7<&-
check "the second one goes on" is_readable
check "it is unmounted" fusermount3 -u "$M"

# A name with a blank.
mkdir "$W/a b"
expect 0 "mount on a name with a blank" cairn mount "$W/a b"
pid=$(pgrep -f -- "--state $W/state mount $W/a b" | head -n 1)
check "it is there" test -e "$W/a b/$A/meta.json"
kill -TERM "$pid"
check "SIGTERM ends it" within 20 gone "$pid"
check "and unmounts it" rmdir "$W/a b"

# Killed: dead until the next one.
expect 0 "mount" cairn mount "$M"
pid=$(server)
kill -9 "$pid"
check "killed" within 5 gone "$pid"
check "a dead mount" not ls "$M" 2>/dev/null
expect 0 "a new mount in its place" cairn mount "$M"
check "readable" is_readable
check "once" test "$(grep -c " $M fuse.cairn " /proc/self/mounts)" = 1
check "unmounted" fusermount3 -u "$M"

# What must not be.
expect 3 "a folder that is not there" cairn mount "$W/absent"
touch "$W/file"
check "a file is refused" not cairn mount "$W/file" 2>"$W/stderr"
mkdir "$W/full" && touch "$W/full/x"
check "a folder that holds something is refused" not cairn mount "$W/full" 2>"$W/stderr"
says "not empty" "full folder"
mkdir "$W/around" "$W/around/state"
check "the state folder under it" not "$CAIRN" --store "$W/store" --state "$W/around/state" \
    mount "$W/around" 2>"$W/stderr"
check "the store around it" not cairn mount "$W/store/packs" 2>"$W/stderr"
says "lie in each other" "mount in the store"
expect 3 "no store" "$CAIRN" --store "$W/none" --state "$W/state3" mount "$M"
check "nothing is mounted" not mounted "$M"
mkdir "$W/foreign"
if mount -t tmpfs none "$W/foreign" 2>/dev/null; then
    touch "$W/foreign/x"
    check "what others mounted" not cairn mount "$W/foreign" 2>"$W/stderr"
    umount "$W/foreign"
fi

# Somebody who is not root, through fusermount3.
user=nobody
if [ "$(id -u)" = 0 ] && id "$user" >/dev/null 2>&1; then
    mkdir -p "$W/user/mnt"
    cp -r "$W/store" "$W/user/store"
    chown -R "$user" "$W/user"
    chmod 755 "$W"
    as_user() { setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups "$@"; }
    expect 0 "mount as $user" as_user env HOME="$W/user" "$CAIRN" --store "$W/user/store" \
        --state "$W/user/state" mount "$W/user/mnt"
    check "$user reads it" as_user cmp -s "$W/export/memory-ranges" \
        "$W/user/mnt/$A/export-$(cairn show $A --json | jq -r .gen)/memory-ranges"
    check "nobody else does" not ls "$W/user/mnt" 2>/dev/null
    check "$user unmounts it" as_user fusermount3 -u "$W/user/mnt"
fi

# Inside the service.
"$CAIRN" --store "$W/store" --state "$W/state" serve --mount "$M" --listen "$W/sock" 2>"$W/stderr" &
background=$!
check "serve mounts" within 10 is_readable
check "and answers" within 10 curl -sf --unix-socket "$W/sock" http://x/healthz -o /dev/null
kill -TERM "$background"
check "serve ends" within 20 gone "$background"
wait "$background"
check "with success" test $? = 0
check "and unmounts" not mounted "$M"
background=
finish
