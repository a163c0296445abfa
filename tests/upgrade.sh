#!/usr/bin/env bash
# tests/upgrade.sh: a node is replaced again and again while `fio --verify` writes and reads a disk over NBD and another over
# FUSE. No request fails and no byte is wrong; the longest time that a request took is printed. A successor that could not serve
# what the node serves is refused, and the node goes on. A node that is killed loses nothing of what a client that connects again wrote.
. "$(dirname "$0")/lib.sh"

need_root "mounting the tree" || { finish; exit 0; }
case ${PLATTER_SIZE:-quick} in full) rounds=20 ;; *) rounds=4 ;; esac
NODE=
TENANT=
OTHER=
CACHE=$WORK/cache
TREE=$WORK/tree
mkdir "$TREE"
suite_cleanup() {
	local process
	for process in $ORIGIN $OTHER $NODE $TENANT $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
	umount -l "$TREE" 2>/dev/null
}

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
	fio --name="$name" --rw=randrw --bs=4k-64k --size=16M --verify=crc32c --verify_backlog=64 --verify_fatal=1 --verify_state_save=0 --iodepth=8 \
		--time_based --runtime=$((rounds * 4 + 10)) --output-format=json --output="$WORK/$name.json" "$@" >"$WORK/$name.log" 2>&1
}
longest_ms() { jq '[.jobs[] | .read.clat_ns.max, .write.clat_ns.max] | max / 1e6 | floor' "$WORK/$1.json"; }
has_no_error() { jq -e '[.jobs[].error] | all(. == 0)' "$WORK/$1.json" && ! grep -i "verify: bad\|io_u error" "$WORK/$1.log"; }

random 33554432 nbd >"$WORK/nbd"
random 33554432 fuse >"$WORK/fuse"
platter init
platter capture --raw "$WORK/nbd" lab/nbd >/dev/null
platter capture --raw "$WORK/fuse" lab/fuse >/dev/null
platter clone lab/nbd lab/shown >/dev/null
start_origin

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

# What a successor checks while the node still serves. This node shares with peers, and its token is for some images.
FINGERPRINT=$(origin_fingerprint)
SECRET=$(origin_secret write 'lab/*')
# tenant OPTION...: the program runs as $RUN says
RUN=(timeout 30)
AT=https://127.0.0.1:$PORT
tenant() {
	PLATTER_TOKEN=$SECRET "${RUN[@]}" "$PLATTER" --fingerprint "$FINGERPRINT" node --no-hoard --origin "$AT" \
		--cache "$WORK/tenant" "$@"
}
(RUN=(exec) && tenant --peers 127.0.0.1:0 lab/shown) >"$WORK/tenant.log" 2>&1 &
TENANT=$!
serves_tenant() { "$PLATTER" --json disks --node "$WORK/tenant" | jq -es --argjson process "$TENANT" 'map(.process) == [$process]'; }
check "a tenant's node serves a disk" until_true 60 serves_tenant
# refused CODE NAME WORDS OPTION...: such a successor ends with that code and these words, and the node goes on
refused() {
	local code=$1 name=$2 words=$3
	shift 3
	check_exit "$code" "$name: refused" tenant --take-over "$@"
	check_said "which says why" "$words"
	check "and the node goes on" serves_tenant
}
FINGERPRINT=$(printf '0%.0s' {1..64}) refused "$EXIT_REFUSED" "the origin has another certificate" certificate
SECRET=${SECRET%?}x refused "$EXIT_REFUSED" "the origin does not know the access token" token
SECRET=$(origin_secret write 'lab/shown') refused "$EXIT_REFUSED" "a token of another sharing group" 'another access token|another group' --peers 127.0.0.1:0
SECRET=$(origin_secret write 'other/*') refused "$EXIT_REFUSED" "a token that does not cover the node's disk" 'does not cover lab/shown'
refused "$EXIT_MISSING" "a version that does not exist" lab/none lab/none
refused "$EXIT_REFUSED" "another address" 'the same addresses' --nbd "$WORK/elsewhere.sock"
"$PLATTER" --store "$WORK/other" --quiet init >/dev/null
"$PLATTER" --store "$WORK/other" serve --listen "unix:$WORK/other.sock" >"$WORK/other.log" 2>&1 &
OTHER=$!
until_true 30 test -S "$WORK/other.sock"
AT=unix:$WORK/other.sock refused "$EXIT_REFUSED" "an origin of another store" store

# A client that connects again goes on where it was.
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
