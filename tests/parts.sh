#!/usr/bin/env bash
# tests/parts.sh
#
# One partition of an image onto a partition or file; a whole image onto a larger disk with its last partition grown; new ids.
# Targets are loop devices with sectors of 512 and 4,096 bytes, full of 0xAA beforehand. The tools of the system judge the results.
. "$(dirname "$0")/lib.sh"

need_root "loop devices" || { finish; exit 0; }
MIB=$((1 << 20))
PORT=$((20000 + SRANDOM % 12000))
file_tree "$WORK/tree" 6 parts

# table KIND: the sfdisk script for a disk of 64 MiB: two partitions, of which the last ends 4 MiB before the end
table() {
	case $1 in
	gpt) printf 'label: gpt\nstart=1MiB, size=8MiB, name="first"\nstart=9MiB, size=51MiB, name="second"\n' ;;
	mbr) printf 'label: dos\nstart=1MiB, size=8MiB, type=83, bootable\nstart=9MiB, size=51MiB, type=83\n' ;;
	logical) printf 'label: dos\nstart=1MiB, size=8MiB, type=83\nstart=9MiB, size=51MiB, type=5\nstart=10MiB, size=8MiB, type=83\nstart=19MiB, size=41MiB, type=83\n' ;;
	esac
}
# last KIND: number of the last partition, and its start in MiB
last() {
	case $1 in
	logical) echo 6 19 ;;
	*) echo 2 9 ;;
	esac
}
# make_disk FILE KIND SECTOR FILESYSTEM: a disk whose last partition has this file system
make_disk() {
	local file=$1 kind=$2 sector=$3 start end=60
	start=$(last "$kind" | cut -d' ' -f2)
	rm -f "$file" "$WORK/part"
	truncate -s 64M "$file"
	attach "$file" --sector-size "$sector"
	table "$kind" | sfdisk -q --no-reread --no-tell-kernel "$DEVICE"
	detach_loop "$DEVICE"
	truncate -s $(((end - start) * MIB)) "$WORK/part"
	case $4 in
	ext4) mke2fs -q -t ext4 -b 4096 -L grows -d "$WORK/tree" "$WORK/part" ;;
	swap) mkswap -q "$WORK/part" ;;
	esac
	dd if="$WORK/part" of="$file" bs=1M seek="$start" conv=notrunc,sparse status=none
	truncate -s 8M "$WORK/first"
	mke2fs -q -t ext4 -F -b 4096 -N 200 -L first -d "$WORK/tree/many" "$WORK/first"
	dd if="$WORK/first" of="$file" bs=1M seek=1 conv=notrunc,sparse status=none
}
# full_target MIB SECTOR: sets TARGET to a loop device full of 0xAA
full_target() {
	head -c $(($1 * MIB)) /dev/zero | tr '\0' '\252' >"$WORK/target"
	attach "$WORK/target" --sector-size "$2"
	TARGET=$DEVICE
}
release() {
	detach_loop "$TARGET"
	sync -f "$WORK/target"
}
fact() { jq -r "$1" "$WORK/report"; }
# install_to OPTION...: installs to $TARGET; the report is in $WORK/report
install_to() { platter_json install "$@" --yes >"$WORK/report"; }
# receive_to NAME OPTION...: the same by a cast of the image
receive_to() {
	local image=${1%%:*} code=0 receiver
	timeout 120 "$PLATTER" --quiet --json receive "$@" --yes --trust-any --interface lo --port "$PORT" --give-up 60 >"$WORK/report" 2>"$WORK/receiver.log" &
	receiver=$!
	timeout 120 "$PLATTER" --store "$STORE" --quiet cast "$image" --interface lo --port "$PORT" --receivers 1 --wait 60 --give-up 60 --linger 0 >"$WORK/sender.log" 2>&1 || code=$?
	wait "$receiver" || code=$?
	cat "$WORK/report" "$WORK/receiver.log" "$WORK/sender.log"
	return "$code"
}
# part_of FILE START LENGTH: these MiB as $WORK/part
part_of() { dd if="$1" of="$WORK/part" bs=1M skip="$2" count="$3" status=none; }
# is_sound FILE: an ext4 file system without errors, with all files
is_sound() {
	e2fsck -fn "$1" || return 1
	debugfs -R "cat /numbers.txt" "$1" 2>/dev/null | cmp - "$WORK/tree/numbers.txt"
}

