#!/usr/bin/env bash
# tests/encrypted-serve.sh: an encrypted store behind an origin, and its casts. Clients, nodes that share, and receivers have no secret of the store.
# A marker of the disks is in no file of store, nodes and hoards, and not on the wire.
. "$(dirname "$0")/lib.sh"

SERVER='' node='' sender='' dump='' peers=''
suite_cleanup() {
	local process
	for process in "$SERVER" "$node" "$sender" "$dump" $peers "$ORIGIN"; do [ -z "$process" ] || kill -9 "$process" 2>/dev/null; done
}

MARKER="the plaintext marker of seed $SEED"
files_with_marker() { grep -rlaF -- "$MARKER" "$@"; }
no_marker() { ! files_with_marker "$@"; }
export PLATTER_UNLOCK_FILE=$WORK/key
# Whoever is not the origin has no secret.
client() { env -u PLATTER_UNLOCK_FILE setsid "$PLATTER" --server "unix:$SOCKET" --quiet "$@" </dev/null; }
bare() { env -u PLATTER_UNLOCK_FILE setsid "$PLATTER" --quiet "$@" </dev/null; }

# Blocks that do not compress, with the marker in many sectors.
marked() { # FILE BYTES SEED
	random "$2" "$3" >"$1"
	for ((at = 0; at < $2 / 512; at += 8)); do
		printf '%s' "$MARKER" | dd of="$1" bs=512 seek="$at" conv=notrunc status=none
	done
}
marked "$WORK/disk" 2097152 "encrypted serve 1"
marked "$WORK/patch" 65536 "encrypted serve 2"
cp "$WORK/disk" "$WORK/disk-2"
dd if="$WORK/patch" of="$WORK/disk-2" bs=65536 seek=9 conv=notrunc status=none
check "the search finds the marker where it is" files_with_marker "$WORK/disk"

