#!/usr/bin/env bash
# tests/fat-ntfs.sh
#
# FAT, exFAT and NTFS volumes made by their own tools, filled and partly emptied, on disks full of stale data. Each is
# captured and installed over other bytes. The copy must pass the checker of the filesystem and hold the same files with their
# times. Neither the copy nor the packs may have stale data, and the capture must not be much larger than what the filesystem
# calls used.
. "$(dirname "$0")/lib.sh"

need_root "attaching loop devices" || { finish; exit 0; }

readonly MARKER=PLATTER-STALE-DATA. MIB=$((1 << 20))
DISK=$WORK/disk
TARGET=$WORK/target
TREE=$WORK/tree
OUT=$WORK/out

# stale BYTES: the marker again and again
stale() { yes $MARKER | tr -d '\n' | head -c "$1" || [ $? = 141 ]; }
# stale_disk BYTES: the last MiB stays empty, because everything after the last cluster is kept
stale_disk() { stale $(($1 - MIB)) >"$DISK" && truncate -s "$1" "$DISK"; }
# More than a sector of stale data. A part of a sector is kept if it is after the end of a file.
LONG_MARKER=$(stale 513)

# The tree fits on the smallest FAT12 volumes.
mkdir -p "$TREE/many/deep/er" "$TREE/A folder with a long name"
seq 50000 >"$TREE/numbers.txt"
random 400001 one >"$TREE/random.bin"
random 70000 two >"$TREE/A folder with a long name/another long name.bin"
: >"$TREE/empty"
for number in $(seq 40); do seq "$number" >"$TREE/many/file-$number.txt"; done
random 4096 three >"$TREE/many/deep/er/page.bin"
# A time of its own for each file, which FAT can store.
find "$TREE" -type f | sort | { number=0 && while read -r file; do touch -d "@$((1000000000 + (number += 2) * 3601))" "$file"; done; }
stale 300000 >"$WORK/stale"
random 10240 part >"$WORK/part"
random 200000 pieces >"$WORK/pieces"
check "init" platter init
# What is stored in full has stale data.
readonly ASIDE=$WORK/aside
check "a store for disks with stale data" "$PLATTER" --store "$ASIDE" init

# ------------------------------------------------------------------- filling

# Writes the tree, a file in pieces, and a deleted file. Needs FUSE.
fill_mounted() {
	local number
	cp -r --preserve=timestamps "$TREE/." "$MNT/"
	cp "$WORK/stale" "$MNT/deleted"
	for number in $(seq 30); do cp "$WORK/part" "$MNT/part-$number"; done
	rm "$MNT"/part-*[02468]
	cp "$WORK/pieces" "$MNT/pieces"
	rm "$MNT"/part-* "$MNT/deleted"
	sync "$MNT"
}
fill_fat() {
	local number
	export MTOOLS_SKIP_CHECK=1
	mcopy -s -Q -m -i "$DISK" "$TREE"/* :: || return 1
	for number in $(seq 30); do cp "$WORK/part" "$WORK/part-$number"; done
	mcopy -i "$DISK" "$WORK"/part-* ::
	mdel -i "$DISK" ::part-*[02468]
	mcopy -i "$DISK" "$WORK/pieces" ::
	mdel -i "$DISK" '::part-*'
	mcopy -i "$DISK" "$WORK/stale" :: && mdel -i "$DISK" ::stale
}
# mounted fat|exfat|ntfs FILE COMMAND...: runs a command with the volume at $MNT
mounted() {
	local kind=$1 file=$2 code=0
	shift 2
	attach "$file"
	case $kind in
	exfat) mount.exfat-fuse -o "${MOUNT_OPTIONS:-rw}" "$DEVICE" "$MNT" || return 1 ;;
	ntfs) ntfs-3g -o "${MOUNT_OPTIONS:-rw}" "$DEVICE" "$MNT" || return 1 ;;
	esac
	"$@" || code=$?
	umount "$MNT" || return 1
	sync "$DEVICE"
	# The program of the mount may still hold the device.
	until_true 20 losetup -d "$DEVICE" && rm -f "$WORK/loops/${DEVICE##*/}"
	return $code
}

