#!/usr/bin/env bash
# tests/mount.sh: the files of images, mounted by `platter mount`, compared with the same filesystems mounted by their own drivers:
# contents, modes, owners, times, links, attributes, devices. Damaged and hostile disks are errors of single files. Who may use the
# mount, and how it ends.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/file-trees.sh"

need_root "mounting filesystems" || { finish; exit 0; }
SEEN=$WORK/seen
MOUNT=
mkdir "$SEEN"
chmod 711 "$WORK"
suite_cleanup() {
	[ -z "$MOUNT" ] || kill "$MOUNT" 2>/dev/null
	[ -z "$ORIGIN" ] || kill "$ORIGIN" 2>/dev/null
	umount -l "$SEEN" 2>/dev/null
	wait
}

# mount_with COMMAND ARGUMENT...: mounts with `COMMAND mount ARGUMENT... $SEEN`, and waits until it is there
mount_with() {
	local command=$1 tries=0
	shift
	: >"$WORK/mount.log"
	"$command" mount "$@" "$SEEN" >"$WORK/mount.log" 2>&1 &
	MOUNT=$!
	until grep -q '^mounted at' "$WORK/mount.log"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 1200 ] || ! kill -0 "$MOUNT" 2>/dev/null; then
			cat "$WORK/mount.log"
			return 1
		fi
		sleep 0.05
	done
}
here() { exec "$PLATTER" --store "$STORE" "$@"; }
shows() { mount_with here "$@"; }
unmount() { umount "$SEEN" && ends; }
# ends: the process of the mount ends by itself, without an error
ends() {
	local process=$MOUNT
	MOUNT=
	until_true 60 has_ended "$process" && wait "$process"
}
has_ended() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status"; }
mounted_read() { setpriv --reuid=65534 --regid=65534 --clear-groups cat "$SEEN/$1"; }

# names DIR: the names in it
names() { find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | paste -sd ' '; }

# more_equal A B: what copies cannot keep: times of access and of changes, allocated space, links of all kinds of files
more_equal() {
	diff <(cd "$1" && find . -mindepth 1 -printf '%P\t%A@ %C@ %b %n\n' | sort) <(cd "$2" && find . -mindepth 1 -printf '%P\t%A@ %C@ %b %n\n' | sort)
}
# files_equal A B FORMAT: what `find -printf FORMAT` says of the files and links in two trees
files_equal() {
	diff <(cd "$1" && find . \( -type f -o -type l \) -printf "$3\n" | sort) <(cd "$2" && find . \( -type f -o -type l \) -printf "$3\n" | sort)
}
# same_tar: tar makes the same archive of both mounts
same_tar() {
	local tree
	for tree in "$MNT" "$SEEN"; do tar -C "$tree" --format=gnu --sort=name -cf - . | sha256sum; done >"$WORK/tar-sums"
	test "$(uniq "$WORK/tar-sums" | wc -l)" = 1
}
# random_reads A B: 300 reads at any offset give the same bytes
random_reads() {
	python3 - "$1" "$2" "$SEED" <<-'END'
		import os, random, sys
		a, b = (os.open(name, os.O_RDONLY) for name in sys.argv[1:3])
		dice = random.Random(int(sys.argv[3]))
		size = os.fstat(a).st_size
		assert size == os.fstat(b).st_size and size > 100000, size
		for _ in range(300):
		    offset, length = dice.randrange(size), dice.choice([1, 700, 4096, 70000, 300000])
		    os.posix_fadvise(b, 0, 0, os.POSIX_FADV_DONTNEED)
		    os.posix_fadvise(b, 0, 0, os.POSIX_FADV_RANDOM)
		    assert os.pread(a, length, offset) == os.pread(b, length, offset), (offset, length)
	END
}

platter init >/dev/null

