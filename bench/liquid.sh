#!/usr/bin/env bash
# bench/liquid.sh
#
# Figures 6 to 8 of Liquid (Zhao et al., TPDS 2014) on this machine: Bonnie++, PostMark, and unpacking and building a source
# tree, in ext4 on a loop device over: our FUSE export of a live disk, qemu-storage-daemon's FUSE export of a raw file and of
# qcow2 above it, and the raw file itself. All loop devices use direct I/O, Bonnie++ too: its file is smaller than memory.
# Then a captured tree of this machine's libraries, by block and frame size: its files read once by a new process, 4 KiB at
# random places of it, and the source tree unpacked into it. And hashing by threads.
#   BENCH_FIGURES  some of 6 7 8 sizes hashing
#   BENCH_MIB      size of Bonnie++'s file (2048)
# shellcheck disable=SC2317  # figures are called by their names
. "$(dirname "$0")/lib.sh"
readonly KINDS="native raw qcow2 ours"
MIB=${BENCH_MIB:-2048}
TREE=$WORK/tree
SERVER=
mkdir "$TREE"

bench_cleanup() {
	mountpoint -q "$MNT" && umount "$MNT"
	for device in "$WORK"/loops/*; do [ ! -e "$device" ] || losetup -d "/dev/${device##*/}"; done
	rm -f "$WORK"/loops/*
	[ -z "$SERVER" ] || { kill "$SERVER" && wait "$SERVER"; }
	umount -l "$TREE" 2>/dev/null
	umount -l "$WORK/export" 2>/dev/null
}

# The C sources to build: those that this project's dependencies contain.
sources() {
	cargo metadata --format-version 1 --manifest-path "$ROOT/Cargo.toml" --locked |
		jq -r '.packages[] | select(.name == "zstd-sys") | .manifest_path' | head -n 1 | xargs dirname
}
mkdir "$WORK/files"
tar -C "$(sources)/zstd/lib" -cf "$WORK/files/sources.tar" common compress decompress dictBuilder zdict.h zstd.h zstd_errors.h
truncate -s "$((MIB * 4))M" "$WORK/disk"
mke2fs -q -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 -d "$WORK/files" "$WORK/disk"
new_store
platter capture "$WORK/disk" bench/tree >/dev/null

wait_for() { # FILE
	local tries=0
	until [ -s "$1" ]; do
		tries=$((tries + 1))
		if [ "$tries" -ge 400 ] || ! kill -0 "$SERVER" 2>/dev/null; then
			echo "liquid: $1 does not come" >&2
			exit 1
		fi
		sleep 0.02
	done
}
# up KIND: serves the disk; sets $FILE to its path
up() {
	case $1 in
	native)
		cp --sparse=always "$WORK/disk" "$WORK/native"
		FILE=$WORK/native
		;;
	raw | qcow2)
		cp --sparse=always "$WORK/disk" "$WORK/base"
		local image=$WORK/base
		if [ "$1" = qcow2 ]; then
			image=$WORK/overlay
			qemu-img create -q -f qcow2 -F raw -b "$WORK/base" "$image"
		fi
		FILE=$WORK/export
		: >"$FILE"
		qemu-storage-daemon --blockdev "driver=file,node-name=file,filename=$image,discard=unmap" \
			--blockdev "driver=$1,node-name=disk,file=file,discard=unmap" \
			--export "type=fuse,id=export,node-name=disk,mountpoint=$FILE,writable=on" &
		SERVER=$!
		wait_for "$FILE"
		;;
	ours)
		"$PLATTER" --store "$STORE" --quiet attach --write bench/tree --fuse "$TREE" >"$WORK/server.log" 2>&1 &
		SERVER=$!
		FILE=$TREE/bench/tree/live.raw
		wait_for "$FILE"
		;;
	esac
}
down() { # KIND
	if [ -n "$SERVER" ]; then
		kill "$SERVER"
		wait "$SERVER" || true
		SERVER=
	fi
	case $1 in
	ours) platter discard bench/tree >/dev/null ;;
	*) rm -f "$WORK/native" "$WORK/base" "$WORK/overlay" "$WORK/export" ;;
	esac
}
# on KIND COMMAND...: runs the command with the file system of a fresh disk of this kind mounted
on() {
	local kind=$1
	shift
	up "$kind"
	attach "$FILE" --direct-io=on
	mount "$DEVICE" "$MNT"
	"$@" "$kind"
	umount "$MNT"
	detach "$DEVICE"
	down "$kind"
}

bonnie() { # KIND
	mkdir "$MNT/bonnie"
	bonnie++ -D -d "$MNT/bonnie" -s "$MIB:64k" -r "$((MIB / 2))" -n 0 -f -q -u root 2>/dev/null >"$WORK/bonnie.csv"
	# Fields of Bonnie++'s format 1.98: 12 writing, 14 rewriting, KiB/s. Its reads and seeks end too soon to be counted:
	# fio measures them.
	tail -n 1 "$WORK/bonnie.csv" | awk -F, -v out="$WORK/times" -v kind="$1" '{
		print $12 >>(out "/write-" kind); print $14 >>(out "/rewrite-" kind) }'
	fio --name=x --filename="$MNT/random" --size=512m --rw=read --bs=64k --direct=1 --ioengine=libaio --iodepth=4 --time_based \
		--runtime=3 --output-format=json 2>/dev/null | jq '.jobs[0].read.bw' >>"$WORK/times/read-$1"
	fio --name=x --filename="$MNT/random" --size=512m --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=4 --time_based \
		--runtime=3 --output-format=json 2>/dev/null | jq '.jobs[0].read.iops' >>"$WORK/times/seeks-$1"
}
postmark_run() {
	printf 'set location %s\nset number 5000\nset transactions 20000\nset size 512 16384\nrun\nquit\n' "$MNT" | postmark
	sync -f "$MNT"
}
build_run() {
	mkdir "$MNT/build"
	tar -C "$MNT/build" -xf "$MNT/sources.tar"
	(cd "$MNT/build" && find . -name '*.c' -print0 | xargs -0 -P 2 -I FILE cc -O1 -DZSTD_DISABLE_ASM -I. -Icommon -c FILE -o FILE.o)
	sync -f "$MNT"
}
unpack_run() {
	local n
	for n in $(seq 20); do
		mkdir "$MNT/unpack-$n"
		tar -C "$MNT/unpack-$n" -xf "$MNT/sources.tar"
	done
	sync -f "$MNT"
}
postmark_timed() { timed "postmark-$1" postmark_run; }
build_timed() { timed "build-$1" build_run; }
unpack_timed() { timed "unpack-$1" unpack_run; }

time_ratios() { # SERIES
	local peer
	for peer in native raw qcow2; do
		result "speed as a ratio to $peer" "$(calculate "$(median "$1-$peer") / $(median "$1-ours")")" "$([ "$peer" != qcow2 ] || echo 'at least 1.0')"
	done
}
figure_6() {
	heading "Liquid, figure 6: Bonnie++ with a file of $MIB MiB"
	for _ in $(seq "$RUNS"); do for kind in $KINDS; do on "$kind" bonnie; done; done
	rate_ratio() { result "$1" "$(calculate "$(median "$2-ours") / $(median "$2-$3")")" "${4:-}"; }
	for what in write rewrite read seeks; do # seeks: 4 KiB at random places, depth 4
		case $what in read | seeks) limits=("" "at least 0.9" "") ;; *) limits=("" "" "at least 1.0") ;; esac
		rate_ratio "$what: speed as a ratio to the raw file itself" "$what" native "${limits[0]}"
		rate_ratio "$what: as a ratio to qemu-storage-daemon's raw" "$what" raw "${limits[1]}"
		rate_ratio "$what: as a ratio to qemu-storage-daemon's qcow2" "$what" qcow2 "${limits[2]}"
	done
}
figure_7() {
	# One or two seconds each, mostly in memory, so there are more runs; the order of the kinds rotates.
	heading "Liquid, figure 7: PostMark, 5,000 files of 0.5 to 16 KiB, 20,000 transactions; $((8 * RUNS)) runs"
	local order
	read -ra order <<<"$KINDS"
	for _ in $(seq $((8 * RUNS))); do
		for kind in "${order[@]}"; do on "$kind" postmark_timed; done
		order=("${order[@]:1}" "${order[0]}")
	done
	time_ratios postmark
}
figure_8() {
	heading "Liquid, figure 8: a source tree is unpacked twenty times"
	for _ in $(seq "$RUNS"); do for kind in $KINDS; do on "$kind" unpack_timed; done; done
	time_ratios unpack
	heading "Liquid, figure 8: a source tree is unpacked and built"
	for _ in $(seq "$RUNS"); do for kind in $KINDS; do on "$kind" build_timed; done; done
	time_ratios build
}
figure_sizes() {
	heading "By block and frame size: a tree read whole, 4 KiB at random, writing; as ratios to 64 and 128 KiB"
	libraries=/usr/lib/$(uname -m)-linux-gnu
	truncate -s "$(($(du -sm "$libraries" | cut -f 1) * 3 / 2 + 512))M" "$WORK/libraries"
	mke2fs -q -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 -d "$libraries" "$WORK/libraries"
	tree_read() { tar -C "$MNT" -cf - . | cat >/dev/null; }
	sizes_run() {
		timed "tree-$size" tree_read
		fio --name=x --filename="$DEVICE" --readonly --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=4 --time_based \
			--runtime=3 --output-format=json 2>/dev/null | jq '.jobs[0].read.iops' >>"$WORK/times/random-$size"
		timed "unpack-sizes-$size" unpack_sizes
	}
	unpack_sizes() {
		mkdir "$MNT/unpacked"
		tar -C "$MNT/unpacked" -xf "$WORK/files/sources.tar"
		sync -f "$MNT"
	}
	for _ in $(seq "$RUNS"); do
		for block in 32 64; do
			for frame in 32 64 128 256; do
				size=$block-$frame
				new_store
				platter capture "$WORK/libraries" bench/tree --block-size "$block" --frame-size "$frame" >/dev/null
				echo 3 >/proc/sys/vm/drop_caches
				on ours sizes_run
			done
		done
	done
	for block in 32 64; do
		for frame in 32 64 128 256; do
			size=$block-$frame
			result "blocks of $block, frames of $frame KiB" "$(calculate "$(median tree-64-128) / $(median "tree-$size")")" \
				"$(calculate "$(median "random-$size") / $(median random-64-128)"), $(calculate "$(median unpack-sizes-64-128) / $(median "unpack-sizes-$size")")"
		done
	done
}
figure_hashing() {
	heading "Hashing of blocks of 64 KiB by threads"
	example platter-jobs measure
	for _ in $(seq "$RUNS"); do
		for threads in 1 2; do "$EXAMPLE" hash "$threads" | awk '{ print $NF }' >>"$WORK/times/hash-$threads"; done
	done
	result "two threads, as a ratio to one" "$(calculate "$(median hash-2) / $(median hash-1)")" "2 on two cores"
}
for figure in ${BENCH_FIGURES:-6 7 8 sizes hashing}; do "figure_$figure"; done
