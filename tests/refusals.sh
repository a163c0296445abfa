#!/usr/bin/env bash
# tests/refusals.sh: forbidden targets and sources. Each is refused with exit code 5 and the reason, and no byte of a
# refused target changes.
. "$(dirname "$0")/lib.sh"

need_root "loop devices" || { finish; exit 0; }
swap='' holder=''
capturing=''
suite_cleanup() {
	[ -z "$capturing" ] || kill -KILL "$capturing" 2>/dev/null
	[ -z "$swap" ] || swapoff "$swap" 2>/dev/null
	[ -z "$holder" ] || kill "$holder" 2>/dev/null
}
file_tree "$WORK/tree" 8 refusals
ext4_image "$WORK/disk" 48 "$WORK/tree"
truncate -s 64M "$WORK/table"
printf 'label: gpt\nstart=2048, size=96000\n' | sfdisk -q "$WORK/table"
dd if="$WORK/disk" of="$WORK/table" bs=1M seek=1 count=46 conv=notrunc,sparse status=none
platter init >/dev/null
platter capture "$WORK/disk" image >/dev/null

# refused NAME REASON TARGET: an install to the target is refused, and its contents do not change
refused() {
	local name=$1 reason=$2 target=$3 before='' after=''
	if [ -b "$target" ] || [ -f "$target" ]; then before=$(sha256sum <"$target"); fi
	check_exit "$EXIT_REFUSED" "$name is refused" timeout 60 "$PLATTER" --store "$STORE" --quiet install image "$target" --yes
	check_said "$name: the reason is reported" "$reason"
	offers_only_its_own install "$name: nothing is offered that install has not"
	if [ -b "$target" ] || [ -f "$target" ]; then after=$(sha256sum <"$target"); fi
	if [ "$before" = "$after" ]; then ok "$name is untouched"; else not_ok "$name was written to"; fi
}

truncate -s 40M "$WORK/short"
refused "a file system's too small device" 'small|bytes' "$(attach "$WORK/short" && echo "$DEVICE")"

mkfifo "$WORK/pipe"
refused "a pipe" 'neither|regular|block' "$WORK/pipe"
refused "a directory" 'neither|regular|block|directory' "$WORK/tree"
refused "a character device" 'neither|regular|block' /dev/null
refused "the memory of a process" 'kernel interface' /proc/self/mem

# A mounted disk, whole or with a mounted partition; and a file behind such a disk.
truncate -s 64M "$WORK/mounted"
mke2fs -q -t ext4 "$WORK/mounted"
attach "$WORK/mounted"
mounted=$DEVICE
mount "$mounted" "$MNT"
sync -f "$MNT"
check_exit "$EXIT_REFUSED" "a mounted device is refused" platter install image "$mounted" --yes
check_said "a mounted device: the reason is reported" 'mounted'
check_said "and the option that overrides it" '[(]override with --force mounted[)]'
check_exit "$EXIT_REFUSED" "nothing is received onto a mounted device" platter receive image "$mounted" --yes --give-up 1 --trust-any
check_said "receive has the same option" '[(]override with --force mounted[)]'
check_exit "$EXIT_REFUSED" "nothing is received under a bare name" platter receive image "$WORK/received" --give-up 1
check_said "and the ways out are named" 'receive SCORE.*key trust.*--trust-any'
check "nothing was created" test ! -e "$WORK/received"
check_exit "$EXIT_REFUSED" "nothing is exported onto a mounted device" platter export image "$mounted"
offers_only_its_own export "a mounted device: nothing is offered that export has not"
check_exit "$EXIT_REFUSED" "the file behind a mounted device is refused" platter install image "$WORK/mounted" --yes
check_said "the file behind a mounted device: the reason is reported" 'mounted|in use|loop'
check_exit "$EXIT_REFUSED" "capture of a file system mounted for writing is refused" platter capture "$mounted" x
check_said "capture of a mounted one: the reason is reported" 'mounted'
check_said "and the option that overrides it, without a reason" '[(]override with --force[)]'
mount -o remount,ro "$MNT"
check "a file system mounted read-only is captured" platter capture "$mounted" was/mounted
umount "$MNT"
check "the previously mounted file system is sound" e2fsck -fn "$WORK/mounted"
check "the unmounted file system is captured" platter capture "$mounted" was/mounted
detach_loop "$mounted"

