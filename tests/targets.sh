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
ext4_image "$WORK/plain" 24 "$WORK/tree-new512"
platter capture "$WORK/plain" lab/plain >/dev/null

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

# A target that is slow and interrupted, and a file of FUSE: nbdkit under nbdfuse.
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
RIGHT_WRITE="dd of='$WORK/target' oflag=seek_bytes seek=\$4 conv=notrunc bs=64k iflag=fullblock status=none"
# serve_with COMMAND [CALL=COMMAND...]: the same, with this command instead of writes from 8 to 16 MiB, and for other calls of nbdkit
serve_with() {
	serve eval get_size='echo 67108864' "${@:2}" \
		pread="dd if='$WORK/target' iflag=skip_bytes,count_bytes skip=\$4 count=\$3 bs=64k status=none" \
		pwrite="if [ \$4 -ge $((8 * MIB)) ] && [ \$4 -lt $((16 * MIB)) ]; then $1; else $RIGHT_WRITE; fi"
}
if command -v nbdfuse >/dev/null && command -v nbdkit >/dev/null && [ -c /dev/fuse ]; then
	cp --sparse=always "$WORK/old-512" "$WORK/target"
	serve file "$WORK/target"
	check_exit "$EXIT_REFUSED" "a FUSE file with a disk in it needs confirmation" platter install lab/disk-512 "$WORK/served/nbd"
	check "a FUSE file with a fixed length is written" platter install lab/disk-512 "$WORK/served/nbd" --yes --free zero --verify
	serve_no_more
	check "the target has the disk" has_disk 512

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

