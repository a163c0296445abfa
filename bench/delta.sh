#!/usr/bin/env bash
# bench/delta.sh CATALOG-DIR
#
# Updates a target that holds the previous version of the first image of the catalog: a loop device with direct I/O. The next version
# differs by 64 MiB of new and replaced files. Compared in turn: `platter install --delta`, a plain install, and `rsync --inplace`
# of the raw disks. Reading the target once with `dd` is the limit of a delta install. Then a target whose second half is lost, as
# after an install that was killed half way. What is fetched is compared with the frames that the versions do not share.
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/delta.sh CATALOG-DIR}

new_store
read -r disk < <(images "$CATALOG")
name=catalog/$(basename "$disk" .raw)
disk_bytes=$(stat -c %s "$disk")
platter capture "$disk" "$name" >/dev/null
cp --sparse=always "$disk" "$WORK/next"
read -r offset length < <(ext4_parts "$disk" | tail -n 1)
attach "$WORK/next" --offset "$offset" --sizelimit "$length"
mount "$DEVICE" "$MNT"
mkdir "$MNT/delta"
for file in $(seq 64); do head -c 1048576 /dev/urandom >"$MNT/delta/$file"; done
umount "$MNT"
detach "$DEVICE"
platter_json capture "$WORK/next" "$name" >"$WORK/capture.json"
differ=$(jq .new_stored_bytes "$WORK/capture.json")

truncate -s "$disk_bytes" "$WORK/target"
attach "$WORK/target" --direct-io=on
target=$DEVICE
previous() {
	dd if="$disk" of="$target" bs=4M oflag=direct status=none
	[ "$1" = whole ] || for part in "0 1" "$((disk_bytes / 2097152)) $((disk_bytes / 2097152))"; do
		dd if=/dev/zero of="$target" bs=1M seek="${part% *}" count="${part#* }" oflag=direct status=none
	done
	sync "$target"
	echo 3 >/proc/sys/vm/drop_caches
}
read_target() { dd if="$target" of=/dev/null bs=4M iflag=direct status=none; }
delta() { platter_json install "$name" "$target" --yes --delta; }
plain() { platter_json install "$name" "$target" --yes --no-delta; }
inplace() { rsync --inplace --no-whole-file --stats --copy-devices --write-devices "$WORK/next" "$target" && sync "$target"; }

for kind in whole half; do
	heading "$name onto the previous version ($kind), $(calculate "$disk_bytes / 1e6") MB"
	rm -f "$WORK/times"/*
	for ran in $(seq "$RUNS"); do
		previous "$kind"
		timed read read_target
		timed delta delta
		fetched=$(jq -s 'last | .fetched_bytes' "$WORK/output")
		previous "$kind"
		timed plain plain
		all=$(jq -s 'last | .fetched_bytes' "$WORK/output")
		previous "$kind"
		timed rsync inplace
		sent=$(awk -F: '/^Literal data/ { gsub(/[^0-9]/, "", $2); print $2 }' "$WORK/output")
	done
	for series in read delta plain rsync; do line "$series" "$disk_bytes"; done
	result "time, as a ratio to reading the target once" "$(calculate "$(median delta) / $(median read)")" "at most 1.2 ($ran runs)"
	result "bytes fetched by delta, plain, rsync (uncompressed)" "$fetched" "$all, $sent"
	if [ "$kind" = whole ]; then
		result "bytes fetched, as a ratio to the frames that differ" "$(calculate "$fetched / $differ")" "at most 1.1"
	else
		result "bytes fetched, as a ratio to a plain install" "$(calculate "$fetched / $all")"
	fi
	result "speed, as a ratio to a plain install" "$(calculate "$(median plain) / $(median delta)")"
	result "speed, as a ratio to rsync --inplace" "$(calculate "$(median rsync) / $(median delta)")"
done
detach "$target"