# A file system that needs recovery.
cp --sparse=always "$WORK/disk" "$WORK/dirty"
debugfs -w -R 'feature needs_recovery' "$WORK/dirty" >/dev/null 2>&1
check_exit "$EXIT_REFUSED" "capture of a file system that needs recovery is refused" platter capture "$WORK/dirty" dirty
check_said "and the option that overrides it" 'platter capture --force'
offers_only_its_own capture "a file system that needs recovery: nothing is offered that capture has not"
check "with that option it is captured" platter capture "$WORK/dirty" dirty --force
check_exit "$EXIT_REFUSED" "nothing is exported onto a file that holds a disk" platter export image "$WORK/dirty"
check_said "a file that holds a disk: the reason is reported" 'new files only'
offers_only_its_own export "a file that holds a disk: nothing is offered that export has not"

# A partition of the disk is mounted. If the kernel cannot parse partition tables, partx registers it.
attach "$WORK/table" --partscan
table=$DEVICE
[ -b "${table}p1" ] || partx -a "$table" >/dev/null 2>&1 || true
if [ -b "${table}p1" ]; then
	mke2fs -q -t ext4 "${table}p1"
	mount "${table}p1" "$MNT"
	check_exit "$EXIT_REFUSED" "a disk with a mounted partition is refused" platter install image "$table" --yes
	check_said "a disk with a mounted partition: the reason is reported" 'mounted'
	umount "$MNT"
else
	skip "a mounted partition: this kernel shows no partitions of loop devices"
fi
detach_loop "$table"

# Swap, and a device that another process has opened exclusively.
truncate -s 64M "$WORK/swap"
mkswap -q "$WORK/swap" >/dev/null
attach "$WORK/swap"
swap=$DEVICE
if swapon "$swap" 2>/dev/null; then
	check_exit "$EXIT_REFUSED" "a device used as swap is refused" platter install image "$swap" --yes
	check_said "a device used as swap: the reason is reported" 'swap|in use'
	swapoff "$swap"
else
	skip "swap: this kernel has none"
fi
detach_loop "$swap"
swap=

truncate -s 64M "$WORK/held"
attach "$WORK/held"
held=$DEVICE
perl -e 'use Fcntl; sysopen my $h, $ARGV[0], O_RDWR | O_EXCL or die "$!"; $| = 1; print "held\n"; sleep 600' "$held" >"$WORK/holding" &
holder=$!
until grep -q held "$WORK/holding"; do sleep 0.05; done
check_exit "$EXIT_REFUSED" "a device opened exclusively is refused" platter install image "$held" --yes
check_said "a device opened exclusively: the reason is reported" 'in use|busy'
check_exit "$EXIT_REFUSED" "capture of a device opened exclusively is refused" platter capture "$held" x
check_said "capture of it: the reason is reported" 'exclusively'
kill "$holder"
wait "$holder" 2>/dev/null || true
holder=''
check "once released, it is written to" platter install image "$held" --yes
detach_loop "$held"

