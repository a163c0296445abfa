#!/usr/bin/env bash
# tests/roundtrip.sh [SAMPLES-DIR]
#
# Captures each sample, installs it on a loop device full of other bytes, and checks the result with other tools: partition
# tables with sfdisk and sgdisk, filesystems with e2fsck, backup superblocks and group descriptors byte by byte, and every
# file with owner, mode, times and attributes on a mounted copy. At most 1.02 times the space that dumpe2fs reports as
# allocated may be captured of an ext filesystem, and nothing of a free block may be in the packs. PLATTER_SIZE=quick (default) or full selects the samples to build if SAMPLES-DIR is not given.
. "$(dirname "$0")/lib.sh"
. "$TESTS/facts.sh"

# In every block of the samples that dumpe2fs calls free.
readonly MARKER=PLATTER-FREE-BLOCK.

need_root "making and mounting file systems" || { finish; exit 0; }

# section FILE OFFSET LENGTH: copies these bytes to the file $SECTION
section() {
	SECTION=$WORK/section.$(basename "$1")
	rm -f "$SECTION"
	dd if="$1" of="$SECTION" bs=1M iflag=skip_bytes,count_bytes skip="$2" count="$3" conv=sparse status=none
	truncate -s "$3" "$SECTION"
}

same_range() { cmp -i "$3" -n "$4" "$1" "$2"; } # FILE FILE OFFSET LENGTH

# sector_size IMAGE: 4096 if there is a GPT header at offset 4096 and none at 512
sector_size() {
	if [ "$(dd if="$1" bs=1 skip=4096 count=8 status=none | tr -d '\0')" = "EFI PART" ] &&
		[ "$(dd if="$1" bs=1 skip=512 count=8 status=none | tr -d '\0')" != "EFI PART" ]; then
		echo 4096
	else
		echo 512
	fi
}

# partition_table FILE: the output of sfdisk, without the file's name
partition_table() {
	attach "$1" --sector-size "$(sector_size "$1")" --read-only
	sfdisk -d "$DEVICE" 2>/dev/null | sed "s#$DEVICE#disk#g" || true
	detach_loop "$DEVICE"
}

same_partition_table() { diff <(partition_table "$1") <(partition_table "$2"); }

# If sgdisk rejects the source, the copy need not pass; otherwise it must.
gpt_verifies() {
	attach "$1" --sector-size "$(sector_size "$1")" --read-only
	sgdisk -v "$DEVICE" | tee -a "$WORK/sgdisk" | grep 'No problems found' >/dev/null
	local code=$?
	detach_loop "$DEVICE"
	return $code
}

# metadata_copies FILE: "offset length" in bytes of every superblock and group descriptor table, primary or backup
metadata_copies() {
	dumpe2fs "$1" 2>/dev/null | awk '
		function range(text, unit,   ends, n) {
			n = split(text, ends, "-"); if (n == 1) ends[2] = ends[1]
			printf "%.0f %.0f\n", ends[1] * unit, (ends[2] - ends[1] + 1) * unit
		}
		/^Block size/ { block = $3 }
		/(Primary|Backup) superblock at/ { match($0, /superblock at [0-9]+/); range(substr($0, RSTART + 14, RLENGTH - 14), block) }
		/Group descriptors? at/ { match($0, /descriptors? at [0-9-]+/); text = substr($0, RSTART, RLENGTH); sub(/.* /, "", text); range(text, block) }'
}

same_metadata_copies() {
	local offset length copies=0
	while read -r offset length; do
		cmp -i "$offset" -n "$length" "$1" "$2" || return 1
		copies=$((copies + 1))
	done < <(metadata_copies "$1")
	echo "$copies copies of superblocks and group descriptors"
	[ "$copies" -ge 1 ]
}

# rows IMAGE: its rows of the manifest
rows() { awk -F '\t' -v image="$1" '$1 == image' "$SAMPLES/manifest.tsv"; }

# allocated_max IMAGE: the most bytes that may be captured: all except the free space of file systems
allocated_max() {
	rows "$1" | awk -F '\t' -v total="$(stat -c %s "$SAMPLES/$1.img")" '
		$7 != "-" && $2 !~ /\./ { free += $4 - $7 * 1.02 }
		END { printf "%.0f", total - free }'
}

