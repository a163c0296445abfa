#!/usr/bin/env bash
# tests/hoard-casts.sh: an origin casts a revision of the hoard when enough nodes lack it. Four nodes of a room get each revision for
# about one copy on the wire, and hold it after kill -9, without their origin. Nodes with a token for some images get a cast of these
# alone, without a byte of the others. A single node, a cast that is disabled, a node that is killed, an origin that is killed, and a
# network that drops the cast: each node fetches what it lacks. Of an encrypted store, nothing is in clear at the nodes and on the wire.
. "$(dirname "$0")/lib.sh"
. "$TESTS/rooms.sh"

need_namespaces "$@"
case ${PLATTER_SIZE:-quick} in full) mib=96 ;; *) mib=16 ;; esac
readonly BLOCK=32768
SERVER=

# serve OPTION...: the origin, on the sender of the room
URL=https://10.78.0.200:7440
serve() {
	"$ROOM" in sender "$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" --listen 10.78.0.200:7440 "$@" >>"$WORK/origin.log" 2>&1 &
	ORIGIN=$!
	until_true 60 afar images || { cat "$WORK/origin.log"; return 1; }
	FINGERPRINT=$(sed -n 's/^fingerprint //p' "$WORK/origin.log" | tail -n 1)
}
# start I SECRET OPTION...: a node on machine I
start() {
	PLATTER_TOKEN=$2 "$ROOM" in "$1" "$PLATTER" --fingerprint "$FINGERPRINT" node --origin "$URL" --cache "$WORK/node-$1" --name "node-$1" \
		"${@:3}" >>"$WORK/node-$1.log" 2>&1 &
	pids[$1]=$!
}
# end SIGNAL I...: ends nodes
end() {
	local signal=$1 n
	shift
	for n; do
		kill "-$signal" "${pids[$n]}"
		wait "${pids[$n]}" 2>/dev/null || true
		unset "pids[$n]"
	done
}
# recorded IMAGE FILE: a version with these bytes, and a boot that read all of it
recorded() {
	afar capture --raw "$2" "$1" >/dev/null
	rm -f "$WORK/trace" "$WORK/nbd.sock"
	start_server "$1" --nbd "$WORK/nbd.sock" --record "$WORK/trace"
	qemu-io -r -f raw -c "read 0 $(stat -c %s "$2")" "nbd+unix:///$1?socket=$WORK/nbd.sock" >/dev/null
	stop TERM
	afar hoard import "$WORK/trace" "$1" >/dev/null
}
revision() { platter_json hoard status | jq .revision; }
# hold REVISION I...: these nodes hold the revision, according to the file that they have made durable
hold() {
	local wanted=$1 n
	shift
	for n; do [ "$(jq .revision "$WORK/node-$n/hoard/hoard.json")" = "$wanted" ] || return 1; done
}
# holds_bytes I FILE IMAGE: the hoard of node I alone serves the disk, whose bytes are in FILE
holds_bytes() {
	rm -f "$WORK/nbd.sock"
	start_server "$3" --hoard "$WORK/node-$1" --nbd "$WORK/nbd.sock"
	cmp <(nbdcopy "nbd+unix:///$3?socket=$WORK/nbd.sock" - | cat) "$2"
}
start_server() {
	: >"$WORK/server.log"
	"$PLATTER" --server "unix:$SOCKET" attach "$@" >"$WORK/server.log" 2>&1 &
	SERVER=$!
	until_true 30 grep -q '^score ' "$WORK/server.log" || { cat "$WORK/server.log"; return 1; }
}
casts() { afar --json casts --all; }
# cast_is FILTER: true for the newest cast
cast_is() { casts | jq -se "length > 0 and (.[0] | $1)"; }
casting() { casts | jq -se --argjson n "$1" '[.[0].receivers[] | select(.done_chunks > 0)] | length >= $n'; }
count() { casts | jq -s length; }
# packs_have I FILE OFFSET: the 64 bytes of FILE at OFFSET are in the hoard of node I
packs_have() {
	python3 - "$WORK/node-$1/hoard/packs" "$2" "$3" <<-'END'
		import pathlib, sys
		wanted = open(sys.argv[2], 'rb').read()[int(sys.argv[3]):][:64]
		sys.exit(not any(wanted in pack.read_bytes() for pack in pathlib.Path(sys.argv[1]).rglob('*.pack')))
	END
}

