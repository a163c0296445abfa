#!/usr/bin/env bash
# tests/targets.sh: every command that writes a target, to loop devices with sectors of 512 and 4,096 bytes and to files.
# The contents of a target are shown and confirmed; an interrupted write leaves nothing that looks complete; `--verify`
# reports what it compared. (Forbidden targets: refusals.sh.)
. "$(dirname "$0")/lib.sh"

need_root "loop devices" || { finish; exit 0; }
export PLATTER_ROOM=$WORK/room
ROOM=$ROOT/lab/room
MIB=$((1 << 20))
serving=''
suite_cleanup() {
	[ -z "$serving" ] || kill "$serving" 2>/dev/null
	mountpoint -q "$WORK/served" && umount "$WORK/served"
	"$ROOM" down >/dev/null 2>&1
}
# gpt_disk FILE SECTOR MIB KEY: makes a disk with a GPT and one ext4 file system, for this sector size
gpt_disk() {
	local file=$1 sector=$2 mib=$3
	rm -f "$file" "$WORK/part"
	truncate -s "${mib}M" "$file"
	attach "$file" --sector-size "$sector"
	printf 'label: gpt\nstart=%s, size=%s, name="root of %s"\n' $((MIB / sector)) $(((mib - 2) * MIB / sector)) "$4" | sfdisk -q "$DEVICE" >/dev/null 2>&1
	detach_loop "$DEVICE"
	file_tree "$WORK/tree-$4" 6 "$4"
	truncate -s $(((mib - 2) * MIB)) "$WORK/part"
	mke2fs -q -t ext4 -b 4096 -L "label-$4" -d "$WORK/tree-$4" "$WORK/part"
	dd if="$WORK/part" of="$file" bs=1M seek=1 conv=notrunc,sparse status=none
}
platter init >/dev/null
for sector in 512 4096; do
	gpt_disk "$WORK/disk-$sector" "$sector" 40 "new$sector"
	gpt_disk "$WORK/old-$sector" "$sector" 64 "old$sector"
	platter capture "$WORK/disk-$sector" "lab/disk-$sector" --sector-size "$sector" >/dev/null
	platter export "lab/disk-$sector" "$WORK/right-$sector" >/dev/null
done

# target KIND SECTOR: sets TARGET, 64 MiB with another disk on it; KIND is file or loop
target() {
	rm -f "$WORK/target"
	cp --sparse=always "$WORK/old-$2" "$WORK/target"
	TARGET=$WORK/target
	if [ "$1" = loop ]; then
		attach "$WORK/target" --sector-size "$2"
		TARGET=$DEVICE
	fi
}
release() { [ ! -b "$TARGET" ] || detach_loop "$TARGET"; }
is_empty() { cmp -n "$2" -i "$3:0" "$1" /dev/zero; }
# The target does not look like a disk: its first MiB is empty, and no backup of the old table is at its end.
looks_unfinished() { is_empty "$WORK/target" "$MIB" 0 && is_empty "$WORK/target" 512 $((64 * MIB - 512)) && [ -z "$(blkid -p -o value -s PTTYPE "$WORK/target")" ]; }
# has_disk SECTOR: the target, which is longer, has the disk, with both tables in the right places
has_disk() {
	sync -f "$WORK/target"
	attach "$WORK/target" --sector-size "$1" --read-only
	local device=$DEVICE code=0
	sgdisk -v "$device" | tee -a "$LOG" | grep 'No problems found' >/dev/null || code=1
	cmp -n $((38 * MIB)) -i "$MIB" "$device" "$WORK/right-$1" || code=1
	dd if="$device" of="$WORK/part" bs=1M skip=1 count=38 status=none
	e2fsck -fn "$WORK/part" || code=1
	detach_loop "$device"
	return $code
}

