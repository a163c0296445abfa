#!/usr/bin/env bash
# tests/peers.sh: nodes that share, each in a network namespace of its own. Four read a disk at once, and the origin
# sends little more than one copy; one is killed meanwhile; they are filled at once, again for about one copy. Then the
# origin is killed, and a fifth node with an empty cache reads the disk from the others; with the size full, it boots a
# real disk in QEMU. Bytes are counted on the wire. Nodes of two tenants share only with nodes of their own tenant.
. "$(dirname "$0")/lib.sh"

ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
need_namespaces "$@"
case ${PLATTER_SIZE:-quick} in full) mib=200 ;; *) mib=32 ;; esac
SOCKET=$WORK/origin.sock
ORIGIN_ADDRESS=10.78.0.200:7440
declare -A NODES=()
ORIGIN=
suite_cleanup() {
	local process
	for process in $ORIGIN "${NODES[@]}" $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
	"$ROOM" down
}

here() { "$PLATTER" --server "unix:$SOCKET" --quiet "$@"; }
ask() { curl -s --unix-socket "$SOCKET" "http://platter$1"; }
# sent: bytes of frames that the origin has sent; wire: bytes that its link has
sent() { ask /metrics | awk '$1 == "platter_frame_stream_bytes_sent_total" { print $2 }'; }
wire() { "$ROOM" in sender ip -s -j link show eth0 | jq '.[0].stats64.tx.bytes'; }
start_origin() {
	"$ROOM" in sender "$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" --listen "$ORIGIN_ADDRESS" >>"$WORK/origin.log" 2>&1 &
	ORIGIN=$!
	until_true 30 here images || { cat "$WORK/origin.log"; return 1; }
}
# node I: starts the node in its namespace in the background, and waits until it answers
node() {
	"$ROOM" in "$1" "$PLATTER" --server "https://$ORIGIN_ADDRESS" --fingerprint "$FINGERPRINT" --token-file "${2:-$WORK/token}" \
		node --cache "$WORK/cache-$1" --peers "10.78.0.$1:7442" --share-rate 400M --name "node-$1" >>"$WORK/node-$1.log" 2>&1 &
	NODES[$1]=$!
	until_true 30 "$PLATTER" disks --node "$WORK/cache-$1" || { cat "$WORK/node-$1.log"; return 1; }
}
# counter I NAME: a counter from the node's last report to the origin
counter() { ask /api/v1/nodes | jq --arg name "node-$1" --arg counter "$2" '.nodes[] | select(.name == $name) | .counters[$counter]'; }
# meets I COUNT: the node is connected with COUNT peers. Knowing them is not enough: a node rejects peers of which it
# has not yet learned from the origin.
meets() { [ "$(counter "$1" peers_connected)" -ge "$2" ]; }
uri() { echo "nbd+unix:///$2?socket=$WORK/cache-$1/nbd.sock"; }
# copy I DISK: the disk as a client of the node reads it
copy() { rm -f "$WORK/copied-$1" && nbdcopy "$(uri "$1" "$2")" "$WORK/copied-$1"; }
# copies DISK FILE I...: reads the disk on these nodes at once; succeeds if each equals the file
copies() {
	local disk=$1 file=$2 i processes=() bad=0
	shift 2
	for i in "$@"; do
		copy "$i" "$disk" &
		processes+=($!)
	done
	for i in "${processes[@]}"; do wait "$i" || bad=1; done
	for i in "$@"; do cmp "$WORK/copied-$i" "$file" || bad=1; done
	return $bad
}
is_filled() { "$PLATTER" --json disks --node "$WORK/cache-$1" | jq -e -s --arg disk "$2" 'any(.[]; .disk == $disk and .fill.filled)'; }
# fill DISK I...: fills the disk on these nodes at once, and waits until it is fully local on each
fill() {
	local disk=$1 i attaching=()
	shift
	for i in "$@"; do
		"$PLATTER" attach "$disk" --node "$WORK/cache-$i" --fill &
		attaching+=($!)
	done
	for i in "${attaching[@]}"; do wait "$i" || return 1; done
	for i in "$@"; do until_true 60 is_filled "$i" "$disk" || return 1; done
}
at_most() { awk -v got="$1" -v most="$2" 'BEGIN { print got, "at most", most; exit !(got <= most) }'; }

file_tree "$WORK/tree" "$mib" peers
ext4_image "$WORK/disk" $((mib * 2)) "$WORK/tree"
random $((mib << 20)) other >"$WORK/other"
platter init
platter capture "$WORK/disk" lab/disk >/dev/null
platter capture --raw "$WORK/other" lab/other >/dev/null
# A group of blocks with large frames: most frames cross a border.
file_tree "$WORK/small" 2 small
random $((16 << 20)) small | split -a 3 -b 5123 - "$WORK/small/many/"
ext4_image "$WORK/filled" 96 "$WORK/small"
filled_bytes=$(platter_json capture "$WORK/filled" lab/filled | jq .new_stored_bytes)
platter export lab/disk "$WORK/shown" >/dev/null
platter export lab/filled "$WORK/shown-filled" >/dev/null
boot_score=
if [ "${PLATTER_SIZE:-quick}" = full ] && need_root "building a bootable disk"; then
	CATALOG=${PLATTER_CATALOG:-$WORK/catalog}
	[ -f "$CATALOG/base.raw" ] || check "a bootable disk is built" "$ROOT/catalog/make-catalog" "$CATALOG" small base
	platter capture "$CATALOG/base.raw" lab/boot >/dev/null
	boot_score=$(platter_json show lab/boot | jq -r .score)
