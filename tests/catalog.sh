#!/usr/bin/env bash
# tests/catalog.sh [CATALOG-DIR]: real operating-system disks, as `catalog/make-catalog` builds them: each is captured
# and installed; partition tables, file systems and the SHA-256 of every file must be equal. Without a folder the
# small catalog is built; PLATTER_CATALOG names an existing one.
. "$(dirname "$0")/lib.sh"

need_root "mounting disks" || { finish; exit 0; }
CATALOG=${1:-${PLATTER_CATALOG:-}}
if [ -z "$CATALOG" ]; then
	CATALOG=$WORK/catalog
	check "the small catalog is built" "$ROOT/catalog/make-catalog" "$CATALOG" small
fi

# partitions FILE: "number offset length type" of each partition that holds an ext4
partitions() {
	sfdisk -J "$1" | jq -r '.partitiontable.partitions[] | "\(.node | capture("(?<n>[0-9]+)$").n) \(.start * 512) \(.size * 512)"' |
		while read -r number offset length; do
			[ "$(blkid -p -O "$offset" -S "$length" -o value -s TYPE "$1" 2>/dev/null)" != ext4 ] || echo "$number $offset $length"
		done
}

sums() { # FILE OFFSET LENGTH
	mount -o "loop,ro,noload,offset=$2,sizelimit=$3" "$1" "$MNT"
	(cd "$MNT" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
	umount "$MNT"
}

same_tables() { diff <(sfdisk -d "$1" | sed "s#$1#disk#g") <(sfdisk -d "$2" | sed "s#$2#disk#g"); }
same_files() {
	sums "$1" "$3" "$4" >"$WORK/sums-source"
	sums "$2" "$3" "$4" >"$WORK/sums-target"
	[ -s "$WORK/sums-source" ] && diff "$WORK/sums-source" "$WORK/sums-target"
}
sound() { # FILE OFFSET LENGTH
	attach "$1" --offset "$2" --sizelimit "$3" --read-only
	local code=0
	e2fsck -fn "$DEVICE" || code=$?
	detach_loop "$DEVICE"
	return $code
}

check "init" platter init
for image in "$CATALOG"/*.raw; do
	name=$(basename "$image" .raw)
	check "$name: capture" platter capture "$image" "catalog/$name"
	check "$name: install" platter install "catalog/$name" "$WORK/target" --verify --yes
	check "$name: partition table" same_tables "$image" "$WORK/target"
	while read -r number offset length; do
		check "$name: partition $number: e2fsck" sound "$WORK/target" "$offset" "$length"
		check "$name: partition $number: every file" same_files "$image" "$WORK/target" "$offset" "$length"
	done < <(partitions "$image")
	rm -f "$WORK/target"
done
check "the store is sound" platter check --read-data
finish
