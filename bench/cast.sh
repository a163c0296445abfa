#!/usr/bin/env bash
# bench/cast.sh CATALOG-DIR
#
# Casts an image in rooms of 1, 4 and 16 receivers, and 64 MiB of files of this machine in rooms of 40 and 80, with verification, to
# loop devices in memory. The limit is the largest of:
# wire bytes divided by the link rate, raw bytes divided by the target rate, and processor seconds divided by the cores.
# The time is the sender's, from the start of the first receiver to the result of the last one. Symbols sent are printed
# as a ratio to the minimum: without loss, and with 1 % and 5 % independent loss; and the time with loss, for as many receivers as two
# processors can decode for. Then the cast from a store of the whole
# catalog is compared with one from a store of this image only, which is one precompressed pack. BENCH_CAST names the
# image (default: the last one of the catalog).
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/cast.sh CATALOG-DIR}
ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
bench_cleanup() {
	"$ROOM" down
	for device in "$WORK"/loops/*; do [ ! -e "$device" ] || { losetup -d "/dev/${device##*/}" && rm "$device"; }; done
	umount "$WORK/memory" 2>/dev/null
}

mapfile -t disks < <(images "$CATALOG")
mkdir "$WORK/memory"
mount -t tmpfs -o size=90% tmpfs "$WORK/memory"
STORE=$WORK/memory/store
new_store
disk=${BENCH_CAST:+$CATALOG/$BENCH_CAST.raw}
disk=${disk:-${disks[-1]}}
platter capture "$disk" bench/cast >/dev/null
# select_image NAME: what is cast from now on
select_image() {
	IMAGE=$1
	raw_bytes=$(platter_json show "$IMAGE" | jq -r '[.. | .allocated_bytes? // empty] | first')
	disk_bytes=$(platter_json show "$IMAGE" | jq -r '[.. | .disk_length? // empty] | first')
}
select_image bench/cast
cores=$(nproc)

# Rate of the targets: zeros written to memory.
timed target dd if=/dev/zero of="$WORK/memory/probe" bs=1M count=1024 status=none
rm "$WORK/memory/probe"
target_rate=$(calculate "1073741824 / $(median target)")
result "target in memory" "$(calculate "$target_rate / 1e6") MB/s"

# The kernel's counters, which count the headers of a super-packet once: slightly too few. (/sys would show the
# interfaces of the namespace in which it was mounted.)
wire_bytes() { "$ROOM" in sender ip -s -j link show dev eth0 | jq '.[0].stats64.tx.bytes'; }

BUFFER=128
# one_cast RECEIVERS MBIT: sets WALL, WIRE, CPU, SYMBOLS
one_cast() {
	local receivers=$1 mbit=$2 receiver before pids=() devices=(none)
	rm -f "$WORK"/cpu-*
	for receiver in $(seq "$receivers"); do
		truncate -s "$disk_bytes" "$WORK/memory/target-$receiver"
		attach "$WORK/memory/target-$receiver"
		devices+=("$DEVICE")
	done
	for receiver in $(seq "$receivers"); do
		"$ROOM" in "$receiver" /usr/bin/time -f '%U %S' -o "$WORK/cpu-$receiver" "$PLATTER" --quiet receive "$IMAGE" "${devices[receiver]}" --yes \
			--interface eth0 --hello "receiver-$receiver" --buffer "$BUFFER" --trust-any >"$WORK/receive-$receiver.log" 2>&1 &
		pids+=($!)
	done
	before=$(wire_bytes)
	"$ROOM" in sender /usr/bin/time -f '%U %S' -o "$WORK/cpu-sender" "$PLATTER" --store "$STORE" --quiet --json cast "$IMAGE" \
		--interface eth0 --rate "${mbit}M" --receivers "$receivers" --wait 60 --linger 0 --give-up 60 >"$WORK/cast.json" 2>"$WORK/cast.log" ||
		{ tail -n 5 "$WORK/cast.log" >&2; exit 1; }
	wait "${pids[@]}"
	WALL=$(jq -s '[.. | objects | select(.symbols_sent? != null)] | last | .seconds' "$WORK/cast.json")
	# Bytes on a real wire, with headers, preamble and gap; the kernel must have counted nearly as many.
	WIRE=$(jq -s '[.. | objects | select(.symbols_sent? != null)] | last | .wire_bytes' "$WORK/cast.json")
	[ $(($(wire_bytes) - before)) -gt $((WIRE * 9 / 10)) ] || { echo "cast: the kernel sent far less than $WIRE bytes" >&2; exit 1; }
	SYMBOLS=$(jq -s '[.. | objects | select(.symbols_sent? != null)] | last | .symbols_sent / .symbols' "$WORK/cast.json")
	CPU=$(tail -q -n 1 "$WORK"/cpu-* | awk '{ sum += $1 + $2 } END { print sum }')
	for receiver in "${devices[@]:1}"; do detach "$receiver"; done
	rm -f "$WORK/memory"/target-*
}