# shellcheck disable=SC2086  # several options
while IFS='|' read -r name mount_options mkfs; do
	SIZE=96M MANY_ATTRIBUTES=0
	case $name in
	xfs*) SIZE=320M MANY_ATTRIBUTES=60 ;;
	btrfs*) SIZE=160M MANY_ATTRIBUTES=60 ;;
	esac
	make_image "$mount_options" $mkfs
	platter capture "$WORK/disk" disk >/dev/null
	mount -o loop,ro,noatime "$WORK/disk" "$MNT"
	check "$name: is mounted" shows disk:
	check "$name: contents" diff -r --no-dereference -x pipe "$MNT" "$SEEN"
	check "$name: modes, owners, times, links, attributes, devices" trees_equal "$MNT" "$SEEN"
	check "$name: times of access and change, allocated space, link counts" more_equal "$MNT" "$SEEN"
	check "$name: reads at any offset" random_reads "$MNT/tree/numbers.txt" "$SEEN/tree/numbers.txt"
	check "$name: holes are seen" cmp <(cp --sparse=auto "$SEEN/sparse" "$WORK/sparse" && cat "$WORK/sparse") "$MNT/sparse"
	check "$name: one file has both names" test "$SEEN/etc/hostname" -ef "$SEEN/etc/deep/second-name"
	check "$name: tar reads the same from both" same_tar
	umount "$MNT"
	check "$name: is unmounted" unmount
	check "$name: without a message" test "$(wc -l <"$WORK/mount.log")" = 1
done <<-END
	ext4|rw|mke2fs -q -t ext4
	ext4 with contents in inodes|rw|mke2fs -q -t ext4 -O inline_data,ea_inode -I 512
	xfs|rw|mkfs.xfs -q -f
	btrfs, zlib|compress-force=zlib|mkfs.btrfs -q -f -M
	btrfs, lzo|compress-force=lzo|mkfs.btrfs -q -f --mixed
	btrfs, zstd|compress-force=zstd|mkfs.btrfs -q -f -n 4096 -s 4096 --mixed
END

# Subvolumes and snapshots are directories, and their files have numbers of their own.
truncate -s 0 "$WORK/disk"
truncate -s 160M "$WORK/disk"
mkfs.btrfs -q -f "$WORK/disk" >/dev/null 2>&1
mount -o loop,compress=zstd "$WORK/disk" "$MNT"
btrfs subvolume create "$MNT/@" >/dev/null
file_tree "$MNT/@/tree" 4 subvolume
btrfs subvolume snapshot -r "$MNT/@" "$MNT/@/before" >/dev/null
echo two >"$MNT/@/tree/numbers.txt"
umount "$MNT"
platter capture "$WORK/disk" subvolumes >/dev/null
mount -o loop,ro,noatime "$WORK/disk" "$MNT"
check "subvolumes: are mounted" shows subvolumes:
check "subvolumes: contents of all" diff -r --no-dereference "$MNT" "$SEEN"
check "subvolumes: modes and times" trees_equal "$MNT" "$SEEN"
check "subvolumes: a file of a snapshot is another one" test ! "$SEEN/@/tree/random-1.bin" -ef "$SEEN/@/before/tree/random-1.bin"
umount "$MNT"
check "subvolumes: are unmounted" unmount

