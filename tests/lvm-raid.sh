#!/usr/bin/env bash
# tests/lvm-raid.sh
#
# Volumes of LVM, and members of RAID 1: filesystems on logical volumes in one piece, in several, and in stripes are captured, and installed over other bytes.
# Their own checkers and LVM's must be satisfied with the copy, every file must be the same, deleted contents and contents of
# removed volumes must not be in the store, and not much more than the space in use may be captured. Groups that are not
# understood are stored in full, with the reason. The kernel need not have device-mapper: the suite finds the places of
# volumes by LVM's commands, and writes superblocks of RAID itself, which mdadm must accept.
. "$(dirname "$0")/lib.sh"

need_root "attaching loop devices" || { finish; exit 0; }

readonly MARKER='PLATTER DELETED CONTENTS.' MIB=$((1 << 20))
readonly DISK=$WORK/disk TARGET=$WORK/target
# Where the two partitions for physical volumes are, in MiB: start and length.
readonly PV_1=(18 120) PV_2=(140 60)
readonly DISK_LENGTH=202
export LVM_SYSTEM_DIR=$WORK/lvm LVM_SUPPRESS_FD_WARNINGS=1
mkdir "$LVM_SYSTEM_DIR"

marked() { yes "$MARKER" | head -c "$1" || [ $? = 141 ]; }
marked $((4 * MIB)) >"$WORK/marker"

# lvm COMMAND ARGUMENT...: LVM without device-mapper, on the devices of `volumes_on` alone
lvm() {
	local command=$1
	shift
	command lvm "$command" --driverloaded n "$@"
}
# make_volume ARGUMENT...: lvcreate without activation
make_volume() { lvm lvcreate -q -an -Zn -Wn "$@"; }
quietly() { "$@" >>"$LOG" 2>&1; }
volume() { python3 "$TESTS/lvm_volume.py" "$@"; }

# volumes_on FILE: attaches the physical volumes of a disk: $ONE and, with TWO_USED, $TWO
TWO_USED=
volumes_on() {
	attach "$1" --offset $((PV_1[0] * MIB)) --sizelimit $((PV_1[1] * MIB))
	ONE=$DEVICE
	[ -z "$TWO_USED" ] || attach "$1" --offset $((PV_2[0] * MIB)) --sizelimit $((PV_2[1] * MIB))
	TWO=$DEVICE
	only_these
}
# only_these: LVM sees no devices but $ONE and $TWO
only_these() {
	cat >"$LVM_SYSTEM_DIR/lvm.conf" <<-CONF
		devices { use_devicesfile=0 filter=[ "a|^$ONE\$|", "a|^$TWO\$|", "r|.*|" ] }
		backup { backup=0 archive=0 }
		activation { udev_sync=0 udev_rules=0 }
	CONF
}
volumes_off() {
	sync -f "$WORK"
	detach_loop "$ONE"
	detach_loop "$TWO"
}

# fresh PARTITIONS: a disk with an empty partition, and one or two for physical volumes, which are full of deleted contents
fresh() {
	TWO_USED=
	[ "$1" = 1 ] || TWO_USED=yes
	rm -f "$DISK"
	truncate -s "${DISK_LENGTH}M" "$DISK"
	sfdisk -q --no-tell-kernel "$DISK" <<-TABLE
		label: gpt
		start=1MiB, size=16MiB, type=linux
		start=${PV_1[0]}MiB, size=${PV_1[1]}MiB, type=lvm
		${TWO_USED:+start=${PV_2[0]}MiB, size=${PV_2[1]}MiB, type=lvm}
	TABLE
	# Outside of the extents, which have 4 MiB, everything is kept.
	marked $(((PV_1[1] - 4) * MIB)) | dd of="$DISK" bs=1M seek=$((PV_1[0] + 1)) conv=notrunc status=none iflag=fullblock
	[ -z "$TWO_USED" ] ||
		marked $(((PV_2[1] - 4) * MIB)) | dd of="$DISK" bs=1M seek=$((PV_2[0] + 1)) conv=notrunc status=none iflag=fullblock
	volumes_on "$DISK"
}

