#!/usr/bin/env bash
# bench/receive.sh [MBIT] [MIB]
#
# One receiver writes a cast to a loop device: as fast as it can, and with its writes limited to 500 and 150 MB/s. The disk is
# MIB of files of this machine. The limit is the largest of: wire bytes divided by the link rate, raw bytes divided by the
# rate of the target (for the unlimited one, that of `dd bs=4M oflag=direct`), and processor seconds divided by the cores. The
# time is the receiver's, from its join to the disk being durable.
. "$(dirname "$0")/lib.sh"
MBIT=${1:-1000}
MIB=${2:-600}
ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
BLKIO=/sys/fs/cgroup/blkio/platter-bench-$$
bench_cleanup() {
	"$ROOM" down
	[ ! -d "$BLKIO" ] || rmdir "$BLKIO"
	for device in "$WORK"/loops/*; do [ ! -e "$device" ] || { losetup -d "/dev/${device##*/}" && rm "$device"; }; done
	umount "$WORK/memory" 2>/dev/null
}

mkdir "$WORK/memory"
mount -t tmpfs -o size=90% tmpfs "$WORK/memory"
STORE=$WORK/memory/store
new_store
{ tar -C /usr -c bin lib 2>/dev/null || true; } | head -c "${MIB}M" >"$WORK/memory/disk"
truncate -s "${MIB}M" "$WORK/memory/disk"
platter capture "$WORK/memory/disk" bench/receive >/dev/null
rm "$WORK/memory/disk"
truncate -s "$((MIB + 4))M" "$WORK/memory/target"
attach "$WORK/memory/target"
target=$DEVICE
cores=$(nproc)

# Runs a command whose writes to the target are limited to this many bytes per second (0: unlimited).
throttled() {
	local limit=$1
	shift
	if [ "$limit" = 0 ]; then
		"$@"
	else
		lsblk -dno MAJ:MIN "$target" | awk -v limit="$limit" '{ print $1, limit }' >"$BLKIO/blkio.throttle.write_bps_device"
		(echo "$BASHPID" >"$BLKIO/cgroup.procs" && "$@")
	fi
}

# one_receiver BYTES-PER-SECOND: adds to the series wall, wire, cpu and raw
one_receiver() {
	local receiver
	"$ROOM" up 1 "${MBIT}mbit"
	throttled "$1" "$ROOM" in 1 /usr/bin/time -f '%U %S' -o "$WORK/cpu-receiver" "$PLATTER" --quiet --json receive bench/receive "$target" \
		--interface eth0 --trust-any --yes --no-delta >"$WORK/receive.json" 2>"$WORK/receive.log" &
	receiver=$!
	"$ROOM" in sender /usr/bin/time -f '%U %S' -o "$WORK/cpu-sender" "$PLATTER" --store "$STORE" --quiet --json cast bench/receive \
		--interface eth0 --rate "${MBIT}M" --receivers 1 --wait 60 --linger 0 --give-up 60 >"$WORK/cast.json" 2>"$WORK/cast.log" ||
		{ tail -n 5 "$WORK/cast.log" "$WORK/receive.log" >&2; exit 1; }
	wait "$receiver"
	"$ROOM" down
	jq -s '[.. | objects | select(.symbols_sent? != null)] | last | .wire_bytes' "$WORK/cast.json" >>"$WORK/times/wire"
	jq -s 'last | .seconds' "$WORK/receive.json" >>"$WORK/times/wall"
	jq -s 'last | .written_bytes' "$WORK/receive.json" >>"$WORK/times/raw"
	tail -q -n 1 "$WORK"/cpu-* | awk '{ sum += $1 + $2 } END { print sum }' >>"$WORK/times/cpu"
}

for limit in 0 500000000 150000000; do
	rm -f "$WORK/times"/*
	rate=$limit
	if [ "$limit" = 0 ]; then
		timed dd dd if=/dev/zero of="$target" bs=4M count=$((MIB / 4)) oflag=direct status=none
		rate=$(calculate "$MIB * 1048576 / $(median dd)")
		heading "One receiver at $MBIT Mbit/s to a loop device of $(calculate "$rate / 1e6") MB/s"
	else
		mkdir "$BLKIO" 2>/dev/null || { echo "receive: no blkio control group here: limited targets are left out"; break; }
		heading "One receiver at $MBIT Mbit/s to a loop device that takes $(calculate "$limit / 1e6") MB/s"
	fi
	for _ in $(seq "$RUNS"); do one_receiver "$limit"; done
	[ "$limit" = 0 ] || rmdir "$BLKIO"
	bound=$(awk -v wire="$(median wire)" -v mbit="$MBIT" -v raw="$(median raw)" -v rate="$rate" -v cpu="$(median cpu)" -v cores="$cores" 'BEGIN {
		limit = wire * 8 / mbit / 1e6
		if (raw / rate > limit) limit = raw / rate
		if (cpu / cores > limit) limit = cpu / cores
		printf "%.3f", limit }')
	result "wall" "$(median wall) s" "limit $bound s (wire $(calculate "$(median wire) * 8 / $MBIT / 1e6") s, target $(calculate "$(median raw) / $rate") s, processors $(calculate "$(median cpu) / $cores") s)"
	result "ratio to the limit" "$(calculate "$(median wall) / $bound")" "at most 1.10"
done
