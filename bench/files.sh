#!/usr/bin/env bash
# bench/files.sh [CATALOG-DIR]
#
# A look inside an image of 4 GiB whose files are those of /usr of this machine, beside the same disk mounted through a loop device.
#   ls, cat   a process with nothing in memory: its milliseconds, and the bytes that it reads
#   cp -r     everything, with warm memory, as a ratio to `cp -a` from the mount
#   mount     `platter mount` beside the loop mount, both with an empty page cache: find with attributes, tar, and reads of one file
#             with fio, as a ratio of the times or rates (1 is as fast as the loop mount)
#
#   FILES_TREE  the directory whose files the disk has (default: /usr)
#   FILES_KINDS the filesystems (default: ext4 xfs btrfs)
. "$(dirname "$0")/lib.sh"
TREE=${FILES_TREE:-/usr}
read -ra KINDS <<<"${FILES_KINDS:-ext4 xfs btrfs}"

# cold NAME COMMAND...: with empty caches, once: milliseconds, and bytes read from disks
cold() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	python3 - "$@" <<-'END'
		import os, subprocess, sys, time
		start = time.monotonic()
		child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
		_, status, usage = os.wait4(child.pid, 0)
		assert status == 0, status
		print(f"{(time.monotonic() - start) * 1000:.0f} {usage.ru_inblock * 512}")
	END
}
# cold_medians WHAT COMMAND...: prints the medians
cold_medians() {
	local what=$1
	shift
	for _ in $(seq "$RUNS"); do cold "$@"; done >"$WORK/cold"
	result "$what" "$(awk '{ print $1 }' "$WORK/cold" | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }') ms, $(
		awk '{ print $2 }' "$WORK/cold" | sort -g | awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] / 1e6 }'
	) MB read"
}

# mounted NAME COMMAND...: the command's time in both mounts, each with an empty page cache, as a ratio
mounted() {
	local what=$1 place
	shift
	for _ in $(seq "$RUNS"); do
		for place in "$MNT" "$WORK/seen"; do
			sync
			echo 3 >/proc/sys/vm/drop_caches
			(cd "$place" && timed "$kind-$what-$(basename "$place")" "$@" >/dev/null)
		done
	done
	result "mount: $what, speed as a ratio to the loop mount" "$(calculate "$(median "$kind-$what-$(basename "$MNT")") / $(median "$kind-$what-seen")") ($(median "$kind-$what-seen") s)"
}
# reads NAME OPTION...: MiB/s of fio in both mounts
reads() {
	local what=$1 place
	shift
	for place in "$MNT" "$WORK/seen"; do
		echo 3 >/proc/sys/vm/drop_caches
		fio --name=x --readonly --filename="$place/one-file" --output-format=json --runtime=10 --time_based=0 "$@" |
			python3 -c 'import json, sys; print(json.load(sys.stdin)["jobs"][0]["read"]["bw"] / 1024)' >"$WORK/fio-$(basename "$place")"
	done
	result "mount: $what, and of the loop mount" "$(printf '%.0f and %.0f MiB/s' "$(cat "$WORK/fio-seen")" "$(cat "$WORK/fio-$(basename "$MNT")")")"
}

for kind in "${KINDS[@]}"; do
	heading "$kind"
	new_store
	rm -f "$WORK/disk"
	truncate -s 4G "$WORK/disk"
	case $kind in
	ext4) mkfs.ext4 -q "$WORK/disk" ;;
	xfs) mkfs.xfs -q "$WORK/disk" ;;
	btrfs) mkfs.btrfs -q "$WORK/disk" ;;
	esac
	mount -o loop "$WORK/disk" "$MNT"
	find "$TREE/lib/" -type f -size +1M -print0 | sort -z | xargs -0 cat 2>/dev/null | head -c 128M >"$MNT/one-file" || true
	cp -a "$TREE/bin" "$TREE/lib" "$MNT/" 2>/dev/null || true
	umount "$MNT"
	platter capture "$WORK/disk" disk >/dev/null
	file=$(platter find disk:/bin --name 'bash' | head -n 1)
	cold_medians "ls of a directory" "$PLATTER" --store "$STORE" ls disk:/bin
	cold_medians "cat of a file" "$PLATTER" --store "$STORE" cat "disk:$file"
	mount -o loop,ro "$WORK/disk" "$MNT"
	for _ in $(seq "$RUNS"); do
		rm -rf "$WORK/copy" && timed "$kind-platter" platter cp --recursive disk:/lib "$WORK/copy"
		rm -rf "$WORK/copy" && timed "$kind-mount" cp -a "$MNT/lib" "$WORK/copy"
	done
	rm -rf "$WORK/copy"
	result "cp -r, speed as a ratio to cp -a from a mount" "$(calculate "$(median "$kind-mount") / $(median "$kind-platter")")"
	mkdir -p "$WORK/seen"
	begin "$WORK/mount.log" "$PLATTER" --store "$STORE" mount disk: "$WORK/seen"
	wait_for grep -q '^mounted' "$WORK/mount.log"
	mounted "find with attributes" find . -printf '%p %s %m %T@\n'
	mounted "tar" sh -c 'tar -cf - lib | cat >/dev/null'
	reads "reads in order" --rw=read --bs=1M
	reads "random reads of 4 KiB" --rw=randread --bs=4k --io_size=16M --randseed=1
	end "$SERVER"
	umount "$MNT"
done
