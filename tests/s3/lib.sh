# shellcheck shell=bash
# What the suites on the fault server (tests/lib/s3_fault_server.h) share, beside ../fault/lib.sh.

# shellcheck source-path=SCRIPTDIR source=../fault/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../fault/lib.sh"
unset AWS_SESSION_TOKEN AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION http_proxy https_proxy
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret AWS_EC2_METADATA_DISABLED=true

# start_server MEMBERS: descriptor 9 speaks to it, it answers in $W/said and logs each request in
# $W/log. $W/config.json is a configuration for it, with these members more (JSON). It ends with the script.
start_server() {
    mkfifo "$W/in"
    "$BUILD/tests/s3/s3-fault-server" --log "$W/log" <"$W/in" >"$W/said" &
    server=$!
    exec 9>"$W/in"
    trap 'exec 9>&-; wait $server; cleanup' EXIT
    for _ in $(seq 100); do [ -s "$W/said" ] && break; sleep 0.1; done
    jq -n --arg e "$(head -1 "$W/said")" --argjson more "$1" '{checkpoint_store: {kind: "s3", s3:
        {bucket: "bucket", prefix: "p", endpoint: $e, force_path_style: true}}} + $more' >"$W/config.json"
}
