#!/usr/bin/env bash
# tests/files.sh: ls, find, cat and cp of files in images, compared with the same filesystem mounted by the kernel. Hostile
# names and links do not leave the target.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/file-trees.sh"

need_root "mounting filesystems" || { finish; exit 0; }
check "init" platter init


# Copies go to a filesystem that can hold every attribute.
room=$WORK/room
truncate -s 400M "$WORK/room.img"
mkfs.xfs -q "$WORK/room.img"
mkdir "$room"
mount -o loop "$WORK/room.img" "$room"
suite_cleanup() { umount "$room"; }

# on_terminal LOCATION NAME...: `ls` shows these names to a person
on_terminal() {
	local place=$1
	shift
	python3 - "$PLATTER" --store "$STORE" ls "$place" >"$WORK/seen" <<-'END'
		import os, subprocess, sys
		here, there = os.openpty()
		done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=there, timeout=60)
		os.close(there)
		seen = b''
		try:
		    while more := os.read(here, 65536):
		        seen += more
		except OSError:
		    pass
		sys.stdout.buffer.write(seen.replace(b'\r', b''))
		sys.exit(done.returncode)
	END
	printf '%s\n' "$@" | LC_ALL=C sort | diff - <(LC_ALL=C sort "$WORK/seen")
}
# check_image NAME LOCATION: compares what is copied from LOCATION with the filesystem mounted on $MNT
check_image() {
	local name=$1 location=$2
	check "$name: cp of everything" platter cp --recursive "$location/" "$room/copy"
	check "$name: the copy is as the mounted filesystem" trees_equal "$MNT" "$room/copy"
	check "$name: holes stay holes" test "$(du -k "$room/copy/sparse" | cut -f 1)" -lt 1000
	check "$name: one file has both names" test "$room/copy/etc/hostname" -ef "$room/copy/etc/deep/second-name"
	rm -rf "$room/copy"
	check "$name: cat" cmp <(platter cat "$location/etc/hostname") "$MNT/etc/hostname"
	check "$name: cat of a sparse file" cmp <(platter cat "$location/sparse") "$MNT/sparse"
	check "$name: cat through links" cmp <(platter cat "$location/absolute/../name") "$MNT/etc/hostname"
	check "$name: a path above the root is the root" cmp <(platter cat "$location/../../etc/deep/er/up/etc/hostname") "$MNT/etc/hostname"
	check "$name: ls" diff <(platter ls "$location/tree") <(find "$MNT/tree" -mindepth 1 -maxdepth 1 -printf '%P\n' | LC_ALL=C sort)
	check "$name: ls -l" grep -q -- '^-rwsr-xr-x ' <(platter ls --long "$location/")
	check "$name: find" diff <(platter find "$location/tree" | sort) <(cd "$MNT" && find tree -printf '/%p\n' | sort)
	check "$name: find --name" test "$(platter find "$location/" --name 'host*e' | tr '\n' ' ')" = "/etc/hostname "
	check "$name: names are bytes" cmp <(platter ls --print0 "$location/") <(find "$MNT" -mindepth 1 -maxdepth 1 -printf '%P\0' | LC_ALL=C sort -z)
	check "$name: paths are bytes" cmp <(platter find "$location/" --print0 | LC_ALL=C sort -z) <(cd "$MNT" && find . -printf '/%P\0' | LC_ALL=C sort -z)
	check "$name: a line end is not escaped either" test "$(platter find "$location/" --name 'line*')" = $'/line\nbreak'
	check "$name: JSON has it as it is" jq -s -e 'any(.name == "line\nbreak")' <(platter --json ls "$location/")
	check "$name: and other bytes in hexadecimal" test "$(platter --json ls "$location/odd" | jq -r 'select(.name_bytes).name_bytes')" = fffe62696e
	check "$name: a terminal gets names that it cannot execute" on_terminal "$location/odd" 'back\\slash' 'new\nline' 'new\\nline' '\377\376bin'
	for odd in $'\xff\xfebin' $'new\nline' 'back\slash' 'new\nline'; do
		check "$name: cat of $(printf %q "$odd")" test "$(platter cat "$location/odd/$odd")" = "$odd"
		rm -f "$WORK/odd"
		check "$name: cp of it" platter cp "$location/odd/$odd" "$WORK/odd"
	done
	check_exit "$EXIT_REFUSED" "$name: a link to itself" platter cat "$location/loop"
	check_exit "$EXIT_MISSING" "$name: a file that does not exist" platter cat "$location/etc/nothing"
	check_exit "$EXIT_REFUSED" "$name: cat of a directory" platter cat "$location/etc"
	check_exit "$EXIT_REFUSED" "$name: a file as a directory" platter ls "$location/etc/hostname/x"
	check_exit "$EXIT_REFUSED" "$name: cp of a directory needs --recursive" platter cp "$location/etc" "$WORK/copy"
	check_said "$name: and says so" 'recursive'
	mkdir "$WORK/into"
	check "$name: cp into a directory" platter cp "$location/etc/hostname" "$WORK/into"
	check "$name: takes the file's name" cmp "$WORK/into/hostname" "$MNT/etc/hostname"
	check_exit "$EXIT_REFUSED" "$name: nothing is overwritten" platter cp "$location/etc/hostname" "$WORK/into"
	ln -s "$WORK/elsewhere" "$WORK/into/name"
	check_exit "$EXIT_REFUSED" "$name: not even through a link" platter cp "$location/etc/name" "$WORK/into/name"
	check "$name: where the link points, nothing appeared" test ! -e "$WORK/elsewhere"
	rm -r "$WORK/into"
}

