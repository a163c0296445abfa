#!/usr/bin/env bash
# bench/year.sh [SVG]
#
# A simulated year of a store: images of ext4 filesystems with files of this machine's /usr are captured in turn. Between two
# captures of an image, 5 % of its bytes are replaced by other files. At the end of each month, a policy forgets versions, and
# garbage is collected. Then the store is compared with a new one that pulls only the versions that are kept, and at the end also with
# one that captures their disks again. The last version of each image is compared with its disk.
#
# The clock of Platter's processes is moved by a library of a few lines that is put in front of libc (LD_PRELOAD).
#
#   YEAR_IMAGES    number of images (20)
#   YEAR_VERSIONS  number of captures in the year (300)
#   YEAR_MB        bytes of files in an image, in MB (40)
#   YEAR_POLICY    options of `platter forget` (--keep-last 3 --keep-weekly 4 --keep-monthly 6)
#   YEAR_COMPACT   packs of which less than this percentage is needed are rewritten (90)
#   YEAR_SEED      selects the files (1)
# The growth is drawn to the file SVG.
. "$(dirname "$0")/lib.sh"
SVG=${1:-}
IMAGES=${YEAR_IMAGES:-20} VERSIONS=${YEAR_VERSIONS:-300} MB=${YEAR_MB:-40} COMPACT=${YEAR_COMPACT:-90} SEED=${YEAR_SEED:-1}
read -ra POLICY <<<"${YEAR_POLICY:---keep-last 3 --keep-weekly 4 --keep-monthly 6}"
RATIO_MAX=1.1 RUNS=1

cat >"$WORK/clock.c" <<'C'
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
	const char *offset = getenv("YEAR_OFFSET");
	int result = syscall(SYS_clock_gettime, clock, now);
	if (result == 0 && clock == CLOCK_REALTIME && offset) now->tv_sec += atol(offset);
	return result;
}
C
cc -shared -fPIC -o "$WORK/clock.so" "$WORK/clock.c"
# platter_on DAY ARGUMENT...
platter_on() {
	local day=$1
	shift
	YEAR_OFFSET=$((day * 86400)) LD_PRELOAD=$WORK/clock.so "$PLATTER" --store "$STORE" --quiet "$@"
}

# The files from which images are made, in an order that the seed decides: path and length.
find /usr/bin /usr/lib /usr/share -xdev -type f -size +3k -size -600k -printf '%s %p\n' | sort -k 2 |
	shuf --random-source=<(openssl enc -aes-128-ctr -pass "pass:$SEED" -nosalt -iter 1 </dev/zero 2>/dev/null) >"$WORK/files"
# take FROM BYTES: prints the files from that line of the list on that have so many bytes together; starts again at its end
take() {
	awk -v from="$1" -v bytes="$2" '
		{ line[NR] = $0 }
		END {
			for (n = 0; bytes > 0; n++) {
				at = (from + n) % NR + 1
				split(line[at], part, " "); bytes -= part[1]
				print substr(line[at], index(line[at], " ") + 1)
			}
		}' "$WORK/files"
}
mount_image() { attach "$1" && mount "$DEVICE" "$MNT"; }
umount_image() { umount "$MNT" && detach "$DEVICE"; }
# add DIRECTORY FROM BYTES: copies files into the mounted image, with their paths
add() {
	mkdir -p "$MNT/$1"
	take "$2" "$3" | tr '\n' '\0' | xargs -0 cp --parents --target-directory "$MNT/$1"
}
# replace SEED FROM BYTES: removes files with about that many bytes, and adds others
replace() {
	find "$MNT" -xdev -type f -printf '%p %s\n' | sort |
		shuf --random-source=<(openssl enc -aes-128-ctr -pass "pass:$1" -nosalt -iter 1 </dev/zero 2>/dev/null) |
		awk -v bytes="$3" 'bytes > 0 { bytes -= $NF; sub(/ [0-9]+$/, ""); print }' | tr '\n' '\0' | xargs -0 rm
	add "new-$1" "$2" "$3"
}
bytes_of() { du -sb --exclude=reserve "$1" | cut -f 1; }
mb() { awk -v bytes="$1" 'BEGIN { printf "%.1f", bytes / 1e6 }'; }

# Three quarters of each image are the same files.
size=$((MB * 1000000))
for image in $(seq "$IMAGES"); do
	disk=$WORK/disk-$image
	truncate -s $((MB * 3 / 2 + 16))M "$disk"
	mke2fs -q -t ext4 -L "image$image" "$disk"
	mount_image "$disk"
	add common 0 $((size * 3 / 4))
	add own $((10000 + image * 97)) $((size / 4))
	umount_image
done