platter init >/dev/null
all=$(origin_secret read '*')
lab=$(origin_secret read 'lab/*')
other=$(origin_secret read 'other/*')
for name in one two three four five six seven; do random $((mib << 20)) "$name" >"$WORK/$name"; done
"$ROOM" up 5 1gbit 0

room="four nodes"
# On a busy machine, nodes join within some seconds.
serve --cast eth0 --cast-wait 4
for n in 1 2 3 4; do start "$n" "$all"; done
nodes() { [ "$(afar --json hoard status | jq '.nodes | length')" -ge "$1" ] || [ "$(curl -s --unix-socket "$SOCKET" http://origin/api/v1/nodes | jq '[.nodes[] | select(.is_there)] | length')" -ge "$1" ]; }
check "$room: the origin knows them" until_true 30 nodes 4
before=$("$ROOM" sent sender)
recorded lab/one "$WORK/one"
check "$room: all of them hold the new revision" until_true 60 hold "$(revision)" 1 2 3 4
sent=$(($("$ROOM" sent sender) - before))
check "$room: by one cast" until_true 20 cast_is '.version == "hoard:@1" and .receivers_done == 4 and .receivers_total == 4'
check "$room: there is no other" [ "$(count)" = 1 ]
check "$room: its receivers are the nodes" cast_is '[.receivers[].name] | sort == ["node-1", "node-2", "node-3", "node-4"]'
check "$room: a table for people" eval 'afar casts --all | grep -q "hoard:@1 .*node-1"'
check "$room: it is of about the length of the revision" cast_is ".cast_bytes >= $mib * 1048576 and .cast_bytes < $mib * 1048576 * 1.1"
echo "$sent bytes sent" >"$LOG"
if [ "$sent" -ge $((mib << 20)) ] && [ "$sent" -lt $((mib * 3 / 2 << 20)) ]; then
	ok "$room: the revision crosses the network about once"
else
	not_ok "$room: $sent bytes were sent for $mib MiB"
fi
lab_casts() { PLATTER_TOKEN=$lab "$ROOM" in 5 "$PLATTER" --quiet --json --server "$URL" --fingerprint "$FINGERPRINT" casts --all; }
check "$room: a token for some images does not see it" jq -se 'length == 0' <(lab_casts)

room="the next revision"
before=$("$ROOM" sent sender)
recorded lab/two "$WORK/two"
check "$room: all of them hold it" until_true 60 hold "$(revision)" 1 2 3 4
sent=$(($("$ROOM" sent sender) - before))
check "$room: by a cast of its own" until_true 20 cast_is '.version == "hoard:@2" and .receivers_done == 4'
check "$room: which has only what is new" cast_is ".cast_bytes < $mib * 1048576 * 1.1"
echo "$sent bytes sent" >"$LOG"
check "$room: and crosses the network about once" [ "$sent" -lt $((mib * 3 / 2 << 20)) ]

room="after kill -9"
end KILL 1 2 3 4
stop_origin KILL
for n in 1 4; do
	check "$room: node $n serves the first disk without its origin" holds_bytes "$n" "$WORK/one" lab/one
	stop TERM
	check "$room: and the second one" holds_bytes "$n" "$WORK/two" lab/two
	stop TERM
done

room="one node"
serve --cast eth0 --cast-wait 1
start 1 "$all"
recorded lab/three "$WORK/three"
check "$room: it fetches the revision" until_true 60 hold "$(revision)" 1
check "$room: without a cast" [ "$(count)" = 0 ]

