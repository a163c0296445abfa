#!/usr/bin/env bash
# tests/past.sh
#
# Disks with a past: used for one purpose, then for another, with remaining marks of the first; and partition tables
# that systems interpret in different ways. Each is captured and installed over other bytes, and other tools check the
# copy.
#
# A disk that may belong to more than one owner must come back byte for byte. If blkid and wipefs find only one owner that Platter reads,
# its checker must find no errors, and the files must be the original ones. All free space holds stale data, which reveals
# every wrongly dropped byte. PLATTER_SIZE=full tests every mark on ext and on swap.
. "$(dirname "$0")/lib.sh"

need_root "attaching loop devices" || { finish; exit 0; }

readonly MIB=$((1 << 20))
DISK=$WORK/disk
TARGET=$WORK/target
TREE=$WORK/tree
DISKS=0

past() { python3 "$TESTS/past.py" "$@"; }

# -------------------------------------------------------------------- making

# stale FILE MIB: a file without a zero sector
stale() { yes 'STALE DATA OF SOMEBODY.' | head -c "${2}M" >"$1" || [ $? = 141 ]; }

# put FILE OFFSET-IN-MIB: copies the file into the disk
put() { dd if="$1" of="$DISK" bs=1M seek="$2" conv=notrunc status=none; }

fresh() { cp --sparse=never "$WORK/stale-$1" "$DISK"; } # MIB

make_ext4() { mke2fs -q -F -t ext4 -E nodiscard -d "$TREE" "$1"; }
make_ext2() { mke2fs -q -F -t ext2 -b 1024 -E nodiscard -d "$TREE" "$1"; }
make_swap() { mkswap "$1"; }
make_vfat() { mkfs.vfat "$1"; }
make_ntfs() { mkntfs -Q -F -q "$1"; }
make_exfat() { mkfs.exfat "$1"; }
make_btrfs() { mkfs.btrfs -q -f -K -M "$1"; }
# Smaller than mkfs.xfs allows outside its own tests.
make_xfs() { TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1 mkfs.xfs -q -f -K "$1"; }
make_udf() { mkudffs "$1"; }
make_minix() { mkfs.minix "$1"; }
make_iso() {
	[ -e "$WORK/iso" ] || xorriso -as mkisofs -quiet -o "$WORK/iso" "$TREE"
	# Its first 32 KiB are reserved for other systems.
	dd if="$WORK/iso" of="$1" bs=32K skip=1 seek=1 conv=notrunc status=none
}
make_luks() { cryptsetup luksFormat --type luks2 -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 "$1" "$TREE/numbers"; }
make_lvm() {
	attach "$1"
	pvcreate -ff -y --config 'devices { use_devicesfile=0 } activation { udev_sync=0 udev_rules=0 }' "$DEVICE" || return 1
	detach_loop "$DEVICE"
}

# ------------------------------------------------------------------- judging

# take NAME [CAPTURE-OPTION...]: captures the disk, and installs it to $TARGET
take() {
	local name=$1
	shift
	platter capture "$DISK" "past/$name" "$@" || return 1
	head -c "$(stat -c %s "$DISK")" "$WORK/other" >"$TARGET"
	platter install "past/$name" "$TARGET" --yes --force not-a-disk
}

same_tables() {
	partx -g -o NR,START,END "$DISK" >"$WORK/table" 2>/dev/null || true
	partx -g -o NR,START,END "$TARGET" >"$WORK/table-of-copy" 2>/dev/null || true
	cmp "$WORK/table" "$WORK/table-of-copy"
}

# sound OFFSET: the ext file system there on the target is sound
sound() {
	local out=$WORK/out
	e2fsck -fn "$TARGET?offset=$1" || return 1
	rm -rf "$out"
	mkdir "$out"
	debugfs -R "rdump / $out" "$TARGET?offset=$1" || return 1
	rm -rf "$out/lost+found"
	diff -r "$TREE" "$out"
}

whole() { take "$1" && cmp "$DISK" "$TARGET" && same_tables; }
# kept NAME: the owner is ambiguous, so every byte comes back
kept() {
	DISKS=$((DISKS + 1))
	check "$1: every byte" whole "$1"
}

understood() {
	local name=$1 place places=()
	shift
	take "$name" && same_tables || return 1
	for place in "$@"; do
		[ "${place%%:*}" = swap ] || sound "$(echo "$place" | cut -d: -f2)" || return 1
		places+=("${place#*:}")
	done
	past outside "$DISK" "$TARGET" "${places[@]}"
	# Otherwise nothing would be tested here.
	! cmp -s "$DISK" "$TARGET"
}
# parts NAME KIND:OFFSET:LENGTH...: these file systems are sound, and everything else comes back
parts() {
	DISKS=$((DISKS + 1))
	check "$1: file systems, and all else" understood "$@"
}

