#!/usr/bin/env bash
# tests/formats.sh
#
# Disks in the formats of other programs, made by those programs. Each is captured, and must have the same score as the raw
# disk. Images that refer to other files, and broken ones, are refused with a message that says where.
. "$(dirname "$0")/lib.sh"

DISK=$WORK/disk.raw
TREE=$WORK/tree

# A disk of two ext4 partitions, with free space that is full of stale data.
file_tree "$TREE" 6 formats
yes PLATTER-STALE-DATA. | head -c $((96 << 20)) >"$DISK" || [ $? = 141 ]
dd if=/dev/zero of="$DISK" bs=1M count=1 conv=notrunc status=none
# Clonezilla does not save what is outside of partitions.
dd if=/dev/zero of="$DISK" bs=1M seek=91 count=5 conv=notrunc status=none
sfdisk -q "$DISK" <<'TABLE'
label: gpt
start=2048, size=81920
start=83968, size=102400
TABLE
mke2fs -q -t ext4 -E nodiscard,offset=$((1 << 20)) -d "$TREE" "$DISK" 40M
mke2fs -q -t ext4 -b 4096 -E nodiscard,offset=$((41 << 20)) -d "$TREE" "$DISK" 50M

check "init" platter init
check "capture of the raw disk" platter capture "$DISK" lab/raw
score() { platter_json show "$1" | jq -r .score; }
WANTED=$(score lab/raw)

# same NAME FILE [OPTION...]: the file is captured with the score of the raw disk
same() {
	local name=$1 file=$2
	shift 2
	check "$name: capture" platter capture "$file" "lab/$name" "$@"
	if [ "$(score "lab/$name" 2>/dev/null)" = "$WANTED" ]; then ok "$name: same score"; else not_ok "$name: same score"; fi
}
# refused NAME PATTERN FILE [OPTION...]: the file is not captured, and the message matches
refused() {
	local name=$1 pattern=$2 file=$3 code=0
	shift 3
	"$PLATTER" --store "$STORE" capture "$file" lab/refused "$@" >"$LOG" 2>&1 || code=$?
	if [ "$code" != 0 ] && [ "$code" -lt 100 ]; then ok "$name: refused"; else not_ok "$name: refused (exit code $code)"; fi
	check_said "$name: says why" "$pattern"
}

# ------------------------------------------------------- images of virtual machines

# convert NAME FORMAT [OPTION...]: makes $WORK/NAME from the disk
convert() {
	local name=$1 format=$2
	shift 2
	qemu-img convert -f raw -O "$format" "$@" "$DISK" "$WORK/$name"
}
while read -r name format options; do
	# shellcheck disable=SC2086  # options are words
	check "$name: made by qemu-img" convert "$name" "$format" $options
	same "${name%.*}" "$WORK/$name"
done <<'IMAGES'
v3.qcow2 qcow2
v2.qcow2 qcow2 -o compat=0.10
small-clusters.qcow2 qcow2 -o cluster_size=512
large-clusters.qcow2 qcow2 -o cluster_size=2M
zlib.qcow2 qcow2 -c
zstd.qcow2 qcow2 -c -o compression_type=zstd
preallocated.qcow2 qcow2 -o preallocation=metadata
sparse.vmdk vmdk
stream.vmdk vmdk -o subformat=streamOptimized
growing.vdi vdi
fixed.vdi vdi -o static=on
growing.vhd vpc -o force_size=on
fixed.vhd vpc -o subformat=fixed,force_size=on
growing.vhdx vhdx
small-blocks.vhdx vhdx -o block_size=1M
fixed.vhdx vhdx -o subformat=fixed
IMAGES

cp "$WORK/zlib.qcow2" "$WORK/named"
refused "a qcow2 image without a suffix" "looks like a qcow2 image.*--format qcow2" "$WORK/named"
same "named-by-hand" "$WORK/named" --format qcow2
refused "a raw disk with the suffix of another format" "cannot be read as qcow2.*offset 0.*magic" "$DISK" --format qcow2
check "a file with the magic of another format is a raw disk if the user says so" platter capture "$WORK/named" lab/said --format raw
check "its bytes" platter export lab/said "$WORK/said"
check "are those of the file" cmp -n "$(stat -c %s "$WORK/named")" "$WORK/named" "$WORK/said"
rm -f "$WORK/said"

# ----------------------------------------------------------- references to other files