fi
score=$(platter_json show lab/disk | jq -r .score)
platter_json serve token add nodes --role read --images '*' | jq -r .secret >"$WORK/token"
"$ROOM" up 9 1gbit
start_origin
FINGERPRINT=$(openssl x509 -in "$STORE/serve-certificate.pem" -outform DER | sha256sum | cut -d' ' -f1)
before=$(sent)
here export lab/disk "$WORK/exported" >/dev/null
one=$(($(sent) - before))

for i in 1 2 3 4; do node "$i"; done
check "four nodes are connected with each other" until_true 40 sh -c "$(declare -f ask); SOCKET=$SOCKET; "'[ "$(ask /api/v1/nodes | jq "[.nodes[] | select(.counters.peers_connected >= 3)] | length")" = 4 ]'
for i in 1 2 3 4; do "$PLATTER" attach lab/disk --node "$WORK/cache-$i" >/dev/null; done
before=$(sent)
wire_before=$(wire)
check "all read the disk at once, and every byte is right" copies lab/disk "$WORK/shown" 1 2 3 4
copies=$(awk -v bytes=$(($(sent) - before)) -v one="$one" 'BEGIN { printf "%.2f", bytes / one }')
check "the origin sent $copies copies" at_most "$copies" 2
wire_copies=$(awk -v bytes=$(($(wire) - wire_before)) -v one="$one" 'BEGIN { printf "%.2f", bytes / one }')
check "and $wire_copies on the wire" at_most "$wire_copies" 2.2

# One is killed while the others read another disk.
for i in 1 3 4; do "$PLATTER" attach lab/other --node "$WORK/cache-$i" >/dev/null; done
{ sleep "0.$(printf %03d "$(number kill 500)")"; kill -KILL "${NODES[2]}"; } &
check "one is killed meanwhile, and the others continue reading" copies lab/other "$WORK/other" 1 3 4

# The nodes fetch different parts from the origin, not all from the start.
before=$(sent)
check "three are filled at once" fill lab/filled 1 3 4
check "the origin sent little more than one copy" at_most "$(awk -v bytes=$(($(sent) - before)) -v one="$filled_bytes" 'BEGIN { printf "%.2f", bytes / one }')" 1.2
check "and they read the right bytes" copies lab/filled "$WORK/shown-filled" 1 3 4
[ -z "$boot_score" ] || check "one node is filled with a bootable disk" fill lab/boot 3

# The tokens of nodes 6 and 7 list the same images in different ways.
platter_json serve token add lab --role read --images 'lab/*' | jq -r .secret >"$WORK/lab-6"
platter_json serve token add lab-again --role read --images 'lab/disk' --images 'lab/*' | jq -r .secret >"$WORK/lab-7"
platter_json serve token add shop --role read --images 'shop/*' | jq -r .secret >"$WORK/shop"
random $((4 << 20)) shop >"$WORK/tree/of-the-shop"
ext4_image "$WORK/shop-disk" $((mib * 2 + 16)) "$WORK/tree"
here capture "$WORK/shop-disk" shop/disk >/dev/null
here export shop/disk "$WORK/shown-shop" >/dev/null
shop_score=$(here --json show shop/disk | jq -r .score)
node 6 "$WORK/lab-6"
node 7 "$WORK/lab-7"
node 8 "$WORK/shop"
node 9 "$WORK/shop"
knows() { [ "$(counter "$1" peers_known)" = 1 ] && [ "$(counter "$1" peers_connected)" = 1 ]; }
for i in 6 7 8 9; do check "tenants: node $i is connected with its own tenant's node and knows no other" until_true 40 knows "$i"; done
sent_copies() { awk -v bytes=$(($(sent) - $1)) -v one="$one" 'BEGIN { printf "%.2f", bytes / one }'; }
at_least() { awk -v got="$1" -v least="$2" 'BEGIN { print got, "at least", least; exit !(got >= least) }'; }
# On a busy machine a peer may answer late, and the origin is asked as well: at most half a copy. Without peers it would
# be a whole copy.
for i in 6 7; do "$PLATTER" attach lab/disk --node "$WORK/cache-$i" >/dev/null; done
for i in 8 9; do "$PLATTER" attach shop/disk --node "$WORK/cache-$i" >/dev/null; done
check "tenants: the first node of a tenant reads its disk" copies lab/disk "$WORK/shown" 6
before=$(sent)
check "tenants: the second one reads it as well" copies lab/disk "$WORK/shown" 7
check "tenants: and gets most of it from the first" at_most "$(sent_copies "$before")" 0.5
before=$(sent)
check "tenants: the other tenant's first node reads a disk with the same blocks" copies shop/disk "$WORK/shown-shop" 8
check "tenants: and gets none of them from another tenant's node" at_least "$(sent_copies "$before")" 0.9
before=$(sent)
check "tenants: its second node reads it" copies shop/disk "$WORK/shown-shop" 9
check "tenants: and gets most of it from the first" at_most "$(sent_copies "$before")" 0.5