# ------------------------------------------------------------------- judging

fat_number() { fsck.fat -nv "$1" | sed -n "s/$2/\\1/p" | head -n 1; }
# used KIND: the bytes that the filesystem's own tool calls used, with everything outside of clusters
used() {
	local size total free
	case $1 in
	fat)
		size=$(fat_number "$DISK" '^ *\([0-9]*\) bytes per cluster.*')
		total=$(fat_number "$DISK" '.*[^0-9]\([0-9]*\) data clusters.*')
		free=$((total - $(fat_number "$DISK" '.* files, \([0-9]*\)\/.*')))
		;;
	exfat)
		size=$(dump.exfat "$DISK" | sed -n 's/^Cluster size:\s*//p')
		free=$(dump.exfat "$DISK" | sed -n 's/^Free Clusters:\s*//p')
		;;
	ntfs)
		size=$(ntfsinfo -m "$DISK" | sed -n 's/^\s*Cluster Size: //p')
		free=$(ntfsinfo -m "$DISK" | sed -n 's/^\s*Free Clusters: \([0-9]*\).*/\1/p')
		;;
	esac
	echo $(($(stat -c %s "$DISK") - free * size))
}
small() { # NAME KIND
	local bytes in_use
	bytes=$(platter_json show "past/$1" | jq .allocated_bytes)
	in_use=$(used "$2")
	echo "captured $bytes bytes, in use $in_use"
	[ "$bytes" -le $((in_use * 103 / 100)) ] && [ "$bytes" -gt 100000 ]
}
checked() { # KIND FILE
	case $1 in
	fat) fsck.fat -n "$2" ;;
	exfat) fsck.exfat -n "$2" ;;
	ntfs) ntfsinfo -m "$2" >/dev/null && { attach "$2"; ntfsfix -n "$DEVICE"; } && detach_loop "$DEVICE" ;;
	esac
}
take_out() { rm -rf "$OUT" && mkdir "$OUT" && cp -r "$MNT/." "$OUT/"; }
same_files() { # KIND
	rm -rf "$OUT" "$OUT.source"
	if [ "$1" = fat ]; then
		mkdir "$OUT"
		mcopy -s -n -Q -i "$TARGET" '::*' "$OUT/" || return 1
	else
		MOUNT_OPTIONS=ro mounted "$1" "$TARGET" take_out || return 1
	fi
	cmp "$WORK/pieces" "$OUT/pieces" && rm -f "$OUT/pieces" && diff -r "${2:-$TREE}" "$OUT"
}
# times KIND FILE: size and time of every file
times() {
	if [ "$1" = fat ]; then
		rm -rf "$OUT" && mkdir "$OUT"
		mcopy -s -n -Q -m -i "$2" '::*' "$OUT/" && list_times "$OUT"
	else
		MOUNT_OPTIONS=ro mounted "$1" "$2" list_times "$MNT"
	fi
}
list_times() { find "$1" -mindepth 1 -type f -printf '%P %s %T@\n' | sort; }
same_times() { # KIND
	times "$1" "$DISK" >"$WORK/times" && times "$1" "$TARGET" >"$WORK/times-copy" || return 1
	diff "$WORK/times" "$WORK/times-copy" && [ "$(awk '{ print $NF }' "$WORK/times" | sort -u | wc -l)" -gt 40 ]
}
fresh_target() { head -c "$(stat -c %s "$DISK")" /dev/zero | tr '\0' '\252' >"$TARGET"; }
install_over() { # NAME
	local code=0
	fresh_target
	attach "$TARGET"
	platter install "past/$1" "$DEVICE" --yes || code=$?
	detach_loop "$DEVICE"
	return $code
}
no_marker() { ! grep -qaF -m 1 "$LONG_MARKER" "$TARGET"; }

