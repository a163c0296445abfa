#!/usr/bin/env bash
# bench/store-size.sh CATALOG-DIR
#
# Size of the store after each image of the catalog, compared with one compressed file per image: `partclone | zstd -3` of
# each ext4 partition, or `zstd -3` of the sparse disk without one. Other tools need for the eighteen raw disks of the
# full catalog (measured once): casync 4,108 MB, restic 4,889 MB, borg 5,386 MB.
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/store-size.sh CATALOG-DIR}

# one_file DISK: bytes of the compressed file per image
one_file() {
	local offset length bytes=0 part found=0
	while read -r offset length; do
		found=1
		attach "$1" --offset "$offset" --sizelimit "$length" --read-only
		part=$(partclone.ext4 -c -s "$DEVICE" -o - -L "$WORK/partclone.log" 2>/dev/null | zstd -3 -q -c | wc -c)
		detach "$DEVICE"
		bytes=$((bytes + part))
	done < <(ext4_parts "$1")
	[ "$found" = 1 ] || bytes=$(zstd -3 -q -c "$1" | wc -c)
	echo "$bytes"
}

new_store
store=0 files=0
printf '%-22s %12s %12s %14s %14s %8s\n' image 'added, MB' 'store, MB' 'one file, MB' 'files sum, MB' ratio
while read -r disk; do
	name=$(basename "$disk" .raw)
	platter capture "$disk" "catalog/$name" >/dev/null
	now=$(du -sb "$STORE" | cut -f 1)
	one=$(one_file "$disk")
	files=$((files + one))
	printf '%-22s %12.1f %12.1f %14.1f %14.1f %8.3f\n' "$name" "$(calculate "($now - $store) / 1e6")" "$(calculate "$now / 1e6")" \
		"$(calculate "$one / 1e6")" "$(calculate "$files / 1e6")" "$(calculate "$now / $files")"
	store=$now
done < <(images "$CATALOG")
result "store" "$(calculate "$store / 1e6") MB" "full catalog: at most 2200 MB"
result "one compressed file per image, summed" "$(calculate "$files / 1e6") MB"
