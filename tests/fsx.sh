#!/usr/bin/env bash
# tests/fsx.sh [OPERATIONS]
#
# fsx, the file system exerciser, on a live disk's file in the mounted tree, and on a file of an ext4 file system on a
# loop device over it: random reads, writes, maps, holes and copies; each read is compared with the expected bytes.
# PLATTER_SEED selects the operations. 20,000 operations each in full.
. "$(dirname "$0")/lib.sh"

readonly FSX_VERSION=0.3.2
need_root "mounting a file system over a live disk" || { finish; exit 0; }
operations=${1:-20000}
TREE=$WORK/tree
FSX=$(command -v fsx || true)
if [ -z "$FSX" ]; then
	FSX=$(dirname "$PLATTER")/../tools/bin/fsx
	[ -x "$FSX" ] || cargo install --quiet --locked --root "$(dirname "$PLATTER")/../tools" "fsx@$FSX_VERSION"
fi
SERVER=
suite_cleanup() {
	mountpoint -q "$MNT" && umount "$MNT"
	[ -z "$SERVER" ] || kill "$SERVER" 2>/dev/null
	wait
	umount -l "$TREE" 2>/dev/null
}
mkdir "$TREE"
truncate -s 256M "$WORK/disk"
mke2fs -q -t ext4 "$WORK/disk"
platter init >/dev/null
platter capture "$WORK/disk" lab/disk >/dev/null
"$PLATTER" --store "$STORE" attach --write lab/disk --fuse "$TREE" >"$LOG" 2>&1 &
SERVER=$!
live=$TREE/lab/disk/live.raw
for _ in $(seq 400); do [ -e "$live" ] || sleep 0.02; done

# exercise FILE WEIGHTS OPTIONS: runs fsx; WEIGHTS and OPTIONS are lines of its configuration
exercise() {
	printf '%s\n[opsize]\nmax = 262144\n[weights]\n%s\n' "$3" "$2" >"$WORK/fsx.toml"
	"$FSX" -q -f "$WORK/fsx.toml" -S "$SEED" -N "$operations" -P "$WORK" "$1"
}
readonly WEIGHTS='read = 10
write = 10
mapread = 5
mapwrite = 0
invalidate = 0
fsync = 1
fdatasync = 1
punch_hole = 3
sendfile = 2
posix_fadvise = 1'
fixed='close_open = 0
truncate = 0
posix_fallocate = 0
copy_file_range = 0'
free='close_open = 1
truncate = 5
posix_fallocate = 3
copy_file_range = 3'
check "ext4 is mounted over the live disk" sh -c "losetup --find --show '$live' >'$WORK/device' && mount \"\$(cat '$WORK/device')\" '$MNT'"
DEVICE=$(cat "$WORK/device")
: >"$WORK/loops/${DEVICE##*/}"
check "$operations operations on a file of ext4, seed $SEED" exercise "$MNT/file" "${WEIGHTS/mapwrite = 0/mapwrite = 5}
$free" 'flen = 16777216'
umount "$MNT"
check "e2fsck finds nothing" e2fsck -fn "$DEVICE"
detach_loop "$DEVICE"
check "$operations operations on the live disk's file, seed $SEED" exercise "$live" "$WEIGHTS
$fixed" 'blockmode = true
nosizechecks = true
flen = 16777216'
check "the server still runs" kill -0 "$SERVER"
finish