for sector in 512 4096; do
	for kind in file loop; do
		name="$kind, sectors of $sector"
		target "$kind" "$sector"
		before=$(sha256sum <"$WORK/target")
		check_exit "$EXIT_REFUSED" "$name: refused without confirmation" platter install "lab/disk-$sector" "$TARGET"
		check_said "$name: --yes is named" '--yes'
		check_said "$name: the target's contents are shown" "67.1 MB.*gpt.*partition 1.*root of old$sector.*ext.*label-old$sector"
		check "$name: it is untouched" [ "$before" = "$(sha256sum <"$WORK/target")" ]
		check "$name: install --verify" platter install "lab/disk-$sector" "$TARGET" --yes --free zero --verify
		check_said "$name: the compared parts are reported" 'read back and compared: .* of data and .* of zeros, and the moved backup GPT: all of the disk'
		check "$name: the target has the disk, with its backup GPT moved" has_disk "$sector"
		check "$name: again, without writing free space" platter install "lab/disk-$sector" "$TARGET" --yes --verify
		check_said "$name: and the parts that were not compared" 'not compared: .* of free space'
		check "$name: as JSON" jq -e '.compared.data_bytes == .written_bytes + .delta.kept_bytes and .compared.free_bytes_left_out > 0' \
			<(platter_json install "lab/disk-$sector" "$TARGET" --yes --verify)
		check_exit "$EXIT_REFUSED" "$name: export to it is refused" platter export "lab/disk-$sector" "$TARGET"
		check "$name: the disk is still there" has_disk "$sector"
		release
	done
done
target loop 4096
check_exit "$EXIT_REFUSED" "another sector size is refused" platter install lab/disk-512 "$TARGET" --yes
release

# A partition, a device that cannot be written, one that is too small.
ext4_image "$WORK/plain" 24 "$WORK/tree-new512"
platter capture "$WORK/plain" lab/plain >/dev/null
target loop 512
partx -a "$TARGET" >/dev/null 2>&1 || true
if [ -b "${TARGET}p1" ]; then
	check "install on a partition" platter install lab/plain "${TARGET}p1" --yes --verify
	check "the file system is sound" e2fsck -fn "${TARGET}p1"
	check "the table is unchanged" cmp -n "$MIB" "$WORK/target" "$WORK/old-512"
	check "a new capture drops nothing that other tools consider used" platter capture "${TARGET}p1" lab/again --audit
	partx -d "$TARGET" >/dev/null 2>&1 || true
else
	skip "a partition: this kernel shows none of loop devices"
fi
release
cp --sparse=always "$WORK/old-512" "$WORK/target"
attach "$WORK/target" --read-only
check_exit "$EXIT_REFUSED" "a read-only device is refused" platter install lab/plain "$DEVICE" --yes
check_said "and why" 'read-only'
detach_loop "$DEVICE"

# Files: new, empty, of another length, and without a disk in them.
printf '127.0.0.1 localhost\n' >"$WORK/hosts"
check_exit "$EXIT_REFUSED" "a file without a disk in it is refused" platter install lab/plain "$WORK/hosts" --yes
check_said "and the overriding option is named" 'not-a-disk'
check "it is untouched" grep -qx '127.0.0.1 localhost' "$WORK/hosts"
check_exit "$EXIT_REFUSED" "--force is not a confirmation" platter install lab/plain "$WORK/hosts" --force not-a-disk
check_said "and --yes is named" '--yes'
check "both together overwrite it" platter install lab/plain "$WORK/hosts" --force not-a-disk --yes
check "a new file needs no confirmation" platter install lab/plain "$WORK/new"
truncate -s 30M "$WORK/hole"
check "nor does a file without data" platter install lab/plain "$WORK/hole" --verify
head -c 100000000 /dev/zero | tr '\0' '\252' >"$WORK/odd"
check "a file of 100,000,000 bytes" platter install lab/plain "$WORK/odd" --free zero --verify --yes --force not-a-disk
check "--free zero also clears what is behind the image" [ "$(tail -c +$((24 * MIB + 1)) "$WORK/odd" | tr -d '\0' | wc -c)" = 0 ]
check "keeps its length" [ "$(stat -c %s "$WORK/odd")" = 100000000 ]
check "and holds the disk" cmp -n $((24 * MIB)) "$WORK/odd" "$WORK/new"
exec 9<>"$WORK/hole"
flock -x 9
check_exit "$EXIT_REFUSED" "a file that another job writes is refused" platter install lab/plain "$WORK/hole" --yes
check_said "and why" 'has it open exclusively'
exec 9>&-
check "afterwards it is written" platter install lab/plain "$WORK/hole" --yes
if command -v qemu-img >/dev/null; then
	check "a qcow2 image" platter export lab/plain "$WORK/machine.qcow2"
	before=$(sha256sum <"$WORK/machine.qcow2")
	check_exit "$EXIT_REFUSED" "is not overwritten byte by byte" platter install lab/plain "$WORK/machine.qcow2" --yes
	check_said "and why" 'it is a qcow2 image.*--force not-a-disk'
	check "it is untouched" [ "$before" = "$(sha256sum <"$WORK/machine.qcow2")" ]
	check_exit "$EXIT_REFUSED" "and is no disk for --from" platter install lab/plain "$WORK/hole" --yes --from "$WORK/machine.qcow2"
	check_said "and why" 'looks like a qcow2 image.*--from'
