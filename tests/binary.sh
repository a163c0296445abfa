#!/usr/bin/env bash
# tests/binary.sh: the shipped binary: stripped, small enough to copy to every machine, with matching separate symbols
# that map an address to a source line. Needs a binary of `make build`.
. "$(dirname "$0")/lib.sh"

# Bytes of the stripped binary. It has 22 MB; one with symbols has about 120.
SIZE_MAX=25000000

SYMBOLS=$PLATTER.debug
build_id() { readelf --notes --wide "$1" 2>/dev/null | sed -n 's/.*Build ID: //p'; }
# line_of FUNCTION: the source line of the function's address in the binary
line_of() {
	local address
	address=$(nm -C "$SYMBOLS" | awk -v name="$1" '$2 ~ /^[tT]$/ && $3 == name { print $1; exit }')
	[ -n "$address" ] && addr2line -e "$PLATTER" "$address"
}

check "the binary has no symbols" sh -c '! readelf --section-headers --wide "$1" | grep -qE " \.(symtab|debug_line) "' - "$PLATTER"
check "it has $(stat -c %s "$PLATTER") bytes, at most $SIZE_MAX" test "$(stat -c %s "$PLATTER")" -le "$SIZE_MAX"
check "its symbols are beside it" test -s "$SYMBOLS"
check "the symbols belong to this build" test -n "$(build_id "$PLATTER")" -a "$(build_id "$PLATTER")" = "$(build_id "$SYMBOLS")"
check "an address maps to a source line" sh -c 'case $1 in */crates/platter/src/main.rs:[1-9]*) ;; *) echo "$1"; exit 1 ;; esac' - "$(line_of platter::main || true)"
check "it runs" "$PLATTER" --version
finish
