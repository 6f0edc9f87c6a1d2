#!/bin/bash
# A real gateway is killed and started again under readers that have files of the mount mapped: they
# wait, and get the right bytes; nobody gets SIGBUS. Run below tests/lib/rgw.sh run.
# usage: outage_on_rgw.sh BUILD
# Its functions are called by others here.
# shellcheck disable=SC2317 source-path=SCRIPTDIR source=../fault/lib.sh
. "$(dirname "$0")/../fault/lib.sh"
: "${S3_ENDPOINT:?run this below tests/lib/rgw.sh run}" "${S3_BUCKET:?}" "${RGW_SH:?}" "${RGW_DIR:?}"

M=$W/mnt
jq -n --arg p "outage-$$" --arg e "$S3_ENDPOINT" --arg b "$S3_BUCKET" '{checkpoint_store: {kind: "s3",
    s3: {bucket: $b, prefix: $p, endpoint: $e, region: "us-east-1", force_path_style: true}},
    materialise: "never"}' >"$W/config.json"
cairn() { "$CAIRN" --config "$W/config.json" --state "$W/state" "$@"; }
gateway() { "$RGW_SH" "$1" "$RGW_DIR" "${@:2}" || fail "the gateway does not $1"; }

mkdir "$M"
make_export "$W/export" 1 24000000
expect 0 init cairn init
expect 0 publish cairn publish $A --from "$W/export"
expect 0 mount cairn mount "$M"
shown=$(echo "$M/$A"/export-*/memory-ranges)

# Page by page, at random places, through a mapping: REPORT says how many were right so far.
cat >"$W/reader.py" <<'END'
import mmap, random, sys
want, shown, seed, report = sys.argv[1:]
files = [open(p, "rb") for p in (want, shown)]
a, b = (mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) for f in files)
pages = list(range(len(a) // 4096))
random.Random(int(seed)).shuffle(pages)
for n, page in enumerate(pages):
    at = page * 4096
    if a[at:at + 4096] != b[at:at + 4096]:
        sys.exit(f"page {page} differs")
    if n % 16 == 0:
        with open(report, "w") as f:
            f.write(str(n))
END
readers=()
for i in 1 2 3; do
    python3 "$W/reader.py" "$W/export/memory-ranges" "$shown" $i "$W/report$i" 2>"$W/reader$i" &
    readers+=($!)
done
for round in 1 2; do
    until [ -s "$W/report1" ] || ! kill -0 "${readers[0]}" 2>/dev/null; do sleep 0.01; done
    gateway stop KILL
    sleep 2
    if [ $round = 1 ]; then
        if kill -0 "${readers[0]}" 2>/dev/null; then ok; else fail "the first reader did not wait"; fi
    fi
    gateway start
    : >"$W/report1"
done
for i in 1 2 3; do
    if wait "${readers[$((i - 1))]}"; then ok; else fail "reader $i: $(cat "$W/reader$i")"; fi
done
expect 0 unmount fusermount3 -u "$M"
finish
