#!/usr/bin/env bash
# bench/live.sh CATALOG-DIR
#
# Compares live disks over NBD with qemu-nbd, in turn: the first image of the catalog warm (qemu-nbd on the raw file),
# cold (on zstd-compressed qcow2), and written (on qcow2 above the raw file). Then the cost of clones, and the memory of
# one process with twenty disks. Clients are nbdcopy and fio's nbd engine; each server has a unix socket.
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/live.sh CATALOG-DIR}
SECONDS_EACH=${BENCH_SECONDS:-3}
PIDS=()
bench_cleanup() { for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null && wait "$pid"; done; }

mapfile -t disks < <(images "$CATALOG")
name=$(basename "${disks[0]}" .raw)
new_store
platter capture "${disks[0]}" "bench/$name" >/dev/null
platter export "bench/$name" "$WORK/raw" >/dev/null
qemu-img convert -q -c -f raw -O qcow2 -o compression_type=zstd "$WORK/raw" "$WORK/compressed.qcow2"

wait_for() {
	local tries=0
	until [ -S "$1" ]; do
		tries=$((tries + 1))
		[ "$tries" -lt 200 ] || { echo "live: nobody serves $1" >&2; exit 1; }
		sleep 0.05
	done
}
# ours OPTION... | theirs OPTION...: starts a server; the last one's process id is in SERVER
ours() {
	"$PLATTER" --store "$STORE" --quiet attach "$@" --nbd "$WORK/ours.sock" >"$WORK/ours.log" 2>&1 &
	SERVER=$!
	PIDS+=("$SERVER")
	wait_for "$WORK/ours.sock"
}
theirs() {
	qemu-nbd --persistent --shared=16 --socket="$WORK/theirs.sock" --cache=writeback --discard=unmap --export-name=disk "$@" >"$WORK/theirs.log" 2>&1 &
	SERVER=$!
	PIDS+=("$SERVER")
	wait_for "$WORK/theirs.sock"
}
end() {
	kill "$1"
	wait "$1" 2>/dev/null || true
}
uri() {
	case $1 in
	ours) echo "nbd+unix:///bench/$name?socket=$WORK/ours.sock" ;;
	theirs) echo "nbd+unix:///disk?socket=$WORK/theirs.sock" ;;
	esac
}
sequential() { nbdcopy --connections=4 "$(uri "$1")" null: ; }
# fio_rate SERVER SERIES FIO-OPTION...: adds its requests or bytes per second to the series
fio_rate() {
	local server=$1 series=$2 field=$3
	shift 3
	fio --name=x --ioengine=nbd --uri="$(uri "$server")" --time_based --runtime="$SECONDS_EACH" --output-format=json "$@" 2>/dev/null |
		sed -n '/^{/,$p' | jq -r "[.jobs[] | .read.$field + .write.$field] | add" >>"$WORK/times/$series"
}
cold() { sync && echo 3 >/proc/sys/vm/drop_caches; }
ratio() { # WHAT OURS THEIRS LIMIT: of rates
	result "$1" "$(calculate "$(median "$2") / $(median "$3")")" "$4"
}

heading "$name warm, beside qemu-nbd on the raw file"
ours "bench/$name" --cache 2048
mine=$SERVER
theirs --read-only --format=raw "$WORK/raw"
other=$SERVER
sequential ours && sequential theirs
for _ in $(seq "$RUNS"); do
	for server in ours theirs; do
		timed "seq-$server" sequential "$server"
		fio_rate "$server" "one-$server" iops --rw=randread --bs=4k --iodepth=1
		fio_rate "$server" "deep-$server" iops --rw=randread --bs=4k --iodepth=32
	done
done
result "sequential, 4 connections: speed as a ratio" "$(calculate "$(median seq-theirs) / $(median seq-ours)")" "at least 0.9"
ratio "4 KiB random reads, depth 1" one-ours one-theirs "at least 0.9"
ratio "4 KiB random reads, depth 32" deep-ours deep-theirs "at least 0.9"
end "$mine"
end "$other"

heading "$name cold, beside qemu-nbd on qcow2 with zstd; $((3 * RUNS)) runs"
rm -f "$WORK/times"/*
# Runs take half a second and share the disk, so there are more of them, and the servers alternate in order.
order=(ours theirs)
for _ in $(seq $((3 * RUNS))); do
	order=("${order[1]}" "${order[0]}")
	for server in "${order[@]}"; do
		for kind in seq random; do
			cold
			case $server in
			ours) ours "bench/$name" ;;
			theirs) theirs --read-only --format=qcow2 "$WORK/compressed.qcow2" ;;
			esac
			case $kind in
			seq) timed "seq-$server" sequential "$server" ;;
			random) fio_rate "$server" "random-$server" iops --rw=randread --bs=4k --iodepth=8 ;;
			esac
			end "$SERVER"
		done
	done
done
result "sequential, 4 connections: speed as a ratio" "$(calculate "$(median seq-theirs) / $(median seq-ours)")" "at least 1.2"
ratio "4 KiB random reads, depth 8, for $SECONDS_EACH s" random-ours random-theirs "at least 1.0"

heading "$name written, beside qemu-nbd on qcow2 above the raw file"
rm -f "$WORK/times"/*
for _ in $(seq "$RUNS"); do
	for server in ours theirs; do
		case $server in
		ours) ours "bench/$name" --write ;;
		theirs)
			qemu-img create -q -f qcow2 -F raw -b "$WORK/raw" "$WORK/overlay.qcow2"
			theirs --format=qcow2 "$WORK/overlay.qcow2"
			;;
		esac
		fio_rate "$server" "seq-$server" bw --rw=write --bs=1m --iodepth=4
		fio_rate "$server" "random-$server" iops --rw=randwrite --bs=4k --iodepth=8 --fsync=100
		end "$SERVER"
		case $server in
		ours) platter discard "bench/$name" >/dev/null ;;
		theirs) rm "$WORK/overlay.qcow2" ;;
		esac
	done
done
ratio "sequential writes of 1 MiB" seq-ours seq-theirs "at least 0.9"
ratio "4 KiB random writes, a flush every 100" random-ours random-theirs "at least 0.9"

heading "Clones"
packs_of_store() { find "$STORE/packs" -name '*.pack' | wc -l; }
for _ in $(seq 50); do timed few-images platter images; done
packs=$(packs_of_store)
for number in $(seq 500); do timed clone platter clone "bench/$name" "clones/$number"; done
for _ in $(seq 50); do timed no-work "$PLATTER" --version; done
for _ in $(seq 50); do timed many-images platter images; done
result "500 clones: new packs" "$(($(packs_of_store) - packs))" "0"
result "a clone, one process" "$(median clone) s" "at most 0.010 s; $(median no-work) s of it start a process"
result "the list of images afterwards, as a ratio to before" "$(calculate "$(median many-images) / $(median few-images)")"
# memory_of IMAGES...: the server's resident set in KiB after everything was read
memory_of() {
	local image
	ours "$@" --cache 128
	for image in "$@"; do nbdcopy "nbd+unix:///$image?socket=$WORK/ours.sock" null: ; done
	awk '/^VmHWM/ { print $2 }' "/proc/$SERVER/status"
	end "$SERVER"
}
one=$(memory_of clones/1)
mapfile -t twenty < <(seq -f 'clones/%g' 20)
all=$(memory_of "${twenty[@]}")
result "memory of 20 clones that were read, as a ratio to one" "$(calculate "$all / $one")" "at most $(calculate "1.2 + 20 * 1024 / $one")"
