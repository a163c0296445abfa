#!/usr/bin/env bash
# tests/xfs-btrfs.sh
#
# XFS and btrfs: filesystems of many layouts are mounted, filled, captured, and installed over other bytes. Their own
# checkers must be satisfied with the copy, every file must be the same with all its metadata, deleted contents must not
# be in the store, and not much more than the space in use may be captured. Filesystems whose maps cannot be trusted are
# refused or stored in full, with the reason. PLATTER_SIZE=full tests every layout.
. "$(dirname "$0")/lib.sh"
. "$TESTS/facts.sh"

need_root "mounting filesystems" || { finish; exit 0; }

readonly MARKER='PLATTER DELETED CONTENTS.'
readonly DISK=$WORK/disk TARGET=$WORK/target
# Smaller filesystems than mkfs.xfs makes otherwise.
export TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1

quick() { [ "${PLATTER_SIZE:-quick}" = quick ]; }

# -------------------------------------------------------------------- contents

marked() { yes "$MARKER" | head -c "$1" || [ $? = 141 ]; }

# fill DIR: files of all kinds, and deleted ones between them
fill() {
	local dir=$1 n
	marked 6000000 >"$dir/gone-1"
	cp -a "$WORK/tree/." "$dir"
	sync -f "$dir"
	for n in $(seq 40); do marked 30000 >"$dir/many/gone-$n"; done
	marked 4000000 >"$dir/gone-2"
	sync -f "$dir"
	ln "$dir/numbers.txt" "$dir/hard-link"
	ln -s numbers.txt "$dir/link"
	ln -s "$(head -c 900 /dev/zero | tr '\0' y)" "$dir/long-link"
	mkfifo "$dir/fifo"
	mknod "$dir/node" c 1 3
	truncate -s 5M "$dir/sparse"
	for n in 0 17 700 1200; do printf 'at %d' "$n" | dd of="$dir/sparse" bs=4096 seek="$n" conv=notrunc status=none; done
	fallocate -l 1M "$dir/unwritten"
	printf 'some' | dd of="$dir/unwritten" bs=4096 seek=100 conv=notrunc status=none
	# Appends to two files in turn fragment both; then one is overwritten in places.
	for n in $(seq 40); do
		random 9000 "a $n" >>"$dir/in-pieces-1"
		random 13000 "b $n" >>"$dir/in-pieces-2"
		sync "$dir/in-pieces-1" "$dir/in-pieces-2"
	done
	if cp --reflink=always "$dir/in-pieces-2" "$dir/shared" 2>/dev/null; then
		random 5000 over | dd of="$dir/shared" bs=1000 seek=100 conv=notrunc status=none
		cp --reflink=always "$dir/random-1.bin" "$dir/shared-whole"
	fi
	setfattr -n user.short -v value "$dir/numbers.txt"
	setfattr -n user.long -v "$(head -c 3000 /dev/zero | tr '\0' v)" "$dir/many/1.txt"
	chmod 6751 "$dir/many/2.txt"
	chown 1234:70000 "$dir/many/3.txt"
	touch -d '1999-12-31 23:59:58.123456789' "$dir/many/4.txt"
	sync -f "$dir"
	rm "$dir"/gone-* "$dir"/many/gone-*
	sync -f "$dir"
}

# ------------------------------------------------------------------- each kind

# make_xfs MIB OPTION..., make_btrfs MIB OPTION...: makes a filesystem on $DISK over old contents, and attaches it
make_xfs() {
	fresh "$1"
	shift
	mkfs.xfs -q -f -K "$@" "$DEVICE"
}
make_btrfs() {
	fresh "$1"
	shift
	mkfs.btrfs -q -f -K "$@" "$DEVICE"
}
fresh() { # MIB
	rm -f "$DISK"
	marked $(($1 << 20)) >"$DISK"
	# The start of btrfs is reserved for boot loaders, and always kept.
	dd if=/dev/zero of="$DISK" bs=1M count=1 conv=notrunc status=none
	attach "$DISK" ${SECTOR:+--sector-size "$SECTOR"}
}

# used_xfs, used_btrfs: bytes in use on $DEVICE according to its own tools
used_xfs() {
	xfs_db -r -c 'sb 0' -c 'p dblocks fdblocks blocksize' "$DEVICE" |
		awk '{ value[$1] = $3 } END { printf "%.0f", (value["dblocks"] - value["fdblocks"]) * value["blocksize"] }'
}
used_btrfs() {
	mount "$DEVICE" "$MNT"
	btrfs filesystem usage -b "$MNT" | awk '$1 == "Used:" { print $2 }'
	umount "$MNT"
}

sound_xfs() { xfs_repair -n "$1"; }
sound_btrfs() { btrfs check --readonly --check-data-csum "$1"; }

# ------------------------------------------------------------------- the rounds