head -c $((90 << 20)) "$DISK" >"$WORK/base.raw"
truncate -s 96M "$WORK/base.raw"
check "a base" qemu-img convert -f raw -O qcow2 "$WORK/base.raw" "$WORK/base.img"
check "an overlay" qemu-img create -q -f qcow2 -b base.img -F qcow2 "$WORK/middle.qcow2"
check "an overlay over it" qemu-img create -q -f qcow2 -b middle.qcow2 -F qcow2 "$WORK/top.qcow2"
tail -c $((6 << 20)) "$DISK" >"$WORK/rest"
check "the rest of the disk" qemu-io -f qcow2 -c "write -s $WORK/rest 90M 6M" "$WORK/top.qcow2"
refused "a backing file that was not named" 'backing file "middle.qcow2".*--backing' "$WORK/top.qcow2"
refused "the backing file of a backing file" 'backing file "base.img"' "$WORK/top.qcow2" --backing "$WORK/middle.qcow2"
same "chain" "$WORK/top.qcow2" --backing "$WORK/middle.qcow2" --backing "qcow2:$WORK/base.img"
noted() { "$PLATTER" --store "$STORE" capture "$@" >"$LOG" 2>&1; }
check "a chain whose middle was left out" noted "$WORK/top.qcow2" lab/other --backing "qcow2:$WORK/base.img"
check_said "is noted with both names" 'note:.*names "middle.qcow2" .qcow2. as its backing file, and .*/base.img .qcow2. was given'
check "a backing file in another format than the image says" noted "$WORK/middle.qcow2" lab/other --backing "raw:$WORK/base.img"
check_said "is noted with both formats" 'note:.*"base.img" .qcow2. .*/base.img .raw. was given'
check "the chain that the images name" noted "$WORK/top.qcow2" lab/other --backing "$WORK/middle.qcow2" --backing "qcow2:$WORK/base.img"
if said 'as its backing file'; then not_ok "has no such note"; else ok "has no such note"; fi
refused "a backing file too many" "no backing file" "$WORK/v3.qcow2" --backing "qcow2:$WORK/base.img"
refused "a backing file of another format" "looks like a qcow2.*--backing qcow2:" "$WORK/middle.qcow2" --backing "$WORK/base.img"
refused "the backing file of a raw disk" "only qcow2" "$DISK" --backing "qcow2:$WORK/base.img"
# The file that it names is not even opened: a pipe would block.
mkfifo "$WORK/pipe"
check "an image over a pipe" qemu-img create -q -u -f qcow2 -b pipe -F raw "$WORK/pipe.qcow2" 96M
refused "an image over a pipe" 'backing file "pipe"' "$WORK/pipe.qcow2"

check "a data file" qemu-img create -q -f qcow2 -o data_file="$WORK/data.raw,data_file_raw=on" "$WORK/data.qcow2" 96M
refused "a data file" "data is in another file" "$WORK/data.qcow2"
check "a disk in several files" convert split.vmdk vmdk -o subformat=twoGbMaxExtentSparse
refused "a disk in several files" "description of a VMDK image" "$WORK/split.vmdk"
refused "one of several files" "one of several files" "$WORK/split-s001.vmdk"
check "a flat VMDK" convert flat.vmdk vmdk -o subformat=monolithicFlat
refused "a flat VMDK" "description of a VMDK image" "$WORK/flat.vmdk"
same flat-data "$WORK/flat-flat.vmdk" --format raw
# The last grain of a disk may be stored as short as it is.
cp --sparse=always "$DISK" "$WORK/odd.raw"
head -c 1536 /dev/urandom >>"$WORK/odd.raw"
check "a disk that does not end with a grain" platter capture "$WORK/odd.raw" lab/odd
check "exported as a compressed VMDK" platter export lab/odd "$WORK/odd.vmdk" --compress
check "is captured again" platter capture "$WORK/odd.vmdk" lab/odd-again
check "with the same score" [ "$(score lab/odd-again)" = "$(score lab/odd)" ]
rm "$WORK/odd.raw" "$WORK/odd.vmdk"
for format in parallels qcow; do
	check "an image of $format" qemu-img convert -f raw -O "$format" "$WORK/base.img" "$WORK/other-format"
	refused "an image of $format" 'convert it with `qemu-img convert -O raw' "$WORK/other-format"
done
encrypted() { # CIPHER NAME; LUKS ends without an image when qemu-img's derivation of a key is shorter than a tick of the processor's clock
	for _ in $(seq 50); do
		qemu-img create -q -f qcow2 --object secret,id=s,data=x -o encrypt.format="$1",encrypt.key-secret=s "$WORK/$2" 96M && return
	done
	return 1
}
for cipher in luks aes; do
	check "an image encrypted with $cipher" encrypted $cipher encrypted-$cipher.qcow2
	refused "an image encrypted with $cipher" "encrypted" "$WORK/encrypted-$cipher.qcow2"
done

# ------------------------------------------------------------------ broken images

for name in v3.qcow2 zlib.qcow2 sparse.vmdk stream.vmdk growing.vdi growing.vhd growing.vhdx; do
	head -c $(($(stat -c %s "$WORK/$name") / 2)) "$WORK/$name" >"$WORK/half-$name"
	refused "half of $name" "offset|of the file" "$WORK/half-$name"
done

# ------------------------------------------------------------------------- streams

