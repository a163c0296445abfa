#!/usr/bin/env bash
# tests/agent.sh: one node serves a whole host. Many disks, read-only and writable, over NBD, FUSE and 9P, with peers
# (one of which lies) and a hoard, are read and written while the origin is killed and restarted and the node is killed
# and restarted; then all are published. No byte may be wrong, every acknowledged publish must be at the origin, and the
# number of threads stays bounded. At full size, two more disks are booted, and one of these boots is replayed. Then
# combinations of options: each works, or is refused with the reason. PLATTER_SEED selects places and bytes.
. "$(dirname "$0")/lib.sh"

need_root "mounting the tree" || { finish; exit 0; }
# At full size, two of the writable disks are booted by QEMU, one over NBD and one over FUSE. One of these boots is recorded, and
# replayed on further clones of the disk: over NBD on those with even numbers, over FUSE on the others.
case ${PLATTER_SIZE:-quick} in
full) disks=100 machines=(nbd fuse) replays=(0 1 2 3) meanwhile=', while boots are replayed on others' ;;
*) disks=50 machines=() replays=() meanwhile= ;;
esac
DISK_BYTES=$((2 << 20))
NODE=
PEER=
LIAR=
CACHE=$WORK/node
TREE=$WORK/tree
mkdir "$TREE"
suite_cleanup() {
	local process
	for process in $ORIGIN $NODE $PEER $LIAR "${RUNNING[@]}" $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
	umount -l "$TREE" "$WORK/other-tree" 2>/dev/null
}

