#!/usr/bin/env bash
# Sourced by every benchmark. It owns the work directory, timing, medians and the printing of ratios.
# Platter and the compared tools run in turn, so that both see the same machine; only medians and ratios are printed.
#
#   PLATTER        the binary (default: target/release/platter)
#   BENCH_RUNS     number of runs of each (default: 3)
#   BENCH_SCRATCH  parent of work directories (default: $TMPDIR); its disk is part of the measurement
#   BENCH_RESULTS  a file to which all results are added, as HEADING, WHAT and VALUE between tabs
#   BENCH_EXAMPLES a directory with example programs that are already built (default: cargo builds them)
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export LC_ALL=C.UTF-8 PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
PLATTER=${PLATTER:-${CARGO_TARGET_DIR:-$ROOT/target}/release/platter}
RUNS=${BENCH_RUNS:-3}
BENCH=$(basename "$0" .sh)
[ -x "$PLATTER" ] || { echo "$BENCH: no binary at $PLATTER: run \`make build\`" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "$BENCH: needs root (loop devices, mounts, rooms)" >&2; exit 1; }
if [ "${BENCH_NAMESPACE:-}" != "$BENCH" ]; then
	exec env BENCH_NAMESPACE="$BENCH" unshare --mount --propagation private -- "$BASH" "$0" "$@"
fi

WORK=$(mktemp -d "${BENCH_SCRATCH:-${TMPDIR:-/tmp}}/platter-bench-$BENCH.XXXXXX")
STORE=$WORK/store
MNT=$WORK/mnt
mkdir "$MNT" "$WORK/loops" "$WORK/times"

cleanup() {
	local rc=$? device
	set +e
	! type -t bench_cleanup >/dev/null || bench_cleanup
	end_begun
	while mountpoint -q "$MNT"; do umount "$MNT" || sleep 0.2; done
	for device in "$WORK"/loops/*; do [ ! -e "$device" ] || losetup -d "/dev/${device##*/}"; done
	rm -rf --one-file-system "$WORK"
	exit $rc
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Servers of a benchmark.
declare -A RUNNING=()
begin() { # LOG COMMAND...: its process id is in SERVER
	local log=$1
	shift
	"$@" >"$log" 2>&1 &
	SERVER=$!
	RUNNING[$SERVER]=1
}
end() { # PID [SIGNAL]
	kill "${2:--TERM}" "$1"
	wait "$1" 2>/dev/null || true
	unset "RUNNING[$1]"
}
end_begun() { # whatever was begun and not ended
	local pid
	for pid in "${!RUNNING[@]}"; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	RUNNING=()
}
wait_for() { # COMMAND...: until it is true, for five minutes
	local end=$((SECONDS + 300))
	until "$@" >/dev/null 2>&1; do
		if [ "$SECONDS" -ge "$end" ]; then
			echo "$BENCH: timed out waiting for: $*" >&2
			tail -n 3 "$WORK"/*.log >&2
			exit 1
		fi
		sleep 0.02
	done
}

# boot DRIVE: boots the drive in QEMU (emulated) until the catalog's marker. $BOOTED is the time in seconds
boot() {
	local start=$SECONDS machine
	# The marker of the boot before must not count.
	rm -f "$WORK/console"
	begin "$WORK/console" qemu-system-x86_64 -accel tcg -cpu qemu64,-cx16 -M q35 -m 1024 -nodefaults -no-reboot -nographic -serial stdio \
		-net none -drive "$1,if=virtio"
	machine=$SERVER
	until grep -qs PLATTER-BOOT-OK "$WORK/console"; do
		if [ $((SECONDS - start)) -gt 420 ] || ! kill -0 "$machine" 2>/dev/null; then
			echo "$BENCH: no boot from $1" >&2
			tail -n 5 "$WORK/console" >&2
			exit 1
		fi
		sleep 0.5
	done
	# shellcheck disable=SC2034  # the benchmarks use it
	BOOTED=$((SECONDS - start))
	end "$machine"
}

platter() { "$PLATTER" --store "$STORE" --quiet "$@"; }
platter_json() { "$PLATTER" --store "$STORE" --quiet --json "$@"; }
new_store() { rm -rf "$STORE" && platter init >/dev/null; }

# attach FILE [LOSETUP-OPTION...]: creates a loop device, $DEVICE
attach() {
	local file=$1
	shift
	DEVICE=$(losetup --find --show "$@" "$file")
	: >"$WORK/loops/${DEVICE##*/}"
}
detach() {
	losetup -d "$1"
	rm -f "$WORK/loops/${1##*/}"
}

