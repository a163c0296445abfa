#!/usr/bin/env bash
# Sourced after lib.sh by suites that run several stores beside each other: their commands, servers and followers. Each store is a
# directory in WORK, and its server listens at WORK/DIR.sock.

declare -A PROCESS
suite_cleanup() {
	local process
	for process in $ORIGIN "${PROCESS[@]}"; do kill -KILL "$process" 2>/dev/null; done
	wait 2>/dev/null
}

at() {
	local dir=$1
	shift
	timeout -s KILL 120 "$PLATTER" --store "$WORK/$dir" --quiet "$@"
}
at_json() {
	local dir=$1
	shift
	at "$dir" --json "$@"
}
new_store() {
	rm -rf "${WORK:?}/$1"
	at "$1" init >/dev/null
}
# serve DIR [ARGUMENT...]: serves the store in WORK/DIR at WORK/DIR.sock, and waits until it answers
serve() {
	local dir=$1 tries=0
	shift
	"$PLATTER" --store "$WORK/$dir" serve --listen "unix:$WORK/$dir.sock" "$@" >>"$WORK/$dir.log" 2>&1 &
	PROCESS[serve $dir]=$!
	until through "$dir" images >/dev/null 2>&1; do
		tries=$((tries + 1))
		if [ "$tries" -gt 400 ] || ! kill -0 "${PROCESS[serve $dir]}" 2>/dev/null; then
			cat "$WORK/$dir.log"
			return 1
		fi
		sleep 0.05
	done
}
# through DIR ARGUMENT...: runs `platter` on the origin of that store
through() {
	local dir=$1
	shift
	timeout -s KILL 120 "$PLATTER" --server "unix:$WORK/$dir.sock" --quiet "$@"
}
# follow DIR URL [ARGUMENT...]: follows in the background, and waits until no other process can follow with that store
follow() {
	local dir=$1
	shift
	"$PLATTER" --store "$WORK/$dir" follow "$@" >>"$WORK/$dir.follow" 2>&1 &
	PROCESS[follow $dir]=$!
	until_true 10 grep -qx "$!" "$WORK/$dir/follow.lock" || cat "$WORK/$dir.follow"
}
# end WHAT SIGNAL: ends a background process
end() {
	kill "-$2" "${PROCESS[$1]}" 2>/dev/null || true
	wait "${PROCESS[$1]}" 2>/dev/null || true
	unset "PROCESS[$1]"
}
# state DIR: everything that a follower has in common with its origin; fails if that cannot be told, or there is no image
state() {
	local image images
	images=$(at_json "$1" images | jq -r .image | sort) && [ -n "$images" ] || return 1
	for image in $images; do at_json "$1" history "$image" | jq -cS . || return 1; done
	at_json "$1" lock list | jq -cS . || return 1
	at_json "$1" hoard list | jq -cS .
}
same_state() {
	local one other
	one=$(state "$1") && other=$(state "$2") && [ "$one" = "$other" ]
}
# is_version DIR NAME FILE
is_version() {
	rm -f "$WORK/exported"
	at "$1" export "$2" "$WORK/exported" && cmp "$3" "$WORK/exported"
}
role() { at_json "$1" copies | jq -r "$2"; }
has() { at "$1" show "$2" >/dev/null 2>&1; }
# Any other failure does not say that it is missing.
has_not() {
	local code=0
	at "$1" show "$2" >/dev/null 2>&1 || code=$?
	[ "$code" = "$EXIT_MISSING" ]
}
# flip DIR FILE...: flips a byte in the newest pack of the store
flip_in_newest_pack() {
	local pack
	pack=$(find "$WORK/$1/packs" -name '*.pack' -printf '%T@ %p\n' | sort -rn | head -n 1 | cut -d' ' -f2)
	python3 - "$pack" <<'PYTHON'
import os, sys
with open(sys.argv[1], "r+b") as file:
    at = os.path.getsize(sys.argv[1]) // 2
    file.seek(at)
    byte = file.read(1)[0]
    file.seek(at)
    file.write(bytes([byte ^ 0x40]))
PYTHON
}
# small NAME: a raw disk of 300 KiB with its own contents
small() {
	random 307200 "$1" >"$WORK/disk-$1"
	echo "$WORK/disk-$1"
}
