#!/usr/bin/env bash
# bench/reads.sh DISK.raw BINARY...
#
# Compares reads of one disk by several builds of Platter and by qemu-nbd on the raw file, all in turn: over NBD warm (in
# order; 4 KiB at random, depths 1 and 32) and cold (a new process, after this machine's page cache was dropped: in order;
# 4 KiB at random, depth 8), and over FUSE (a version in order by requests of 1 MiB, a live disk by 4 KiB at random, depth 4,
# both past the page cache). Prints medians, and ratios of speed to the first build. Processor time is that of the server, for each
# request. On a machine that also does other things it varies less than speed.
. "$(dirname "$0")/lib.sh"
RAW=${1:?usage: bench/reads.sh DISK.raw BINARY...}
shift
BINARIES=("$@")
SECONDS_EACH=${BENCH_SECONDS:-3}
last=$((${#BINARIES[@]} - 1))
[ "$last" -ge 0 ] || { echo "reads: which binaries?" >&2; exit 1; }
cold() { sync && echo 3 >/proc/sys/vm/drop_caches; }
bench_cleanup() {
	end_begun
	for number in $(seq 0 "$last"); do umount -l "$WORK/tree-$number" 2>/dev/null; done
}

for number in $(seq 0 "$last"); do
	"${BINARIES[number]}" --store "$WORK/store-$number" --quiet init >/dev/null
	"${BINARIES[number]}" --store "$WORK/store-$number" --quiet capture "$RAW" bench/disk >/dev/null
	mkdir "$WORK/tree-$number"
done
"${BINARIES[last]}" --store "$WORK/store-$last" --quiet export bench/disk "$WORK/raw" >/dev/null

# serve WHO OPTION...: WHO is the number of a binary, or qemu
serve() {
	local who=$1
	shift
	rm -f "$WORK/$who.sock"
	if [ "$who" = qemu ]; then
		begin "$WORK/qemu.log" qemu-nbd --persistent --shared=16 --socket="$WORK/qemu.sock" --cache=writeback --read-only --format=raw --export-name=bench/disk "$WORK/raw"
	else
		begin "$WORK/$who.log" "${BINARIES[who]}" --store "$WORK/store-$who" --quiet attach bench/disk --nbd "$WORK/$who.sock" "$@"
	fi
	wait_for nbdinfo --size "nbd+unix:///bench/disk?socket=$WORK/$who.sock"
}
# used PID: its processor seconds
used() { awk '{ sub(/^.*\) /, ""); split($0, field, " "); print (field[12] + field[13]) / 100 }' "/proc/$1/stat"; }
# fio_rate WHO SERIES PID OPTION...: adds requests each second, and processor microseconds for each, to series
fio_rate() {
	local who=$1 series=$2 pid=$3 before
	shift 3
	before=$(used "$pid")
	fio --name=x --bs=4k --rw=randread --time_based --runtime="$SECONDS_EACH" --output-format=json "$@" 2>/dev/null | sed -n '/^{/,$p' >"$WORK/fio"
	jq '.jobs[0].read.iops' "$WORK/fio" >>"$WORK/times/$series-$who"
	calculate "($(used "$pid") - $before) * 1e6 / $(jq '.jobs[0].read.total_ios' "$WORK/fio")" >>"$WORK/times/$series-cpu-$who"
	echo >>"$WORK/times/$series-cpu-$who"
}
over_nbd() { fio_rate "$1" "$2" "$3" --ioengine=nbd --uri="nbd+unix:///bench/disk?socket=$WORK/$1.sock" --iodepth="$4"; }
sequential() { nbdcopy --connections=4 "nbd+unix:///bench/disk?socket=$WORK/$1.sock" null: ; }
name_of() { if [ "$1" = qemu ]; then echo qemu-nbd; else basename "${BINARIES[$1]}"; fi; }
# rates WHAT SERIES | times WHAT SERIES: a line for each server
rates() {
	local who
	for who in "${everyone[@]}"; do
		[ -f "$WORK/times/$2-$who" ] || continue
		result "$1: $(name_of "$who")" "$(calculate "$(median "$2-$who") / $(median "$2-0")")" "$(median "$2-$who") requests/s ($(spread "$2-$who")), $(median "$2-cpu-$who") us of processor time each"
	done
}
times() {
	local who
	for who in "${everyone[@]}"; do
		[ -f "$WORK/times/$2-$who" ] || continue
		result "$1: $(name_of "$who")" "$(calculate "$(median "$2-0") / $(median "$2-$who")")" "$(median "$2-$who") s ($(spread "$2-$who"))"
	done
}
mapfile -t everyone < <(seq 0 "$last" && echo qemu)
declare -A PIDS=()

heading "NBD warm, as ratios of speed to the first"
for who in "${everyone[@]}"; do
	serve "$who" --cache 2048
	PIDS[$who]=$SERVER
	sequential "$who"
done
for _ in $(seq "$RUNS"); do
	for who in "${everyone[@]}"; do
		timed "seq-$who" sequential "$who"
		over_nbd "$who" one "${PIDS[$who]}" 1
		over_nbd "$who" deep "${PIDS[$who]}" 32
	done
done
times "in order, 4 connections" seq
rates "4 KiB at random, depth 1" one
rates "4 KiB at random, depth 32" deep
for who in "${everyone[@]}"; do end "${PIDS[$who]}"; done

heading "NBD cold, as ratios of speed to the first"
rm -f "$WORK/times"/*
for _ in $(seq $((2 * RUNS))); do
	for who in "${everyone[@]}"; do
		cold
		serve "$who"
		timed "seq-$who" sequential "$who"
		end "$SERVER"
		cold
		serve "$who"
		over_nbd "$who" random "$SERVER" 8
		end "$SERVER"
	done
done
times "in order, 4 connections" seq
rates "4 KiB at random, depth 8, for $SECONDS_EACH s" random

heading "FUSE, as ratios of speed to the first"
rm -f "$WORK/times"/*
read_file() { dd if="$1" of=/dev/null bs=1M iflag=direct status=none; }
for who in $(seq 0 "$last"); do
	begin "$WORK/$who.log" "${BINARIES[who]}" --store "$WORK/store-$who" --quiet attach --write bench/disk --cache 2048 --fuse "$WORK/tree-$who"
	PIDS[$who]=$SERVER
	wait_for test -s "$WORK/tree-$who/bench/disk/live.raw"
	read_file "$WORK/tree-$who/bench/disk/1.raw"
done
for _ in $(seq "$RUNS"); do
	for who in $(seq 0 "$last"); do
		timed "seq-$who" read_file "$WORK/tree-$who/bench/disk/1.raw"
		fio_rate "$who" random "${PIDS[$who]}" --filename="$WORK/tree-$who/bench/disk/live.raw" --readonly --direct=1 --ioengine=libaio --iodepth=4
	done
done
times "a version in order" seq
rates "a live disk, 4 KiB at random, depth 4" random