# room RECEIVERS MBIT: medians against the limit
room() {
	local receivers=$1 mbit=$2 limit
	rm -f "$WORK/times"/*
	"$ROOM" up "$receivers" "${mbit}mbit"
	for _ in $(seq "$RUNS"); do
		one_cast "$@"
		echo "$WALL" >>"$WORK/times/wall"
		echo "$WIRE" >>"$WORK/times/wire"
		echo "$CPU" >>"$WORK/times/cpu"
		echo "$SYMBOLS" >>"$WORK/times/symbols"
	done
	"$ROOM" down
	limit=$(awk -v wire="$(median wire)" -v mbit="$mbit" -v raw="$raw_bytes" -v rate="$target_rate" -v cpu="$(median cpu)" -v cores="$cores" 'BEGIN {
		limit = wire * 8 / mbit / 1e6
		if (raw / rate > limit) limit = raw / rate
		if (cpu / cores > limit) limit = cpu / cores
		printf "%.3f", limit }')
	result "$* : wall" "$(median wall) s" "limit $limit s (wire $(calculate "$(median wire) / 1e6") MB, $(median cpu) CPU s)"
	result "$* : symbols sent, as a ratio to those needed" "$(median symbols)" "at most 1.03"
	result "$* : ratio to the limit" "$(calculate "$(median wall) / $limit")" "at most 1.05; 1 receiver 1.10"
}

# lossy PERCENT MOST: symbols sent when every receiver loses this share
lossy() {
	rm -f "$WORK/times"/*
	"$ROOM" up 4 400mbit "$1"
	for _ in $(seq "$RUNS"); do
		one_cast 4 400
		echo "$SYMBOLS" >>"$WORK/times/symbols"
	done
	"$ROOM" down
	result "4 receivers, $1 % loss: symbols sent, as a ratio" "$(median symbols)" "at most $2"
}

# lossy_times RECEIVERS MBIT: time with independent loss, as a ratio to that without
lossy_times() {
	local percent most
	rm -f "$WORK/times"/*
	for _ in $(seq "$RUNS"); do
		for percent in 0 1 5 10; do
			"$ROOM" up "$1" "${2}mbit" "$percent"
			one_cast "$1" "$2"
			"$ROOM" down
			echo "$WALL" >>"$WORK/times/lost-$percent"
		done
	done
	for percent in "1 1.04" "5 1.10" "10 1.18"; do
		read -r percent most <<<"$percent"
		result "$1 receivers, $percent % loss: time, as a ratio to that without" "$(calculate "$(median "lost-$percent") / $(median lost-0)")" "at most $most"
	done
}

# reassembly RECEIVERS MBIT MIB: random chunks that receivers reassemble and drop, at the limit of wire and processors
reassembly() {
	local receivers=$1 mbit=$2 mib=$3 receiver before limit pids=()
	example platter-net cast_speed
	rm -f "$WORK"/cpu-* "$WORK/times"/*
	"$ROOM" up "$receivers" "${mbit}mbit"
	for _ in $(seq "$RUNS"); do
		pids=()
		for receiver in $(seq "$receivers"); do
			"$ROOM" in "$receiver" /usr/bin/time -f '%U %S' -o "$WORK/cpu-$receiver" "$EXAMPLE" receive eth0 plain >/dev/null 2>&1 &
			pids+=($!)
		done
		before=$(wire_bytes)
		"$ROOM" in sender /usr/bin/time -f '%U %S' -o "$WORK/cpu-sender" "$EXAMPLE" send eth0 "${mbit}000000" "$mib" "$receivers" \
			>"$WORK/speed.log" 2>&1 || { tail -n 5 "$WORK/speed.log" >&2; exit 1; }
		wait "${pids[@]}"
		sed -nE 's/.* in ([0-9.]+) s.*/\1/p' "$WORK/speed.log" | head -n 1 >>"$WORK/times/wall"
		echo $(($(wire_bytes) - before)) >>"$WORK/times/wire"
		tail -q -n 1 "$WORK"/cpu-* | awk '{ sum += $1 + $2 } END { print sum }' >>"$WORK/times/cpu"
	done
	"$ROOM" down
	limit=$(awk -v wire="$(median wire)" -v mbit="$mbit" -v cpu="$(median cpu)" -v cores="$cores" 'BEGIN {
		limit = wire * 8 / mbit / 1e6
		if (cpu / cores > limit) limit = cpu / cores
		printf "%.3f", limit }')
	result "$receivers $mbit, reassembly only: wall" "$(median wall) s" "limit $limit s ($(median cpu) CPU s)"
	result "$receivers $mbit, reassembly only: ratio to the limit" "$(calculate "$(median wall) / $limit")" "at most 1.05; 1 receiver 1.10"
}

