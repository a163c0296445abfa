#!/usr/bin/env bash
# tests/full-disk.sh: a store on a file system that is full, or nearly, with small blocks and large ones. An error says so,
# the store stays good, nothing ends by a signal, and a small capture succeeds, or does after `discard-interrupted`.
. "$(dirname "$0")/lib.sh"

need_root "a small file system of its own" || { finish; exit 0; }
file_tree "$WORK/tree" 8 small
ext4_image "$WORK/small" 32 "$WORK/tree"
file_tree "$WORK/tree" 90 large
ext4_image "$WORK/large" 160 "$WORK/tree"
rm -rf "$WORK/tree"
file_tree "$WORK/tree" 2 next
ext4_image "$WORK/next" 32 "$WORK/tree"
rm -rf "$WORK/tree"
random 30000000 first >"$WORK/first"
random 24000000 second >"$WORK/second"
random 1000000 third >"$WORK/third"

# make_volume MIB BLOCK: an ext4 file system with blocks of so many bytes, mounted, and a store in it
make_volume() {
	truncate -s 0 "$WORK/volume"
	truncate -s "${1}M" "$WORK/volume"
	mke2fs -q -t ext4 -m 0 -b "$2" "$WORK/volume"
	mount_volume "$WORK/volume"
	STORE=$MNT/store
	check "blocks of $2: init" platter init
}

mount_volume() {
	attach "$1"
	mount "$DEVICE" "$MNT"
}

unmount_volume() {
	umount "$MNT"
	detach_loop "$DEVICE"
}

installs() { platter install "$1" "$WORK/target" --free zero --verify --yes --force not-a-disk; }

# A capture that finds no space, and the next one once there is some.
fills_up() {
	local name="blocks of $1"
	make_volume 48 "$1"
	# What can be removed later.
	fallocate -l 4M "$MNT/ballast"
	check "$name: a small capture fits" platter capture "$WORK/small" small
	check_exit "$EXIT_FAILED" "$name: a large one does not" platter capture "$WORK/large" large
	check_said "$name: and the error says so" 'no space|full|ENOSPC'
	check "$name: the store checks clean" platter check --read-data
	check "$name: what was stored before installs" installs small
	check_exit "$EXIT_MISSING" "$name: what failed is not there" platter show large
	check "$name: what it had written is given back" bash -c '[ "$(du -sm "$0" | cut -f 1)" -lt 20 ]' "$STORE"
	rm "$MNT/ballast"
	check "$name: with space freed the next capture succeeds" platter capture "$WORK/next" next
	check "$name: and installs" installs next
	check "$name: the store checks clean again" platter check --read-data
	unmount_volume
}

# killed_at KIB BLOCK: a store with 30 MB in it, in which a second capture is killed when its pack has so many KiB: the signal
# for a file over its limit ends a process as SIGKILL does, and always at the same place
killed_at() {
	local code=0
	make_volume 60 "$2"
	check "blocks of $2: 30 MB are captured" platter capture "$WORK/first" first
	# In a shell of its own, whose word of the signal goes unheard.
	bash -c 'ulimit -c 0 -f "$0"; "$@"; exit $?' "$1" "$PLATTER" --store "$STORE" --quiet capture "$WORK/second" second \
		>/dev/null 2>&1 || code=$?
	left=$(du -sk "$STORE/packs" | cut -f 1)
	check "blocks of $2: a second capture is killed with $left KiB in packs" test "$code" = $((128 + $(kill -l XFSZ)))
	check_exit "$EXIT_MISSING" "blocks of $2: and is not there" platter show second
	unmount_volume
}

# leave KIB: a copy of the volume, mounted, with so much space left
leave() {
	local available
	cp --sparse=always "$WORK/volume" "$WORK/copy"
	mount_volume "$WORK/copy"
	available=$(df -k --output=avail "$MNT" | tail -n 1)
	[ "$available" -le "$1" ] || head -c $(((available - $1) * 1024)) /dev/zero >"$MNT/ballast" 2>/dev/null || true
}