# Files and devices that QEMU or a filesystem in user space has locked.
# machine OPTION... FILE: opens a disk as a virtual machine does, until machine_ends
machine() {
	mkfifo "$WORK/commands"
	qemu-io "$@" <"$WORK/commands" >"$WORK/machine" 2>&1 &
	holder=$!
	exec 9>"$WORK/commands"
	rm "$WORK/commands"
	# shellcheck disable=SC2016  # the inner shell expands it
	until_true 10 bash -c '[ -n "$(find "/proc/$1/fd" -lname "$2")" ]' - "$holder" "$(realpath "${!#}")"
	sleep 0.2
}
machine_ends() {
	exec 9>&-
	wait "$holder" 2>/dev/null || true
	holder=''
}
if command -v qemu-io >/dev/null; then
	cp --sparse=always "$WORK/disk" "$WORK/machine-disk"
	machine -f raw "$WORK/machine-disk"
	refused "the disk of a running virtual machine" 'virtual machine, has locked it' "$WORK/machine-disk"
	check_said "the option that overrides it" '[(]override with --force busy[)]'
	check_exit "$EXIT_REFUSED" "nothing is received onto it" platter receive image "$WORK/machine-disk" --yes --give-up 1 --trust-any
	check_said "the reason is reported" 'virtual machine, has locked it'
	check_exit "$EXIT_REFUSED" "nothing is exported onto it" platter export image "$WORK/machine-disk"
	check_exit "$EXIT_REFUSED" "it is not captured" platter capture "$WORK/machine-disk" was/machine
	check_said "the reason is reported" 'virtual machine, has it open for writing'
	check_said "and the option that overrides it" '[(]override with --force[)]'
	check "with --force it is captured" platter capture "$WORK/machine-disk" was/machine --force
	check "and not marked as clean" jq -se '[.. | .consistency? // empty] | length > 0 and all(. != "clean")' <(platter_json show was/machine)
	check "with --force busy it is written to" platter install image "$WORK/machine-disk" --yes --force busy
	attach "$WORK/machine-disk"
	refused "a loop device on the disk of a running virtual machine" "has locked $WORK/machine-disk" "$DEVICE"
	check_exit "$EXIT_REFUSED" "nor is it captured from that device" platter capture "$DEVICE" was/machine
	machine_ends
	machine -f raw "$DEVICE"
	refused "a device in a running virtual machine" 'has locked it' "$DEVICE"
	check_exit "$EXIT_REFUSED" "capture of such a device is refused" platter capture "$DEVICE" was/machine
	check_exit "$EXIT_REFUSED" "capture of the file behind it is refused" platter capture "$WORK/machine-disk" was/machine
	check_said "the device is named" "has $DEVICE open for writing"
	machine_ends
	detach_loop "$DEVICE"
	machine -r -f raw "$WORK/machine-disk"
	refused "a disk that a virtual machine reads" 'virtual machine, has locked it' "$WORK/machine-disk"
	check "it is captured" platter capture "$WORK/machine-disk" was/machine
	check "and other programs can read it meanwhile" qemu-img compare -f raw -F raw "$WORK/machine-disk" "$WORK/machine-disk"
	machine_ends
	check "once the virtual machine has ended, it is written to" platter install image "$WORK/machine-disk" --yes
	# An overlay that is written holds only its backing file for reading.
	qemu-img create -q -f qcow2 -F raw -b "$WORK/machine-disk" "$WORK/overlay.qcow2"
	machine -f qcow2 "$WORK/overlay.qcow2"
	check_exit "$EXIT_REFUSED" "an overlay that is being written is not captured" platter capture "$WORK/overlay.qcow2" was/overlay --backing "raw:$WORK/machine-disk"
	check_said "the reason is reported" 'open for writing'
	check "its backing file is captured" platter capture "$WORK/machine-disk" was/machine
	refused "the backing file of a running virtual machine" 'has locked it' "$WORK/machine-disk"
	machine_ends
	check "the overlay at rest is captured" platter capture "$WORK/overlay.qcow2" was/overlay --backing "raw:$WORK/machine-disk"
	machine -f raw "$WORK/machine-disk"
	check_exit "$EXIT_REFUSED" "an overlay whose backing file is being written is not captured" platter capture "$WORK/overlay.qcow2" was/overlay --backing "raw:$WORK/machine-disk"
	machine_ends
	rm "$WORK/machine-disk" "$WORK/overlay.qcow2"
else
	skip "running virtual machines: no qemu-io"
fi
# Another user's filesystem in user space: the whole file is locked by a process.
cp --sparse=always "$WORK/disk" "$WORK/locked"
perl -e 'use Fcntl qw(:flock :seek); use Fcntl; open my $h, "+<", $ARGV[0] or die "$!"; my $l = pack "s s x4 q q l x4", F_WRLCK, SEEK_SET, 0, 0, 0;
	fcntl $h, F_SETLK, $l or die "$!"; $| = 1; print "held\n"; sleep 600' "$WORK/locked" >"$WORK/holding" &
holder=$!
until_true 10 grep -q held "$WORK/holding"
refused "a file that a process has locked" "perl [(]process ${holder}[)] has locked it" "$WORK/locked"
check_exit "$EXIT_REFUSED" "it is not captured" platter capture "$WORK/locked" was/locked
check_said "the process is named" "perl [(]process ${holder}[)] has it open for writing"
kill "$holder"
wait "$holder" 2>/dev/null || true
holder=''
check "once released, it is captured" platter capture "$WORK/locked" was/locked
rm "$WORK/locked"

# Sources that are written during a capture: the capture is stopped while it reads, and continues after the write.
random $((96 << 20)) changing >"$WORK/changing"

# capture_stopped SOURCE ARGUMENT...: starts a capture and stops it once it has opened the source; its process is
# $capturing
capture_stopped() {
	local source=$1 tries=0
	"$PLATTER" --store "$STORE" capture "$@" --threads 1 >"$WORK/capturing" 2>&1 &
	capturing=$!
	until find "/proc/$capturing/fd" -lname "$source" 2>/dev/null | grep -q . && grep -q "^rchar: [0-9]\{8\}" "/proc/$capturing/io"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 3000 ] || ! kill -0 "$capturing" 2>/dev/null; then break; fi
		sleep 0.01
	done
	kill -STOP "$capturing"
}
capture_goes_on() {
	local code=0
	kill -CONT "$capturing"
	wait "$capturing" || code=$?
	cat "$WORK/capturing"
	return $code
}
check "the file at rest is captured" platter capture "$WORK/changing" at/rest --raw
capture_stopped "$WORK/changing" changed --raw
printf x | dd of="$WORK/changing" bs=1 seek=1000 conv=notrunc status=none
check_exit "$EXIT_REFUSED" "capture of a file that is written meanwhile is refused" capture_goes_on
check "the message says why" grep -q 'was written while it was captured' "$WORK/capturing"
check_exit "$EXIT_MISSING" "and publishes nothing" platter show changed
attach "$WORK/changing"
changing=$DEVICE
capture_stopped "$changing" changed --raw
check_exit 1 "a device that is captured cannot be mounted" sh -c "mkfs.ext2 -q '$changing' || exit 1"
check_said "because it is in use" 'in use|busy'
printf y | dd of="$changing" bs=1 seek=2000 conv=notrunc,fsync status=none
check_exit "$EXIT_REFUSED" "capture of a device that is written meanwhile is refused" capture_goes_on
check "the message says how this was noticed" grep -q 'sectors were written' "$WORK/capturing"
check_exit "$EXIT_MISSING" "and publishes nothing" platter show changed
capture_stopped "$changing" changed --raw --force
printf z | dd of="$changing" bs=1 seek=3000 conv=notrunc,fsync status=none
check "with --force it is captured" capture_goes_on
capturing=
check "with a warning" grep -q 'torn' "$WORK/capturing"
platter_json show changed >"$WORK/show.json"
check "and the version is marked as torn" test "$(jq -r '.. | .consistency? // empty' "$WORK/show.json" | head -n 1)" = torn
detach_loop "$changing"
rm "$WORK/changing"

