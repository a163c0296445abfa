#!/usr/bin/env bash
# tests/diff.sh: `platter diff` against an oracle. Filesystems of several kinds and layouts are filled, captured, changed while
# mounted, and captured again; the output of diff must match `find`, `getfattr` and SHA-256 of both mounted trees, path by
# path. Then single changes that keep size and time, equal contents at other places, other filesystems, different
# partition tables. Needs root to mount.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/file-trees.sh"

need_root "comparing with mounted trees" || { finish; exit; }

# How a file system is made and mounted.
MAKE=(mke2fs -q -F) MOUNT=noatime
# image FILE MIB OPTION...: creates a file system
image() {
	local file=$1 mib=$2
	shift 2
	rm -f "$file"
	truncate -s "${mib}M" "$file"
	"${MAKE[@]}" "$@" "$file"
}
# mounted FILE COMMAND...: runs the command with the file system on $MNT
mounted() {
	local file=$1 rc=0
	shift
	attach "$file"
	mount -o "$MOUNT" "$DEVICE" "$MNT"
	"$@" || rc=$?
	umount "$MNT"
	detach_loop "$DEVICE"
	return "$rc"
}

# facts: for each path on $MNT, a line for each property that diff may report: path, TAB, property, TAB, value
facts() {
	(
		cd "$MNT" || exit
		find . -printf '%p\ttype\t%y\n%p\tmode\t%#m\n%p\towner\t%U:%G\n%p\tmtime\t%T@\n'
		find . ! -type d -printf '%p\tlinks\t%n\n'
		find . -type l -printf '%p\ttarget\t%l\n'
		find . -type f -print0 | xargs -0 -r sha256sum | sed -E 's/^([0-9a-f]+)  (.*)$/\2\tcontents\t\1/'
		find . \( -type b -o -type c \) -print0 | xargs -0 -r stat -c '%n	device	%t:%T'
		find . ! -type l -print0 | xargs -0 -r getfattr -d -m - -e hex 2>/dev/null |
			awk '/^# file: /{p=$3;next} /=/{print (p=="." ? p : "./" p) "\txattrs\t" $0}'
	) | sort
}
# expected A B: the expected output of diff for two lists of facts: change, path, properties
expected() {
	awk -F'\t' '
		function add(list, key, value) { list[key] = list[key] "\n" value }
		FNR == NR { add(a, $1 SUBSEP $2, $3); pa[$1]; next }
		{ add(b, $1 SUBSEP $2, $3); pb[$1] }
		END {
			n = split("type contents target device mode owner mtime xattrs links", things, " ")
			for (p in pa) if (!(p in pb)) print "removed\t" p "\t"
			for (p in pb) if (!(p in pa)) print "added\t" p "\t"
			for (p in pa) if (p in pb) {
				what = ""
				if (a[p, "type"] != b[p, "type"]) what = " type"
				else for (i = 1; i <= n; i++) if (a[p, things[i]] != b[p, things[i]]) what = what " " things[i]
				if (what != "") print "modified\t" p "\t" substr(what, 2)
			}
		}' "$1" "$2" | sed -E 's/\t\.(\/?)/\t\//; s/\t\/\//\t\//' | sort
}
# found NAME A B: the output of diff, in the same form
found() {
	platter_json diff "$1" "$2" >"$WORK/diff.json" || [ $? = "$EXIT_DIFFERENT" ] || return 1
	jq -r 'select(.event == "path") | [.change, .path, (.what | sort_by({type: 0, contents: 1, target: 2, device: 3, mode: 4, owner: 5, mtime: 6,
		xattrs: 7, links: 8}[.]) | join(" "))] | @tsv' "$WORK/diff.json" | sort
}
# same_as_oracle NAME: compares the output with the expected one
same_as_oracle() {
	found "$1@1" "$1@2" >"$WORK/found" || return 1
	expected "$WORK/facts-1" "$WORK/facts-2" >"$WORK/expected"
	diff "$WORK/expected" "$WORK/found" | head -20
	cmp -s "$WORK/expected" "$WORK/found" && [ -s "$WORK/found" ]
}