# What one tenant can learn of the other.
of_lab() { "$ROOM" in 6 "$PLATTER" --server "https://$ORIGIN_ADDRESS" --fingerprint "$FINGERPRINT" --token-file "$WORK/lab-6" "$@"; }
nobody=$(printf '%064d' 7)
# answer SCORE: exit code and message for this score, without the score itself
answer() { local code=0; of_lab export "$1" "$WORK/none" >"$WORK/answer" 2>&1 || code=$?; echo "$code $(sed "s/$1/SCORE/g" "$WORK/answer")"; }
same() { [ "$1" = "$2" ] || { printf '%s\n%s\n' "$1" "$2"; return 1; }; }
check "tenants: a disk of the other tenant does not exist, not even by its score" same "$(answer "$shop_score")" "$(answer "$nobody")"
check "tenants: the list of all nodes is refused" \
	same 403 "$("$ROOM" in 6 curl -sk -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $(cat "$WORK/lab-6")" "https://$ORIGIN_ADDRESS/api/v1/nodes")"
# greets I J: whether node J greets a client with node I's certificate
greets() {
	# Standard input stays open, because a client that closed its side is not greeted.
	sleep 3 | "$ROOM" in "$1" timeout 6 openssl s_client -quiet -tls1_3 -cert "$WORK/cache-$1/peer-certificate.pem" -key "$WORK/cache-$1/peer-key.pem" \
		-connect "10.78.0.$2:7442" >"$WORK/greeting" 2>/dev/null || true
	grep -q PLpe "$WORK/greeting"
}
refuses() { ! greets "$@"; }
check "tenants: a node greets a node of its tenant" greets 6 7
check "tenants: a node does not greet a node of another tenant" refuses 6 8
check "tenants: nor does a node that may read everything" refuses 6 3
# answers of the origin to a report with this token: of a node with the address and the certificate of the other tenant's node
told_as() {
	local print
	print=$(openssl x509 -in "$WORK/cache-8/peer-certificate.pem" -outform DER | sha256sum | cut -d' ' -f1)
	"$ROOM" in 6 curl -sk -H "Authorization: Bearer $(cat "$WORK/$1")" "https://$ORIGIN_ADDRESS/api/v1/nodes" \
		-d '{"id":"'"$(printf %032d 6)"'","name":"thief","peer_address":"10.78.0.8:7442","fingerprint":"'"$print"'","hoard_revision":0,"counters":{},"disks":[]}'
}
check "tenants: a report with another tenant's certificate is told of its own tenant's nodes only" same "node-6 node-7" \
	"$(told_as lab-6 | jq -r '[.nodes[].name] | sort | join(" ")')"
check "tenants: with no more about them than others of the tenant need" same "fingerprint,hoard_revision,id,name,peer_address,seen_unix_ms" \
	"$(told_as lab-6 | jq -r '[.nodes[] | keys[]] | unique | join(",")')"
# Longer than the nodes need to ask the origin again.
sleep 6
check "tenants: the other tenant's nodes still know only each other" knows 8
check "tenants: and greet nobody else" refuses 6 8
kill -TERM "${NODES[9]}"
wait "${NODES[9]}" 2>/dev/null || true
unset 'NODES[9]'
exits() { local code=0; "${@:2}" || code=$?; [ "$code" = "$1" ] || { echo "exit code $code"; return 1; }; }
check "tenants: a cache that one tenant filled is not shared with another" exits 5 timeout 30 "$ROOM" in 9 \
	"$PLATTER" --server "https://$ORIGIN_ADDRESS" --fingerprint "$FINGERPRINT" --token-file "$WORK/lab-6" \
	node --cache "$WORK/cache-9" --peers 10.78.0.9:7442

# The origin is stopped for good.
node 5
check "a fifth node is connected with the others" until_true 40 meets 5 3
kill -KILL "$ORIGIN"
wait "$ORIGIN" 2>/dev/null || true
ORIGIN=
check "without an origin it serves the disk by its score" "$PLATTER" attach "$score" --node "$WORK/cache-5"
check "and gets every byte from the others" copies "$score" "$WORK/shown" 5
boots_from_others() { boots_to_marker "$(uri 5 "$boot_score")" || { tail -n 20 "$WORK"/node-[35].log; return 1; }; }
if [ -n "$boot_score" ]; then
	check "it serves a bootable disk" "$PLATTER" attach "$boot_score" --node "$WORK/cache-5"
	check "which boots with data from the others only" boots_from_others
fi
kill -KILL "${NODES[5]}"
wait "${NODES[5]}" 2>/dev/null || true
rm -f "$WORK/cache-5/segments"/*
node 5
check "restarted without an origin, it finds the others" until_true 30 copies "$score" "$WORK/shown" 5

for i in 1 3 4 5 6 7 8; do kill -TERM "${NODES[$i]}"; done
finish