# end NAME SIGNAL: ends the process whose id is in the variable NAME, and waits for it
end() {
	local -n process=$1
	[ -n "$process" ] || return 0
	kill "-$2" "$process" 2>/dev/null
	wait "$process" 2>/dev/null || true
	process=
}
# node ARGUMENT...: starts the node in the background, and waits until it answers
node() {
	"$PLATTER" node --origin "unix:$SOCKET" --cache "$CACHE" "$@" >>"$WORK/node.log" 2>&1 &
	NODE=$!
	until_true 60 "$PLATTER" disks --node "$CACHE" || { tail -n 20 "$WORK/node.log"; return 1; }
}
whole_node() { node --fuse "$TREE" --9p "$WORK/9p.sock" --peers "127.0.0.1:$((PORT + 1))" --name node; }
at_node() { "$PLATTER" --quiet "$@" --node "$CACHE"; }
of_node() { "$PLATTER" --json disks --node "$CACHE" | jq -es "$1"; }
uri() { echo "nbd+unix:///$1?socket=$CACHE/nbd.sock"; }
name() { printf 'lab/disk%03d' "$1"; }
# way N: the protocol for disk N: half of the disks over NBD, the others over FUSE and 9P
way() { case $(($1 % 4)) in 0 | 1) echo nbd ;; 2) echo fuse ;; 3) echo 9p ;; esac }
# is_written N: whether disk N is writable: half of the disks of each protocol
is_written() { [ $(($1 % 8)) -lt 4 ]; }
# contents N: a file with the expected contents of disk N
contents() { [ -e "$WORK/expected-$1" ] && echo "$WORK/expected-$1" || echo "$WORK/base-$(($1 % 5))"; }
# read_disk N FILE
read_disk() {
	rm -f "$2"
	case $(way "$1") in
	nbd) nbdcopy "$(uri "$(name "$1")")" "$2" ;;
	fuse) dd if="$TREE/$(name "$1")/live.raw" of="$2" bs=64k iflag=fullblock status=none ;;
	9p) diodcat -s "$WORK/9p.sock" -a / "$(name "$1")/live.raw" >"$2" ;;
	esac
}
# write_disk N OFFSET FILE
write_disk() {
	local bytes
	bytes=$(stat -c %s "$3")
	case $(way "$1") in
	nbd) qemu-io -f raw -c "write -s $3 $2 $bytes" -c flush "$(uri "$(name "$1")")" ;;
	fuse) dd if="$3" of="$TREE/$(name "$1")/live.raw" bs=4k seek=$(($2 / 4096)) conv=notrunc,fsync status=none ;;
	9p) python3 "$TESTS/ninep_write.py" "$WORK/9p.sock" "$(name "$1")/live.raw" "$2" <"$3" ;;
	esac && dd if="$3" of="$WORK/expected-$1" bs=4k seek=$(($2 / 4096)) conv=notrunc status=none
}
# all COMMAND: runs the command for each disk, some at once, and succeeds if all do; what failed is printed last
all() {
	local n at_once=() bad=0
	rm -f "$WORK"/failed-*
	for n in $(seq 0 $((disks - 1))); do
		{ "$1" "$n" >"$WORK/said-$n" 2>&1 || mv "$WORK/said-$n" "$WORK/failed-$n"; } &
		at_once+=($!)
		[ ${#at_once[@]} -lt 8 ] || { wait "${at_once[@]}" && at_once=(); }
	done
	wait "${at_once[@]}"
	for n in "$WORK"/failed-*; do
		[ ! -e "$n" ] || { echo "disk ${n##*-}:" && cat "$n" && bad=1; }
	done
	return $bad
}
attach_one() {
	local options=()
	! is_written "$1" || options=(--write)
	at_node attach "$(name "$1")" "${options[@]}"
}
is_right() {
	if read_disk "$1" "$WORK/read-$1" && cmp "$WORK/read-$1" "$(contents "$1")"; then return 0; fi
	echo "disk $1 over $(way "$1") is wrong"
	return 1
}
# change N: writes some sectors of disk N
change() {
	local place file=$WORK/bytes-$1
	is_written "$1" || return 0
	[ -e "$WORK/expected-$1" ] || cp "$WORK/base-$(($1 % 5))" "$WORK/expected-$1"
	for _ in 1 2 3; do
		place=$((($(number "place $1 $ROUND $_" 500)) * 4096))
		random 8192 "bytes $1 $ROUND $_" >"$file"
		write_disk "$1" "$place" "$file" || return 1
	done
}
publish_one() {
	is_written "$1" || return 0
	"$PLATTER" --json publish "$(name "$1")" --node "$CACHE" >"$WORK/published-$1.new" && mv "$WORK/published-$1.new" "$WORK/published-$1"
}
# is_at_origin N: the newest version at the origin is the acknowledged one
is_at_origin() {
	is_written "$1" || return 0
	rm -f "$WORK/at-origin-$1"
	platter export "$(name "$1")" "$WORK/at-origin-$1" && cmp "$WORK/at-origin-$1" "$WORK/expected-$1" || return 1
	[ "$(platter_json show "$(name "$1")" | jq -r '[.. | .score? // empty] | first')" = "$(jq -r .score "$WORK/published-$1")" ]
}
# What QEMU boots: lab/boot-nbd and lab/boot-fuse
RUNNING=()
boot_disk() { [ "$1" = nbd ] && uri lab/boot-nbd || echo "$TREE/lab/boot-fuse/live.raw"; }
# power_on WAY: starts a machine, emulated; see tests/boot.sh
power_on() {
	qemu-system-x86_64 -accel tcg -cpu qemu64,-cx16 -M q35 -m 512 -nodefaults -no-reboot -nographic -serial stdio -net none \
		-drive "file=$(boot_disk "$1"),format=raw,if=virtio,cache=none" >"$WORK/console-$1" 2>&1 </dev/null &
	RUNNING+=($!)
}
is_up() { grep -q PLATTER-BOOT-OK "$WORK/console-$1"; }
power_off() {
	kill "${RUNNING[@]}"
	wait "${RUNNING[@]}" || true
	RUNNING=()
}
# write_machine WAY: writes the disk of a machine that is off: it may have written nothing since its disk was published
write_machine() { qemu-io -f raw -c 'write -P 5 512k 64k' -c flush "$(boot_disk "$1")"; }
publish_machine() { "$PLATTER" --json publish "lab/boot-$1" --node "$CACHE" >"$WORK/published-$1"; }
machine_score() { platter_json show "lab/boot-$1" | jq -r '[.. | .score? // empty] | first'; }
# machine_is_at_origin WAY: every byte of the live disk is in the version that was published
machine_is_at_origin() {
	[ "$(machine_score "$1")" = "$(jq -r .score "$WORK/published-$1")" ] || return 1
	platter export "lab/boot-$1" "$WORK/machine" && nbdcopy "$(uri "lab/boot-$1")" "$WORK/machine-live" &&
		cmp "$WORK/machine" "$WORK/machine-live" && rm "$WORK/machine" "$WORK/machine-live"
}
# replay N: replays the recorded boot on a clone
replay() {
	local disk=$TREE/lab/replay-$1/live.raw
	[ $(($1 % 2)) = 1 ] || disk=$(uri "lab/replay-$1")
	# The system's Python has the library for NBD.
	/usr/bin/python3 "$TESTS/replay_reads.py" "$WORK/boot.trace" "$disk" >"$WORK/replayed-$1"
}
# all_beside_replays COMMAND: as `all`, while the boot is replayed on all of its clones. Each must read what the raw disk has
all_beside_replays() {
	local n booting=() bad=0
	for n in "${replays[@]}"; do
		replay "$n" &
		booting+=($!)
	done
	all "$1" || bad=1
	for n in "${replays[@]}"; do
		if wait "${booting[$n]}" && cmp "$WORK/replayed-$n" "$WORK/replayed-raw"; then continue; fi
		echo "the boot on lab/replay-$n is wrong"
		bad=1
	done
	return $bad
}
# knows_peers: the node is connected with both peers, as it told the origin
knows_peers() {
	curl -sf --unix-socket "$SOCKET" http://origin/api/v1/nodes | jq -e 'any(.nodes[]; .name == "node" and .counters.peers_connected == 2)'
}
threads() { awk '$1 == "Threads:" { print $2 }' "/proc/$NODE/status"; }
memory_mib() { awk '$1 == "VmRSS:" { print int($2 / 1024) }' "/proc/$NODE/status"; }
# note_size PHASE: a row of the table of threads and memory
note_size() { printf '# %-44s %4d threads %5d MiB\n' "$1" "$(threads)" "$(memory_mib)" | tee -a "$WORK/sizes"; }

platter init >/dev/null
for n in 0 1 2 3 4; do random "$DISK_BYTES" "base $n" >"$WORK/base-$n"; done
for n in 0 1 2 3 4; do platter capture --raw "$WORK/base-$n" "base/disk$n" >/dev/null; done
for n in $(seq 0 $((disks - 1))); do platter clone "base/disk$((n % 5))" "$(name "$n")" >/dev/null; done
if [ ${#machines[@]} -gt 0 ]; then
	boots=${PLATTER_CATALOG:-$WORK/catalog}
	[ -f "$boots/base.raw" ] || check "a bootable disk is built" "$ROOT/catalog/make-catalog" "$boots" small base
	platter capture "$boots/base.raw" base/boot >/dev/null
	for way in "${machines[@]}"; do platter clone base/boot "lab/boot-$way" >/dev/null; done
	for n in "${replays[@]}"; do platter clone base/boot "lab/replay-$n" >/dev/null; done
fi
start_origin
# One disk is in the hoard.
start_server base/disk4 --nbd "$WORK/nbd.sock" --record "$WORK/trace"
qemu-io -r -f raw -c 'read 0 1M' "nbd+unix:///base/disk4?socket=$WORK/nbd.sock" >/dev/null
stop TERM
afar hoard import "$WORK/trace" base/disk4 >/dev/null

# An honest peer and a lying one.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=platter-node -addext subjectAltName=DNS:platter-node \
	-keyout "$WORK/liar.key" -out "$WORK/liar.pem" -days 2 2>/dev/null
python3 "$TESTS/lying_peer.py" "$SOCKET" "$((PORT + 3))" "$WORK/liar.pem" "$WORK/liar.key" 11111111111111111111111111111111 >"$WORK/liar.log" 2>&1 &
LIAR=$!
# It acts as another host: commands of this host must not find it.
XDG_STATE_HOME=$WORK/peer-state "$PLATTER" node --origin "unix:$SOCKET" --cache "$WORK/peer" --peers "127.0.0.1:$((PORT + 2))" --name peer base/disk0 --fill >"$WORK/peer.log" 2>&1 &
PEER=$!

check "the node starts" whole_node
before=$(threads)
check "the node has synced the hoard" until_true 30 grep -q 'hoard: revision' "$WORK/node.log"
check "and is connected with both peers" until_true 60 knows_peers
note_size "no disks"
check "it attaches $disks disks, half of them writable" all attach_one
check "and lists them" of_node "length == $disks and (map(select(.writable)) | length) == ([range($disks)] | map(select(. % 8 < 4)) | length)"
check_exit "$EXIT_REFUSED" "a served disk is not attached twice" at_node attach "$(name 0)"
check "all disks have the right contents" all is_right
note_size "$disks disks, each read once"
for way in "${machines[@]}"; do
	recording=()
	[ "$way" != nbd ] || recording=(--record "$WORK/recording")
	check "a disk is attached for a machine over $way" at_node attach "lab/boot-$way" --write "${recording[@]}"
	power_on "$way"
done
ROUND=1
check "the writable disks are written" all change
check "and all have the right contents" all is_right
# One client of every NBD disk stays connected. None may use more threads than a reader, a writer and its workers.
mkfifo "$WORK/hold"
exec 9<>"$WORK/hold"
clients=()
for n in $(seq 0 $((disks - 1))); do
	[ "$(way "$n")" = nbd ] || continue
	{ echo 'read 0 4k' && cat "$WORK/hold"; } 9<&- | stdbuf -oL qemu-io -r -f raw "$(uri "$(name "$n")")" >"$WORK/client-$n" 2>&1 9<&- &
	clients+=($!)
done
have_read() { [ "$(cat "$WORK"/client-* | grep -c 'read 4096/4096')" = "${#clients[@]}" ]; }
check "${#clients[@]} clients are connected at once" until_true 30 have_read
now=$(threads)
check "$now threads ($before without disks), $(memory_mib) MiB" [ "$now" -le $((before + 18 * ${#clients[@]})) ]
exec 9<&-
wait "${clients[@]}" || true
for way in "${machines[@]}"; do check "the machine over $way boots" until_true 420 is_up "$way"; done
[ ${#machines[@]} = 0 ] || note_size "$disks disks and two machines that run"
if [ ${#replays[@]} -gt 0 ]; then
	# The machine goes on, and so does the recording.
	cp "$WORK/recording" "$WORK/boot.trace"
	# The raw disk as its version has it: without the contents of free space and journals, which a boot reads, too.
	platter export base/boot "$WORK/boot.raw" >/dev/null
	/usr/bin/python3 "$TESTS/replay_reads.py" "$WORK/boot.trace" "$WORK/boot.raw" >"$WORK/replayed-raw"
	rm "$WORK/boot.raw"
	read -r count bytes _ <"$WORK/replayed-raw"
	check "the boot over NBD was recorded: $count reads of $bytes bytes" [ "$count" -gt 500 ]
	for n in "${replays[@]}"; do check "a further clone of its disk is attached" at_node attach "lab/replay-$n"; done
	ROUND=replays
	check "disks are written$meanwhile" all_beside_replays change
	check "and all have the right contents" all is_right
	note_size "the same, after ${#replays[@]} replayed boots"
fi
check "all written disks are published" all publish_one
for way in "${machines[@]}"; do
	check "the disk of the machine over $way is published while it runs" publish_machine "$way"
	check "and its version is at the origin" [ "$(machine_score "$way")" = "$(jq -r .score "$WORK/published-$way")" ]
done
check "and their versions are at the origin" all is_at_origin
check "all still have the right contents" all is_right

# The origin is killed. Reading and writing continue; nothing is published, and nothing is lost.
end ORIGIN KILL
ROUND=2
check "without the origin, disks are written$meanwhile" all_beside_replays change
check "and read correctly" all is_right
check_exit "$EXIT_FAILED" "but not published" at_node publish "$(name 1)"
check_exit "$EXIT_FAILED" "nor cloned" timeout 20 "$PLATTER" --quiet clone "$(name 4)" lab/new --node "$CACHE"
check "what is hoarded is attached by name" at_node attach base/disk4
check "and read" qemu-io -r -f raw -c 'read 0 1M' "$(uri base/disk4)"
check "a disk is detached" at_node detach "$(name 4)"
note_size "the same, without an origin"
for way in "${machines[@]}"; do check "the machine over $way runs" sh -c "! grep -qiE 'i/o error|panic' '$WORK/console-$way'"; done
[ ${#machines[@]} = 0 ] || power_off
end NODE KILL
umount -l "$TREE" 2>/dev/null
check "the killed node restarts without an origin" whole_node
check "it serves all of its other disks" until_true 60 of_node "length == $((disks + ${#machines[@]} + ${#replays[@]}))"
check "a cached version is attached under a name that was never attached" at_node attach "$(name 4)@1"
check_exit "$EXIT_FAILED" "an edit lock cannot be taken without the origin" at_node attach base/disk2 --write
check "the writable disks are still writable" of_node "(map(select(.writable and .written_bytes > 0)) | length) > $((disks / 3))"
check "and have every byte" all is_right
ROUND=3
check "and they are written again$meanwhile" all_beside_replays change
check "and read" all is_right
for way in "${machines[@]}"; do check "so is the disk of the machine over $way" write_machine "$way"; done
start_origin
check "once the origin is back, all disks are published" all publish_one
check "with every byte" all is_at_origin
for way in "${machines[@]}"; do
	check "the disk of the machine over $way is published" publish_machine "$way"
	check "with every byte" machine_is_at_origin "$way"
	at_node detach "lab/boot-$way" >/dev/null
done
note_size "after a kill, all published"
check "all disks have the right contents at the end" all is_right
check "the lying peer was asked" test -s "$WORK/liar.log"

# Commands find the node by themselves, and have the same effects.
check "a disk is attached without naming the node" afar attach base/disk1
check "it is among the node's" of_node 'any(.[]; .disk == "base/disk1")'
check "and among all of the store" sh -c "'$PLATTER' --server 'unix:$SOCKET' --json disks | jq -es 'any(.[]; .disk == \"base/disk1\" and .process == $NODE)'"
check "and detached so" afar detach base/disk1
check_exit "$EXIT_MISSING" "a directory where no node ever ran has no disks" "$PLATTER" --server "unix:$SOCKET" disks --node "$WORK/nowhere"
before=$(of_node length)
check_exit "$EXIT_MISSING" "of several disks, one is not there" at_node attach base/disk1 base/disk2 base/none
check "none is attached" of_node "length == $before"
check_exit "$EXIT_MISSING" "nor is one for writing" at_node attach base/disk2 base/none --write
check "and no edit lock is kept" sh -c "! '$PLATTER' --store '$STORE' --json lock list | grep -q base/disk2"
check "a version is cloned by the node" at_node clone base/disk1 lab/cloned
check_exit "$EXIT_REFUSED" "but not to an existing image" at_node clone base/disk1 lab/cloned
check_exit "$EXIT_MISSING" "and not from a missing image" at_node clone base/none lab/cloned2
check "the clone is attached for writing" at_node attach lab/cloned --write --on-detach publish --note 'by the node'
qemu-io -f raw -c 'write -P 7 0 4k' "$(uri lab/cloned)" >/dev/null
check "and detached" at_node detach lab/cloned
check "which published it, as --on-detach requested" sh -c "'$PLATTER' --store '$STORE' --json history lab/cloned | jq -es 'flatten | length == 2'"
check "and released its edit lock" sh -c "! '$PLATTER' --store '$STORE' --json lock list | grep -q lab/cloned"
at_node attach lab/cloned --write >/dev/null
qemu-io -f raw -c 'write -P 8 0 4k' "$(uri lab/cloned)" >/dev/null
check_exit "$EXIT_REFUSED" "what is served is not discarded" at_node discard lab/cloned
check_said "it says how" 'detach lab/cloned --then discard'
check "it is detached, and kept" at_node detach lab/cloned --then keep
check "the node lists what waits, with its changes" of_node 'any(.[]; .disk == "lab/cloned" and .process == null and .written_bytes == 4096)'
check "and so does the store" sh -c "'$PLATTER' --server 'unix:$SOCKET' --json disks | jq -es 'any(.[]; .disk == \"lab/cloned\" and .process == null)'"
"$PLATTER" --server "unix:$SOCKET" attach lab/cloned --write --nbd "$WORK/own.sock" >"$WORK/plain.log" 2>&1 &
plain=$!
check "a separate process continues with the changes" until_true 30 qemu-io -r -f raw -c 'read -P 8 0 4k' "nbd+unix:///lab/cloned?socket=$WORK/own.sock"
check_exit "$EXIT_REFUSED" "the node cannot attach it for writing meanwhile" at_node attach lab/cloned --write
kill "$plain"
wait "$plain" 2>/dev/null || true
check "the node publishes the changes" at_node publish lab/cloned
at_node attach lab/cloned --write >/dev/null
qemu-io -f raw -c 'write -P 9 0 4k' "$(uri lab/cloned)" >/dev/null
at_node detach lab/cloned --then keep >/dev/null
check "a command that does not name the node discards changes" afar discard lab/cloned
check_exit "$EXIT_MISSING" "only once" at_node discard lab/cloned
check "a disk is attached at its own address" at_node attach lab/cloned --write --nbd "$WORK/own.sock"
check "and written there" qemu-io -f raw -c 'write -P 1 0 4k' -c flush "nbd+unix:///lab/cloned?socket=$WORK/own.sock"
check_exit 1 "and is not served at the node's common address" nbdinfo --size "$(uri lab/cloned)"
end NODE KILL
umount -l "$TREE" 2>/dev/null
whole_node
check "after a kill of the node, it is served there again" until_true 30 qemu-io -f raw -c 'read -P 1 0 4k' "nbd+unix:///lab/cloned?socket=$WORK/own.sock"
check "publishing to a new name ends the edit" at_node publish lab/cloned lab/branch
check_exit "$EXIT_MISSING" "and detaches the disk" at_node detach lab/cloned
check_exit "$EXIT_REFUSED" "an address in use is refused" at_node attach lab/cloned --write --nbd "$CACHE/nbd.sock"
check "and no edit lock remains" sh -c "! '$PLATTER' --store '$STORE' --json lock list | grep -q lab/cloned"
check_exit 1 "an existing trace file is refused" at_node attach lab/cloned --write --record "$WORK/trace"
check "and no edit lock remains after that" sh -c "! '$PLATTER' --store '$STORE' --json lock list | grep -q lab/cloned"
check_exit 1 "names in the node's tree cannot be removed" rm "$TREE/lab/branch/1.raw"

# A lock that was taken over.
at_node attach lab/cloned --write >/dev/null
qemu-io -f raw -c 'write -P 4 0 4k' -c flush "$(uri lab/cloned)" >/dev/null
afar lock steal lab/cloned --holder thief >/dev/null
is_lost() { of_node 'any(.[]; .disk == "lab/cloned" and .lost)'; }
check "a stolen edit lock is listed as lost" until_true 30 is_lost
check_exit "$EXIT_REFUSED" "nothing is published under it" at_node publish lab/cloned
check "a new image is made of it without naming it" at_node publish lab/cloned lab/rescued
check "every byte" sh -c "'$PLATTER' --store '$STORE' --quiet export lab/rescued '$WORK/rescued' && qemu-io -r -f raw -c 'read -P 4 0 4k' '$WORK/rescued'"
afar lock release lab/cloned --holder thief >/dev/null

# While the node does not run, commands do it themselves.
at_node attach lab/cloned --write >/dev/null
qemu-io -f raw -c 'write -P 3 0 4k' -c flush "$(uri lab/cloned)" >/dev/null
end NODE TERM
check "the disk's changes stay listed after the node ended" sh -c "'$PLATTER' --server 'unix:$SOCKET' --json disks --node '$CACHE' | jq -es 'any(.[]; .disk == \"lab/cloned\" and .process == null)'"
check_exit "$EXIT_MISSING" "publishing needs the node or the origin" "$PLATTER" publish lab/cloned --node "$CACHE"
check "with the origin, the disk is published without the node" afar publish lab/cloned --node "$CACHE"
check "with every byte" sh -c "'$PLATTER' --store '$STORE' --quiet export lab/cloned '$WORK/by-itself' && qemu-io -r -f raw -c 'read -P 3 0 4k' '$WORK/by-itself'"
check "the node restarts without that disk" whole_node
check "and serves the others" until_true 60 of_node "any(.[]; .disk == \"lab/disk001\") and all(.[]; .disk != \"lab/cloned\")"

# Combinations of options: each works, or is refused with the reason.
refused() { # CODE WHY ARGUMENT...
	local code=$1 why=$2
	shift 2
	check_exit "$code" "refused: ${*//$WORK\//}" "$PLATTER" "$@"
	check_said "because: $why" "$why"
}
refused "$EXIT_USAGE" 'cannot be used with' --server "unix:$SOCKET" attach base/disk0 --node "$CACHE" --fuse "$TREE"
refused "$EXIT_USAGE" 'cannot be used with' --server "unix:$SOCKET" attach base/disk0 --node "$CACHE" --9p "$WORK/x.sock"
refused "$EXIT_USAGE" 'cannot be used with' --server "unix:$SOCKET" attach base/disk0 --node "$CACHE" --cache-dir "$WORK/x"
refused "$EXIT_USAGE" 'for one disk' --server "unix:$SOCKET" attach base/disk0 base/disk1 --node "$CACHE" --nbd "$WORK/x.sock"
refused "$EXIT_USAGE" 'origin' --store "$STORE" node --cache "$WORK/x"
refused "$EXIT_REFUSED" 'is a store' node --origin "unix:$SOCKET" --cache "$STORE"
refused "$EXIT_USAGE" '--write' --server "unix:$SOCKET" attach base/disk0 --steal --node "$CACHE"
refused "$EXIT_USAGE" 'no address to serve at' --store "$STORE" attach base/disk0
refused "$EXIT_REFUSED" 'not the newest' --server "unix:$SOCKET" attach lab/disk001@1 --write --node "$CACHE"
refused "$EXIT_REFUSED" 'attached already' --server "unix:$SOCKET" attach lab/disk000 --write --node "$CACHE"

# If two nodes of one store run on one host, the command must name the node.
end PEER TERM
"$PLATTER" node --origin "unix:$SOCKET" --cache "$WORK/peer" --name peer >"$WORK/peer.log" 2>&1 &
PEER=$!
until_true 30 "$PLATTER" disks --node "$WORK/peer"
refused "$EXIT_REFUSED" 'name one with --node' --server "unix:$SOCKET" attach base/disk3
end PEER TERM

# A process that serves a tree but is no node also attaches disks through its control socket, read-only and writable.
mkdir "$WORK/other-tree"
for kind in "--store $STORE" "--server unix:$SOCKET --hoard $CACHE" "--server unix:$SOCKET --cache-dir $WORK/own-cache"; do
	read -r -a where <<<"$kind"
	options=("${where[@]:2}")
	case ${where[0]} in --store) dir=$STORE ;; *) dir=${where[3]} ;; esac
	case ${where[2]:-} in --hoard) continue ;; esac
	"$PLATTER" "${where[@]:0:2}" attach base/disk0 --nbd "$WORK/plain.sock" --fuse "$WORK/other-tree" "${options[@]}" >"$WORK/plain.log" 2>&1 &
	plain=$!
	check "attach ${kind//$WORK\//} with NBD and FUSE" until_true 30 nbdinfo --size "nbd+unix:///base/disk0?socket=$WORK/plain.sock"
	check "attaches a further disk for writing" "$PLATTER" --quiet attach base/disk2 --write --node "$dir"
	check "which is written" qemu-io -f raw -c 'write -P 2 0 4k' "nbd+unix:///base/disk2?socket=$WORK/plain.sock"
	check "while the read-only one is read" qemu-io -r -f raw -c 'read 0 4k' "nbd+unix:///base/disk0?socket=$WORK/plain.sock"
	check "and its changes are discarded" "$PLATTER" --quiet detach base/disk2 --then discard --node "$dir"
	kill "$plain"
	wait "$plain" 2>/dev/null || true
done
# A server that fails at its start releases the edit lock.
check_exit 3 "a missing mount point ends the server" "$PLATTER" --store "$STORE" attach base/disk3 --write --nbd "$WORK/plain.sock" --fuse "$WORK/none"
cp "$LOG" "$WORK/said"
check "before it says that the disk is there" sh -c "grep -q 'does not exist' '$WORK/said' && ! grep -q live.raw '$WORK/said'"
check "and no edit lock remains for it" sh -c "! '$PLATTER' --store '$STORE' --json lock list | grep -q base/disk3"
check "and no overlay" sh -c "! ls '$STORE/overlays' | grep -q base+disk3"
finish