fill() {
	local n
	mkdir -p "$MNT/etc/deep/er" "$MNT/many" "$MNT/gone/with/all" "$MNT/moves"
	# In the order of files, so that the second part of the file system has room for moved files.
	for n in $(seq "$ENTRIES"); do echo "$n" >"$MNT/many/a-rather-long-name-of-number-$n"; done
	random 3000000 large >"$MNT/large"
	random 200000 overwritten >"$MNT/overwritten"
	random 100000 stays >"$MNT/stays"
	random 100000 moved >"$MNT/moves/contents"
	for n in $(seq 0 2 60); do random 4096 "piece $n" | dd of="$MNT/pieces" bs=4096 seek="$n" conv=notrunc status=none; done
	truncate -s 40M "$MNT/sparse"
	random 5000 sparse | dd of="$MNT/sparse" bs=1M seek=20 conv=notrunc status=none
	printf tiny >"$MNT/tiny"
	head -c 90 /dev/zero | tr '\0' x >"$MNT/small"
	for n in touched chmod chown removed renamed retyped grows shrinks emptied attribute acl same-size; do random 9000 "$n" >"$MNT/etc/$n"; done
	for n in one two; do ln "$MNT/etc/touched" "$MNT/etc/hard-$n"; done
	ln -s short "$MNT/etc/link"
	ln -s "$(printf 'long/%.0s' $(seq 30))" "$MNT/etc/long-link"
	ln -s same "$MNT/etc/same-link"
	mkfifo "$MNT/etc/fifo"
	mknod "$MNT/etc/null" c 1 3
	mknod "$MNT/etc/loop" b 7 0
	setfattr -n user.color -v red "$MNT/etc/attribute"
	setfattr -n user.long -v "$(seq 150 | tr '\n' ' ')" "$MNT/etc/acl"
	printf 'newline' >"$MNT/etc/with space"
	touch "$MNT/gone/with/all/files"
	find "$MNT" -exec touch -h -d '2024-01-01 00:00:01.5' {} +
}
change() {
	random 200000 other | dd of="$MNT/overwritten" conv=notrunc status=none
	# Changes one byte, and restores the time.
	printf X | dd of="$MNT/large" bs=1 seek=1234567 conv=notrunc status=none
	touch -d '2024-01-01 00:00:01.5' "$MNT/large"
	random 4096 new-piece | dd of="$MNT/pieces" bs=4096 seek=40 conv=notrunc status=none
	random 4096 new-piece | dd of="$MNT/sparse" bs=4096 seek=100 conv=notrunc status=none
	printf tinY >"$MNT/tiny"
	echo more >>"$MNT/small"
	touch -d '2024-01-01 00:00:01.6' "$MNT/etc/touched"
	chmod 4755 "$MNT/etc/chmod"
	chown 70000:70001 "$MNT/etc/chown"
	rm "$MNT/etc/removed"
	mv "$MNT/etc/renamed" "$MNT/etc/deep/renamed"
	rm "$MNT/etc/retyped" && mkdir "$MNT/etc/retyped" && echo new >"$MNT/etc/retyped/file"
	random 3000 grown >>"$MNT/etc/grows"
	truncate -s 5000 "$MNT/etc/shrinks"
	: >"$MNT/etc/emptied"
	setfattr -n user.color -v blue "$MNT/etc/attribute"
	setfattr -x user.long "$MNT/etc/acl"
	rm "$MNT/etc/hard-two"
	ln -snf other "$MNT/etc/link"
	ln -snf "$(printf 'lonG/%.0s' $(seq 30))" "$MNT/etc/long-link"
	rm "$MNT/etc/null" && mknod "$MNT/etc/null" c 1 5
	random 9000 same-size-but-other >"$MNT/etc/same-size"
	touch -d '2024-01-01 00:00:01.5' "$MNT/etc/same-size"
	# The same contents in another place, with the same time.
	cp -p "$MNT/moves/contents" "$MNT/moves/copy" && mv "$MNT/moves/copy" "$MNT/moves/contents"
	touch -d '2024-01-01 00:00:01.5' "$MNT/moves"
	rm -r "$MNT/gone"
	mkdir -p "$MNT/new/tree"
	random 5000 new >"$MNT/new/tree/file"
	rm "$MNT/many/a-rather-long-name-of-number-7"
	echo changed >"$MNT/many/a-rather-long-name-of-number-42"
	touch "$MNT/many/a-rather-long-name-of-number-new"
}
facts_of() { facts >"$WORK/facts-$1"; }