# The owners according to two tools: wipefs lists all marks, blkid gives up if there are many.
sole_owner() {
	local names
	names=$(wipefs -n --output TYPE --noheadings "$DISK" | sort -u | tr -d ' ')
	# wipefs calls the end of any boot sector a partition table, unless it is FAT's.
	case $1 in
	ntfs | exfat) [ -n "$(partx -g -o NR "$DISK" 2>/dev/null)" ] || names=$(grep -vx dos <<<"$names") ;;
	esac
	[ "$names" = "$1" ] && [ "$(blkid -p -o value -s TYPE "$DISK")" = "$1" ]
}

# judge NAME OWNER: OWNER may be the disk's only owner, if the tools agree
judge() {
	take "$1" || return 1
	cmp -s "$DISK" "$TARGET" && return 0
	sole_owner "$2" || return 1
	echo "$1" >>"$WORK/sole"
	case $2 in
	swap) cmp -n 4096 "$DISK" "$TARGET" ;;
	xfs) xfs_repair -n "$TARGET" ;;
	btrfs) btrfs check --readonly --check-data-csum "$TARGET" ;;
	vfat) fsck.fat -n "$TARGET" ;;
	exfat) fsck.exfat -n "$TARGET" ;;
	ntfs) ntfsinfo -m "$TARGET" ;;
	*) sound 0 ;;
	esac
}

# small NAME: at most half of the disk was captured
small() {
	local bytes
	bytes=$(platter_json show "past/$1" | jq .allocated_bytes)
	echo "$bytes bytes in use"
	[ "$bytes" -lt $(($(stat -c %s "$DISK") / 2)) ]
}

# ------------------------------------------------------------------- fixtures

mkdir -p "$TREE/directory"
seq 20000 >"$TREE/numbers"
random 200000 file >"$TREE/directory/random"
ln -s numbers "$TREE/link"
for mib in 12 32 48; do stale "$WORK/stale-$mib" $mib; done
head -c 64M /dev/zero | tr '\0' '\252' >"$WORK/other"
cp "$WORK/stale-12" "$WORK/ext"
make_ext4 "$WORK/ext"
head -c 4M "$WORK/stale-12" >"$WORK/swap"
make_swap "$WORK/swap" >"$LOG"
cp "$WORK/stale-12" "$WORK/swap-12"
make_swap "$WORK/swap-12" >"$LOG"
check "init" platter init

# ----------------------------------------------- one owner, and marks beside it

cp "$WORK/ext" "$DISK"
check "ext4 alone" judge ext4 ext4
check "ext4 alone is small" small ext4
cp "$WORK/swap-12" "$DISK"
check "swap alone" judge swap swap
check "swap alone is small" small swap

number=0
for mark in $(past marks); do
	number=$((number + 1))
	on=(ext)
	# A table at the start of ext may be boot code; on swap it may not.
	[ $((number % 4)) != 0 ] || on=(swap-12)
	[ "${PLATTER_SIZE:-quick}" = quick ] || on=(ext swap-12)
	for base in "${on[@]}"; do
		cp "$WORK/$base" "$DISK"
		past mark "$mark" "$DISK"
		kept "$mark-on-$base"
	done
done

# ------------------------------------------------------ one owner after another

owners=(ext4 ext2 swap vfat ntfs exfat btrfs xfs udf iso luks lvm minix)
for first in "${owners[@]}"; do
	for second in "${owners[@]}"; do
		[ "$first" != "$second" ] || continue
		case "$first $second" in
		*ext4* | *swap*) ;;
		*) continue ;;
		esac
		fresh 32
		if ! { "make_$first" "$DISK" && "make_$second" "$DISK"; } >"$LOG" 2>&1; then
			not_ok "make $second over $first"
			continue
		fi
		case $second in
		ext4 | ext2 | swap | xfs | btrfs | vfat | ntfs | exfat)
			DISKS=$((DISKS + 1))
			check "$second over $first" judge "$second-over-$first" "$second"
			;;
		*) kept "$second-over-$first" ;;
		esac
	done
done
check "some disks had exactly one owner, which checked them" test -s "$WORK/sole"

# -------------------------------------------------------------- partition tables

