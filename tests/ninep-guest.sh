#!/usr/bin/env bash
# tests/ninep-guest.sh: the kernel's own 9P client. Boots Debian's kernel in QEMU with an initramfs made of a few packages;
# the guest mounts what the host serves, reads an image, writes a file, syncs and unmounts, once for each way to mount.
#
#   PLATTER_NINEP_SERVE     command that serves a folder: called with the folder and a TCP address (default: the example)
#   PLATTER_GUEST_PACKAGES  folder with the unpacked kernel and busybox packages; filled when it is empty
. "$(dirname "$0")/lib.sh"

readonly BOOT_SECONDS_MAX=300 IMAGE_MIB=32
readonly WAYS=("cache=none,msize=131072" "cache=none,msize=1048576" "cache=loose,msize=1048576" "cache=mmap,msize=8192")

for program in qemu-system-x86_64 apt-get dpkg cpio; do
	type -P "$program" >/dev/null || { skip "a guest needs $program"; finish; exit 0; }
done
packages=${PLATTER_GUEST_PACKAGES:-$WORK/packages}
PORT=$((20000 + $(number port 20000)))
SERVER=
suite_cleanup() {
	[ -z "$SERVER" ] || kill "$SERVER"
	wait
} 2>/dev/null

# The kernel that Debian's metapackage stands for, and a static busybox: unpacked, not installed.
fetch_packages() {
	local kernel package
	[ ! -e "$packages/bin/busybox" ] || return 0
	mkdir -p "$packages/downloads"
	kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
	(cd "$packages/downloads" && apt-get -q download "$kernel" busybox-static)
	for package in "$packages"/downloads/*.deb; do dpkg -x "$package" "$packages"; done
}

# What the guest does. Each line that begins with RESULT is for the host.
guest_init() {
	cat <<-EOF
		#!/bin/busybox sh
		/bin/busybox --install -s /bin
		mount -t proc proc /proc
		mount -t devtmpfs dev /dev
		for module in \$(cat /modules/order); do insmod /modules/\$module.ko; done
		ip link set lo up
		ip address add 10.0.2.15/24 dev eth0
		ip link set eth0 up
		try() {
			way=\$1 name=live-\$2
			mount -t 9p -o trans=tcp,port=$PORT,version=9p2000.L,access=any,\$way 10.0.2.2 /mnt || return
			echo "RESULT \$way names \$(ls /mnt | tr '\\n' ' ')"
			echo "RESULT \$way image \$(dd if=/mnt/image bs=1M 2>/dev/null | sha256sum | cut -d' ' -f1)"
			dd if=/dev/urandom of=/new bs=1k count=3001 2>/dev/null
			dd if=/new of=/mnt/\$name bs=64k conv=fsync 2>/dev/null && echo "RESULT \$way wrote \$(sha256sum </new | cut -d' ' -f1)"
			dd if=/new of=/mnt/live bs=1k seek=\$((\$2 * 200)) count=100 conv=notrunc,fsync 2>/dev/null
			echo "RESULT \$way length \$(stat -c %s /mnt/live)"
			mv /mnt/\$name /mnt/\$name-moved && echo "RESULT \$way moved"
			echo x >/mnt/gone && rm /mnt/gone && [ ! -e /mnt/gone ] && echo "RESULT \$way removed"
			echo x 2>/dev/null >>/mnt/image || echo "RESULT \$way read-only"
			sync
			umount /mnt && echo "RESULT \$way unmounted"
		}
		number=0
		for way in ${WAYS[*]}; do
			number=\$((number + 1))
			try \$way \$number
		done
		echo RESULT end
		poweroff -f
	EOF
}

make_initramfs() {
	local root=$WORK/initramfs module
	local modules=(failover net_failover virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci
		virtio_net netfs fscache 9pnet 9pnet_fd 9p)
	mkdir -p "$root"/{bin,dev,proc,mnt,modules}
	cp "$packages/bin/busybox" "$root/bin/"
	for module in "${modules[@]}"; do
		# In other kernels some of them are built in.
		find "$packages/lib/modules" -name "$module.ko" -exec cp {} "$root/modules/" \;
		[ ! -e "$root/modules/$module.ko" ] || echo "$module"
	done >"$root/modules/order"
	guest_init >"$root/init"
	chmod +x "$root/init"
	(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$WORK/initramfs.gz"
}

serve() {
	local command=${PLATTER_NINEP_SERVE:-}
	if [ -z "$command" ]; then
		cargo build --quiet --manifest-path "$ROOT/Cargo.toml" --package platter-export --example serve_tree_9p
		command=${CARGO_TARGET_DIR:-$ROOT/target}/debug/examples/serve_tree_9p
	fi
	# shellcheck disable=SC2086  # a command with its arguments
	$command "$WORK/served" "127.0.0.1:$PORT" >"$WORK/server.log" 2>&1 &
	SERVER=$!
	until (: <>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; do kill -0 "$SERVER" && sleep 0.1; done
}

boot() {
	local kernel
	kernel=$(find "$packages/boot" -name 'vmlinuz-*' | head -n 1)
	# Emulated, not virtualised: a /dev/kvm that opens may still not run a kernel.
	timeout "$BOOT_SECONDS_MAX" qemu-system-x86_64 -accel tcg -cpu qemu64 -M q35 -m 512 -nodefaults -no-reboot \
		-nographic -serial stdio -netdev user,id=net -device virtio-net-pci,netdev=net -kernel "$kernel" \
		-initrd "$WORK/initramfs.gz" -append "console=ttyS0 quiet panic=-1" >"$WORK/console" 2>&1 </dev/null || true
	tr -d '\r' <"$WORK/console" >"$WORK/said"
	tail -n 20 "$WORK/said"
	grep -q '^RESULT end' "$WORK/said"
}

result() { sed -n "s/^RESULT $1 //p" "$WORK/said" | head -n 1; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }
same() { [ -n "$1" ] && { [ "$1" = "$2" ] || { echo "$1, wanted $2" && false; }; }; }

mkdir "$WORK/served"
random $((IMAGE_MIB << 20)) image >"$WORK/served/image"
chmod a-w "$WORK/served/image"
truncate -s 1M "$WORK/served/live"
check "the kernel's and busybox's packages are here" fetch_packages
check "an initramfs is made" make_initramfs
check "a folder is served" serve
check "a guest boots, mounts, and ends" boot
number=0
for way in "${WAYS[@]}"; do
	number=$((number + 1))
	check "$way: an image is what it is" same "$(result "$way image")" "$(sum "$WORK/served/image")"
	check "$way: a new file arrived whole, and moved" same "$(result "$way wrote")" "$(sum "$WORK/served/live-$number-moved")"
	dd if="$WORK/served/live-$number-moved" of="$WORK/piece" bs=1k count=100 2>/dev/null || true
	check "$way: what was written into a file is there" cmp "$WORK/piece" <(dd if="$WORK/served/live" bs=1k skip=$((number * 200)) count=100 2>/dev/null)
	check "$way: the file keeps its length" same "$(result "$way length")" 1048576
	for done in moved removed read-only unmounted; do
		check "$way: $done" grep -q "^RESULT $way $done" "$WORK/said"
	done
done
check "the server had nothing to complain of" sh -c "! grep -E 'Failed|error: Some' '$WORK/server.log'"
finish