gzip -c1 "$DISK" >"$WORK/disk.raw.gz"
zstd -q -1 "$DISK" -o "$WORK/disk.img.zst"
xz -0 -T2 --block-size=16MiB -c "$DISK" >"$WORK/disk.xz"
{
	head -c 50M "$DISK" | gzip -c1
	tail -c +$(((50 << 20) + 1)) "$DISK" | gzip -c1
} >"$WORK/members.gz"
same gzip "$WORK/disk.raw.gz"
same zstd-file "$WORK/disk.img.zst"
same xz "$WORK/disk.xz"
same gzip-members "$WORK/members.gz"
piped() { # NAME FILE [OPTION...]
	local name=$1 file=$2
	shift 2
	check "$name: from a pipe" platter capture - "lab/$name" "$@" < <(cat "$file")
	check "$name: same score" [ "$(score "lab/$name")" = "$WANTED" ]
}
check_exit "$EXIT_REFUSED" "a compressed disk from a pipe, without its format" platter capture - lab/unnamed < <(cat "$WORK/disk.img.zst")
check_said "(the format is named)" 'standard input looks like a zstd file.*--format raw.zst'
check_exit "$EXIT_USAGE" "export to an unknown format" platter export lab/zstd-file "$WORK/unknown" --format foo
check_said "(it lists what it writes)" 'unknown format: use one of raw, qcow2, vmdk, vdi, vhd, vhdx, ndz'
piped stdin "$DISK"
piped stdin-zstd "$WORK/disk.img.zst" --format raw.zst
piped stdin-qcow2 "$WORK/zlib.qcow2" --format qcow2
head -c 60M "$DISK" >"$WORK/cut"
head -c 45M "$DISK" | tail -c +$(((41 << 20) + 1)) >"$WORK/cut-filesystem"
for name in cut cut-filesystem; do
	check_exit "$EXIT_REFUSED" "$name from a pipe is refused" platter capture - "lab/$name" < <(cat "$WORK/$name")
	check_said "(it says why)" 'seems to be cut off: .*--force'
	check_exit "$EXIT_MISSING" "(and publishes nothing)" platter show "lab/$name"
	check "(with --force, it is stored)" platter capture - "lab/$name" --force < <(cat "$WORK/$name")
	check "(and so is a file without)" platter capture "$WORK/$name" "lab/$name"
done
for name in disk.raw.gz disk.img.zst disk.xz; do
	size=$(stat -c %s "$WORK/$name")
	head -c $((size / 2)) "$WORK/$name" >"$WORK/half-$name"
	refused "half of $name" "unpacking.*offset" "$WORK/half-$name"
	{
		head -c $((size / 2)) "$WORK/$name"
		printf 'other bytes'
		tail -c +$((size / 2 + 12)) "$WORK/$name"
	} >"$WORK/changed-$name"
	refused "$name with other bytes" "unpacking.*offset" "$WORK/changed-$name"
	check_exit "$EXIT_CORRUPT" "half of $name is damage" platter capture "$WORK/half-$name" lab/refused
	check_exit "$EXIT_CORRUPT" "and so is $name with other bytes" platter capture "$WORK/changed-$name" lab/refused
done
: >"$WORK/empty.raw"
gzip -c "$WORK/empty.raw" >"$WORK/empty.raw.gz"
refused "an empty file" "no bytes.*fail" "$WORK/empty.raw"
refused "an empty stream" "no bytes.*fail" "$WORK/empty.raw.gz"
refused "what a program printed that failed" "standard input has no bytes" - <"$WORK/empty.raw"
check_exit "$EXIT_MISSING" "none of them became a version" platter show lab/refused
gzip -c1 "$WORK/zlib.qcow2" >"$WORK/zlib.qcow2.gz"
refused "a compressed image" "looks like a qcow2 image.*unpack it first" "$WORK/zlib.qcow2.gz"
check "nothing stays of what was unpacked" [ "$(find "$STORE" -name '*.tmp*' -o -name '.tmp*' | wc -l)" = 0 ]

# A VHDX image with a log: its current header names one.
cp "$WORK/growing.vhdx" "$WORK/log.vhdx"
python3 - "$WORK/log.vhdx" <<'LOG'
import struct, sys
with open(sys.argv[1], "r+b") as image:
    def header(place):
        image.seek(place)
        return bytearray(image.read(4096))
    place = max(64 << 10, 128 << 10, key=lambda place: struct.unpack_from("<Q", header(place), 8))
    changed = header(place)
    changed[4:8] = bytes(4)
    changed[48:64] = bytes(range(16))
    sum = 0xFFFFFFFF
    for byte in changed:
        sum ^= byte
        for _ in range(8):
            sum = sum >> 1 ^ (0x82F63B78 if sum & 1 else 0)
    changed[4:8] = struct.pack("<I", sum ^ 0xFFFFFFFF)
    image.seek(place)
    image.write(changed)
