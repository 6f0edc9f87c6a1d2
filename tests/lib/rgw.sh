#!/bin/bash
# A throw-away Ceph object gateway on loopback for tests: one monitor, one OSD in memory, radosgw.
# Nothing of it outlives "down"; it needs no systemd and no authentication between its parts.
#
#   rgw.sh install          the packages (root)
#   rgw.sh up DIR           start everything under DIR; DIR/env then tells how to reach it
#   rgw.sh stop DIR [SIG]   end the gateway only (TERM unless SIG says otherwise); objects stay
#   rgw.sh start DIR        the gateway again, on the same port
#   rgw.sh down DIR         end everything and remove DIR
#   rgw.sh run DIR CMD...   up, CMD with DIR/env in its environment, down; CMD's exit code, or 77
#                           where radosgw is not installed
set -u

access=cairntestkey
secret=cairntestsecretcairntestsecret
bucket=cairn-test

die() {
    echo "rgw.sh: $*" >&2
    exit 1
}

install_packages() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q &&
        apt-get install -yq --no-install-recommends ceph-mon ceph-osd ceph-common radosgw
}

# True while the process that DIR/NAME.pid names is one of ours and runs (a zombie does not).
lives() {
    local pid state
    [ -s "$dir/$1.pid" ] || return 1
    pid=$(cat "$dir/$1.pid")
    state=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null)
    [ -n "$state" ] && [ "$state" != Z ] &&
        { tr '\0' '\n' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qxF "$dir/ceph.conf"
}

finish() { # NAME SIGNAL
    local i
    lives "$1" || return 0
    kill "-$2" "$(cat "$dir/$1.pid")"
    # Even one that was killed may be in the middle of a write that a busy disk takes long for.
    for ((i = 0; i < 1200; i++)); do
        lives "$1" || return 0
        sleep 0.05
    done
    echo "rgw.sh: $1 does not end: $(cat "/proc/$(cat "$dir/$1.pid")/stat" 2>&1)" >&2
    return 1
}

launch() { # NAME COMMAND...
    local name=$1
    shift
    (
        # No descriptor of the caller stays open in a daemon: a pipe would wait for it.
        for fd in /proc/self/fd/*; do
            fd=${fd##*/}
            [ "$fd" -gt 2 ] 2>/dev/null && eval "exec $fd>&-" 2>/dev/null
        done
        # A session of its own: whoever ends the caller's process group does not end the gateway.
        exec setsid "$@" </dev/null >>"$dir/log/$name.out" 2>&1
    ) &
    local pid=$! i
    echo "$pid" >"$dir/$name.pid"
    disown # its end is no news for the shell to print
    # On a busy machine it is this script's copy for a while, which is no daemon that lives.
    for ((i = 0; i < 200; i++)); do
        lives "$name" || ! kill -0 "$pid" 2>/dev/null || { sleep 0.05 && continue; }
        return 0
    done
}

say_why() { # NAME
    echo "rgw.sh: $1 does not run:" >&2
    tail -n 15 "$dir/log/$1.out" >&2
    return 1
}

# Four ports in a row for the gateway and the monitor, and thirty more for the OSD.
find_ports() {
    local base taken try port
    taken=" $(ss -Htln | awk '{ sub(/.*:/, "", $4); printf "%s ", $4 }')"
    for ((try = 0; try < 100; try++)); do
        base=$((21000 + RANDOM % 200 * 50))
        for ((port = base; port < base + 45; port++)); do
            case $taken in *" $port "*) continue 2 ;; esac
        done
        echo "$base"
        return 0
    done
    die "no free ports"
}

write_config() { # PORT FSID
    cat >"$dir/ceph.conf" <<END
[global]
fsid = $2
mon_initial_members = a
mon_host = [v2:127.0.0.1:$(($1 + 1)),v1:127.0.0.1:$(($1 + 2))]
public_network = 127.0.0.0/8
cluster_network = 127.0.0.0/8
ms_bind_port_min = $(($1 + 5))
ms_bind_port_max = $(($1 + 44))
# Without cephx the "secure" mode, radosgw's default towards monitors, is never reached.
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
keyring = /dev/null
run_dir = $dir/run
crash_dir = $dir/run
admin_socket = $dir/run/\$name.asok
log_file = $dir/log/\$name.log
mon_cluster_log_file = $dir/log/cluster.log
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
[mon]
mon_data = $dir/mon
mon_data_avail_crit = 1
paxos_propose_interval = 0.05
[osd]
osd_data = $dir/osd
osd_objectstore = memstore
memstore_device_bytes = ${RGW_BYTES:-8Gi}
[client]
rgw_data = $dir/rgw
# Without tcp_nodelay each request on a kept connection waits 40 ms for the client's delayed ACK.
# RGW_FRONTEND="" measures as such a gateway comes out of the box.
rgw_frontends = beast endpoint=127.0.0.1:$1 ${RGW_FRONTEND-tcp_nodelay=1}
rgw_rados_pool_pg_num_min = 1
rgw_thread_pool_size = 64
rgw_override_bucket_index_max_shards = 1
rgw_dynamic_resharding = false
rgw_run_sync_thread = false
# 16.2.15 can crash in a DeleteObjects whose keys it deletes side by side.
rgw_multi_obj_del_max_aio = 1
rgw_gc_obj_min_wait = 5
rgw_gc_processor_period = 5
END
}

