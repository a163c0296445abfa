#!/usr/bin/env bash
# bench/room-tools.sh [MIB]
#
# One disk to rooms of 1, 4 and 16 receivers, by Platter and by other programs in turn, with targets in memory:
#   platter    `cast` from a store, `receive`, every byte verified
#   udpcast    `udp-sender` of the disk as compressed by partclone and zstd, `udp-receiver | zstd | partclone`
#   unicast    the same file, over a TCP connection for each receiver (socat)
#   frisbee    `frisbeed` of the disk as compressed by imagezip, `frisbee`; left out if these are not installed
# The disk has one ext4 partition with MIB (default: 400) of files of this machine, and as much free space. The time is that
# of all commands, from their start to the last copy. After each run, e2fsck must find nothing wrong in the first copy.
. "$(dirname "$0")/lib.sh"
MIB=${1:-400}
ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
bench_cleanup() {
	"$ROOM" down
	umount -l "$WORK/memory" 2>/dev/null
}
for program in udp-sender udp-receiver partclone.ext4 zstd socat; do
	type -P "$program" >/dev/null || { echo "room-tools: $program is missing" >&2; exit 1; }
done
programs=(platter udpcast unicast)
type -P frisbeed >/dev/null && type -P frisbee >/dev/null && type -P imagezip >/dev/null && programs+=(frisbee)

mkdir "$WORK/memory"
mount -t tmpfs -o size=90% tmpfs "$WORK/memory"
STORE=$WORK/memory/store
new_store
DISK=$WORK/memory/disk
TARGETS=$WORK/memory/targets
START=$((1 << 20))
mkdir "$WORK/files" "$TARGETS"
{ tar -C /usr -c bin lib share 2>/dev/null || true; } | head -c "${MIB}M" | tar -x -C "$WORK/files" 2>/dev/null || true
truncate -s $((MIB * 2 + 64))M "$DISK"
printf 'label: dos\nstart=%d, type=83\n' $((START / 512)) | sfdisk -q "$DISK"
# Without 64bit, so that imagezip can read it.
mke2fs -q -t ext4 -O ^64bit -E "offset=$START" -d "$WORK/files" "$DISK" $((MIB * 2 + 62))M
rm -rf "$WORK/files"
platter capture "$DISK" bench/disk >/dev/null
attach "$DISK" --offset "$START"
partclone.ext4 -q -L "$WORK/partclone.log" -c -s "$DEVICE" 2>/dev/null | zstd -q -3 -o "$WORK/memory/part.zst"
detach "$DEVICE"
[[ " ${programs[*]} " != *" frisbee "* ]] || imagezip "$DISK" "$WORK/memory/disk.ndz" >"$WORK/imagezip.log" 2>&1
mkdir "$WORK/memory/bare"
cp --sparse=always "$DISK" "$WORK/memory/bare/disk"

# on MACHINE COMMAND...: on a machine of the room, at most ten minutes
on() { "$ROOM" in "$1" timeout 600 "${@:2}" >"$WORK/on-$1.log" 2>&1; }
restore="zstd -qdc | partclone.ext4 -q -L /dev/null -r -s - -C -W -o"

platter_receives() { on "$1" "$PLATTER" --quiet receive bench/disk "$TARGETS/$1" --interface eth0 --trust-any --hello "receiver-$1"; }
platter_sends() {
	on sender "$PLATTER" --store "$STORE" --quiet cast bench/disk --interface eth0 --rate "$2M" --receivers "$1" --wait 60 --linger 0 --give-up 60
}
udpcast_receives() { on "$1" sh -c "udp-receiver --nokbd --no-progress --interface eth0 --mcast-rdv-address 239.255.2.2 | $restore $TARGETS/$1"; }
udpcast_sends() {
	on sender udp-sender --file "$WORK/memory/part.zst" --nokbd --no-progress --full-duplex --interface eth0 --mcast-rdv-address 239.255.2.2 --min-receivers "$1" --max-wait 60 \
		--max-bitrate "$2m"
}
unicast_receives() { on "$1" sh -c "socat -u TCP:10.78.0.200:7000,retry=100,interval=0.1 - | $restore $TARGETS/$1"; }
unicast_sends() { # the server ends when all receivers have ended
	on sender socat -U TCP-LISTEN:7000,reuseaddr,fork "OPEN:$WORK/memory/part.zst,rdonly" || true
}
frisbee_receives() { on "$1" frisbee -q -i "10.78.0.$1" -m 239.255.1.1 -p 7001 "$TARGETS/$1"; }
frisbee_sends() { on sender frisbeed -T 3 -W $(($2 * 1000000)) -i 10.78.0.200 -m 239.255.1.1 -p 7001 "$WORK/memory/disk.ndz" || true; }

# one_run PROGRAM RECEIVERS MBIT: adds the time and the bytes that the sender sent to the series
one_run() {
	local program=$1 receivers=$2 began sent sender pids=()
	rm -f "$TARGETS"/*
	sent=$("$ROOM" sent sender)
	began=$EPOCHREALTIME
	"${program}_sends" "$2" "$3" &
	sender=$!
	for receiver in $(seq "$receivers"); do
		"${program}_receives" "$receiver" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || { echo "room-tools: a receiver of $program failed:" >&2; tail -qn 3 "$WORK"/on-*.log >&2; exit 1; }
	done
	printf '%s\n' "$(calculate "$EPOCHREALTIME - $began")" >>"$WORK/times/wall-$program"
	printf '%s\n' "$(calculate "($("$ROOM" sent sender) - $sent) / 1e6")" >>"$WORK/times/sent-$program"
	[ "$program" != unicast ] || pkill -P "$(pgrep -P "$sender" | head -n 1)" 2>/dev/null || true
	kill "$sender" 2>/dev/null || true
	wait "$sender" 2>/dev/null || true
}

# is_whole PROGRAM: the first copy has the files of the disk
is_whole() {
	local copy=$TARGETS/1 offset=$START
	[[ $1 != u* ]] || offset=0
	tail -c +$((offset + 1)) "$copy" >"$WORK/memory/copy"
	e2fsck -fn "$WORK/memory/copy" >"$WORK/e2fsck.log" 2>&1 || { echo "room-tools: e2fsck is not content with the copy of $1" >&2; exit 1; }
	rm "$WORK/memory/copy"
}

result "the disk: files; compressed for Platter, by partclone and zstd, by imagezip" \
	"$MIB MiB; $(calculate "$(du -sb "$STORE/packs" | cut -f 1) / 1e6"), $(calculate "$(stat -c %s "$WORK/memory/part.zst") / 1e6"), $(calculate "$(stat -c %s "$WORK/memory/disk.ndz" 2>/dev/null || echo 0) / 1e6") MB"
for room in "1 1000" "4 400" "16 100"; do
	read -r receivers mbit <<<"$room"
	rm -f "$WORK/times"/*
	"$ROOM" up "$receivers" "${mbit}mbit"
	for _ in $(seq "$RUNS"); do
		for program in "${programs[@]}"; do
			one_run "$program" "$receivers" "$mbit"
			is_whole "$program"
		done
	done
	"$ROOM" down
	heading "$receivers receivers at $mbit Mbit/s"
	for program in "${programs[@]}"; do
		result "$program: time, as a ratio to Platter's" "$(calculate "$(median "wall-$program") / $(median wall-platter)")" \
			"$(spread "wall-$program") s; $(median "sent-$program") MB sent"
	done
done