else
	skip "image files as targets: need qemu-img"
fi
ln -s "$WORK/nowhere" "$WORK/dangling"
check_exit "$EXIT_REFUSED" "a dangling symbolic link is refused" platter install lab/plain "$WORK/dangling" --yes
check_said "and why" 'symbolic link to a file that does not exist'
check "nothing was created" [ ! -e "$WORK/nowhere" ]
for place in /dev/platter-nonexist /dev/disk/platter-none; do
	check_exit "$EXIT_REFUSED" "no file is created at $place" platter install lab/plain "$place" --yes --force not-a-disk
	check_exit "$EXIT_REFUSED" "export to it is refused" platter export lab/plain "$place"
	check_exit "$EXIT_REFUSED" "receive to it is refused" timeout 20 "$PLATTER" receive lab/plain "$place" --yes --give-up 1 --trust-any
	check "nothing was created" [ ! -e "$place" ]
done
link=$WORK/devices
ln -s /dev "$link"
for place in "$link/platter-none" /dev/shm/../platter-none; do
	check_exit "$EXIT_REFUSED" "another path to it is refused: $place" platter export lab/plain "$place"
	check "nothing was created" [ ! -e /dev/platter-none ]
done
if mountpoint -q /dev/shm; then
	shared=$(mktemp -u /dev/shm/platter-targets.XXXXXX)
	check "a separate file system below /dev can have files" platter export lab/plain "$shared"
	check "and the disk is in it" cmp "$shared" "$WORK/new"
	rm -f "$shared"
else
	skip "/dev/shm: not a separate file system here"
fi
check_exit "$EXIT_REFUSED" "export into the store is refused" platter export lab/plain "$STORE/exported"

# --force REASON overrides only that reason: a device in use stays refused.
target loop 4096
perl -e 'use Fcntl; sysopen my $h, $ARGV[0], O_RDWR | O_EXCL or die "$!"; $| = 1; print "held\n"; sleep 600' "$TARGET" >"$WORK/holding" &
holder=$!
until grep -q held "$WORK/holding"; do sleep 0.05; done
check_exit "$EXIT_REFUSED" "--force with another reason does not allow writing to a device in use" platter install lab/plain "$TARGET" --yes --force sector-size
check_said "because it is in use" 'exclusively|in use'
kill "$holder"
wait "$holder" 2>/dev/null || true
release

# On a terminal.
# dialogue ANSWER COMMAND...: runs the command on a terminal and types this line; its output is in $LOG. The answer - expects no
# question.
dialogue() {
	python3 - "$@" <<'EOF'
import os, pty, select, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
shown, typed = b"", False
while True:
    if not select.select([terminal], [], [], 120)[0]:
        os.kill(pid, 9)
        break
    try:
        piece = os.read(terminal, 4096)
    except OSError:
        break
    if not piece:
        break
    shown += piece
    if not typed and b"to continue: " in shown:
        typed = True
        # Ctrl-C acts without Enter.
        os.write(terminal, sys.argv[1].encode() + (b"" if sys.argv[1] == "\x03" else b"\n"))
sys.stdout.buffer.write(shown)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(99 if not typed and sys.argv[1] != "-" else code if code >= 0 else 128 - code)
EOF
}
target loop 512
before=$(sha256sum <"$WORK/target")
for answer in no y YES ''; do
	check_exit "$EXIT_REFUSED" "the answer '$answer' does not confirm" dialogue "$answer" "$PLATTER" --store "$STORE" install lab/disk-512 "$TARGET"