start_gateway() {
    local port i
    port=$(sed -n 's/^rgw_frontends = .*:\([0-9]*\)\( .*\)\{0,1\}$/\1/p' "$dir/ceph.conf")
    launch rgw radosgw -c "$dir/ceph.conf" -n client.rgw -f
    for ((i = 0; i < 600; i++)); do
        curl -s -o /dev/null --noproxy '*' --max-time 2 "http://127.0.0.1:$port/" && return 0
        lives rgw || say_why rgw || return 1
        sleep 0.1
    done
    die "the gateway does not answer"
}

make_bucket() { # ENDPOINT
    local empty=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    curl -sS -f -o /dev/null --noproxy '*' -X PUT --aws-sigv4 aws:amz:us-east-1:s3 \
        -u "$access:$secret" -H "x-amz-content-sha256: $empty" "$1/$bucket"
}

# One at a time: until it listens, nobody sees that a port is taken.
up() {
    local turn rc
    exec {turn}<"$0"
    flock "$turn"
    start_all
    rc=$?
    exec {turn}<&-
    return $rc
}

start_all() {
    local port fsid osd out
    [ ! -e "$dir" ] || down
    mkdir -p "$dir"/{mon,osd,log,run} || die "cannot make $dir"
    port=$(find_ports) || exit 1
    fsid=$(cat /proc/sys/kernel/random/uuid)
    osd=$(cat /proc/sys/kernel/random/uuid)
    out=$dir/log/setup.out
    write_config "$port" "$fsid"
    local conf=(-c "$dir/ceph.conf")
    local mon="[v2:127.0.0.1:$((port + 1)),v1:127.0.0.1:$((port + 2))]"
    if ! monmaptool --create --clobber --fsid "$fsid" --addv a "$mon" "$dir/monmap" >"$out" 2>&1 ||
        ! ceph-mon "${conf[@]}" -i a --mkfs --monmap "$dir/monmap" >>"$out" 2>&1; then
        cat "$out" >&2
        return 1
    fi
    launch mon ceph-mon "${conf[@]}" -i a -f
    timeout 60 ceph "${conf[@]}" osd new "$osd" 0 >>"$out" 2>&1 || say_why mon || return 1
    ceph-osd "${conf[@]}" -i 0 --mkfs --osd-uuid "$osd" >>"$out" 2>&1 ||
        { tail "$out" >&2; return 1; }
    launch osd ceph-osd "${conf[@]}" -i 0 -f
    # Waits until the OSD is up and has made the gateway's pools.
    timeout 120 radosgw-admin "${conf[@]}" user create --uid=test --display-name=test \
        --access-key="$access" --secret-key="$secret" >>"$out" 2>&1 || say_why osd || return 1
    start_gateway || return 1
    make_bucket "http://127.0.0.1:$port" || return 1
    cat >"$dir/env" <<END
S3_ENDPOINT=http://127.0.0.1:$port
S3_BUCKET=$bucket
AWS_ACCESS_KEY_ID=$access
AWS_SECRET_ACCESS_KEY=$secret
RGW_DIR=$dir
RGW_SH=$(realpath "$0")
END
    cat "$dir/env"
}

down() {
    local name
    for name in rgw osd mon; do
        finish "$name" KILL
    done
    rm -rf "$dir"
}

run() {
    local code
    if ! command -v radosgw >/dev/null; then
        echo "rgw.sh: radosgw is not installed: skipped" >&2
        exit 77
    fi
    trap down EXIT
    up >/dev/null || exit 1
    set -a
    # shellcheck disable=SC1091
    . "$dir/env"
    set +a
    "$@"
    code=$?
    exit $code
}

command=${1:-}
if [ "$command" = install ]; then
    install_packages
    exit
fi
[ $# -ge 2 ] || die "usage: install | up DIR | stop DIR [SIG] | start DIR | down DIR | run DIR CMD..."
dir=$(realpath -m "$2")
case $command in
up) up || { down; exit 1; } ;;
down) down ;;
stop) finish rgw "${3:-TERM}" ;;
start) start_gateway ;;
run)
    shift 2
    run "$@"
    ;;
*) die "unknown command $command" ;;
esac
