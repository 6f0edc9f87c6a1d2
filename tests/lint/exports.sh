#!/bin/bash
# A shared library offers cairn_ symbols only. ROOT here is the folder that holds libcairn.so.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

if ! names=$(nm -D --defined-only "$root/libcairn.so" | awk '{ print $NF }'); then
    offence libcairn.so "nm cannot read it"
    finish
fi
if ! grep -qx 'cairn_open' <<<"$names"; then
    offence libcairn.so "does not offer cairn_open"
fi
while IFS= read -r name; do
    offence libcairn.so "offers $name"
done < <(grep -v '^cairn_' <<<"$names")
finish