# volume NAME KIND: captures and installs the disk, and compares
volume() {
	check "$1: capture" "$PLATTER" --store "$STORE" capture "$DISK" "past/$1"
	if said 'stored in full|unused blocks'; then not_ok "$1: the map is trusted"; else ok "$1: the map is trusted"; fi
	check "$1: no more than 3 % over what is used" small "$1" "$2"
	echo "# $1: $(tail -n 1 "$LOG")"
	check "$1: install" install_over "$1"
	check "$1: the copy is sound" checked "$2" "$TARGET"
	check "$1: files are equal" same_files "$2" "${3:-$TREE}"
	check "$1: and their times" same_times "$2"
	check "$1: no stale data" no_marker
}
# whole NAME REASON: every byte of the disk comes back, and the capture says why
whole() {
	check "$1: capture" "$PLATTER" --store "$ASIDE" capture "$DISK" "past/$1"
	check_said "$1: the reason is reported" "stored in full.*$2"
	fresh_target
	check "$1: install" "$PLATTER" --store "$ASIDE" install "past/$1" "$TARGET" --yes --force not-a-disk
	check "$1: every byte" cmp "$DISK" "$TARGET"
}
# patch OFFSET BYTES: writes bytes, given as \xNN, into the disk
patch() { printf '%b' "$2" | dd of="$DISK" bs=1 seek="$1" conv=notrunc status=none; }

# ----------------------------------------------------------------------- FAT

# fat NAME SECTORS CLUSTERS MKFS-ARGUMENT...
fat() {
	local name=$1 sectors=$2 clusters=$3
	shift 3
	stale $((sectors * 512)) >"$DISK"
	check "$name: mkfs" mkfs.vfat "$@" "$DISK"
	if [ "$name" = fat16-4085 ]; then
		patch 19 '\x36\x10'
		truncate -s $((4150 * 512)) "$DISK"
	fi
	[ "$clusters" = - ] || check "$name: has $clusters clusters" [ "$(fat_number "$DISK" '.*[^0-9]\([0-9]*\) data clusters.*')" = "$clusters" ]
	check "$name: fill" fill_fat
	volume "$name" fat
}
fat fat12-4084 4141 4084 -a -F 12 -s 1
cp "$DISK" "$WORK/fat12"
# mkfs.vfat refuses so few clusters, so the boot sector of a larger volume is changed.
fat fat16-4085 4152 4085 -a -F 16 -s 1
fat fat16-65524 66069 65524 -a -F 16 -s 1
fat fat32-65525 66581 65525 -a -F 32 -s 1
cp "$DISK" "$WORK/fat32"
fat fat-4k-sectors 131072 - -S 4096
fat fat-64k-clusters 262144 - -s 128
[ "${PLATTER_SIZE:-quick}" = quick ] || fat fat32-1g 2097152 - -F 32

# Two tables of which one is older: both are used.
cp "$WORK/fat32" "$DISK"
patch $((32 * 512 + 60000 * 4)) '\xff\xff\xff\x0f'
check "fat32 with different tables: capture" "$PLATTER" --store "$STORE" capture "$DISK" past/fat32-different
check_said "fat32 with different tables: the difference is reported" 'tables differ in 1 entries'

# The boot sector of Linux, and the entry of Windows.
cp "$WORK/fat32" "$DISK"
patch 65 '\x01'
whole fat32-dirty 'was not unmounted'
cp "$WORK/fat32" "$DISK"
patch $((32 * 512 + 7)) '\x07'
whole fat32-dirty-entry 'was not unmounted'
cp "$WORK/fat12" "$DISK"
truncate -s 1M "$DISK"
whole fat12-cut 'it claims to have 2120192 bytes, but its place has 1048576'
# Clusters of a file that the tables call free: everything from cluster 100 on.
cp "$WORK/fat12" "$DISK"
for table in 0 1; do head -c 3000 /dev/zero | dd of="$DISK" bs=1 seek=$((512 + table * 12 * 512 + 150)) conv=notrunc status=none; done
whole fat12-lying 'but marked as free'