platter init >/dev/null
for sector in 512 4096; do
	for kind in gpt mbr logical; do
		[ "$sector" = 512 ] || [ "$kind" = gpt ] || continue
		make_disk "$WORK/$kind-$sector" "$kind" "$sector" ext4
		platter capture "$WORK/$kind-$sector" "lab/$kind-$sector" --sector-size "$sector" >/dev/null
	done
done

# One partition.
for sector in 512 4096; do
	for kind in gpt mbr logical; do
		[ "$sector" = 512 ] || [ "$kind" = gpt ] || continue
		read -r number start < <(last "$kind")
		part_of "$WORK/$kind-$sector" "$start" $((60 - start))
		cp "$WORK/part" "$WORK/right"
		for way in install receive; do
			name="$way partition $number of a disk with $kind, sectors of $sector"
			full_target $((60 - start)) "$sector"
			check "$name: it succeeds" "${way}_to" "lab/$kind-$sector:$number" "$TARGET" --free zero --verify
			check "$name: the report names it" [ "$(fact .partition)" = "$number" ]
			release
			check "$name: exactly the partition is written" cmp "$WORK/target" "$WORK/right"
		done
	done
done
# A partition has no table: only larger sectors than those it was made for are an obstacle.
full_target 60 512
check "a partition of a disk with sectors of 4096 bytes, on 512" install_to lab/gpt-4096:2 "$TARGET"
check "it is sound" is_sound "$TARGET"
release
full_target 60 4096
check_exit "$EXIT_REFUSED" "a partition of a disk with sectors of 512 bytes, on 4096" install_to lab/gpt-512:2 "$TARGET"
check_said "the reason is named" 'smaller blocks than these sectors'
release
full_target 60 512
check "a longer target" install_to lab/gpt-512:2 "$TARGET"
check "a longer target: the file system is sound" is_sound "$TARGET"
check "a longer target: what lies behind the partition is kept" [ "$(tail -c 1 "$WORK/target" | tr -d '\252' | wc -c)" = 0 ]
check "a longer target, --grow: only the file system grows" install_to lab/gpt-512:2 "$TARGET" --grow
check "a longer target, --grow: it is reported" [ "$(fact '.grown.filesystem_grown and .grown.bytes == 62914560')" = true ]
check "a longer target, --grow: it is sound" is_sound "$TARGET"
check "a longer target, --grow: it fills the target" [ "$(dumpe2fs -h "$TARGET" 2>/dev/null | awk '/^Block count/ { print $3 }')" = 15360 ]
check "again, only what is missing" install_to lab/gpt-512:2 "$TARGET" --delta
check "again: most was there" [ "$(fact '.delta.kept_bytes > 4000000')" = true ]
check "again: the file system is sound" is_sound "$TARGET"
release
full_target 50 512
before=$(sha256sum <"$WORK/target")
for way in install receive; do
	check_exit "$EXIT_REFUSED" "$way: a target that is too short is refused" "${way}_to" lab/gpt-512:2 "$TARGET"
	check_exit "$EXIT_MISSING" "$way: a partition that does not exist" "${way}_to" lab/gpt-512:7 "$TARGET"
	check_said "$way: the existing ones are named" 'no partition 7; it has 1, 2'
	check_exit "$EXIT_REFUSED" "$way: an extended partition is refused" "${way}_to" lab/logical-512:2 "$TARGET"
	check_exit "$EXIT_REFUSED" "$way: new ids of one partition are refused" "${way}_to" lab/gpt-512:1 "$TARGET" --new-ids
done
check_exit "$EXIT_USAGE" "a partition number that is none" platter install lab/gpt-512:x "$TARGET" --yes
release
check "the refused target is unchanged" [ "$before" = "$(sha256sum <"$WORK/target")" ]

# Only chunks with blocks of the partition are requested.
cp "$WORK/gpt-512" "$WORK/large"
random 30000000 large >"$WORK/noise"
debugfs -w -R "write $WORK/noise noise" "$WORK/right" >/dev/null 2>&1 || true
part_of "$WORK/gpt-512" 9 51
debugfs -w -R "write $WORK/noise noise" "$WORK/part" >/dev/null 2>&1
dd if="$WORK/part" of="$WORK/large" bs=1M seek=9 conv=notrunc status=none
platter capture "$WORK/large" lab/large >/dev/null
rm -f "$WORK/target"
check "the small partition of a disk with a large one" receive_to lab/large:1 "$WORK/target"
check "the small partition: little is fetched ($(fact .fetched_bytes))" [ "$(fact '.fetched_bytes < 6000000')" = true ]
part_of "$WORK/large" 1 8
cp "$WORK/part" "$WORK/right"
check "the small partition: it is sound" e2fsck -fn "$WORK/target"

