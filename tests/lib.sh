#!/usr/bin/env bash
# Sourced by every end-to-end suite: `. "$(dirname "$0")/lib.sh"`. It owns the work directory, counts checks, and calls
# the binary. A suite ends with `finish`, which prints "N passed, N failed".
#
#   PLATTER          the binary under test (default: target/release/platter)
#   PLATTER_SCRATCH  parent of work directories (default: $TMPDIR)
#   PLATTER_SEED     seed of all random choices (default: 1); printed, so that a failure can be reproduced
set -euo pipefail

TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$TESTS/.." && pwd)
SUITE=$(basename "$0" .sh)
export LC_ALL=C.UTF-8 PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
PLATTER=${PLATTER:-${CARGO_TARGET_DIR:-$ROOT/target}/release/platter}
SEED=${PLATTER_SEED:-1}
[ -x "$PLATTER" ] || { echo "$SUITE: no binary at $PLATTER: run \`make build\`" >&2; exit 1; }

# Exit codes of the command line, as documented by `platter help`.
# shellcheck disable=SC2034  # the suites use them
readonly EXIT_FAILED=1 EXIT_USAGE=2 EXIT_MISSING=3 EXIT_CORRUPT=4 EXIT_REFUSED=5 EXIT_DIFFERENT=6

# A mount namespace of its own: no mount outlives a suite.
if [ "$(id -u)" = 0 ] && [ "${PLATTER_TEST_NAMESPACE:-}" != "$SUITE" ]; then
	exec env PLATTER_TEST_NAMESPACE="$SUITE" unshare --mount --propagation private -- "$BASH" "$0" "$@"
fi

WORK=$(mktemp -d "${PLATTER_SCRATCH:-${TMPDIR:-/tmp}}/platter-$SUITE.XXXXXX")
STORE=$WORK/store
# Local overlays and other data for the stores of origins.
export XDG_STATE_HOME=$WORK/state
# What this machine trusts must not decide what the suites may install.
export PLATTER_TRUSTED_KEYS=$WORK/trusted-keys
MNT=$WORK/mnt
LOG=$WORK/log
mkdir "$MNT" "$WORK/loops"
PASSED=0
FAILED=0

cleanup() {
	local rc=$? device
	set +e
	! type -t suite_cleanup >/dev/null || suite_cleanup
	while mountpoint -q "$MNT"; do umount "$MNT" || sleep 0.2; done
	for device in "$WORK"/loops/*; do
		[ ! -e "$device" ] || detach_loop "/dev/${device##*/}"
	done
	rm -rf --one-file-system "$WORK"
	exit $rc
}
trap cleanup EXIT
trap 'exit 130' INT TERM

ok() {
	PASSED=$((PASSED + 1))
	echo "ok $SUITE: $*"
}

# not_ok NAME: records a failure and shows the end of the log
not_ok() {
	FAILED=$((FAILED + 1))
	echo "not ok $SUITE: $*"
	[ ! -s "$LOG" ] || tail -n 12 "$LOG" | sed 's/^/    /'
}

skip() { echo "SKIP $SUITE: $*"; }

# check NAME COMMAND...: the command must succeed
check() {
	local name=$1
	shift
	if "$@" >"$LOG" 2>&1; then ok "$name"; else not_ok "$name"; fi
}

# check_exit CODE NAME COMMAND...: the command must end with this exit code, and print a message if it fails
check_exit() {
	local wanted=$1 name=$2 code=0
	shift 2
	"$@" >"$LOG" 2>&1 || code=$?
	if [ "$code" != "$wanted" ]; then
		echo "exit code $code, wanted $wanted: $*" >>"$LOG"
		not_ok "$name"
	elif [ "$wanted" != 0 ] && [ ! -s "$LOG" ]; then
		not_ok "$name (exit code $code, but no message)"
	else
		ok "$name"
	fi
}

# said PATTERN: the last checked command must have printed this (extended regular expression)
said() { grep -qiE -- "$1" "$LOG"; }