# At the limits of FAT32: the longest file, a volume of 1,000 GiB, and nearly the largest one. Disks and copies are sparse.
at_limit() { # NAME [REASON]: why it is stored in full
	check "$1: capture" "$PLATTER" --store "$STORE" capture "$DISK" "past/$1"
	if [ -n "${2:-}" ]; then
		check_said "$1: the reason is reported" "stored in full.*$2"
	else
		if said 'stored in full|unused blocks'; then not_ok "$1: the map is trusted"; else ok "$1: the map is trusted"; fi
		check "$1: no more than 3 % over what is used" small "$1" fat
	fi
	rm -f "$TARGET"
	truncate -s "$(stat -c %s "$DISK")" "$TARGET"
	check "$1: install" platter install "past/$1" "$TARGET"
}
# longest_file: writes LONGEST.BIN of 4 GiB - 1 byte into the volume, with 1 MiB of random bytes at the start, in the middle and at
# the end, and its contents to $WORK/longest. mtools would write all zeros.
longest_file() {
	truncate -s $((4096 * MIB - 1)) "$WORK/longest"
	for n in 0 2047 4094; do random $MIB "longest $n" | dd of="$WORK/longest" bs=1M seek="$n" conv=notrunc status=none; done
	random 500000 end | dd of="$WORK/longest" bs=1 oflag=seek_bytes seek=$((4096 * MIB - 1 - 500000)) conv=notrunc status=none
	python3 - "$DISK" "$WORK/longest" <<-'END'
		import os, struct, sys
		with open(sys.argv[1], "r+b") as disk, open(sys.argv[2], "rb") as file:
		    boot = disk.read(512)
		    reserved, = struct.unpack_from("<H", boot, 14)
		    table, = struct.unpack_from("<I", boot, 36)
		    size = boot[13] * 512
		    heap = (reserved + 2 * table) * 512
		    length = os.fstat(file.fileno()).st_size
		    count = -(-length // size)
		    chain = struct.pack(f"<{count}I", *range(4, 3 + count), 0xFFFFFFF)
		    for number in range(2):
		        disk.seek((reserved + number * table) * 512 + 12)
		        disk.write(chain)
		    disk.seek(heap)
		    disk.write(struct.pack("<11sB8xH4xHI", b"LONGEST BIN", 0x20, 0, 3, length))
		    disk.seek(512 + 488)
		    disk.write(struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF))
		    for at in (0, 2047 << 20, 4094 << 20, length - 500000):
		        file.seek(at)
		        disk.seek(heap + size + at)
		        disk.write(file.read(1 << 20))
	END
}
if [ "${PLATTER_SIZE:-quick}" != quick ]; then
	rm -f "$DISK"
	truncate -s 4200M "$DISK"
	check "fat32-longest-file: mkfs" mkfs.vfat -F 32 -s 128 "$DISK"
	check "fat32-longest-file: a file of 4 GiB - 1 byte" longest_file
	at_limit fat32-longest-file
	check "fat32-longest-file: its size" test "$(platter ls --long past/fat32-longest-file:/LONGEST.BIN | grep -c 4294967295)" = 1
	check "fat32-longest-file: its contents" cmp "$WORK/longest" <(platter cat past/fat32-longest-file:/LONGEST.BIN)
	# fsck.fat 4.2 counts the bytes of a chain in 32 bits, and takes that of this file for an empty one.
	check "fat32-longest-file: and in the copy" cmp "$WORK/longest" <(mcopy -i "$TARGET" ::LONGEST.BIN -)
	rm -f "$DISK" "$TARGET" "$WORK/longest"
	# The second has as many sectors as its boot sector can say, and a table that is too long to be checked.
	for name in fat32-1000g fat32-2t; do
		truncate -s 1000G "$DISK"
		[ $name = fat32-1000g ] || truncate -s $((4294967295 * 512)) "$DISK"
		check "$name: mkfs" mkfs.vfat -F 32 -s 128 "$DISK"
		check "$name: fill" fill_fat
		at_limit $name "$([ $name = fat32-1000g ] || echo 'too many to check')"
		check "$name: the copy is sound" checked fat "$TARGET"
		check "$name: files are equal" same_files fat
		rm -f "$DISK" "$TARGET"
	done
