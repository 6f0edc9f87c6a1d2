#!/bin/bash
# Cairn beside rclone and restic on one bucket of a Ceph object gateway on this machine, in one run, on the
# first two checkpoints of a chain; and beside plain GETs of the same bytes, sixteen at a time, by curl.
#
#   s3.sh [--runs N] [--default-frontend] CAIRN CHAIN WORK
#
# CAIRN is a release build of the program, CHAIN as for bench.sh, WORK a scratch folder that must be absent
# or empty. Left there: raw.tsv (what, tool, seconds, CPU seconds, peak KiB) and report.md (medians).
# --default-frontend: the gateway as it comes out of the box, where each request waits 40 ms.
# Needs: radosgw and its daemons (lib/rgw.sh install), rclone, restic, time, curl, jq.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
runs=3
while [ $# -gt 3 ]; do
    case $1 in
    --runs)
        runs=$2
        shift 2
        ;;
    --default-frontend)
        export RGW_FRONTEND=
        shift
        ;;
    *) break ;;
    esac
done
[ $# = 3 ] || {
    sed -n '2,/^# Needs/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
cairn=$(realpath -e "$1") chain=$(realpath -e "$2")
mkdir -p "$3"
W=$(realpath -e "$3")
[ -z "$(ls -A "$W")" ] || {
    echo "s3.sh: $W is not empty" >&2
    exit 1
}
raw=$W/raw.tsv
trap '"$here/../lib/rgw.sh" down "$W/rgw"' EXIT
"$here/../lib/rgw.sh" up "$W/rgw" >/dev/null
set -a
# shellcheck disable=SC1091
. "$W/rgw/env"
set +a
unset AWS_CA_BUNDLE AWS_SESSION_TOKEN AWS_PROFILE http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
export HOME=$W/home RESTIC_PASSWORD=bench RCLONE_CONFIG=$W/rclone.conf
mkdir -p "$HOME"
cat >"$RCLONE_CONFIG" <<END
[b]
type = s3
provider = Ceph
endpoint = $S3_ENDPOINT
access_key_id = $AWS_ACCESS_KEY_ID
secret_access_key = $AWS_SECRET_ACCESS_KEY
force_path_style = true
END

empty=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 # SHA-256 of no bytes
cat >"$W/plain_gets" <<END
exec curl -sS -f --noproxy '*' --parallel --parallel-immediate --parallel-max 16 -H "x-amz-content-sha256: $empty" \
    --aws-sigv4 aws:amz:us-east-1:s3 -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -K "$W/urls"
END
# measure WHAT TOOL COMMAND...
measure() {
    local what=$1 tool=$2 out=$W/time
    shift 2
    if ! /usr/bin/time -o "$out" -f '%e %U %S %M' "$@" >"$W/stdout" 2>"$W/stderr"; then
        echo "s3.sh: $tool $what failed:" >&2
        tail -5 "$W/stderr" >&2
        return 1
    fi
    read -r wall user sys peak < <(tail -1 "$out")
    printf '%s\t%s\t%s\t%s\t%s\n' "$what" "$tool" "$wall" "$(echo "$user $sys" | awk '{ print $1 + $2 }')" "$peak" |
        tee -a "$raw" >&2
}
same() { diff -rq "$W/out" "$chain/$1" >&2 || echo "s3.sh: DIFFERENT: $2 $1" >&2; }

run_cairn() { # NAME COMPRESSION
    local ck p=$1-$run c=("$cairn" --config "$W/$1.json" --state "$W/state-$1")
    jq -n --arg p "$p" --arg e "$S3_ENDPOINT" --arg b "$S3_BUCKET" '{checkpoint_store: {kind: "s3", s3: {bucket: $b,
        prefix: $p, endpoint: $e, region: "us-east-1", force_path_style: true}}}' >"$W/$1.json"
    "${c[@]}" init --compression "$2"
    measure 'store ck0' "$1" "${c[@]}" publish ck_0000000000000000 --from "$chain/ck0"
    measure 'store ck1' "$1" "${c[@]}" publish ck_0000000000000001 --from "$chain/ck1" --parent ck_0000000000000000
    # A host that has nothing of it. (What is fetched of a record with a parent stays in the cache, too.)
    for ck in ck0 ck1; do
        rm -rf "$W/state-$1"
        measure "fetch $ck" "$1" "${c[@]}" fetch ck_000000000000000${ck#ck} --to "$W/out"
        same $ck "$1"
        rm -rf "$W/out" "$W/state-$1"
    done
    # The same bytes: every object of the prefix's packs, thrown away, and written down as they come.
    rclone lsf --files-only -R "b:$S3_BUCKET/$p/packs" >"$W/keys"
    awk -v u="$S3_ENDPOINT/$S3_BUCKET/$p/packs/" '{ printf "url = \"%s%s\"\noutput = \"/dev/null\"\n", u, $0 }' \
        "$W/keys" >"$W/urls"
    measure "GETs of $1's packs, to /dev/null" curl sh "$W/plain_gets"
    mkdir "$W/out"
    awk -v u="$S3_ENDPOINT/$S3_BUCKET/$p/packs/" -v d="$W/out/" '
        { printf "url = \"%s%s\"\noutput = \"%s%d\"\n", u, $0, d, NR }' "$W/keys" >"$W/urls"
    measure "GETs of $1's packs, to files" curl sh "$W/plain_gets"
    rm -rf "$W/out"
    rclone purge "b:$S3_BUCKET/$p"
}
run_rclone() {
    local ck
    for ck in ck0 ck1; do
        measure "store $ck" rclone rclone copy "$chain/$ck" "b:$S3_BUCKET/rclone-$run/$ck"
    done
    for ck in ck0 ck1; do
        measure "fetch $ck" rclone rclone copy "b:$S3_BUCKET/rclone-$run/$ck" "$W/out"
        same $ck rclone
        rm -rf "$W/out"
    done
    rclone purge "b:$S3_BUCKET/rclone-$run"
}
run_restic() {
    local r=(restic -r "s3:$S3_ENDPOINT/$S3_BUCKET/restic-$run") ck
    "${r[@]}" init >/dev/null
    for ck in ck0 ck1; do
        measure "store $ck" restic sh -c "cd '$chain/$ck' && restic -r '${r[2]}' backup ."
    done
    rm -rf "$HOME/.cache"
    measure 'fetch ck1' restic "${r[@]}" restore latest --target "$W/out"
    same ck1 restic
    rm -rf "$W/out"
    rclone purge "b:$S3_BUCKET/restic-$run"
}

