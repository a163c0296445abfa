#!/usr/bin/env bash
# tests/upgrade.sh: a node is replaced repeatedly while `fio --verify` writes and reads one disk over NBD and another
# over FUSE. No request may fail and no byte may be wrong; the longest duration of a request is printed. A successor
# with other addresses is refused without consequences. A client that reconnects to a node after a kill finds all its
# writes.
. "$(dirname "$0")/lib.sh"

need_root "mounting the tree" || { finish; exit 0; }
case ${PLATTER_SIZE:-quick} in full) rounds=20 ;; *) rounds=4 ;; esac
ORIGIN=
NODE=
SOCKET=$WORK/origin.sock
CACHE=$WORK/cache
TREE=$WORK/tree
mkdir "$TREE"
suite_cleanup() {
	local process
	for process in $ORIGIN $NODE $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
	umount -l "$TREE" 2>/dev/null
}

# until_true SECONDS COMMAND...
until_true() {
	local tries=$(($1 * 20))
	shift
	until "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.05
	done
}
afar() { "$PLATTER" --server "unix:$SOCKET" --quiet "$@"; }
served_by() { "$PLATTER" --json disks --node "$CACHE" | jq -es --argjson process "$1" 'map(.process) | unique == [$process]'; }
# node ARGUMENT...: starts the node in the background, and waits until it serves the disks
node() {
	"$PLATTER" node --no-hoard --origin "unix:$SOCKET" --cache "$CACHE" --fuse "$TREE" "$@" >>"$WORK/node.log" 2>&1 &
	NODE=$!
	until_true 60 served_by "$NODE" || { tail -n 20 "$WORK/node.log"; return 1; }
}
# replace: a successor takes over; the previous process ends by itself and reports success
replace() {
	local before=$NODE
	node --take-over && wait "$before"
}
# load NAME ARGUMENT...: starts fio in the background, and waits until a file exists; its report is in NAME.json
load() {
	local name=$1
	shift
	fio --name="$name" --rw=randrw --bs=4k-64k --size=16M --verify=crc32c --verify_backlog=64 --verify_fatal=1 --iodepth=8 \
		--time_based --runtime=$((rounds * 4 + 10)) --output-format=json --output="$WORK/$name.json" "$@" >"$WORK/$name.log" 2>&1
}
longest_ms() { jq '[.jobs[] | .read.clat_ns.max, .write.clat_ns.max] | max / 1e6 | floor' "$WORK/$1.json"; }
has_no_error() { jq -e '[.jobs[].error] | all(. == 0)' "$WORK/$1.json" && ! grep -i "verify: bad\|io_u error" "$WORK/$1.log"; }

random 33554432 nbd >"$WORK/nbd"
random 33554432 fuse >"$WORK/fuse"
platter init
platter capture --raw "$WORK/nbd" lab/nbd >/dev/null
platter capture --raw "$WORK/fuse" lab/fuse >/dev/null
"$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" >>"$WORK/origin.log" 2>&1 &
ORIGIN=$!
until_true 30 afar images

node lab/nbd lab/fuse --write --take-over
ok "a successor starts even if no node runs"
load nbd --ioengine=nbd --uri="nbd+unix:///lab/nbd?socket=$CACHE/nbd.sock" &
over_nbd=$!
load fuse --ioengine=psync --filename="$TREE/lab/fuse/live.raw" &
over_fuse=$!
for ((round = 1; round <= rounds; round++)); do
	sleep 1
	check "replaced under load: $round" replace
done
check_exit "$EXIT_REFUSED" "a successor without the mount is refused" \
	"$PLATTER" node --no-hoard --origin "unix:$SOCKET" --cache "$CACHE" --take-over
check "and the node still serves" served_by "$NODE"
check "fio over NBD succeeds" wait "$over_nbd"
check "no request over NBD failed, and no byte was wrong" has_no_error nbd
check "fio over FUSE succeeds" wait "$over_fuse"
check "no request over FUSE failed, and no byte was wrong" has_no_error fuse
echo "# the longest request took $(longest_ms nbd) ms over NBD, $(longest_ms fuse) ms over FUSE"

# A client that reconnects continues.
mkfifo "$WORK/commands"
qemu-io --image-opts "driver=nbd,server.type=unix,server.path=$CACHE/nbd.sock,export=lab/nbd,reconnect-delay=60" \
	<"$WORK/commands" >"$WORK/qemu-io.log" 2>&1 &
client=$!
exec 9>"$WORK/commands"
echo "write -P 113 1M 300k" >&9
until_true 30 grep -q "wrote 307200" "$WORK/qemu-io.log"
kill -KILL "$NODE"
wait "$NODE" 2>/dev/null || true
echo "read -P 113 1M 300k" >&9
node
echo "quit" >&9
exec 9>&-
check "a client that reconnects after a crash continues" wait "$client"
check "and finds its writes" grep -q "read 307200/307200" "$WORK/qemu-io.log"
check "with all bytes right" bash -c '! grep -iq "verification failed\|error" "$1"' _ "$WORK/qemu-io.log"
finish