room="nodes with other images"
# Frames of the other image have blocks that the first one shares: three of every four.
random $((128 * BLOCK)) mixed >"$WORK/mixed"
for n in $(seq 0 127); do [ $((n % 4)) = 3 ] || dd if="$WORK/mixed" bs=$BLOCK skip="$n" count=1 status=none; done >"$WORK/part"
end TERM 1
rm -rf "$WORK"/node-*
recorded other/mixed "$WORK/mixed"
recorded lab/mixed "$WORK/part"
for n in 1 2 3; do start "$n" "$lab"; done
start 4 "$other"
lab_members() { for n in 1 2 3; do jq -e '[.members[].image] | sort == ["lab/mixed", "lab/one", "lab/three", "lab/two"]' "$WORK/node-$n/hoard/hoard.json" || return 1; done; }
check "$room: nodes with a token for lab/* hold its part" until_true 60 lab_members
check "$room: by cast" until_true 20 cast_is '.receivers_done == 3 and .receivers_total == 3'
check "$room: the only one" [ "$(count)" = 1 ]
check "$room: a node with another token holds its own part" until_true 60 jq -e '[.members[].image] == ["other/mixed"]' "$WORK/node-4/hoard/hoard.json"
check "$room: their hoards have the blocks of their images" packs_have 1 "$WORK/mixed" $((2 * BLOCK))
no_other_block() { for n in 3 7 51 127; do ! packs_have 1 "$WORK/mixed" $((n * BLOCK)) || return 1; done; }
check "$room: the cast brought no other block" no_other_block
check "$room: which the other node has" packs_have 4 "$WORK/mixed" $((3 * BLOCK))
asked() { # SECRET NODE
	"$ROOM" in 5 curl -sk -m 10 -H "Authorization: Bearer $1" -H 'Content-Type: application/json' \
		-d "{\"node\":\"$2\",\"since\":0,\"missing_bytes_max\":99999999,\"families\":[\"ipv4\"]}" "$URL/api/v1/hoard/cast"
}
node() { printf '%032x' "$1"; }
for n in 1 2 3; do asked "$lab" "$(node "$n")" >"$WORK/offer-$n"; done
check "$room: a third node starts a cast" until_true 30 eval 'asked "$lab" "$(node 1)" | tee "$WORK/offer" | jq -e ".state == \"ready\""'
for n in 7 8; do asked "$other" "$(node "$n")" >"$WORK/offer-$n"; done
check "$room: another token is not told of it" jq -e '.state == "wait" and .cast == null' "$WORK/offer-8"
check "$room: a node that is none is refused" jq -e '.status == 400' <(asked "$lab" x)
check "$room: and so is a token that is none" jq -e '.status == 401' <(asked "${lab%?}" "$(node 1)")
end TERM 1 2 3 4

room="a node that is killed"
stop_origin TERM
rm -rf "$WORK"/node-*
serve --cast eth0 --cast-rate 40M --cast-wait 1
for n in 1 2 3 4; do start "$n" "$all"; done
check "$room: a cast of all revisions begins" until_true 60 casting 4
end KILL 4
check "$room: the others hold all of it" until_true 120 hold "$(revision)" 1 2 3
check "$room: the killed one holds nothing" eval '[ ! -e "$WORK/node-4/hoard/hoard.json" ] || hold 0 4'
start 4 "$all"
check "$room: it holds all of it when it runs again" until_true 120 hold "$(revision)" 4
end KILL 4
check "$room: with every byte" holds_bytes 4 "$WORK/three" lab/three
stop TERM
end TERM 1 2 3

room="an origin that is killed"
stop_origin TERM
rm -rf "$WORK"/node-*
serve --cast eth0 --cast-rate 40M --cast-wait 1
for n in 1 2 3 4; do start "$n" "$all"; done
check "$room: a cast begins" until_true 60 casting 4
kill -9 "$ORIGIN"
wait "$ORIGIN" 2>/dev/null || true
check "$room: no node holds the revision" eval '! hold "$(revision)" 1 && ! hold "$(revision)" 2'
serve
check "$room: the nodes fetch the rest of an origin that does not cast" until_true 120 hold "$(revision)" 1 2 3 4
stop_origin TERM
serve --cast eth0 --cast-wait 4
check "$room: the next one knows them" until_true 30 nodes 4
recorded lab/six "$WORK/six"
check "$room: they hold its revision" until_true 60 hold "$(revision)" 1 2 3 4
check "$room: by cast: their network passes casts" until_true 20 cast_is '.receivers_done == 4'
end KILL 1 2 3 4
check "$room: with every byte" holds_bytes 2 "$WORK/one" lab/one
stop TERM

