#!/usr/bin/env bash
# bench/import.sh DISK
#
# Capture of a disk image in the format of another program, into an empty store, beside `qemu-img convert` of the same file: to a raw
# file, and to a qcow2 compressed with zstd, which compresses as a capture does. Files are synced. All in turn, from the page
# cache. The image is made from the raw disk here.
. "$(dirname "$0")/lib.sh"
DISK=${1:?usage: bench/import.sh DISK}

import() { platter capture "$1" bench/imported; }
convert() { qemu-img convert -O raw "$1" "$WORK/raw" && sync "$WORK/raw"; }
compress() { qemu-img convert -O qcow2 -c -o compression_type=zstd "$1" "$WORK/compressed" && sync "$WORK/compressed"; }

heading "Import of $(basename "$DISK")"
while read -r name format options; do
	image=$WORK/$name.$format
	# shellcheck disable=SC2086  # options are words
	qemu-img convert -f raw -O "$format" $options "$DISK" "$image"
	cat "$image" >/dev/null
	for _ in $(seq "$RUNS"); do
		rm -f "$WORK/raw" "$WORK/compressed"
		timed "convert-$name" convert "$image"
		timed "compress-$name" compress "$image"
		new_store
		timed "capture-$name" import "$image"
	done
	rm -f "$WORK/raw" "$WORK/compressed" "$image"
	result "$name: speed, as a ratio to qemu-img convert to raw" "$(calculate "$(median "convert-$name") / $(median "capture-$name")")" \
		"at least 1; $(spread "capture-$name") s, $(spread "convert-$name") s"
	result "$name: the same, to a compressed qcow2" "$(calculate "$(median "compress-$name") / $(median "capture-$name")")" "$(spread "compress-$name") s"
done <<'IMAGES'
raw raw
qcow2-zlib qcow2 -c
qcow2-zstd qcow2 -c -o compression_type=zstd
vmdk vmdk
vdi vdi
vhdx vhdx
IMAGES
