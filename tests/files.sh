#!/usr/bin/env bash
# tests/files.sh: ls, find, cat and cp of files in images, compared with the same filesystem mounted by the kernel. Hostile
# names and links do not leave the target.
. "$(dirname "$0")/lib.sh"

need_root "mounting filesystems" || { finish; exit 0; }
check "init" platter init


# trees_equal A B: names, types, modes, owners, times, targets, link counts, contents, attributes
trees_equal() {
	local tree
	for tree in "$1" "$2"; do
		(
			cd "$tree"
			find . -mindepth 1 \( -type f -printf '%P\t%y %m %U %G %T@ %s %n\n' -o -type l -printf '%P\t%y %U %G %T@ %l\n' -o -printf '%P\t%y %m %U %G %T@\n' \) | sort
			find . -type f -print0 | sort -z | xargs -0 sha256sum
			find . \( -type b -o -type c \) -exec stat -c '%n %t %T' {} + | sort
			find . -mindepth 1 -print0 | sort -z | xargs -0 getfattr -h -d -m - --absolute-names 2>/dev/null
			find . -mindepth 1 ! -type l -print0 | sort -z | xargs -0 getfacl -p
		) >"$WORK/tree-$(basename "$tree")"
	done
	diff "$WORK/tree-$(basename "$1")" "$WORK/tree-$(basename "$2")"
}

# A tree with everything that a filesystem can hold.
fill() {
	file_tree "$1/tree" 12 files
	mkdir -p "$1/etc/deep/er" "$1/empty" "$1/sticky"
	echo "lab" >"$1/etc/hostname"
	ln -s hostname "$1/etc/name"
	ln -s /etc/deep "$1/absolute"
	ln -s ../../.. "$1/etc/deep/er/up"
	ln -s loop "$1/loop"
	ln "$1/etc/hostname" "$1/etc/deep/second-name"
	truncate -s 5M "$1/sparse"
	printf end | dd of="$1/sparse" bs=1 seek=3000000 conv=notrunc status=none
	: >"$1/nothing"
	printf 'odd' >"$1/$(printf 'line\nbreak')"
	mknod "$1/null" c 1 3
	mknod "$1/disk" b 259 70000
	mkfifo "$1/pipe"
	setfattr -n user.color -v blue "$1/etc/hostname"
	setfattr -n trusted.note -v x "$1/etc"
	setfacl -m u:1234:r,g:77:rw "$1/etc/hostname"
	setfacl -d -m u:1234:r "$1/empty"
	chown -h 1000:1001 "$1/etc/name" "$1/etc/hostname" "$1/null"
	chmod 4755 "$1/nothing"
	chmod 1777 "$1/sticky"
	touch -h -d '2001-02-03 04:05:06.789' "$1/etc/name" "$1/etc/deep"
}