check_part() { # IMAGE PART OFFSET LENGTH FS
	local name=$1 part=$2 offset=$3 length=$4 fs=$5 source facts=$SAMPLES/$1.facts
	[ "$part" = 0 ] || facts=$SAMPLES/$name.p$part.facts
	case $fs in
	ext*)
		section "$SAMPLES/$name.img" "$offset" "$length"
		source=$SECTION
		section "$WORK/target" "$offset" "$length"
		check "$name $part: has deleted contents" grep -qaF "$MARKER" "$source"
		check "$name $part: e2fsck" e2fsck -fn "$SECTION"
		check "$name $part: backup superblocks and group descriptors" same_metadata_copies "$source" "$SECTION"
		check "$name $part: every file and its metadata" diff "$facts" <(ext_facts "$SECTION" "$MNT")
		rm -f "$source" "$SECTION"
		;;
	swap) check "$name $part: swap header" same_range "$SAMPLES/$name.img" "$WORK/target" "$offset" 4096 ;;
	lvm) ;; # its rows follow
	*) check "$name $part: every byte" same_range "$SAMPLES/$name.img" "$WORK/target" "$offset" "$length" ;;
	esac
}

# other_bytes FILE BYTES: makes a target with other contents
other_bytes() { head -c "$2" /dev/zero | tr '\0' '\252' >"$1"; }

# install_over IMAGE [OPTION...]: to $WORK/target, a block device full of other contents
install_over() {
	local image=$SAMPLES/$1.img code=0
	other_bytes "$WORK/target" "$(stat -c %s "$image")"
	attach "$WORK/target" --sector-size "$(sector_size "$image")"
	platter install "samples/$1" "$DEVICE" --yes "${@:2}" || code=$?
	sync "$DEVICE"
	detach_loop "$DEVICE"
	return "$code"
}

round_trip() { # IMAGE
	local name=$1 image=$SAMPLES/$1.img captured most table
	check "$name: capture drops nothing that other tools consider used" platter capture "$image" "samples/$name" --audit
	platter_json show "samples/$name" >"$WORK/show.json" 2>/dev/null || true
	captured=$(jq -r '[.. | .allocated_bytes? // empty] | first // "none"' "$WORK/show.json")
	most=$(allocated_max "$name")
	echo "captured $captured of at most $most bytes" >"$LOG"
	if [[ $captured =~ ^[0-9]+$ ]] && [ "$captured" -le "$most" ] && [ "$captured" -gt 0 ]; then
		ok "$name: captured bytes ($captured of at most $most)"
	else
		not_ok "$name: captured bytes"
	fi
	check "$name: install" install_over "$name"
	table=$(rows "$name" | awk -F '\t' '$2 != 0' | wc -l)
	if [ "$table" != 0 ]; then
		check "$name: partition table" same_partition_table "$image" "$WORK/target"
		if gpt_verifies "$image" 2>/dev/null; then
			check "$name: sgdisk -v" gpt_verifies "$WORK/target"
		fi
	fi
	while IFS=$'\t' read -r _ part offset bytes fs _; do
		check_part "$name" "$part" "$offset" "$bytes" "$fs"
	done < <(rows "$name")
	rm -f "$WORK/target"
}

# With free space written as zeros, an installed disk equals the output of `export`.
same_as_export() { # IMAGE
	check "$1: export" platter export "samples/$1" "$WORK/exported"
	other_bytes "$WORK/target" "$(stat -c %s "$SAMPLES/$1.img")"
	check "$1: install --free zero --verify" platter install "samples/$1" "$WORK/target" --free zero --verify --yes --force not-a-disk
	check "$1: export and install --free zero agree" cmp "$WORK/exported" "$WORK/target"
	rm -f "$WORK/exported" "$WORK/target"
}