# Targets in the store, and under it.
check_exit "$EXIT_REFUSED" "a file inside the store is refused" platter install image "$STORE/target" --yes
check_said "a file inside the store: the reason is reported" 'store'
truncate -s 256M "$WORK/ground"
mke2fs -q -t ext4 "$WORK/ground"
attach "$WORK/ground"
ground=$DEVICE
mount "$ground" "$MNT"
cp -a "$STORE" "$MNT/store"
check_exit "$EXIT_REFUSED" "the device that holds the store is refused" "$PLATTER" --store "$MNT/store" --quiet install image "$ground" --yes
check_said "the device that holds the store: the reason is reported" 'store|mounted'
umount "$MNT"

# A short file is extended; a device cannot be.
truncate -s 1M "$WORK/small-file"
check "a short file grows" platter install image "$WORK/small-file" --yes
check "a new file is created" platter install image "$WORK/new-file"
check "and is a sound file system" e2fsck -fn "$WORK/new-file"
# A pipe in place of a file of the store: no command waits for its other end.
pack=$(find "$STORE/packs" -name '*.pack' | head -n 1)
mv "$pack" "$WORK/pack"
mkfifo "$pack"
code=0
timeout 60 "$PLATTER" --store "$STORE" check >"$LOG" 2>&1 || code=$?
if [ "$code" != 0 ] && [ "$code" != 124 ]; then ok "a pipe instead of a pack is reported"; else not_ok "a pipe instead of a pack: code $code"; fi
check_said "a pipe instead of a pack: the reason is reported" 'not a regular file'
rm "$pack"
mv "$WORK/pack" "$pack"
check "the store is sound" platter check --read-data
# A link in the directory of a future store: nothing is written through it.
for link in packs lock catalog.sqlite packs/00; do
	rm -rf "$WORK/prepared" "$WORK/victim"
	mkdir -p "$WORK/victim" "$(dirname "$WORK/prepared/$link")"
	ln -s "$WORK/victim" "$WORK/prepared/$link"
	check_exit "$EXIT_REFUSED" "init refuses a link $link" "$PLATTER" --store "$WORK/prepared" init
	check_said "and names it" "$link is a symbolic link"
	check "and follows it nowhere" test -z "$(ls -A "$WORK/victim")"