platter init --encrypt --unlock-file "$PLATTER_UNLOCK_FILE" >"$LOG" 2>&1
check_exit "$EXIT_REFUSED" "without its key, the store is not served" env -u PLATTER_UNLOCK_FILE setsid timeout -s KILL 60 "$PLATTER" --store "$STORE" serve </dev/null
check_said "and what is missing is named" 'unlock-file'
check "and nothing is left behind" test ! -e "$STORE/serve-certificate.pem" -a ! -e "$STORE/serve-key.pem" -a ! -e "$STORE/serve.sock"
check "with its key, it is served" start_origin
check "a client captures a disk" client capture --raw "$WORK/disk" lab/disk
check "and its next version" client capture --raw "$WORK/disk-2" lab/disk
gzip -c "$WORK/disk" >"$WORK/disk.gz"
check "and a stream" client capture --raw --format raw.gz "$WORK/disk.gz" lab/stream
check "which has the same score" test "$(client --json show lab/stream | jq -r .score)" = "$(client --json show lab/disk@1 | jq -r .score)"
check "a client installs a version" client install lab/disk@1 "$WORK/target" --yes
check "with the right bytes" cmp "$WORK/disk" "$WORK/target"
check "and exports one" client export lab/disk "$WORK/exported"
check "with the right bytes, too" cmp "$WORK/disk-2" "$WORK/exported"
check_exit "$EXIT_DIFFERENT" "and compares two, which differ" client diff lab/disk@1 lab/disk@2
TOKEN=$(origin_secret read 'lab/*')
# The origin decrypts the files inside of a version for whoever may read it.
file_tree "$WORK/tree" 2 "encrypted files"
ext4_image "$WORK/files" 16 "$WORK/tree"
check "a client captures a filesystem" client capture "$WORK/files" lab/files
file() { curl -sk -o "$WORK/file" -w '%{http_code}' -H "Authorization: Bearer $1" "https://127.0.0.1:$PORT/api/v1/files/contents?version=lab/files&path=/random-1.bin"; }
check "a token gets a file inside of it" test "$(file "$TOKEN")" = 200
check "with the right bytes" cmp "$WORK/tree/random-1.bin" "$WORK/file"
FINGERPRINT=$(origin_fingerprint)
TOKEN_OF_OTHERS=$(origin_secret read 'other/*')
check "a token for other images does not" test "$(file "$TOKEN_OF_OTHERS")" = 404
check "over TLS, an access token suffices" sh -c "rm -f '$WORK/target'; env -u PLATTER_UNLOCK_FILE PLATTER_TOKEN=$TOKEN setsid '$PLATTER' --server https://127.0.0.1:$PORT --fingerprint $FINGERPRINT install lab/disk '$WORK/target' --yes </dev/null"
check "for the right bytes" cmp "$WORK/disk-2" "$WORK/target"
keys() { curl -sk -o "$WORK/keys" -w '%{http_code}' ${1:+-H "Authorization: Bearer $1"} "https://127.0.0.1:$PORT/api/v1/store/keys"; }
check "a token gets the keys" test "$(keys "$TOKEN")" = 200
# No part of them is in the key file, in the digits that it uses.
not_in_key_file() {
	local keys at
	keys=$(jq -er .keys "$WORK/keys") && [ "${#keys}" -ge 64 ] || return 1
	for ((at = 0; at + 32 <= ${#keys}; at += 32)); do
		! grep -qi "${keys:at:32}" "$STORE/keys.json" || return 1
	done
}
check "which are not those of keys.json" not_in_key_file
check "without a token nobody gets them" test "$(keys '')" = 401
rm -f "$WORK/keys"
check_exit "$EXIT_MISSING" "who may not read an image does not learn that it exists" env PLATTER_TOKEN="$TOKEN_OF_OTHERS" "$PLATTER" --server "https://127.0.0.1:$PORT" --fingerprint "$FINGERPRINT" export lab/disk "$WORK/none"
check "and gets no block of it" test ! -s "$WORK/none"
check "the marker is in no file of the store" no_marker "$STORE"

# What travels. The unix socket has no TLS, so it shows the frames as they are sent.
if need_root "reading what is sent"; then
	python3 - "$WORK/proxy.sock" "$SOCKET" "$WORK/wire" <<'PROXY' &
import socket, sys, threading
front = socket.socket(socket.AF_UNIX)
front.bind(sys.argv[1])
front.listen(64)
wire, lock = open(sys.argv[3], "wb"), threading.Lock()
def pump(a, b):
    try:
        while data := a.recv(65536):
            with lock:
                wire.write(data)
                wire.flush()
            b.sendall(data)
    except OSError:
        pass
    for end in (a, b):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
while True:
    client, _ = front.accept()
    back = socket.socket(socket.AF_UNIX)
    back.connect(sys.argv[2])
    threading.Thread(target=pump, args=(client, back), daemon=True).start()
    threading.Thread(target=pump, args=(back, client), daemon=True).start()
PROXY
	dump=$!
	until_true 60 test -S "$WORK/proxy.sock"
	check "a capture and an export are recorded" env -u PLATTER_UNLOCK_FILE setsid "$PLATTER" --server "unix:$WORK/proxy.sock" --quiet capture --raw "$WORK/patch" lab/patch
	check "of the same bytes" sh -c "env -u PLATTER_UNLOCK_FILE '$PLATTER' --server unix:$WORK/proxy.sock --quiet export lab/disk - | cmp - '$WORK/disk-2'"
	check "with all of their data" test "$(stat -c %s "$WORK/wire")" -gt 2000000
	check "the marker is not on the wire" no_marker "$WORK/wire"
	kill "$dump"
	wait "$dump" 2>/dev/null || :
	dump=
fi

# The hoard.
check "a boot is recorded" start_server lab/disk@1 --nbd "$WORK/boot.sock" --record "$WORK/trace"
check "with some reads" qemu-io -r -f raw -c 'read 64k 256k' -c 'read 1m 64k' "nbd+unix:///lab/disk?socket=$WORK/boot.sock"
stop TERM
check "its boot set is registered" afar hoard import "$WORK/trace" lab/disk@1
check "a node without a secret gets it" client hoard sync --cache "$WORK/hoarding"
check "with its blocks" test "$(du -sb "$WORK/hoarding/hoard" | cut -f 1)" -gt 200000
check "the marker is in no file of the hoard" no_marker "$WORK/hoarding"
check_exit "$EXIT_REFUSED" "a cast of this hoard that everybody can read is refused" timeout -s KILL 60 "$PLATTER" cast --hoard "$WORK/hoarding"
check_said "with the way out" 'key-file'

# A node with a cache and a hoard, whose disks are also written.
start_node() {
	env -u PLATTER_UNLOCK_FILE setsid "$PLATTER" node --origin "unix:$SOCKET" --cache "$WORK/node" >>"$WORK/node.log" 2>&1 </dev/null &
	node=$!
	until_true 60 "$PLATTER" disks --node "$WORK/node" || { cat "$WORK/node.log"; return 1; }
}
on_node() { env -u PLATTER_UNLOCK_FILE setsid "$PLATTER" --quiet "$@" --node "$WORK/node" </dev/null; }
same_as() { qemu-img compare -f raw -F raw "$1" "nbd+unix:///$2?socket=$WORK/node/nbd.sock"; }
check "a node starts" start_node
client clone lab/disk@1 lab/read >/dev/null
check "and attaches a version" on_node attach lab/read
check "which reads right" same_as "$WORK/disk" lab/read
check "its cache has the data" test "$(du -sb "$WORK/node" | cut -f 1)" -gt 1500000
check "the marker is in no file of the node" no_marker "$WORK/node"
check "it attaches a disk for writing" on_node attach --write lab/disk
check "which is written" qemu-io -f raw -c "write -s $WORK/patch 1m 64k" -c flush "nbd+unix:///lab/disk?socket=$WORK/node/nbd.sock"
cp "$WORK/disk-2" "$WORK/copy"
dd if="$WORK/patch" of="$WORK/copy" bs=65536 seek=16 conv=notrunc status=none
check "and reads right" same_as "$WORK/copy" lab/disk
check "the marker is still in no file of the node" no_marker "$WORK/node"
kill -KILL "$node"
wait "$node" 2>/dev/null || :
sent() { curl -s --unix-socket "$SOCKET" http://platter/metrics | awk '$1 == "platter_frame_stream_bytes_sent_total" { print $2 }'; }
before=$(sent)
check "after kill -9, the node starts again" start_node
check "its disk has the writes" until_true 60 same_as "$WORK/copy" lab/disk
check "the other is read from the cache" same_as "$WORK/disk" lab/read
check "nothing was fetched again" test "$(sent)" = "$before"
check "the written disk is published" on_node publish lab/disk
check "and the version is right" sh -c "env -u PLATTER_UNLOCK_FILE '$PLATTER' --server unix:$SOCKET --quiet export lab/disk - | cmp - '$WORK/copy'"
check "and the marker is in no file of node and store" no_marker "$WORK/node" "$STORE"
kill "$node"
wait "$node" 2>/dev/null || :
# The cache outlives a start that cannot get the keys.
stop_origin KILL
check "without its origin, the node starts" start_node
kill "$node"
wait "$node" 2>/dev/null || :
check "the origin returns" start_origin
check "and the node" start_node
before=$(sent)
check "its disk is read" until_true 60 same_as "$WORK/disk" lab/read
check "from the cache" test "$(sent)" = "$before"
kill "$node"
wait "$node" 2>/dev/null || :
node=

# Two nodes that share, and what travels between them.
PEER_PORT=$((12000 + SRANDOM % 7000))
start_peer() { # 1|2
	env -u PLATTER_UNLOCK_FILE setsid "$PLATTER" node --origin "unix:$SOCKET" --cache "$WORK/peer-$1" --name "peer-$1" --peers "127.0.0.1:$((PEER_PORT + $1))" \
		>>"$WORK/peer-$1.log" 2>&1 </dev/null &
	peers+=" $!"
	until_true 60 "$PLATTER" disks --node "$WORK/peer-$1" || { cat "$WORK/peer-$1.log"; return 1; }
}
counter() { curl -s --unix-socket "$SOCKET" http://platter/api/v1/nodes | jq --arg name "peer-$1" --arg counter "$2" '.nodes[] | select(.name == $name) | .counters[$counter]'; }
meets() { [ "$(counter "$1" peers_connected)" -ge 1 ]; }
peer_reads() { qemu-img compare -f raw -F raw "$2" "nbd+unix:///lab/read?socket=$WORK/peer-$1/nbd.sock"; }
if need_root "reading what peers send"; then
	python3 - "$PEER_PORT" "$WORK/peer-wire" <<'WIRE' &
import socket, struct, sys
ports = {int(sys.argv[1]) + peer for peer in (1, 2)}
wire = open(sys.argv[2], "wb", buffering=0)
link = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
link.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
link.bind(("lo", 0x0800))
while True:
    packet, address = link.recvfrom(1 << 16)
    at = (packet[0] & 15) * 4
    # Each packet of the loopback interface is seen twice: as sent, and as received.
    if packet[9] == socket.IPPROTO_TCP and address[2] != socket.PACKET_OUTGOING:
        if ports & set(struct.unpack_from(">HH", packet, at)):
            wire.write(packet[at + (packet[at + 12] >> 4) * 4:])
WIRE
	dump=$!
	until_true 60 test -e "$WORK/peer-wire"
fi
for i in 1 2; do check "sharing node $i starts" start_peer "$i"; done
for i in 1 2; do check "node $i is connected with the other" until_true 60 meets "$i"; done
for i in 1 2; do check "node $i attaches a disk" "$PLATTER" attach lab/read --node "$WORK/peer-$i"; done
check "the first reads it right" peer_reads 1 "$WORK/disk"
before=$(sent)
check "the second reads it right, too" peer_reads 2 "$WORK/disk"
check "and has most of it from the first" test $(($(sent) - before)) -lt 1000000
for i in 1 2; do
	check "the cache of node $i has the data" test "$(du -sb "$WORK/peer-$i" | cut -f 1)" -gt 2000000
	check "the marker is in no file of node $i" no_marker "$WORK/peer-$i"
done
if [ -n "$dump" ]; then
	kill "$dump"
	wait "$dump" 2>/dev/null || :
	dump=
	check "the data was seen between them" test "$(stat -c %s "$WORK/peer-wire")" -gt 1000000
	check "without the marker" no_marker "$WORK/peer-wire"
fi
for process in $peers; do
	kill "$process"
	wait "$process" 2>/dev/null || :
done
peers=
stop_origin TERM
check "the store is sound" platter check --read-data

# Casts.
check_exit "$EXIT_REFUSED" "a cast that everybody can read is refused" timeout -s KILL 60 "$PLATTER" --store "$STORE" cast lab/disk
check_said "with the way out" 'key-file'
timeout -s KILL 120 "$PLATTER" --store "$STORE" --quiet cast lab/disk --give-up 60 --interface 127.0.0.1 --key-file "$WORK/cast-key" --receivers 1 --wait 60 --linger 0 >"$WORK/cast.log" 2>&1 &
sender=$!
until_true 60 test -s "$WORK/cast-key"
rm -f "$WORK/received"
check "a cast with a key file arrives, without a secret of the store" timeout -s KILL 100 env -u PLATTER_UNLOCK_FILE setsid "$PLATTER" receive lab/disk "$WORK/received" --yes --trust-any --give-up 60 --interface 127.0.0.1 --key-file "$WORK/cast-key" </dev/null
check "with the right bytes" cmp "$WORK/copy" "$WORK/received"
check "and the sender ends well" wait "$sender"
sender=

finish