load=$(cut -d' ' -f1 /proc/loadavg)
cat "$chain"/ck[01]/* >/dev/null 2>&1 || true # into the page cache
for run in $(seq "$runs"); do
    for tool in $(printf '%s\n' 'run_cairn cairn zstd' 'run_cairn cairn-none none' run_rclone run_restic |
        awk -v n="$run" '{ a[NR] = $0 } END { for (i = 0; i < NR; i++) { t = a[(i + n) % NR + 1]; gsub(" ", ":", t); print t } }'); do
        # shellcheck disable=SC2086
        ${tool//:/ }
    done
done

{
    echo "Medians of $runs; load before: $load, after: $(cut -d' ' -f1 /proc/loadavg)"
    echo
    echo '| what | tool | wall s | CPU s | peak MiB |'
    echo '|---|---|---:|---:|---:|'
    sort -t"$(printf '\t')" -k1,1 -k2,2 -k3,3n "$raw" | awk -F'\t' '
        function flush() { if (n) printf "| %s | %s | %.2f | %.2f | %.0f |\n", what, tool, w[int((n + 1) / 2)], c[int((n + 1) / 2)], peak / 1024 }
        $1 != what || $2 != tool { flush(); n = 0; peak = 0; what = $1; tool = $2 }
        { n++; w[n] = $3; c[n] = $4; peak = $5 > peak ? $5 : peak }
        END { flush() }'
} | tee "$W/report.md"