# shellcheck disable=SC2086  # several options
while IFS='|' read -r name mount_options mkfs; do
	SIZE=96M MANY_ATTRIBUTES=0
	case $name in
	xfs*) SIZE=320M MANY_ATTRIBUTES=60 ;;
	btrfs*) SIZE=160M MANY_ATTRIBUTES=60 ;;
	esac
	make_image "$mount_options" $mkfs
	check "$name: capture" platter capture "$WORK/disk" disk
	mount -o loop,ro,noatime "$WORK/disk" "$MNT"
	check_image "$name" disk:
	check "$name: the whole disk has a name" test "$(platter cat disk:disk/etc/hostname) $(platter ls disk | awk 'NR == 2 { print $1 }')" = 'lab disk'
	check "$name: ls of an image lists what it has" grep -q "${name%%[0-9 ,]*}" <(platter ls disk)
	umount "$MNT"
done <<-END
	ext4|rw|mke2fs -q -t ext4
	ext2 of 1 KiB blocks|rw|mke2fs -q -t ext2 -b 1024
	ext4 with contents in inodes|rw|mke2fs -q -t ext4 -O inline_data,ea_inode -I 512
	xfs|rw|mkfs.xfs -q -f
	xfs, inodes of 2 KiB|rw|mkfs.xfs -q -f -i size=2048
	xfs, directory blocks of 64 KiB, blocks of 1 KiB|rw|mkfs.xfs -q -f -b size=1024 -n size=65536
	btrfs|rw|mkfs.btrfs -q -f
	btrfs, zlib|compress-force=zlib|mkfs.btrfs -q -f -M
	btrfs, lzo|compress-force=lzo|mkfs.btrfs -q -f --mixed
	btrfs, zstd|compress-force=zstd|mkfs.btrfs -q -f -n 4096 -s 4096 --mixed
END

