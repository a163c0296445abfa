#!/usr/bin/env bash
# bench/index.sh [MILLIONS...]
#
# The block index with so many million synthetic blocks (1 10): adding, opening, lookups, memory and size; opening the same
# store without its index, which reads the footers of all packs; `platter images`; and a capture into it, compared with a
# capture into an empty store. Blocks have one sector, so that they need little space. The captured disk has programs and libraries of this machine.
. "$(dirname "$0")/lib.sh"
readonly DISK_BYTES=300000000

example platter-jobs many_blocks
tar -C / -cf - usr/lib usr/bin 2>/dev/null | head -c "$DISK_BYTES" >"$WORK/disk" || true

# value FILE NAME: prints the last value of that name
value() { awk -v name="$2" '$1 == name { value = $2 } END { print value }' "$1"; }

# capture_into DIR SERIES: captures the disk into a copy of the store, which shares its packs
capture_into() {
	cp -al "$1" "$WORK/copy"
	# The files that a writer changes in place.
	rm -rf "$WORK/copy"/*.sqlite* "$WORK/copy/changes.log" "$WORK/copy/lock" "$WORK/copy/reserve"
	cp "$1"/*.sqlite* "$1/changes.log" "$1/reserve" "$WORK/copy/"
	sync
	timed "$2" "$PLATTER" --store "$WORK/copy" --quiet capture --force "$WORK/disk" bench/disk
	rm -rf "$WORK/copy"
}

STORE=$WORK/empty
new_store
[ "$#" -gt 0 ] || set -- 1 10
for millions in "$@"; do
	heading "$millions million blocks"
	rm -f "$WORK/times"/*
	STORE=$WORK/large
	rm -rf "$STORE"
	"$EXAMPLE" make "$STORE" "$millions" >"$WORK/made"
	for _ in $(seq "$RUNS"); do
		"$EXAMPLE" look "$STORE" "$millions" >>"$WORK/times/look"
		value "$WORK/times/look" open_ms >>"$WORK/times/open"
		mv "$STORE/index" "$WORK/index"
		"$EXAMPLE" look "$STORE" "$millions" >"$WORK/footers"
		value "$WORK/footers" open_ms >>"$WORK/times/open-footers"
		mv "$WORK/index" "$STORE/index"
		timed images platter images
		capture_into "$WORK/empty" into-empty
		capture_into "$STORE" into-large
	done
	result "blocks added per second" "$(value "$WORK/made" added_per_second)" "slowest session of 250,000: $(value "$WORK/made" slowest_session_s) s"
	result "bytes of the index per block" "$(value "$WORK/made" bytes_per_block)"
	result "hits, misses per second" "$(value "$WORK/times/look" hits_per_second), $(value "$WORK/times/look" misses_per_second)"
	result "memory: opened, after the lookups" "$(value "$WORK/times/look" open_mib), $(value "$WORK/times/look" look_mib) MiB"
	result "memory without the index" "$(value "$WORK/footers" look_mib) MiB"
	result "opening, against reading all footers" "$(calculate "$(median open) / $(median open-footers)")" "$(median open) ms"
	result "platter images" "$(median images) s" "peak $(peak_mib "$PLATTER" --store "$STORE" --quiet images) MiB; goals 0.050 s, 50 MiB"
	result "capture into it against into an empty store" "$(calculate "$(median into-large) / $(median into-empty)")" "goal 1.15"
done
