#!/usr/bin/env bash
# tests/full-disk.sh: a store on a file system that fills up while capturing. The error says so, the store stays good,
# and once there is space the next capture succeeds.
. "$(dirname "$0")/lib.sh"

need_root "a small file system of its own" || { finish; exit 0; }
file_tree "$WORK/tree" 8 small
ext4_image "$WORK/small" 32 "$WORK/tree"
file_tree "$WORK/tree" 90 large
ext4_image "$WORK/large" 160 "$WORK/tree"
rm -rf "$WORK/tree"

truncate -s 48M "$WORK/volume"
# Blocks of 4 KiB: SQLite allocates its shared memory by one byte in 4 KiB, and dies of the holes where blocks are smaller.
mke2fs -q -t ext4 -m 0 -b 4096 "$WORK/volume"
attach "$WORK/volume"
mount "$DEVICE" "$MNT"
# What can be removed later.
fallocate -l 4M "$MNT/ballast"
STORE=$MNT/store

check "init" platter init
check "a small capture fits" platter capture "$WORK/small" small
check_exit "$EXIT_FAILED" "a large one does not" platter capture "$WORK/large" large
check_said "and the error says so" 'no space|full|ENOSPC'
check "the store checks clean" platter check --read-data
check "what was stored before installs" platter install small "$WORK/target" --free zero --verify --yes --force not-a-disk
check_exit "$EXIT_MISSING" "what failed is not there" platter show large
check "what it had written is given back" bash -c '[ "$(du -sm "$0" | cut -f 1)" -lt 20 ]' "$STORE"

rm "$MNT/ballast"
file_tree "$WORK/tree" 2 next
ext4_image "$WORK/next" 32 "$WORK/tree"
check "with space freed the next capture succeeds" platter capture "$WORK/next" next
check "and installs" platter install next "$WORK/target" --free zero --verify --yes --force not-a-disk
check "the store checks clean again" platter check --read-data
umount "$MNT"

# A capture killed when the store's file system is nearly full. Whatever space is left then, a capture of 1 MB succeeds, or
# does after what was interrupted has been discarded, which needs no space. Nothing else changes.
random 30000000 first >"$WORK/first"
random 24000000 second >"$WORK/second"
random 1000000 third >"$WORK/third"
truncate -s 0 "$WORK/volume"
truncate -s 60M "$WORK/volume"
mke2fs -q -t ext4 -m 0 "$WORK/volume"
attach "$WORK/volume"
mount "$DEVICE" "$MNT"
check "init" platter init
check "30 MB are captured" platter capture "$WORK/first" first
"$PLATTER" --store "$STORE" --quiet capture "$WORK/second" second >/dev/null 2>&1 &
pid=$!
for _ in $(seq 12000); do
	[ "$(du -sk "$STORE/packs" | cut -f 1)" -lt 48000 ] || break
	sleep 0.005
done
kill -9 "$pid" 2>/dev/null || true
wait "$pid" 2>/dev/null || true
left=$(du -sk "$STORE/packs" | cut -f 1)
check "a second capture is killed after some 19 MB" test "$left" -ge 40000
check_exit "$EXIT_MISSING" "and is not there" platter show second
umount "$MNT"
detach_loop "$DEVICE"
case ${PLATTER_SIZE:-quick} in full) levels=$(seq 0 100 12000) ;; *) levels="0 40 200 900 1600 8000" ;; esac
discarded=0
for free_kib in $levels; do
	cp --sparse=always "$WORK/volume" "$WORK/copy"
	attach "$WORK/copy"
	mount "$DEVICE" "$MNT"
	available=$(df -k --output=avail "$MNT" | tail -n 1)
	[ "$available" -le "$free_kib" ] || head -c $(((available - free_kib) * 1024)) /dev/zero >"$MNT/ballast"
	if ! platter capture "$WORK/third" third >"$LOG" 2>&1; then
		check_said "$free_kib KiB free: the error says so" "no space|full|ENOSPC"
		check "$free_kib KiB free: what was interrupted is discarded" platter discard-interrupted
		check "$free_kib KiB free: then the capture succeeds" platter capture "$WORK/third" third
		discarded=$((discarded + 1))
	fi
	check "$free_kib KiB free: the store is good" platter check --read-data
	check "$free_kib KiB free: first is there" platter install first "$WORK/target" --free zero --verify --yes --force not-a-disk
	check "$free_kib KiB free: third is there" platter install third "$WORK/target" --free zero --verify --yes --force not-a-disk
	umount "$MNT"
	detach_loop "$DEVICE"
done
check "some captures needed that" test "$discarded" -gt 0

# With space, what was interrupted is used where it lies: neither copied nor read into new packs.
truncate -s 120M "$WORK/volume"
check "the volume is sound" e2fsck -fy "$WORK/volume"
check "and grows" resize2fs "$WORK/volume"
attach "$WORK/volume"
mount "$DEVICE" "$MNT"
before=$(ls -i "$STORE"/packs/*/*.pack)
check "a capture of 1 MB beside what was interrupted" platter capture "$WORK/third" third
check "takes little more than 1 MB" test "$(du -sk "$STORE/packs" | cut -f 1)" -lt $((left + 1500))
check "and leaves its pack in its place" bash -c 'for line in $0; do ls -i "$1"/packs/*/*.pack | grep -qF "$line" || exit 1; done' "$(echo "$before" | awk '{ print $2 }')" "$STORE"
check "the killed capture again" platter capture "$WORK/second" second
check "and finds what it had stored" test "$(du -sk "$STORE/packs" | cut -f 1)" -lt $((left + 10000))
check "all of it is good" platter check --read-data
umount "$MNT"
detach_loop "$DEVICE"
rm -f "$WORK/volume" "$WORK/copy" "$WORK/first" "$WORK/second"

# Not even room for an empty store.
truncate -s 1M "$WORK/tiny"
mke2fs -q -t ext4 -m 0 -O '^has_journal' "$WORK/tiny"
attach "$WORK/tiny"
mount "$DEVICE" "$MNT"
head -c 2M /dev/zero >"$MNT/fill" 2>/dev/null || true
check_exit "$EXIT_FAILED" "init without space" platter init
check_said "and the error says so" 'no space|full|ENOSPC'
umount "$MNT"
finish
