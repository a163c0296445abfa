#!/usr/bin/env bash
# bench/store-size.sh CATALOG-DIR
#
# Size of the store after each image of the catalog, compared with one compressed file per image: `partclone | zstd -3` of
# each ext4 partition, or `zstd -3` of the sparse disk without one. Then the same raw disks in stores of casync, restic and borg, as
# far as they are installed, all with zstd; and what a version of the first disk adds of which every fiftieth file was written
# anew, with a line before its contents.
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
result "store" "$(calculate "$store / 1e6") MB" "full catalog: at most 1700 MB"
result "one compressed file per image, summed" "$(calculate "$files / 1e6") MB"

# --------------------------------------------------------------------- other tools

# Compression of all tools is zstd; casync uses its default level, restic its own and borg 3.
export RESTIC_PASSWORD=bench BORG_BASE_DIR=$WORK/borg-base BORG_RELOCATED_REPO_ACCESS_IS_OK=yes XDG_CACHE_HOME=$WORK/cache
tools=(platter)
for tool in casync restic borg; do
	if command -v "$tool" >/dev/null; then tools+=("$tool"); else echo "$tool is not installed"; fi
done
# keep TOOL DISK NAME: adds the disk to the store of the tool
keep() {
	case $1 in
	platter) platter capture "$2" "catalog/$3" ;;
	casync) casync make --store="$WORK/casync" "$WORK/$3.caibx" "$2" ;;
	restic) restic -q --repo "$WORK/restic" backup "$2" ;;
	borg) borg create --compression zstd,3 --sparse "$WORK/borg::$3" "$2" ;;
	esac >"$WORK/output" 2>&1 || { tail -n 5 "$WORK/output" >&2; exit 1; }
}
kept() { du -sb "$([ "$1" = platter ] && echo "$STORE" || echo "$WORK/$1")" | cut -f 1; }
for tool in "${tools[@]:1}"; do
	[ "$tool" != restic ] || restic -q init --repo "$WORK/restic"
	[ "$tool" != borg ] || borg init --encryption none "$WORK/borg"
	while read -r disk; do keep "$tool" "$disk" "$(basename "$disk" .raw)"; done < <(images "$CATALOG")
	result "$tool" "$(calculate "$(kept "$tool") / 1e6") MB" "platter as a ratio to it: $(calculate "$store / $(kept "$tool")")"
	rm -rf "${WORK:?}/$tool" "$WORK/cache"
done

# ------------------------------------------- a version with 2 % of its files changed

# edit: writes every fiftieth file on $MNT anew, with another line before its contents
edit() {
	local file
	find "$MNT" -xdev -type f -size +0 -print0 | sort -z | awk 'BEGIN { RS = ORS = "\0" } NR % 50 == 0' | while read -r -d '' file; do
		{ echo "# edited: $file" && cat "$file"; } >"$WORK/edited"
		cat "$WORK/edited" >"$file.new"
		mv "$file.new" "$file"
	done
}
read -r disk < <(images "$CATALOG")
first=$(basename "$disk" .raw)
cp --sparse=always "$disk" "$WORK/changed"
read -r offset length < <(ext4_parts "$disk" | tail -n 1)
attach "$WORK/changed" --offset "$offset" --sizelimit "$length"
mount -o nodiscard "$DEVICE" "$MNT"
edit
umount "$MNT"
detach "$DEVICE"
heading "A version of $first with 2 % of its files changed"
for tool in "${tools[@]}"; do
	rm -rf "$STORE" "$WORK/casync" "$WORK/restic" "$WORK/borg" "$WORK/cache" "$WORK/borg-base"
	[ "$tool" != platter ] || new_store
	[ "$tool" != restic ] || restic -q init --repo "$WORK/restic"
	[ "$tool" != borg ] || borg init --encryption none "$WORK/borg"
	keep "$tool" "$disk" "$first"
	before=$(kept "$tool")
	keep "$tool" "$WORK/changed" "$first-2"
	result "$tool: added, as a ratio to the first" "$(calculate "($(kept "$tool") - $before) / $before")" "$([ "$tool" != platter ] || echo 'at most 0.04')"
done
