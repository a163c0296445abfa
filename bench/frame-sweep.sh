#!/usr/bin/env bash
# bench/frame-sweep.sh CATALOG-DIR
#
# Compares block sizes (of files) and frame sizes over the whole catalog: size of the store, time to capture all of it, to
# install the first image cold and warm, and random reads of 4 KiB, which decode the frame up to the block. Hidden options
# of `capture` set the sizes; docs/benchmarks.md explains the defaults.
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/frame-sweep.sh CATALOG-DIR}
FRAMES=${BENCH_FRAME_KIB:-32 64 128 256}
BLOCKS=${BENCH_BLOCK_KIB:-32 64}
READS=${BENCH_READS:-20000}

mapfile -t disks < <(images "$CATALOG")
first=$(basename "${disks[0]}" .raw)
example platter-jobs measure
capture_all() {
	local disk
	for disk in "${disks[@]}"; do
		platter capture "$disk" "catalog/$(basename "$disk" .raw)" --frame-size "$frame" --block-size "$block"
	done
}
install_first() { platter install "catalog/$first" "$WORK/target" --yes; }
cold() { sync && echo 3 >/proc/sys/vm/drop_caches; }
random_reads() { "$EXAMPLE" random "$STORE" "catalog/$first" "$READS"; }

printf '%10s %10s %12s %12s %16s %16s %18s\n' 'block, KiB' 'frame, KiB' 'store, MB' 'capture, s' 'install cold, s' 'install warm, s' \
	'4 KiB reads/s'
for block in $BLOCKS; do
	for frame in $FRAMES; do
		rm -f "$WORK/times"/*
		for _ in $(seq "$RUNS"); do
			new_store
			timed capture capture_all
			cold
			timed cold install_first
			timed warm install_first
			random_reads >/dev/null
			timed random random_reads
		done
		printf '%10s %10s %12.1f %12s %16s %16s %18.0f\n' "$block" "$frame" \
			"$(calculate "$(du -sb "$STORE" | cut -f 1) / 1e6")" "$(median capture)" "$(median cold)" "$(median warm)" \
			"$(calculate "$READS / $(median random)")"
	done
done