# take NAME: captures $DISK and installs it over other bytes
take() {
	platter_json capture "$DISK" "$1" --audit >"$WORK/report" || return 1
	rm -f "$TARGET"
	head -c "$(stat -c %s "$DISK")" /dev/zero | tr '\0' '\252' >"$TARGET"
	attach "$TARGET"
	platter install "$1" "$DEVICE" --yes --verify
}

# little FACTOR: at most 3 % (and 1 MiB for what is outside of extents) more than in use was captured
little() {
	local captured
	captured=$(jq .allocated_bytes "$WORK/report")
	echo "captured $captured bytes, in use $USED"
	[ "$captured" -le $((USED + USED * 3 / 100 + (1 << 20))) ]
}

nothing_deleted() {
	grep -qaF "$MARKER" "$DISK" || { echo "the disk has no deleted contents"; return 1; }
	rm -f "$WORK/exported"
	platter export "$1" "$WORK/exported" && ! grep -qaF "$MARKER" "$WORK/exported"
}

# round NAME KIND MIB MKFS-OPTION...: with $MOUNT as mount options, and $CHANGE as a function that changes the mounted
# filesystem further
round() {
	local name=$1 kind=$2 source
	shift 2
	if ! "make_$kind" "$@" >"$LOG" 2>&1 || ! mount ${MOUNT:+-o "$MOUNT"} "$DEVICE" "$MNT" >>"$LOG" 2>&1; then
		skip "$name cannot be made or mounted here: $(tail -n 1 "$LOG")"
		detach_loop "$DEVICE"
		return
	fi
	source=$DEVICE
	fill "$MNT"
	${CHANGE:-true} "$MNT"
	umount "$MNT"
	mount "$source" "$MNT"
	facts "$MNT" >"$WORK/facts"
	umount "$MNT"
	DEVICE=$source
	USED=$("used_$kind")
	detach_loop "$source"
	check "$name: capture and install" take "$name"
	check "$name: read by its own maps" jq -e '.filesystems[0].notes // [] | length == 0' "$WORK/report"
	check "$name: captured about what is in use" little
	echo "# $name: $(tail -n 1 "$LOG")"
	check "$name: its checker finds no errors" "sound_$kind" "$DEVICE"
	mount -o ro "$DEVICE" "$MNT"
	check "$name: every file and its metadata" diff "$WORK/facts" <(facts "$MNT")
	umount "$MNT"
	detach_loop "$DEVICE"
	check "$name: nothing that was deleted" nothing_deleted "$name"
}

# whole NAME REASON: $DISK is stored in full, with a note
whole() {
	check "$1: capture" "$PLATTER" --store "$STORE" capture "$DISK" "$1"
	check_said "$1: the reason is reported" "$2"
	check "$1: every byte" same_bytes "$1"
}
same_bytes() {
	rm -f "$WORK/exported"
	platter export "$1" "$WORK/exported" && cmp "$DISK" "$WORK/exported"
}

# unclean NAME KIND MIB OPTION...: a copy of a mounted filesystem with changes in its log is refused, or stored in full
unclean() {
	local name=$1 kind=$2 n
	shift 2
	"make_$kind" "$@"
	mount "$DEVICE" "$MNT"
	file_tree "$MNT/tree" 4 "$name"
	sync -f "$MNT"
	for n in $(seq 20); do
		random 50000 "log $n" >"$MNT/only-in-log-$n"
		sync "$MNT/only-in-log-$n"
	done
	cp "$DISK" "$WORK/copy"
	umount "$MNT"
	detach_loop "$DEVICE"
	mv "$WORK/copy" "$DISK"
	check_exit "$EXIT_REFUSED" "$name: refused" platter capture "$DISK" "$name"
	check_said "$name: the reason is reported" 'was not unmounted|changes that were not applied'
	check "$name: stored in full if forced" "$PLATTER" --store "$STORE" capture "$DISK" "$name" --force
	check "$name: every byte" same_bytes "$name"
}

file_tree "$WORK/tree" 12 xfs-btrfs
check "init" platter init

# -------------------------------------------------------------------------- XFS

round xfs xfs 96
round xfs-1k-reverse-map xfs 96 -b size=1024 -m rmapbt=1 -n size=64k
SECTOR=4096 round xfs-4k-sectors xfs 96 -s size=4096 -i nrext64=1
if ! quick; then
	round xfs-64k xfs 256 -b size=65536
	round xfs-2k-inodes xfs 96 -i size=2048
	round xfs-plain xfs 96 -m finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0
	round xfs-groups xfs 400 -d agcount=16
	MOUNT=uquota,gquota,pquota round xfs-quota xfs 96
fi
unclean xfs-unclean xfs 64
truncate -s 64M "$WORK/other"
attach "$WORK/other"
other=$DEVICE
fresh 64
mkfs.xfs -q -f -K -l logdev="$other,size=16m" "$DEVICE"
detach_loop "$DEVICE"
whole xfs-external-log 'log is on another device'
fresh 64
mkfs.xfs -q -f -K -r rtdev="$other" "$DEVICE"
detach_loop "$DEVICE"
whole xfs-realtime 'realtime'
detach_loop "$other"

