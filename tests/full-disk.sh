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
mke2fs -q -t ext4 -m 0 "$WORK/volume"
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
check "what was stored before installs" platter install small "$WORK/target" --free zero --verify --yes
check_exit "$EXIT_MISSING" "what failed is not there" platter show large
check "what it had written is given back" bash -c '[ "$(du -sm "$0" | cut -f 1)" -lt 20 ]' "$STORE"

rm "$MNT/ballast"
file_tree "$WORK/tree" 2 next
ext4_image "$WORK/next" 32 "$WORK/tree"
check "with space freed the next capture succeeds" platter capture "$WORK/next" next
check "and installs" platter install next "$WORK/target" --free zero --verify --yes
check "the store checks clean again" platter check --read-data
umount "$MNT"

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