# shared RECEIVERS MBIT: casts from the store of the whole catalog and from a store of this image alone, alternately
shared() {
	local kind
	rm -f "$WORK/times"/*
	"$ROOM" up "$1" "${2}mbit"
	for _ in $(seq "$RUNS"); do
		for kind in alone shared; do
			STORE=$WORK/memory/store-$kind
			one_cast "$1" "$2"
			echo "$WALL" >>"$WORK/times/$kind"
			jq -s '[.. | objects | select(.symbols_sent? != null)] | last | .cast_bytes' "$WORK/cast.json" >>"$WORK/times/bytes-$kind"
		done
	done
	"$ROOM" down
	result "$1 receivers: time from the shared store, as a ratio" "$(calculate "$(median shared) / $(median alone)")" "at most 1.02"
	result "$1 receivers: bytes from the shared store, as a ratio" "$(calculate "$(median bytes-shared) / $(median bytes-alone)")"
}

heading "$(basename "$disk") in rooms: receivers, Mbit/s"
room 1 1000
room 4 400
room 16 100
reassembly 16 1000 512
{ tar -C /usr -c bin lib 2>/dev/null || true; } | head -c 64M >"$WORK/memory/small"
truncate -s 64M "$WORK/memory/small"
platter capture "$WORK/memory/small" bench/small >/dev/null
rm "$WORK/memory/small"
select_image bench/small
BUFFER=16
room 40 25
room 80 25
select_image bench/cast
BUFFER=128
heading "Loss"
lossy_times 4 100
lossy 1 1.05
lossy 5 1.12
heading "Deduplicated store against one precompressed pack"
mv "$STORE" "$WORK/memory/store-alone"
STORE=$WORK/memory/store-shared
new_store
for other in "${disks[@]}"; do platter capture "$other" "catalog/$(basename "$other" .raw)" >/dev/null; done
platter capture "$disk" bench/cast >/dev/null
shared 1 400
shared 8 400
