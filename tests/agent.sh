#!/usr/bin/env bash
# tests/agent.sh: one node serves a whole host. Many disks, read-only and writable, over NBD, FUSE and 9P, with peers (one of which lies)
# and a hoard, are read and written while the origin is killed and comes back and the node is killed and started again; all
# are published. No byte is wrong, every publish that was acknowledged is at the origin, threads stay bounded. Then every
# combination of options: each works, or is refused and says why. PLATTER_SEED chooses places and bytes.
. "$(dirname "$0")/lib.sh"

need_root "mounting the tree" || { finish; exit 0; }
case ${PLATTER_SIZE:-quick} in full) disks=100 ;; *) disks=50 ;; esac
DISK_BYTES=$((2 << 20))
NODE=
PEER=
LIAR=
CACHE=$WORK/node
TREE=$WORK/tree
mkdir "$TREE"
suite_cleanup() {
	local process
	for process in $ORIGIN $NODE $PEER $LIAR $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
	umount -l "$TREE" "$WORK/other-tree" 2>/dev/null
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
# end NAME SIGNAL: ends the process in the variable of that name, and waits for it
end() {
	local -n process=$1
	[ -n "$process" ] || return 0
	kill "-$2" "$process" 2>/dev/null
	wait "$process" 2>/dev/null || true
	process=
}
# node ARGUMENT...: in the background, until it answers
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
# way N: how disk N is used: half over NBD, the others over FUSE and 9P
way() { case $(($1 % 4)) in 0 | 1) echo nbd ;; 2) echo fuse ;; 3) echo 9p ;; esac }
# is_written N: half of the disks of each way are writable
is_written() { [ $(($1 % 8)) -lt 4 ]; }
# contents N: what disk N must read as
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
# all COMMAND: the command for each disk, some at once; right, if each is
all() {
	local n at_once=() process bad=0
	for n in $(seq 0 $((disks - 1))); do
		"$1" "$n" &
		at_once+=($!)
		if [ ${#at_once[@]} = 8 ]; then
			for process in "${at_once[@]}"; do wait "$process" || bad=1; done
			at_once=()
		fi
	done
	for process in "${at_once[@]}"; do wait "$process" || bad=1; done
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
# changed N ROUND: some sectors of a disk are written
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
# is_at_origin N: what was acknowledged is the newest version there
is_at_origin() {
	is_written "$1" || return 0
	rm -f "$WORK/at-origin-$1"
	platter export "$(name "$1")" "$WORK/at-origin-$1" && cmp "$WORK/at-origin-$1" "$WORK/expected-$1" || return 1
	[ "$(platter_json show "$(name "$1")" | jq -r '[.. | .score? // empty] | first')" = "$(jq -r .score "$WORK/published-$1")" ]
}
threads() { awk '$1 == "Threads:" { print $2 }' "/proc/$NODE/status"; }
memory_mib() { awk '$1 == "VmRSS:" { print int($2 / 1024) }' "/proc/$NODE/status"; }

platter init >/dev/null
for n in 0 1 2 3 4; do random "$DISK_BYTES" "base $n" >"$WORK/base-$n"; done
for n in 0 1 2 3 4; do platter capture --raw "$WORK/base-$n" "base/disk$n" >/dev/null; done
for n in $(seq 0 $((disks - 1))); do platter clone "base/disk$((n % 5))" "$(name "$n")" >/dev/null; done
start_origin
# One disk of the hoard.
start_server base/disk4 --nbd "$WORK/nbd.sock" --record "$WORK/trace"
qemu-io -r -f raw -c 'read 0 1M' "nbd+unix:///base/disk4?socket=$WORK/nbd.sock" >/dev/null
stop TERM
afar hoard import "$WORK/trace" base/disk4 >/dev/null

# A peer that is honest, and one that lies.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=platter-node -addext subjectAltName=DNS:platter-node \
	-keyout "$WORK/liar.key" -out "$WORK/liar.pem" -days 2 2>/dev/null
python3 "$TESTS/lying_peer.py" "$SOCKET" "$((PORT + 3))" "$WORK/liar.pem" "$WORK/liar.key" 11111111111111111111111111111111 >"$WORK/liar.log" 2>&1 &
LIAR=$!
# It stands for another host: commands of this one do not find it.
XDG_STATE_HOME=$WORK/peer-state "$PLATTER" node --origin "unix:$SOCKET" --cache "$WORK/peer" --peers "127.0.0.1:$((PORT + 2))" --name peer base/disk0 --fill >"$WORK/peer.log" 2>&1 &
PEER=$!

check "a node is started" whole_node
before=$(threads)
check "it has the hoard" until_true 30 grep -q 'hoard: revision' "$WORK/node.log"
check "it serves $disks disks, half of them writable" all attach_one
check "which it tells" of_node "length == $disks and (map(select(.writable)) | length) == ([range($disks)] | map(select(. % 8 < 4)) | length)"
check_exit "$EXIT_REFUSED" "a disk that is served is not served twice" at_node attach "$(name 0)"
check "all of them are right" all is_right
ROUND=1
check "those that are writable are written" all change
check "and all are right" all is_right
# A client of every disk that is served over NBD stays connected: none of them takes more than its reader, its writer and its workers.
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
check "all that were written are published" all publish_one
check "and stand at the origin" all is_at_origin
check "all are right still" all is_right

# The origin dies. What was written and read goes on; nothing is published, and nothing is lost.
end ORIGIN KILL
ROUND=2
check "without the origin, disks are written" all change
check "and read" all is_right
check_exit "$EXIT_FAILED" "but not published" at_node publish "$(name 1)"
check "what is hoarded is attached by name" at_node attach base/disk4
check "and read" qemu-io -r -f raw -c 'read 0 1M' "$(uri base/disk4)"
check "a disk is detached" at_node detach "$(name 4)"
end NODE KILL
umount -l "$TREE" 2>/dev/null
check "the node is killed, and started again without an origin" whole_node
check "it serves all of its other disks" until_true 60 of_node "length == $disks"
check "what the cache holds is attached by a name that was not used before" at_node attach "$(name 4)@1"
check_exit "$EXIT_FAILED" "an edit lock cannot be had" at_node attach base/disk2 --write
check "writable as they were" of_node "(map(select(.writable and .written_bytes > 0)) | length) > $((disks / 3))"
check "with every byte" all is_right
ROUND=3
check "and they are written again" all change
check "and read" all is_right
start_origin
check "the origin is back, and all is published" all publish_one
check "every byte of it" all is_at_origin
check "nothing is wrong in the end" all is_right
check "the lying peer was asked" test -s "$WORK/liar.log"

# Commands find the node by themselves, and mean the same.
check "a disk is attached without naming the node" afar attach base/disk1
check "it is among the node's" of_node 'any(.[]; .disk == "base/disk1")'
check "and among all of the store" sh -c "'$PLATTER' --server 'unix:$SOCKET' --json disks | jq -es 'any(.[]; .disk == \"base/disk1\" and .process == $NODE)'"
check "and detached so" afar detach base/disk1
check "a version is cloned by the node" at_node clone base/disk1 lab/cloned
check_exit "$EXIT_REFUSED" "not twice" at_node clone base/disk1 lab/cloned
check_exit "$EXIT_MISSING" "nor one that is not there" at_node clone base/none lab/cloned2
check "the clone is attached for writing" at_node attach lab/cloned --write --on-detach publish --note 'by the node'
qemu-io -f raw -c 'write -P 7 0 4k' "$(uri lab/cloned)" >/dev/null
check "and detached" at_node detach lab/cloned
check "which published it, as was said when it was attached" sh -c "'$PLATTER' --store '$STORE' --json history lab/cloned | jq -es 'flatten | length == 2'"
check "its edit lock is given back" sh -c "! '$PLATTER' --store '$STORE' --json lock list | grep -q lab/cloned"
at_node attach lab/cloned --write >/dev/null
qemu-io -f raw -c 'write -P 8 0 4k' "$(uri lab/cloned)" >/dev/null
check_exit "$EXIT_REFUSED" "what is served is not discarded" at_node discard lab/cloned
check "it is detached, and kept" at_node detach lab/cloned --then keep
check "the node lists what waits" of_node 'any(.[]; .disk == "lab/cloned" and .process == null)'
check "and so does the store" sh -c "'$PLATTER' --server 'unix:$SOCKET' --json disks | jq -es 'any(.[]; .disk == \"lab/cloned\" and .process == null)'"
"$PLATTER" --server "unix:$SOCKET" attach lab/cloned --write --nbd "$WORK/own.sock" >"$WORK/plain.log" 2>&1 &
plain=$!
check "a process of its own goes on with it" until_true 30 qemu-io -r -f raw -c 'read -P 8 0 4k' "nbd+unix:///lab/cloned?socket=$WORK/own.sock"
check_exit "$EXIT_REFUSED" "the node does not write it meanwhile" at_node attach lab/cloned --write
kill "$plain"
wait "$plain" 2>/dev/null || true
check "what waits is published by the node" at_node publish lab/cloned
at_node attach lab/cloned --write >/dev/null
qemu-io -f raw -c 'write -P 9 0 4k' "$(uri lab/cloned)" >/dev/null
at_node detach lab/cloned --then keep >/dev/null
check "or discarded by a command that is not told where" afar discard lab/cloned
check_exit "$EXIT_MISSING" "once" at_node discard lab/cloned
check "a disk has an address of its own" at_node attach lab/cloned --write --nbd "$WORK/own.sock"
check "at which it is written" qemu-io -f raw -c 'write -P 1 0 4k' -c flush "nbd+unix:///lab/cloned?socket=$WORK/own.sock"
check_exit 1 "and not at the common one" nbdinfo --size "$(uri lab/cloned)"
end NODE KILL
umount -l "$TREE" 2>/dev/null
whole_node
check "it has that when the node was killed" until_true 30 qemu-io -f raw -c 'read -P 1 0 4k' "nbd+unix:///lab/cloned?socket=$WORK/own.sock"
check "it is published to a new name, which ends the edit" at_node publish lab/cloned lab/branch
check_exit "$EXIT_MISSING" "it is detached" at_node detach lab/cloned
check_exit "$EXIT_REFUSED" "an address in use is refused" at_node attach lab/cloned --write --nbd "$CACHE/nbd.sock"
check "and no edit lock is kept for it" sh -c "! '$PLATTER' --store '$STORE' --json lock list | grep -q lab/cloned"
check_exit 1 "nor for a trace that cannot be made" at_node attach lab/cloned --write --record "$WORK/trace"
check "no edit lock is kept" sh -c "! '$PLATTER' --store '$STORE' --json lock list | grep -q lab/cloned"
check_exit 1 "names of the node's tree stay" rm "$TREE/lab/branch/1.raw"

# While the node does not run, commands do it themselves.
at_node attach lab/cloned --write >/dev/null
qemu-io -f raw -c 'write -P 3 0 4k' -c flush "$(uri lab/cloned)" >/dev/null
end NODE TERM
check "a node that ends keeps its disks" sh -c "'$PLATTER' --server 'unix:$SOCKET' --json disks --node '$CACHE' | jq -es 'any(.[]; .disk == \"lab/cloned\" and .process == null)'"
check_exit "$EXIT_MISSING" "without an origin there is nobody to ask" "$PLATTER" publish lab/cloned --node "$CACHE"
check "its disk is published without it" afar publish lab/cloned --node "$CACHE"
check "every byte" sh -c "'$PLATTER' --store '$STORE' --quiet export lab/cloned '$WORK/by-itself' && qemu-io -r -f raw -c 'read -P 3 0 4k' '$WORK/by-itself'"
check "the node goes on without that disk" whole_node
check "and with the others" until_true 60 of_node "any(.[]; .disk == \"lab/disk001\") and all(.[]; .disk != \"lab/cloned\")"

# Options by options: each cell works, or its refusal says why.
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
refused "$EXIT_USAGE" '--write' --server "unix:$SOCKET" attach base/disk0 --steal --node "$CACHE"
refused "$EXIT_USAGE" 'no address to serve at' --store "$STORE" attach base/disk0
refused "$EXIT_REFUSED" 'not the newest' --server "unix:$SOCKET" attach lab/disk001@1 --write --node "$CACHE"
refused "$EXIT_REFUSED" 'attached already' --server "unix:$SOCKET" attach lab/disk000 --write --node "$CACHE"

# Of two nodes of one store on one host, the one that is meant has to be named.
end PEER TERM
"$PLATTER" node --origin "unix:$SOCKET" --cache "$WORK/peer" --name peer >"$WORK/peer.log" 2>&1 &
PEER=$!
until_true 30 "$PLATTER" disks --node "$WORK/peer"
refused "$EXIT_REFUSED" 'name one with --node' --server "unix:$SOCKET" attach base/disk3
end PEER TERM

# A process with a tree and no node takes disks by its control socket, too, read-only and writable.
mkdir "$WORK/other-tree"
for kind in "--store $STORE" "--server unix:$SOCKET --hoard $CACHE" "--server unix:$SOCKET --cache-dir $WORK/own-cache"; do
	read -r -a where <<<"$kind"
	options=("${where[@]:2}")
	case ${where[0]} in --store) dir=$STORE ;; *) dir=${where[3]} ;; esac
	case ${where[2]:-} in --hoard) continue ;; esac
	"$PLATTER" "${where[@]:0:2}" attach base/disk0 --nbd "$WORK/plain.sock" --fuse "$WORK/other-tree" "${options[@]}" >"$WORK/plain.log" 2>&1 &
	plain=$!
	check "attach ${kind//$WORK\//} with NBD and FUSE" until_true 30 nbdinfo --size "nbd+unix:///base/disk0?socket=$WORK/plain.sock"
	check "takes a writable disk beside" "$PLATTER" --quiet attach base/disk2 --write --node "$dir"
	check "which is written" qemu-io -f raw -c 'write -P 2 0 4k' "nbd+unix:///base/disk2?socket=$WORK/plain.sock"
	check "beside one that is read-only" qemu-io -r -f raw -c 'read 0 4k' "nbd+unix:///base/disk0?socket=$WORK/plain.sock"
	check "and thrown away" "$PLATTER" --quiet detach base/disk2 --then discard --node "$dir"
	kill "$plain"
	wait "$plain" 2>/dev/null || true
done
# A server that fails at once gives the edit lock back.
check_exit 3 "a mount point that is not there ends it" "$PLATTER" --store "$STORE" attach base/disk3 --write --nbd "$WORK/plain.sock" --fuse "$WORK/none"
check "no edit lock is kept for that" sh -c "! '$PLATTER' --store '$STORE' --json lock list | grep -q base/disk3"
check "nor an overlay" sh -c "! ls '$STORE/overlays' | grep -q base+disk3"
finish
