#!/usr/bin/env bash
# tests/ninep-guest.sh: the kernel's own 9P client. Boots Debian's kernel in QEMU with an initramfs made from a few
# packages. The guest mounts the tree of a store, once for each way to mount: it lists it, reads a whole version, writes
# a live disk, copies a disk into import/, and mounts the live disk's file system with a loop device. Then the host
# checks the results.
#
# PLATTER_GUEST_PACKAGES: see guest.sh.
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/guest.sh
. "$TESTS/guest.sh"

readonly BOOT_SECONDS_MAX=420 DISK_MIB=32
readonly WAYS=("cache=none,msize=131072" "cache=none,msize=1048576" "cache=loose,msize=1048576" "cache=mmap,msize=8192")
# A file on the disk for writes by offset: each way to mount has its own part of it.
readonly ROOM_BYTES=1048576 PIECE_BYTES=131072 ROOM_WORDS="room for the guest"

has_guest_programs || { finish; exit 0; }
PORT=$((20000 + $(number port 20000)))
SERVER=
suite_cleanup() {
	[ -z "$SERVER" ] || kill "$SERVER"
	wait
} 2>/dev/null

# The guest's script. The host evaluates lines that begin with RESULT.
guest_init() {
	guest_begins
	cat <<-EOF
		ip link set lo up
		ip address add 10.0.2.15/24 dev eth0
		ip link set eth0 up
		# The firmware left the cursor in the middle of a line.
		echo
		tree() { mount -t 9p -o trans=tcp,port=$PORT,version=9p2000.L,access=any,\$way 10.0.2.2 /mnt; }
		sum() { sha256sum "\$1" | cut -d' ' -f1; }
		by_loop() {
			[ -e /dev/loop-control ] && grep -qw ext4 /proc/filesystems || { echo "RESULT no loop"; return; }
			mount -t ext4 -o loop /mnt/lab/live/live.raw /disk || return
			echo "RESULT \$way numbers \$(sum /disk/numbers.txt)"
			cp /new /disk/way-\$number && umount /disk && echo "RESULT \$way copied \$(sum /new)"
		}
		try() {
			tree || return
			echo "RESULT \$way names \$(cd /mnt && echo * lab/disk/* lab/live/*)"
			echo "RESULT \$way image \$(dd if=/mnt/lab/disk/latest.raw bs=1M 2>/dev/null | sha256sum | cut -d' ' -f1)"
			echo "RESULT \$way score \$(cat /mnt/lab/disk/latest.score)"
			dd if=/dev/urandom of=/new bs=512 count=6001 2>/dev/null
			dd if=/new of=/piece bs=$PIECE_BYTES count=1 2>/dev/null
			dd if=/piece of=/mnt/lab/live/live.raw bs=1k seek=\$((($ROOM_OFFSET + \$number * $PIECE_BYTES) / 1024)) conv=notrunc,fsync 2>/dev/null &&
				echo "RESULT \$way wrote \$(sum /piece)"
			dd if=/piece of=/mnt/lab/disk/1.raw conv=notrunc,fsync 2>/dev/null || echo "RESULT \$way read-only"
			by_loop
			mkdir -p /mnt/import/way && cp /new /mnt/import/way/\$number.raw && echo "RESULT \$way imported \$(sum /new)"
			umount /mnt && tree && echo "RESULT \$way read back \$(sum /mnt/way/\$number/latest.raw)"
			umount /mnt && echo "RESULT \$way unmounted"
		}
		number=0
		for way in ${WAYS[*]}; do
			try
			number=\$((number + 1))
		done
		echo RESULT end
		poweroff -f
	EOF
}

readonly MODULES=(failover net_failover virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci
	virtio_net netfs fscache 9pnet 9pnet_fd 9p loop crc32c_generic crc16 mbcache jbd2 ext4)