# All of these have ext4 at 2 MiB and 18 MiB and swap at 32 MiB, of 12, 12 and 4 MiB, and stale data elsewhere. In
# sectors: at 4096, 36864 and 65536, with 24576, 24576 and 8192 sectors.
table_disk() {
	fresh 48
	put "$WORK/ext" 2
	put "$WORK/ext" 18
	put "$WORK/swap" 32
	dd if=/dev/zero of="$DISK" bs=1K count=17 conv=notrunc status=none
}
readonly EXT_A="ext:$((2 * MIB)):$((12 * MIB))" EXT_B="ext:$((18 * MIB)):$((12 * MIB))" SWAP="swap:$((32 * MIB)):$((4 * MIB))"
readonly A=4096:24576 B=36864:24576 C=65536:8192

# mbr ENTRY...: a disk with this record in its first sector
mbr() {
	table_disk
	past record "$DISK" 0 "$@"
}

mbr 1:80:83:$A 2:00:83:$B 3:00:82:$C
parts mbr "$EXT_A" "$EXT_B" "$SWAP"
check "mbr is small" [ "$(platter_json show past/mbr | jq .allocated_bytes)" -lt $((36 * MIB)) ]
check "mbr: gaps are skipped on request" take mbr-skipped --skip-gaps
check "mbr: the first and the last MiB come back anyway" past outside "$DISK" "$TARGET" $((MIB)):$((46 * MIB))
for place in 2 18; do check "mbr: and so do the files at $place MiB" sound $((place * MIB)); done
check "mbr: the version records the skipped bytes" [ "$(platter_json show past/mbr-skipped | jq .skipped_gap_bytes)" = $((17 * MIB)) ]
check "mbr: nothing was skipped before" [ "$(platter_json show past/mbr | jq .skipped_gap_bytes)" = null ]

mbr 1:00:00:$A 2:00:83:$B
parts type-zero "$EXT_A" "$EXT_B"
mbr 1:80:00:64:90000 2:00:ef:65536:8192
make_iso "$DISK"
kept isohybrid
mbr 1:80:17:0:90000
make_iso "$DISK"
kept isohybrid-from-sector-0

# Extended partitions: one from 16 MiB to 40 MiB with ext in it. The primary partition before it is understood in any
# case; of the extended one, every byte comes back unless it is plain.
extended() { # FIRST-RECORD-ENTRY...
	mbr 1:00:83:$A 2:00:05:32768:49152
	past bytes "$DISK" $((16 * MIB)) "$(printf '%01024d' 0)"
	past record "$DISK" 32768 "$@"
}
readonly IN=4096:24576 # B, counted from the start of the extended partition
extended 1:00:83:$IN 2:00:05:30720:12288
past bytes "$DISK" $(((32768 + 30720) * 512)) "$(printf '%01024d' 0)"
past record "$DISK" $((32768 + 30720)) 1:00:82:2048:8192
parts logical "$EXT_A" "$EXT_B" "$SWAP"
extended 1:00:83:$IN
past record "$DISK" 0 1:00:83:$A 2:00:05:32768:30000 3:00:0f:63488:20000
past bytes "$DISK" $((63488 * 512)) "$(printf '%01024d' 0)"
past record "$DISK" 63488 1:00:82:2048:8192
parts two-extended "$EXT_A"
extended 1:00:05:30720:12288 2:00:83:$IN
parts link-first "$EXT_A"
extended 1:00:83:$IN 3:00:05:30720:12288
parts link-third "$EXT_A"
extended 1:00:83:$IN 4:00:05:30720:12288
parts link-fourth "$EXT_A"
extended 1:00:83:$IN 2:00:83:28672:1000 3:00:83:30000:1000 4:00:82:32768:8192
parts four-entries "$EXT_A"
extended
past chain "$DISK" 32768 200
put "$WORK/ext" 18
parts long-chain "$EXT_A"
extended 1:00:83:$IN 2:00:05:0:12288
parts chain-in-a-circle "$EXT_A"
extended 1:00:83:$IN 2:00:05:49152:12288
parts chain-that-leaves "$EXT_A"
extended 1:00:83:$IN 2:00:05:30720:12288
parts chain-to-nowhere "$EXT_A"
extended 1:7f:83:$IN
parts odd-mark-in-a-chain "$EXT_A"
extended 1:00:83:4096:60000
parts logical-that-leaves "$EXT_A"
mbr 1:00:83:$A 2:00:05:32768:49152
parts no-chain "$EXT_A"

# Entries that no system recognizes, over a whole disk with ext4.
for mark in 01 40 81 ff; do
	fresh 32
	make_ext4 "$DISK"
	past record "$DISK" 0 1:$mark:83:2048:30000
	kept "odd-mark-$mark"
