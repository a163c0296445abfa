#!/usr/bin/env bash
# tests/boot.sh [IMAGE.raw]: captures a bootable disk, installs it, and boots the copy in QEMU until it prints the marker
# that the catalog's images print on their serial console. Then boots it from the store over NBD with an overlay, and
# publishes the disk while the machine runs. That version boots from a file of the mounted tree, is written, published and
# installed, and boots again. Without an image, the base of the small catalog is built.
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
MACHINE=
TREE=$WORK/tree
suite_cleanup() {
	[ -z "$MACHINE" ] || kill -9 "$MACHINE"
	[ -z "$SERVER" ] || kill -9 "$SERVER"
	umount -l "$TREE"
} 2>/dev/null

power_off() {
	kill "$MACHINE" 2>/dev/null || true
	wait "$MACHINE" 2>/dev/null || true
	MACHINE=
}

# boots FILE-OR-URI [CACHE [OPTION]]: with -snapshot the disk is not written; $AT_MARKER is called while the machine runs
boots() {
	local console=$WORK/console start=$SECONDS
	# Starts before the machine, so that the marker of the previous one is not mistaken for its own.
	: >"$console"
	# Emulated, not virtualised: a /dev/kvm that opens may still not run a kernel.
	# Without cmpxchg16b: QEMU 7.2 emulates it with wrong flags, of which Linux 6.12 dies at random.
	qemu-system-x86_64 -accel tcg -cpu qemu64,-cx16 -M q35 -m 1024 -nodefaults -no-reboot -nographic -serial stdio \
		-net none ${3:+"$3"} -drive "file=$1,format=raw,if=virtio,cache=${2:-writeback}" >"$console" 2>&1 </dev/null &
	MACHINE=$!
	while [ $((SECONDS - start)) -lt $BOOT_SECONDS_MAX ]; do
		if grep -q $MARKER "$console"; then
			"$AT_MARKER" || true
			power_off
			echo "# booted in $((SECONDS - start)) s" >&3
			return 0
		fi
		kill -0 "$MACHINE" 2>/dev/null || break
		sleep 1
	done
	power_off
	tail -n 12 "$console"
	return 1
}

# The command to run while the machine runs, after it has printed the marker.
AT_MARKER=true
exec 3>&1
check "init" platter init
check "capture" platter capture "$image" boot/disk
check "install" platter install boot/disk "$WORK/target" --verify --yes
check "the installed disk boots to its marker" boots "$WORK/target" writeback -snapshot

# serve PLACE ARGUMENT...: serves the disk for writing, and waits until PLACE exists
serve() {
	local there=$1
	shift
	"$PLATTER" --store "$STORE" attach --write boot/disk "$@" >"$WORK/server.log" 2>&1 &
	SERVER=$!
	until [ -e "$there" ]; do kill -0 "$SERVER" && sleep 0.1; done
}
stop() {
	kill "$SERVER"
	wait "$SERVER" || true
	SERVER=
	platter discard boot/disk
}
publish_running() { platter_json publish boot/disk >"$WORK/published.json"; }
# check_published NUMBER
check_published() {
	check "the running machine's disk was published as crash-consistent" jq -e --arg version "boot/disk@$1" \
		'.version == $version and .consistency == "crash" and .attached' "$WORK/published.json"
}
AT_MARKER=publish_running
check "it is served for writing over NBD" serve "$WORK/nbd.sock" --nbd "$WORK/nbd.sock"
check "it boots over NBD to its marker" boots "nbd+unix:///boot/disk?socket=$WORK/nbd.sock"
check_published 2
check "later writes are discarded" stop

mkdir "$TREE"
check "that version is served for writing over FUSE" serve "$TREE/boot/disk/live.raw" --fuse "$TREE"
check "it boots over FUSE to its marker" boots "$TREE/boot/disk/live.raw" none
check_published 3
check "later writes are discarded" stop
AT_MARKER=true
check "the version published last is installed" platter install boot/disk "$WORK/target" --yes
check "and boots" boots "$WORK/target" writeback -snapshot
finish
