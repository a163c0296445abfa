#!/usr/bin/env bash
# tests/full-disk.sh: a store on a file system that is full, or nearly, with small and large blocks. Errors report it,
# the store stays sound, no command ends by a signal, and a small capture succeeds, at the latest after
# `discard-interrupted`.
. "$(dirname "$0")/lib.sh"

SERVER=
suite_cleanup() { [ -z "$SERVER" ] || kill -9 "$SERVER" 2>/dev/null; }

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

# make_volume MIB BLOCK: makes and mounts an ext4 file system with this block size, and creates a store in it
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

# A capture without enough space, and the next one with enough.
fills_up() {
	local name="blocks of $1"
	make_volume 48 "$1"
	# A file that can be removed later.
	fallocate -l 4M "$MNT/ballast"
	check "$name: a small capture fits" platter capture "$WORK/small" small
	check_exit "$EXIT_FAILED" "$name: a large one fails" platter capture "$WORK/large" large
	check_said "$name: and the error names the full disk" 'no space|full|ENOSPC'
	check "$name: the store checks clean" platter check --read-data
	check "$name: the earlier version installs" installs small
	check_exit "$EXIT_MISSING" "$name: the failed version does not exist" platter show large
	check "$name: its space is released" bash -c '[ "$(du -sm "$0" | cut -f 1)" -lt 20 ]' "$STORE"
	rm "$MNT/ballast"
	check "$name: with space freed the next capture succeeds" platter capture "$WORK/next" next
	check "$name: and installs" installs next
	check "$name: the store checks clean again" platter check --read-data
	unmount_volume
}

# killed_at KIB BLOCK: makes a store with 30 MB, in which a second capture is killed when its pack has KIB KiB. SIGXFSZ,
# sent when a file exceeds its limit, ends the process like SIGKILL, but always at the same place
killed_at() {
	local code=0
	make_volume 60 "$2"
	check "blocks of $2: 30 MB are captured" platter capture "$WORK/first" first
	# In a shell of its own, to hide the shell's message about the signal.
	bash -c 'ulimit -c 0 -f "$0"; "$@"; exit $?' "$1" "$PLATTER" --store "$STORE" --quiet capture "$WORK/second" second \
		>/dev/null 2>&1 || code=$?
	left=$(du -sk "$STORE/packs" | cut -f 1)
	check "blocks of $2: a second capture is killed with $left KiB in packs" test "$code" = $((128 + $(kill -l XFSZ)))
	check_exit "$EXIT_MISSING" "blocks of $2: and its version does not exist" platter show second
	unmount_volume
}

# leave KIB: mounts a copy of the volume with this much free space
leave() {
	local available
	cp --sparse=always "$WORK/volume" "$WORK/copy"
	mount_volume "$WORK/copy"
	available=$(df -k --output=avail "$MNT" | tail -n 1)
	[ "$available" -le "$1" ] || head -c $(((available - $1) * 1024)) /dev/zero >"$MNT/ballast" 2>/dev/null || true
}

# killed_and_at NAME KIB: with this much free space, a capture of 1 MB succeeds, at the latest after interrupted data
# was discarded, which needs no space. Nothing else changes.
killed_and_at() {
	local name=$1 code=0
	leave "$2"
	platter capture "$WORK/third" third >"$LOG" 2>&1 || code=$?
	if [ "$code" != 0 ]; then
		check_said "$name: the error names the full disk" "no space|full|ENOSPC"
		check "$name: it ends with an error (exit code $code)" test "$code" = "$EXIT_FAILED"
		check "$name: the store can be read" platter images
		check "$name: interrupted data is discarded" platter discard-interrupted
		check "$name: then the capture succeeds" platter capture "$WORK/third" third
		discarded=$((discarded + 1))
	fi
	check "$name: the store is sound" platter check --read-data
	check "$name: first is there" installs first
	check "$name: third is there" installs third
	unmount_volume
}

# commits_at NAME KIB: with this much free space, a clone, which needs little more than the catalog's commit. It
# succeeds, or fails with an error and succeeds once there is space.
commits_at() {
	local name=$1 code=0
	leave "$2"
	platter clone first clone >"$LOG" 2>&1 || code=$?
	if [ "$code" != 0 ]; then
		check_said "$name: the error names the full disk" "no space|full|ENOSPC"
		check "$name: a clone ends with an error (exit code $code)" test "$code" = "$EXIT_FAILED"
		check_exit "$EXIT_MISSING" "$name: and the clone does not exist" platter show clone
		rm "$MNT/ballast"
		check "$name: with space freed a capture succeeds" platter capture "$WORK/third" third
		# If only the commit was missing, the capture has finished the clone by now.
		platter show clone >/dev/null 2>&1 || check "$name: and so does a clone" platter clone first clone
	fi
	check "$name: the clone is there" platter show clone
	check "$name: the store is sound" platter check
	unmount_volume
}

# fill: leaves no free byte on the volume
fill() {
	dd if=/dev/zero of="$MNT/ballast" bs=1M status=none 2>/dev/null || true
	dd if=/dev/zero of="$MNT/ballast" bs=512 oflag=append conv=notrunc status=none 2>/dev/null || true
	test "$(df --output=avail "$MNT" | tail -n 1)" -le 4
}