check_said() {
	if said "$2"; then ok "$1"; else not_ok "$1 (the output does not match /$2/)"; fi
}

# offers_only_its_own COMMAND NAME: every option named in the last message must be an option of the command
offers_only_its_own() {
	local help option strange=''
	help=$("$PLATTER" "$1" --help)
	while read -r option; do
		grep -qE -- "$option( |$)" <<<"$help" || strange+=" $option"
	done < <(grep -oE -- '--[a-z][a-z-]+' "$LOG")
	if [ -z "$strange" ]; then ok "$2"; else not_ok "$2: it suggests options of other commands:$strange"; fi
}

finish() {
	echo "$SUITE: $PASSED passed, $FAILED failed"
	[ "$FAILED" = 0 ]
}

need_root() {
	[ "$(id -u)" = 0 ] && return 0
	skip "$1 needs root"
	return 1
}

# need_namespaces ARGUMENT...: without root, the suite with these arguments begins again as the root of namespaces of its own. If it may make
# none, it ends.
need_namespaces() {
	[ "$(id -u)" != 0 ] || return 0
	if ! unshare --user --map-root-user --net true 2>/dev/null; then
		skip "a room needs root or user namespaces"
		finish
		exit 0
	fi
	rm -rf "$WORK"
	exec unshare --user --map-root-user --net --mount "$BASH" "$0" "$@"
}

# until_true SECONDS COMMAND...: repeats the command until it succeeds, for at most that long
until_true() {
	local tries=$(($1 * 20))
	shift
	until "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.05
	done
}

platter() { "$PLATTER" --store "$STORE" --quiet "$@"; }
platter_json() { "$PLATTER" --store "$STORE" --quiet --json "$@"; }

# attach FILE [LOSETUP-OPTION...]: creates a loop device, $DEVICE; detached at the end, also when called in a subshell
attach() {
	local file=$1
	shift
	DEVICE=$(losetup --find --show "$@" "$file")
	: >"$WORK/loops/${DEVICE##*/}"
	# The kernel keeps partitions that somebody else added to the device of this number.
	[ ! -e "${DEVICE}p1" ] || partx -d "$DEVICE" 2>/dev/null || true
}

# Detaches only devices that are still ours: numbers of loop devices are reused.
detach_loop() {
	[ -e "$WORK/loops/${1##*/}" ] || return 0
	[ ! -e "${1}p1" ] || partx -d "$1" 2>/dev/null || true
	losetup -d "$1" || true
	rm -f "$WORK/loops/${1##*/}"
}

# random BYTES KEY: prints incompressible bytes, the same in every run
random() {
	local key
	key=$(printf %s "$2" | md5sum | cut -c1-32)
	head -c "$1" /dev/zero | openssl enc -aes-128-ctr -K "$key" -iv "$key" -nosalt
}

# damage_pack FILE OFFSET: damages the only pack of $STORE that contains the 64 bytes of FILE at OFFSET, in these
damage_pack() {
	python3 - "$STORE/packs" "$@" <<-'END'
		import pathlib, sys
		at = int(sys.argv[3])
		wanted = open(sys.argv[2], 'rb').read()[at:at + 64]
		damaged = 0
		for pack in pathlib.Path(sys.argv[1]).rglob('*.pack'):
		    place = pack.read_bytes().find(wanted)
		    if place >= 0:
		        pack.chmod(0o600)
		        with pack.open('r+b') as file:
		            file.seek(place)
		            file.write(b'damaged!')
		        damaged += 1
		assert damaged == 1, damaged
	END
}

# number KEY LIMIT: prints a number below LIMIT, derived from the seed and a key
number() { echo $((0x$(printf '%s %s' "$SEED" "$1" | md5sum | cut -c1-12) % $2)); }

