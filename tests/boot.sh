#!/usr/bin/env bash
# tests/boot.sh [IMAGE.raw]: captures a bootable disk, installs it, and boots the copy in QEMU until it prints the
# marker that the catalog's images print on their serial console. Without an image, the small catalog's base is built.
. "$(dirname "$0")/lib.sh"

readonly MARKER=PLATTER-BOOT-OK BOOT_SECONDS_MAX=420

need_root "building a bootable disk" || { finish; exit 0; }
image=${1:-}
if [ -z "$image" ]; then
	CATALOG=${PLATTER_CATALOG:-$WORK/catalog}
	check "a bootable disk is built" "$ROOT/catalog/make-catalog" "$CATALOG" small base
	image=$CATALOG/base.raw
fi

boots() { # IMAGE
	local console=$WORK/console pid start=$SECONDS
	# Emulated, not virtualised: a /dev/kvm that opens may still not run a kernel.
	qemu-system-x86_64 -accel tcg -cpu qemu64 -M q35 -m 1024 -nodefaults -no-reboot -nographic -serial stdio \
		-net none -snapshot -drive "file=$1,format=raw,if=virtio" >"$console" 2>&1 </dev/null &
	pid=$!
	while [ $((SECONDS - start)) -lt $BOOT_SECONDS_MAX ]; do
		if grep -q $MARKER "$console"; then
			kill "$pid"
			wait "$pid" 2>/dev/null || true
			echo "# booted in $((SECONDS - start)) s" >&3
			return 0
		fi
		kill -0 "$pid" 2>/dev/null || break
		sleep 1
	done
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	tail -n 12 "$console"
	return 1
}

exec 3>&1
check "init" platter init
check "capture" platter capture "$image" boot/disk
check "install" platter install boot/disk "$WORK/target" --verify
check "the installed disk boots to its marker" boots "$WORK/target"
finish