case ${PLATTER_SIZE:-quick} in
full) kills=(3000 11000 18500) levels=$(seq 0 4 64; seq 80 40 2400; seq 3000 1000 12000) commit_levels=$(seq 0 140) ;;
*) kills=(18500) levels="0 40 200 1600" commit_levels="0 10 14 18 22 35 50" ;;
esac
# On a disk without a free byte, versions are forgotten and garbage is collected.
collects() {
	local name="blocks of $1, full" version
	make_volume 80 "$1"
	cp "$WORK/first" "$WORK/changing"
	for version in 1 2 3 4; do
		# Each version replaces every other MB: the packs of earlier ones end up half needed.
		for at in $(seq "$version" 2 28); do
			random 500000 "$version-$at" | dd of="$WORK/changing" bs=1M seek="$at" conv=notrunc status=none
		done
		check "$name: version $version is captured" platter capture "$WORK/changing" changing
	done
	check "$name: one version is protected" platter protect changing@1
	check "$name: and the image locked" platter lock take changing
	check "$name: nothing is free" fill
	check "$name: protection ends" platter unprotect changing@1
	check "$name: the lock is stolen" platter lock steal changing
	check "$name: and released" platter lock release changing
	check "$name: three versions are forgotten" platter forget changing --keep-last 1
	check "$name: gc succeeds" platter gc --yes --keep-trash 0
	check "$name: and freed space" test "$(df -k --output=avail "$MNT" | tail -n 1)" -gt 4000
	check "$name: the store checks clean" platter check --read-data
	check "$name: the last version installs" installs changing
	check "$name: and has the right bytes" cmp -n 30000000 "$WORK/changing" "$WORK/target"
	check "$name: the next capture succeeds" platter capture "$WORK/third" third
	rm "$WORK/changing"
	unmount_volume
}

# On a disk without a free byte, the changes of disks that nobody serves are listed and discarded.
discards() {
	local name="blocks of $1, full"
	make_volume 48 "$1"
	check "$name: a disk is captured" platter capture "$WORK/small" small
	check "$name: and attached" start_server --nbd "$WORK/nbd.sock" --write small
	check "$name: and written" qemu-io -f raw -c 'write -P 7 4m 1m' -c 'write -z 8m 64k' "nbd+unix:///small?socket=$WORK/nbd.sock"
	stop KILL
	check "$name: nothing is free" fill
	check "$name: the changes are listed" bash -c '"$@" | tee /dev/stderr | jq -e ".written_bytes == 1114112"' _ "$PLATTER" --store "$STORE" --json disks
	check "$name: and discarded" platter discard small
	check_said "$name: it says how much" '1[.]11 MB|1114112'
	check_exit "$EXIT_MISSING" "$name: once" platter discard small
	check "$name: no lock is left" test -z "$(platter_json lock list)"
	check "$name: the store checks clean" platter check --read-data
	check "$name: nothing is free again" fill
	check "$name: a rebuild succeeds" platter rebuild
	check "$name: the version is there" platter check --read-data
	unmount_volume
}

discarded=0
for block in 1024 4096; do
	fills_up "$block"
	collects "$block"
	discards "$block"
	make_volume 60 "$block"
	check "blocks of $block: 30 MB are captured" platter capture "$WORK/first" first
	unmount_volume
	for level in $commit_levels; do commits_at "blocks of $block, $level KiB free" "$level"; done
	for kill in "${kills[@]}"; do
		killed_at "$kill" "$block"
		for level in $levels; do killed_and_at "blocks of $block, $left KiB in packs, $level KiB free" "$level"; done
	done
done
check "some captures needed interrupted data to be discarded" test "$discarded" -gt 0

# With enough space, interrupted data is used in place: neither copied nor moved to new packs.
truncate -s 120M "$WORK/volume"
check "the volume is sound" e2fsck -fy "$WORK/volume"
check "and grows" resize2fs "$WORK/volume"
mount_volume "$WORK/volume"
before=$(ls -i "$STORE"/packs/*/*.pack)
check "a capture of 1 MB beside interrupted data" platter capture "$WORK/third" third
check "takes little more than 1 MB" test "$(du -sk "$STORE/packs" | cut -f 1)" -lt $((left + 1500))
check "and leaves the interrupted pack in place" bash -c 'for line in $0; do ls -i "$1"/packs/*/*.pack | grep -qF "$line" || exit 1; done' "$(echo "$before" | awk '{ print $2 }')" "$STORE"
check "the killed capture is repeated" platter capture "$WORK/second" second
check "and reuses what it had stored" test "$(du -sk "$STORE/packs" | cut -f 1)" -lt $((left + 10000))
check "all data is sound" platter check --read-data
unmount_volume
rm -f "$WORK/volume" "$WORK/copy" "$WORK/first" "$WORK/second"

# Too little space even for an empty store.
truncate -s 1M "$WORK/tiny"
mke2fs -q -t ext4 -m 0 -O '^has_journal' "$WORK/tiny"
mount_volume "$WORK/tiny"
head -c 2M /dev/zero >"$MNT/fill" 2>/dev/null || true
check_exit "$EXIT_FAILED" "init without space" platter init
check_said "and the error names the full disk" 'no space|full|ENOSPC'
umount "$MNT"
finish
