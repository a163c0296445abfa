#!/usr/bin/env bash
# tests/samples.sh OUTDIR quick|full [SAMPLE...]
#
# Builds the disk images for the round-trip test: ext2/3/4 in every layout that mke2fs makes, partition tables of every
# kind, swap, and file systems copied while mounted. Each has files of many shapes, and is made over stale, nonzero data.
# At the end a marker of its own is written to every block that dumpe2fs calls free: none of it may be captured. Missing an
# allocated block shows in the files.
#
#   OUTDIR/NAME.img             the image, sparse
#   OUTDIR/NAME[.pN].facts      everything about the files inside: checksums, owners, modes, times, attributes
#   OUTDIR/manifest.tsv         a row for each file system: image, part (0: the whole image), offset, length, fs,
#                               block_size, allocated_bytes (by dumpe2fs; - where all counts), note
#
# Existing samples are kept. Needs root and loop devices for contents that only the kernel can write; mke2fs itself
# fills samples that the kernel cannot mount. A sample that cannot be built is an error.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2; }
if [ -z "${SAMPLES_NAMESPACE:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo "samples: must be root" >&2; exit 1; }
	exec env SAMPLES_NAMESPACE=1 unshare --mount --propagation private -- "$BASH" "$0" "$@"
fi

mkdir -p "$1/.rows"
OUT=$(cd "$1" && pwd)
SIZE=$2
shift 2
WORK=$(mktemp -d "${TMPDIR:-/tmp}/platter-samples.XXXXXX")
MNT=$WORK/mnt
mkdir "$MNT"
BUILD_LOG=$OUT/build.log
export LC_ALL=C.UTF-8 PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
LOOPS=()
. "$(dirname "${BASH_SOURCE[0]}")/facts.sh"

cleanup() {
	local rc=$?
	set +e
	release
	rm -rf --one-file-system "$WORK"
	exit $rc
}
trap cleanup EXIT
trap 'exit 130' INT TERM

release() {
	local device
	while mountpoint -q "$MNT"; do umount "$MNT" || sleep 0.2; done
	for device in "${LOOPS[@]}"; do
		case $(losetup -n -O BACK-FILE "$device" 2>/dev/null) in
		"$OUT"/* | "$WORK"/*) losetup -d "$device" ;;
		esac
	done
	LOOPS=()
}

# loop FILE [OFFSET LENGTH]: attaches a loop device and sets $DEVICE
loop() {
	DEVICE=$(losetup --find --show ${2:+--offset "$2" --sizelimit "$3"} "$1")
	LOOPS+=("$DEVICE")
}

# -------------------------------------------------------------------- contents

random() {
	local key
	key=$(printf %s "$2" | md5sum | cut -c1-32)
	head -c "$1" /dev/zero | openssl enc -aes-128-ctr -K "$key" -iv "$key" -nosalt
}

stale() { yes PLATTER-STALE-DATA. | head -c "$1" || [ $? = 141 ]; }

# Contents that mke2fs can create by itself.
tree() {
	local dir=$1 n
	mkdir -p "$dir/many" "$dir/deep/a/b/c" "$dir/big"
	for n in $(seq 150); do printf 'file %d of many\n%s\n' "$n" "$(seq "$n")" >"$dir/many/$n.txt"; done
	: >"$dir/empty"
	printf x >"$dir/tiny"
	random 1 one >"$dir/deep/a/b/c/one-byte"
	for n in 4095 4096 4097 65535 65536 65537 1000001; do random "$n" "size $n" >"$dir/big/$n"; done
	head -c 700000 /dev/zero >"$dir/big/zeros"
	seq 200000 >"$dir/big/numbers"
	ln "$dir/big/numbers" "$dir/deep/hard-link"
	ln -s ../big/numbers "$dir/deep/short-link"
	ln -s "/$(head -c 900 /dev/zero | tr '\0' y)" "$dir/deep/long-link"
	mkfifo "$dir/deep/fifo"
	mknod "$dir/deep/node" c 1 3
	printf 'ünïcödé\n' >"$dir/deep/ünïcödé-ファイル"
	truncate -s 6M "$dir/big/sparse"
	for n in 0 1 17 700 1400; do printf 'at %d' "$n" | dd of="$dir/big/sparse" bs=4096 seek="$n" conv=notrunc status=none; done
	chmod 6751 "$dir/many/2.txt"
	chown 1234:70000 "$dir/many/3.txt" "$dir/deep"
	touch -d '1999-12-31 23:59:58.123456789' "$dir/many/4.txt" "$dir/deep/a"
}

# Contents that only a kernel creates: attributes, preallocation, fragments, and reused blocks.
live() {
	local dir=$1 n
	tree "$dir"
	setfattr -n user.note -v "$(head -c 600 /dev/zero | tr '\0' v)" "$dir/tiny" || true
	fallocate -l 1M "$dir/big/unwritten" 2>/dev/null || true
	fallocate -l 400K "$dir/big/half-written" 2>/dev/null || true
	random 100000 half | dd of="$dir/big/half-written" bs=100000 conv=notrunc status=none
	for n in $(seq 24); do
		random 9000 "p$n" >>"$dir/big/fragmented-1"
		random 17000 "q$n" >>"$dir/big/fragmented-2"
		sync "$dir/big/fragmented-1" "$dir/big/fragmented-2"
	done
	mkdir "$dir/fill"
	for n in $(seq 8); do stale 1000000 >"$dir/fill/$n" 2>/dev/null || break; done
	sync -f "$dir"
	rm -f "$dir/fill"/*[13579] "$dir/many"/*7.txt
	random 600000 late >"$dir/big/late"
	sync -f "$dir"
	rm -rf "$dir/fill"
	sync -f "$dir"
}

# ---------------------------------------------------------------- one partition

# row IMAGE PART OFFSET LENGTH FS NOTE
row() {
	local at="$OUT/.$1.part?offset=$3" block=- allocated=-
	case $5 in
	ext*)
		block=$(dumpe2fs -h "$at" 2>/dev/null | awk -F: '/^Block size/ { print $2 + 0 }')
		# the groups' bitmaps, not the counters of the superblock
		allocated=$(dumpe2fs "$at" 2>/dev/null | awk -v block="$block" '
			/^Block count/ { total = $3 }
			/^  Free blocks:/ {
				sub(/^  Free blocks: */, ""); n = split($0, runs, /, */)
				for (i = 1; i <= n; i++) if (runs[i] != "") {
					m = split(runs[i], ends, "-"); if (m == 1) ends[2] = ends[1]
					free += ends[2] - ends[1] + 1
				}
			}
			END { printf "%.0f", (total - free) * block }')
		;;
	swap) block=4096 allocated=4096 ;;
	esac
	printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" "$block" "$allocated" "$6" >>"$WORK/rows"
}