# Subvolumes and snapshots appear as directories, with their own files.
truncate -s 0 "$WORK/disk"
truncate -s 160M "$WORK/disk"
mkfs.btrfs -q -f "$WORK/disk"
mount -o loop "$WORK/disk" "$MNT"
btrfs -q subvolume create "$MNT/@" || btrfs subvolume create "$MNT/@" >/dev/null
echo one >"$MNT/@/file"
btrfs subvolume create "$MNT/@/nested" >/dev/null
echo deep >"$MNT/@/nested/deep"
btrfs subvolume snapshot -r "$MNT/@" "$MNT/@/before" >/dev/null
echo two >"$MNT/@/file"
btrfs subvolume snapshot "$MNT/@/before" "$MNT/deleted" >/dev/null
btrfs subvolume delete "$MNT/deleted" >/dev/null
umount "$MNT"
check "subvolumes: capture" platter capture "$WORK/disk" subvolumes
check "subvolumes: all files" test "$(platter find subvolumes:/ | sort | tr '\n' ' ')" = "/ /@ /@/before /@/before/file /@/before/nested /@/file /@/nested /@/nested/deep "
check "subvolumes: the subvolume's own file" test "$(platter cat subvolumes:/@/file)" = two
check "subvolumes: a snapshot does not contain the subvolumes of its original" test -z "$(platter ls subvolumes:/@/before/nested)"
check "subvolumes: a copy" platter cp -r subvolumes:/ "$WORK/subvolumes"
check "subvolumes: with the file of the nested one" test "$(cat "$WORK/subvolumes/@/nested/deep")" = deep
check "subvolumes: that of the snapshot" test "$(platter cat subvolumes:/@/before/file)" = one

