#!/bin/bash
# Reading an image of a bucket through a mount, cold: Cairn beside `rclone mount` and s3fs, on one real
# gateway. Run it below tests/lib/rgw.sh run, which sets the environment, as root.
# usage: mount_peers.sh BUILD [MIB [PAGES]]     (default 256 and 1000)
set -eu
BUILD=$(cd "${1:?usage: $0 BUILD [MIB [PAGES]]}" && pwd)
mib=${2:-256} pages=${3:-1000}
unset AWS_CA_BUNDLE # rclone refuses to start with one
: "${S3_ENDPOINT:?run this below tests/lib/rgw.sh run}" "${S3_BUCKET:?}"
W=$(mktemp -d "${TMPDIR:-/tmp}/cairn-bench-peers-XXXXXX")
M=$W/mnt
unmount() { until umount "$M" 2>/dev/null || ! mountpoint -q "$M"; do sleep 0.2; done; }
cleanup() {
    umount -l "$M" 2>/dev/null || true
    rm -rf "$W"
}
trap cleanup EXIT
bench=$BUILD/tests/bench/mount-bench
mkdir "$W/export" "$M"
openssl enc -aes-128-ctr -pass pass:1 -nosalt -pbkdf2 -in /dev/zero 2>/dev/null |
    head -c "${mib}M" >"$W/export/image" || true
id=ck_0000000000000001

jq -n --arg e "$S3_ENDPOINT" --arg b "$S3_BUCKET" '{checkpoint_store: {kind: "s3", s3: {bucket: $b,
    prefix: "peers", endpoint: $e, region: "us-east-1", force_path_style: true}},
    materialise: "never"}' >"$W/cairn.json"
cat >"$W/rclone.conf" <<END
[s3]
type = s3
provider = Ceph
env_auth = true
endpoint = $S3_ENDPOINT
no_check_bucket = true
END
(umask 077 && echo "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" >"$W/s3fs.passwd")

# Each begins with nothing on the local disk; $shown is the image.
start_cairn() {
    "$BUILD/cli/cairn" --config "$W/cairn.json" --state "$W/state" mount "$M"
    shown=$(echo "$M/$id"/export-*/image)
}
start_rclone() {
    rclone --config "$W/rclone.conf" mount "s3:$S3_BUCKET/plain" "$M" --daemon --read-only \
        --vfs-cache-mode full --cache-dir "$W/state" 2>/dev/null
    shown=$M/image
}
start_s3fs() {
    s3fs "$S3_BUCKET:/plain" "$M" -o "passwd_file=$W/s3fs.passwd,url=$S3_ENDPOINT,use_path_request_style,use_cache=$W/state"
    shown=$M/image
}
cold() { # TOOL
    rm -rf "$W/state"
    mkdir "$W/state"
    "start_$1"
    until [ -e "$shown" ]; do sleep 0.1; done
}
median() { sort -n | sed -n 2p; }

"$BUILD/cli/cairn" --config "$W/cairn.json" --state "$W/state0" init >/dev/null
"$BUILD/cli/cairn" --config "$W/cairn.json" --state "$W/state0" publish $id --from "$W/export" >/dev/null
rclone --config "$W/rclone.conf" copy "$W/export" "s3:$S3_BUCKET/plain" 2>/dev/null
for tool in cairn rclone s3fs; do
    command -v "$tool" >/dev/null || [ "$tool" = cairn ] || continue
    for what in seq fault; do
        for _ in 1 2 3; do
            cold "$tool"
            if [ $what = seq ]; then "$bench" seq "$shown"; else "$bench" fault "$shown" "$pages"; fi
            unmount
        done | median | sed "s/^/$tool, cold, $what: /"
    done
done