# Filesystems of other systems.
others=$WORK/others
mkdir -p "$others/A folder with a long name/deep" "$others/many"
file_tree "$others/tree" 6 others
: >"$others/nothing"
printf 'ünï — 漢字' >"$others/naïve 漢字 name.txt"
for number in $(seq 300); do echo "$number" >"$others/many/a long name, number $number.txt"; done
find "$others" -type f -exec touch -d '2015-06-07 08:09:10 UTC' {} +
for sectors in 8M:-F12 64M:-F16 64M:-F32; do
	name="FAT ${sectors#*:}"
	truncate -s 0 "$WORK/disk" && truncate -s "${sectors%:*}" "$WORK/disk"
	mkfs.vfat "${sectors#*:}" "$WORK/disk" >/dev/null
	TZ=UTC MTOOLS_SKIP_CHECK=1 mcopy -m -s -Q -i "$WORK/disk" "$others"/* :: </dev/null
	platter capture "$WORK/disk" fat >/dev/null
	check "$name: is mounted" shows fat:
	check "$name: contents" diff -r "$others" "$SEEN"
	check "$name: sizes, times and link counts" files_equal "$others" "$SEEN" '%P %y %s %T@ %n'
	check "$name: modes" test "$(find "$SEEN" -mindepth 1 -printf '%y%m\n' | sort -u | paste -sd ' ')" = 'd755 f644'
	check "$name: is unmounted" unmount
done
# with_driver COMMAND: makes and mounts the filesystem of another system, which has the tree; read-only again as the original
with_driver() {
	attach "$WORK/disk"
	$1 "$DEVICE" "$MNT"
	cp -r --preserve=timestamps "$others/." "$MNT/"
	"${2:-true}"
	umount "$MNT"
	until_true 60 losetup -d "$DEVICE" && rm -f "$WORK/loops/${DEVICE##*/}"
}
truncate -s 0 "$WORK/disk" && truncate -s 64M "$WORK/disk"
mkfs.exfat "$WORK/disk" >/dev/null
with_driver mount.exfat-fuse
platter capture "$WORK/disk" exfat >/dev/null
check "exFAT: is mounted" shows exfat:
check "exFAT: contents" diff -r "$others" "$SEEN"
check "exFAT: sizes, times and link counts" files_equal "$others" "$SEEN" '%P %y %s %T@ %n'
check "exFAT: is unmounted" unmount
more_of_ntfs() {
	mkdir "$MNT/compressed"
	setfattr -h -n system.ntfs_attrib_be -v 0x00000800 "$MNT/compressed"
	{ seq 90000; head -c 300000 /dev/zero; random 300000 x; seq 100000; } >"$MNT/compressed/mixed"
	truncate -s 3M "$MNT/sparse"
	printf end | dd of="$MNT/sparse" bs=1 seek=2000000 conv=notrunc status=none
	ln -s "many/../nothing" "$MNT/link"
	ln "$MNT/sparse" "$MNT/many/second name"
	# Named streams; that of a compressed file is compressed.
	setfattr -n user.zone -v outside "$MNT/sparse"
	setfattr -n user.numbers -v "$(seq 9000)" "$MNT/compressed/mixed"
}
truncate -s 0 "$WORK/disk" && truncate -s 64M "$WORK/disk"
mkfs.ntfs -q -F -c 4096 "$WORK/disk" >/dev/null 2>&1
with_driver 'ntfs-3g -o compression' more_of_ntfs
platter capture "$WORK/disk" ntfs >/dev/null
attach "$WORK/disk"
ntfs-3g -o ro,noatime "$DEVICE" "$MNT"
check "NTFS: is mounted" shows ntfs:
check "NTFS: contents" diff -r --no-dereference "$MNT" "$SEEN"
stream() { getfattr --absolute-names --only-values -n "user.$1" "$2"; }
check "NTFS: a named stream is an attribute" test "$(stream zone "$SEEN/sparse")" = outside
check "NTFS: a compressed one" test "$(stream numbers "$SEEN/compressed/mixed")" = "$(seq 9000)"
check "NTFS: sizes, times, link counts and targets" files_equal "$MNT" "$SEEN" '%P %y %s %T@ %A@ %C@ %n %l'
check "NTFS: reads of a compressed file at any offset" random_reads "$MNT/compressed/mixed" "$SEEN/compressed/mixed"
check "NTFS: is unmounted" unmount
umount "$MNT"
detach_loop "$DEVICE"