# ------------------------------------------------------------------------ btrfs

# snapshots DIR: subvolumes, snapshots and changes after them
snapshots() {
	local n
	btrfs -q subvolume create "$1/volume"
	cp -a "$WORK/tree/many" "$1/volume"
	for n in 1 2 3; do
		btrfs -q subvolume snapshot "$1/volume" "$1/snapshot-$n"
		random 70000 "snapshot $n" >"$1/volume/new-$n"
		printf 'changed' | dd of="$1/volume/new-1" bs=1000 seek=$((n * 10)) conv=notrunc status=none
	done
	sync -f "$1"
	btrfs -q subvolume delete --commit-after "$1/snapshot-2"
	btrfs -q subvolume sync "$1"
}

CHANGE=snapshots round btrfs btrfs 256
# A hundred snapshots of a volume that changes between them, of which every tenth is deleted.
hundred() {
	local n
	btrfs -q subvolume create "$1/volume"
	cp -a "$WORK/tree/many/1".txt "$WORK/tree/many/2"*.txt "$1/volume"
	random 300000 hundred >"$1/volume/changes"
	mkdir "$1/snapshots"
	for n in $(seq 111); do
		random 5000 "hundred $n" | dd of="$1/volume/changes" bs=1000 seek=$((n * 2)) conv=notrunc status=none
		if [ $((n % 10)) = 0 ]; then marked 40000; else random 700 "$n"; fi >"$1/volume/last"
		btrfs -q subvolume snapshot -r "$1/volume" "$1/snapshots/$n"
	done
	for n in $(seq 10 10 110); do btrfs -q subvolume delete "$1/snapshots/$n"; done
	sync -f "$1"
	btrfs -q subvolume sync "$1"
}
CHANGE=hundred round btrfs-hundred-snapshots btrfs 256
check "btrfs-hundred-snapshots: there are so many" test "$(grep -c '^snapshots/[0-9]* d' "$WORK/facts")" = 100
MOUNT=compress=zstd round btrfs-mixed btrfs 128 --mixed
round btrfs-xxhash btrfs 256 --csum xxhash -m single
if ! quick; then
	round btrfs-sha256 btrfs 256 --csum sha256 -d dup
	CHANGE=snapshots round btrfs-block-group-tree btrfs 256 -O block-group-tree
	MOUNT=space_cache=v1 round btrfs-plain btrfs 256 -O ^no-holes,^skinny-metadata,^extref -R ^free-space-tree
	MOUNT=compress-force=lzo round btrfs-lzo btrfs 256 -n 4096
	MOUNT=nodatacow round btrfs-nodatacow btrfs 256 -n 65536
fi
unclean btrfs-unclean btrfs 128
fresh 128
mkfs.btrfs -q -f -K --csum blake2 "$DEVICE"
detach_loop "$DEVICE"
whole btrfs-blake2 'checksums of type 3'
truncate -s 128M "$WORK/other-2"
attach "$WORK/other-2"
other=$DEVICE
fresh 128
mkfs.btrfs -q -f -K -d single -m raid1 "$DEVICE" "$other"
detach_loop "$DEVICE"
whole btrfs-two-devices 'has 2 devices'
detach_loop "$other"
fresh 128
mkfs.btrfs -q -f -K "$DEVICE"
btrfstune -S 1 "$DEVICE"
detach_loop "$DEVICE"
whole btrfs-seed 'seed of other'

# ---------------------------------------------------------------- shared with ext4

rm -rf "$WORK/tree"
# Large enough that the 2 MB of its log that XFS writes at every mount do not decide.
file_tree "$WORK/tree" 64 shared
readonly SHARED=$WORK/shared
files=$(du -sb --apparent-size "$WORK/tree" | cut -f1)
# twin KIND: at least 95 % of the bytes of files were known, even if all new bytes, such as metadata, are counted as files
twin() {
	local new source=$DEVICE
	mount "$DEVICE" "$MNT"
	cp -a "$WORK/tree/." "$MNT/"
	umount "$MNT"
	detach_loop "$source"
	"$PLATTER" --store "$SHARED" --quiet capture "$DISK" "$1" || return 1
	new=$("$PLATTER" --store "$SHARED" --json show "$1" | jq .new_raw_bytes)
	echo "$1: $new of $files bytes are new"
	[ "$new" -le $((files / 20)) ]
}
check "a second store" "$PLATTER" --store "$SHARED" init
ext4_image "$WORK/other" 128 "$WORK/tree"
check "ext4 in it" "$PLATTER" --store "$SHARED" capture "$WORK/other" ext4
for kind in xfs btrfs; do
	"make_$kind" 256
	check "a twin on $kind shares 95 %" twin "$kind"
	echo "# $(tail -n 1 "$LOG")"
done

check "the store is sound" platter check --read-data
finish
