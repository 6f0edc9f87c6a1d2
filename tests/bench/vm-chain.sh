#!/bin/bash
# Makes a chain of checkpoints of a real virtual machine, which QEMU runs in software.
#
#   vm-chain.sh [-m MEMORY_MIB=512] [-n FORKS=3] [-w light|heavy] OUT
#
# OUT/ck0 is taken when the guest has booted and mounted its disk, OUT/ck1 to ckN after one more
# piece of work each: memory-ranges (all of the guest's memory), cow.raw (its disk, sparse, with the
# files of this machine's /usr/share) and config.json. Light work is what a short command of an
# agent leaves behind; heavy work walks the whole tree, compresses a part of it, copies another.
#
# Needs no KVM and no root. Debian: qemu-system-x86 linux-image-amd64 busybox-static cpio e2fsprogs
# kmod. Installs nothing. Takes one to three minutes.
set -euo pipefail
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin

die() {
    echo "vm-chain.sh: $*" >&2
    exit 1
}
usage() {
    sed -n '2,/^# kmod/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

memory=512 forks=3 load=light
while getopts m:n:w: option; do
    case $option in
    m) memory=$OPTARG ;;
    n) forks=$OPTARG ;;
    w) load=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[[ $# = 1 && $memory =~ ^[0-9]+$ && $forks =~ ^[0-9]+$ && $load =~ ^(light|heavy)$ ]] || usage
# Above 2 GiB the memory of a PC is not one range of addresses any more.
((memory >= 128 && memory <= 2048)) || die "memory must be 128 to 2048 MiB"

missing=()
need() { # FILE PACKAGE
    [ -e "$1" ] || command -v "$1" >/dev/null || missing+=("$2")
}
need qemu-system-x86_64 qemu-system-x86
need cpio cpio
need mkfs.ext4 e2fsprogs
need modprobe kmod
need /bin/busybox busybox-static
kernel=$(find /boot -maxdepth 1 -name 'vmlinuz-*-amd64' | sort -V | tail -n 1)
[ -n "$kernel" ] || missing+=(linux-image-amd64)
[ ${#missing[@]} = 0 ] || die "missing packages: ${missing[*]}"
[ -r "$kernel" ] || die "$kernel is not readable"

mkdir -p -- "$1"
out=$(realpath -e -- "$1")
[ -z "$(ls -A "$out")" ] || die "$out is not empty"
work=$(mktemp -d)
guest=
finish() {
    [ -z "$guest" ] || kill "$guest" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# ---- The guest: busybox, the modules for its disk, a shell on the serial line --------------------

root=$work/root
mkdir -p "$root"/{bin,modules,proc,sys,dev,mnt,tmp}
cp /bin/busybox "$root/bin/"
"$root/bin/busybox" --list >"$work/applets"
for applet in sh mount insmod cat find sha256sum cp sync awk gzip tar mkdir ls sort stty grep head; do
    grep -qx "$applet" "$work/applets" || die "busybox lacks $applet"
    ln -s busybox "$root/bin/$applet"
done
n=100
for name in virtio_pci virtio_blk ext4; do
    modprobe -S "${kernel#/boot/vmlinuz-}" --show-depends "$name"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$work/modules"
while IFS= read -r module; do
    cp "$module" "$root/modules/$n-${module##*/}"
    n=$((n + 1))
done <"$work/modules"
cat >"$root/init" <<'INIT'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
for module in /modules/*; do insmod "$module"; done
mount -t ext4 /dev/vda /mnt && echo GUEST-READY
exec sh
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"
truncate -s 2G "$work/disk"
mkfs.ext4 -q -F -d /usr/share "$work/disk" || die "the files of /usr/share do not fit into 2 GiB"

mkfifo "$work"/{console,monitor}.{in,out}
qemu-system-x86_64 -accel tcg -m "$memory" -smp 1 -nodefaults -no-reboot -display none \
    -kernel "$kernel" -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1" \
    -chardev pipe,id=console,path="$work/console" -serial chardev:console \
    -chardev pipe,id=monitor,path="$work/monitor" -mon chardev=monitor,mode=control \
    -drive file="$work/disk",if=virtio,format=raw,cache=unsafe &
guest=$!
# Opened for both directions, so that neither side waits for the other.
exec {to_console}<>"$work/console.in" {from_console}<>"$work/console.out"
exec {to_monitor}<>"$work/monitor.in" {from_monitor}<>"$work/monitor.out"

wait_for() { # MARK: on the guest's console
    local line
    while IFS= read -r -t 300 line <&"$from_console"; do
        [[ $line != *"$1"* ]] || return 0
    done
    die "the guest fell silent before $1"
}
# The console echoes what is typed: quotes inside the mark keep the echo from being taken for it.
guest_runs() { # MARK COMMAND
    printf "%s; echo DONE-''%s\n" "$2" "$1" >&"$to_console"
    wait_for "DONE-$1"
}
monitor() { # JSON: one command, its answer
    local line
    printf '%s\n' "$1" >&"$to_monitor"
    while IFS= read -r -t 60 line <&"$from_monitor"; do
        case $line in
        *'"error"'*) die "QEMU: $line" ;;
        *'"return"'*) return 0 ;;
        esac
    done
    die "QEMU does not answer to $1"
}
checkpoint() { # NUMBER
    local dir=$out/ck$1
    mkdir "$dir"
    monitor '{"execute":"stop"}'
    monitor '{"execute":"pmemsave","arguments":{"val":0,"size":'$((memory << 20))',"filename":"'"$dir"'/memory-ranges"}}'
    cp --sparse=always "$work/disk" "$dir/cow.raw"
    printf '{"memory_mib":%d,"step":%d}\n' "$memory" "$1" >"$dir/config.json"
    monitor '{"execute":"cont"}'
    echo "ck$1"
}

# ---- Work between two checkpoints ----------------------------------------------------------------

work_of() { # NUMBER
    case $load-$((($1 - 1) % 3)) in
    light-0) echo "ls -lR /mnt/doc | head -n 2000 | sha256sum" ;;
    light-1) echo "awk 'BEGIN { for (i = 0; i < 20000; i++) print i, i * i }' >/tmp/table; grep -c 7 /tmp/table" ;;
    light-2) echo "mkdir -p /mnt/work$1; for i in 1 2 3 4; do cp /init /mnt/work$1/\$i; done; sync" ;;
    heavy-0) echo "find /mnt -type f | sort | sha256sum" ;;
    heavy-1) echo "tar c /mnt/doc | gzip -1 | head -c 64000000 >/tmp/doc.gz" ;;
    heavy-2) echo "mkdir -p /mnt/work$1; cp -r /mnt/perl* /mnt/work$1/; sync" ;;
    esac
}

wait_for GUEST-READY
monitor '{"execute":"qmp_capabilities"}'
checkpoint 0
for i in $(seq "$forks"); do
    guest_runs "$i" "$(work_of "$i")"
    checkpoint "$i"
done