# layout NAME ENTRIES OPTION...: one round of all changes
layout() {
	local name=$1
	ENTRIES=$2
	shift 2
	image "$WORK/disk" "${MIB:-192}" "$@"
	mounted "$WORK/disk" fill
	platter capture "$WORK/disk" "$name" >/dev/null
	mounted "$WORK/disk" facts_of 1
	mounted "$WORK/disk" change
	platter capture "$WORK/disk" "$name" >/dev/null
	mounted "$WORK/disk" facts_of 2
	check "$name: diff reports exactly the changes" same_as_oracle "$name"
	check "$name: contents that moved are equal" sh -c "! grep -q moves/contents '$WORK/found'"
	check_exit 0 "$name: a version compared with itself" platter diff "$name@2" "$name"
}

platter init
layout lab/ext4 10000 -t ext4 -b 4096 -N 16384
layout lab/ext2 300 -t ext2 -b 1024 -I 128
layout lab/ext3 300 -t ext3 -b 2048
layout lab/inline 300 -t ext4 -O inline_data -I 512
layout lab/old-tree 300 -t ext4 -O ^extents,^64bit,^dir_index,^metadata_csum
layout lab/wide 300 -t ext4 -O 64bit,large_dir,ea_inode,bigalloc
MAKE=(mkfs.xfs -q -f)
MIB=320 layout lab/xfs 3000
MAKE=(mkfs.btrfs -q -f)
layout lab/btrfs 3000
MOUNT=noatime,compress-force=zstd
layout lab/packed 3000
MAKE=(mke2fs -q -F) MOUNT=noatime