# Kinds of targets, the same for install and receive. A row: KIND · exit code · words of the message. `new_KIND` sets TARGET, and where
# needed IMAGE and OPTIONS; `end_KIND`, if there is one, checks what remains and removes it. The codes:
#   0          it is written
#   refused    refused, and unchanged; a receiver joins the cast, and tells the sender
#   at-once    the same, before a cast is waited for
#   failed, corrupt   fails while it is written; does not look like a disk afterwards
kinds='
loop-512       0        -
loop-4096      0        -
partition      0        -
fuse           0        -
not-a-disk     at-once  not-a-disk
read-only      at-once  read-only
mounted        at-once  mounted
in-use         at-once  exclusively|in use
backing-file   at-once  loop
too-small      refused  31457280 bytes
larger-sectors refused  sectors have 4096 bytes
smaller-sectors refused sectors have 512 bytes
first-write    failed   Input/output error
half-way       failed   is incomplete: .* its first MiB is empty.*Input/output error
last-flush     failed   is incomplete.*Input/output error
dropped-writes corrupt  reading back: .*of the target differ
full           failed   is incomplete: .*No space left
'
has_nbd() { command -v nbdfuse >/dev/null && command -v nbdkit >/dev/null && [ -c /dev/fuse ]; }
new_loop-512() { target loop 512; }
end_loop-512() {
	check "$name: it has the disk" has_disk 512
	release
}
new_loop-4096() {
	target loop 4096
	IMAGE=lab/disk-4096
}
end_loop-4096() {
	check "$name: it has the disk" has_disk 4096
	release
}
new_partition() {
	target loop 512
	partition "$TARGET" 1 || { skip "$name: this kernel shows none of loop devices"; release; return 1; }
	IMAGE=lab/plain WHOLE=$TARGET TARGET=$PART
}
end_partition() {
	check "$name: the file system is sound" e2fsck -fn "$TARGET"
	check "$name: the table is unchanged" cmp -n "$MIB" "$WORK/target" "$WORK/old-512"
	check "$name: a new capture drops nothing that other tools consider used" platter capture "$TARGET" "lab/again-$command" --audit
	partx -d "$WHOLE" >/dev/null 2>&1 || true
	TARGET=$WHOLE
	release
}
new_fuse() {
	new_served || return 1
	serve file "$WORK/target"
}
end_fuse() {
	serve_no_more
	check "$name: it has the disk" has_disk 512
}
new_not-a-disk() {
	TARGET=$WORK/hosts
	printf '127.0.0.1 localhost\n' >"$TARGET"
}
new_read-only() {
	cp --sparse=always "$WORK/old-512" "$WORK/target"
	attach "$WORK/target" --read-only
	TARGET=$DEVICE
}
end_read-only() { release; }
new_mounted() {
	target loop 512
	mke2fs -q -F -t ext4 "$TARGET"
	mount -o ro "$TARGET" "$MNT"
}
end_mounted() {
	umount "$MNT"
	release
}
# --force REASON overrides only that reason.
new_in-use() {
	target loop 512
	OPTIONS+=(--force sector-size)
	perl -e 'use Fcntl; sysopen my $h, $ARGV[0], O_RDWR | O_EXCL or die "$!"; $| = 1; print "held\n"; sleep 600' "$TARGET" >"$WORK/holding" &
	holder=$!
	until_true 60 grep held "$WORK/holding"
}
end_in-use() {
	kill "$holder"
	wait "$holder" 2>/dev/null || true
	release
}
new_backing-file() {
	target loop 512
	LOOP=$TARGET TARGET=$WORK/target
}
end_backing-file() {
	TARGET=$LOOP
	release
}
new_too-small() {
	truncate -s 30M "$WORK/short"
	attach "$WORK/short"
	TARGET=$DEVICE
}
end_too-small() { release; }
new_larger-sectors() { target loop 4096; }
end_larger-sectors() { release; }
new_smaller-sectors() {
	target loop 512
	IMAGE=lab/disk-4096
}
end_smaller-sectors() { release; }
# new_served: a disk for `serve`, which gets 24 MiB that do not compress
new_served() {
	has_nbd || { skip "$name: needs nbdkit, nbdfuse and /dev/fuse"; return 1; }
	cp --sparse=always "$WORK/old-512" "$WORK/target"
	TARGET=$WORK/served/nbd
}
new_first-write() {
	new_served || return 1
	IMAGE=lab/big
	touch "$WORK/fail"
	serve file "$WORK/target" --filter=error error-pwrite-rate=100% error-pwrite-file="$WORK/fail" error=EIO
}
end_first-write() { serve_no_more; }
new_half-way() {
	new_served || return 1
	IMAGE=lab/big
	serve_with 'echo "EIO the middle of the disk fails" >&2; exit 1'
}
end_half-way() {
	serve_no_more
	check "$name: it does not look like a disk" looks_unfinished
}
# What was written is not durable, which the device says only when it is asked.
new_last-flush() {
	new_served || return 1
	IMAGE=lab/big
	serve_with "$RIGHT_WRITE" can_flush='exit 0' flush='echo "EIO the cache is lost" >&2; exit 1'
}
end_last-flush() { end_half-way; }
new_dropped-writes() {
	new_served || return 1
	IMAGE=lab/big OPTIONS+=(--verify --no-delta)
	serve_with 'cat >/dev/null'
}
end_dropped-writes() { end_half-way; }
# A file on a file system that fills up.
new_full() {
	truncate -s 20M "$WORK/full"
	mke2fs -q -F -t ext4 -m 0 "$WORK/full"
	mount -o loop "$WORK/full" "$MNT"
	IMAGE=lab/big TARGET=$MNT/disk
}
end_full() {
	check "$name: it does not look like a disk" is_empty "$MNT/disk" "$MIB" 0
	check_exit "$EXIT_FAILED" "$name: an export to the full file system" platter export lab/big "$MNT/exported"
	check "$name: leaves no file" [ ! -e "$MNT/exported" ]
	umount "$MNT"
}
# partition DEVICE NUMBER: sets PART to its node, and makes it if the kernel does not
partition() {
	local node=${1##*/}p$2 numbers
	PART=/dev/$node
	[ -e "/sys/class/block/$node" ] || partx -a "$1" 2>/dev/null || true
	[ -e "/sys/class/block/$node" ] || return 1
	if [ ! -b "$PART" ]; then
		IFS=: read -r -a numbers <"/sys/class/block/$node/dev"
		PART=$WORK/$node
		[ -b "$PART" ] || mknod "$PART" b "${numbers[0]}" "${numbers[1]}"
	fi
}

"$ROOM" up 1 >/dev/null
# written_by install|receive IMAGE TARGET OPTION...: prints the command's output, and returns its exit code
written_by() {
	local command=$1 image=$2 to=$3 code=0 sender=''
	shift 3
	if [ "$command" = install ]; then
		platter install "$image" "$to" "$@"
		return
	fi
	: >"$WORK/sender.log"
	if [ "${ALONE:-no}" = no ]; then
		"$ROOM" in sender timeout 120 "$PLATTER" --store "$STORE" --quiet --json cast "$image" --interface eth0 --receivers 1 --wait 60 --give-up 60 --linger 0.2 \
			>"$WORK/sender.log" 2>&1 &
		sender=$!
	fi
	"$ROOM" in 1 timeout 120 "$PLATTER" --json receive "$image" "$to" --interface eth0 --give-up 20 --trust-any "$@" >"$WORK/received" 2>"$WORK/receiver.log" </dev/null || code=$?
	[ -z "$sender" ] || wait "$sender" || true
	cat "$WORK/received" "$WORK/receiver.log" "$WORK/sender.log"
	return "$code"
}
declare -A codes=([0]=0 [refused]=$EXIT_REFUSED [at-once]=$EXIT_REFUSED [failed]=$EXIT_FAILED [corrupt]=$EXIT_CORRUPT)
# tried COMMAND KIND CODE WORDS
tried() {
	local command=$1 kind=$2 code=$3 words=$4 name="$1 to $2" before='' ALONE=no
	IMAGE=lab/disk-512 OPTIONS=(--yes)
	"new_$kind" || return 0
	case $code in
	0) OPTIONS+=(--free zero --verify) ;;
	refused) before=$(sha256sum <"$TARGET") ;;
	at-once) before=$(sha256sum <"$TARGET") ALONE=yes ;;
	esac
	check_exit "${codes[$code]}" "$name: $code" written_by "$command" "$IMAGE" "$TARGET" "${OPTIONS[@]}"
	[ "$words" = - ] || check_said "$name: the reason is reported" "$words"
	if [ -n "$before" ]; then
		[ ! -b "$TARGET" ] || blockdev --flushbufs "$TARGET"
		check "$name: it is unchanged" [ "$before" = "$(sha256sum <"$TARGET")" ]
	elif [ "$code" != 0 ] && [ "$command" = receive ]; then
		check "$name: the receiver says that the target is incomplete" grep -q 'is incomplete' "$WORK/receiver.log"
	fi
	if [ "$command" = receive ] && [ "$ALONE" = no ]; then
		# What follows the last .* is the cause.
		local state=failed cause=${words##*.\*}
		[ "$code" != 0 ] || state='done' cause=''
		check "$name: the sender's table: $state" jq -se --arg state "$state" --arg cause "$cause" \
			'[.[].cast.receivers[]? | select(.state == $state and (.reason // "" | test($cause)))] | length == 1' "$WORK/sender.log"
	fi
	! type -t "end_$kind" >/dev/null || "end_$kind"
}
while read -r kind code words; do
	[ -n "$kind" ] || continue
	for command in install receive; do
		tried "$command" "$kind" "$code" "$words" </dev/null
	done
done <<<"$kinds"

for sector in 512 4096; do
	for kind in file loop; do
		name="cast to a $kind, sectors of $sector"
		target "$kind" "$sector"
		check_exit "$EXIT_REFUSED" "$name: refused without confirmation" timeout 20 "$PLATTER" receive "lab/disk-$sector" "$TARGET" --give-up 1 --trust-any
		check_said "$name: --yes is named before a cast is waited for" '--yes.*label-old'
		check "$name: receive --verify" written_by receive "lab/disk-$sector" "$TARGET" --yes --free zero --verify
		check "$name: the compared parts are reported" jq -e '.read_back and .compared.data_bytes == .written_bytes + .delta.kept_bytes and .compared.free_bytes_left_out == 0 and .backup_gpt_moved' "$WORK/received"
		check "$name: the target has the disk" has_disk "$sector"
		release
	done
done

check "the store is sound" platter check
finish
