#!/usr/bin/env bash
# bench/install.sh CATALOG-DIR
#
# Installs the first and the last image of the catalog, to a file and to a loop device, beside `dd bs=4M oflag=direct`
# of the same allocated bytes, `qemu-img convert` from compressed qcow2, and partclone + zstd. The limit is the slower
# of dd to the same target and of decoding alone: every frame of the image once, on two cores, without hashing and
# without writing.
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/install.sh CATALOG-DIR}

example platter-jobs measure
new_store
mapfile -t disks < <(images "$CATALOG")
for disk in "${disks[@]}"; do platter capture "$disk" "catalog/$(basename "$disk" .raw)" >/dev/null; done

# What decoding alone takes, in seconds, without the starting of a program.
decode_alone() {
	"$EXAMPLE" decode "$STORE" "catalog/$name" 2 | awk '$1 == "checksum" { print $7 }' >>"$WORK/times/decode"
}
plain_dd() { dd if="$WORK/allocated" of="$target" bs=4M oflag=direct conv=notrunc,fdatasync status=none; }
install_image() { platter install "catalog/$name" "$target"; }
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
	result "speed, as a ratio to qemu-img" "$(calculate "$(median qemu-img) / $(median install)")" "($ran runs)"
	[ "$kind" != loop ] || detach "$target"
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
done
