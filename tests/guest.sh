#!/usr/bin/env bash
# Sourced after lib.sh by suites that boot a guest: Debian's kernel in QEMU, emulated, with an initramfs of busybox and a few modules.
# The suite defines `guest_init`, which prints the script that the guest runs.
#
#   PLATTER_GUEST_PACKAGES  folder with the unpacked kernel and busybox packages; filled when it is empty

GUEST_PACKAGES=${PLATTER_GUEST_PACKAGES:-$WORK/packages}

# has_guest_programs: whether a guest can be made here; says what is missing
has_guest_programs() {
	local program
	for program in qemu-system-x86_64 apt-get dpkg cpio xz; do
		type -P "$program" >/dev/null || { skip "a guest needs $program"; return 1; }
	done
}

# download OPTION...: the kernel that Debian's metapackage stands for, and a static busybox
download() {
	local package
	package=$(apt-cache "$@" depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
	rm -f "$GUEST_PACKAGES"/downloads/*.deb
	[ -n "$package" ] && (cd "$GUEST_PACKAGES/downloads" && apt-get -q "$@" download "$package" busybox-static)
}

# Unpacked, not installed. The machine's package lists may be absent, or older than the archive: then lists of our own.
fetch_packages() {
	local package own=(-o "Dir::State::Lists=$GUEST_PACKAGES/lists" -o "Dir::Cache=$GUEST_PACKAGES/cache" -o APT::Sandbox::User=root)
	mkdir -p "$GUEST_PACKAGES"
	[ -z "$(kernel)" ] || return 0
	mkdir -p "$GUEST_PACKAGES"/{downloads,lists/partial,cache/archives/partial}
	download || { apt-get -q "${own[@]}" update && download "${own[@]}"; }
	for package in "$GUEST_PACKAGES"/downloads/*.deb; do dpkg -x "$package" "$GUEST_PACKAGES"; done
	rm -rf "$GUEST_PACKAGES"/{downloads,lists,cache}
}
kernel() { find "$GUEST_PACKAGES" -path '*/boot/vmlinuz-*' -print -quit; }

# make_initramfs MODULE...: with these modules, to be loaded in this order; makes $WORK/initramfs.gz
make_initramfs() {
	local root=$WORK/initramfs module file
	mkdir -p "$root"/{bin,dev,proc,mnt,disk,modules}
	cp "$(find "$GUEST_PACKAGES" -path '*/bin/busybox' -print -quit)" "$root/bin/"
	for module in "$@"; do
		# In other kernels some of them are built in, or compressed.
		file=$(find "$GUEST_PACKAGES" -path '*/lib/modules/*' \( -name "$module.ko" -o -name "$module.ko.xz" \) -print -quit)
		case $file in
		'') continue ;;
		*.xz) xz -dc "$file" >"$root/modules/$module.ko" ;;
		*) cp "$file" "$root/modules/" ;;
		esac
		echo "$module"
	done >"$root/modules/order"
	guest_init >"$root/init"
	chmod +x "$root/init"
	(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$WORK/initramfs.gz"
}

# guest_begins: the first lines of the guest's script
guest_begins() {
	cat <<-'EOF'
		#!/bin/busybox sh
		/bin/busybox --install -s /bin
		mount -t proc proc /proc
		mount -t devtmpfs dev /dev
		for module in $(cat /modules/order); do insmod /modules/$module.ko; done
	EOF
}

# guest SECONDS OPTION...: runs it for at most that long, in place of the calling subshell; its console is standard output
guest() {
	# Emulated, not virtualised: a /dev/kvm that opens may still not run a kernel.
	# Without cmpxchg16b: QEMU 7.2 emulates it with wrong flags, of which Linux 6.12 dies at random.
	exec timeout "$1" qemu-system-x86_64 -accel tcg -cpu qemu64,-cx16 -M q35 -m 512 -nodefaults -no-reboot -nographic -serial stdio \
		-kernel "$(kernel)" -initrd "$WORK/initramfs.gz" -append "console=ttyS0 quiet panic=-1" "${@:2}" </dev/null
}