# filesystem NAME MIB: $WORK/NAME is an ext4 with files and deleted contents; its facts are in NAME.facts, bytes in use in $USED
filesystem() {
	local image=$WORK/$1
	# Some blocks of a new filesystem are in use, but not written yet.
	rm -f "$image"
	truncate -s "$2M" "$image"
	mke2fs -q -F -t ext4 -b 1024 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 -L "$1" "$image"
	mount -o loop,nodiscard "$image" "$MNT"
	marked $(($2 * MIB / 4)) >"$MNT/gone-1"
	cp -a "$WORK/tree/." "$MNT"
	random 3000000 "$1" >"$MNT/of-$1"
	marked $(($2 * MIB)) >"$MNT/gone-2" 2>/dev/null || true
	sync -f "$MNT"
	rm "$MNT"/gone-*
	facts "$MNT" >"$WORK/$1.facts"
	umount "$MNT"
	USED=$((USED + $(dumpe2fs -h "$image" 2>/dev/null | awk -F: '
		{ value[$1] = $2 } END { printf "%.0f", (value["Block count"] - value["Free blocks"]) * value["Block size"] }')))
}
facts() {
	(
		cd "$1"
		find . -printf '%P %y %m %U %G %T@ %n %l\n' | sort
		find . -type f -print0 | sort -z | xargs -0 sha256sum
	)
}

# take NAME: captures $DISK and installs it over other bytes, to $TARGET
take() {
	platter_json capture "$DISK" "$1" --audit >"$WORK/report" || return 1
	rm -f "$TARGET"
	head -c "$(stat -c %s "$DISK")" /dev/zero | tr '\0' '\252' >"$TARGET"
	attach "$TARGET"
	platter install "$1" "$DEVICE" --yes --verify || return 1
	sync "$DEVICE"
	detach_loop "$DEVICE"
}

# little OUTSIDE: at most 3 % more than in use was captured, besides what is outside of filesystems, which is always kept
little() {
	local captured
	captured=$(jq .allocated_bytes "$WORK/report")
	echo "captured $captured bytes, in use $USED, outside $1"
	[ "$captured" -le $((USED + USED * 3 / 100 + $1)) ]
}
nothing_deleted() {
	grep -qaF "$MARKER" "$DISK" || { echo "the disk has no deleted contents"; return 1; }
	! grep -qaF "$MARKER" <(platter export "$1" -)
}

# sound_copy NAME...: LVM finds no errors in the copy and the same volumes, and the filesystem on each of these is sound and has
# the same files
sound_copy() {
	local name result=0
	volumes_on "$TARGET"
	lvm vgck && lvm pvck "$ONE" && lvm pvck "$TWO" || result=1
	described >"$WORK/described-copy"
	diff "$WORK/described" "$WORK/described-copy" || result=1
	for name in "$@"; do
		rm -f "$WORK/copy"
		volume get "$name" "$WORK/copy" && e2fsck -fn "$WORK/copy" || result=1
		mount -o loop,ro "$WORK/copy" "$MNT" || return 1
		diff "$WORK/${name#*/}.facts" <(facts "$MNT") || result=1
		umount "$MNT"
	done
	volumes_off
	return $result
}
described() {
	rm -f "$WORK/backup"
	lvm vgcfgbackup -q -f "$WORK/backup" >&2 && grep -vE '^(#|creation_|description)|device = ' "$WORK/backup"
}

# shown LOCATION FACTS-OF: `ls`, `find`, `cat` and `cp` show the files of a volume or member as they are
shown() {
	local image=$WORK/$2 result=0
	rm -rf "$WORK/out"
	mkdir "$WORK/out"
	mount -o loop,ro "$image" "$MNT" || return 1
	diff <(find "$MNT" -mindepth 1 -maxdepth 1 -printf '%P\n' | sort) <(platter ls "$1/" | sort) || result=1
	cmp <(platter cat "$1/of-$2") "$MNT/of-$2" || result=1
	platter cp --recursive "$1/many" "$WORK/out/many" && diff -r "$MNT/many" "$WORK/out/many" || result=1
	diff <(cd "$MNT" && find many -printf '/%p\n' | sort) <(platter find "$1/many" | sort) || result=1
	umount "$MNT"
	return $result
}
# mounted VERSION NAME FACTS-OF: a mount of the version has the files of a volume or partition
mounted() {
	local server result=0
	"$PLATTER" --store "$STORE" mount "$1" "$MNT" >"$WORK/mount.log" 2>&1 &
	server=$!
	until_true 60 mountpoint -q "$MNT" || result=1
	mkdir -p "$WORK/plain"
	mount -o loop,ro "$WORK/$3" "$WORK/plain"
	diff -r --no-dereference --exclude=lost+found "$WORK/plain" "$MNT/$2" || result=1
	umount "$WORK/plain"
	umount "$MNT" || result=1
	wait "$server" || true
	return $result
}
# listed VERSION: number or name, contents and whether files can be read, as `ls` prints them
listed() { platter ls "$1" | awk 'NR > 1 { print $1, $5, $NF }'; }

# counted VERSION FACTS-OF...: `analyze --files` counts the regular files of these filesystems; $WORK/analyzed has what it says
counted() {
	local one expected=0
	platter_json analyze "$1" --files >"$WORK/analyzed" || return 1
	for one in "${@:2}"; do expected=$((expected + $(grep -c ' f [0-7]* [0-9]* [0-9]* ' "$WORK/$one.facts"))); done
	jq -e --argjson files "$expected" --argjson filesystems $(($# - 1)) \
		'.files.images[0] | .files == $files and (.filesystems | length == $filesystems) and .unreadable == 0' "$WORK/analyzed"
}
noted() { jq -r '.notes[]' "$WORK/analyzed" >"$LOG"; }

# whole NAME REASON: $DISK is stored in full, with a note
whole() {
	volumes_off
	check "$1: capture" "$PLATTER" --store "$STORE" capture "$DISK" "$1"
	check_said "$1: the reason is reported" "$2"
	check "$1: every byte" same_bytes "$1"
}
same_bytes() { cmp "$DISK" <(platter export "$1" -); }

file_tree "$WORK/tree" 4 lvm-raid
check "init" platter init

# ------------------------------------------------- one physical volume for a group

# Removed volumes leave holes, into which a volume in two pieces goes. Another is reduced.
fresh 1
quietly lvm pvcreate -q "$ONE"
quietly lvm vgcreate -q lin-ear "$ONE"
for one in old:12 root:44 gone:12 swap:8 late:4; do
	quietly make_volume -n "${one%:*}" -L "${one#*:}M" lin-ear
done
for one in old gone late; do quietly lvm lvremove -q -y "lin-ear/$one"; done
quietly lvm lvreduce -q -f -L 40M lin-ear/root
quietly make_volume -n ho-me -l 5 lin-ear "$ONE:0-2" "$ONE:14-15"
quietly lvm lvs --segments -o +seg_pe_ranges
check "a volume is in two pieces" [ "$(lvm lvs --noheadings -o seg_count lin-ear/ho-me | tr -d ' ')" = 2 ]
USED=4096
filesystem root 40
filesystem ho-me 20
volume put lin-ear/root "$WORK/root"
volume put lin-ear/ho-me "$WORK/ho-me"
marked $((8 * MIB)) >"$WORK/swap"
dd if=/dev/zero of="$WORK/swap" bs=4096 count=1 conv=notrunc status=none
mkswap -q "$WORK/swap"
volume put lin-ear/swap "$WORK/swap"
described >"$WORK/described"
volumes_off
check "linear: capture and install" take linear
check "linear: nothing is peculiar" jq -e '.notes | length == 0' "$WORK/report"
# What is outside of the physical volume, and a MiB before and three MiB behind its extents, is kept.
check "linear: captured about what is in use" little $(((DISK_LENGTH - PV_1[1] + 4) * MIB))
echo "# linear: $(tail -n 1 "$LOG")"
check "linear: nothing that was deleted" nothing_deleted linear
check "linear: LVM, e2fsck and every file" sound_copy lin-ear/root lin-ear/ho-me
check "linear: files of a volume in one piece" shown linear:lin--ear-root root
check "linear: files of a volume in two pieces" shown linear:lin--ear-ho--me ho-me
check "linear: a mount has the volumes" mounted linear lin--ear-ho--me ho-me
check "linear: a mount of one volume" mounted linear:lin--ear-root . root
check "linear: ls lists partitions and volumes" diff <(listed linear) - <<-LIST
	1 Linux no
	2 LVM2_member no
	lin--ear-ho--me ext4 yes
	lin--ear-root ext4 yes
	lin--ear-swap swap no
LIST
check_exit "$EXIT_MISSING" "linear: a volume that does not exist" platter ls linear:lin--ear-none/
check_said "linear: and says which exist" 'lin--ear-root \(ext4\)'
check_exit "$EXIT_REFUSED" "linear: a partition with several volumes" platter ls linear:2/
check_said "linear: and says what to write" 'linear:GROUP-VOLUME/PATH'
check_exit "$EXIT_REFUSED" "linear: a disk with several volumes" platter ls linear:/
check_said "linear: and says it, too" 'linear:GROUP-VOLUME/PATH'
check_exit "$EXIT_REFUSED" "linear: swap has no files" platter ls linear:lin--ear-swap/
check "linear: analyze counts the files of all volumes" counted linear root ho-me
check "linear: and has no note" jq -e '.notes == []' "$WORK/analyzed"
check "linear: those of a partition with volumes, too" counted linear:2 root ho-me
ext4_image "$WORK/plain.image" 16 "$WORK/tree"
facts "$WORK/tree" >"$WORK/plain.facts"
cp "$DISK" "$WORK/both"
dd if="$WORK/plain.image" of="$WORK/both" bs=1M seek=1 conv=notrunc status=none
platter capture "$WORK/both" both >/dev/null
check "linear: analyze counts the files of a plain partition and of volumes" counted both plain root ho-me
rm "$WORK/both"
check_exit "$EXIT_REFUSED" "linear: diff of a volume" platter diff linear:lin--ear-root/ linear:lin--ear-root/
check_said "linear: and says what it does instead" 'block by block'

# ----------------------------------------------- two physical volumes for a group

fresh 2
quietly lvm pvcreate -q "$ONE" "$TWO"
quietly lvm vgcreate -q wide "$ONE" "$TWO"
quietly make_volume -n by64 -i 2 -I 64k -l 14 wide
quietly make_volume -n by4 -i 2 -I 4k -l 8 wide
USED=0
filesystem by64 56
filesystem by4 32
for one in by64 by4; do volume put "wide/$one" "$WORK/$one"; done
described >"$WORK/described"
volumes_off
check "striped: capture and install" take striped
check "striped: nothing is peculiar" jq -e '.notes | length == 0' "$WORK/report"
check "striped: captured about what is in use" little $(((DISK_LENGTH - PV_1[1] - PV_2[1] + 8) * MIB))
echo "# striped: $(tail -n 1 "$LOG")"
check "striped: nothing that was deleted" nothing_deleted striped
check "striped: LVM, e2fsck and every file" sound_copy wide/by64 wide/by4
check "striped: files of a volume" shown striped:wide-by64 by64
check "striped: files of a volume in narrow stripes" shown striped:wide-by4 by4
check "striped: a mount has the volumes" mounted striped wide-by4 by4

# Thin volumes and snapshots need the kernel to be made, but LVM accepts their description.
fresh 1
quietly lvm pvcreate -q "$ONE"
quietly lvm vgcreate -q mixed "$ONE"
for one in data:20 meta:4 beside:20 origin:20 cow:8; do quietly make_volume -n "${one%:*}" -L "${one#*:}M" mixed; done
USED=0
filesystem beside 20
volume put mixed/beside "$WORK/beside"
volume put mixed/origin "$WORK/beside"
quietly lvm vgcfgbackup -q -f "$WORK/group" mixed
composed() { # NAME SEGMENT-TEXT
	printf '\t\t%s {\nid = "%s"\nstatus = ["READ", "WRITE", "VISIBLE"]\nflags = []\nsegment_count = 1\n' "$1" "$(uuid "$1")"
	printf 'segment1 {\nstart_extent = 0\nextent_count = 5\n%s\n}\n}\n' "$2"
}
uuid() { md5sum <<<"$1" | sed -E 's/^(.{6})(.{4})(.{4})(.{4})(.{4})(.{4})(.{6}).*/\1-\2-\3-\4-\5-\6-\7/'; }
{
	composed pool $'type = "thin-pool"\nmetadata = "pool_tmeta"\npool = "pool_tdata"\ntransaction_id = 1\nchunk_size = 128'
	composed thin $'type = "thin"\nthin_pool = "pool"\ntransaction_id = 0\ndevice_id = 1'
	composed snapshot0 $'type = "snapshot"\nchunk_size = 8\norigin = "origin"\ncow_store = "cow"'
} >"$WORK/composed"
sed -e '/^\t\tdata {/,/segment_count/ { s/data/pool_tdata/; s/, "VISIBLE"// }' \
	-e '/^\t\tmeta {/,/segment_count/ { s/meta/pool_tmeta/; s/, "VISIBLE"// }' \
	-e "/^\tlogical_volumes {/r $WORK/composed" "$WORK/group" >"$WORK/group-composed"
check "composed: LVM knows a thin volume and a snapshot" lvm vgcfgrestore -q --force -f "$WORK/group-composed" mixed
lvm lvs -a -o lv_name,segtype >"$LOG" 2>&1
check_said "composed: they are there" 'thin-pool'
described >"$WORK/described"
volumes_off
check "composed: capture and install" take composed
jq -r '.notes[]' "$WORK/report" >"$LOG"
for one in pool_tdata pool_tmeta origin cow; do check_said "composed: $one is stored in full, and reported" "mixed/$one is stored in full"; done
check "composed: nothing else is reported" [ "$(wc -l <"$LOG")" = 4 ]
check "composed: captured about what is in use" little $(((DISK_LENGTH - PV_1[1] + 4 + 52) * MIB))
check "composed: analyze counts the files of the simple volume" counted composed beside
noted
for one in pool_tdata pool_tmeta origin cow; do check_said "composed: and names $one with a reason" "files of volume mixed-$one are not counted: "; done
cp "$WORK/beside.facts" "$WORK/origin.facts"
check "composed: LVM, e2fsck and every file" sound_copy mixed/beside mixed/origin
origin_is_whole() {
	cmp <(volumes_bytes "$DISK") <(volumes_bytes "$TARGET")
}
volumes_bytes() { tail -c +$(((PV_1[0] + 1 + 44) * MIB + 1)) "$1" | head -c $((28 * MIB)); }
check "composed: every byte of an origin and its snapshot" origin_is_whole
check "composed: files of the only simple volume, by the partition" shown composed:2 beside
check_exit 5 "composed: a thin volume is refused" "$PLATTER" --store "$STORE" ls composed:mixed-thin/
check_said "composed: with the reason" 'volume mixed-thin of composed cannot be read: it has a segment of type thin'
check_exit 5 "composed: an origin is refused" "$PLATTER" --store "$STORE" ls composed:mixed-origin/
check_said "composed: with its reason" 'volume mixed-origin of composed cannot be read: another logical volume uses it'

# ------------------------------------------------------- a group inside a volume of another

# inner COMMAND...: runs it with the inner physical volume as the only one
inner() {
	local result=0
	attach "$WORK/inner"
	ONE=$DEVICE TWO=$DEVICE
	only_these
	"$@" || result=$?
	sync "$DEVICE"
	detach_loop "$DEVICE"
	return $result
}
make_inner() {
	lvm pvcreate -q "$ONE" && lvm vgcreate -q inner "$ONE" && make_volume -n root -L 40M inner && volume put inner/root "$WORK/nested"
}
USED=0
filesystem nested 40
truncate -s 60M "$WORK/inner"
marked $((56 * MIB)) | dd of="$WORK/inner" bs=1M seek=1 conv=notrunc status=none iflag=fullblock
check "nested: a physical volume, group and volume" inner make_inner
fresh 1
quietly lvm pvcreate -q "$ONE"
quietly lvm vgcreate -q outer "$ONE"
quietly make_volume -n disk -L 60M outer
volume put outer/disk "$WORK/inner"
described >"$WORK/described"
volumes_off
check "nested: capture and install" take nested
nested_copy() {
	local result=0
	volumes_on "$TARGET"
	lvm vgck outer || result=1
	volume get outer/disk "$WORK/inner" || result=1
	volumes_off
	inner lvm vgck inner || result=1
	inner volume get inner/root "$WORK/copy" || result=1
	e2fsck -fn "$WORK/copy" || result=1
	mount -o loop,ro "$WORK/copy" "$MNT" || return 1
	diff "$WORK/nested.facts" <(facts "$MNT") || result=1
	umount "$MNT"
	return $result
}
check "nested: captured about what is in use" little $(((DISK_LENGTH - PV_1[1] + 4 + 4) * MIB))
echo "# nested: $(tail -n 1 "$LOG")"
check "nested: nothing that was deleted" nothing_deleted nested
check "nested: LVM, e2fsck and every file, two groups deep" nested_copy
# Capture looks into the inner group, but files in it are not shown.
check "nested: ls names the volume with a group in it" diff <(listed nested) - <<-LIST
	1 Linux no
	2 LVM2_member no
	outer-disk LVM2_member no
LIST
check_exit "$EXIT_REFUSED" "nested: its files are not shown" platter ls nested:outer-disk/
check_said "nested: and the reason is" 'outer-disk of nested contains LVM2_member'

# ------------------------------------------------------ groups that are kept in full

# group NAME: a group on two physical volumes, with a filesystem
group() {
	fresh 2
	quietly lvm pvcreate -q "$ONE" "$TWO"
	quietly lvm vgcreate -q "$1" "$ONE" "$TWO"
	quietly make_volume -n root -L 20M "$1" "$ONE"
	volume put "$1/root" "$WORK/beside"
}
group exported
quietly lvm vgexport -q exported
whole exported 'has the flag EXPORTED'
group damaged
volume damage "$TWO" ALLOCATABLE ALLOCATABLF
whole damaged 'checksum of its metadata'
group partial
dd if=/dev/zero of="$TWO" bs=1M count=1 conv=notrunc status=none
whole partial 'has 2 physical volumes, of which this disk has 1'
check_exit 5 "partial: its volume is refused" "$PLATTER" --store "$STORE" ls partial:partial-root/
check_said "partial: with the reason" 'logical volumes on .* of partial cannot be read: .*has 2 physical volumes'
check "partial: analyze counts no files" counted partial
noted
check_said "partial: and says why" 'files of partition 2 are not counted: .*has 2 physical volumes, of which this disk has 1'
group unknown
for one in "$ONE" "$TWO"; do volume edit "$one" striped stripes; done
whole unknown 'its type stripes is not known'
group moving
for one in "$ONE" "$TWO"; do volume edit "$one" '"VISIBLE"' '"LOCKED"'; done
volumes_off
check "moving: capture" "$PLATTER" --store "$STORE" capture "$DISK" moving
check_said "moving: the reason is reported" 'moving/root is stored in full'

# --------------------------------------------------------------------------- RAID 1

# member VERSION [FIELD=NUMBER]...: $DISK is a member of a RAID 1 with a filesystem, and full of deleted contents; its data is at
# $START and has $LENGTH bytes
member() {
	rm -f "$DISK"
	marked $((40 * MIB)) >"$DISK"
	local version=$1
	shift
	read -r START LENGTH < <(python3 "$TESTS/raid_member.py" "$version" "$DISK")
	# What is outside of the data is kept.
	head -c "$START" /dev/zero | dd of="$DISK" bs=1M conv=notrunc status=none iflag=fullblock
	# So is what is behind the filesystem.
	truncate -s $((START + 38 * MIB)) "$DISK"
	truncate -s 40M "$DISK"
	python3 "$TESTS/raid_member.py" "$version" "$DISK" "$@" >/dev/null
	dd if="$WORK/member" of="$DISK" bs=64K oflag=seek_bytes seek="$START" conv=notrunc status=none
}
sound_member() {
	local result=0
	diff <(mdadm --examine "$DISK" | tail -n +2) <(mdadm --examine "$TARGET" | tail -n +2) || result=1
	dd if="$TARGET" of="$WORK/copy" bs=64K iflag=skip_bytes,count_bytes skip="$START" count="$LENGTH" status=none
	e2fsck -fn "$WORK/copy" || result=1
	mount -o loop,ro "$WORK/copy" "$MNT" || return 1
	diff "$WORK/member.facts" <(facts "$MNT") || result=1
	umount "$MNT"
	return $result
}
USED=0
filesystem member 38
for version in 0.90 1.0 1.1 1.2; do
	member "$version"
	mdadm --examine "$DISK" >"$LOG" 2>&1 || true
	check_said "RAID 1, version $version: mdadm accepts the superblock" 'checksum.*correct'
	check "RAID 1, version $version: capture and install" take "raid-$version"
	check "RAID 1, version $version: nothing is peculiar" jq -e '.notes | all(test("after its end are stored, too"))' "$WORK/report"
	check "RAID 1, version $version: captured about what is in use" little $((3 * MIB))
	echo "# RAID 1, version $version: $(tail -n 1 "$LOG")"
	check "RAID 1, version $version: nothing that was deleted" nothing_deleted "raid-$version"
	check "RAID 1, version $version: mdadm, e2fsck and every file" sound_member
	check "RAID 1, version $version: its files" shown "raid-$version:" member
	check "RAID 1, version $version: analyze counts its files" counted "raid-$version" member
done
raid_whole() { # NAME REASON
	check "$1: capture" "$PLATTER" --store "$STORE" capture "$DISK" "$1"
	check_said "$1: the reason is reported" "$2"
	check "$1: every byte" same_bytes "$1"
}
member 1.2 level=5
raid_whole raid-5 'RAID of level 5'
member 1.2 resync=0
raid_whole raid-running 'was not stopped'
member 1.2 features=1 bitmap=2048
raid_whole raid-bitmap 'bitmap is not outside of its data'
member 1.1 features=4
raid_whole raid-reshaped 'is being changed'
member 0.90 state=0
raid_whole raid-old-running 'more than one of them may be in use'

check "the store is sound" platter check --read-data

# ------------------------------------------ damage in the store, below one of two groups

STORE=$WORK/damaged
platter init >/dev/null
fresh 2
quietly lvm pvcreate -q "$ONE" "$TWO"
quietly lvm vgcreate -q intact "$ONE"
quietly lvm vgcreate -q lost "$TWO"
for one in intact lost; do
	quietly make_volume -n root -L 20M "$one"
	volume put "$one/root" "$WORK/beside"
done
# The metadata is moved to a block in which no filesystem is searched for, with incompressible data that can be found in a pack. Only
# this block changes before the second capture, so no other is in its frame.
volume move "$TWO" $((801 << 10))
beside_metadata() {
	random 23000 "$1" >"$WORK/random"
	dd if="$WORK/random" of="$TWO" bs=1K seek=808 conv=notrunc status=none
}
beside_metadata first
sync "$TWO"
check "damaged: the first capture" platter capture "$DISK" below
beside_metadata second
check "damaged: LVM finds both groups" eval '[ "$(lvm vgs --noheadings -o vg_name | tr -d " " | sort | paste -sd " ")" = "intact lost" ]'
volumes_off
check "damaged: the second capture" platter capture "$DISK" below
check "damaged: both groups are read" diff <(listed below) - <<-LIST
	1 Linux no
	2 LVM2_member no
	intact-root ext4 yes
	3 LVM2_member no
	lost-root ext4 yes
LIST
check "damaged: the metadata of one" damage_pack "$WORK/random" 10000
check_exit "$EXIT_CORRUPT" "damaged: the list" platter ls below
check "damaged: it has the volume of the other" diff <(listed below 2>/dev/null) - <<-LIST
	1 Linux no
	2 LVM2_member no
	intact-root ext4 yes
	3 LVM2_member damaged
LIST
check "damaged: files of the other" shown below:intact-root beside
check "damaged: files of the other, by the partition" shown below:2 beside
check "damaged: a mount has the other" mounted below intact-root beside
check "damaged: and tells the damage" grep -q 'partition 3 of below@2 is damaged: .*platter heal' "$WORK/mount.log"
for one in lost-root 3; do
	check_exit "$EXIT_CORRUPT" "damaged: the damaged one by $one" platter ls "below:$one/"
	check_said "damaged: is named" 'partition 3 of below is damaged: .*metadata.*platter heal'
done
finish