serve() {
	"$PLATTER" --store "$STORE" attach --write lab/live --9p "127.0.0.1:$PORT" >"$WORK/server.log" 2>&1 &
	SERVER=$!
	until (: <>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; do kill -0 "$SERVER" && sleep 0.1; done
}

boot() {
	(guest "$BOOT_SECONDS_MAX" -netdev user,id=net -device virtio-net-pci,netdev=net) >"$WORK/console" 2>&1 || true
	tr -d '\r' <"$WORK/console" >"$WORK/said"
	tail -n 20 "$WORK/said"
	grep -q '^RESULT end' "$WORK/said"
}

result() { sed -n "s/^RESULT $1 //p" "$WORK/said" | head -n 1; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }
same() { [ -n "$1" ] && { [ "$1" = "$2" ] || { echo "$1, wanted $2" && false; }; }; }
# The room's bytes are found by their first words, and are contiguous.
find_room() {
	ROOM_OFFSET=$(grep -abo "$ROOM_WORDS" "$WORK/disk" | cut -d: -f1)
	cmp "$WORK/tree/room" <(tail -c "+$((ROOM_OFFSET + 1))" "$WORK/disk" | head -c "$ROOM_BYTES")
}
# piece DISK NUMBER: the bytes that the guest wrote to its part of the room
piece() { tail -c "+$((ROOM_OFFSET + $2 * PIECE_BYTES + 1))" "$1" | head -c "$PIECE_BYTES" | sha256sum | cut -d' ' -f1; }
# exported VERSION: exports the version to a file
exported() {
	rm -f "$WORK/exported"
	platter export "$1" "$WORK/exported"
}

file_tree "$WORK/tree" 8 guest
{ echo "$ROOM_WORDS" && random "$ROOM_BYTES" room; } | head -c "$ROOM_BYTES" >"$WORK/tree/room"
ext4_image "$WORK/disk" "$DISK_MIB" "$WORK/tree"
platter init >/dev/null
platter capture "$WORK/disk" lab/disk >/dev/null
platter clone lab/disk lab/live >/dev/null
platter export lab/disk "$WORK/shown" >/dev/null
score=$(platter_json show lab/disk | jq -r '[.. | .score? // empty] | first')
lists="by-date import lab"
for name in lab/disk/{1.raw,1.score,latest.raw,latest.score} lab/live/{1.raw,1.score,latest.raw,latest.score,live.raw}; do
	lists="$lists $name"
done

check "the disk has room for writes by offset" find_room
check "packages of the kernel and busybox are available" fetch_packages
check "an initramfs is made" make_initramfs "${MODULES[@]}"
check "the tree is served" serve
check "a guest boots, mounts, and ends" boot
number=0
for way in "${WAYS[@]}"; do
	check "$way: it lists the images" same "$(result "$way names" | sed 's/ way / /')" "$lists"
	check "$way: a version equals its export" same "$(result "$way image")" "$(sum "$WORK/shown")"
	check "$way: the score file is right" same "$(result "$way score")" "$score"
	check "$way: a version is read-only" grep -q "^RESULT $way read-only" "$WORK/said"
	check "$way: a disk copied into import/ becomes an image" exported "way/$number"
	check "$way: with the bytes that were copied" same "$(result "$way imported")" "$(sum "$WORK/exported")"
	check "$way: which the guest reads back" same "$(result "$way imported")" "$(result "$way read back")"
	check "$way: unmounted" grep -q "^RESULT $way unmounted" "$WORK/said"
	number=$((number + 1))
done
check "the written disk is published while it is served" platter publish lab/live
check "and the version is exported" exported lab/live
check "with a sound file system" e2fsck -fn "$WORK/exported"
number=0
for way in "${WAYS[@]}"; do
	check "$way: the version has the writes by offset" same "$(result "$way wrote")" "$(piece "$WORK/exported" "$number")"
	if grep -q '^RESULT no loop' "$WORK/said"; then
		skip "$way: the guest's kernel has no loop devices or no ext4"
	else
		check "$way: the guest read a file by a loop device" same "$(result "$way numbers")" "$(sum "$WORK/tree/numbers.txt")"
		debugfs -R "dump /way-$number $WORK/dumped" "$WORK/exported" >/dev/null 2>&1 || true
		check "$way: and wrote one" same "$(result "$way copied")" "$(sum "$WORK/dumped")"
		rm -f "$WORK/dumped"
	fi
	number=$((number + 1))
done
kill "$SERVER"
check "the server ends" wait "$SERVER"
SERVER=
check "the server logged no errors" sh -c "! grep -E 'failed|rejected|disconnected' '$WORK/server.log'"
check "the store is sound" platter check
finish