# killed_and_at NAME KIB: with so much space left, a capture of 1 MB succeeds, or does after what was interrupted has been
# discarded, which needs no space. Nothing else changes.
killed_and_at() {
	local name=$1 code=0
	leave "$2"
	platter capture "$WORK/third" third >"$LOG" 2>&1 || code=$?
	if [ "$code" != 0 ]; then
		check_said "$name: the error says so" "no space|full|ENOSPC"
		check "$name: it ends with an error (exit code $code)" test "$code" = "$EXIT_FAILED"
		check "$name: the store can be read" platter images
		check "$name: what was interrupted is discarded" platter discard-interrupted
		check "$name: then the capture succeeds" platter capture "$WORK/third" third
		discarded=$((discarded + 1))
	fi
	check "$name: the store is good" platter check --read-data
	check "$name: first is there" installs first
	check "$name: third is there" installs third
	unmount_volume
}

# commits_at NAME KIB: with so much space left, a clone, which needs little more than the catalog's commit does. It succeeds, or
# fails with an error, and does as soon as there is space.
commits_at() {
	local name=$1 code=0
	leave "$2"
	platter clone first clone >"$LOG" 2>&1 || code=$?
	if [ "$code" != 0 ]; then
		check_said "$name: the error says so" "no space|full|ENOSPC"
		check "$name: a clone ends with an error (exit code $code)" test "$code" = "$EXIT_FAILED"
		check_exit "$EXIT_MISSING" "$name: and is not there" platter show clone
		rm "$MNT/ballast"
		check "$name: with space freed a capture succeeds" platter capture "$WORK/third" third
		# What lacked nothing but the commit has been finished by now.
		platter show clone >/dev/null 2>&1 || check "$name: and a clone" platter clone first clone
	fi
	check "$name: the clone is there" platter show clone
	check "$name: the store is good" platter check
	unmount_volume
}

case ${PLATTER_SIZE:-quick} in
full) kills=(3000 11000 18500) levels=$(seq 0 4 64; seq 80 40 2400; seq 3000 1000 12000) commit_levels=$(seq 0 140) ;;
*) kills=(18500) levels="0 40 200 1600" commit_levels="0 10 14 18 22 35 50" ;;
esac
discarded=0
for block in 1024 4096; do
	fills_up "$block"
	make_volume 60 "$block"
	check "blocks of $block: 30 MB are captured" platter capture "$WORK/first" first
	unmount_volume
	for level in $commit_levels; do commits_at "blocks of $block, $level KiB free" "$level"; done
	for kill in "${kills[@]}"; do
		killed_at "$kill" "$block"
		for level in $levels; do killed_and_at "blocks of $block, $left KiB in packs, $level KiB free" "$level"; done
	done
done
check "some captures needed what was interrupted to be discarded" test "$discarded" -gt 0

# With space, what was interrupted is used where it lies: neither copied nor read into new packs.
truncate -s 120M "$WORK/volume"
check "the volume is sound" e2fsck -fy "$WORK/volume"
check "and grows" resize2fs "$WORK/volume"
mount_volume "$WORK/volume"
before=$(ls -i "$STORE"/packs/*/*.pack)
check "a capture of 1 MB beside what was interrupted" platter capture "$WORK/third" third
check "takes little more than 1 MB" test "$(du -sk "$STORE/packs" | cut -f 1)" -lt $((left + 1500))
check "and leaves its pack in its place" bash -c 'for line in $0; do ls -i "$1"/packs/*/*.pack | grep -qF "$line" || exit 1; done' "$(echo "$before" | awk '{ print $2 }')" "$STORE"
check "the killed capture again" platter capture "$WORK/second" second
check "and finds what it had stored" test "$(du -sk "$STORE/packs" | cut -f 1)" -lt $((left + 10000))
check "all of it is good" platter check --read-data
unmount_volume
rm -f "$WORK/volume" "$WORK/copy" "$WORK/first" "$WORK/second"

# Not even room for an empty store.
truncate -s 1M "$WORK/tiny"
mke2fs -q -t ext4 -m 0 -O '^has_journal' "$WORK/tiny"
mount_volume "$WORK/tiny"
head -c 2M /dev/zero >"$MNT/fill" 2>/dev/null || true
check_exit "$EXIT_FAILED" "init without space" platter init
check_said "and the error says so" 'no space|full|ENOSPC'
umount "$MNT"
finish
