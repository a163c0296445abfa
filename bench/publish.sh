#!/usr/bin/env bash
# bench/publish.sh
#
# Cost of publishing on a disk of 20 GB: after 100 MB written in one place, and after 100 MB of random 4 KiB writes. The
# disk is in use (its filesystem is marked as mounted), so nothing is dropped. Writes go to a partition without a
# filesystem. All data are programs and libraries of this machine, at offsets where no block of the disk begins. The
# stored bytes are compared with zstd -3 over the written bytes in disk order, cut into pieces of a frame's length; the
# difference is the recipe and the headers of frames and packs, of which the changed recipe pages are printed separately.
# One zstd stream over everything is printed as well; frames are shorter so that each can be read alone (design: frames).
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
printf 'start=1MiB, size=16MiB\nstart=17MiB\n' | sfdisk -q --label dos "$WORK/disk"
mkfs.ext4 -q "$WORK/mounted" 16m 2>/dev/null
debugfs -w -R 'feature needs_recovery' "$WORK/mounted" 2>/dev/null >&2
dd if="$WORK/mounted" of="$WORK/disk" bs=1M seek=1 conv=notrunc status=none
new_store
platter capture --force "$WORK/disk" bench/disk >/dev/null
rm "$WORK/disk"

# write_blocks BYTES-EACH PLACE: writes the contents, shifted by 777 bytes, to the live disk, and the same in disk order
# to $WORK/written. PLACE is an offset, or "random".
write_blocks() {
	perl -e '
		my ($live, $contents, $copy, $each, $place, $total, $disk) = @ARGV; my $base = 32 << 20;
		open my $to, "+<:raw", $live or die; open my $from, "<:raw", $contents or die; open my $also, ">:raw", $copy or die;
		srand 1; my $at = $place; my (%seen, %written);
		for (my $done = 0; $done < $total; $done += $each) {
			if ($place eq "random") { do { $at = $base + int(rand(($disk - $base) / $each)) * $each } while $seen{$at}++ }
			sysseek $from, 777 + $done, 0; sysread $from, my $bytes, $each;
			sysseek $to, $at, 0; syswrite($to, $bytes) == $each or die; $written{$at} = $bytes;
			$at += $each if $place ne "random";
		}
		syswrite $also, $written{$_} for sort { $a <=> $b } keys %written;' "$TREE/bench/disk/live.raw" "$WORK/contents" "$WORK/written" "$1" "$2" "$WRITTEN_BYTES" $((DISK_BYTES / 4096 * 4096))
	sync "$TREE/bench/disk/live.raw"
}
publish() { platter_json publish bench/disk; }

measure() { # WHAT TIME-LIMIT BYTES-EACH PLACE
	local what=$1 limit=$2 each=$3 place=$4 _ before after compressed pages stored extents version base
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
		version=$(jq -r .version "$WORK/output") base=$(jq -r .base "$WORK/output")
		pages=$("$EXAMPLE" pages "$STORE" "$version" "$base" | awk '$1 == "pages" { print $5 }')
		platter forget "$version" >/dev/null
		echo $((after - before)) >>"$WORK/times/stored"
		# The stored blocks are known afterwards, so the next run writes other bytes.
		tail -c +100000001 "$WORK/contents" >"$WORK/next" && mv "$WORK/next" "$WORK/contents"
	done
	stored=$(tail -n 1 "$WORK/times/stored")
	compressed=$(split -b 128K --filter='zstd -3 -q -c' "$WORK/written" | wc -c)
	extents=$((WRITTEN_BYTES / each))
	result "seconds" "$(median publish)" "at most $limit ($(spread publish))"
	result "bytes stored in the last run" "$stored" "$pages of them pages of the recipe"
	result "bytes of zstd -3, in pieces of 128 KiB" "$compressed" "$(zstd -3 -q -c "$WORK/written" | wc -c) in one"
	[ "$place" = random ] ||
		result "bytes stored, as a ratio to the pieces" "$(calculate "$stored / $compressed")" "at most 1.03"
	[ "$place" != random ] ||
		result "bytes beside pages and pieces, for each write" "$(calculate "($stored - $pages - $compressed) / $extents")" "at most 64"
}
example platter-jobs measure
measure "100 MB in one place" 2 1000000 9000001536
measure "100 MB of random writes of 4 KiB" 5 4096 random
result "data on the disk" "$(calculate "$length / 1e6") MB"
