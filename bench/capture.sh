#!/usr/bin/env bash
# bench/capture.sh CATALOG-DIR
#
# Capture of new data compared with `zstd -3 -T2` on the same allocated bytes; capture of a mostly known disk; peak memory
# for a real disk, a sparse disk of 1 TiB, and a disk with two million small files (BENCH_FILES sets the number).
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/capture.sh CATALOG-DIR}
FILES=${BENCH_FILES:-2000000}

mapfile -t disks < <(images "$CATALOG")
first=${disks[0]}
derived=${disks[-1]}
heading "Fresh capture of $(basename "$first")"
allocated_bytes "$first" >"$WORK/allocated"
bytes=$(stat -c %s "$WORK/allocated")
cat "$first" >/dev/null # both read from the page cache

fresh() { platter capture "$first" bench/first; }
for _ in $(seq "$RUNS"); do
	timed zstd zstd -3 -T2 -q -f "$WORK/allocated" -o "$WORK/allocated.zst"
	new_store
	timed capture fresh
done
line zstd "$bytes"
line capture "$bytes"
zstd_bytes=$(stat -c %s "$WORK/allocated.zst")
store_bytes=$(du -sb "$STORE" | cut -f 1)
result "speed, as a ratio to zstd -3 -T2" "$(calculate "$(median zstd) / $(median capture)")" "at least 0.85"
result "bytes, as a ratio to zstd -3" "$(calculate "$store_bytes / $zstd_bytes")" "at most 1.10"
rm "$WORK/allocated" "$WORK/allocated.zst"

heading "Capture of what is mostly known"
cat "$derived" >/dev/null
again() { platter capture "$first" bench/first; }
next() { platter capture "$derived" bench/next; }
derived_bytes=$(allocated_bytes "$derived" | wc -c)
next >/dev/null # its new blocks are stored once; the runs measured find them all
for _ in $(seq "$RUNS"); do
	timed known-same again
	timed known-derived next
done
line known-same "$bytes"
line known-derived "$derived_bytes"
result "known data, GB/s of allocated" "$(calculate "$derived_bytes / $(median known-derived) / 1e9")" "at least 1.2"

heading "Peak memory, MiB"
new_store
result "$(basename "$first"), fresh" "$(peak_mib "$PLATTER" --store "$STORE" --quiet capture "$first" memory/first)" \
	"at most 256 and 16 bytes an extent"
truncate -s 1T "$WORK/sparse"
mke2fs -q -t ext4 "$WORK/sparse"
result "1 TiB sparse" "$(peak_mib "$PLATTER" --store "$STORE" --quiet capture "$WORK/sparse" memory/sparse)" \
	"at most 256 and 16 bytes an extent"
rm "$WORK/sparse"

truncate -s $((FILES * 3 / 1024 + 256))M "$WORK/many"
mke2fs -q -t ext4 -b 1024 -I 128 -O '^metadata_csum' -N $((FILES + 10000)) "$WORK/many" >/dev/null 2>&1
mount -o loop "$WORK/many" "$MNT"
perl -e '
	my ($root, $files) = @ARGV;
	for my $n (0 .. $files - 1) {
		mkdir "$root/" . int($n / 1000) if $n % 1000 == 0;
		open my $out, ">", "$root/" . int($n / 1000) . "/$n" or die "$n: $!"; print $out "file $n of many\n" x (1 + $n % 40);
	}' "$MNT" "$FILES"
umount "$MNT"
result "$FILES small files" "$(peak_mib "$PLATTER" --store "$STORE" --quiet capture "$WORK/many" memory/many)" \
	"at most $((256 + FILES * 16 / 1048576))"
