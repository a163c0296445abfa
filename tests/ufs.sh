#!/usr/bin/env bash
# tests/ufs.sh
#
# UFS1 and UFS2 of several layouts, made by makefs: captured from a loop device, and installed on a loop device full of other bytes.
# GRUB must read every file of the copy, at most 3 % more than is in use may be captured, and nothing of the free space, which has
# old contents, may be in the store. The same for two of them in a slice of an MBR with a disklabel.
. "$(dirname "$0")/lib.sh"

need_root "attaching loop devices" || { finish; exit 0; }
for program in makefs grub-fstest sfdisk; do
	type -P "$program" >/dev/null || { skip "$program is not installed"; finish; exit 0; }
done

readonly MARKER='PLATTER DELETED CONTENTS.'
readonly DISK=$WORK/disk TARGET=$WORK/target

# take NAME: captures the disk from a loop device, and installs it on another one over other bytes
take() {
	local failed=0
	attach "$DISK" --read-only
	platter_json capture "$DEVICE" "$1" >"$WORK/report" || failed=1
	detach_loop "$DEVICE"
	[ "$failed" = 0 ] || return 1
	rm -f "$TARGET"
	head -c "$(stat -c %s "$DISK")" /dev/zero | tr '\0' '\252' >"$TARGET"
	attach "$TARGET"
	platter install "$1" "$DEVICE" --yes --verify
}

# grub_reads DEVICE: GRUB reads every file, as it was put there
grub_reads() {
	local file
	(cd "$WORK/tree" && find . -type f -printf '%P\n') | while read -r file; do
		rm -f "$WORK/read"
		grub-fstest "$1" cp "(loop0)/$file" "$WORK/read" || return 1
		cmp "$WORK/tree/$file" "$WORK/read" || return 1
	done
}

little() {
	local captured used
	captured=$(jq .allocated_bytes "$WORK/report")
	used=$(python3 "$TESTS/ufs_space.py" used "$DISK")
	echo "captured $captured bytes, in use $used"
	[ "$captured" -le $((used + used * 3 / 100)) ]
}

nothing_deleted() {
	grep -qaF "$MARKER" "$DISK" || { echo "the disk has no deleted contents"; return 1; }
	rm -f "$WORK/exported"
	platter export "$1" "$WORK/exported" && ! grep -qaF "$MARKER" "$WORK/exported"
}

# round NAME MIB MAKEFS-OPTIONS [CHANGE]: CHANGE is a command of ufs_space.py
round() {
	local name=$1
	rm -f "$DISK"
	check "$name: made by makefs" makefs -t ffs -B le -s "${2}m" -o "$3" "$DISK" "$WORK/tree"
	[ -z "${4:-}" ] || python3 "$TESTS/ufs_space.py" "$4" "$DISK"
	python3 "$TESTS/ufs_space.py" mark "$DISK" "$MARKER"
	check "$name: GRUB reads the files" grub_reads "$DISK"
	check "$name: capture and install" take "$name"
	check "$name: read by its own maps" jq -e '.filesystems[0] | .kind == "ufs" and (.notes // [] | length == 0)' "$WORK/report"
	check "$name: captured what is in use" little
	echo "# $name: $(tail -n 1 "$LOG")"
	check "$name: GRUB reads the files of the copy" grub_reads "$DEVICE"
	detach_loop "$DEVICE"
	check "$name: nothing that was deleted" nothing_deleted "$name"
}

# make_slice: a slice from sector 8192: UFS1 around the label, swap, and UFS2
make_slice() {
	local row version sector fragment block
	rm -f "$DISK"
	truncate -s 160M "$DISK"
	sfdisk -q --no-reread --no-tell-kernel "$DISK" <<-'END' || return 1
		label: dos
		start=2048, size=4096, type=83
		start=8192, size=300000, type=a5
	END
	for row in 1,8192,1024,8192 2,155648,2048,16384; do
		IFS=, read -r version sector fragment block <<<"$row"
		makefs -t ffs -B le -s 64m -o "version=$version,bsize=$block,fsize=$fragment" "$WORK/ufs" "$WORK/tree" || return 1
		python3 "$TESTS/ufs_space.py" mark "$WORK/ufs" "$MARKER"
		dd if="$WORK/ufs" of="$DISK" bs=512 seek="$sector" conv=notrunc status=none
		rm "$WORK/ufs"
	done
	python3 "$TESTS/disklabel.py" "$DISK" 8192 7,0,131072 1,131072,16384 0,0,300000 7,147456,131072
}

# slice_reads DEVICE: GRUB finds the partitions by the label, and reads the files of both filesystems
slice_reads() {
	local sector
	grub-fstest "$1" ls | tee "$WORK/found"
	grep -qF '(loop0,msdos2,bsd1)' "$WORK/found" && grep -qF '(loop0,msdos2,bsd4)' "$WORK/found" || return 1
	for sector in 8192 155648; do
		dd if="$1" of="$WORK/ufs" bs=512 skip="$sector" count=131072 status=none
		grub_reads "$WORK/ufs" || return 1
	done
}

slice() {
	check "slice: made by sfdisk and makefs" make_slice
	check "slice: GRUB reads the files of both partitions" slice_reads "$DISK"
	check "slice: capture and install" take slice
	check "slice: both are read by their own maps" jq -e '[.filesystems[] | select(.kind == "ufs") | .notes // [] | length] == [0, 0]' "$WORK/report"
	check "slice: GRUB reads the files of the copy" slice_reads "$DEVICE"
	detach_loop "$DEVICE"
	check "slice: nothing that was deleted" nothing_deleted slice
}

file_tree "$WORK/tree" 12 ufs
# Two levels of pointers, with small blocks.
random 9000000 ufs-large >"$WORK/tree/large"
check "init" platter init
round ufs1 64 version=1,bsize=8192,fsize=1024
round ufs1-small-blocks 48 version=1,bsize=4096,fsize=512,density=2048
round ufs2 64 version=2,bsize=16384,fsize=2048
round ufs2-groups 300 version=2,bsize=32768,fsize=4096
round ufs2-superblock-at-64k 64 version=2,bsize=65536,fsize=8192 at64k
slice
finish