new_store
start=$SECONDS captured=0 missed=""
: >"$WORK/months"
printf '%d images, %d versions, %s\n\n' "$IMAGES" "$VERSIONS" "${POLICY[*]}"
printf '%5s %9s %6s %10s %10s %10s %6s\n' month versions kept store,MB fresh,MB disks,MB ratio
for month in $(seq 12); do
	while [ "$captured" -lt $((VERSIONS * month / 12)) ]; do
		image=$((captured % IMAGES + 1))
		disk=$WORK/disk-$image
		if [ "$captured" -ge "$IMAGES" ]; then
			mount_image "$disk"
			replace "$SEED-$captured" $((20000 + captured * 131)) $((size / 20))
			umount_image
		fi
		platter_on $((captured * 365 / VERSIONS)) capture "$disk" "year/image-$image" >/dev/null
		captured=$((captured + 1))
	done
	day=$((month * 365 / 12))
	platter_on "$day" forget year --below "${POLICY[@]}" >"$WORK/forgotten" || { cat "$WORK/forgotten" >&2; exit 1; }
	before=$(bytes_of "$STORE")
	platter_on "$day" gc --keep-trash 0 --compact "$COMPACT" --yes >"$WORK/collected"
	rm -rf "$WORK/fresh"
	"$PLATTER" --store "$WORK/fresh" --quiet init >/dev/null
	mapfile -t names < <(platter_json images | jq -r .image)
	"$PLATTER" --store "$WORK/fresh" --quiet pull "${names[@]}" "$STORE" >"$WORK/output"
	kept=0 disks=0
	for name in "${names[@]}"; do
		read -r count bytes < <(platter_json history "$name" | jq -s -r '"\(length) \(map(.disk_length) | add)"')
		kept=$((kept + count)) disks=$((disks + bytes))
	done
	store=$(bytes_of "$STORE") fresh=$(bytes_of "$WORK/fresh")
	ratio=$(calculate "$store / $fresh")
	printf '%5d %9d %6d %10s %10s %10s %6s\n' "$month" "$captured" "$kept" "$(mb "$store")" "$(mb "$fresh")" "$(mb "$disks")" "$ratio"
	echo "$month $before $store $fresh $captured $kept" >>"$WORK/months"
	awk -v ratio="$ratio" -v max="$RATIO_MAX" 'BEGIN { exit ratio > max }' || missed="$missed $month"
done

# The store in each month, before and after the collection, and the new store.
if [ -n "$SVG" ]; then
	awk '
		{ before[NR] = $2 / 1e6; store[NR] = $3 / 1e6; fresh[NR] = $4 / 1e6; if ($2 / 1e6 > top) top = $2 / 1e6 }
		function x(month) { return 60 + (month - 1) * 44 }
		function y(mb) { return 250 - mb / top * 220 }
		function line(values, color, text, at,   n, points) {
			for (n = 1; n <= NR; n++) points = points sprintf(" %.0f,%.1f", x(n), y(values[n]))
			printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"%s\"/>\n", color, substr(points, 2)
			printf "<text x=\"70\" y=\"%d\" fill=\"%s\">%s</text>\n", at, color, text
		}
		END {
			print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 600 300\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\">"
			print "<title>Growth of a store in a simulated year</title>"
			print "<rect width=\"600\" height=\"300\" fill=\"#ffffff\"/>"
			for (n = 0; n <= 4; n++) {
				printf "<line x1=\"60\" x2=\"544\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n", y(top * n / 4), y(top * n / 4)
				printf "<text x=\"52\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n", y(top * n / 4) + 4, top * n / 4
			}
			for (n = 1; n <= NR; n++) printf "<text x=\"%d\" y=\"268\" text-anchor=\"middle\">%d</text>\n", x(n), n
			print "<text x=\"302\" y=\"288\" text-anchor=\"middle\">month</text>"
			print "<text x=\"14\" y=\"140\" transform=\"rotate(-90 14 140)\" text-anchor=\"middle\">MB</text>"
			line(before, "#d95f02", "store before the collection", 44)
			line(store, "#1b6ca8", "store after it", 60)
			line(fresh, "#2a9d55", "a new store with the same versions", 76)
			print "</svg>"
		}' "$WORK/months" >"$SVG"
fi

# The kept disks once more, captured in the order in which they were.
rm -rf "$WORK/fresh"
"$PLATTER" --store "$WORK/fresh" --quiet init >/dev/null
for name in "${names[@]}"; do
	platter_json history "$name" | jq -r '"\(.time_unix_ms) \(.image)@\(.number)"'
done | sort -n | while read -r _ version; do
	platter export "$version" "$WORK/export" >/dev/null
	"$PLATTER" --store "$WORK/fresh" --quiet capture "$WORK/export" "${version%@*}" >/dev/null
	rm "$WORK/export"
done
again=$(bytes_of "$WORK/fresh")
platter check --read-data >/dev/null
for image in $(seq "$IMAGES"); do
	disk_score=$("$PLATTER" --store "$WORK/fresh" --quiet --json capture "$WORK/disk-$image" "again/image-$image" | jq -r .score)
	[ "$(platter_json show "year/image-$image" | jq -r .score)" = "$disk_score" ] || { echo "year: image $image is not its disk" >&2; exit 1; }
done
heading "A year"
result "store after a year, MB" "$(mb "$store")"
result "a new store that pulls the kept versions" "$(mb "$fresh")" "ratio $ratio, at most $RATIO_MAX"
result "a new store that captures their disks again" "$(mb "$again")" "ratio $(calculate "$store / $again")"
result "largest ratio of a month" "$(awk '{ ratio = $3 / $4; if (ratio > max) max = ratio } END { printf "%.3f", max }' "$WORK/months")"
result "seconds" $((SECONDS - start))

[ -z "$missed" ] || { echo "year: more than $RATIO_MAX in month$missed" >&2; exit 1; }
