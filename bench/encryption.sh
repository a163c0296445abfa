#!/usr/bin/env bash
# bench/encryption.sh [DISK.raw]
#
# What encryption costs: capture, install to a file in memory, the same with `--verify`, and reads of 4 KiB at random over NBD
# (each decodes a frame, or from memory), of a plain and of an encrypted store in turn. Prints medians, and ratios
# of the encrypted store to the plain one, of time and of processor time. Processor time varies less on a machine that also does
# other things. Stores and targets are in memory (/dev/shm unless BENCH_SCRATCH names another place), so that no disk hides
# the cost. Without DISK.raw, the disk is an ext4 filesystem with programs and libraries of this machine.
BENCH_SCRATCH=${BENCH_SCRATCH:-/dev/shm}
. "$(dirname "$0")/lib.sh"
SECONDS_EACH=${BENCH_SECONDS:-3}
readonly DISK_BYTES=600000000
export PLATTER_UNLOCK_FILE=$WORK/key
KINDS=(plain encrypted)

RAW=${1:-$WORK/disk}
if [ "$#" = 0 ]; then
	mkdir "$WORK/files"
	{ tar -C / -cf - usr/lib usr/bin 2>/dev/null || true; } | head -c "$DISK_BYTES" | { tar -C "$WORK/files" -xf - 2>/dev/null || true; }
	mkfs.ext4 -q -d "$WORK/files" "$RAW" $((DISK_BYTES * 3 / 2 / 1024))k 2>/dev/null
	rm -rf "$WORK/files"
fi

of() { "$PLATTER" --store "$WORK/$1" --quiet "${@:2}"; }
new() { # KIND
	local options=()
	rm -rf "${WORK:?}/$1"
	[ "$1" = plain ] || options=(--encrypt)
	of "$1" init "${options[@]}" --unlock-file "$WORK/key" >/dev/null
}
# run SERIES COMMAND...: adds seconds and processor seconds to the series
run() {
	local series=$1
	shift
	timed "$series" /usr/bin/time -f '%U %S' -o "$WORK/cpu" "$@"
	awk '{ print $1 + $2 }' "$WORK/cpu" >>"$WORK/times/$series-cpu"
}
captured() { run "capture-$1" "$PLATTER" --store "$WORK/$1" --quiet capture "$RAW" bench/disk; }
installed() { # KIND SERIES [OPTION]
	rm -f "$WORK/target"
	run "$2-$1" "$PLATTER" --store "$WORK/$1" --quiet install bench/disk "$WORK/target" --yes "${@:3}"
}

serve() { # KIND OPTION...
	rm -f "$WORK/$1.sock"
	begin "$WORK/$1.log" "$PLATTER" --store "$WORK/$1" --quiet attach bench/disk --nbd "$WORK/$1.sock" "${@:2}"
	wait_for nbdinfo --size "nbd+unix:///bench/disk?socket=$WORK/$1.sock"
}
# read_at_random KIND SERIES: adds requests each second, and processor microseconds of the server for each
used() { awk '{ sub(/^.*\) /, ""); split($0, field, " "); print (field[12] + field[13]) / 100 }' "/proc/$1/stat"; }
read_at_random() {
	local before
	before=$(used "$SERVER")
	fio --name=x --ioengine=nbd --uri="nbd+unix:///bench/disk?socket=$WORK/$1.sock" --iodepth=1 --bs=4k --rw=randread --time_based \
		--runtime="$SECONDS_EACH" --output-format=json 2>/dev/null | sed -n '/^{/,$p' >"$WORK/fio"
	jq '1e6 / .jobs[0].read.iops' "$WORK/fio" >>"$WORK/times/$2-$1"
	calculate "($(used "$SERVER") - $before) * 1e6 / $(jq '.jobs[0].read.total_ios' "$WORK/fio")" >>"$WORK/times/$2-$1-cpu"
	echo >>"$WORK/times/$2-$1-cpu"
}
# ratio WHAT SERIES UNIT
ratio() {
	local kind
	for kind in '' -cpu; do
		result "$1${kind:+, processor time}" "$(calculate "$(median "$2-encrypted$kind") / $(median "$2-plain$kind")")" \
			"encrypted $(median "$2-encrypted$kind") $3 ($(spread "$2-encrypted$kind")), plain $(median "$2-plain$kind") $3 ($(spread "$2-plain$kind"))"
	done
}

heading "Encrypted against plain, $(calculate "$(stat -c %s "$RAW") / 1e6") MB"
for _ in $(seq "$RUNS"); do
	for kind in "${KINDS[@]}"; do
		new "$kind"
		captured "$kind"
	done
	for kind in "${KINDS[@]}"; do
		installed "$kind" install
		installed "$kind" verify --verify
	done
	for kind in "${KINDS[@]}"; do
		# A cache of a few blocks, so that nearly each read decodes a frame up to its block.
		serve "$kind" --cache 16
		read_at_random "$kind" decoded
		end "$SERVER"
	done
	for kind in "${KINDS[@]}"; do
		serve "$kind" --cache 2048
		nbdcopy "nbd+unix:///bench/disk?socket=$WORK/$kind.sock" null:
		read_at_random "$kind" warm
		end "$SERVER"
	done
done
ratio "capture into an empty store" capture s
ratio "install to a file" install s
ratio "install --verify to a file" verify s
ratio "4 KiB at random, a frame decoded for each" decoded us
ratio "4 KiB at random, from memory" warm us
