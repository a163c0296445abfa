#!/usr/bin/env bash
# bench/boots.sh TRACES-DIR [CATALOG-DIR]
#
# Boots of real machines, recorded once and replayed as often as wanted. For each of four disks of the full catalog
# (built if no CATALOG-DIR is given) without a trace in TRACES-DIR, QEMU boots it over `platter attach --write --record`
# until its marker, emulated, which takes minutes. Then the reads of each trace are replayed against Platter and against
# qemu-nbd on the raw file, alternately, several times each:
#   cold   a new process, after this machine's page cache was dropped; caches below this machine (of a host or a disk)
#          cannot be dropped, so both are cold for this machine only
#   warm   again by the same process
# Both must give the same replies. Each read is sent once the reads have been answered that had been answered before it
# in the recording, so some are concurrent; the guest's own time in between is left out.
#
#   BOOT_DISKS   other disks of the catalog
#   BENCH_THINK  fraction of the recorded pauses between requests to keep (default: 0)
. "$(dirname "$0")/lib.sh"
TRACES=${1:?usage: bench/boots.sh TRACES-DIR [CATALOG-DIR]}
CATALOG=${2:-}
THINK=${BENCH_THINK:-0}
read -ra DISKS <<<"${BOOT_DISKS:-bookworm-base bookworm-desktop bookworm-xfs trixie-web}"

mkdir -p "$TRACES"
if [ -z "$CATALOG" ]; then
	CATALOG=$WORK/catalog
	"$ROOT/catalog/make-catalog" "$CATALOG" full "${DISKS[@]}" >"$WORK/output" 2>&1 || { tail -n 5 "$WORK/output" >&2; exit 1; }
fi
new_store
for name in "${DISKS[@]}"; do platter capture "$CATALOG/$name.raw" "bench/$name" >/dev/null; done

# ours NAME OPTION... | theirs FILE: starts a server; its process id is in SERVER
ours() {
	local name=$1
	shift
	rm -f "$WORK/ours.sock"
	begin "$WORK/ours.log" "$PLATTER" --store "$STORE" --quiet attach "bench/$name" "$@" --nbd "$WORK/ours.sock"
	wait_for test -S "$WORK/ours.sock"
}
theirs() {
	rm -f "$WORK/theirs.sock"
	begin "$WORK/theirs.log" qemu-nbd --persistent --shared=16 --socket="$WORK/theirs.sock" --cache=writeback --read-only --format=raw --export-name=disk "$1"
	wait_for test -S "$WORK/theirs.sock"
}
# record NAME: boots the disk until its marker
record() {
	local name=$1 server
	rm -f "$WORK/trace"
	ours "$name" --write --on-detach discard --record "$WORK/trace"
	server=$SERVER
	boot "file=nbd+unix:///bench/$name?socket=$WORK/ours.sock,format=raw"
	end "$server"
	mv "$WORK/trace" "$TRACES/$name.trace"
	result "$name: booted, recorded" "$BOOTED s"
}
for name in "${DISKS[@]}"; do [ -f "$TRACES/$name.trace" ] || record "$name"; done

example platter-export replay
# replay SERVER SERIES: adds the replay's figures to the series; the digest of the read data goes to $WORK/SERVER.digest
replay() {
	local server=$1 series=$2 field uri="nbd+unix:///disk?socket=$WORK/theirs.sock"
	[ "$server" != ours ] || uri="nbd+unix:///bench/$name?socket=$WORK/ours.sock"
	"$EXAMPLE" "$TRACES/$name.trace" --nbd "$uri" --think "$THINK" --score "$score" >"$WORK/replayed"
	for field in p50_us p99_us service_seconds; do jq ".$field" "$WORK/replayed" >>"$WORK/times/$series-$field"; done
	jq -r .digest "$WORK/replayed" >"$WORK/$server.digest"
}
# cache_of: hits and misses of Platter's cache
cache_of() { platter_json disks | jq -r '.cache | "\(.hits) \(.misses)"'; }
# hit_rate BEFORE AFTER: the hit rate between two lines "hits misses"
hit_rate() { awk '{ hits = $3 - $1; all = hits + $4 - $2; printf "%.4f", all ? hits / all : 1 }' <<<"$1 $2"; }
cold() { sync && echo 3 >/proc/sys/vm/drop_caches; }

for name in "${DISKS[@]}"; do
	heading "$name booting, beside qemu-nbd on the raw file"
	rm -f "$WORK/times"/*
	platter export "bench/$name" "$WORK/raw" >/dev/null
	score=$(platter_json show "bench/$name" | jq -r .score)
	for _ in $(seq "$RUNS"); do
		for server in ours theirs; do
			cold
			case $server in
			ours) ours "$name" && before=$(cache_of) ;;
			theirs) theirs "$WORK/raw" ;;
			esac
			replay "$server" "cold-$server"
			[ "$server" = theirs ] || between=$(cache_of)
			replay "$server" "warm-$server"
			[ "$server" = theirs ] || after=$(cache_of)
			end "$SERVER"
		done
		cmp -s "$WORK/ours.digest" "$WORK/theirs.digest" || { echo "boots: $name does not read as the raw file" >&2; exit 1; }
	done
	rm "$WORK/raw"
	result "reads, bytes" "$(jq -r '"\(.requests), \(.bytes)"' "$WORK/replayed")"
	result "hit rate of the cache: cold, warm" "$(hit_rate "$before" "$between"), $(hit_rate "$between" "$after")"
	for kind in cold warm; do
		for field in p50_us p99_us; do
			result "$kind ${field%_us}: Platter, qemu-nbd" "$(median "$kind-ours-$field"), $(median "$kind-theirs-$field") us"
		done
		limit=
		[ $kind = cold ] || limit="at most 1.05"
		ours=$(median "$kind-ours-service_seconds")
		theirs=$(median "$kind-theirs-service_seconds")
		result "$kind, all service times: Platter, qemu-nbd" "$ours, $theirs s" "$(spread "$kind-ours-service_seconds"), $(spread "$kind-theirs-service_seconds")"
		result "$kind, all service times: ratio" "$(calculate "$ours / $theirs")" "$limit"
	done
done