fi

# --------------------------------------------------------------------- exFAT

exfat() { # NAME MIB MKFS-ARGUMENT...
	local name=$1 mib=$2
	shift 2
	stale_disk $((mib << 20))
	check "$name: mkfs" mkfs.exfat "$@" "$DISK"
	check "$name: fill" mounted exfat "$DISK" fill_mounted
	volume "$name" exfat
}
exfat exfat 32
cp "$DISK" "$WORK/exfat"
exfat exfat-512 24 -c 512
exfat exfat-128k 128 -c 128K
cp "$WORK/exfat" "$DISK"
patch 106 '\x02'
whole exfat-dirty 'was not unmounted'
cp "$WORK/exfat" "$DISK"
patch 100 '\x00\x00\x00\x00'
whole exfat-checksum 'checksum of its boot region is wrong'
# Clusters of files that the bitmap calls free. It is the first cluster of the heap, which begins at a sector in the boot region.
cp "$WORK/exfat" "$DISK"
heap=$(($(od -An -tu4 -j 88 -N 4 "$DISK") * 512))
check "exfat-lying: the bitmap marks clusters as used" test "$(od -An -tx8 -j $((heap + 4)) -N 8 "$DISK" | tr -d ' ')" = ffffffffffffffff
patch $((heap + 4)) '\x00\x00\x00\x00\x00\x00\x00\x00'
whole exfat-lying 'is in use, but its bitmap marks it as free'

# ---------------------------------------------------------------------- NTFS

ntfs() { # NAME MIB MKFS-ARGUMENT...
	local name=$1 mib=$2
	shift 2
	stale_disk $((mib << 20))
	check "$name: mkfs" mkntfs -Q -F -q "$@" "$DISK"
	check "$name: fill" mounted ntfs "$DISK" fill_mounted
	volume "$name" ntfs
}
ntfs ntfs 32
cp "$DISK" "$WORK/ntfs"
ntfs ntfs-512 24 -c 512
ntfs ntfs-64k 64 -c 65536
ntfs ntfs-128k 128 -c 131072
ntfs ntfs-4k-sectors 48 -s 4096

# Compressed and sparse files.
add_compressed() {
	mkdir "$MNT/compressed"
	setfattr -h -n system.ntfs_attrib_be -v 0x00000800 "$MNT/compressed"
	cp "$TREE/numbers.txt" "$TREE/random.bin" "$MNT/compressed/"
	truncate -s 5M "$MNT/sparse"
	printf 'far away' | dd of="$MNT/sparse" bs=1 seek=3000000 conv=notrunc status=none
	sync "$MNT"
}
cp "$WORK/ntfs" "$DISK"
MOUNT_OPTIONS=compression check "ntfs-compressed: fill" mounted ntfs "$DISK" add_compressed
check "ntfs-compressed: one file is compressed" test "$(ntfsinfo -F /compressed/numbers.txt "$DISK" | grep -c 'Compression unit:.*4')" -gt 0
cp -r "$TREE" "$WORK/larger"
mkdir "$WORK/larger/compressed"
cp "$TREE/numbers.txt" "$TREE/random.bin" "$WORK/larger/compressed/"
truncate -s 5M "$WORK/larger/sparse"
printf 'far away' | dd of="$WORK/larger/sparse" bs=1 seek=3000000 conv=notrunc status=none
volume ntfs-compressed ntfs "$WORK/larger"

