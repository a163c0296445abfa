#!/usr/bin/env bash
# bench/install.sh CATALOG-DIR
#
# Installs the first and the last image of the catalog, to a file and to a loop device, compared with `dd bs=4M
# oflag=direct` of the same allocated bytes, `qemu-img convert` from compressed qcow2, and partclone + zstd. The limit
# is the slower of dd to the same target and of decoding alone: every frame of the image once, on two cores, without
# hashing and writing. Because an install also hashes and writes on the same processors, its own processor seconds
# divided by two cores are printed as a second limit, which no order of work can beat. Then both images are installed to
# a loop device that the kernel limits to 500 MB/s, like a SATA disk.
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/install.sh CATALOG-DIR}

example platter-jobs measure
new_store
mapfile -t disks < <(images "$CATALOG")
for disk in "${disks[@]}"; do platter capture "$disk" "catalog/$(basename "$disk" .raw)" >/dev/null; done

# Seconds for decoding alone, without program start; and with hashing of every block.
decode_alone() {
	"$EXAMPLE" decode "$STORE" "catalog/$name" 2 >"$WORK/decoded"
	awk '$1 == "checksum" { print $7 }' "$WORK/decoded" >>"$WORK/times/decode"
	awk '$1 == "hashes" { print $7 }' "$WORK/decoded" >>"$WORK/times/verify"
}
plain_dd() {
	dd if="$WORK/allocated" of="$target" bs=4M oflag=direct conv=notrunc,fdatasync status=none
}
install_json() { platter_json install "catalog/$name" "$target" --yes --force not-a-disk; }
install_image() {
	/usr/bin/time -f '%U %S' -o "$WORK/cpu" "$PLATTER" --store "$STORE" --quiet install "catalog/$name" "$target" --yes --force not-a-disk
	awk '{ print $1 + $2 }' "$WORK/cpu" >>"$WORK/times/install-cpu"
}
qemu_convert() { qemu-img convert -n -t none -f qcow2 -O raw "$WORK/disk.qcow2" "$target"; }
partclone_restore() {
	attach "$target" --offset "$offset" --sizelimit "$length"
	zstd -dc -q "$WORK/partclone.zst" | partclone.ext4 -r -s - -o "$DEVICE" -L "$WORK/partclone.log"
	sync "$DEVICE"
	detach "$DEVICE"
}

compare() { # FILE-or-LOOP
	local kind=$1 ran
	rm -f "$WORK/times"/*
	truncate -s "$disk_bytes" "$WORK/target"
	target=$WORK/target
	if [ "$kind" = loop ]; then
		attach "$WORK/target" --direct-io=on
		target=$DEVICE
	fi
	heading "$name to a $kind: $(calculate "$bytes / 1e6") MB allocated"
	for ran in $(seq "$RUNS"); do
		timed dd plain_dd
		decode_alone
		timed install install_image
		timed qemu-img qemu_convert
		[ "$kind" = loop ] || timed partclone partclone_restore
	done
	line dd "$bytes"
	line decode "$bytes"
	line install "$bytes"
	line qemu-img "$bytes"
	[ "$kind" = loop ] || line partclone "$bytes"
	result "speed, as a ratio to the slower of dd and decode" \
		"$(calculate "($(median dd) > $(median decode) ? $(median dd) : $(median decode)) / $(median install)")" "at least 0.9"
	result "the processors' limit: its seconds on both cores" "$(calculate "$(median install-cpu) / 2") s" \
		"of them decoding and hashing $(median verify) s"
	result "that limit's speed, as a ratio to the slower of dd and decode" \
		"$(calculate "($(median dd) > $(median decode) ? $(median dd) : $(median decode)) / ($(median install-cpu) / 2)")"
	result "speed, as a ratio to the processors' limit" "$(calculate "$(median install-cpu) / 2 / $(median install)")"
	result "speed, as a ratio to qemu-img" "$(calculate "$(median qemu-img) / $(median install)")" "($ran runs)"
	[ "$kind" != loop ] || detach "$target"
	rm -f "$WORK/target"
}

# Runs a command in a cgroup whose writes to the device are limited to this many bytes per second.
BLKIO=/sys/fs/cgroup/blkio/platter-bench-$$
bench_cleanup() { [ ! -d "$BLKIO" ] || rmdir "$BLKIO"; }
throttled() {
	local limit=$1
	shift
	lsblk -dno MAJ:MIN "$target" | awk -v limit="$limit" '{ print $1, limit }' >"$BLKIO/blkio.throttle.write_bps_device"
	(echo "$BASHPID" >"$BLKIO/cgroup.procs" && "$@")
}

# Zeros are written too, and the limit applies to them as well, so speeds are compared instead of times.
compare_throttled() { # BYTES-PER-SECOND
	local ran all
	mkdir "$BLKIO" 2>/dev/null || { echo "install: no blkio control group here: the throttled target is left out"; return; }
	rm -f "$WORK/times"/*
	truncate -s "$disk_bytes" "$WORK/target"
	attach "$WORK/target" --direct-io=on
	target=$DEVICE
	heading "$name to a loop that takes $(calculate "$1 / 1e6") MB/s"
	for ran in $(seq "$RUNS"); do
		timed dd throttled "$1" plain_dd
		timed install throttled "$1" install_json
		all=$(jq -s 'last | .written_bytes + .zeroed_bytes' "$WORK/output")
	done
	line dd "$bytes"
	line install "$all"
	result "speed, as a ratio to dd" \
		"$(calculate "($all / $(median install)) / ($bytes / $(median dd))")" "at least 0.9 ($ran runs)"
	detach "$target"
	rmdir "$BLKIO"
	rm -f "$WORK/target"
}

for disk in "${disks[0]}" "${disks[-1]}"; do
	name=$(basename "$disk" .raw)
	disk_bytes=$(stat -c %s "$disk")
	allocated_bytes "$disk" >"$WORK/allocated"
	bytes=$(stat -c %s "$WORK/allocated")
	[ "$bytes" -gt 0 ] || { echo "install: $name has no ext4 partition: left out"; continue; }
	# whole blocks for direct I/O
	truncate -s $(((bytes + 4095) / 4096 * 4096)) "$WORK/allocated"
	qemu-img convert -c -f raw -O qcow2 "$disk" "$WORK/disk.qcow2"
	read -r offset length < <(ext4_parts "$disk" | tail -n 1)
	attach "$disk" --offset "$offset" --sizelimit "$length" --read-only
	partclone.ext4 -c -s "$DEVICE" -o - -L "$WORK/partclone.log" 2>/dev/null | zstd -3 -q -f -o "$WORK/partclone.zst"
	detach "$DEVICE"
	compare file
	compare loop
	compare_throttled 500000000
done
