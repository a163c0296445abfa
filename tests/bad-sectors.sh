#!/usr/bin/env bash
# tests/bad-sectors.sh: a disk with unreadable sectors, made with nbdkit and nbdfuse. A capture fails and names the
# sector; with --skip-bad it lists the lost parts of each file, and everything else is captured.
. "$(dirname "$0")/lib.sh"

need_root "loop devices" || { finish; exit 0; }
for program in nbdkit nbdfuse; do
	command -v "$program" >/dev/null || { skip "$program is not installed"; finish; exit 0; }
done
nbdkit='' nbdfuse=''
suite_cleanup() {
	umount "$WORK/fuse" 2>/dev/null
	[ -z "$nbdfuse" ] || kill "$nbdfuse" 2>/dev/null
	[ -z "$nbdkit" ] || kill "$nbdkit" 2>/dev/null
}

file_tree "$WORK/tree" 8 bad
truncate -s 32M "$WORK/disk"
mke2fs -q -t ext4 -b 4096 -d "$WORK/tree" "$WORK/disk"
# Two consecutive blocks of a file, and one of another file. block_of FILE NUMBER: the position of that block of a file,
# which is contiguous
block_of() { debugfs -R "blocks /$1" "$WORK/disk" 2>/dev/null | tr ' ' '\n' | grep . | sed -n "$(($2 + 1))p"; }
first=$(($(block_of random-1.bin 5) * 4096))
second=$(($(block_of random-3.bin 9) * 4096))
{
	echo "# map of bad sectors in the format of ddrescue"
	echo "0x0 +"
	printf '0x%x 0x%x %s\n' 0 "$first" + "$first" 8192 - $((first + 8192)) $((second - first - 8192)) + \
		"$second" 4096 - $((second + 4096)) $(((32 << 20) - second - 4096)) +
} >"$WORK/map"
# serve_bad DISK MAP: DISK as $DEVICE, a loop device whose bad sectors are those of MAP
serve_bad() {
	mkdir -p "$WORK/fuse"
	nbdkit --foreground --readonly --unix "$WORK/nbd" --filter=ddrescue file "$1" ddrescue-mapfile="$2" >"$WORK/nbdkit" 2>&1 &
	nbdkit=$!
	until [ -S "$WORK/nbd" ]; do sleep 0.05; done
	nbdfuse --readonly "$WORK/fuse/disk" "nbd+unix:///?socket=$WORK/nbd" >"$WORK/nbdfuse" 2>&1 &
	nbdfuse=$!
	until [ -f "$WORK/fuse/disk" ]; do sleep 0.05; done
	attach "$WORK/fuse/disk" --read-only
}
# end_bad: ends the processes of serve_bad
end_bad() {
	detach_loop "$DEVICE"
	umount "$WORK/fuse"
	wait "$nbdfuse"
	kill "$nbdkit"
	wait "$nbdkit"
	nbdkit='' nbdfuse=''
	rm -f "$WORK/nbd"
}
serve_bad "$WORK/disk" "$WORK/map"
check "init" platter init
check_exit "$EXIT_FAILED" "a disk with bad sectors is not captured" platter capture "$DEVICE" bad/disk
check_said "the sector is named" "the sector at offset $first"
check_said "and --skip-bad is suggested" '--skip-bad'
check_exit "$EXIT_MISSING" "and nothing is published" platter show bad/disk
check "with --skip-bad it is captured" platter_json capture "$DEVICE" bad/disk --skip-bad --audit
cp "$LOG" "$WORK/report"
listed=$(jq -r '.unreadable[] | "\(.offset) \(.length) \(.file)"' "$WORK/report")
wanted="$first 8192 0:/random-1.bin
$second 4096 0:/random-3.bin"
echo "$listed" >"$LOG"
if [ "$listed" = "$wanted" ]; then ok "unreadable ranges are listed by file"; else not_ok "unreadable ranges are listed by file"; fi
check "and recorded in the version" sh -c "'$PLATTER' --store '$STORE' --json show bad/disk | grep -q random-3.bin"
check "show prints them" sh -c "'$PLATTER' --store '$STORE' show bad/disk | grep -q 'random-1.bin'"
head -c $((32 << 20)) /dev/zero | tr '\0' '\252' >"$WORK/copy"
check "install" platter install bad/disk "$WORK/copy" --yes --force not-a-disk
check "the copy is a sound file system" e2fsck -fn "$WORK/copy"
cp -a "$WORK/tree" "$WORK/expected"
dd if=/dev/zero of="$WORK/expected/random-1.bin" bs=4096 seek=5 count=2 conv=notrunc status=none
dd if=/dev/zero of="$WORK/expected/random-3.bin" bs=4096 seek=9 count=1 conv=notrunc status=none
mkdir "$WORK/out"
debugfs -R "rdump / $WORK/out" "$WORK/copy" >/dev/null 2>&1
rmdir "$WORK/out/lost+found"
check "only those sectors are lost, and they are zeros" diff -r "$WORK/expected" "$WORK/out"
end_bad

# The first block of each of 150 files with long names: more than fits in a record.
name=$(printf '字%.0s' {1..80})
mkdir -p "$WORK/long/$name/$name"
for number in {1..150}; do head -c 8192 /dev/urandom >"$WORK/long/$name/$name/$number"; done
truncate -s 16M "$WORK/long.disk"
mke2fs -q -t ext4 -b 4096 -d "$WORK/long" "$WORK/long.disk"
for number in {1..150}; do echo "blocks /$name/$name/$number"; done >"$WORK/commands"
debugfs -f "$WORK/commands" "$WORK/long.disk" 2>/dev/null | awk '/^[0-9]/ { print $1 }' | sort -n >"$WORK/blocks"
{
	echo "0x0 +"
	awk '{ printf "0x%x 0x%x +\n0x%x 0x1000 -\n", at, $1 * 4096 - at, $1 * 4096; at = ($1 + 1) * 4096 }
		END { printf "0x%x 0x%x +\n", at, 16 * 1024 * 1024 - at }' "$WORK/blocks"
} >"$WORK/map"
serve_bad "$WORK/long.disk" "$WORK/map"
check "capture with more bad files than fit in a record" platter_json capture "$DEVICE" bad/long --skip-bad
cp "$LOG" "$WORK/report"
check "each range is listed or counted" jq -e '(.unreadable | length) + .unreadable_omitted.ranges == 150' "$WORK/report"
check "and so is each byte" jq -e '([.unreadable[].length] | add) + .unreadable_omitted.bytes == 150 * 4096' "$WORK/report"
check "listed ranges name their file" jq -e '[.unreadable[] | .file | startswith("0:/字")] | all' "$WORK/report"
check "show prints how many more there are" sh -c "'$PLATTER' --store '$STORE' show bad/long | grep -q 'more places could not be read'"
end_bad
finish
