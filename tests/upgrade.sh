#!/usr/bin/env bash
# tests/upgrade.sh: a node, and then its server, are replaced again and again while `fio --verify` writes and reads a disk over NBD and
# another over FUSE, and a guest of QEMU a third (full, or where PLATTER_GUEST_PACKAGES names unpacked packages: guest.sh). No request fails
# and no byte is wrong; the longest time that a request took is printed. A successor that could not serve what the node serves is refused,
# and the node goes on. A node that is killed loses nothing of what a client that connects again wrote, and a guest goes on.
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/guest.sh
. "$TESTS/guest.sh"

need_root "mounting the tree" || { finish; exit 0; }
case ${PLATTER_SIZE:-quick} in full) rounds=20 ;; *) rounds=4 ;; esac
has_guest() { [ "${PLATTER_SIZE:-quick}" = full ] || [ -n "${PLATTER_GUEST_PACKAGES:-}" ]; }
if has_guest && ! has_guest_programs; then
	has_guest() { false; }
fi
GUEST=
NODE=
TENANT=
OTHER=
REPLACED=()
CACHE=$WORK/cache
TREE=$WORK/tree
mkdir "$TREE"
suite_cleanup() {
	local process
	for process in $GUEST $ORIGIN $OTHER $NODE $TENANT $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
	umount -l "$TREE" 2>/dev/null
}

served_by() { "$PLATTER" --json disks --node "$CACHE" | jq -es --argjson process "$1" 'map(.process) | unique == [$process]'; }
# node ARGUMENT...: starts the node in the background, and waits until it serves the disks
node() {
	"$PLATTER" node --no-hoard --origin "unix:$SOCKET" --cache "$CACHE" --fuse "$TREE" "$@" >>"$WORK/node.log" 2>&1 8<&- 9<&- &
	NODE=$!
	until_true 60 served_by "$NODE" || { tail -n 20 "$WORK/node.log"; return 1; }
}
# replace: a successor takes over; the previous process ends by itself and reports success
replace() {
	local before=$NODE
	node --take-over && wait "$before"
}
# A server that was replaced ends when its clients have left its connections, or these were idle for a while.
replace_server() {
	REPLACED+=("$ORIGIN")
	: >"$WORK/successor.log"
	"$PLATTER" --store "$STORE" serve --take-over --listen "unix:$SOCKET" --listen "127.0.0.1:$PORT" >"$WORK/successor.log" 2>&1 &
	ORIGIN=$!
	until_true 60 grep -q '^fingerprint ' "$WORK/successor.log"
}
replaced_servers_ended_well() {
	local process
	for process in "${REPLACED[@]}"; do wait "$process" || return 1; done
}
# load NAME ARGUMENT...: fio in the background, until it is told to end; its report is in NAME.json
load() {
	local name=$1
	shift
	exec fio --name="$name" --rw=randrw --bs=4k-64k --size=16M --verify=crc32c --verify_backlog=64 --verify_fatal=1 \
		--verify_state_save=0 --iodepth=8 --time_based --runtime=1h --output-format=json --output="$WORK/$name.json" "$@" >"$WORK/$name.log" 2>&1
}
# ends_well PROCESS: it runs still, and ends when it is told to
ends_well() {
	local code=0
	kill -INT "$1" || return 1
	wait "$1" || code=$?
	# This is what fio says of that signal.
	[ "$code" = 0 ] || [ "$code" = 128 ]
}
# What fio says of the signal comes before its report.
report() { sed -n '/^{/,$p' "$WORK/$1.json"; }
longest_ms() { report "$1" | jq '[.jobs[] | .read.clat_ns.max, .write.clat_ns.max] | max / 1e6 | floor'; }
# What the guest does: each round checks half a MiB that it wrote 32 rounds ago, and writes and reads it anew.
guest_init() {
	guest_begins
	cat <<-'EOF'
		echo
		now() { cut -d' ' -f1 /proc/uptime | tr -d .; }
		read_back() { dd if=/dev/vda of=/back bs=64k skip=$((place * 8)) count=8 iflag=direct 2>/dev/null; }
		dd if=/dev/urandom of=/random bs=64k count=8 2>/dev/null
		number=0
		longest=0
		while true; do
			place=$((number % 32))
			start=$(now)
			if [ -e /sum-$place ]; then
				read_back && md5sum -cs /sum-$place || echo "RESULT error before $number"
			fi
			(echo $number && cat /random) | head -c 524288 >/block
			dd if=/block of=/dev/vda bs=64k seek=$((place * 8)) oflag=direct conv=notrunc 2>/dev/null || echo "RESULT error write $number"
			read_back && cmp /block /back || echo "RESULT error read $number"
			time=$((($(now) - start) * 10))
			[ $time -le $longest ] || longest=$time
			md5sum /back >/sum-$place
			number=$((number + 1))
			echo "RESULT round $number longest $longest"
		done
	EOF
}
start_guest() {
	(guest 7200 -drive "file.driver=nbd,file.server.type=unix,file.server.path=$CACHE/nbd.sock,file.export=lab/guest,file.reconnect-delay=60,format=raw,if=virtio,cache=none") \
		>"$WORK/console" 2>&1 &
	GUEST=$!
	until_true 420 guest_is_past 40
}
guest_said() { tr -d '\r' <"$WORK/console" | sed -n 's/^RESULT //p'; }
# A line that is not whole yet does not count.
guest_round() { guest_said | awk 'NF == 4 { number = $2 } END { print number + 0 }'; }
guest_longest_ms() { guest_said | awk 'NF == 4 { longest = $4 } END { print longest + 0 }'; }
guest_is_past() { [ "$(guest_round)" -gt "$1" ]; }
guest_goes_on() { until_true 120 guest_is_past "$(($(guest_round) + 3))"; }
guest_has_no_error() { guest_is_past 0 && ! grep -aE '^RESULT error|I/O error|Kernel panic' "$WORK/console"; }
has_no_error() { report "$1" | jq -e '[.jobs[].error] | all(. == 0)' && ! grep -i "verify: bad\|io_u error" "$WORK/$1.log"; }