# file_tree DIR MIB KEY: creates about MIB of files: text, random data, many small ones
file_tree() {
	local dir=$1 mib=$2 key=$3 n
	mkdir -p "$dir/many"
	for n in $(seq 100); do printf '%s %d\n%s\n' "$key" "$n" "$(seq "$n")" >"$dir/many/$n.txt"; done
	for n in $(seq $((mib / 2))); do random 1048576 "$key $n" >"$dir/random-$n.bin"; done
	seq $((mib * 65000)) >"$dir/numbers.txt"
}

# ext4_image FILE MIB TREE: creates an unpartitioned ext4 image with a file tree; needs no root
ext4_image() {
	rm -f "$1"
	truncate -s "${2}M" "$1"
	mke2fs -q -t ext4 -d "$3" "$1"
}

# start_server ARGUMENT...: runs `platter attach` in the background and waits until the disk is attached; sets SERVER to its process id
start_server() {
	local tries=0
	: >"$WORK/server.log"
	"$PLATTER" --store "$STORE" attach "$@" >"$WORK/server.log" 2>&1 &
	SERVER=$!
	until grep -q '^score ' "$WORK/server.log"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 600 ] || ! kill -0 "$SERVER" 2>/dev/null; then
			cat "$WORK/server.log"
			SERVER=
			return 1
		fi
		sleep 0.05
	done
}
# stop SIGNAL: ends the server and waits for it
stop() {
	kill "-$1" "$SERVER"
	wait "$SERVER" 2>/dev/null || true
	SERVER=
}

# boots_to_marker FILE-OR-URI: boots it in QEMU (emulated) until the marker of the catalog's disks; its writes are discarded
boots_to_marker() {
	local tries=0 machine
	: >"$WORK/console"
	qemu-system-x86_64 -accel tcg -cpu qemu64,-cx16 -M q35 -m 1024 -nodefaults -no-reboot -nographic -serial stdio -net none \
		-snapshot -drive "file=$1,format=raw,if=virtio" >"$WORK/console" 2>&1 </dev/null &
	machine=$!
	until grep -q PLATTER-BOOT-OK "$WORK/console"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 600 ] || ! kill -0 "$machine" 2>/dev/null; then
			tail -n 30 "$WORK/console"
			kill -KILL "$machine" 2>/dev/null || true
			return 1
		fi
		sleep 1
	done
	kill "$machine"
	wait "$machine" || true
}

# start_origin: runs `platter serve` at unix:$SOCKET and 127.0.0.1:$PORT and waits until it answers; sets ORIGIN to its process id.
# Then `afar` and `afar_tls` (with TOKEN and FINGERPRINT) run `platter` on the store of that origin.
ORIGIN=
SOCKET=$WORK/origin.sock
PORT=$((20000 + SRANDOM % 12000))
start_origin() {
	local tries=0
	"$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" --listen "127.0.0.1:$PORT" >>"$WORK/origin.log" 2>&1 &
	ORIGIN=$!
	until afar images >/dev/null 2>&1; do
		tries=$((tries + 1))
		if [ "$tries" -gt 600 ] || ! kill -0 "$ORIGIN" 2>/dev/null; then
			cat "$WORK/origin.log"
			return 1
		fi
		sleep 0.05
	done
}
stop_origin() {
	kill "-$1" "$ORIGIN"
	wait "$ORIGIN" 2>/dev/null || true
	ORIGIN=
}
# origin_secret ROLE [PATTERN]: creates an access token and prints its secret
origin_secret() { platter_json serve token add "tests $1 $SRANDOM" --role "$1" --images "${2:-*}" | jq -r .secret; }
origin_fingerprint() { openssl s_client -connect "127.0.0.1:$PORT" </dev/null 2>/dev/null | openssl x509 -outform DER | sha256sum | cut -d' ' -f1; }
afar() { "$PLATTER" --server "unix:$SOCKET" --quiet "$@"; }
afar_tls() { PLATTER_TOKEN=$TOKEN "$PLATTER" --server "https://127.0.0.1:$PORT" --fingerprint "$FINGERPRINT" --quiet "$@"; }
