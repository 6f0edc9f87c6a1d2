# Debian packages that building and testing need, and their installation. Sourced by ./run, ./check.
# shellcheck shell=bash

# To build the program and the library. (Sourcing scripts use both lists.)
# shellcheck disable=SC2034
packages_build=(gcc libc6-dev meson ninja-build pkg-config libssl-dev libsqlite3-dev libxxhash-dev
    libzstd-dev libjansson-dev libcurl4-openssl-dev libevent-dev libexpat1-dev
    libfuse3-dev libs3-dev)

# To build and run the tests and lints, on top of those.
# shellcheck disable=SC2034
packages_check=(check g++ clang-14 libclang-rt-14-dev llvm-14 clang-format-14 shellcheck binutils
    python3 git e2fsprogs xfsprogs util-linux procps iproute2 strace jq openssl
    curl prometheus fuse3 ceph-mon ceph-osd ceph-common radosgw)

# Print those of the named packages that are not installed.
packages_missing() {
    local name
    for name in "$@"; do
        if [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" != installed ]; then
            printf '%s\n' "$name"
        fi
    done
}

packages_apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null >&2
}

# packages_install NAME...: install what is missing (root), or say how (anyone else). Returns
# non-zero when something is still missing.
packages_install() {
    local missing
    if ! command -v dpkg-query >/dev/null; then
        echo "This is no Debian: install what README.md names by other means." >&2
        return 0
    fi
    mapfile -t missing < <(packages_missing "$@")
    if [ ${#missing[@]} -eq 0 ]; then
        return 0
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "Packages are missing. As root:" >&2
        echo "    apt-get install --no-install-recommends ${missing[*]}" >&2
        return 1
    fi
    echo "installing ${missing[*]}" >&2
    if ! compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null; then
        packages_apt update || true
    fi
    if ! packages_apt install --no-install-recommends "${missing[@]}"; then
        echo "apt-get failed: updating the lists, then once more" >&2
        packages_apt update || true
        packages_apt install --no-install-recommends "${missing[@]}" || return 1
    fi
    mapfile -t missing < <(packages_missing "$@")
    if [ ${#missing[@]} -ne 0 ]; then
        echo "still missing: ${missing[*]}" >&2
        return 1
    fi
}
