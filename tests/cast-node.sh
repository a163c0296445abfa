#!/usr/bin/env bash
# tests/cast-node.sh: `platter cast --node`: a node casts a version to its room. What its cache or hoard holds is not asked for at the
# origin, which may be dead; what is missing then is said. A cast of a node with an access token needs a key file, and has no block of
# another image, although frames of the cache do. An encrypted store; a node that has ended, or ends during a cast; a sender that is killed;
# a cache that is too small.
. "$(dirname "$0")/lib.sh"
. "$TESTS/rooms.sh"

need_namespaces "$@"
case ${PLATTER_SIZE:-quick} in full) mib=200 ;; *) mib=24 ;; esac
readonly BLOCK=32768
CACHE=$WORK/cache
NODE=
SERVER=
URL=https://10.78.0.3:7440

# serve: the origin, on machine 3
serve() {
	"$ROOM" in 3 "$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" --listen 10.78.0.3:7440 >>"$WORK/origin.log" 2>&1 &
	ORIGIN=$!
	until_true 60 afar images || { cat "$WORK/origin.log"; return 1; }
	FINGERPRINT=$(sed -n 's/^fingerprint //p' "$WORK/origin.log" | tail -n 1)
}
# sent: bytes of frames that this origin has sent
sent() { curl -s --unix-socket "$SOCKET" http://platter/metrics | awk '$1 == "platter_frame_stream_bytes_sent_total" { print $2 }'; }
sent_nothing_since() { [ "$(sent)" = "$1" ]; }

# node SECRET OPTION...: on the sender's machine; it answers on return
node() {
	PLATTER_TOKEN=$1 "$ROOM" in sender "$PLATTER" --fingerprint "$FINGERPRINT" node --origin "$URL" --cache "$CACHE" "${@:2}" >>"$WORK/node.log" 2>&1 &
	NODE=$!
	pids[node]=$NODE
	until_true 60 "$PLATTER" disks --node "$CACHE" || { cat "$WORK/node.log"; return 1; }
}
end_node() {
	kill "-$1" "$NODE"
	wait "$NODE" 2>/dev/null || true
	unset 'pids[node]'
}
# receive IMAGE OPTION...: on machines 1 and 2, in the background
receive() {
	local n
	for n in 1 2; do
		rm -f "$WORK/target-$n"
		"$ROOM" in "$n" timeout 120 "$PLATTER" --quiet receive "${score[$1]}" "$WORK/target-$n" --interface eth0 --free zero --yes --give-up 60 \
			"${@:2}" >"$WORK/receive-$n.log" 2>&1 &
		pids[$n]=$!
	done
}
# cast IMAGE OPTION...: by the node
cast() {
	"$ROOM" in sender timeout 120 "$PLATTER" --quiet --json cast "$1" --node "$CACHE" --interface eth0 --receivers 2 --wait 60 --give-up 60 "${@:2}"
}
# cast_right IMAGE FILE OPTION...: casts to machines 1 and 2, which get these bytes
cast_right() {
	local n
	receive "$1" --key-file "$WORK/cast.key"
	check "$room: the node casts" cast "$1" --key-file "$WORK/cast.key" "${@:3}"
	for n in 1 2; do
		ended 0 "$n" "machine $n receives it"
		check "$room: with every byte" cmp "$WORK/target-$n" "$2"
	done
}
no_pins() { [ -z "$(ls "$CACHE/pins")" ]; }
score_of() { "${@:2}" show "$1" | jq -r '[.. | .score? // empty] | first'; }
declare -A score
captured() { # IMAGE FILE OPTION...
	afar capture "$2" "$1" "${@:3}" >/dev/null
	score[$1]=$(score_of "$1" afar --json)
}

"$ROOM" up 3 1gbit 0
platter init >/dev/null
serve
all=$(origin_secret read '*')
lab=$(origin_secret read 'lab/*')
file_tree "$WORK/tree" "$mib" node
ext4_image "$WORK/disk" $((mib * 2)) "$WORK/tree"
rm -rf "$WORK/tree"
captured lab/disk "$WORK/disk"
afar export lab/disk "$WORK/right" >/dev/null
for name in other boot; do
	random $((16 << 20)) "$name" >"$WORK/$name"
	captured "lab/$name" "$WORK/$name" --raw
done

room="a cold cache"
check_exit "$EXIT_MISSING" "$room: a node that does not run" cast lab/disk --key-file "$WORK/cast.key"
check_said "$room: is named" "no node answers in $CACHE"
node "$all" --no-hoard
check_exit "$EXIT_REFUSED" "$room: without a key file, its cast is refused" cast lab/disk
check_said "$room: because of the access token" 'only to access tokens.*--key-file'
check_exit "$EXIT_MISSING" "$room: an unknown version is missing" cast lab/none --key-file "$WORK/cast.key"
check_exit "$EXIT_USAGE" "$room: a copy of the version is not made" cast lab/disk --spool "$WORK"
before=$(sent)
cast_right lab/disk "$WORK/right"
check "$room: what it lacked came from the origin" [ "$(sent)" -gt $((before + (mib << 19))) ]
check "$room: nothing stays pinned" until_true 10 no_pins

room="a warm cache"
before=$(sent)
cast_right lab/disk "$WORK/right" --segment 16
check "$room: nothing came from the origin" sent_nothing_since "$before"

room="a damaged cache"
cast_right lab/boot "$WORK/boot"
damaged() {
	python3 - "$CACHE/segments" "$WORK/boot" <<-'END'
		import pathlib, sys
		wanted, damaged = open(sys.argv[2], 'rb').read()[5 << 20:][:64], 0
		for segment in pathlib.Path(sys.argv[1]).iterdir():
		    place = segment.read_bytes().find(wanted)
		    if place >= 0:
		        with segment.open('r+b') as file:
		            file.seek(place)
		            file.write(b'damaged!')
		        damaged += 1
		assert damaged == 1, damaged
	END
}
# What has arrived lately is in memory, too.
end_node TERM
check "$room: a frame is damaged" damaged
node "$all" --no-hoard
before=$(sent)
cast_right lab/boot "$WORK/boot"
check "$room: the frame came from the origin again" [ "$(sent)" -gt "$before" ]
check "$room: and nothing else" [ "$(sent)" -lt $((before + (1 << 18))) ]

room="a dead origin"
"$PLATTER" attach lab/other --node "$CACHE" >/dev/null
qemu-io -r -f raw -c "read 4M 4M" "nbd+unix:///lab/other?socket=$CACHE/nbd.sock" >/dev/null
stop_origin KILL
cast_right lab/disk "$WORK/right"
check_exit "$EXIT_FAILED" "$room: a version that it holds in part is not cast" cast lab/other --key-file "$WORK/cast.key"
check_said "$room: and it says how much is missing" 'the node lacks [0-9]+ of the [0-9]+ blocks of lab/other'
end_node KILL
node "$all" --no-hoard
cast_right lab/disk "$WORK/right" --rate 400M

room="a node that ends"
serve
random $((96 << 20)) large >"$WORK/large"
captured lab/large "$WORK/large" --raw
receive lab/large --key-file "$WORK/cast.key"
cast lab/large --key-file "$WORK/cast.key" --rate 20M >"$WORK/cast.log" 2>&1 &
sender=$!
writes() { [ "$(stat -c %b "$WORK/target-1")" -ge 2048 ]; }
check "$room: a cast runs" until_true 60 writes
check_exit "$EXIT_FAILED" "$room: another node does not take over meanwhile" env PLATTER_TOKEN="$all" "$ROOM" in sender timeout 60 "$PLATTER" \
	--fingerprint "$FINGERPRINT" node --no-hoard --origin "$URL" --cache "$CACHE" --take-over
check_said "$room: which says why" 'a version is being cast'
SECONDS=0
end_node TERM
# Nothing but the end of the node ends the cast before.
check "$room: a node that is to end does so" [ "$SECONDS" -lt 6 ]
code=0
wait "$sender" || code=$?
check "$room: the cast fails" [ "$code" = "$EXIT_FAILED" ]
cp "$WORK/cast.log" "$LOG"
check_said "$room: and says why" 'the node is being ended, and with it the cast'
for n in 1 2; do
	kill "${pids[$n]}" 2>/dev/null || true
	wait "${pids[$n]}" || true
	unset "pids[$n]"
done

room="a node that ends while nobody receives"
waits() { "$ROOM" in sender ss -Hltn | grep -q ':7580 '; }
for signal in TERM KILL; do
	node "$all" --no-hoard
	cast lab/disk --key-file "$WORK/cast.key" >"$WORK/cast.log" 2>&1 &
	sender=$!
	check "$room: a cast waits" until_true 60 waits
	end_node "$signal"
	SECONDS=0
	code=0
	wait "$sender" || code=$?
	check "$room: SIG$signal: the cast fails" [ "$code" = "$EXIT_FAILED" ]
	check "$room: at once" [ "$SECONDS" -lt 10 ]
	cp "$WORK/cast.log" "$LOG"
	check_said "$room: and says why" 'the node (is being|has) ended, and with it the cast'
done

room="a sender that is killed"
node "$all" --no-hoard
receive lab/disk --key-file "$WORK/cast.key"
"$ROOM" in sender "$PLATTER" --quiet cast lab/disk --node "$CACHE" --interface eth0 --receivers 2 --rate 2M --key-file "$WORK/cast.key" >"$WORK/cast.log" 2>&1 &
sender=$!
check "$room: a cast runs" until_true 60 writes
check "$room: its disk is pinned" eval '! no_pins'
kill -9 "$sender"
wait "$sender" 2>/dev/null || true
check "$room: the node unpins the disk" until_true 10 no_pins
for n in 1 2; do
	kill "${pids[$n]}" 2>/dev/null || true
	wait "${pids[$n]}" || true
	unset "pids[$n]"
done
end_node TERM

room="a hoard"
rm -f "$WORK/trace" "$WORK/nbd.sock"
start_server lab/boot --nbd "$WORK/nbd.sock" --record "$WORK/trace"
qemu-io -r -f raw -c "read 0 16M" "nbd+unix:///lab/boot?socket=$WORK/nbd.sock" >/dev/null
stop TERM
afar hoard import "$WORK/trace" lab/boot >/dev/null
rm -rf "$CACHE"
node "$all"
hoards() { [ "$(jq .revision "$CACHE/hoard/hoard.json")" = 1 ]; }
check "$room: the node holds the boot set" until_true 60 hoards
stop_origin KILL
cast_right lab/boot "$WORK/boot"
end_node TERM

room="an access token for some images"
# Frames of the other image have blocks that the first one shares: three of every four.
serve
random $((128 * BLOCK)) mixed >"$WORK/mixed"
for n in $(seq 0 127); do [ $((n % 4)) = 3 ] || dd if="$WORK/mixed" bs=$BLOCK skip="$n" count=1 status=none; done >"$WORK/part"
captured hidden/mixed "$WORK/mixed" --raw
captured lab/mixed "$WORK/part" --raw
rm -rf "$CACHE"
node "$all" --no-hoard
"$PLATTER" attach hidden/mixed --fill --node "$CACHE" >/dev/null
is_filled() { "$PLATTER" --json disks --node "$CACHE" | jq -es '.[0].fill.filled'; }
check "$room: a cache has frames with blocks of both images" until_true 60 is_filled
"$PLATTER" detach hidden/mixed --node "$CACHE" >/dev/null
end_node TERM
node "$lab" --no-hoard
check_exit "$EXIT_MISSING" "$room: an image that it does not cover is missing" cast hidden/mixed --readable
before=$(sent)
record_wire 3 "$WORK/wire"
until_true 10 test -e "$WORK/wire"
receive lab/mixed
check "$room: a cast that everybody may read" cast lab/mixed --readable
for n in 1 2; do
	ended 0 "$n" "machine $n receives it"
	check "$room: with every byte" cmp "$WORK/target-$n" "$WORK/part"
done
kill "${pids[3]}"
wait "${pids[3]}" 2>/dev/null || true
unset 'pids[3]'
check "$room: only the recipe came from the origin" [ "$(sent)" -lt $((before + BLOCK)) ]
# on_wire N: how many of 16 pieces of block N of the other image were on the wire; some are divided between datagrams
on_wire() {
	python3 - "$WORK/wire" "$WORK/mixed" $(($1 * BLOCK)) <<-'END'
		import sys
		wire, block = open(sys.argv[1], 'rb').read(), open(sys.argv[2], 'rb').read()[int(sys.argv[3]):]
		print(sum(block[at * 2048:][:64] in wire for at in range(16)))
	END
}
for n in 0 61 126; do check "$room: block $n was on the wire" [ "$(on_wire "$n")" -ge 8 ]; done
for n in 3 51 127; do check "$room: block $n, of the other image alone, was not" [ "$(on_wire "$n")" = 0 ]; done
end_node TERM

room="a cache that is too small"
rm -rf "$CACHE"
node "$all" --no-hoard --cache-size 64M
check_exit "$EXIT_REFUSED" "$room: the cast is refused" cast lab/large --key-file "$WORK/cast.key"
check_said "$room: and says why" 'its limit is too small'
check "$room: nothing stays pinned" until_true 10 no_pins
end_node TERM
stop_origin TERM

room="a local store"
rm -f "$WORK/nbd.sock"
start_server lab/boot --nbd "$WORK/nbd.sock"
CACHE=$STORE check_exit "$EXIT_REFUSED" "$room: a process that serves it is no node" cast lab/boot --key-file "$WORK/cast.key"
check_said "$room: and says what to do" '--store'
stop TERM

room="an encrypted store"
STORE=$WORK/encrypted CACHE=$WORK/cache-2
marker="the plaintext marker of seed $SEED"
{ head -c $((8 << 20)) "$WORK/other" && yes "$marker" | head -c 65536; } >"$WORK/marked" || true
platter init --encrypt --unlock-file "$WORK/key" >"$LOG" 2>&1
PLATTER_UNLOCK_FILE=$WORK/key serve
all=$(origin_secret read '*')
captured lab/marked "$WORK/marked" --raw
node "$all" --no-hoard
check_exit "$EXIT_REFUSED" "$room: without a key file, its cast is refused" cast lab/marked --readable
check_said "$room: because it is encrypted" 'the store is encrypted.*--key-file'
cast_right lab/marked "$WORK/marked"
stop_origin KILL
room="an encrypted store with a dead origin"
cast_right lab/marked "$WORK/marked"
check "$room: the search finds the marker where it is" grep -qaF "$marker" "$WORK/marked"
check "$room: the marker is in no file of the node" eval '! grep -rqaF "$marker" "$CACHE"'
end_node TERM
"$ROOM" down
finish