# A larger target: the backup table must be at its end, and every tool must accept it.
larger_target() { # IMAGE
	truncate -s $(($(stat -c %s "$SAMPLES/$1.img") + (64 << 20))) "$WORK/target"
	check "$1: install on a larger target" platter install "samples/$1" "$WORK/target"
	check "$1: sgdisk -v on the larger target" gpt_verifies "$WORK/target"
	rm -f "$WORK/target"
}

# To a block device, with direct I/O.
block_device() { # IMAGE
	check "$1: install on a block device" install_over "$1" --free zero --verify
	check "$1: export" platter export "samples/$1" "$WORK/exported"
	check "$1: the block device equals the export" cmp "$WORK/exported" "$WORK/target"
	rm -f "$WORK/target" "$WORK/exported"
}

unclean() { # IMAGE
	local name=$1
	check_exit "$EXIT_REFUSED" "$name: capture is refused" platter capture "$SAMPLES/$name.img" "samples/$name"
	check_said "$name: the reason is reported" 'recover|journal|unmount|e2fsck'
	check "$name: capture --force" platter capture "$SAMPLES/$name.img" "samples/$name" --force --audit
	other_bytes "$WORK/target" "$(stat -c %s "$SAMPLES/$name.img")"
	check "$name: install" platter install "samples/$name" "$WORK/target" --yes --force not-a-disk
	check "$name: with every byte" cmp "$SAMPLES/$name.img" "$WORK/target"
	rm -f "$WORK/target"
}

# If reproducible, a second capture of the same disk has the same score and adds nothing; also from a device, and from a
# file whose zeros are not holes.
same_score() { # IMAGE
	local first second
	first=$(platter_json show "samples/$1" | jq -r '.score')
	cp --sparse=never "$SAMPLES/$1.img" "$WORK/dense"
	check "$1: capture without holes" platter capture "$WORK/dense" "samples/$1"
	[ "$(platter_json show "samples/$1" | jq -r '.score')" = "$first" ] || not_ok "$1: without holes, another score"
	attach "$WORK/dense" --sector-size "$(sector_size "$WORK/dense")" --read-only
	check "$1: capture of a device" platter capture "$DEVICE" "samples/$1"
	detach_loop "$DEVICE"
	rm "$WORK/dense"
	second=$(platter_json show "samples/$1" | jq -r '.score')
	if [ -n "$first" ] && [ "$first" != null ] && [ "$first" = "$second" ]; then
		ok "$1: the same disk has the same score"
	else
		not_ok "$1: scores of the same disk: $first, $second"
	fi
}

SAMPLES=${1:-${PLATTER_SAMPLES:-}}
if [ -z "$SAMPLES" ]; then
	SAMPLES=$WORK/samples
	"$TESTS/samples.sh" "$SAMPLES" "${PLATTER_SIZE:-quick}"
fi
SAMPLES=$(cd "$SAMPLES" && pwd)
check "init" platter init
mapfile -t images < <(tail -n +2 "$SAMPLES/manifest.tsv" | cut -f 1 | uniq)
is_kept() { [[ $1 == *-unclean ]] || rows "$1" | awk -F '\t' '$5 == "kept" { found = 1 } END { exit !found }'; }
for image in "${images[@]}"; do
	is_kept "$image" || round_trip "$image"
done
nothing_free() { python3 "$TESTS/decoded.py" "$STORE" >"$WORK/decoded" && ! grep -qaF "$MARKER" "$WORK/decoded"; }
check "nothing of a free block is in the store" nothing_free
for image in "${images[@]}"; do
	[[ $image != *bigalloc* ]] || check "$image: nor of blocks that only share a cluster" eval '! platter export "samples/$image" - | grep -qaF PLATTER-STALE-DATA'
done
rm -f "$WORK/decoded"
for image in "${images[@]}"; do
	case $image in
	# File systems other than ext are captured in full, clean or not.
	*-unclean) if [[ $image == ext* ]]; then unclean "$image"; fi ;;
	*) if is_kept "$image"; then round_trip "$image"; fi ;;
	esac
done
same_score ext4
same_score disk-gpt
same_as_export ext4
same_as_export disk-gpt
larger_target disk-gpt
block_device disk-gpt
check "the store is sound" platter check --read-data
finish
