#!/usr/bin/env bash
# tests/bitmaps.sh: ext filesystems whose bitmaps mark used blocks as free, one for each kind of block, with matching
# counts. Each is captured and installed over other bytes. Other tools must find the same in source and copy, before and
# after e2fsck -fy repaired both, and every file and attribute must be equal.
. "$(dirname "$0")/lib.sh"

command -v python3 >/dev/null || { skip "python3 is not installed"; finish; exit 0; }

tree=$WORK/tree
file_tree "$tree" 2 bitmaps
mkdir -p "$tree/some/directory"
random 70000 inside >"$tree/some/directory/inside"
ln -s "$(head -c 300 /dev/zero | tr '\0' y)" "$tree/long-link"
for n in 0 40 80 120 160 200 240 280; do
	random 3000 "piece $n" | dd of="$tree/in-pieces" bs=1024 seek="$n" conv=notrunc status=none
done

# base NAME MIB MKE2FS-OPTION...: makes a file system in a file of nonzero bytes, with the tree and an attribute block
base() {
	local file=$WORK/base-$1 mib=$2
	shift 2
	head -c $((mib << 20)) /dev/zero | tr '\0' '\247' >"$file"
	mke2fs -q -F -E nodiscard -d "$tree" "$@" "$file"
	random 600 attribute | base64 -w 0 >"$WORK/value"
	debugfs -w -R "ea_set -f $WORK/value /numbers.txt user.long" "$file" 2>/dev/null
	e2fsck -fy "$file" >"$LOG" 2>&1 || [ $? = 1 ]
}

# blocks_of IMAGE INODE KIND: the inode's blocks of this kind according to debugfs: IND, DIND, ETB0, or data
blocks_of() {
	local pattern='\([0-9]+(-[0-9]+)?\)'
	[ "$3" = data ] || pattern="\\($3\\)"
	debugfs -R "stat $2" "$1" 2>/dev/null | tr -d '\n' | grep -oE "$pattern:[0-9]+" | sed 's/.*://'
}
header() { dumpe2fs -h "$1" 2>/dev/null | awk -F: -v name="$2" '$1 == name { print $2 + 0 }'; }
attribute_block() { debugfs -R "stat /numbers.txt" "$1" 2>/dev/null | sed -n 's/.*File ACL: \([0-9]*\).*/\1/p'; }
# group_block IMAGE GROUP PATTERN: the first block that dumpe2fs prints for a group and matches
group_block() {
	dumpe2fs "$1" 2>/dev/null | sed -n "/^Group $2:/,/^Group $(($2 + 1)):/p" | grep -oE "$3 at [0-9]+" | grep -oE '[0-9]+$'
}

# findings FILE OPTION: the output of e2fsck, without the file's name
findings() { e2fsck "$2" "$1" 2>&1 | sed "s#$1##g"; }
everything() { # FILE DIRECTORY: its files and attributes
	rm -rf "$2"
	mkdir "$2"
	debugfs -R "rdump / $2" "$1" >/dev/null 2>&1
	debugfs -R "ea_get /numbers.txt user.long" "$1" >"$2.attribute" 2>/dev/null
}