# All images.
file_tree "$WORK/files" 8 all
ext4_image "$WORK/disk" 64 "$WORK/files"
truncate -s 200M "$WORK/parted"
sfdisk -q "$WORK/parted" <<<$'label: gpt\nsize=100M\nsize=20M, type=swap\nsize=50M\n'
dd if="$WORK/disk" of="$WORK/parted" bs=1M seek=1 conv=notrunc status=none
STORE=$WORK/images
platter init >/dev/null
platter capture "$WORK/disk" lab/disk >/dev/null
platter capture "$WORK/parted" lab/disk/parted >/dev/null
check "all images are mounted" shows
check "their names" test "$(names "$SEEN") $(names "$SEEN/lab")" = 'lab disk'
check "versions, and images below" test "$(names "$SEEN/lab/disk")" = '1 latest parted'
check "a disk without partitions" diff -r "$WORK/files" "$SEEN/lab/disk/1/disk" -x lost+found
check "one with partitions, of which one can be read" test "$(ls "$SEEN/lab/disk/parted/latest/")" = 1
check "its files" diff -r "$WORK/files" "$SEEN/lab/disk/parted/1/1" -x lost+found
check "it is read-only and has no devices and no setuid bits" grep -E "^platter $SEEN fuse.platter ro,nosuid,nodev,noatime" /proc/mounts
check_exit 1 "nothing can be written" touch "$SEEN/lab/disk/1/disk/new"
check_said "because it is read-only" 'read-only file system'
check_exit 2 "another user cannot use it" setpriv --reuid=65534 --regid=65534 --clear-groups ls "$SEEN"
# Opened files stay as they are.
exec 9<"$SEEN/lab/disk/1/disk/numbers.txt"
debugfs -w -R 'rm numbers.txt' "$WORK/disk" >/dev/null 2>&1
e2fsck -fy "$WORK/disk" >/dev/null 2>&1 || true
platter capture "$WORK/disk" lab/disk >/dev/null
check "a new version appears" until_true 60 test -d "$SEEN/lab/disk/2/disk/many"
check "the latest is that" until_true 60 test ! -e "$SEEN/lab/disk/latest/disk/numbers.txt"
check "an open file is that of its version" cmp - "$WORK/files/numbers.txt" <&9
platter forget lab/disk@2 >/dev/null
check "a forgotten version disappears" until_true 60 test ! -e "$SEEN/lab/disk/2"
check "the latest is the one before" until_true 60 test -e "$SEEN/lab/disk/latest/disk/numbers.txt"
exec 9<&-
kill -INT "$MOUNT"
check "Ctrl-C unmounts" ends
check "and nothing stays mounted" test -z "$(ls "$SEEN")"
check "it ends with a file still open" shows lab/disk:
exec 9<"$SEEN/numbers.txt"
kill "$MOUNT"
check "at SIGTERM" ends
exec 9<&-
check "and nothing stays mounted" test -z "$(ls "$SEEN")"

# One version, partition, directory.
check "a version is mounted" shows lab/disk@1
check "it has its partitions" test "$(ls "$SEEN")" = disk
check "and is unmounted" unmount
check "a directory of a partition is mounted" shows lab/disk/parted:1/many
check "with its files" diff -r "$WORK/files/many" "$SEEN"
check "and is unmounted" unmount

# Other users do what modes and owners in the image allow.
mkdir "$WORK/modes" && echo open >"$WORK/modes/open" && echo closed >"$WORK/modes/closed" && chmod 600 "$WORK/modes/closed"
ext4_image "$WORK/disk" 16 "$WORK/modes"
platter capture "$WORK/disk" modes >/dev/null
check "all users can use it" shows --allow-other modes:
check "a file that all may read" mounted_read open
check_exit 1 "a file that only root may read" mounted_read closed
check_said "is denied" 'permission denied'
check "and is unmounted" unmount

# An ordinary user mounts images of a store of its own with fusermount3, and ends the mount. The binary is in a folder that the
# user can read.
if [ "$(stat -c %u:%a "$(type -P fusermount3)")" = 0:4755 ]; then
	as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
	in_home() { as_user env HOME="$WORK/home" XDG_STATE_HOME="$WORK/home/state" "$WORK/bin/platter" --store "$WORK/home/store" "$@"; }
	mkdir "$WORK/bin" && cp "$PLATTER" "$WORK/bin/platter" && chmod 755 "$WORK/bin" "$WORK/bin/platter"
	mkdir "$WORK/home" && cp "$WORK/disk" "$WORK/home/disk" && chown -R 65534:65534 "$WORK/home"
	in_home init >/dev/null
	in_home capture "$WORK/home/disk" own >/dev/null
	as_user mkdir "$WORK/home/seen"
	from_home() { exec setpriv --reuid=65534 --regid=65534 --clear-groups "$WORK/bin/platter" --store "$WORK/home/store" "$@"; }
	SEEN=$WORK/home/seen
	check "an ordinary user mounts an image" mount_with from_home own:
	check "as this user" grep -E "^platter $SEEN fuse.platter ro,.*user_id=65534" /proc/mounts
	check "and reads its files" test "$(as_user cat "$SEEN/open" "$SEEN/closed" | paste -sd ' ')" = 'open closed'
	check_exit 2 "root cannot enter the mount of a user" ls "$SEEN/open"
	check "the user unmounts it" as_user fusermount3 -u "$SEEN"
	check "and the program ends" ends
	check "it is mounted again" mount_with from_home own:
	kill -INT "$MOUNT"
	check "Ctrl-C unmounts it, too" ends
	check "and nothing stays mounted" test -z "$(as_user ls "$SEEN")"
	SEEN=$WORK/seen