done
# Valid tables over it, with partitions of unknown contents and with ext.
fresh 32
make_ext4 "$DISK"
past record "$DISK" 0 1:80:83:2048:30000
kept table-over-ext4
put "$WORK/ext" 8
past record "$DISK" 0 1:80:83:16384:24576
kept table-with-ext4-over-ext4
for mark in btrfs udf iso; do
	mbr 1:00:83:$A 2:00:82:$C
	cp "$DISK" "$WORK/partitioned"
	fresh 48
	"make_$mark" "$DISK" >"$LOG" 2>&1
	dd if="$WORK/partitioned" of="$DISK" bs=1M skip=1 seek=1 conv=notrunc status=none
	past record "$DISK" 0 1:00:83:$A 2:00:82:$C
	kept "table-over-$mark"
done

# Containers with a partition table of their own, over a former ext file system.
for kind in a5 a6 a9 81 63 bf 42 8e fd; do
	mbr 1:00:$kind:$A 2:00:83:$B
	parts "type-$kind" "$EXT_B"
done
for mark in bsd-label solaris-label unixware-label sun-label; do
	mbr 1:00:83:$A
	head -c 12M "$WORK/ext" >"$WORK/inner"
	past mark "$mark" "$WORK/inner"
	put "$WORK/inner" 2
	cp "$DISK" "$WORK/expected"
	DISKS=$((DISKS + 1))
	check "$mark in a partition: every byte" whole "nested-$mark"
done
mbr 1:00:81:$A
past record "$DISK" 4096 1:80:81:4112:8192 2:00:81:12304:8192
kept minix-in-minix
mbr 1:00:83:$A
past record "$DISK" 4096 1:80:83:4112:8192
kept record-in-linux
mbr 1:00:83:4096:30000 2:00:83:28000:33440
kept overlapping
mbr 1:00:83:$A 2:00:83:36864:990000
parts past-the-end "$EXT_A"

# Large sectors, in a file, which has no sector size.
mbr 1:00:83:512:3072
kept sectors-of-4096

# -------------------------------------------------------------------------- GPT

readonly LINUX=0FC63DAF-8483-4772-8E79-3D69D8477DE4
gpt() {
	table_disk
	sfdisk -q --wipe never --wipe-partitions never "$DISK" >"$LOG" 2>&1 <<-TABLE
		label: gpt
		start=4096, size=24576, type=$LINUX
		start=36864, size=24576, type=$LINUX
		start=65536, size=8192, type=0657FD6D-A4AB-43C4-84E5-0933C84B4F4F
	TABLE
}
gpt
cp "$DISK" "$WORK/gpt"
parts gpt "$EXT_A" "$EXT_B" "$SWAP"
damaged() { cp "$WORK/gpt" "$DISK"; }
damaged
past bytes "$DISK" 512 00
kept gpt-without-primary
damaged
past bytes "$DISK" 1040 ff
kept gpt-with-a-bad-primary-table
damaged
past bytes "$DISK" -512 00
kept gpt-without-backup
damaged
past bytes "$DISK" 512 00
past bytes "$DISK" -512 00
kept gpt-unreadable
damaged
past bytes "$DISK" 512 00
past bytes "$DISK" -512 00
past record "$DISK" 0 1:00:ee:1:8000
kept gpt-unreadable-and-short
table_disk
echo 'label: gpt' | sfdisk -q --wipe never "$DISK"
kept gpt-empty
damaged
sfdisk -q --wipe never --wipe-partitions never "$DISK" >"$LOG" 2>&1 <<-TABLE
	label: gpt
	start=2048, size=32768, type=$LINUX
TABLE
dd if="$WORK/gpt" of="$DISK" bs=512 count=34 conv=notrunc status=none
kept gpt-copies-that-disagree
damaged
past record "$DISK" 0 1:00:ee:1:4095 2:00:83:20000:30000
parts gpt-hybrid-that-overlaps "$SWAP"
damaged
past record "$DISK" 0 1:00:ee:1:4095 2:00:83:$A
parts gpt-hybrid "$EXT_A" "$EXT_B" "$SWAP"
damaged
past record "$DISK" 0 1:80:83:$A
kept gpt-that-nobody-announces
fresh 32
printf 'label: gpt\nstart=2048, size=60000\n' | sfdisk -q "$DISK"
mke2fs -q -F -t ext4 -E nodiscard -d "$TREE" "$DISK"
DISKS=$((DISKS + 1))
check "ext4 over a GPT" judge ext4-over-gpt ext4
fresh 32
printf 'label: gpt\nstart=2048, size=60000\n' | sfdisk -q "$DISK"
dd if="$WORK/swap-12" of="$DISK" bs=1K skip=1 seek=1 count=3 conv=notrunc status=none
kept swap-over-gpt
damaged
past mark isw "$DISK"
past mark ddf "$DISK"
kept raid-over-gpt

echo "$DISKS disks"
check "at least 60 disks ($DISKS)" [ "$DISKS" -ge 60 ]
finish