random 33554432 nbd >"$WORK/nbd"
random 33554432 fuse >"$WORK/fuse"
platter init
platter capture --raw "$WORK/nbd" lab/nbd >/dev/null
platter capture --raw "$WORK/fuse" lab/fuse >/dev/null
platter clone lab/nbd lab/shown >/dev/null
platter clone lab/nbd lab/gone >/dev/null
platter clone lab/nbd lab/guest >/dev/null
start_origin

node lab/nbd lab/fuse lab/guest --write --take-over
ok "where no node runs, one that would take over begins"
if has_guest; then
	check "the kernel's and busybox's packages are here" fetch_packages
	check "an initramfs is made" make_initramfs virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk
	check "a guest boots, writes and reads" start_guest
	echo "# before: the guest's longest round took $(guest_longest_ms) ms"
fi
load nbd --ioengine=nbd --uri="nbd+unix:///lab/nbd?socket=$CACHE/nbd.sock" &
over_nbd=$!
load fuse --ioengine=psync --filename="$TREE/lab/fuse/live.raw" &
over_fuse=$!
# A program has files open whose disk is detached, and whose version is forgotten.
check "a disk that will be gone" "$PLATTER" attach lab/gone --node "$CACHE"
exec 8<"$TREE/lab/gone/live.raw" 9<"$TREE/lab/gone/1.raw"
check "it is detached while its file is open" "$PLATTER" detach lab/gone --node "$CACHE"
platter forget lab/gone --all >/dev/null
for ((round = 1; round <= rounds; round++)); do
	sleep 1
	check "the node is replaced under load: $round" replace
	sleep 1
	check "the server is replaced under load: $round" replace_server
	! has_guest || check "the guest goes on" guest_goes_on
done
check "every server that was replaced has ended well" replaced_servers_ended_well
check_exit "$EXIT_REFUSED" "a successor without the mount is refused" \
	"$PLATTER" node --no-hoard --origin "unix:$SOCKET" --cache "$CACHE" --take-over
check "and the node goes on" served_by "$NODE"
check "fio over NBD ends well" ends_well "$over_nbd"
check "no request over NBD failed, and no byte was wrong" has_no_error nbd
check_exit 1 "the open file of the detached disk cannot be read" dd bs=4k count=1 status=none <&8
check_said "it is stale" 'Stale file handle'
check_exit 1 "nor that of the forgotten version" dd bs=4k count=1 status=none <&9
check_said "it is stale, too" 'Stale file handle'
exec 8<&- 9<&-
check "fio over FUSE ends well" ends_well "$over_fuse"
check "no request over FUSE failed, and no byte was wrong" has_no_error fuse
echo "# the longest request took $(longest_ms nbd) ms over NBD, $(longest_ms fuse) ms over FUSE"
if has_guest; then
	check "the guest met no error" guest_has_no_error
	echo "# of the guest's $(guest_round) rounds of 1 to 1.5 MiB, the longest took $(guest_longest_ms) ms"
	kill -KILL "$NODE"
	wait "$NODE" 2>/dev/null || true
	umount -l "$TREE" || true
	node
	check "the node is killed under the guest and started again, and the guest goes on" guest_goes_on
	check "and met no error" guest_has_no_error
	kill "$GUEST"
	wait "$GUEST" 2>/dev/null || true
fi

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
# What only concerns this machine: the running node is asked for nothing.
python3 -c 'import socket, sys, time
taken = socket.create_server(("127.0.0.1", 0))
print(taken.getsockname()[1], flush=True)
time.sleep(3600)' >"$WORK/taken" &
TAKEN=$!
until_true 30 test -s "$WORK/taken"
refused "$EXIT_REFUSED" "an address for peers that another process uses" 'in use' --peers "127.0.0.1:$(cat "$WORK/taken")"
kill "$TAKEN"
refused "$EXIT_MISSING" "certificates that do not exist" nonexistent --tls-certificates "$WORK/nonexistent"
refused "$EXIT_REFUSED" "a cache that is too small" 'too small' --cache-size 1M
RUN=(timeout 30 prlimit --nofile=24)
refused "$EXIT_REFUSED" "too few open files" 'ulimit -n'
RUN=(timeout 30 prlimit --as=409600000)
refused "$EXIT_REFUSED" "too little memory" 'ulimit -v'
RUN=(timeout 30)
"$PLATTER" --store "$WORK/other" --quiet init >/dev/null
"$PLATTER" --store "$WORK/other" serve --listen "unix:$WORK/other.sock" >"$WORK/other.log" 2>&1 &
OTHER=$!
until_true 30 test -S "$WORK/other.sock"
AT=unix:$WORK/other.sock refused "$EXIT_REFUSED" "an origin of another store" store
# While the origin is away, nothing can be asked: then only the same origin and access token will do.
stop_origin KILL
SECRET=${SECRET%?}x refused "$EXIT_REFUSED" "the origin is away, and the access token is another one" 'cannot be reached'
before=$TENANT
(RUN=(exec) && tenant --peers 127.0.0.1:0 --take-over) >>"$WORK/tenant.log" 2>&1 &
TENANT=$!
check "the origin is away, and the same node takes over" eval 'until_true 60 serves_tenant && wait "$before"'
start_origin

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
