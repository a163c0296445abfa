#!/usr/bin/env bash
# bench/publish.sh
#
# What publishing costs on a disk of 20 GB: after 100 MB written in one place, and after 100 MB of random writes of 4 KiB.
# The disk holds no file system, so that nothing is dropped; its contents, and what is written, are this machine's
# programs and libraries, at places that no block of the disk begins at. Bytes are compared with those of zstd -3.
. "$(dirname "$0")/lib.sh"
readonly DISK_BYTES=20000000000 WRITTEN_BYTES=100000000
TREE=$WORK/tree
SERVER=
mkdir "$TREE"
bench_cleanup() {
	[ -z "$SERVER" ] || { kill "$SERVER" && wait "$SERVER"; }
	umount -l "$TREE" 2>/dev/null
}

tar -C / -cf - usr/lib usr/bin 2>/dev/null | head -c 2100000000 >"$WORK/contents" || true
length=$(stat -c %s "$WORK/contents")
cp "$WORK/contents" "$WORK/disk"
truncate -s $((DISK_BYTES / 4096 * 4096)) "$WORK/disk"
new_store
platter capture "$WORK/disk" bench/disk >/dev/null
rm "$WORK/disk"

# write_blocks BYTES-EACH PLACE: into the live disk from the contents, 777 bytes shifted; the same to $WORK/written. PLACE is
# an offset, or "random".
write_blocks() {
	perl -e '
		my ($live, $contents, $copy, $each, $place, $total, $disk) = @ARGV;
		open my $to, "+<:raw", $live or die; open my $from, "<:raw", $contents or die; open my $also, ">:raw", $copy or die;
		srand 1; my $at = $place; my %seen;
		for (my $done = 0; $done < $total; $done += $each) {
			if ($place eq "random") { do { $at = int(rand($disk / $each)) * $each } while $seen{$at}++ }
			sysseek $from, 777 + $done, 0; sysread $from, my $bytes, $each;
			sysseek $to, $at, 0; syswrite($to, $bytes) == $each or die; syswrite $also, $bytes;
			$at += $each if $place ne "random";
		}' "$TREE/bench/disk/live.raw" "$WORK/contents" "$WORK/written" "$1" "$2" "$WRITTEN_BYTES" $((DISK_BYTES / 4096 * 4096))
	sync "$TREE/bench/disk/live.raw"
}
publish() { platter_json publish bench/disk; }

measure() { # WHAT TIME-LIMIT BYTES-EACH PLACE
	local what=$1 limit=$2 each=$3 place=$4 _ before after compressed extents
	heading "$what"
	rm -f "$WORK/times"/*
	for _ in $(seq "$RUNS"); do
		"$PLATTER" --store "$STORE" --quiet attach --write bench/disk --fuse "$TREE" >"$WORK/server.log" 2>&1 &
		SERVER=$!
		until [ -e "$TREE/bench/disk/live.raw" ]; do kill -0 "$SERVER" && sleep 0.02; done
		write_blocks "$each" "$place"
		before=$(du -sb "$STORE/packs" | cut -f 1)
		timed publish publish
		after=$(du -sb "$STORE/packs" | cut -f 1)
		kill "$SERVER"
		wait "$SERVER" || true
		SERVER=
		platter discard bench/disk >/dev/null
		platter forget "$(jq -r .version "$WORK/output")" >/dev/null
		echo $((after - before)) >>"$WORK/times/stored"
		# What was stored is known from then on: the next run stores other bytes.
		tail -c +100000001 "$WORK/contents" >"$WORK/next" && mv "$WORK/next" "$WORK/contents"
	done
	compressed=$(zstd -3 -q -c "$WORK/written" | wc -c)
	extents=$((WRITTEN_BYTES / each))
	result "seconds" "$(median publish)" "at most $limit ($(spread publish))"
	result "bytes stored in the last run, and what zstd -3 makes of them" "$(tail -n 1 "$WORK/times/stored") / $compressed"
	result "as a ratio" "$(calculate "$(tail -n 1 "$WORK/times/stored") / $compressed")"
	result "bytes beside zstd's, for each write" "$(calculate "($(tail -n 1 "$WORK/times/stored") - $compressed) / $extents")"
}
measure "100 MB in one place" 2 1000000 9000001536
measure "100 MB of random writes of 4 KiB" 5 4096 random
result "data on the disk" "$(calculate "$length / 1e6") MB"