else
	skip "mounts of an ordinary user: no fusermount3 with setuid"
fi

# What cannot be mounted is said, and how it can.
touch "$SEEN/something"
check_exit "$EXIT_REFUSED" "a directory that is not empty" platter mount lab/disk "$SEEN"
check_said "is named with the reason" 'not empty'
rm "$SEEN/something"
check_exit "$EXIT_MISSING" "a directory that does not exist" platter mount lab/disk "$WORK/absent"
check_said "and how to create it" 'mkdir'
check_exit "$EXIT_USAGE" "image and directory in the wrong order" platter mount "$SEEN" lab/disk
check_said "with the right one" "platter mount lab/disk $SEEN"
check_exit "$EXIT_MISSING" "an image that does not exist" platter mount absent "$SEEN"
check_exit "$EXIT_MISSING" "a path that does not exist" platter mount lab/disk:/absent "$SEEN"
check_exit "$EXIT_REFUSED" "a file" platter mount lab/disk:/numbers.txt "$SEEN"
check_said "is for cat" 'platter cat'
check_exit "$EXIT_REFUSED" "a partition without files" platter mount lab/disk/parted:2 "$SEEN"
check_said "with what it has" 'swap'
no_device() {
	unshare --mount sh -c "mount -t tmpfs none /dev && mknod /dev/null c 1 3 && exec '$PLATTER' --store '$STORE' mount lab/disk '$SEEN'"
}
check_exit "$EXIT_MISSING" "without /dev/fuse" no_device
check_said "it says what to do" 'modprobe fuse'
check "nothing was mounted" test -z "$(ls "$SEEN")"

# Through an origin, with and without a cache, and from an encrypted store.
check "an origin answers" start_origin
from_origin() { exec "$PLATTER" --server "unix:$SOCKET" "$@"; }
check "images of an origin are mounted" mount_with from_origin
check "and have their files" diff -r "$WORK/files" "$SEEN/lab/disk/1/disk" -x lost+found
check "and are unmounted" unmount
check "an image, through a cache" mount_with from_origin --cache-dir "$WORK/cache" --cache-size 200M lab/disk:
check "has its files" diff -r "$WORK/files" "$SEEN" -x lost+found
check "and is unmounted" unmount
kill "$ORIGIN"
wait "$ORIGIN" || true
ORIGIN=
STORE=$WORK/encrypted
PLATTER_UNLOCK_FILE=$WORK/key platter init --encrypt --unlock-file "$WORK/key" >/dev/null
ext4_image "$WORK/disk" 64 "$WORK/files"
platter capture --unlock-file "$WORK/key" "$WORK/disk" secret >/dev/null
check_exit "$EXIT_REFUSED" "an encrypted store without its key is not mounted" platter mount "$MNT"
check "an image of an encrypted store is mounted" shows --unlock-file "$WORK/key" secret:
check "and has its files" diff -r "$WORK/files" "$SEEN" -x lost+found
check "and is unmounted" unmount
without_key() { setsid "$PLATTER" --store "$STORE" mount secret: "$SEEN" </dev/null; }
check_exit "$EXIT_REFUSED" "not without the key" without_key

# Signatures.
STORE=$WORK/images
platter key create "$WORK/builder" --no-password >/dev/null
platter key trust "$WORK/builder.pub" >/dev/null
check_exit "$EXIT_REFUSED" "a version that nobody signed is not mounted" platter mount lab/disk "$SEEN"
check_said "for that reason" 'not signed'
platter sign lab/disk@1 --key "$WORK/builder" >/dev/null
check "with all images" shows
check "a signed one is read" test -f "$SEEN/lab/disk/1/disk/numbers.txt"
check_exit 2 "another is not" ls "$SEEN/modes/1"
check "and the message says why" until_true 60 grep -q 'not signed' "$WORK/mount.log"
check "and is unmounted" unmount
rm -r "$PLATTER_TRUSTED_KEYS"