done
# What a receiver of an origin's cast does not need.
for options in '--sender 127.0.0.1:7580' --trust-any "--key-file $WORK/no-key"; do
	# shellcheck disable=SC2086  # words
	check_exit "$EXIT_USAGE" "receive --server with ${options%% *}" "$PLATTER" receive --server "unix:$WORK/none" lab/a "$WORK/no-target" $options
	check_said "it is named" "leave out ${options%% *}"
done
# A user who may start few threads gets an error or a slower command, and no panic.
if need_root "another user"; then
	mkdir -m 777 "$WORK/few"
	chmod a+x "$WORK"
	cp "$PLATTER" "$WORK/few/platter"
	head -c 300000 /dev/urandom >"$WORK/few/disk"
	few() { XDG_STATE_HOME=$WORK/few/state timeout -s KILL 60 setpriv --reuid 45678 --regid 45678 --clear-groups prlimit --nproc="$1" "$WORK/few/platter" --store "$WORK/few/store" "${@:2}" </dev/null; }
	check "a store of that user" few 100 init
	check "with a disk" few 100 capture "$WORK/few/disk" disk
	for threads in 1 2 3 5; do
		check_exit 1 "a capture with $threads threads fails" few "$threads" capture "$WORK/few/disk" other
		check_said "with the reason" 'starting a thread'
	done
	for threads in 2 3; do
		for command in "cast disk --interface lo --wait 1" "receive disk $WORK/few/target --interface lo --sender 127.0.0.1:9 --give-up 1 --trust-any" \
			"attach disk --nbd $WORK/few/nbd.sock"; do
			# shellcheck disable=SC2086  # words
			check_exit 1 "${command%% *} with $threads threads fails" few "$threads" $command
			check_said "with the reason" 'starting a thread'
		done
	done
	# For a moment, the kernel still counts the threads of the processes before.
	check "a check goes on with one thread of its own" until_true 10 few 2 check --read-data
fi

finish
