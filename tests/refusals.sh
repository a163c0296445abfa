#!/usr/bin/env bash
# tests/refusals.sh: targets and sources that must not be touched. Each is refused with exit code 5 and the reason, and
# not one byte of a refused target changes.
. "$(dirname "$0")/lib.sh"

need_root "loop devices" || { finish; exit 0; }
swap='' holder=''
suite_cleanup() {
	[ -z "$swap" ] || swapoff "$swap" 2>/dev/null
	[ -z "$holder" ] || kill "$holder" 2>/dev/null
}
file_tree "$WORK/tree" 8 refusals
ext4_image "$WORK/disk" 48 "$WORK/tree"
truncate -s 64M "$WORK/table"
printf 'label: gpt\nstart=2048, size=96000\n' | sfdisk -q "$WORK/table"
dd if="$WORK/disk" of="$WORK/table" bs=1M seek=1 count=46 conv=notrunc,sparse status=none
platter init >/dev/null
platter capture "$WORK/disk" image >/dev/null

# refused NAME REASON TARGET: an install on it; what the target holds must not change
refused() {
	local name=$1 reason=$2 target=$3 before='' after=''
	if [ -b "$target" ] || [ -f "$target" ]; then before=$(sha256sum <"$target"); fi
	check_exit "$EXIT_REFUSED" "$name is refused" timeout 60 "$PLATTER" --store "$STORE" --quiet install image "$target" --yes
	check_said "$name: the reason is told" "$reason"
	if [ -b "$target" ] || [ -f "$target" ]; then after=$(sha256sum <"$target"); fi
	if [ "$before" = "$after" ]; then ok "$name is untouched"; else not_ok "$name was written to"; fi
}

truncate -s 40M "$WORK/short"
refused "a file system's too small device" 'small|bytes' "$(attach "$WORK/short" && echo "$DEVICE")"

mkfifo "$WORK/pipe"
refused "a pipe" 'neither|regular|block' "$WORK/pipe"
refused "a directory" 'neither|regular|block|directory' "$WORK/tree"
refused "a character device" 'neither|regular|block' /dev/null

# A disk that is mounted, whole or by a partition; and a file behind such a disk.
truncate -s 64M "$WORK/mounted"
mke2fs -q -t ext4 "$WORK/mounted"
attach "$WORK/mounted"
mounted=$DEVICE
mount "$mounted" "$MNT"
sync -f "$MNT"
check_exit "$EXIT_REFUSED" "a mounted device is refused" platter install image "$mounted" --yes
check_said "a mounted device: the reason is told" 'mounted'
check_exit "$EXIT_REFUSED" "the file behind a mounted device is refused" platter install image "$WORK/mounted" --yes
check_said "the file behind a mounted device: the reason is told" 'mounted|in use|loop'
check_exit "$EXIT_REFUSED" "capture of a file system mounted for writing is refused" platter capture "$mounted" x
check_said "capture of a mounted one: the reason is told" 'mounted'
umount "$MNT"
check "the once mounted file system is sound" e2fsck -fn "$WORK/mounted"
check "no longer mounted, it is captured" platter capture "$mounted" was/mounted
detach_loop "$mounted"

# A partition of the disk is mounted. Kernels without a parser of partition tables are told by partx.
attach "$WORK/table" --partscan
table=$DEVICE
[ -b "${table}p1" ] || partx -a "$table" >/dev/null 2>&1 || true
if [ -b "${table}p1" ]; then
	mke2fs -q -t ext4 "${table}p1"
	mount "${table}p1" "$MNT"
	check_exit "$EXIT_REFUSED" "a disk with a mounted partition is refused" platter install image "$table" --yes
	check_said "a disk with a mounted partition: the reason is told" 'mounted'
	umount "$MNT"
else
	skip "a mounted partition: this kernel shows no partitions of loop devices"
fi
detach_loop "$table"

# Swap, and a device that somebody holds open for himself alone.
truncate -s 64M "$WORK/swap"
mkswap -q "$WORK/swap" >/dev/null
attach "$WORK/swap"
swap=$DEVICE
if swapon "$swap" 2>/dev/null; then
	check_exit "$EXIT_REFUSED" "a device used as swap is refused" platter install image "$swap" --yes
	check_said "a device used as swap: the reason is told" 'swap|in use'
	swapoff "$swap"
else
	skip "swap: this kernel has none"
fi
detach_loop "$swap"
swap=

truncate -s 64M "$WORK/held"
attach "$WORK/held"
held=$DEVICE
perl -e 'use Fcntl; sysopen my $h, $ARGV[0], O_RDWR | O_EXCL or die "$!"; $| = 1; print "held\n"; sleep 600' "$held" >"$WORK/holding" &
holder=$!
until grep -q held "$WORK/holding"; do sleep 0.05; done
check_exit "$EXIT_REFUSED" "a device opened exclusively is refused" platter install image "$held" --yes
check_said "a device opened exclusively: the reason is told" 'in use|busy'
kill "$holder"
wait "$holder" 2>/dev/null || true
holder=''
check "released, it is written to" platter install image "$held" --yes
detach_loop "$held"

# The store's own ground.
check_exit "$EXIT_REFUSED" "a file inside the store is refused" platter install image "$STORE/target" --yes
check_said "a file inside the store: the reason is told" 'store'
truncate -s 256M "$WORK/ground"
mke2fs -q -t ext4 "$WORK/ground"
attach "$WORK/ground"
ground=$DEVICE
mount "$ground" "$MNT"
cp -a "$STORE" "$MNT/store"
check_exit "$EXIT_REFUSED" "the device that holds the store is refused" "$PLATTER" --store "$MNT/store" --quiet install image "$ground" --yes
check_said "the device that holds the store: the reason is told" 'store|mounted'
umount "$MNT"

# A file that is too small is made larger; a device cannot be.
truncate -s 1M "$WORK/small-file"
check "a short file grows" platter install image "$WORK/small-file" --yes
check "a new file is made" platter install image "$WORK/new-file"
check "and is a sound file system" e2fsck -fn "$WORK/new-file"
check "the store is sound" platter check --read-data
finish