LOG
# Data that is damaged or missing, while the tables are sound.
check "an image to cut" convert cut.qcow2 qcow2
truncate -s 3M "$WORK/cut.qcow2"
check_exit "$EXIT_CORRUPT" "a qcow2 image without its end is damaged" platter capture "$WORK/cut.qcow2" lab/refused
check_said "which is said" 'incomplete'

# The sector size that was given, and that of the table.
python3 - "$WORK/sectors" <<'END'
import struct, sys
with open(sys.argv[1], 'wb') as disk:
    disk.write(bytes(450) + bytes([0x83]) + bytes(3) + struct.pack('<II', 256, 2048) + bytes(48) + b'\x55\xaa')
    disk.truncate(16 << 20)
END
mke2fs -q -t ext4 -b 4096 -E offset=$((256 * 4096)) "$WORK/sectors" 8M
check_exit "$EXIT_REFUSED" "a wrong sector size is refused" platter capture "$WORK/sectors" lab/refused --sector-size 512
check_said "with the right one" 'write --sector-size 4096'
check "without one, it is captured" "$PLATTER" --store "$STORE" capture "$WORK/sectors" lab/sectors
check_said "with a note that names the option" '--sector-size 4096'
check "and with the right one" platter capture "$WORK/sectors" lab/sectors --sector-size 4096
check "a version with large sectors is exported" "$PLATTER" --store "$STORE" export lab/sectors "$WORK/sectors.qcow2"
check_said "with a note that the format does not state them" 'note: .*4096'

refused "a VHDX image with a log" "was not closed properly.*log must be applied.*qemu-img convert" "$WORK/log.vhdx"

# ---------------------------------------------------------------------- Clonezilla

# A folder as Clonezilla writes it, with the real partclone: partition 1 compressed by zstd and split, partition 2 by gzip.
folder=$WORK/clonezilla
mkdir "$folder"
part() { dd if="$DISK" of="$WORK/part$1" bs=1M skip="$2" count="$3" status=none; }
part 1 1 40
part 2 41 50
sizes=$(sfdisk -d "$DISK")
sed "s#^$DISK\([0-9]\)#/dev/sda\1#; s#$DISK#/dev/sda#" <<<"$sizes" >"$folder/sda-pt.sf"
echo sda >"$folder/disk"
echo sda1 sda2 >"$folder/parts"
dd if="$DISK" of="$folder/sda-gpt-1st" bs=512 count=34 status=none
dd if="$DISK" of="$folder/sda-gpt-2nd" bs=512 skip=$((96 * 2048 - 33)) status=none
dd if="$DISK" of="$folder/sda-mbr" bs=512 count=1 status=none
ptcl() { partclone.ext4 -q -c -L "$WORK/partclone.log" "$@"; }
check "partclone of partition 1" ptcl -s "$WORK/part1" -O "$WORK/part1.ptcl"
check "partclone of partition 2, without checksums" ptcl -a0 -s "$WORK/part2" -O "$WORK/part2.ptcl"
zstd -q -c "$WORK/part1.ptcl" | split -a 2 -b 1M - "$folder/sda1.ext4-ptcl-img.zst."
gzip -c "$WORK/part2.ptcl" >"$folder/sda2.ext4-ptcl-img.gz"
check "the image is split" [ -s "$folder/sda1.ext4-ptcl-img.zst.ac" ]
same clonezilla "$folder" --format clonezilla
for number in 0 x; do
	refused "partition $number" "no number of a partition: .*:1" "$DISK:$number"
done
refused "a folder without its format" "is a directory.*--format clonezilla" "$folder"
check "a filesystem by partclone" platter capture "$WORK/part2.ptcl" lab/ptcl --format partclone
check "has the score of the partition" [ "$(score lab/ptcl)" = "$(platter capture "$WORK/part2" lab/part2 >/dev/null && score lab/part2)" ]
# A second disk in the same folder: the same partitions under other names, and other bytes in the second one.
cp -r "$folder" "$folder.two"
echo sda sdb >"$folder.two/disk"
for file in "$folder"/sda*; do cp "$file" "$folder.two/sdb${file#"$folder/sda"}"; done
sed -i 's#/dev/sda#/dev/sdb#' "$folder.two/sdb-pt.sf"
rm "$folder.two"/sda2.*
head -c $((50 << 20)) /dev/zero | gzip >"$folder.two/sda2.dd-img.aa"
refused "a folder of two disks" 'disks "sda", "sdb": choose one with --disk' "$folder.two" --format clonezilla
refused "a disk that is not in it" 'no disk "sdc"; it has "sda", "sdb"' "$folder.two" --format clonezilla --disk sdc
refused "--disk for another format" "names a disk in a folder" "$DISK" --disk sda
check "its first disk" platter capture "$folder.two" lab/sda --format clonezilla --disk sda
if [ "$(score lab/sda)" != "$WANTED" ]; then ok "which has its own contents"; else not_ok "which has its own contents"; fi
same clonezilla-second "$folder.two" --format clonezilla --disk sdb
head -c 1000000 /dev/zero | gzip >"$folder.two/sda2.dd-img.aa"
refused "a copy of a partition that is cut off" 'partition sda2.*only 1000000 of the partition.s 52428800 bytes' \
	"$folder.two" --format clonezilla --disk sda