done
check_said "the contents to be overwritten were shown" 'label-old512'
check_exit 130 "Ctrl-C ends the question" dialogue $'\003' "$PLATTER" --store "$STORE" install lab/disk-512 "$TARGET"
check_said "and nothing was written" 'interrupted: nothing was written'
check "it is untouched" [ "$before" = "$(sha256sum <"$WORK/target")" ]
check "the answer 'yes' confirms" dialogue yes "$PLATTER" --store "$STORE" install lab/disk-512 "$TARGET" --free zero
check "the target has the disk" has_disk 512
release
check_exit "$EXIT_REFUSED" "a disk is not written to a terminal" dialogue - "$PLATTER" --store "$STORE" export lab/plain -
check_said "which it says" 'standard output is a terminal'
platter clone lab/plain lab/gone >/dev/null
check_exit "$EXIT_REFUSED" "forget asks for confirmation" dialogue no "$PLATTER" --store "$STORE" forget lab/gone
check "it is still there" platter show lab/gone
check "and is forgotten after the answer 'yes'" dialogue yes "$PLATTER" --store "$STORE" forget lab/gone
check_exit "$EXIT_MISSING" "it is gone" platter show lab/gone

# Blocks that are missing are noticed before the first write, damaged ones before the first MiB.
random $((24 * MIB)) "big" >"$WORK/big"
platter capture "$WORK/big" lab/big >/dev/null
cp -a "$STORE" "$WORK/damaged"
target loop 512
before=$(sha256sum <"$WORK/target")
pack=$(find "$WORK/damaged/packs" -type f -printf "%s %p\n" | sort -rn | head -n 1 | cut -d" " -f2)
bytes=$(stat -c %s "$pack")
printf 'rotten' | dd of="$pack" bs=1 seek=$((bytes * 3 / 4)) conv=notrunc status=none
cp -a "$WORK/damaged" "$WORK/unnoticed"
on_damaged() { "$PLATTER" --store "$WORK/damaged" --quiet "$@"; }
check_exit "$EXIT_CORRUPT" "a damaged block is found during the write" on_damaged install lab/big "$TARGET" --yes
check_said "the state of the target is reported" 'is incomplete: .* MB of .* MB written; its first MiB is empty, so it does not boot; run the command again, with --yes'
check "it does not look like a disk" looks_unfinished
check_exit "$EXIT_CORRUPT" "known damage is refused before the first write" on_damaged export lab/big "$WORK/exported"
check_said "and the message says so" 'nothing was written'
check_exit "$EXIT_CORRUPT" "an export that fails" "$PLATTER" --store "$WORK/unnoticed" --quiet export lab/big "$WORK/exported"
check_said "is removed" 'incomplete and is removed'
check "and the file does not exist" [ ! -e "$WORK/exported" ]
check "the same command on a sound store" platter install lab/disk-512 "$TARGET" --yes --free zero
check "completes the disk" has_disk 512
release
cp --sparse=always "$WORK/old-512" "$WORK/target"
rm -rf "$WORK/damaged/packs" && mkdir "$WORK/damaged/packs"
code=0
on_damaged install lab/big "$WORK/target" --yes >"$LOG" 2>&1 || code=$?
check "an install from a store without packs fails" [ "$code" != 0 ]
check "and the target is unchanged" [ "$before" = "$(sha256sum <"$WORK/target")" ]