# check_image NAME LOCATION: compares what is copied from LOCATION with the filesystem mounted on $MNT
check_image() {
	local name=$1 location=$2
	check "$name: cp of everything" platter cp --recursive "$location/" "$WORK/copy"
	check "$name: the copy is as the mounted filesystem" trees_equal "$MNT" "$WORK/copy"
	check "$name: holes stay holes" test "$(du -k "$WORK/copy/sparse" | cut -f 1)" -lt 1000
	check "$name: one file has both names" test "$WORK/copy/etc/hostname" -ef "$WORK/copy/etc/deep/second-name"
	rm -rf "$WORK/copy"
	check "$name: cat" cmp <(platter cat "$location/etc/hostname") "$MNT/etc/hostname"
	check "$name: cat of a sparse file" cmp <(platter cat "$location/sparse") "$MNT/sparse"
	check "$name: cat through links" cmp <(platter cat "$location/absolute/../name") "$MNT/etc/hostname"
	check "$name: a path above the root is the root" cmp <(platter cat "$location/../../etc/deep/er/up/etc/hostname") "$MNT/etc/hostname"
	check "$name: ls" diff <(platter ls "$location/tree") <(find "$MNT/tree" -mindepth 1 -maxdepth 1 -printf '%P\n' | LC_ALL=C sort)
	check "$name: ls -l" grep -q -- '^-rwsr-xr-x ' <(platter ls --long "$location/")
	check "$name: find" diff <(platter find "$location/tree" | sort) <(cd "$MNT" && find tree -printf '/%p\n' | sort)
	check "$name: find --name" test "$(platter find "$location/" --name 'host*e' | tr '\n' ' ')" = "/etc/hostname "
	check "$name: a name with a line break is one line" grep -qxF 'line\nbreak' <(platter ls "$location/")
	check "$name: JSON has it as it is" jq -s -e 'any(.name == "line\nbreak")' <(platter --json ls "$location/")
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

for options in '-t ext4' '-t ext2 -b 1024' '-t ext4 -O inline_data,ea_inode -I 512'; do
	name="mke2fs $options"
	truncate -s 0 "$WORK/disk"
	truncate -s 96M "$WORK/disk"
	# shellcheck disable=SC2086  # several options
	mke2fs -q $options "$WORK/disk"
	mount -o loop "$WORK/disk" "$MNT"
	fill "$MNT"
	umount "$MNT"
	check "$name: capture" platter capture "$WORK/disk" disk
	mount -o loop,ro,noatime "$WORK/disk" "$MNT"
	check_image "$name" disk:
	check "$name: ls of an image lists what it has" grep -q 'ext' <(platter ls disk)
	umount "$MNT"
done

# A user copies what is his to copy; the rest is counted.
install -d -m 777 "$WORK/user" && chmod 755 "$WORK"
cp -r "$STORE" "$WORK/user/store" && chown -R nobody "$WORK/user/store"
check "a user copies" setpriv --reuid nobody --clear-groups "$PLATTER" --store "$WORK/user/store" cp -r disk:/etc "$WORK/user/etc"
check "with the contents" cmp "$WORK/user/etc/hostname" <(platter cat disk:/etc/hostname)
check "as himself" test "$(stat -c %U "$WORK/user/etc/hostname")" = nobody

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
check "its partitions are listed" test "$(platter --json ls parted | jq -s -c '[.[] | [.number, .label, .is_readable]]')" = '[[1,"part1",true],[2,"part2",true],[3,null,false]]'
check "a file on the second one" test "$(platter cat parted:2/file)" = "on 2"
check "by version number" test "$(platter cat parted@1:1/file)" = "on 1"
check_exit "$EXIT_REFUSED" "without a number it is not clear which" platter cat parted:/file
check_said "the message lists them" '1 \(ext4\), 2 \(ext4\)'
check_exit "$EXIT_REFUSED" "FAT is not read" platter ls parted:3/
check_exit "$EXIT_MISSING" "a partition that does not exist" platter ls parted:7/
check_exit "$EXIT_USAGE" "a number that is none" platter ls parted:x/
check_exit "$EXIT_MISSING" "an image that does not exist" platter ls other:/

# Directories that contain each other, names that lead away, a damaged inode: an error for the file, and the others are copied.
truncate -s 16M "$WORK/hostile"
mke2fs -q -t ext4 -O '^metadata_csum,^dir_index,^has_journal' "$WORK/hostile"
mount -o loop "$WORK/hostile" "$MNT"
mkdir -p "$MNT/a/b" "$MNT/evil"
echo good >"$MNT/good"
echo bad >"$MNT/bad"
touch "$MNT/evil/xx_yy"
umount "$MNT"
debugfs -w -R 'link /a /a/b/again' "$WORK/hostile" 2>/dev/null
debugfs -w -R 'set_inode_field /bad mode 0' "$WORK/hostile" 2>/dev/null
# The kernel creates no such name.
sed -i 's#xx_yy#../yy#' "$WORK/hostile"
check "a hostile disk is captured" platter capture "$WORK/hostile" hostile
check_exit "$EXIT_CORRUPT" "its files are copied as far as possible" timeout 60 "$PLATTER" --store "$STORE" cp -r hostile:/ "$WORK/hostile-copy"
check_said "what failed is named" 'FAILED .*bad'
check_said "also the name with a slash" 'invalid file name'
check "the others are there" test "$(cat "$WORK/hostile-copy/good")" = good
check "nothing appeared beside the target" test ! -e "$WORK/yy"
check_exit "$EXIT_CORRUPT" "find names what it cannot read, and goes on" platter find hostile:/ --name 'good'
check_said "both" '/bad: '
check_said "are printed" '^/good$'

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
finish