sed '1i sector-size: 4096' "$folder/sda-pt.sf" >"$folder.two/sda-pt.sf"
refused "a disk with other sectors" "sectors of 4096 bytes" "$folder.two" --format clonezilla --disk sda
# A swap area, of which Clonezilla keeps UUID and label. The body, which is full of what was swapped out, is not stored either way.
SWAPPED=$WORK/swapped.raw
cp "$DISK" "$SWAPPED"
sfdisk -q "$SWAPPED" <<'TABLE'
label: gpt
start=2048, size=81920
start=83968, size=102400, type=swap
TABLE
dd if="$DISK" of="$WORK/swap" bs=1M skip=41 count=50 status=none
mkswap -q -L 'lab swap' -U 12345678-9abc-4def-8123-456789abcdef "$WORK/swap"
dd if="$WORK/swap" of="$SWAPPED" bs=1M seek=41 conv=notrunc status=none
check "a disk with swap" platter capture "$SWAPPED" lab/swapped
cp -r "$folder" "$folder.swap"
rm "$folder.swap"/sda2.*
sfdisk -d "$SWAPPED" | sed "s#^$SWAPPED\([0-9]\)#/dev/sda\1#; s#$SWAPPED#/dev/sda#" >"$folder.swap/sda-pt.sf"
dd if="$SWAPPED" of="$folder.swap/sda-gpt-1st" bs=512 count=34 status=none
dd if="$SWAPPED" of="$folder.swap/sda-gpt-2nd" bs=512 skip=$((96 * 2048 - 33)) status=none
dd if="$SWAPPED" of="$folder.swap/sda-mbr" bs=512 count=1 status=none
refused "swap without its UUID" "no file swappt-sda2.info" "$folder.swap" --format clonezilla
printf 'UUID="12345678-9abc-4def-8123-456789abcdef"\nLABEL="lab swap"\n' >"$folder.swap/swappt-sda2.info"
check "swap in a folder" platter capture "$folder.swap" lab/clonezilla-swap --format clonezilla
check "swap in a folder: same score" [ "$(score lab/clonezilla-swap)" = "$(score lab/swapped)" ]
check "it is swap for blkid" eval 'platter export lab/clonezilla-swap "$WORK/swap-out" &&
	blkid -p -O $((41 << 20)) "$WORK/swap-out" | grep "LABEL=\"lab swap\" UUID=\"12345678-9abc-4def-8123-456789abcdef\".*TYPE=\"swap\""'
rm -f "$WORK/swap-out" "$WORK/swap" "$SWAPPED"
cp -r "$folder" "$folder.mbr"
sed -i '/gpt/d; s/^label: .*/label: dos/; s/type=[^,]*/type=83/; s/uuid=[^,]*//' "$folder.mbr/sda-pt.sf"
echo "Disk /dev/sda: $((96 * 2048))s" >"$folder.mbr/sda-pt.parted"
printf 'boot code' | dd of="$folder.mbr/sda-mbr" conv=notrunc status=none
check "a disk with an MBR" platter capture "$folder.mbr" lab/mbr --format clonezilla --raw
check "has its boot code" [ "$(platter export lab/mbr - | head -c 9)" = 'boot code' ]
printf 'Disk /dev/sda: %ds\nSector size (logical/physical): 4096B/4096B\n' $((96 * 2048)) >"$folder.mbr/sda-pt.parted"
refused "another length of sectors" "sectors of 4096 bytes" "$folder.mbr" --format clonezilla --raw
echo "Disk /dev/sda: $((96 * 2048))s" >"$folder.mbr/sda-pt.parted"
mv "$folder.mbr/sda-mbr" "$WORK/sda-mbr"
refused "without it" "sda-mbr is missing" "$folder.mbr" --format clonezilla --raw
head -c 100 "$WORK/sda-mbr" >"$folder.mbr/sda-mbr"
refused "with a part of it" "sda-mbr is only 100 bytes" "$folder.mbr" --format clonezilla --raw
ln -sf "$WORK/sda-mbr" "$folder.mbr/sda-mbr"
refused "with a link to it" "sda-mbr is a symbolic link" "$folder.mbr" --format clonezilla --raw
cp -r "$folder" "$folder.dd"
rm "$folder.dd"/sda2.*
check "a partition by partclone.dd" partclone.dd -q -L "$WORK/partclone.log" -s "$WORK/part2" -O "$WORK/part2.dd"
xz -0 -c "$WORK/part2.dd" | split -a 2 -b 1M - "$folder.dd/sda2.dd-ptcl-img.xz."
same clonezilla-dd "$folder.dd" --format clonezilla
head -c 1000000 "$WORK/part2.dd" | xz -0 >"$folder.dd/sda2.dd-ptcl-img.xz.aa"
find "$folder.dd" -name 'sda2.*.a[b-z]' -delete
refused "a cut copy by partclone.dd" "only 1000000 of" "$folder.dd" --format clonezilla
cp -r "$folder" "$folder.broken"
rm "$folder.broken/sda1.ext4-ptcl-img.zst.ab"
refused "a folder without a piece" "sda1.*piece.*missing" "$folder.broken" --format clonezilla
rm "$folder.broken"/sda1.*
refused "a folder without an image" "partition sda1.*no image" "$folder.broken" --format clonezilla
cp "$WORK/part1.ptcl" "$WORK/damaged.ptcl"
printf 'x' | dd of="$WORK/damaged.ptcl" bs=1 seek=2000000 conv=notrunc status=none
refused "damage in an image of partclone" "before offset [0-9]+.*checksum" "$WORK/damaged.ptcl" --format partclone