# ext IMAGE PART OFFSET LENGTH live|tree MKE2FS-ARGUMENT...: makes this file system over stale data
ext() {
	local image=$1 part=$2 offset=$3 length=$4 way=$5 file=$OUT/.$1.part facts=$OUT/$1.facts
	shift 5
	[ "$part" = 0 ] || facts=$OUT/$image.p$part.facts
	stale "$length" | dd of="$file" bs=1M seek="$offset" oflag=seek_bytes conv=notrunc status=none
	loop "$file" "$offset" "$length"
	if [ "$way" = tree ]; then
		rm -rf "$WORK/tree"
		tree "$WORK/tree"
		mke2fs -F -q -E "nodiscard${EXTENDED:+,$EXTENDED}" -d "$WORK/tree" "$@" "$DEVICE"
		# mke2fs does not count quota for the files that it creates itself
		e2fsck -fy "$DEVICE" || [ $? = 1 ]
		ext_facts "$DEVICE" "$MNT" >"$facts"
	else
		mke2fs -F -q -E "nodiscard${EXTENDED:+,$EXTENDED}" "$@" "$DEVICE"
		mount "$DEVICE" "$MNT"
		live "$MNT"
		facts "$MNT" >"$facts"
	fi
	release
	[ -n "${UNMARKED:-}" ] || mark_free "$file" "$offset"
	row "$image" "$part" "$offset" "$length" ext "$*"
}

