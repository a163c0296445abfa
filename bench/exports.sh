#!/usr/bin/env bash
# bench/exports.sh CATALOG-DIR
#
# Reads a whole disk as a file, in order, with all data in memory: a version and a live disk through Platter's FUSE
# export, compared with a plain FUSE passthrough (bindfs) and with qemu-storage-daemon's FUSE export of the raw file, in
# requests of 1 MiB that bypass the page cache; and through Platter's 9P export compared with diod on the raw file, with
# the same client.
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/exports.sh CATALOG-DIR}
readonly OUR_PORT=25640 DIOD_PORT=25641
PIDS=()
bench_cleanup() {
	for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null && wait "$pid"; done
	umount -l "$WORK/bind" "$WORK/tree" "$WORK/export" 2>/dev/null
}

mapfile -t disks < <(images "$CATALOG")
name=$(basename "${disks[0]}" .raw)
new_store
platter capture "${disks[0]}" "bench/$name" >/dev/null
mkdir "$WORK/folder" "$WORK/bind" "$WORK/tree"
platter export "bench/$name" "$WORK/folder/disk.raw" >/dev/null
example platter-export ninep_read

until_there() {
	local tries=0
	until [ -s "$1" ]; do
		tries=$((tries + 1))
		[ "$tries" -lt 400 ] || { echo "exports: $1 does not come" >&2; exit 1; }
		sleep 0.02
	done
}
"$PLATTER" --store "$STORE" --quiet attach --write "bench/$name" --cache 4096 --fuse "$WORK/tree" --9p 127.0.0.1:$OUR_PORT >"$WORK/ours.log" 2>&1 &
PIDS+=($!)
until_there "$WORK/tree/bench/$name/live.raw"
bindfs -f "$WORK/folder" "$WORK/bind" &
PIDS+=($!)
until_there "$WORK/bind/disk.raw"
: >"$WORK/export"
qemu-storage-daemon --blockdev "driver=file,node-name=file,filename=$WORK/folder/disk.raw" --blockdev driver=raw,node-name=disk,file=file \
	--export "type=fuse,id=export,node-name=disk,mountpoint=$WORK/export" &
PIDS+=($!)
until_there "$WORK/export"
diod -f -n -N -l 127.0.0.1:$DIOD_PORT -e "$WORK/folder" >"$WORK/diod.log" 2>&1 &
PIDS+=($!)
sleep 1

read_file() { dd if="$1" of=/dev/null bs=1M iflag=direct status=none; }
declare -A FILES=([version]=$WORK/tree/bench/$name/1.raw [live]=$WORK/tree/bench/$name/live.raw [bindfs]=$WORK/bind/disk.raw [qsd]=$WORK/export)
heading "$name over FUSE"
for kind in "${!FILES[@]}"; do read_file "${FILES[$kind]}"; done
for _ in $(seq "$RUNS"); do
	for kind in version live bindfs qsd; do timed "fuse-$kind" read_file "${FILES[$kind]}"; done
done
for kind in version live; do
	result "$kind: speed as a ratio to bindfs" "$(calculate "$(median fuse-bindfs) / $(median "fuse-$kind")")"
	result "$kind: as a ratio to qemu-storage-daemon" "$(calculate "$(median fuse-qsd) / $(median "fuse-$kind")")"
done

# Requests of 60 KiB, because diod accepts messages of at most 64 KiB. Eight are in flight.
read_9p() { "$EXAMPLE" "$@"; }
heading "$name over 9P"
for _ in $(seq "$RUNS"); do
	timed 9p-ours read_9p 127.0.0.1:$OUR_PORT / "bench/$name/1.raw" 61440 8
	timed 9p-diod read_9p 127.0.0.1:$DIOD_PORT "$WORK/folder" disk.raw 61440 8
done
result "a version: speed as a ratio to diod" "$(calculate "$(median 9p-diod) / $(median 9p-ours)")"