# A target that fails during the write, one that is slow and interrupted, and a file of FUSE: nbdkit's memory under
# nbdfuse.
# serve FILTER...: serves 64 MiB with another disk as $WORK/served/nbd
serve() {
	mkdir -p "$WORK/served"
	nbdfuse "$WORK/served" --command nbdkit -s --exit-with-parent "$@" >"$WORK/nbdfuse.log" 2>&1 &
	serving=$!
	local tries=0
	until [ -f "$WORK/served/nbd" ]; do
		tries=$((tries + 1))
		[ "$tries" -lt 200 ] || { cat "$WORK/nbdfuse.log"; return 1; }
		sleep 0.05
	done
}
serve_no_more() {
	umount "$WORK/served"
	wait "$serving" 2>/dev/null || true
	serving=''
}
# serve_with COMMAND: the same, with this command instead of writes from 8 to 16 MiB
serve_with() {
	serve eval get_size='echo 67108864' \
		pread="dd if='$WORK/target' iflag=skip_bytes,count_bytes skip=\$4 count=\$3 bs=64k status=none" \
		pwrite="if [ \$4 -ge $((8 * MIB)) ] && [ \$4 -lt $((16 * MIB)) ]; then $1; else dd of='$WORK/target' oflag=seek_bytes seek=\$4 conv=notrunc bs=64k iflag=fullblock status=none; fi"
}
if command -v nbdfuse >/dev/null && command -v nbdkit >/dev/null && [ -c /dev/fuse ]; then
	cp --sparse=always "$WORK/old-512" "$WORK/target"
	serve file "$WORK/target"
	check_exit "$EXIT_REFUSED" "a FUSE file with a disk in it needs confirmation" platter install lab/disk-512 "$WORK/served/nbd"
	check "a FUSE file with a fixed length is written" platter install lab/disk-512 "$WORK/served/nbd" --yes --free zero --verify
	serve_no_more
	check "the target has the disk" has_disk 512

	cp --sparse=always "$WORK/old-512" "$WORK/target"
	serve file "$WORK/target" --filter=error error-pwrite-rate=100% error-pwrite-file="$WORK/fail" error=EIO
	touch "$WORK/fail"
	check_exit "$EXIT_FAILED" "a target that fails at the first write" platter install lab/big "$WORK/served/nbd" --yes
	rm "$WORK/fail"
	serve_no_more

	cp --sparse=always "$WORK/old-512" "$WORK/target"
	serve_with 'echo "EIO the middle of the disk fails" >&2; exit 1'
	check_exit "$EXIT_FAILED" "a target that fails half way" platter install lab/big "$WORK/served/nbd" --yes
	check_said "the state of the target is reported" 'is incomplete: .* its first MiB is empty'
	serve_no_more
	check "it does not look like a disk" looks_unfinished
	cp --sparse=always "$WORK/old-512" "$WORK/target"
	serve_with 'cat >/dev/null'
	check_exit "$EXIT_CORRUPT" "--verify finds writes that were dropped silently" platter install lab/big "$WORK/served/nbd" --yes --verify --no-delta
	check_said "and where" 'reading back: byte [0-9]+ of the target differs'
	serve_no_more
	check "the target does not look like a disk" looks_unfinished

	cp --sparse=always "$WORK/old-512" "$WORK/target"
	serve file "$WORK/target" --filter=delay delay-write=150ms
	"$PLATTER" --store "$STORE" --quiet install lab/big "$WORK/served/nbd" --yes >"$WORK/interrupted" 2>&1 &
	job=$!
	until is_empty "$WORK/target" "$MIB" 0 2>/dev/null; do sleep 0.05; done
	sleep 0.5
	kill -INT "$job"
	code=0
	wait "$job" || code=$?
	check "the install ends with the signal's exit code ($code)" [ "$code" = 130 ]
	cp "$WORK/interrupted" "$LOG"
	check_said "and reports the state of the target" 'interrupted: .*is incomplete: .* of .* MB written; its first MiB is empty'
	serve_no_more
	check "which does not look like a disk" looks_unfinished
	check "the same without confirmation is refused" [ "$(platter install lab/disk-512 "$WORK/target" 2>&1 | grep -c 'interrupted')" = 1 ]
	check "and with confirmation it succeeds" platter install lab/disk-512 "$WORK/target" --yes --free zero
	check "the target has the disk" has_disk 512
else
	skip "targets that fail or wait: need nbdkit, nbdfuse and /dev/fuse"
fi

# A file on a file system that fills up.
truncate -s 20M "$WORK/full"
mke2fs -q -t ext4 -m 0 "$WORK/full"
mount -o loop "$WORK/full" "$MNT"
check_exit "$EXIT_FAILED" "a file system that fills up" platter install lab/big "$MNT/disk"
check_said "the reason and the state are reported" 'disk is incomplete: .*No space left'
check "it does not look like a disk" is_empty "$MNT/disk" "$MIB" 0
check_exit "$EXIT_FAILED" "an export to the full file system" platter export lab/big "$MNT/exported"
check "leaves no file" [ ! -e "$MNT/exported" ]
umount "$MNT"