# A master file table that grew on a full volume, in the places of deleted files.
fragment() {
	local number
	for number in $(seq 1600); do head -c 4096 "$WORK/pieces" >"$MNT/filler-$number"; done
	fallocate -l 1G "$MNT/rest" 2>/dev/null || cat /dev/zero >"$MNT/rest" 2>/dev/null || true
	rm "$MNT"/filler-*[13579]
	mkdir "$MNT/tiny"
	for number in $(seq 2000); do echo "$number" >"$MNT/tiny/$number" || break; done
	rm "$MNT/rest" "$MNT"/filler-*
	cp -r --preserve=timestamps "$TREE/." "$MNT/"
	cp "$WORK/pieces" "$MNT/pieces"
	sync "$MNT"
	rm -rf "$WORK/fragmented"
	cp -r "$MNT" "$WORK/fragmented"
	rm "$WORK/fragmented/pieces"
}
stale_disk $((12 * MIB))
check "ntfs-fragmented: mkfs" mkntfs -Q -F -q "$DISK"
check "ntfs-fragmented: fill" mounted ntfs "$DISK" fragment
ntfsinfo -v -i 0 "$DISK" >"$LOG" 2>&1
check_said "ntfs-fragmented: the table has a list of attributes, or many runs" 'Total runs: [0-9]{2}'
volume ntfs-fragmented ntfs "$WORK/fragmented"

# Page files are left out, and files of the same name elsewhere are not.
add_page_files() {
	mkdir "$MNT/folder"
	random 500000 pagefile | tee "$MNT/pagefile.sys" >"$MNT/folder/pagefile.sys"
	random 300000 swapfile >"$MNT/swapfile.sys"
	head -c 300000 /dev/zero >"$MNT/hiberfil.sys"
	sync "$MNT"
}
only_zeros() { # NAME
	cmp -n 500000 "$MNT/pagefile.sys" /dev/zero && cmp -n 300000 "$MNT/swapfile.sys" /dev/zero &&
		cmp "$MNT/folder/pagefile.sys" <(random 500000 pagefile) && [ "$(stat -c %s "$MNT/pagefile.sys")" = 500000 ]
}
complete() { cmp "$MNT/pagefile.sys" <(random 500000 pagefile) && cmp "$MNT/swapfile.sys" <(random 300000 swapfile); }
cp "$WORK/ntfs" "$DISK"
check "ntfs-paging: fill" mounted ntfs "$DISK" add_page_files
check "ntfs-paging: capture" "$PLATTER" --store "$STORE" capture "$DISK" past/ntfs-paging
check_said "ntfs-paging: what is left out is reported" 'page files.* stored as zeros.*--all'
check "ntfs-paging: install" install_over ntfs-paging
check "ntfs-paging: page files are zeros" mounted ntfs "$TARGET" only_zeros
check "ntfs-paging: capture --all" platter capture "$DISK" past/ntfs-paging-all --all
check "ntfs-paging: install all" install_over ntfs-paging-all
check "ntfs-paging: page files are complete" mounted ntfs "$TARGET" complete

