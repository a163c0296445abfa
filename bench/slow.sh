#!/usr/bin/env bash
# bench/slow.sh [MBIT] [MIB] [RECEIVERS]
#
# Casts a random disk to a room in which one receiver has a quarter of the speed of the others: its link, or its disk (a
# file of `nbdfuse` on nbdkit's rate filter). In turn: the room without it, it alone, and all together. Printed are the
# longest time of a fast receiver as a ratio to the room without the slow one, and the time of the slow one as a ratio to
# its time alone. BENCH_BUFFER sets the chunk buffers of the receivers: with fewer, a disk of MIB behaves like a larger one.
. "$(dirname "$0")/lib.sh"
MBIT=${1:-200}
MIB=${2:-150}
RECEIVERS=${3:-8}
ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
bench_cleanup() {
	"$ROOM" down
	while mountpoint -q "$WORK/slow"; do umount "$WORK/slow" || sleep 0.2; done
	umount "$WORK/memory" 2>/dev/null
}

mkdir "$WORK/memory" "$WORK/slow"
mount -t tmpfs -o size=90% tmpfs "$WORK/memory"
STORE=$WORK/memory/store
new_store
head -c "${MIB}M" /dev/urandom >"$WORK/memory/disk"
platter capture "$WORK/memory/disk" bench/slow >/dev/null

# The slow disk: a quarter of the bytes that arrive in a second, with the share of headers taken off.
slow_disk() {
	begin "$WORK/nbdfuse.log" nbdfuse "$WORK/slow" [ nbdkit --exit-with-parent --filter=rate memory "$((MIB + 1))M" \
		rate="$((MBIT * 1000000 * 94 / 100 / 4))" burstiness=0.2 ]
	FUSE=$SERVER
	wait_for test -e "$WORK/slow/nbd"
}
slow_disk_ends() {
	umount "$WORK/slow"
	wait "$FUSE" 2>/dev/null || true
	unset "RUNNING[$FUSE]"
}

# one_cast SERIES KIND RECEIVER...: adds the longest time of receivers 2 and up to fast-SERIES, that of receiver 1 to slow-SERIES
one_cast() {
	local series=$1 kind=$2 receiver target pids=()
	shift 2
	"$ROOM" up "$RECEIVERS" "${MBIT}mbit"
	[ "$kind" != link ] || "$ROOM" slow 1 "$((MBIT / 4))mbit"
	[ "$kind" != disk ] || slow_disk
	for receiver in "$@"; do
		target=$WORK/memory/target-$receiver
		[ "$kind-$receiver" != disk-1 ] || target=$WORK/slow/nbd
		"$ROOM" in "$receiver" "$PLATTER" --quiet receive bench/slow "$target" --interface eth0 --hello "receiver-$receiver" \
			${BENCH_BUFFER:+--buffer "$BENCH_BUFFER"} --trust-any --yes >"$WORK/receive-$receiver.log" 2>&1 &
		pids+=($!)
	done
	"$ROOM" in sender "$PLATTER" --store "$STORE" --quiet --json cast bench/slow --interface eth0 --rate "${MBIT}M" --receivers $# \
		--wait 60 --linger 0 --give-up 60 >"$WORK/cast.json" 2>"$WORK/cast.log" || { tail -n 5 "$WORK/cast.log" "$WORK"/receive-*.log >&2; exit 1; }
	wait "${pids[@]}"
	"$ROOM" down
	[ "$kind" != disk ] || slow_disk_ends
	rm -f "$WORK/memory"/target-*
	local of="[.. | objects | select(.state? == \"done\" and .score?)] | unique_by(.name) | map(select(.name"
	jq -s "$of != \"receiver-1\")) | map(.seconds) | max // empty" "$WORK/cast.json" >>"$WORK/times/fast-$series"
	jq -s "$of == \"receiver-1\")) | map(.seconds) | max // empty" "$WORK/cast.json" >>"$WORK/times/slow-$series"
}

heading "One of $RECEIVERS receivers at a quarter of $MBIT Mbit/s, $MIB MiB"
for kind in ${BENCH_KINDS:-link disk}; do
	rm -f "$WORK/times"/*
	for _ in $(seq "$RUNS"); do
		mapfile -t fast < <(seq 2 "$RECEIVERS")
		one_cast without "$kind" "${fast[@]}"
		one_cast alone "$kind" 1
		one_cast together "$kind" 1 "${fast[@]}"
	done
	result "slow $kind: fast receivers without it; with it" "$(median fast-without) s; $(median fast-together) s"
	result "slow $kind: fast receivers, as a ratio" "$(calculate "$(median fast-together) / $(median fast-without)")" "at most 1.05"
	result "slow $kind: slow receiver alone; in the room" "$(median slow-alone) s; $(median slow-together) s"
	result "slow $kind: slow receiver, as a ratio" "$(calculate "$(median slow-together) / $(median slow-alone)")" "at most 1.10"
done