# -------------------------------------------------------------- other filesystems

# other KIND: $WORK/other has such a filesystem, with files and deleted ones
other() {
	rm -f "$WORK/other"
	truncate -s 128M "$WORK/other"
	case $1 in
	xfs) TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1 mkfs.xfs -q -f -K "$WORK/other" ;;
	btrfs) mkfs.btrfs -q -f -K "$WORK/other" ;;
	ntfs) mkntfs -Q -F -q "$WORK/other" ;;
	fat) mkfs.vfat "$WORK/other" && filled_fat && return ;;
	esac && attach "$WORK/other" && mount_other "$1" || return 1
	yes PLATTER-STALE-DATA. | head -c 9000000 >"$MNT/stale" || [ $? = 141 ]
	cp -r "$TREE/." "$MNT/"
	sync "$MNT"
	rm "$MNT/stale"
	umount "$MNT" && sync "$DEVICE" && detach_loop "$DEVICE"
}
mount_other() { if [ "$1" = ntfs ]; then ntfs-3g "$DEVICE" "$MNT"; else mount "$DEVICE" "$MNT"; fi; }
filled_fat() {
	yes PLATTER-STALE-DATA. | head -c 9000000 >"$WORK/stale" || [ $? = 141 ]
	mcopy -i "$WORK/other" "$WORK/stale" :: && mcopy -s -Q -i "$WORK/other" "$TREE"/* :: && mdel -i "$WORK/other" ::stale
}
# same_files A B: both have files, and diff finds no other in one of them
same_files() {
	local code=0
	platter diff "$1" "$2" >"$WORK/differences" || code=$?
	cat "$WORK/differences"
	[ "$code" = 0 ] || [ "$code" = "$EXIT_DIFFERENT" ] || return 1
	! grep -E '^[ADM!]|by blocks only' "$WORK/differences" && platter find "$2:/" | grep -q numbers.txt
}
if need_root "mounting filesystems"; then
	for kind in xfs btrfs ntfs fat; do
		check "$kind: made" other "$kind"
		check "$kind: capture" platter capture "$WORK/other" "lab/$kind"
		check "$kind: read by its own map" [ "$(platter_json show "lab/$kind" | jq '.allocated_bytes < 100000000')" = true ]
		check "$kind: qcow2" qemu-img convert -f raw -O qcow2 -c "$WORK/other" "$WORK/other.qcow2"
		check "$kind: partclone" "partclone.$kind" -q -c -L "$WORK/partclone.log" -s "$WORK/other" -O "$WORK/other.ptcl"
		for image in qcow2 ptcl; do
			check "$kind: capture of $image" platter capture "$WORK/other.$image" "lab/$kind-$image" --format "${image/ptcl/partclone}"
			case $kind-$image in
			# Partclone leaves out the backup of the boot sector behind an NTFS, and the former trees of btrfs that its superblock names.
			ntfs-ptcl | btrfs-ptcl) check "$kind: $image has the same files" same_files "lab/$kind" "lab/$kind-$image" ;;
			*) check "$kind: $image has the same score" [ "$(score "lab/$kind-$image")" = "$(score "lab/$kind")" ] ;;
			esac
		done
		rm -f "$WORK"/other.*
	done
fi

# -------------------------------------------------------------------------- Frisbee

if type -P imagezip >/dev/null; then
	# A disk that imagezip understands.
	FRISBEE=$WORK/frisbee.raw
	truncate -s 96M "$FRISBEE"
	sfdisk -q "$FRISBEE" <<<$'label: dos\nstart=2048, size=163840, type=83'
	mke2fs -q -t ext3 -E nodiscard,offset=$((1 << 20)) -d "$TREE" "$FRISBEE" 80M
	check "capture" platter capture "$FRISBEE" lab/frisbee-raw
	frisbee() { # NAME OPTION...
		local name=$1
		shift
		check "$name: made by imagezip" imagezip "$@" "$FRISBEE" "$WORK/$name.ndz"
		check "$name: capture" platter capture "$WORK/$name.ndz" "lab/$name"
		check "$name: same score" [ "$(score "lab/$name")" = "$(score lab/frisbee-raw)" ]
	}
	frisbee ndz-3 -3
	frisbee ndz-5 -5
	check "a slice" imagezip -s 1 "$FRISBEE" "$WORK/slice.ndz"
	check "a slice: capture" platter capture "$WORK/slice.ndz" lab/slice
	dd if="$FRISBEE" of="$WORK/slice.raw" bs=1M skip=1 count=80 status=none
	check "the partition" platter capture "$WORK/slice.raw" lab/slice-raw
	check "a slice: same score" [ "$(score lab/slice)" = "$(score lab/slice-raw)" ]
	head -c 1000000 "$WORK/ndz-3.ndz" >"$WORK/half.ndz"
	refused "half of a chunk" "chunk at offset 0 has only 1000000" "$WORK/half.ndz"
else
	skip "Frisbee: no imagezip"
fi

# --------------------------------------------------------------------------- export

# A disk whose free space is zeros, as in the files that are written.
check "a raw file" platter export lab/raw "$WORK/exported.raw"
written() { # NAME FORMAT FILE [OPTION...]
	local name=$1 format=$2 file=$3
	shift 3
	check "export $name" platter export lab/raw "$file" "$@"
	check "export $name: sound" sound "$format" "$file"
	check "export $name: the same disk" qemu-img compare -f raw -F "$format" "$WORK/exported.raw" "$file"
}
# Not every format has a checker.
sound() {
	local code=0
	qemu-img check -f "$1" "$2" || code=$?
	[ "$code" = 0 ] || [ "$code" = 63 ]
}
written qcow2 qcow2 "$WORK/out.qcow2"
written qcow2-compressed qcow2 "$WORK/out-c.qcow2" --compress
written vmdk vmdk "$WORK/out.vmdk"
written vmdk-stream vmdk "$WORK/out-s.vmdk" --compress
written vdi vdi "$WORK/out.vdi"
written vhd vpc "$WORK/out.vhd"
written vhdx vhdx "$WORK/out.vhdx"
written by-name qcow2 "$WORK/out" --format qcow2
check "the compressed file is smaller" [ "$(stat -c %s "$WORK/out-c.qcow2")" -lt "$(stat -c %s "$WORK/out.qcow2")" ]
same again "$WORK/out-c.qcow2"
check "only its owner reads it" [ "$(stat -c %a "$WORK/out.qcow2")" = 600 ]
check_exit "$EXIT_REFUSED" "an existing file stays" platter export lab/raw "$WORK/out.qcow2"
# A part of a qcow2 image can look whole to other programs.
killed_export() {
	local process seen=0
	for _ in 1 2 3 4 5; do
		rm -f "$WORK/killed.qcow2"*
		"$PLATTER" --store "$STORE" --quiet export lab/raw "$WORK/killed.qcow2" &
		process=$!
		while [ ! -e "$WORK/killed.qcow2.part" ] && kill -0 "$process" 2>/dev/null; do :; done
		kill -KILL "$process" 2>/dev/null
		wait "$process" 2>/dev/null
		[ -e "$WORK/killed.qcow2.part" ] || continue
		[ ! -e "$WORK/killed.qcow2" ] || return 1
		seen=$((seen + 1))
	done
	[ "$seen" -gt 0 ]
}
check "a killed export leaves no file of that name" killed_export
check_exit "$EXIT_USAGE" "a format that is not written" platter export lab/raw "$WORK/out.raw.gz"
check_exit "$EXIT_USAGE" "a format that is not compressed" platter export lab/raw "$WORK/out2.vdi" --compress
check_exit "$EXIT_MISSING" "without qemu-img" env PATH=/nonexistent "$PLATTER" --store "$STORE" export lab/raw "$WORK/none.qcow2"
check_said "the message names the package" "qemu-utils"
check "and no file stays" [ ! -e "$WORK/none.qcow2" ]
check "to a pipe" [ "$(platter export lab/raw - | sha256sum | cut -d' ' -f1)" = "$(sha256sum <"$WORK/exported.raw" | cut -d' ' -f1)" ]
check "ndz" platter export lab/raw "$WORK/out.ndz"
same ndz-again "$WORK/out.ndz"
if type -P imageunzip >/dev/null; then
	check "the real imageunzip restores it" imageunzip "$WORK/out.ndz" "$WORK/unzipped.raw"
	truncate -s 96M "$WORK/unzipped.raw"
	check "to the same disk" cmp "$WORK/unzipped.raw" "$WORK/exported.raw"
else
	skip "Frisbee: no imageunzip"
fi

# A store with a damaged frame: the file is removed, and the message is that of the store.
cp -r "$STORE" "$WORK/damaged"
find "$WORK/damaged" -name '*.pack' | while read -r pack; do
	size=$(stat -c %s "$pack")
	dd if=/dev/zero of="$pack" bs=1 seek=$((size / 3)) count=$((size / 6)) conv=notrunc status=none
done
for file in damaged.qcow2 damaged.ndz -; do
	check_exit "$EXIT_CORRUPT" "a damaged version to $file" \
		"$PLATTER" --store "$WORK/damaged" --quiet export lab/raw "${file/damaged/$WORK/damaged}"
done
check "and no file stays" [ ! -e "$WORK/damaged.qcow2" ] && [ ! -e "$WORK/damaged.ndz" ]

# -------------------------------------------------------------------- one partition

dd if="$DISK" of="$WORK/second.raw" bs=1M skip=41 count=50 status=none
check "a partition as a disk" platter capture "$WORK/second.raw" lab/second
check "partition 2 of the raw disk" platter capture "$DISK:2" lab/part
check "has its score" [ "$(score lab/part)" = "$(score lab/second)" ]
check "partition 2 of an image" platter capture "$WORK/zstd.qcow2:2" lab/part-image
check "has its score, too" [ "$(score lab/part-image)" = "$(score lab/second)" ]
refused "a partition that is not there" "no partition 7: the disk has 1, 2" "$DISK:7"
refused "a partition of a file system" "no partition table" "$WORK/second.raw:1"

# ------------------------------------------------------- decisions about partitions

check "partition 1 is left out" "$PLATTER" --store "$STORE" capture "$DISK" lab/skipped --skip-partition 1
check_said "the note tells what an install does there" 'install. leaves there what the target holds, unless .--free zero'
head -c 96M /dev/zero | tr '\0' x >"$WORK/full-target"
check "an install leaves its place" platter install lab/skipped "$WORK/full-target" --yes --force not-a-disk
check "as it was" cmp -n $((30 << 20)) <(head -c 30M /dev/zero | tr '\0' x) <(tail -c +$(((5 << 20) + 1)) "$WORK/full-target" | head -c 30M)
rm "$WORK/full-target"
check "export" platter export lab/skipped "$WORK/skipped"
check "it reads as zeros" cmp -n $((40 << 20)) -i $((1 << 20)):0 "$WORK/skipped" /dev/zero
check "the rest is as it was" platter capture "$WORK/skipped:2" lab/rest
check "and has its score" [ "$(score lab/rest)" = "$(score lab/second)" ]
check "show" platter show lab/skipped
check_said "says that it was left out" "skipped"
check "partition 2 is stored in full" platter capture "$DISK" lab/whole --whole-partition 2
check "export" platter export lab/whole "$WORK/whole"
check "every byte of it is there" cmp -n $((50 << 20)) -i $((41 << 20)) "$DISK" "$WORK/whole"
grep -qa PLATTER-STALE "$WORK/whole" || not_ok "the test has stale data"
# A swap signature that an earlier use left.
cp "$DISK" "$WORK/ambiguous"
printf 'SWAPSPACE2' | dd of="$WORK/ambiguous" bs=1 seek=$(((41 << 20) + 4086)) conv=notrunc status=none
check "a partition with two marks is stored in full" "$PLATTER" --store "$STORE" capture "$WORK/ambiguous" lab/ambiguous
check_said "and says so" "marks of .*swap"
check "its filesystem is named" "$PLATTER" --store "$STORE" capture "$WORK/ambiguous" lab/named-fs --filesystem 2=ext
check_said "that is noted" "partition 2: read as ext, although"
smaller() { [ "$(platter_json show lab/named-fs | jq .allocated_bytes)" -lt "$(platter_json show lab/ambiguous | jq .allocated_bytes)" ]; }
check "and free space is left out" smaller
refused "a filesystem that is not there" "partition 1.*no mark of xfs.*ext" "$DISK" --filesystem 1=xfs
refused "a partition that does not exist" "partition 9.* does not exist" "$DISK" --skip-partition 9
refused "two decisions" "two options for partition 1" "$DISK" --skip-partition 1 --whole-partition 1
check_exit "$EXIT_USAGE" "an unknown filesystem" platter capture "$DISK" lab/x --filesystem 1=zfs
{
	head -c 512 "$DISK"
	tail -c +513 "$WORK/second.raw"
} >"$WORK/table"
check "a filesystem in spite of a partition table" platter capture "$WORK/table" lab/table --filesystem ext
check "its kind" [ "$(platter_json show lab/table | jq -r '.filesystems[0] | "\(.partition) \(.kind)"')" = "0 ext4" ]

finish