# refused NAME REASON: refused, and stored in full on demand
refused() {
	check_exit $EXIT_REFUSED "$1: refused" "$PLATTER" --store "$ASIDE" --quiet capture "$DISK" "past/$1"
	check_said "$1: the reason is reported" "$2.*--force"
	check "$1: capture --force" "$PLATTER" --store "$ASIDE" --quiet capture "$DISK" "past/$1" --force
	fresh_target
	check "$1: install" "$PLATTER" --store "$ASIDE" install "past/$1" "$TARGET" --yes --force not-a-disk
	check "$1: every byte" cmp "$DISK" "$TARGET"
}
hibernate() { printf 'hibr' | dd of="$MNT/hiberfil.sys" bs=1 conv=notrunc status=none && sync "$MNT"; }
cp "$DISK" "$WORK/paging"
check "ntfs-hibernated: hibernate" mounted ntfs "$DISK" hibernate
refused ntfs-hibernated 'hibernated.*shut it down'
# The driver writes no volume of a hibernated system.
hibernate_with_links() { ln "$MNT/hiberfil.sys" "$MNT/folder/another" && hibernate; }
cp "$WORK/paging" "$DISK"
check "ntfs-hibernated-links: hibernate" mounted ntfs "$DISK" hibernate_with_links
refused ntfs-hibernated-links 'hibernated.*shut it down'
cp "$WORK/ntfs" "$DISK"
# The flags of the volume in its record, and the bits of clusters with files.
ntfs_number() { # SED-COMMAND NTFSINFO-ARGUMENT...
	local command=$1
	shift
	ntfsinfo "$@" "$DISK" | sed -n "$command" | head -n 1
}
table=$(ntfs_number 's/^\s*LCN of Data Attribute for FILE_MFT: //p' -m)
patch $((table * 4096 + 3 * 1024 + 0x1a2)) '\x01'
refused ntfs-dirty 'marked as dirty'
cp "$WORK/ntfs" "$DISK"
bitmap=$(ntfs_number 's/^\s*0x0\s*\(0x[0-9a-f]*\)\s*0x1$/\1/p' -v -i 6)
head -c 512 /dev/zero | dd of="$DISK" bs=1 seek=$((bitmap * 4096 + 128)) conv=notrunc status=none
whole ntfs-lying 'but its bitmap marks it as free'
# The header of shadow copies, without a catalog, then with one.
cp "$WORK/ntfs" "$DISK"
patch 7680 '\x6b\x87\x08\x38\x76\xc1\x48\x4e\xb7\xae\x04\x04\x6e\x6c\xc7\x52'
check "ntfs-shadow: no catalog" "$PLATTER" --store "$ASIDE" capture "$DISK" past/ntfs-no-shadow
check "ntfs-shadow: and free clusters are dropped" eval '! grep -q "stored in full" "$LOG"'
patch 7728 '\x00\x40'
whole ntfs-shadow 'has shadow copies.*vssadmin'
cp "$WORK/ntfs" "$DISK"
truncate -s 16M "$DISK"
whole ntfs-cut 'it claims to have 33553920 bytes, but its place has 16777216'

# -------------------------------------------------------------- shared with ext4

rm -rf "$TREE"
file_tree "$TREE" 24 shared
readonly SHARED=$WORK/shared
files=$(du -sb --apparent-size "$TREE" | cut -f1)
share() { # NAME: at least 95 % of the bytes of files were known, even if all new bytes, such as metadata, are counted as files
	local new
	"$PLATTER" --store "$SHARED" --quiet capture "$DISK" "$1" || return 1
	new=$("$PLATTER" --store "$SHARED" --json show "$1" | jq .new_raw_bytes)
	echo "$1: $new of $files bytes are new"
	[ "$new" -le $((files / 20)) ]
}
copy_tree() { cp -r "$TREE/." "$MNT/" && sync "$MNT"; }
ext4_image "$WORK/ext4" 64 "$TREE"
check "a second store" "$PLATTER" --store "$SHARED" init
check "ext4 in it" "$PLATTER" --store "$SHARED" capture "$WORK/ext4" ext4
stale_disk $((64 * MIB))
check "a FAT twin: mkfs" mkfs.vfat "$DISK"
check "a FAT twin: fill" mcopy -s -Q -i "$DISK" "$TREE"/* ::
check "a FAT twin shares 95 %" share fat
check "an exFAT twin: mkfs" mkfs.exfat "$DISK"
check "an exFAT twin: fill" mounted exfat "$DISK" copy_tree
check "an exFAT twin shares 95 %" share exfat
check "an NTFS twin: mkfs" mkntfs -Q -F -q "$DISK"
check "an NTFS twin: fill" mounted ntfs "$DISK" copy_tree
check "an NTFS twin shares 95 %" share ntfs
nothing_stale() { python3 "$TESTS/decoded.py" "$1" >"$WORK/decoded" && ! grep -qaF -m 1 "$LONG_MARKER" "$WORK/decoded"; }
check "no stale data in the store" nothing_stale "$STORE"
check "and none in that of the twins" nothing_stale "$SHARED"
check "but in the store of disks with stale data" eval '! nothing_stale "$ASIDE"'
check "the store is sound" platter check --read-data
finish