# lies NAME BASE ARGUMENT...: makes a disk with a wrong bitmap (arguments of lying_bitmaps.py) and tests it. No
# arguments mean that no block of the kind was found
lies() {
	local name=$1 source=$WORK/source copy=$WORK/copy length
	cp "$WORK/base-$2" "$source"
	shift 2
	if [ $# = 0 ] || ! "$TESTS/lying_bitmaps.py" "$source" "$@" >"$LOG" 2>&1; then
		not_ok "$name: there is no such block"
		return
	fi
	length=$(stat -c %s "$source")
	check "$name: capture" "$PLATTER" --store "$STORE" capture "$source" bitmaps --audit
	check_said "$name: the reason is reported" 'stored in full'
	head -c "$length" /dev/zero | tr '\0' '\252' >"$copy"
	check "$name: install" platter install bitmaps "$copy" --yes --force not-a-disk
	check "$name: e2fsck finds the same" diff <(findings "$source" -fn) <(findings "$copy" -fn)
	check "$name: e2fsck mends the same" diff <(findings "$source" -fy) <(findings "$copy" -fy)
	everything "$source" "$WORK/theirs"
	everything "$copy" "$WORK/ours"
	check "$name: files are equal" diff -r --no-dereference "$WORK/theirs" "$WORK/ours"
	check "$name: attributes are equal" cmp "$WORK/theirs.attribute" "$WORK/ours.attribute"
}

plain='^metadata_csum,^uninit_bg'
base ext2 12 -t ext2 -b 1024 -I 128
base ext4 16 -t ext4 -b 1024 -I 128 -O "$plain"
base special 16 -t ext4 -b 1024 -I 128 -O "$plain,quota,mmp,orphan_file"
base clusters 16 -t ext4 -b 1024 -O "$plain,bigalloc" -C 4096
base inline 12 -t ext4 -b 1024 -I 256 -O "$plain,inline_data,ea_inode"
base groups 26 -t ext4 -b 1024 -I 128 -N 160 -O '^metadata_csum,uninit_bg,^flex_bg'
check "init" platter init

at() { mapfile -t found < <(blocks_of "$WORK/base-$1" "$2" "$3"); }
for kind in IND DIND data; do
	at ext2 /numbers.txt $kind
	lies "ext2: $kind of a file" ext2 "${found[@]:0:1}"
done
at ext2 '<7>' DIND
lies "ext2: the resize inode" ext2 "${found[@]}"
at ext2 / data
lies "ext2: the root directory" ext2 "${found[@]:0:1}"
at ext2 /many data
lies "ext2: a directory" ext2 "${found[@]}"
at ext2 /long-link data
lies "ext2: a symbolic link" ext2 "${found[@]}"
lies "ext2: a block of attributes" ext2 "$(attribute_block "$WORK/base-ext2")"
at ext4 /in-pieces ETB0
lies "ext4: a node of an extent tree" ext4 "${found[@]}"
at ext4 /in-pieces data
lies "ext4: an extent" ext4 "${found[@]:3:1}"
at ext4 /some/directory data
lies "ext4: a directory" ext4 "${found[@]}"
at ext4 /long-link data
lies "ext4: a symbolic link" ext4 "${found[@]}"
lies "ext4: a block of attributes" ext4 "$(attribute_block "$WORK/base-ext4")"
at ext4 '<8>' data
lies "ext4: the journal" ext4 "${found[@]:0:1}"
lies "a block bitmap" ext4 "$(group_block "$WORK/base-ext4" 1 'Block bitmap')"
lies "an inode bitmap" ext4 "$(group_block "$WORK/base-ext4" 1 'Inode bitmap')"
lies "an inode table" ext4 "$(group_block "$WORK/base-ext4" 0 'Inode table')"
lies "a backup superblock" ext4 "$(group_block "$WORK/base-ext4" 1 'Backup superblock')"
lies "backup group descriptors" ext4 "$(group_block "$WORK/base-ext4" 1 'Group descriptors')"
at special '<3>' data
lies "a quota file" special "${found[@]}"
lies "the block of mmp" special "$(header "$WORK/base-special" 'MMP block number')"
at special "<$(header "$WORK/base-special" 'Orphan file inode')>" data
lies "the orphan file" special "${found[@]:0:1}"
for path in /numbers.txt /some/directory; do
	at clusters "$path" data
	lies "a cluster of $path" clusters "${found[@]:0:1}"
done
at inline /numbers.txt data
lies "a file beside inline data" inline "${found[@]:0:1}"
# The inodes of /some/directory and what is in it are taken for never used.
inode=$(debugfs -R 'stat /some/directory/inside' "$WORK/base-groups" 2>/dev/null | sed -n 's/^Inode: \([0-9]*\).*/\1/p')
per_group=$(header "$WORK/base-groups" 'Inodes per group')
group=$(((inode - 1) / per_group))
at groups /some/directory/inside data
lies "a group whose inodes are called unused" groups "uninit-inodes=$group" "unused=$group:$per_group" "${found[@]:0:1}"
lies "inodes behind the last that was used" groups "unused=$group:$((per_group - (inode - 1) % per_group))" "${found[@]:0:1}"
lies "a group whose bitmap is called unwritten" groups "uninit-blocks=$((group == 0 ? 1 : group))"
check "the store is sound" platter check --read-data
finish