# Filesystems of other systems: names and contents, as their own drivers wrote them. Times only to the precision of the filesystem.
others=$WORK/others
mkdir -p "$others/A folder with a long name/deep" "$others/many"
file_tree "$others/tree" 6 others
: >"$others/nothing"
printf 'ünï — 漢字' >"$others/naïve 漢字 name.txt"
for number in $(seq 300); do echo "$number" >"$others/many/a long name, number $number.txt"; done
seq 200000 >"$others/A folder with a long name/numbers"
same_names_and_contents() {
	local tree
	for tree in "$1" "$2"; do
		(cd "$tree" && find . -type f -print0 | sort -z | xargs -0 sha256sum && find . -mindepth 1 -printf '%y %P\n' | sort) >"$WORK/list-$(basename "$tree")"
	done
	diff "$WORK/list-$(basename "$1")" "$WORK/list-$(basename "$2")"
}
# fill_other: the tree and what this filesystem can hold, with its driver at $MNT
fill_other() {
	cp -r "$others/." "$MNT/"
	for number in $(seq 30); do cp "$others/nothing" "$MNT/gone-$number"; seq "$number" >"$MNT/gone-$number"; done
	rm "$MNT"/gone-*
	sync "$MNT"
}
# with_driver COMMAND FILE: mounts the file system by FUSE, fills it, unmounts it
with_driver() {
	attach "$2"
	$1 "$DEVICE" "$MNT"
	"${3:-fill_other}"
	umount "$MNT"
	until_true 20 losetup -d "$DEVICE" && rm -f "$WORK/loops/${DEVICE##*/}"
}
# check_other NAME
check_other() {
	check "$1: capture" platter capture "$WORK/disk" other
	check "$1: cp of everything" platter cp --recursive other:/ "$WORK/other-copy"
	check "$1: names and contents" same_names_and_contents "$others" "$WORK/other-copy"
	check "$1: cat" cmp <(platter cat "other:/A folder with a long name/numbers") "$others/A folder with a long name/numbers"
	check "$1: find" test "$(platter find other:/many | wc -l)" = 301
	local changed
	changed=$(platter --json ls other:/ | jq -s '[.[] | select(.name == "nothing")][0].mtime')
	check "$1: times" test "$(($(date +%s) - changed))" -lt 100000
	rm -r "$WORK/other-copy"
}
for sectors in 8M:-F12 64M:-F16 64M:-F32; do
	truncate -s 0 "$WORK/disk" && truncate -s "${sectors%:*}" "$WORK/disk"
	mkfs.vfat "${sectors#*:}" -n LABEL "$WORK/disk" >/dev/null
	MTOOLS_SKIP_CHECK=1 mcopy -s -Q -i "$WORK/disk" "$others"/* :: </dev/null
	check_other "FAT ${sectors#*:}"
done
truncate -s 0 "$WORK/disk" && truncate -s 64M "$WORK/disk"
mkfs.exfat "$WORK/disk" >/dev/null
with_driver mount.exfat-fuse "$WORK/disk"
check_other exFAT
truncate -s 0 "$WORK/disk" && truncate -s 64M "$WORK/disk"
mkfs.ntfs -q -F "$WORK/disk" >/dev/null 2>&1
with_driver 'ntfs-3g -o compression' "$WORK/disk"
check_other NTFS
# Compressed, sparse and linked files.
more_of_ntfs() {
	fill_other
	mkdir "$MNT/compressed"
	setfattr -h -n system.ntfs_attrib_be -v 0x00000800 "$MNT/compressed"
	cp "$others/A folder with a long name/numbers" "$MNT/compressed/"
	{ seq 3000; head -c 300000 /dev/zero; random 300000 x; seq 100; } >"$MNT/compressed/mixed"
	truncate -s 3M "$MNT/sparse"
	printf end | dd of="$MNT/sparse" bs=1 seek=2000000 conv=notrunc status=none
	ln -s "many/../nothing" "$MNT/link"
	ln "$MNT/sparse" "$MNT/many/second name"
	setfattr -n user.zone -v outside "$MNT/sparse"
	# 1.3 MB as they are.
	du -k "$MNT/compressed/numbers" | cut -f 1 >"$WORK/compressed-kib"
	sha256sum "$MNT"/compressed/* "$MNT/sparse" | sed "s#$MNT/##" >"$WORK/ntfs-sums"
}
truncate -s 0 "$WORK/disk" && truncate -s 64M "$WORK/disk"
mkfs.ntfs -q -F -c 4096 "$WORK/disk" >/dev/null 2>&1
with_driver 'ntfs-3g -o compression' "$WORK/disk" more_of_ntfs
check "NTFS: capture of compressed files" platter capture "$WORK/disk" compressed
check "NTFS: they are compressed" test "$(cat "$WORK/compressed-kib")" -lt 900
check "NTFS: cp of everything" platter cp -r compressed:/ "$WORK/ntfs-copy"
check "NTFS: compressed and sparse contents" bash -c "cd '$WORK/ntfs-copy' && sha256sum -c --quiet '$WORK/ntfs-sums'"
check "NTFS: holes stay holes" test "$(du -k "$WORK/ntfs-copy/sparse" | cut -f 1)" -lt 1000
check "NTFS: a symbolic link" test "$(readlink "$WORK/ntfs-copy/link")" = many/../nothing
check "NTFS: a named stream is an attribute" test "$(getfattr --absolute-names --only-values -n user.zone "$WORK/ntfs-copy/sparse")" = outside
check "NTFS: one file has both names" test "$WORK/ntfs-copy/sparse" -ef "$WORK/ntfs-copy/many/second name"

# A user copies what is his to copy; the rest is counted.
install -d -m 777 "$WORK/user" && chmod 755 "$WORK"
cp -r "$STORE" "$WORK/user/store" && chown -R nobody "$WORK/user/store"
check "a user copies" setpriv --reuid nobody --clear-groups "$PLATTER" --store "$WORK/user/store" cp -r disk:/etc "$WORK/user/etc"
check "with the contents" cmp "$WORK/user/etc/hostname" <(platter cat disk:/etc/hostname)
check "as himself" test "$(stat -c %U "$WORK/user/etc/hostname")" = nobody

# A directory that the kernel has turned into a hashed one keeps the mark of a block of names in the root of its index.
truncate -s 32M "$WORK/hashed"
mke2fs -q -t ext4 -O metadata_csum "$WORK/hashed"
mount -o loop "$WORK/hashed" "$MNT"
mkdir "$MNT/many"
for n in $(seq 1000); do : >"$MNT/many/a-rather-long-name-of-number-$n"; done
umount "$MNT"
check "a directory that was hashed by the kernel: capture" platter capture "$WORK/hashed" hashed
check "is listed" [ "$(platter find hashed:/many | wc -l)" = 1001 ]

# A file that the target cannot hold keeps nothing from the others.
truncate -s 8M "$WORK/too-large"
mke2fs -q -t ext2 "$WORK/too-large"
for name in first large last; do
	echo "$name" >"$WORK/contents"
	debugfs -w -R "write $WORK/contents $name" "$WORK/too-large" >/dev/null 2>&1
done
for size in 0x7ffffffffffff000 0x8000000000000000; do
	debugfs -w -R "set_inode_field large size $size" "$WORK/too-large" >/dev/null 2>&1
	platter capture "$WORK/too-large" too-large >/dev/null
	rm -rf "$WORK/all-but-one"
	check_exit "$EXIT_CORRUPT" "a tree with a file of $size bytes" platter cp -r too-large:/ "$WORK/all-but-one"
	check_said "names it" 'large'
	check "the others are copied, and no part of it" [ "$(ls "$WORK/all-but-one")" = "first
last
lost+found" ]
done

# What root cannot set is lost, so the exit code says so: a long attribute on a filesystem that has room for short ones only.
truncate -s 16M "$WORK/long-attributes" "$WORK/short-attributes"
mke2fs -q -t ext4 -O ea_inode "$WORK/long-attributes"
mke2fs -q -t ext4 "$WORK/short-attributes"
mkdir "$WORK/short"
mount -o loop "$WORK/long-attributes" "$MNT"
echo contents >"$MNT/file"
if setfattr -n user.long -v "0x$(head -c 9000 /dev/zero | xxd -p | tr -d '\n')" "$MNT/file" && umount "$MNT" && mount -o loop "$WORK/short-attributes" "$WORK/short"; then
	check "a file with a long attribute" platter capture "$WORK/long-attributes" attributes
	check_exit "$EXIT_CORRUPT" "root's copy without its attribute" platter cp attributes:/file "$WORK/short/file"
	check_said "the loss is reported, also with --quiet" 'FAILED owners, .* not set: 1; the first: user.long'
	check "the contents are there" test "$(cat "$WORK/short/file")" = contents
	check_exit "$EXIT_CORRUPT" "the tree without it" platter cp -r attributes:/ "$WORK/short/tree"
	platter_json cp attributes:/file "$WORK/short/again" >"$WORK/copied.json" || true
	check "JSON has it" jq -e '.not_set == 1 and .as_root' "$WORK/copied.json"
	umount "$WORK/short"
else
	! mountpoint -q "$MNT" || umount "$MNT"
	skip "a target without long attributes"
fi

# Partitions.
truncate -s 300M "$WORK/parted"
sfdisk -q "$WORK/parted" <<<$'label: gpt\nsize=100M\nsize=100M\nsize=50M\n'
attach "$WORK/parted"
for number in 1 2; do
	partx -u "$DEVICE" 2>/dev/null || partx -a "$DEVICE"
	mke2fs -q -t ext4 -L "part$number" "${DEVICE}p$number"
	mount "${DEVICE}p$number" "$MNT"
	echo "on $number" >"$MNT/file"
	umount "$MNT"
done
mkfs.vfat "${DEVICE}p3" >/dev/null
check "a disk with partitions is captured" platter capture "$DEVICE" parted
detach_loop "$DEVICE"
check "its partitions are listed" test "$(platter --json ls parted | jq -s -c '[.[] | [.number, .label, .is_readable]]')" = '[[1,"part1",true],[2,"part2",true],[3,null,true]]'
check "a file on the second one" test "$(platter cat parted:2/file)" = "on 2"
check "by version number" test "$(platter cat parted@1:1/file)" = "on 1"
check_exit "$EXIT_REFUSED" "without a number it is not clear which" platter cat parted:/file
check_said "the message lists them" '1 \(ext4\), 2 \(ext4\), 3 \(vfat\)'
check "an empty FAT volume" test -z "$(platter ls parted:3/)"
check_exit "$EXIT_MISSING" "a partition that does not exist" platter ls parted:7/
check_exit "$EXIT_MISSING" "the whole disk, if it has partitions" platter ls parted:disk/
check_said "is not meant" 'has a partition table'
check_exit "$EXIT_USAGE" "a number that is none" platter ls parted:x/
check_exit "$EXIT_MISSING" "an image that does not exist" platter ls absent:/

# An error for each file that cannot be read, and the others are copied.
hostile_image "$WORK/hostile"
check "a hostile disk is captured" platter capture "$WORK/hostile" hostile
check_exit "$EXIT_CORRUPT" "its files are copied as far as possible" timeout 60 "$PLATTER" --store "$STORE" cp -r hostile:/ "$WORK/hostile-copy"
check_said "what failed is named" 'FAILED .*bad'
check_said "also the name with a slash" 'invalid file name'
check "the others are there" test "$(cat "$WORK/hostile-copy/good")" = good
check "nothing appeared beside the target" test ! -e "$WORK/yy"
check_exit "$EXIT_CORRUPT" "find names what it cannot read, and goes on" platter find hostile:/ --name 'good'
check_said "both" '/bad: '
check_said "are printed" '^/good$'

# A directory with two names is entered once, and the other name is an error.
mkdir "$WORK/empty"
ext4_image "$WORK/twice" 16 "$WORK/empty"
debugfs -w -R "mkdir one" "$WORK/twice" >/dev/null 2>&1
debugfs -w -R "link one two" "$WORK/twice" >/dev/null 2>&1
check "a directory with two names is captured" platter capture "$WORK/twice" twice
check_exit "$EXIT_CORRUPT" "find tells of the second name" platter find twice:/
check_said "with its path" '/two: the directory has several names'

# Damaged contents: an error for the file, with the exit code for damage, and the others are copied.
STORE=$WORK/damaged
mkdir "$WORK/tree"
for name in first last; do echo "$name" >"$WORK/tree/$name"; done
random 12000000 damaged >"$WORK/tree/middle"
ext4_image "$WORK/disk" 32 "$WORK/tree"
platter init >/dev/null
platter capture "$WORK/disk" disk >/dev/null
pack=$(find "$STORE/packs" -name '*.pack' -size +1M)
printf 'damaged!' | dd of="$pack" bs=1 seek=$(($(stat -c %s "$pack") / 2)) conv=notrunc status=none
check_exit "$EXIT_CORRUPT" "cat of a damaged file" platter cat disk:/middle
check_said "names it" 'disk:/middle'
check_exit "$EXIT_CORRUPT" "cp of a damaged file" platter cp disk:/middle "$WORK/middle"
check "leaves nothing that could pass for it" test ! -e "$WORK/middle"
check_exit "$EXIT_CORRUPT" "cp of the tree" platter cp -r disk:/ "$WORK/damaged-copy"
check_said "names it" 'FAILED .*middle'
check "and copies the others" diff -r -x middle -x lost+found "$WORK/tree" "$WORK/damaged-copy"

# A damaged partition: the others are read.
STORE=$WORK/damaged-partition
platter init >/dev/null
check "a disk is captured, and one of its partitions damaged" damaged_partition
check_exit "$EXIT_CORRUPT" "the partitions are listed" platter ls lab/multi@1
check_said "the damaged one as such" '^ +2 .* damaged$'
check_said "the one after it" '^ +3 .* ext4 .* yes$'
check_said "with image and partition" 'partition 2 of lab/multi@1 is damaged: '
check_said "and with what to do" 'capture the same disk again or use .platter heal.; .platter export --holes'
partitions=$(platter_json ls lab/multi@1 2>/dev/null | jq -s -c '[.[] | [.number, .is_readable, has("damage")]]' || true)
check "JSON has the damage, too" test "$partitions" = '[[1,true,false],[2,false,true],[3,true,false]]'
check "a directory of another" test "$(platter ls lab/multi@1:3/etc)" = hostname
check "a file of another" test "$(platter cat lab/multi@1:3/etc/hostname)" = multi
check "a copy of another" platter cp -r lab/multi@1:3/etc "$WORK/multi-etc"
check "find in another" test "$(platter find lab/multi@1:1/etc | paste -sd ' ')" = '/etc /etc/hostname'
check_exit "$EXIT_CORRUPT" "the damaged one itself" platter ls lab/multi@1:2/
check_said "is named" 'partition 2 of lab/multi@1 is damaged: .*checksum.*platter heal'
check_exit "$EXIT_REFUSED" "without a number it is not clear which" platter cat lab/multi@1:/etc/hostname
check_said "the message lists them" '1 \(ext4\), 2 \(damaged\), 3 \(ext4\)'
check "the disk is captured again" platter capture "$WORK/multi" lab/multi
check_exit 0 "which repairs it" platter ls lab/multi@2:2/new
finish
