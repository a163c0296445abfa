#!/usr/bin/env bash
# bench/drift.sh CATALOG-DIR
#
# Cost of drift between machines (Liguori and Van Hensbergen, figure 8): two clones of one Debian disk install the same
# packages, each with its own dpkg in the mounted filesystem, and are published. The second one gets files of its own
# first, so the packages are stored at other places. For comparison: two qcow2 overlays of the raw disk, as grown and as
# compressed with zstd, and two raw copies.
#
#   DRIFT_PACKAGES  packages to install (default: some 250 MB; dependencies are not installed)
. "$(dirname "$0")/lib.sh"
CATALOG=${1:?usage: bench/drift.sh CATALOG-DIR}
read -ra PACKAGES <<<"${DRIFT_PACKAGES:-git git-man perl-modules-5.36 libperl5.36 vim-runtime gcc-12 cpp-12 libpython3.11-stdlib libpython3.11-minimal}"
TREE=$WORK/tree
SERVER=
mkdir "$TREE" "$WORK/debs"
bench_cleanup() {
	umount -l "$TREE" 2>/dev/null
	[ -z "$SERVER" ] || { kill "$SERVER" && wait "$SERVER"; } 2>/dev/null
}

read -r base < <(images "$CATALOG")
read -r OFFSET LENGTH < <(ext4_parts "$base" | tail -n 1)
# As root, because apt's own user may not write here.
(cd "$WORK/debs" && apt-get -q -o APT::Sandbox::User=root download "${PACKAGES[@]}" >"$WORK/output" 2>&1) ||
	{ tail -n 5 "$WORK/output" >&2; exit 1; }

# grow DISK NUMBER: installs the packages in the disk's file system; the second disk gets other files first
grow() {
	attach "$1" --offset "$OFFSET" --sizelimit "$LENGTH"
	mount "$DEVICE" "$MNT"
	if [ "$2" = 2 ]; then
		echo second >"$MNT/etc/hostname"
		cp -a /usr/share/common-licenses/. "$MNT/opt/"
	fi
	cp "$WORK"/debs/*.deb "$MNT/opt/"
	chroot "$MNT" sh -c 'dpkg --force-depends --no-triggers --install /opt/*.deb' >"$WORK/dpkg.log" 2>&1 || true
	installed=$(chroot "$MNT" dpkg-query -W -f '${Status}\n' "${PACKAGES[@]}" 2>/dev/null | grep -cE 'ok (installed|unpacked|half-configured|triggers)') || true
	[ "$installed" -ge "${#PACKAGES[@]}" ] || { echo "drift: only $installed of ${#PACKAGES[@]} packages were unpacked" >&2; tail -n 5 "$WORK/dpkg.log" >&2; exit 1; }
	rm "$MNT"/opt/*.deb
	umount "$MNT"
	detach "$DEVICE"
}
mb() { calculate "$1 / 1e6"; }
stored() { du -sb "$STORE/packs" | cut -f 1; }

new_store
platter capture "$base" drift/base >/dev/null
platter clone drift/base drift/1 >/dev/null
platter clone drift/base drift/2 >/dev/null
"$PLATTER" --store "$STORE" --quiet attach --write drift/1 drift/2 --fuse "$TREE" >"$WORK/server.log" 2>&1 &
SERVER=$!
until [ -e "$TREE/drift/2/live.raw" ]; do kill -0 "$SERVER" && sleep 0.05; done
grown=()
for number in 1 2; do
	grow "$TREE/drift/$number/live.raw" "$number"
	before=$(stored)
	platter publish "drift/$number" >/dev/null
	grown+=($(($(stored) - before)))
done
umount "$TREE"
wait "$SERVER" || true
SERVER=

for number in 1 2; do
	qemu-img create -q -f qcow2 -b "$base" -F raw "$WORK/$number.qcow2"
	touch "$WORK/$number.fuse"
	qemu-storage-daemon --blockdev "driver=file,filename=$WORK/$number.qcow2,node-name=file" --blockdev driver=qcow2,file=file,node-name=disk \
		--export "type=fuse,id=export,node-name=disk,mountpoint=$WORK/$number.fuse,writable=on" >"$WORK/daemon.log" 2>&1 &
	daemon=$!
	until [ -s "$WORK/$number.fuse" ]; do kill -0 "$daemon" && sleep 0.05; done
	grow "$WORK/$number.fuse" "$number"
	kill "$daemon"
	wait "$daemon" || true
	qemu-img convert -q -c -O qcow2 -o compression_type=zstd -B "$base" -F raw "$WORK/$number.qcow2" "$WORK/$number.packed"
	cp --sparse=always "$base" "$WORK/$number.raw"
	grow "$WORK/$number.raw" "$number"
done

printf '\nTwo clones of %s, the same %d packages in each: MB that each adds\n' "$(basename "$base")" "${#PACKAGES[@]}"
result "Platter, first" "$(mb "${grown[0]}")"
result "Platter, second" "$(mb "${grown[1]}")"
result "second, as a ratio to the first" "$(calculate "${grown[1]} / ${grown[0]}")" "at most 0.05"
for number in 1 2; do
	result "qcow2 overlay $number" "$(mb "$(du -B 1 "$WORK/$number.qcow2" | cut -f 1)")"
	result "qcow2 overlay $number, compressed with zstd" "$(mb "$(du -B 1 "$WORK/$number.packed" | cut -f 1)")"
	result "raw copy $number" "$(mb "$(du -B 1 "$WORK/$number.raw" | cut -f 1)")"
done
for number in 1 2; do
	platter install "drift/$number" "$WORK/check.raw" >/dev/null
	e2fsck -fn "$WORK/check.raw?offset=$OFFSET" >"$WORK/output" 2>&1 || { tail -n 5 "$WORK/output" >&2; exit 1; }
	rm "$WORK/check.raw"
done