# mark_free FILE OFFSET: overwrites every block of an ext that dumpe2fs calls free
mark_free() {
	dumpe2fs "$1?offset=$2" >"$WORK/layout" 2>/dev/null
	python3 - "$@" "$WORK/layout" <<-'END'
		import re, sys
		marker = b"PLATTER-FREE-BLOCK."
		with open(sys.argv[1], "r+b") as disk, open(sys.argv[3]) as layout:
		    for line in layout:
		        if line.startswith("Block size:"):
		            block = int(line.split()[-1])
		        elif line.startswith("  Free blocks: "):
		            for first, last in re.findall(r"(\d+)(?:-(\d+))?", line):
		                length = (int(last or first) - int(first) + 1) * block
		                disk.seek(int(sys.argv[2]) + int(first) * block)
		                disk.write((marker * (length // len(marker) + 1))[:length])
	END
}

# whole NAME MIB live|tree MKE2FS-ARGUMENT...: an unpartitioned image
whole() {
	local name=$1 mib=$2
	truncate -s "${mib}M" "$OUT/.$name.part"
	shift 2
	ext "$name" 0 0 $((mib << 20)) "$@"
}

# other IMAGE PART OFFSET LENGTH swap|unknown
other() {
	local file=$OUT/.$1.part
	case $5 in
	swap)
		stale "$4" | dd of="$file" bs=1M seek="$3" oflag=seek_bytes conv=notrunc status=none
		loop "$file" "$3" "$4"
		mkswap "$DEVICE"
		release
		;;
	unknown) random "$4" "$1 $2" | dd of="$file" bs=1M seek="$3" oflag=seek_bytes conv=notrunc status=none ;;
	esac
	row "$1" "$2" "$3" "$4" "$5" ''
}

# ------------------------------------------------------------------ the samples

make_ext2() { whole ext2 48 live -t ext2; }
make_ext3() { whole ext3 48 live -t ext3; }
make_ext4() { whole ext4 64 live -t ext4; }
make_ext2-1k() { whole ext2-1k 24 live -t ext2 -b 1024; }
make_ext3-1k() { whole ext3-1k 32 live -t ext3 -b 1024; }
make_ext4-1k() { whole ext4-1k 64 live -t ext4 -b 1024; }
make_ext4-2k-nojournal() { whole ext4-2k-nojournal 64 live -t ext4 -b 2048 -O '^has_journal'; }
make_ext4-64k() { whole ext4-64k 160 tree -t ext4 -b 65536; }
make_ext4-4k() { whole ext4-4k 640 live -t ext4 -b 4096; }
make_ext4-32bit() { whole ext4-32bit 64 live -t ext4 -b 4096 -O '^64bit,^metadata_csum'; }
make_ext4-64bit-csum() { whole ext4-64bit-csum 64 live -t ext4 -b 4096 -O 64bit,metadata_csum,metadata_csum_seed; }
make_ext4-uninit() { whole ext4-uninit 96 live -t ext4 -b 1024 -O '^64bit,^metadata_csum,uninit_bg,flex_bg'; }
make_ext4-uninit-csum() { whole ext4-uninit-csum 256 live -t ext4 -b 1024; }
make_ext4-metabg() { whole ext4-metabg 64 live -t ext4 -b 1024 -O 'meta_bg,^resize_inode'; }
make_ext4-metabg-32bit() { whole ext4-metabg-32bit 96 live -t ext4 -b 1024 -O 'meta_bg,^resize_inode,^64bit,^flex_bg'; }
make_ext4-noflex() { whole ext4-noflex 64 live -t ext4 -b 1024 -O '^flex_bg'; }
make_ext4-nosparse() { whole ext4-nosparse 96 live -t ext4 -b 1024 -O '^sparse_super,^resize_inode'; }
make_ext4-sparse2() { whole ext4-sparse2 96 live -t ext4 -b 1024 -O 'sparse_super2,^resize_inode'; }
make_ext4-bigalloc() { whole ext4-bigalloc 64 live -t ext4 -b 4096 -O bigalloc -C 65536; }
make_ext4-bigalloc-1k() { whole ext4-bigalloc-1k 64 live -t ext4 -b 1024 -O bigalloc -C 16384; }
make_ext4-inline() { whole ext4-inline 64 live -t ext4 -b 4096 -O inline_data -I 512; }
make_ext4-small-inodes() { whole ext4-small-inodes 64 live -t ext4 -b 4096 -I 128 -O '^metadata_csum,^extra_isize'; }
make_ext4-large-dir() { whole ext4-large-dir 64 live -t ext4 -O large_dir; }
make_ext4-ea-inode() { whole ext4-ea-inode 64 live -t ext4 -O ea_inode; }
make_ext4-encrypt() { whole ext4-encrypt 64 tree -t ext4 -O encrypt; }
make_ext4-casefold() { EXTENDED=encoding=utf8 whole ext4-casefold 64 tree -t ext4 -O casefold; }
make_ext4-orphan-file() { whole ext4-orphan-file 64 live -t ext4 -O orphan_file; }
make_ext4-mmp() { EXTENDED=mmp_update_interval=1 whole ext4-mmp 64 tree -t ext4 -O mmp; }
make_ext4-quota() { EXTENDED=quotatype=usrquota:grpquota whole ext4-quota 64 tree -t ext4 -O quota,project; }
make_ext4-verity() { whole ext4-verity 64 tree -t ext4 -O verity; }
make_ext4-resized() { # grown after it was made: descriptors in the reserved blocks
	truncate -s 64M "$OUT/.ext4-resized.part"
	# A mark in what becomes an inode table would stay: resize2fs does not clear it.
	UNMARKED=1 ext ext4-resized 0 0 $((40 << 20)) live -t ext4 -b 1024 -E resize=65536
	resize2fs -f "$OUT/.ext4-resized.part" 64M
	mark_free "$OUT/.ext4-resized.part" 0
	rm "$WORK/rows"
	row ext4-resized 0 0 $((64 << 20)) ext 'resized from 40 MiB'
}

# Copied while mounted: the newest metadata is only in the journal, and the bitmaps mark allocated blocks as free.
make_ext4-unclean() {
	local n dev live=$WORK/live
	truncate -s 48M "$live"
	mke2fs -q -t ext4 -b 4096 "$live"
	loop "$live"
	dev=$DEVICE
	mount "$dev" "$MNT"
	tree "$MNT"
	sync -f "$MNT"
	for n in $(seq 30); do
		random 50000 "journal $n" >"$MNT/many/only-in-journal-$n"
		sync "$MNT/many/only-in-journal-$n"
	done
	cp --sparse=always "$live" "$OUT/.ext4-unclean.part"
	release
	rm "$live"
	row ext4-unclean 0 0 $((48 << 20)) unclean 'taken while mounted: its bitmaps are not safe'
}

make_swap() {
	truncate -s 16M "$OUT/.swap.part"
	other swap 0 0 $((16 << 20)) swap
}

make_disk-gpt() {
	local file=$OUT/.disk-gpt.part
	truncate -s 160M "$file"
	sfdisk -q "$file" <<-EOF
		label: gpt
		d1 : start=2048, size=98304, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name="root"
		d2 : start=100352, size=32768, type=0657FD6D-A4AB-43C4-84E5-0933C84B4F4F
		d3 : start=147456, size=32768, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4
		d4 : start=180224, size=131072, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4
	EOF
	# data in the gap between the second and the third, which is kept
	random $((14336 * 512)) gap | dd of="$file" bs=1M seek=$((133120 * 512)) oflag=seek_bytes conv=notrunc status=none
	row disk-gpt gap $((133120 * 512)) $((14336 * 512)) none ''
	ext disk-gpt 1 $((2048 * 512)) $((98304 * 512)) live -t ext4 -b 4096
	other disk-gpt 2 $((100352 * 512)) $((32768 * 512)) swap
	other disk-gpt 3 $((147456 * 512)) $((32768 * 512)) unknown
	ext disk-gpt 4 $((180224 * 512)) $((131072 * 512)) live -t ext3
}

make_disk-mbr() { # primary ones, and logical ones in an extended partition
	local file=$OUT/.disk-mbr.part
	truncate -s 176M "$file"
	sfdisk -q -w always -W always "$file" <<-EOF
		label: dos
		d1 : start=2048, size=98304, type=83, bootable
		d2 : start=100352, size=258048, type=f
		d5 : start=102400, size=32768, type=82
		d6 : start=137216, size=32768, type=da
		d7 : start=172032, size=98304, type=83
		d8 : start=272384, size=65536, type=7
	EOF
	random 440 "boot loader" | dd of="$file" conv=notrunc status=none
	random $((500 * 512)) "embedded boot loader" | dd of="$file" seek=1 conv=notrunc status=none
	ext disk-mbr 1 $((2048 * 512)) $((98304 * 512)) live -t ext4 -b 4096
	other disk-mbr 5 $((102400 * 512)) $((32768 * 512)) swap
	other disk-mbr 6 $((137216 * 512)) $((32768 * 512)) unknown
	ext disk-mbr 7 $((172032 * 512)) $((98304 * 512)) live -t ext2
	ext disk-mbr 8 $((272384 * 512)) $((65536 * 512)) tree -t ext4 -b 1024 # an ext4 that its type byte calls NTFS
}

make_disk-gpt-4096() { # a disk of 4096-byte sectors
	local file=$OUT/.disk-gpt-4096.part
	truncate -s 96M "$file"
	loop "$file"
	losetup -d "$DEVICE"
	DEVICE=$(losetup --find --show --sector-size 4096 "$file")
	LOOPS+=("$DEVICE")
	sfdisk -q "$DEVICE" <<-EOF
		label: gpt
		start=256, size=12288, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4
		start=12544, size=8192, type=0657FD6D-A4AB-43C4-84E5-0933C84B4F4F
	EOF
	release
	ext disk-gpt-4096 1 $((256 * 4096)) $((12288 * 4096)) live -t ext4 -b 4096
	other disk-gpt-4096 2 $((12544 * 4096)) $((8192 * 4096)) swap
}

# The primary table is overwritten: the backup at the end of the disk shows the partitions but proves nothing.
make_disk-gpt-backup() {
	local file=$OUT/.disk-gpt-backup.part
	truncate -s 64M "$file"
	printf 'label: gpt\nstart=2048, size=98304\n' | sfdisk -q "$file"
	ext disk-gpt-backup 1 $((2048 * 512)) $((98304 * 512)) live -t ext4 -b 4096
	rm "$WORK/rows"
	row disk-gpt-backup 1 $((2048 * 512)) $((98304 * 512)) kept 'only the backup GPT can be read'
	stale 512 | dd of="$file" seek=1 conv=notrunc status=none
}

QUICK='ext2-1k ext4 ext4-bigalloc ext4-metabg ext4-64k ext4-inline ext4-unclean swap disk-gpt disk-mbr disk-gpt-4096'
FULL='ext2 ext2-1k ext3 ext3-1k ext4 ext4-1k ext4-2k-nojournal ext4-4k ext4-64k ext4-32bit ext4-64bit-csum
ext4-uninit ext4-uninit-csum ext4-metabg ext4-metabg-32bit ext4-noflex ext4-nosparse ext4-sparse2 ext4-bigalloc
ext4-bigalloc-1k ext4-inline ext4-small-inodes ext4-large-dir ext4-ea-inode ext4-encrypt ext4-casefold
ext4-orphan-file ext4-mmp ext4-quota ext4-verity ext4-resized ext4-unclean swap disk-gpt disk-mbr disk-gpt-4096
disk-gpt-backup'

# ------------------------------------------------------------------------- main

case $SIZE in
quick) wanted=$QUICK ;;
full) wanted=$FULL ;;
*) echo "samples: quick or full, not $SIZE" >&2; exit 2 ;;
esac
[ $# = 0 ] || wanted=$*
failed=()
for sample in $wanted; do
	[ ! -f "$OUT/$sample.img" ] || continue
	rm -f "$WORK/rows"
	set +e
	( # a shell of its own, so that set -e ends the sample and not all of them
		set -e
		trap release EXIT
		"make_$sample"
	) >>"$BUILD_LOG" 2>&1
	code=$?
	set -e
	if [ $code = 0 ]; then
		fallocate --dig-holes "$OUT/.$sample.part"
		mv "$OUT/.$sample.part" "$OUT/$sample.img"
		mv "$WORK/rows" "$OUT/.rows/$sample"
	else
		rm -f "$OUT/.$sample.part"
		failed+=("$sample")
	fi
done
{
	printf 'image\tpart\toffset\tlength\tfs\tblock_size\tallocated_bytes\tnote\n'
	for sample in $FULL; do [ ! -f "$OUT/$sample.img" ] || cat "$OUT/.rows/$sample"; done
} >"$OUT/manifest.tsv"
if [ ${#failed[@]} -gt 0 ]; then
	echo "samples: cannot be built: ${failed[*]} (see $BUILD_LOG)" >&2
	exit 1
fi