# The last partition grows.
for sector in 512 4096; do
	for kind in gpt mbr logical; do
		[ "$sector" = 512 ] || [ "$kind" = gpt ] || continue
		read -r number start < <(last "$kind")
		for way in install receive; do
			name="$way --grow, $kind, sectors of $sector"
			full_target 101 "$sector"
			check "$name: it succeeds" "${way}_to" "lab/$kind-$sector" "$TARGET" --grow --new-ids --verify
			end=101
			[ "$kind" != gpt ] || end=100
			check "$name: it is reported" [ "$(fact ".grown.partition == $number and .grown.bytes == $(((end - start) * MIB)) and .grown.filesystem_grown and .new_ids")" = true ]
			check "$name: sfdisk accepts the table" sfdisk --verify "$TARGET"
			[ "$kind" != gpt ] || check "$name: sgdisk accepts the table" sh -c "sgdisk -v '$TARGET' | grep 'No problems found'"
			check "$name: the partition ends at the last MiB" \
				[ "$(sfdisk --json "$TARGET" | jq ".partitiontable.partitions[-1] | (.start + .size) * $sector")" = $((end * MIB)) ]
			release
			part_of "$WORK/target" "$start" $((end - start))
			check "$name: the file system is sound" is_sound "$WORK/part"
			check "$name: the file system has grown" [ "$(dumpe2fs -h "$WORK/part" 2>/dev/null | awk '/^Block count/ { print $3 }')" = $(((end - start) * 256)) ]
			part_of "$WORK/target" 1 8
			check "$name: the other partition is sound" e2fsck -fn "$WORK/part"
		done
	done
done
# ids FILE: the ids of its disk and its partitions, one a line
ids() { sfdisk --json "$1" | jq -r '.partitiontable | .id, (.partitions[] | .uuid // empty)'; }
for kind in gpt mbr; do
	platter install "lab/$kind-512" "$WORK/once" --new-ids --yes >/dev/null
	platter install "lab/$kind-512" "$WORK/twice" --new-ids --yes --no-delta >/dev/null
	count=$(ids "$WORK/once" | wc -l)
	check "new ids, $kind: all are new" [ "$( (ids "$WORK/$kind-512"; ids "$WORK/once"; ids "$WORK/twice") | sort -u | wc -l)" = $((count * 3)) ]
	check "new ids, $kind: sfdisk accepts the table" sfdisk --verify "$WORK/once"
	[ "$kind" != gpt ] || check "new ids, $kind: sgdisk accepts the table" sh -c "sgdisk -v '$WORK/once' | grep 'No problems found'"
	check "new ids, $kind: the rest is unchanged" cmp -n $((62 * MIB)) -i "$MIB" "$WORK/once" "$WORK/twice"
	rm -f "$WORK/once" "$WORK/twice"
done