# A cast to two receivers: a device of each sector size, and a file.
"$ROOM" up 2 >/dev/null 2>&1 || true
# cast_to IMAGE TARGET OPTION...: casts the image to the target; the receiver's output is in $LOG
cast_to() {
	local image=$1 to=$2 code=0
	shift 2
	"$ROOM" in 1 timeout 120 "$PLATTER" --json receive "$image" "$to" --interface eth0 --give-up 60 --trust-any "$@" >"$WORK/received" 2>"$WORK/receiver.log" </dev/null &
	local receiver=$!
	"$ROOM" in sender timeout 120 "$PLATTER" --store "$STORE" --quiet cast "$image" --interface eth0 --receivers 1 --wait 20 --give-up 60 --linger 0.2 >"$WORK/sender.log" 2>&1 || code=$?
	wait "$receiver" || code=$?
	cat "$WORK/received" "$WORK/receiver.log" "$WORK/sender.log"
	return "$code"
}
failed_cast() { ! cast_to "$@"; }
# The receiver refuses it before the first write, and tells the sender.
refused_cast() {
	failed_cast "$@" || return 1
	! grep -q 'is incomplete' "$WORK/receiver.log"
}
for sector in 512 4096; do
	for kind in file loop; do
		name="cast to a $kind, sectors of $sector"
		target "$kind" "$sector"
		check_exit "$EXIT_REFUSED" "$name: refused without confirmation" timeout 20 "$PLATTER" receive "lab/disk-$sector" "$TARGET" --give-up 1 --trust-any
		check_said "$name: --yes is named before a cast is waited for" '--yes.*label-old'
		check "$name: receive --verify" cast_to "lab/disk-$sector" "$TARGET" --yes --free zero --verify
		check "$name: the compared parts are reported" jq -e '.read_back and .compared.data_bytes == .written_bytes + .delta.kept_bytes and .compared.free_bytes_left_out == 0 and .backup_gpt_moved' "$WORK/received"
		check "$name: the target has the disk" has_disk "$sector"
		release
	done
done

# receive is refused, and fails, as install does.
cp --sparse=always "$WORK/old-512" "$WORK/target"
attach "$WORK/target" --read-only
check_exit "$EXIT_REFUSED" "receive to a read-only device is refused" timeout 20 "$PLATTER" receive lab/disk-512 "$DEVICE" --yes --give-up 1 --trust-any
check_said "and why" 'read-only'
detach_loop "$DEVICE"
target loop 512
mount_point=$WORK/mounted
mkdir "$mount_point"
mke2fs -q -F -t ext4 "$TARGET"
mount "$TARGET" "$mount_point"
check_exit "$EXIT_REFUSED" "receive to a mounted device is refused" timeout 20 "$PLATTER" receive lab/disk-512 "$TARGET" --yes --give-up 1 --trust-any
check_said "and why" 'mounted'
umount "$mount_point"
release
truncate -s 30M "$WORK/short"
attach "$WORK/short"
check "a device that is too small for the cast is refused" refused_cast lab/disk-512 "$DEVICE" --yes
check_said "and why" '31457280 bytes'
detach_loop "$DEVICE"
check "and is unchanged" cmp -n $((30 * MIB)) "$WORK/short" /dev/zero
target loop 4096
check "another sector size is refused when the cast begins" refused_cast lab/disk-512 "$TARGET" --yes
check "the target is unchanged" cmp "$WORK/target" "$WORK/old-4096"
release
target loop 512
partx -a "$TARGET" >/dev/null 2>&1 || true
if [ -b "${TARGET}p1" ]; then
	check "a cast to a partition" cast_to lab/plain "${TARGET}p1" --yes --verify
	check "the file system is sound" e2fsck -fn "${TARGET}p1"
	check "the table is unchanged" cmp -n "$MIB" "$WORK/target" "$WORK/old-512"
	partx -d "$TARGET" >/dev/null 2>&1 || true
fi
release
if command -v nbdfuse >/dev/null && command -v nbdkit >/dev/null && [ -c /dev/fuse ]; then
	cp --sparse=always "$WORK/old-512" "$WORK/target"
	serve_with 'echo "EIO the middle of the disk fails" >&2; exit 1'
	check "a cast to a target that fails half way fails" failed_cast lab/big "$WORK/served/nbd" --yes
	check_said "the state of the target is reported" 'is incomplete: .* its first MiB is empty'
	serve_no_more
	check "it does not look like a disk" looks_unfinished
	cp --sparse=always "$WORK/old-512" "$WORK/target"
	serve_with 'cat >/dev/null'
	check "a cast with --verify finds writes that were dropped silently" failed_cast lab/big "$WORK/served/nbd" --yes --verify --no-delta
	check_said "and where" 'reading back: .* of the target differ'
	serve_no_more
	check "the target does not look like a disk" looks_unfinished
fi
check "the store is sound" platter check
finish