# timed SERIES COMMAND...: runs it once and adds its seconds to the series
timed() {
	local series=$1 start
	shift
	start=$EPOCHREALTIME
	"$@" >"$WORK/output" 2>&1 || { echo "$BENCH: failed: $*" >&2; tail -n 5 "$WORK/output" >&2; exit 1; }
	awk -v start="$start" -v end="$EPOCHREALTIME" 'BEGIN { printf "%.4f\n", end - start }' >>"$WORK/times/$series"
}
# median NAME: prints the median of a series
median() { sort -g "$WORK/times/$1" | awk '{ value[NR] = $1 } END { printf "%.3f", NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'; }
spread() { sort -g "$WORK/times/$1" | awk 'NR == 1 { low = $1 } { high = $1 } END { printf "%.2f-%.2f", low, high }'; }
# calculate EXPRESSION: evaluates it with awk, three digits
calculate() { awk "BEGIN { printf \"%.3f\", $1 }"; }
# result WHAT VALUE [LIMIT]: prints one line of results
result() {
	printf '%-58s %14s   %s\n' "$1" "$2" "${3:-}"
	[ -z "${BENCH_RESULTS:-}" ] || printf '%s\t%s\t%s\n' "$HEADING" "$1" "$2" >>"$BENCH_RESULTS"
}
# line NAME BYTES: prints median, spread and speed of a series
line() { result "$1" "$(median "$1") s" "$(spread "$1") s, $(calculate "$2 / $(median "$1") / 1e6") MB/s"; }
HEADING=
heading() {
	HEADING=$*
	printf '\n%s (%d runs, medians)\n' "$*" "$RUNS"
}

# peak_mib COMMAND...: prints its peak resident set in MiB
peak_mib() {
	/usr/bin/time -f '%M' -o "$WORK/peak" "$@" >"$WORK/output" 2>&1 || { tail -n 5 "$WORK/output" >&2; exit 1; }
	tail -n 1 "$WORK/peak" | awk '{ printf "%d", $1 / 1024 }'
}

# example CRATE NAME: builds an example program and sets $EXAMPLE to its path
example() {
	if [ -n "${BENCH_EXAMPLES:-}" ]; then
		EXAMPLE=$BENCH_EXAMPLES/$2
		[ -x "$EXAMPLE" ] || { echo "$BENCH: no program at $EXAMPLE" >&2; exit 1; }
		return
	fi
	cargo build --quiet --release --manifest-path "$ROOT/Cargo.toml" --package "$1" --example "$2"
	# shellcheck disable=SC2034  # the benchmarks use it
	EXAMPLE=${CARGO_TARGET_DIR:-$ROOT/target}/release/examples/$2
}

# images CATALOG-DIR: prints its disks in order of creation
images() {
	local name
	[ -f "$1/catalog.tsv" ] || { echo "$BENCH: no catalog.tsv in $1: build it with catalog/make-catalog" >&2; exit 1; }
	tail -n +2 "$1/catalog.tsv" | sort -n | cut -f 2 | while read -r name; do echo "$1/$name.raw"; done
}

# ext4_parts DISK: prints "offset length" of its ext4 partitions
ext4_parts() {
	sfdisk -J "$1" | jq -r '.partitiontable.partitions[] | "\(.start * 512) \(.size * 512)"' | while read -r offset length; do
		[ "$(blkid -p -O "$offset" -S "$length" -o value -s TYPE "$1" 2>/dev/null)" != ext4 ] || echo "$offset $length"
	done
}

# allocated_bytes DISK: writes the allocated blocks of its ext4 partitions to standard output
allocated_bytes() {
	local offset length
	ext4_parts "$1" | while read -r offset length; do
		dumpe2fs "$1?offset=$offset" 2>/dev/null | perl -e '
			my ($file, $base) = @ARGV; my ($block, $total, @free) = (0, 0);
			while (<STDIN>) {
				$block = $1 if /^Block size:\s+(\d+)/;
				$total = $1 if /^Block count:\s+(\d+)/;
				if (s/^  Free blocks: *//) { for (split /, */) { /(\d+)(?:-(\d+))?/ and push @free, [$1, $2 // $1] } }
			}
			open my $in, "<:raw", $file or die; binmode STDOUT; my $at = 0;
			for my $run ((sort { $a->[0] <=> $b->[0] } @free), [$total, $total]) {
				my $left = ($run->[0] - $at) * $block; sysseek $in, $base + $at * $block, 0;
				while ($left > 0) { my $n = sysread $in, my $data, $left < 1048576 ? $left : 1048576; last unless $n; print $data; $left -= $n }
				$at = $run->[1] + 1;
			}' "$1" "$offset"
	done
}
