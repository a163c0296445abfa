#!/usr/bin/env bash
# tests/boot.sh [IMAGE.raw]: captures a bootable disk, installs it, and boots the copy in QEMU until it prints the
# marker that the catalog's images print on their serial console. Then boots it from the store over NBD, writing to an
# overlay, and publishes the disk of the running machine, which must boot again. Without an image, the small catalog's base
# is built.
. "$(dirname "$0")/lib.sh"

readonly MARKER=PLATTER-BOOT-OK BOOT_SECONDS_MAX=420

need_root "building a bootable disk" || { finish; exit 0; }
image=${1:-}
if [ -z "$image" ]; then
	CATALOG=${PLATTER_CATALOG:-$WORK/catalog}
	check "a bootable disk is built" "$ROOT/catalog/make-catalog" "$CATALOG" small base
	image=$CATALOG/base.raw
fi

SERVER=
suite_cleanup() { [ -z "$SERVER" ] || kill -9 "$SERVER" 2>/dev/null; }

# boots FILE-OR-URI [OPTION]: with -snapshot the disk is not written; $AT_MARKER is called while the machine runs
boots() {
	local console=$WORK/console pid start=$SECONDS
	# Emulated, not virtualised: a /dev/kvm that opens may still not run a kernel.
	qemu-system-x86_64 -accel tcg -cpu qemu64 -M q35 -m 1024 -nodefaults -no-reboot -nographic -serial stdio \
		-net none ${2:+"$2"} -drive "file=$1,format=raw,if=virtio" >"$console" 2>&1 </dev/null &
	pid=$!
	while [ $((SECONDS - start)) -lt $BOOT_SECONDS_MAX ]; do
		if grep -q $MARKER "$console"; then
			"$AT_MARKER" || true
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

# What is done while the machine runs, when it has printed the marker.
AT_MARKER=true
exec 3>&1
check "init" platter init
check "capture" platter capture "$image" boot/disk
check "install" platter install boot/disk "$WORK/target" --verify
check "the installed disk boots to its marker" boots "$WORK/target" -snapshot

serve() {
	"$PLATTER" --store "$STORE" attach --write boot/disk --nbd "$WORK/nbd.sock" >"$WORK/server.log" 2>&1 &
	SERVER=$!
	until [ -S "$WORK/nbd.sock" ]; do kill -0 "$SERVER" && sleep 0.1; done
}
check "it is served for writing" serve
publish_running() { platter_json publish boot/disk >"$WORK/published.json"; }
AT_MARKER=publish_running
check "it boots over NBD to its marker" boots "nbd+unix:///boot/disk?socket=$WORK/nbd.sock"
check "the running machine's disk was published, as after a power cut" jq -e '.version == "boot/disk@2" and .consistency == "crash" and .attached' "$WORK/published.json"
AT_MARKER=true
kill "$SERVER"
wait "$SERVER" || true
SERVER=
check "what was written afterwards is discarded" platter discard boot/disk
check "the published version is installed" platter install boot/disk "$WORK/target"
check "and boots" boots "$WORK/target" -snapshot
finish
