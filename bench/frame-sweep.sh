#!/usr/bin/env bash
# bench/frame-sweep.sh CATALOG-DIR
#
# Frame sizes from 32 to 256 KiB over the whole catalog: size of the store, capture, install cold and warm. A hidden
# option of `capture` sets the size; the default stands in DESIGN's table with its reason.
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/frame-sweep.sh CATALOG-DIR}
SIZES=${BENCH_FRAME_KIB:-32 64 128 256}

mapfile -t disks < <(images "$CATALOG")
first=$(basename "${disks[0]}" .raw)
capture_all() {
	local disk
	for disk in "${disks[@]}"; do platter capture "$disk" "catalog/$(basename "$disk" .raw)" --frame-size "$kib"; done
}
install_first() { platter install "catalog/$first" "$WORK/target"; }
cold() { sync && echo 3 >/proc/sys/vm/drop_caches; }

printf '%10s %14s %12s %16s %16s\n' 'frame, KiB' 'store, MB' 'capture, s' 'install cold, s' 'install warm, s'
for kib in $SIZES; do
	rm -f "$WORK/times"/*
	for _ in $(seq "$RUNS"); do
		new_store
		timed capture capture_all
		cold
		timed cold install_first
		timed warm install_first
	done
	printf '%10s %14.1f %12s %16s %16s\n' "$kib" "$(calculate "$(du -sb "$STORE" | cut -f 1) / 1e6")" \
		"$(median capture)" "$(median cold)" "$(median warm)"
done
