#!/usr/bin/env bash
# tests/own-files.sh: filesystems read their own files, directories and links without asking whether a part was ever written, and
# a journal may be in a file with a name. Disks where such a part is marked as never written are captured, and their copy must
# show the same as the disk, by the filesystem's own driver.
. "$(dirname "$0")/lib.sh"

need_root "mounting filesystems" || { finish; exit 0; }
DISK=$WORK/disk
COPY=$WORK/copy
check "init" platter init

# captured NAME: captures the disk and exports it. The disk is mounted afterwards, because a mount may change it.
captured() {
	rm -f "$COPY"
	check "$1: capture" platter capture "$DISK" "lab/$1"
	check "$1: export" platter export "lab/$1" "$COPY"
}
# shown FILE OPTIONS COMMAND...: what a command prints in a copy of that file, mounted
shown() {
	local file=$1 options=$2
	shift 2
	cp --sparse=always "$file" "$WORK/mounted"
	mount -o "loop,$options" "$WORK/mounted" "$MNT" && (cd "$MNT" && "$@")
	umount "$MNT"
}
# same NAME OPTIONS COMMAND...: the copy shows the same as the disk, and something
same() {
	local name=$1 seen
	shift
	seen=$(shown "$DISK" "$@" 2>&1)
	check "$name: the disk shows it" [ -n "$seen" ]
	check_equal "$name: the copy shows the same" "$(shown "$COPY" "$@" 2>&1)" "$seen"
}
check_equal() {
	printf 'found: %s\nwanted: %s\n' "$2" "$3" >"$LOG"
	if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1"; fi
}

# mark_unwritten DISK INODE: sets the mark in all extents of an inode of ext4 without checksums
mark_unwritten() {
	local place
	place=$(debugfs -R "imap <$2>" "$1" 2>/dev/null | sed -nE 's/.*block ([0-9]+), offset (0x[0-9a-fA-F]+).*/\1 \2/p')
	python3 - "$1" "$place" <<'MARK'
import sys
block, offset = sys.argv[2].split()
at = int(block) * 1024 + int(offset, 16)
with open(sys.argv[1], "r+b") as disk:
    disk.seek(at)
    inode = bytearray(disk.read(128))
    for extent in range(int.from_bytes(inode[42:44], "little")):
        inode[52 + 12 * extent + 5] |= 0x80
    disk.seek(at)
    disk.write(inode)
MARK
}
new_ext4() { # FEATURE
	rm -f "$DISK"
	truncate -s 16M "$DISK"
	mke2fs -q -t ext4 -b 1024 -I 256 -O "$1,^metadata_csum" "$DISK"
}

# ------------------------------------------------------------------------------- ext4

new_ext4 ea_inode
mount -o loop "$DISK" "$MNT"
touch "$MNT/file"
setfattr -n user.long -v "0x$(random 5000 value | od -An -tx1 | tr -d ' \n')" "$MNT/file"
umount "$MNT"
for inode in 12 13 14; do
	[[ $(debugfs -R "stat <$inode>" "$DISK" 2>/dev/null) != *"Flags: 0x2"* ]] || mark_unwritten "$DISK" "$inode"
done
check "an attribute's value: it is marked" eval 'for inode in 12 13 14; do debugfs -R "ex <$inode>" "$DISK" 2>/dev/null; done | grep Uninit'
check "an attribute's value: e2fsck finds nothing" e2fsck -fn "$DISK"
captured attribute
same "an attribute's value" ro getfattr -e hex -n user.long file

new_ext4 orphan_file
orphans=$(dumpe2fs -h "$DISK" 2>/dev/null | sed -nE 's/^Orphan file inode: *//p')
mark_unwritten "$DISK" "$orphans"
check "the orphan file: e2fsck finds nothing" e2fsck -fn "$DISK"
captured orphans
same "the orphan file" rw ls -la

rm -f "$DISK"
truncate -s 16M "$DISK"
mkdir "$WORK/tree"
random 1600000 named >"$WORK/tree/named"
mke2fs -q -t ext3 -b 1024 -J size=1 -d "$WORK/tree" "$DISK"
inode=$(debugfs -R 'stat /named' "$DISK" 2>/dev/null | sed -nE 's/^Inode: ([0-9]+).*/\1/p')
first=$(debugfs -R 'bmap /named 0' "$DISK" 2>/dev/null)
journal=$(debugfs -R 'bmap <8> 0' "$DISK" 2>/dev/null)
dd if="$DISK" of="$DISK" bs=1024 skip="$journal" seek="$first" count=1 conv=notrunc status=none
printf '\0\0\5\170' | dd of="$DISK" bs=1 seek=$((first * 1024 + 16)) conv=notrunc status=none # 1,400 blocks
echo "$inode" | awk '{ printf "%c", $1 }' | dd of="$DISK" bs=1 seek=$((1024 + 0xe0)) conv=notrunc status=none
captured journal
check "a journal in a file: capture again" "$PLATTER" --store "$STORE" capture "$DISK" lab/journal
check_said "(it says that it is kept)" "journal is stored in full: it is in a file"
same "a journal in a file" ro,noload sha256sum named

# -------------------------------------------------------------------------------- XFS

rm -f "$DISK"
truncate -s 320M "$DISK"
mkfs.xfs -q "$DISK"
mount -o loop "$DISK" "$MNT"
mkdir "$MNT/directory"
for number in $(seq 60); do touch "$MNT/directory/a-file-with-a-long-name-$number"; done
ln -s "$(printf 'x%.0s' $(seq 900))" "$MNT/link"
inodes=$(stat -c %i "$MNT/directory" "$MNT/link")
umount "$MNT"
for inode in $inodes; do xfs_db -x -c "inode $inode" -c 'write -d u3.bmx[0].extentflag 1' "$DISK" >/dev/null; done
captured xfs
same "a directory of XFS" ro,nouuid ls directory
same "a link of XFS" ro,nouuid readlink link

finish