# Filesystems of Windows, which have no owners and modes: by their drivers, or from trees that mtools copies.
fill_plain() { # DIR
	local n
	mkdir -p "$1/etc/deep" "$1/many" "$1/gone/with/all"
	for n in $(seq 300); do echo "$n" >"$1/many/a-rather-long-name-of-number-$n"; done
	for n in touched removed renamed grows shrinks same-size stays; do random 9000 "$n" >"$1/etc/$n"; done
	random 300000 large >"$1/large"
	printf tiny >"$1/tiny"
	: >"$1/gone/with/all/files"
	find "$1" -type f -exec touch -d '2024-01-01 00:00:02' {} +
}
change_plain() { # DIR
	printf X | dd of="$1/large" bs=1 seek=123456 conv=notrunc status=none
	printf tinY >"$1/tiny"
	random 9000 same-size-but-other | dd of="$1/etc/same-size" conv=notrunc status=none
	touch -d '2024-01-01 00:00:02' "$1/large" "$1/etc/same-size"
	touch -d '2024-01-01 00:00:04' "$1/etc/touched"
	rm "$1/etc/removed" && mv "$1/etc/renamed" "$1/etc/deep/renamed"
	random 90000 grown >>"$1/etc/grows"
	truncate -s 5000 "$1/etc/shrinks"
	rm -r "$1/gone"
	mkdir -p "$1/new/tree" && random 5000 new >"$1/new/tree/file"
	rm "$1/many/a-rather-long-name-of-number-7"
	touch -d '2024-05-06 07:08:10' "$1/tiny" "$1/etc/grows" "$1/etc/shrinks" "$1/new/tree/file"
}
# driven DRIVER COMMAND...: runs the command with the filesystem on $MNT
driven() {
	local rc=0 driver=$1
	shift
	attach "$WORK/disk"
	"$driver" "$DEVICE" "$MNT"
	"$@" || rc=$?
	umount "$MNT"
	sync "$DEVICE"
	# The program of the mount may still hold the device.
	until_true 20 losetup -d "$DEVICE" && rm -f "$WORK/loops/${DEVICE##*/}"
	return "$rc"
}
# plain_facts: of files and directories on $MNT what these filesystems have; mtools sets no times of directories
plain_facts() {
	(
		cd "$MNT" || exit
		find . -mindepth 1 -printf '%p\ttype\t%y\n'
		find . -type f -printf '%p\tmtime\t%T@\n'
		find . -type f -exec sha256sum {} + | sed -E 's/^([0-9a-f]+)  (.*)$/\2\tcontents\t\1/'
	) | sort >"$WORK/facts-$1"
}
plain_as_oracle() {
	# A directory of which nothing but its time differs.
	found "$1@1" "$1@2" | awk -F'\t' '$1 != "modified" || $3 != "mtime" || $2 ~ /touched/' >"$WORK/found"
	expected "$WORK/facts-1" "$WORK/facts-2" >"$WORK/expected"
	diff "$WORK/expected" "$WORK/found" && [ "$(wc -l <"$WORK/found")" -ge 15 ]
}
plain() { # NAME STEP...: fills, captures, changes and captures with these commands
	local name=$1 step
	for step in 1 2; do
		"$2" "$step"
		platter capture "$WORK/disk" "$name" >/dev/null
	done
	check "$name: diff reports exactly the changes" plain_as_oracle "$name"
	check_exit 0 "$name: a version compared with itself" platter diff "$name@2" "$name"
}
with_ntfs() { with_driver ntfs-3g "$1" mkntfs -Q -F -q; }
with_exfat() { with_driver mount.exfat-fuse "$1" mkfs.exfat; }
with_driver() { # DRIVER STEP MKFS...
	local driver=$1 step=$2
	shift 2
	if [ "$step" = 1 ]; then
		rm -f "$WORK/disk" && truncate -s 48M "$WORK/disk"
		"$@" "$WORK/disk" >/dev/null 2>&1
		driven "$driver" fill_plain "$MNT"
	else
		driven "$driver" change_plain "$MNT"
	fi
	driven "$driver" plain_facts "$step"
}
with_fat() { # STEP
	if [ "$1" = 1 ]; then fill_plain "$MNT"; else change_plain "$MNT"; fi
	plain_facts "$1"
	rm -f "$WORK/disk" && truncate -s 48M "$WORK/disk"
	mkfs.vfat -i 12345678 "$WORK/disk" >/dev/null
	MTOOLS_SKIP_CHECK=1 mcopy -s -Q -m -i "$WORK/disk" "$MNT"/* ::
}
plain lab/ntfs with_ntfs
# What files of NTFS and FAT have besides contents and times.
alter() { # FILE STREAM FLAG: with the time before
	touch -r "$MNT/large" "$WORK/time"
	setfattr -n user.zone -v "$1" "$MNT/large"
	touch -r "$WORK/time" "$MNT/large"
	setfattr -h -n system.ntfs_attrib_be -v "$2" "$MNT/tiny"
}
with_driver ntfs-3g 1 mkntfs -Q -F -q
for zone in 1 2; do
	driven ntfs-3g alter "$zone" "0x0000002$((4 - 2 * zone))"
	platter capture "$WORK/disk" lab/streams >/dev/null
done
check_exit "$EXIT_DIFFERENT" "NTFS: a named stream, and a hidden file" platter diff lab/streams@1 lab/streams@2
check "are all that differs" [ "$(grep '^[ADM!]' "$LOG")" = "M /large (xattrs)
M /tiny (flags)" ]
plain lab/exfat with_exfat
export TZ=UTC
plain lab/fat with_fat
mattrib +h -i "$WORK/disk" ::/large
platter capture "$WORK/disk" lab/fat >/dev/null
check_exit "$EXIT_DIFFERENT" "FAT: a hidden file" platter diff lab/fat@2 lab/fat@3
check_said "is named" '^M /large \(flags\)$'
rm -r "${MNT:?}"/*

check_exit "$EXIT_DIFFERENT" "two that differ" platter diff lab/ext4@1 lab/ext4@2
check_said "a line of the table" '^M /overwritten \(contents: up to 200 kB differ, mtime\)$'
check_said "and one for a changed byte with its time restored" '^M /large \(contents: up to 4.10 kB differ\)$'
check_exit "$EXIT_DIFFERENT" "in the opposite order" platter diff lab/ext4@2 lab/ext4@1
check_said "added becomes removed" '^D /new/tree/file$'
score=$(platter_json show lab/ext4@1 | jq -r .score)
check_exit "$EXIT_DIFFERENT" "a bare score" platter diff "$score" lab/ext4
check_exit "$EXIT_MISSING" "no such version" platter diff lab/ext4@9 lab/ext4
check_exit "$EXIT_DIFFERENT" "two images with nothing in common" platter diff lab/ext4 lab/ext2
platter_json diff --blocks lab/ext4@1 lab/ext4@2 >"$WORK/blocks.json" || true
check "blocks: the ranges add up to the totals" jq -es '
	(map(select(.event == "blocks")) | (map(select(.a == "data" and .b == "data") | .length) | add // 0)) as $changed
	| .[-1].changed_bytes == $changed and .[-1].new_bytes > 200000 and .[-1].new_bytes < 4000000' "$WORK/blocks.json"

# A byte changed on the disk, without the file system: no inode records it.
rm "$WORK/disk"
platter export lab/ext4@2 "$WORK/disk" >/dev/null
place=$(debugfs -R 'blocks /stays' "$WORK/disk" 2>/dev/null | awk '{print $3}')
printf X | dd of="$WORK/disk" bs=1 seek=$((place * 4096 + 77)) conv=notrunc status=none
platter capture "$WORK/disk" lab/ext4 >/dev/null
check_exit "$EXIT_DIFFERENT" "a byte changed under the file system" platter diff lab/ext4@2 lab/ext4@3
check "is reported, and nothing else" test "$(grep -c '^[ADM!]' "$LOG") $(grep '^M' "$LOG")" = "1 M /stays (contents: up to 4.10 kB differ)"
# Files in other places: the same tree on a new file system.
mkdir "$WORK/tree"
mounted "$WORK/disk" cp -a "$MNT/." "$WORK/tree/"
image "$WORK/anew" 192 -t ext4 -O ^has_journal -b 4096
mounted "$WORK/anew" sh -c "for top in \$(ls -r '$WORK/tree'); do cp -a '$WORK/tree/'\$top '$MNT/'; done; touch -r '$WORK/tree' '$MNT'"
platter capture "$WORK/anew" lab/anew >/dev/null
check_exit "$EXIT_DIFFERENT" "the same files on another file system" platter diff lab/ext4@3 lab/anew
check_said "differ in its UUID" 'UUID'
check "and in nothing else" test "$(grep '^[ADM!]' "$LOG" | grep -v lost+found)" = ""

# Encrypted names, and directories with case folding: made without mounting, because not every kernel supports them.
mkdir -p "$WORK/dark/secret" "$WORK/dark/folded"
echo a >"$WORK/dark/secret/a"
echo b >"$WORK/dark/folded/Name"
dark() {
	image "$WORK/disk" 32 -t ext4 -O casefold,encrypt -U 00000000-0000-4000-8000-000000000001 -d "$WORK/dark"
	debugfs -w -R 'sif /secret flags 0x80800' "$WORK/disk" 2>/dev/null
	debugfs -w -R 'sif /folded flags 0x40080000' "$WORK/disk" 2>/dev/null
	platter capture "$WORK/disk" lab/dark >/dev/null
}
dark
echo c >"$WORK/dark/secret/b"
echo d >"$WORK/dark/folded/Other"
dark
check_exit "$EXIT_DIFFERENT" "directories with encrypted names or case folding" platter diff lab/dark@1 lab/dark@2
check_said "an encrypted name is shown as such" '^A /secret/\[encrypted:62\]$'
check_said "a folded name as written" '^A /folded/Other$'

# Partitions: one with ext4, one with unknown contents.
truncate -s 96M "$WORK/parts"
sfdisk -q --no-tell-kernel "$WORK/parts" <<<$'label: gpt\nstart=2048, size=65536\nstart=67584, size=65536\n'
image "$WORK/one" 32 -t ext4
dd if="$WORK/one" of="$WORK/parts" bs=1M seek=1 conv=notrunc status=none
random 100000 unknown | dd of="$WORK/parts" bs=1M seek=40 conv=notrunc status=none
platter capture "$WORK/parts" lab/parts >/dev/null
mounted "$WORK/one" sh -c "echo new >'$MNT/new'"
dd if="$WORK/one" of="$WORK/parts" bs=1M seek=1 conv=notrunc status=none
random 5000 other | dd of="$WORK/parts" bs=1M seek=40 conv=notrunc status=none
platter capture "$WORK/parts" lab/parts >/dev/null
check_exit "$EXIT_DIFFERENT" "partitions" platter diff lab/parts@1 lab/parts@2
check_said "the path starts with the partition's number" '^A 1:/new$'
check_said "the unknown partition is compared by blocks" '^# partition 2: .* [(]compared by blocks only[)]'
sfdisk -q --no-tell-kernel --delete "$WORK/parts" 2
platter capture "$WORK/parts" lab/parts >/dev/null
check_exit "$EXIT_DIFFERENT" "different partition tables" platter diff lab/parts@2 lab/parts@3
check_said "are reported" '^# partition 2 is only on the first disk'
check_said "an equal partition has its kind of ext" '^# partition 1 \(ext4\): equal$'

# Boot code belongs to no file and no metadata; a mount changes metadata only.
image "$WORK/boot" 16 -t ext4
platter capture "$WORK/boot" lab/boot >/dev/null
mounted "$WORK/boot" true
platter capture "$WORK/boot" lab/boot >/dev/null
check_exit 0 "a file system that was only mounted" platter diff lab/boot@1 lab/boot@2
check_said "its metadata is said to differ" '^# disk .ext4.: .* in different blocks of metadata, or of what is not compared'
printf EXTLINUX | dd of="$WORK/boot" bs=1 seek=600 conv=notrunc status=none
platter capture "$WORK/boot" lab/boot >/dev/null
check_exit "$EXIT_DIFFERENT" "other boot code in ext4" platter diff lab/boot@2 lab/boot@3
check_said "is named" '^# disk .ext4.: .*; its boot code differs'
check_exit "$EXIT_DIFFERENT" "and in JSON" platter_json diff lab/boot@2 lab/boot@3
cp "$LOG" "$WORK/boot.json"
check "with the partition" jq -s -e 'any(.event == "partition" and .differs and .notes == ["its boot code differs"]) and last.differs' "$WORK/boot.json"
check_exit 0 "a directory beside it is equal" platter diff lab/boot@2:/lost+found lab/boot@3:/lost+found
# boot_changed NAME BYTE: writes there and captures; the other version is equal but for boot code
boot_changed() {
	printf EVILBOOT | dd of="$WORK/boot" bs=1 seek="$2" conv=notrunc status=none
	[[ $1 != *exfat* ]] || exfat_checksums
	platter capture "$WORK/boot" "$1" >/dev/null
	check_exit "$EXIT_DIFFERENT" "$1: other boot code at $2" platter diff "$1@1" "$1"
	check_said "is named, and nothing else" '^# disk .*; its boot code differs'
	check "so are no files" test "$(grep -c '^[ADM!]' "$LOG")" = 0
	cp "$WORK/boot-good" "$WORK/boot"
}
# exfat_checksums: writes those of both boot regions
exfat_checksums() {
	python3 - "$WORK/boot" <<'END'
import struct, sys
with open(sys.argv[1], "r+b") as disk:
    for at in 0, 12 * 512:
        disk.seek(at)
        region, total = disk.read(11 * 512), 0
        for offset, byte in enumerate(region):
            if offset not in (106, 107, 112):
                total = ((total >> 1 | (total & 1) << 31) + byte) & 0xFFFFFFFF
        disk.write(struct.pack("<I", total) * 128)
END
}
# The sectors of FAT32 are 0, 2 and 12, and the copy of 0; those of exFAT 0 and 3 of both regions.
BOOT_CODE=(ntfs 400 ntfs 5000 vfat 200 vfat 1100 vfat 6200 vfat 3300 exfat 400 exfat 1636 exfat 7780 btrfs 400 btrfs 60000)
# written KIND: writes to the file system by its driver; FAT by mtools, which count free clusters as a driver does
written() {
	local driver=mount
	case $1 in
	vfat) mmd -i "$WORK/disk" ::/new && mrd -i "$WORK/disk" ::/new && return ;;
	ntfs) driver=ntfs-3g ;;
	exfat) driver=mount.exfat-fuse ;;
	esac
	driven "$driver" sh -c "echo new >'$MNT/new' && rm '$MNT/new'"
}
for kind in ntfs vfat exfat btrfs; do
	rm -f "$WORK/boot"
	truncate -s 120M "$WORK/boot"
	make=("mkfs.$kind")
	[ "$kind" != ntfs ] || make=(mkntfs -F -Q -q)
	[ "$kind" != vfat ] || make+=(-F 32)
	command -v "${make[0]}" >/dev/null || { skip "other boot code in $kind: ${make[0]} is missing"; continue; }
	"${make[@]}" "$WORK/boot" >/dev/null 2>&1
	cp "$WORK/boot" "$WORK/boot-good"
	platter capture "$WORK/boot" "lab/boot-$kind" >/dev/null
	for ((n = 0; n < ${#BOOT_CODE[@]}; n += 2)); do
		[ "${BOOT_CODE[n]}" != "$kind" ] || boot_changed "lab/boot-$kind" "${BOOT_CODE[n + 1]}"
	done
	mv "$WORK/boot-good" "$WORK/disk"
	written "$kind"
	platter capture "$WORK/disk" "lab/boot-$kind" >/dev/null
	platter diff "lab/boot-$kind@1" "lab/boot-$kind" >"$WORK/found" || true
	check "$kind: no boot code differs after it was mounted and written" sh -c "grep -q '^# disk' '$WORK/found' && ! grep -q 'boot code' '$WORK/found'"
done
rm "$WORK/boot"

# Flags, projects and subvolumes. Each change is made on a copy.
# altered KIND CHANGE...: captures the file system with this change
altered() {
	local kind=$1
	shift
	cp --sparse=always "$WORK/kind" "$WORK/disk"
	driven mount "$@" >/dev/null 2>&1
	platter capture "$WORK/disk" "lab/$kind" >/dev/null
}
# alters KIND EXPECTED CHANGE...: diff shows exactly that
alters() {
	local kind=$1 expected=$2
	shift 2
	check "$kind: $*" altered "lab-$kind" "$@"
	check_exit "$EXIT_DIFFERENT" "$kind: is a difference" platter diff "lab/lab-$kind@1" "lab/lab-$kind"
	check "$kind: of $expected, and of nothing else" test "$(grep '^[ADM!]' "$LOG" || grep -o 'its .* differs' "$LOG")" = "$expected"
}
for kind in ext4 xfs btrfs; do
	rm -f "$WORK/kind" "$WORK/disk"
	truncate -s 320M "$WORK/disk"
	"mkfs.$kind" -q "$WORK/disk" >/dev/null 2>&1
	driven mount sh -c "echo hi >'$MNT/file'; [ $kind != btrfs ] || btrfs -q subvolume create '$MNT/sub'" >/dev/null
	mv "$WORK/disk" "$WORK/kind"
	altered "lab-$kind" true
	for flag in i a d A S; do alters "$kind" 'M /file (flags)' chattr "+$flag" "$MNT/file"; done
	case $kind in
	xfs)
		alters xfs 'M /file (project)' xfs_io -c 'chproj 70000' "$MNT/file"
		for flag in f P n; do alters xfs 'M / (flags)' xfs_io -c "chattr +$flag" "$MNT"; done
		;;
	btrfs)
		alters btrfs 'M / (flags)' chattr +C "$MNT"
		alters btrfs 'M /sub (flags)' btrfs property set "$MNT/sub" ro true
		alters btrfs 'its default subvolume differs' btrfs subvolume set-default "$MNT/sub"
		check_exit 0 "btrfs: its directories are equal, whatever is mounted by default" platter diff "lab/lab-btrfs@1:/sub" "lab/lab-btrfs:/sub"
		;;
	esac
done
rm "$WORK/kind" "$WORK/disk"

# Places in versions.
check_exit "$EXIT_DIFFERENT" "one partition" platter diff lab/parts@1:1 lab/parts@2:1
check_said "is compared by files" '^A 1:/new$'
check_said "the places are named" '^# lab/parts@1:1/ and lab/parts@2:1/ differ$'
check "and no other" test "$(grep -c '^# partition' "$LOG")" = 1
check_exit 0 "an equal one, of disks that differ" platter diff lab/parts@2:1 lab/parts@3:1
check_exit "$EXIT_DIFFERENT" "the only one with files" platter diff lab/parts@1:/ lab/parts@2:/
check_said "is found" '^A 1:/new$'
check_exit "$EXIT_DIFFERENT" "the unknown one" platter diff lab/parts@1:2 lab/parts@2:2
check_exit "$EXIT_DIFFERENT" "its blocks" platter diff --blocks lab/parts@1:2 lab/parts@2:2
check "are in it" test "$(awk '$1 ~ /^[0-9]+$/ && ($1 < 33 * 1048576 || $1 >= 65 * 1048576)' "$LOG" | wc -l) $(grep -c -- '->' "$LOG")" = "0 $(grep -cE '^ *[0-9]+ +[0-9]+  ' "$LOG")"
check_exit "$EXIT_DIFFERENT" "a partition and another disk's" platter diff lab/parts@1:1 lab/anew:/
check_exit "$EXIT_DIFFERENT" "a file" platter diff lab/ext4@1:/large lab/ext4@2:/large
check "is compared alone" test "$(grep -c '^[ADM!]' "$LOG") $(grep '^M' "$LOG")" = "1 M /large (contents: up to 4.10 kB differ)"
check_exit 0 "an equal file" platter diff lab/ext4@1:/stays lab/ext4@2:/stays
check_exit "$EXIT_DIFFERENT" "a directory" platter diff lab/ext4@1:/ lab/ext4@2:/
check_exit "$EXIT_MISSING" "a path that one does not have" platter diff lab/ext4@1:/new lab/ext4@2:/new
check_exit "$EXIT_MISSING" "a partition that does not exist" platter diff lab/parts@1:7 lab/parts@2:7
check_exit "$EXIT_USAGE" "a partition and a whole disk" platter diff lab/parts@1:1 lab/parts@2
check_said "do not fit" 'name .* in both'
check_exit "$EXIT_REFUSED" "blocks of a file" platter diff --blocks lab/ext4@1:/large lab/ext4@2:/large

# A file system that was not unmounted.
debugfs -w -R 'feature needs_recovery' "$WORK/one" 2>/dev/null >&2
platter capture --force "$WORK/one" lab/dirty >/dev/null
check_exit "$EXIT_DIFFERENT" "a file system that needs recovery" platter diff lab/parts@3 lab/dirty
platter clone lab/dirty lab/dirty --next >/dev/null
printf X | dd of="$WORK/one" bs=1 seek=9000000 conv=notrunc status=none
platter capture --force "$WORK/one" lab/dirty >/dev/null
check_exit "$EXIT_DIFFERENT" "two that need recovery" platter diff lab/dirty@1 lab/dirty@3
check_said "are compared by blocks, and the reason is reported" 'compared by blocks only: lab/dirty@1: it was not unmounted'

# A damaged partition: the others are compared.
STORE=$WORK/damaged-partition
platter init >/dev/null
check "a disk is captured twice, and one of its partitions damaged" damaged_partition
check_exit "$EXIT_CORRUPT" "the versions are compared" platter diff lab/multi@1 lab/multi@2
check_said "the damaged partition by blocks" '^# partition 2: .* differ .*1 unreadable; its files cannot be compared: partition 2 is damaged: lab/multi@1: '
check_said "with what to do" 'platter heal'
check_said "the next one by files" '^A 3:/new$'

# Damage where only boot code is: the files are compared anyway.
STORE=$WORK/damaged-boot
platter init >/dev/null
rm -f "$WORK/disk" && truncate -s 48M "$WORK/disk"
mkfs.vfat -R 40000 "$WORK/disk" >/dev/null
random 900000 boot-code >"$WORK/code"
dd if="$WORK/code" of="$WORK/disk" bs=1M seek=16 conv=notrunc status=none
mmd -i "$WORK/disk" ::/directory
platter capture "$WORK/disk" lab/code >/dev/null
printf X | dd of="$WORK/disk" bs=1 seek=16917216 conv=notrunc status=none
mcopy -i "$WORK/disk" "$WORK/new" ::
platter capture "$WORK/disk" lab/code >/dev/null
check_exit "$EXIT_DIFFERENT" "boot code in reserved sectors" platter diff lab/code@1 lab/code@2
check_said "is named" 'its boot code differs'
check "is damaged in the first version" damage_pack "$WORK/code" 140000
check_exit "$EXIT_CORRUPT" "boot code that cannot be read" platter diff lab/code@1 lab/code@2
check_said "is named" '1 unreadable; its boot code cannot be compared: .*platter heal'
check_said "and files are compared" '^A /new$'
check_exit 0 "a directory needs no boot code" platter diff lab/code@1:/directory lab/code@2:/directory
finish