hostile_image "$WORK/hostile"
platter capture "$WORK/hostile" hostile >/dev/null
check "a hostile disk is mounted" shows hostile:
find_all() { timeout -s KILL 60 find "$SEEN" >"$WORK/found" 2>"$WORK/find-errors"; [ $? -lt 124 ]; }
check "find ends" find_all
check "and found what is there" grep -qx "$SEEN/a/b" "$WORK/found"
check "the name with a slash is not shown" test -z "$(ls "$SEEN/evil")"
check "but reported" until_true 60 grep -q 'invalid file name' "$WORK/mount.log"
check_exit 1 "a damaged file" cat "$SEEN/bad"
check_said "is an error" 'input/output error'
check "the others are there" test "$(cat "$SEEN/good")" = good
check "and it is unmounted" unmount

# Damaged contents.
STORE=$WORK/damaged
mkdir "$WORK/tree"
for name in first last; do echo "$name" >"$WORK/tree/$name"; done
random 12000000 damaged >"$WORK/tree/middle"
ext4_image "$WORK/disk" 32 "$WORK/tree"
platter init >/dev/null
platter capture "$WORK/disk" disk >/dev/null
pack=$(find "$STORE/packs" -name '*.pack' -size +1M)
printf 'damaged!' | dd of="$pack" bs=1 seek=$(($(stat -c %s "$pack") / 2)) conv=notrunc status=none
check "a damaged version is mounted" shows disk:
check_exit 1 "a damaged file" cat "$SEEN/middle"
check_said "is an error" 'input/output error'
check "with a message" until_true 60 grep -q 'disk@1:disk/middle: .*platter heal' "$WORK/mount.log"
for again in 1 2 3; do check_exit 1 "(reading it again, $again)" cat "$SEEN/middle"; done
check "which is printed once" test "$(grep '/middle' "$WORK/mount.log" | sort | uniq -d | wc -l)" = 0
check "the others are read" diff -r -x middle -x lost+found "$WORK/tree" "$SEEN"
check "and it is unmounted" unmount
# A mount that has met damage sees the repair of another process.
STORE=$WORK/repaired
platter init >/dev/null
random 5000000 repaired >"$WORK/files/repaired"
ext4_image "$WORK/disk" 64 "$WORK/files"
platter capture "$WORK/disk" repaired >/dev/null
check "a mount of a store that is damaged meanwhile" shows repaired:
pack=$(find "$STORE/packs" -name '*.pack' -size +4M)
printf XXXX | dd of="$pack" bs=1 seek=2000000 conv=notrunc status=none
is_same() { diff -r "$WORK/files" "$SEEN" -x lost+found; }
check "shows the damage" eval '! is_same'
check_exit "$EXIT_CORRUPT" "which a check finds" platter check --read-data
check "the disk is captured again" platter capture "$WORK/disk" repaired
check "and the mount shows its files" is_same
check "and ends" unmount

# A damaged partition: the others are shown.
STORE=$WORK/damaged-partition
platter init >/dev/null
check "a disk is captured, and one of its partitions damaged" damaged_partition
check "all images are mounted" shows
check "another partition is read" test "$(cat "$SEEN/lab/multi/1/3/etc/hostname")" = multi
check "all are listed" test "$(names "$SEEN/lab/multi/1")" = '1 2 3'
check_exit 2 "the damaged one" ls "$SEEN/lab/multi/1/2/"
check_said "is an error" 'input/output error'
check "with its name and what to do" until_true 60 grep -q 'partition 2 of lab/multi@1 is damaged: .*platter heal' "$WORK/mount.log"
check "and is unmounted" unmount
check "one partition is mounted" shows lab/multi@1:3
check "and has its files" test "$(cat "$SEEN/etc/hostname")" = multi
check "and is unmounted" unmount
check_exit "$EXIT_CORRUPT" "the damaged one is not mounted" platter mount lab/multi@1:2 "$SEEN"
finish
