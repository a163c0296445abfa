#!/usr/bin/env bash
# tests/rooms.sh
#
# Sourced by suites in rooms of network namespaces, after lib.sh. It owns the room, and the machines that receive: the process of
# each is in `pids`, by its number, and what it says is in $WORK/receive-NUMBER.log.
# shellcheck shell=bash
# shellcheck disable=SC2153,SC2154  # lib.sh sets ROOT; the suites set `room`, the name in their checks

ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
declare -A pids=()
suite_cleanup() {
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null
	[ -z "$ORIGIN" ] || kill -9 "$ORIGIN" 2>/dev/null
	"$ROOM" down
}

# ended CODE NUMBER WHAT: waits for a machine, which must end with this exit code
ended() {
	local code=0
	wait "${pids[$2]}" || code=$?
	unset "pids[$2]"
	cp "$WORK/receive-$2.log" "$LOG"
	if [ "$code" = "$1" ]; then ok "$room: $3"; else not_ok "$room: $3 (exit code $code)"; fi
}

# record_wire MACHINE FILE: what arrives at the machine, for 120 seconds at most; its process is pids[MACHINE]
record_wire() {
	"$ROOM" in "$1" timeout -s KILL 120 python3 -c 'import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
link.bind(("eth0", 0))
with open(sys.argv[1], "wb") as file:
    while True: file.write(link.recv(65536)) and file.flush()' "$2" &
	pids[$1]=$!
}
