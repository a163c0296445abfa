#!/usr/bin/env bash
# Sourced by suites that compare files in images with the same filesystem mounted by the kernel: makes filesystems with everything
# that they can hold, and compares two trees.
# shellcheck disable=SC2034,SC2154  # WORK and MNT are of lib.sh

# trees_equal A B: names, types, modes, owners, times, targets, link counts, contents, attributes
trees_equal() {
	local tree
	for tree in "$1" "$2"; do
		(
			cd "$tree" || exit
			find . -mindepth 1 \( -type f -printf '%P\t%y %m %U %G %T@ %s %n\n' -o -type l -printf '%P\t%y %U %G %T@ %l\n' -o -printf '%P\t%y %m %U %G %T@\n' \) | sort
			find . -type f -print0 | sort -z | xargs -0 sha256sum
			find . \( -type b -o -type c \) -exec stat -c '%n %t %T' {} + | sort
			find . -mindepth 1 -print0 | sort -z | xargs -0 getfattr -h -d -m - --absolute-names 2>/dev/null |
				# The form in which XFS stores access lists, which getfacl shows.
				grep -v '^trusted.SGI_ACL_'
			find . -mindepth 1 ! -type l -print0 | sort -z | xargs -0 getfacl -p
		) >"$WORK/tree-$(basename "$tree")"
	done
	diff "$WORK/tree-$(basename "$1")" "$WORK/tree-$(basename "$2")"
}

# A tree with everything that a filesystem can hold.
fill() {
	local name
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
	mkdir "$1/odd"
	for name in $'\xff\xfebin' $'new\nline' 'back\slash' 'new\nline'; do printf %s "$name" >"$1/odd/$name"; done
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

# make_image MOUNT_OPTIONS COMMAND...: a new filesystem on $WORK/disk, filled
make_image() {
	local options=$1
	shift
	truncate -s 0 "$WORK/disk"
	truncate -s "${SIZE:-96M}" "$WORK/disk"
	"$@" "$WORK/disk" >/dev/null
	mount -o "loop,$options" "$WORK/disk" "$MNT"
	fill "$MNT"
	# Directories in blocks, in a tree of blocks, and attributes that are not in the inode.
	mkdir "$MNT/many" "$MNT/few"
	(cd "$MNT/many" && seq -f 'a file with a rather long name, number %g' 3000 | xargs -d '\n' touch -d @1000000000 --)
	(cd "$MNT/few" && seq -f 'number %g' 40 | xargs -d '\n' touch -d @1000000000 --)
	[ "${MANY_ATTRIBUTES:-0}" = 0 ] || for n in $(seq "$MANY_ATTRIBUTES"); do
		setfattr -n "user.attribute-$n" -v "$(head -c $((n * 20)) /dev/zero | tr '\0' v)" "$MNT/nothing"
	done
	umount "$MNT"
}

# hostile_image FILE: an ext4 filesystem with directories that contain each other, a name that leads away, and a damaged inode
hostile_image() {
	truncate -s 16M "$1"
	mke2fs -q -t ext4 -O '^metadata_csum,^dir_index,^has_journal' "$1"
	mount -o loop "$1" "$MNT"
	mkdir -p "$MNT/a/b" "$MNT/evil"
	echo good >"$MNT/good"
	echo bad >"$MNT/bad"
	touch "$MNT/evil/xx_yy"
	umount "$MNT"
	debugfs -w -R 'link /a /a/b/again' "$1" 2>/dev/null
	debugfs -w -R 'set_inode_field /bad mode 0' "$1" 2>/dev/null
	# The kernel creates no such name.
	sed -i 's#xx_yy#../yy#' "$1"
}

# damaged_partition: captures lab/multi twice, with partitions of ext4, FAT and ext4. In the second version, /new is added to the
# last two. Then the store's data of the second partition is damaged where a filesystem is searched for.
damaged_partition() {
	local number start=1
	mkdir -p "$WORK/multi-tree/etc"
	echo multi >"$WORK/multi-tree/etc/hostname"
	echo new >"$WORK/new"
	truncate -s 60M "$WORK/multi"
	sfdisk -q --no-tell-kernel "$WORK/multi" <<<$'label: gpt\nsize=16M\nsize=16M\nsize=16M\n'
	ext4_image "$WORK/part-1" 16 "$WORK/multi-tree"
	ext4_image "$WORK/part-3" 16 "$WORK/multi-tree"
	truncate -s 0 "$WORK/part-2" && truncate -s 16M "$WORK/part-2"
	mkfs.vfat -R 2000 "$WORK/part-2" >/dev/null
	# In the reserved sectors, which are captured: incompressible, so it can be found in a pack.
	random 900000 reserved >"$WORK/reserved"
	dd if="$WORK/reserved" of="$WORK/part-2" bs=1K seek=64 conv=notrunc status=none
	for number in 1 2 3; do
		dd if="$WORK/part-$number" of="$WORK/multi" bs=1M seek="$start" conv=notrunc status=none
		start=$((start + 16))
	done
	platter capture "$WORK/multi" lab/multi >/dev/null
	mcopy -i "$WORK/part-2" "$WORK/new" ::
	debugfs -w -R "write $WORK/new new" "$WORK/part-3" >/dev/null 2>&1
	dd if="$WORK/part-2" of="$WORK/multi" bs=1M seek=17 conv=notrunc status=none
	dd if="$WORK/part-3" of="$WORK/multi" bs=1M seek=33 conv=notrunc status=none
	platter capture "$WORK/multi" lab/multi >/dev/null
	damage_pack "$WORK/reserved" 140000
}