room="no multicast"
stop_origin TERM
rm -rf "$WORK"/node-*
for n in 1 2 3; do
	"$ROOM" in "$n" nft -f - <<-'EOF'
		table inet none {
			chain input {
				type filter hook input priority 0;
				ip daddr 239.0.0.0/8 drop
			}
		}
	EOF
done
serve --cast eth0 --cast-wait 1
for n in 1 2 3; do start "$n" "$all"; done
check "$room: each node fetches the revision" until_true 120 hold "$(revision)" 1 2 3
check "$room: and says why" grep -q 'not received by cast, so it is fetched: .*does not pass multicast' "$WORK/node-1.log"
before=$(count)
recorded lab/four "$WORK/four"
check "$room: the next one" until_true 60 hold "$(revision)" 1 2 3
check "$room: without asking for a cast" [ "$(count)" = "$before" ]
end TERM 1 2 3
for n in 1 2 3; do "$ROOM" in "$n" nft delete table inet none; done

room="a blocked sender"
stop_origin TERM
rm -rf "$WORK"/node-*
serve --cast eth0 --cast-rate 40M --cast-wait 1
for n in 1 2 3; do start "$n" "$all"; done
check "$room: a cast begins" until_true 60 casting 3
"$ROOM" in sender nft -f - <<-'EOF'
	table inet none {
		chain output {
			type filter hook output priority 0;
			ip daddr 239.0.0.0/8 drop
			tcp sport 7580 drop
		}
	}
EOF
check "$room: each node fetches the rest" until_true 180 hold "$(revision)" 1 2 3
end TERM 1 2 3
"$ROOM" in sender nft delete table inet none

room="disabled casts"
stop_origin TERM
rm -rf "$WORK"/node-*
serve --cast eth0 --cast-wait 1 --cast-hoard 0
for n in 1 2 3 4; do start "$n" "$all"; done
check "$room: the origin does not cast" until_true 60 hold "$(revision)" 1 2 3 4
check "$room: indeed" [ "$(count)" = 0 ]
end TERM 1 2 3 4
stop_origin TERM
rm -rf "$WORK"/node-*
serve --cast eth0 --cast-wait 1 --cast-hoard 2
for n in 1 2; do start "$n" "$all" --interface eth0; done
start 3 "$all" --no-casts
check "$room: a node that wants none" until_true 60 hold "$(revision)" 1 2 3
check "$room: is no receiver" until_true 20 cast_is '[.receivers[].name] | sort == ["node-1", "node-2"]'
end TERM 1 2 3
stop_origin TERM

room="an encrypted store"
rm -rf "$WORK"/node-*
STORE=$WORK/encrypted
marker="the plaintext marker of seed $SEED"
{ cat "$WORK/five" && yes "$marker" | head -c 65536; } >"$WORK/marked" || true
platter init --encrypt --unlock-file "$WORK/key" >"$LOG" 2>&1
PLATTER_UNLOCK_FILE=$WORK/key serve --cast eth0 --cast-wait 4
all=$(origin_secret read '*')
for n in 1 2 3 4; do start "$n" "$all"; done
check "$room: the origin knows the nodes, which have no key" until_true 30 nodes 4
record_wire 5 "$WORK/wire"
recorded lab/marked "$WORK/marked"
revision() { afar --json hoard status | jq .revision; }
check "$room: they hold the revision" until_true 60 hold "$(revision)" 1 2 3 4
check "$room: by cast" until_true 20 cast_is '.receivers_done == 4'
end TERM 1 2 3 4 5
check "$room: with every byte" holds_bytes 3 "$WORK/marked" lab/marked
stop TERM
check "$room: the search finds the marker where it is" grep -qaF "$marker" "$WORK/marked"
check "$room: the marker is in no file of a node" eval '! grep -rqaF "$marker" "$WORK"/node-*'
check "$room: the cast was heard on the wire" [ "$(stat -c %s "$WORK/wire")" -gt $((mib << 19)) ]
check "$room: and the marker is not in it" eval '! grep -qaF "$marker" "$WORK/wire"'
check "$room: nor is the name of the image" eval '! grep -qaF lab/marked "$WORK/wire"'
"$ROOM" down
finish