# Without a tool, or without space, the report says so.
make_disk "$WORK/swap" mbr 512 swap
platter capture "$WORK/swap" lab/swap >/dev/null
full_target 101 512
check "--grow of swap space" platter install lab/swap "$TARGET" --yes --grow
check_said "the command to run is named" "mkswap --uuid "
release
full_target 61 512
check_exit "$EXIT_REFUSED" "a target that is too small for the image" platter install lab/gpt-512 "$TARGET" --yes --grow
release
truncate -s 64M "$WORK/hole"
check "--grow of a disk that has no more space" platter install lab/gpt-512 "$WORK/hole" --yes --grow
# Data behind the last partition would be overwritten by what it gets later.
cp --sparse=always "$WORK/gpt-512" "$WORK/behind"
head -c 100000 /dev/urandom | dd of="$WORK/behind" bs=1M seek=61 conv=notrunc status=none
platter capture "$WORK/behind" lab/behind >/dev/null
full_target 101 512
before=$(sha256sum <"$WORK/target")
check_exit "$EXIT_REFUSED" "--grow over data behind the last partition is refused" platter install lab/behind "$TARGET" --yes --grow
check_said "and why, with what to do" "data behind partition 2, at offset $((61 * MIB)).*leave out --grow"
check "the target is unchanged" [ "$before" = "$(sha256sum <"$WORK/target")" ]
check "without --grow it is installed" platter install lab/behind "$TARGET" --yes
release
full_target 101 512
check "a cast with --grow writes the disk" receive_to lab/behind "$TARGET" --grow
check_said "and says why the partition was not grown" "no partition was grown: .*data behind partition 2, at offset $((61 * MIB))"
check "the data is there" cmp -i $((61 * MIB)) -n "$MIB" "$WORK/behind" "$TARGET"
release
# The same behind a file system in its place: the place grows, the file system does not.
rm -f "$WORK/shrunk" && truncate -s 48M "$WORK/shrunk"
mke2fs -q -t ext4 "$WORK/shrunk" 20M
head -c 100000 /dev/urandom | dd of="$WORK/shrunk" bs=1M seek=30 conv=notrunc status=none
platter capture "$WORK/shrunk" lab/shrunk >/dev/null
for way in install receive; do
	full_target 101 512
	case $way in
	install) check "install --grow of a file system before data" platter install lab/shrunk "$TARGET" --yes --grow ;;
	receive) check "receive --grow of the same" receive_to lab/shrunk "$TARGET" --grow ;;
	esac
	check_said "says why it did not grow" "the image has data behind it, at offset $((30 * MIB))"
	check "the data is there" cmp -i $((30 * MIB)) -n 100000 "$WORK/shrunk" "$TARGET"
	check "the file system has its length" [ "$(dumpe2fs -h "$TARGET" 2>/dev/null | awk -F: '/^Block count/ { b = $2 } /^Block size/ { print b * $2 }')" = $((20 * MIB)) ]
	release
done
# The backup GPT that is left where the disk ended before it was enlarged is no such data.
cp --sparse=always "$WORK/gpt-512" "$WORK/enlarged"
truncate -s 70M "$WORK/enlarged"
sfdisk -q --relocate gpt-bak-std --no-reread --no-tell-kernel "$WORK/enlarged"
dd if="$WORK/gpt-512" of="$WORK/enlarged" bs=512 skip=$((64 * 2048 - 33)) seek=$((64 * 2048 - 33)) conv=notrunc status=none
platter capture "$WORK/enlarged" lab/enlarged >/dev/null
full_target 101 512
check "--grow over the backup of an earlier GPT" platter install lab/enlarged "$TARGET" --yes --grow
release
cp "$WORK/gpt-512" "$WORK/damaged"
dd if=/dev/zero of="$WORK/damaged" bs=512 seek=1 count=1 conv=notrunc status=none
platter capture "$WORK/damaged" lab/damaged >/dev/null
full_target 101 512
before=$(sha256sum <"$WORK/target")
check_exit "$EXIT_REFUSED" "--grow of a disk with a damaged table is refused" platter install lab/damaged "$TARGET" --yes --grow
check_said "and why" 'only its backup can be read'
check "the target is unchanged" [ "$before" = "$(sha256sum <"$WORK/target")" ]
release

loops_above() { losetup --noheadings --output NAME --associated "$TARGET"; }
has_no_loops() { [ -z "$(loops_above)" ]; }
# Killed at random moments: never a disk that looks complete and is not.
for n in $(seq 8); do
	kind=$(printf 'gpt\nmbr\nlogical\n' | sed -n "$((n % 3 + 1))p")
	read -r number start < <(last "$kind")
	full_target 101 512
	"$PLATTER" --store "$STORE" --quiet install "lab/$kind-512" "$TARGET" --yes --grow --new-ids >/dev/null 2>&1 &
	job=$!
	sleep "0.$(printf %03d "$(number "grow $n" 300)")"
	kill -KILL "$job" 2>/dev/null || true
	wait "$job" 2>/dev/null || true
	# The tool of the file system ends, too, and its loop device goes with it.
	until_true 60 has_no_loops || not_ok "killed $n: a loop device is left"
	if [ -n "$(blkid -p -o value -s PTTYPE "$TARGET")" ]; then
		end=101
		[ "$kind" != gpt ] || end=100
		part_of "$TARGET" "$start" $((end - start))
		check "killed $n ($kind): the table is complete" sfdisk --verify "$TARGET"
		check "killed $n ($kind): the file system was written completely" sh -c "e2fsck -fy '$WORK/part'; [ \$? -le 1 ]"
		check "killed $n ($kind): and is sound" is_sound "$WORK/part"
	else
		ok "killed $n ($kind): the target has no partition table"
	fi
	release
done
check "the store is sound" platter check
finish
