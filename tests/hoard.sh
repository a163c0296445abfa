#!/usr/bin/env bash
# tests/hoard.sh: boot sets and the hoard. Traces made by reads over NBD become boot sets with exactly the blocks that were
# read, in order; the origin's revisions are told, hidden, dropped with age, and found again in packs; a node's hoard is
# brought up to date, killed meanwhile, damaged, and read when every origin is gone. A machine is recorded that is a script
# here, and QEMU with a disk of the catalog when the size is full. PLATTER_SEED chooses the moments.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) kills=25 ;; *) kills=4 ;; esac
readonly BLOCK=32768
SERVER=
NODE=$WORK/node
export PLATTER_ROOM=$WORK/room
suite_cleanup() {
	local process
	for process in $SERVER $ORIGIN $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
	"$ROOT/lab/room" down
}
afar_json() { "$PLATTER" --server "unix:$SOCKET" --quiet --json "$@"; }
# lab_only ARGUMENT...: as somebody who may read lab/* only
lab_only() {
	PLATTER_TOKEN=$LAB "$PLATTER" --server "https://127.0.0.1:$PORT" --fingerprint "$FINGERPRINT" --quiet --json "$@"
}
uri() { echo "nbd+unix:///$1?socket=$WORK/nbd.sock"; }
# trace_of VERSION FILE COMMAND...: what QEMU's client asks of the version's disk
trace_of() {
	local version=$1 file=$2 commands=() command
	shift 2
	for command in "$@"; do commands+=(-c "$command"); done
	rm -f "$file"
	start_server "$version" --nbd "$WORK/nbd.sock" --record "$file"
	qemu-io -r -f raw "${commands[@]}" "$(uri "${version%@*}")"
	stop TERM
}
blocks_of() { platter_json hoard show "$1" | jq -c .blocks; }
revision() { platter_json hoard status | jq .revision; }
members() { platter_json hoard list | jq -rs 'map("\(.image)@\(.number)") | sort | join(" ")'; }
is() {
	[ "$1" = "$2" ] || {
		printf 'is    %s\nnot   %s\n' "$1" "$2"
		return 1
	}
}

# Disks of 64 blocks: the second has its first 16 of its own, the private one shares nothing.
random $((64 * BLOCK)) one >"$WORK/one"
{ random $((16 * BLOCK)) two && tail -c $((48 * BLOCK)) "$WORK/one"; } >"$WORK/two"
random $((64 * BLOCK)) three >"$WORK/three"
platter init >/dev/null
for disk in one two; do platter capture --raw "$WORK/$disk" lab/disk >/dev/null; done
platter capture --raw "$WORK/three" secret/disk >/dev/null

# Boot sets from traces.
check "a disk is read from end to end" trace_of lab/disk@1 "$WORK/all-1" 'read 0 2M'
check "that is a boot set" platter hoard import "$WORK/all-1" lab/disk
mapfile -t ids < <(platter_json hoard show lab/disk@1 | jq -r '.blocks[]')
check "of every block" is "${#ids[@]}" 64
check "no block twice" is "$(printf '%s\n' "${ids[@]}" | sort -u | wc -l)" 64
check "a disk is read here and there" trace_of lab/disk@1 "$WORK/some" 'read 640k 4k' 'read 96k 64k' 'read 641k 1k' 'read 0 4k'
check "that is a boot set instead" platter hoard import "$WORK/some" lab/disk@1 --marker 'test done'
check "of exactly what was read, in order" is "$(blocks_of lab/disk@1)" \
	"$(jq -nc '$ARGS.positional' --args "${ids[20]}" "${ids[3]}" "${ids[4]}" "${ids[0]}")"
check "it says how it was made" jq -e '.record.marker == "test done" and .record.requests == 4 and .record.bytes_read == 74752' \
	<(platter_json hoard show lab/disk@1)
check "each made a revision" is "$(revision)" 2
platter hoard import "$WORK/some" lab/disk@1 --marker 'test done' >/dev/null
check "the same one again makes none" is "$(revision)" 2
check_exit "$EXIT_REFUSED" "a trace of another version is refused" platter hoard import "$WORK/some" lab/disk@2
check_exit "$EXIT_MISSING" "so is an image that is not there" platter hoard import "$WORK/some" lab/none
check_exit "$EXIT_CORRUPT" "so is what is no trace" platter hoard import "$WORK/one" lab/disk
platter hoard import "$WORK/all-1" lab/disk@1 >/dev/null
check "the other version" trace_of lab/disk@2 "$WORK/all-2" 'read 0 2M'
platter hoard import "$WORK/all-2" lab/disk >/dev/null
check "two versions, and what they share once" jq -e '.unique_bytes >= 80 * 32768 and .unique_bytes < 81 * 32768 and .boot_set_bytes >= 128 * 32768' \
	<(platter_json hoard status)

# A machine that is recorded: it reads, writes, reads that again, says its marker, and would run for ever.
cat >"$WORK/machine" <<'MACHINE'
#!/usr/bin/env bash
for argument; do case $argument in file=*) disk=${argument#file=} ;; esac; done
qemu-io -f raw -c 'read 1M 64k' -c 'write -P 7 0 64k' -c 'read -P 7 0 64k' -c 'read 32k 64k' "${disk%%,*}" >/dev/null
printf 'the system is up\nlogin: '
exec sleep 1000
MACHINE
chmod +x "$WORK/machine"
check "a boot is recorded" platter hoard record secret/disk --qemu "$WORK/machine" --until 'serial:login:'
check "what the machine wrote itself is left out" jq -e '(.blocks | length) == 3 and .record.requests == 3 and .record.marker == "serial:login:"' \
	<(platter_json hoard show secret/disk)
check "the version is as it was" cmp <(platter export secret/disk "$WORK/exported" >/dev/null && cat "$WORK/exported") "$WORK/three"
check_exit "$EXIT_REFUSED" "a marker that does not come ends it" \
	platter hoard record secret/disk --qemu "$WORK/machine" --until serial:never --timeout 2s
check_said "and it is told what was said instead" 'login:'
check_exit "$EXIT_MISSING" "a machine that is not there" platter hoard record secret/disk --qemu "$WORK/none"
check "nothing of it is left" is "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'platter-record-*' | wc -l)" 0
check "a pause in its reads is a marker, too" platter hoard record secret/disk --qemu "$WORK/machine" --until quiet:1

# The origin and what it hides.
check "an origin answers" start_origin
LAB=$(platter_json serve token add lab --role admin --images 'lab/*' | jq -r .secret)
FINGERPRINT=$(origin_fingerprint)
check "the same list from afar" is "$(afar_json hoard list)" "$(platter_json hoard list)"
check "who may not read an image does not see its boot set" is "$(lab_only hoard list | jq -rs 'map("\(.image)@\(.number)") | join(" ")')" \
	'lab/disk@1 lab/disk@2'
check_exit "$EXIT_MISSING" "nor gets it" lab_only hoard show secret/disk
check_exit "$EXIT_MISSING" "nor takes it out" lab_only hoard unregister secret/disk
curl -sN -m 5 --unix-socket "$SOCKET" http://origin/api/v1/events >"$WORK/events" &
events=$!
until grep -q listening "$WORK/events"; do sleep 0.05; done
check "a trace is imported from afar" afar hoard import "$WORK/some" lab/disk@1
wait "$events" || true
check "those who watch are told of the revision" grep -A1 '^event: hoard$' "$WORK/events"
check "of which there is one more" grep -q "\"revision\":$(revision)" "$WORK/events"
afar hoard import "$WORK/all-1" lab/disk@1 >/dev/null

# A node's hoard.
sync_json() { afar_json hoard sync --cache "$NODE"; }
check "a node gets it" sync_json
check "all of it" jq -e --argjson revision "$(revision)" '.revision == $revision and .members == 3 and .fetched_blocks == 0 and .added == 0' <(sync_json)
check "with everything once" jq -e '.replica.blocks < 100 and .replica.disk_bytes < 85 * 32768' <(platter_json hoard status --cache "$NODE")
check_exit "$EXIT_MISSING" "a node that is not there has no hoard" platter hoard status --cache "$WORK/no-node"
check "who sees less hoards less" jq -e '.members == 2' <(lab_only hoard sync --cache "$WORK/other-node")
# serve_hoarded VERSION OPTION...: from the hoard, with an origin that may be dead
serve_hoarded() {
	local tries=0
	rm -f "$WORK/nbd.sock"
	: >"$WORK/server.log"
	"$PLATTER" --server "unix:$SOCKET" attach "$@" --hoard "$NODE" --nbd "$WORK/nbd.sock" >"$WORK/server.log" 2>&1 &
	SERVER=$!
	until grep -q '^score ' "$WORK/server.log"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 600 ] || ! kill -0 "$SERVER" 2>/dev/null; then
			cat "$WORK/server.log"
			return 1
		fi
		sleep 0.05
	done
}
WRITTEN=(lab/disk --write --overlays "$WORK/overlays")
check "a disk is written above the hoard" serve_hoarded "${WRITTEN[@]}"
check "the written" qemu-io -f raw -c 'write -P 7 0 64k' "$(uri lab/disk)"
stop KILL
stop_origin KILL
check "its origin is dead, and the disk that was written goes on" serve_hoarded "${WRITTEN[@]}"
check "with what was written, and its hoard" cmp <(nbdcopy "$(uri lab/disk)" - | cat) \
	<(head -c 65536 /dev/zero | tr '\0' '\007' && tail -c +65537 "$WORK/two")
stop TERM
check "the origin is dead, and a version is served" serve_hoarded lab/disk@1
check "all of whose hoarded blocks can be read" nbdcopy "$(uri lab/disk)" "$WORK/copied"
check "and are right" cmp "$WORK/copied" "$WORK/one"
stop TERM
check "the newest one without its number" serve_hoarded lab/disk
check "also whole" cmp <(nbdcopy "$(uri lab/disk)" - | cat) "$WORK/two"
stop TERM
check "one of which a part was read" serve_hoarded secret/disk
qemu-img dd -f raw -O raw bs=64k skip=16 count=17 "if=$(uri secret/disk)" "of=$WORK/piece" >/dev/null 2>&1 || true
check "has that part" cmp <(head -c 65536 "$WORK/piece") <(dd if="$WORK/three" bs=64k skip=16 count=1 status=none)
stop TERM
check_exit 1 "nothing can be fetched" afar hoard sync --cache "$NODE"
: >"$WORK/agent.log"
"$PLATTER" --server "unix:$SOCKET" node --cache "$NODE" >"$WORK/agent.log" 2>&1 &
agent=$!
until [ -S "$NODE/nbd.sock" ] || ! kill -0 "$agent"; do sleep 0.05; done
check "a node that begins now serves a name it never heard of" platter attach lab/disk@1 --node "$NODE"
check "from its hoard" cmp <(nbdcopy "nbd+unix:///lab/disk?socket=$NODE/nbd.sock" - | cat) "$WORK/one"
check_exit 1 "not one that nobody has" platter attach lab/none --node "$NODE"
check "its hoard is told, though the origin cannot be asked" \
	jq -e '.store_away != null and (.boot_sets | length) == 3 and .replica.members == 3' <(afar_json hoard status --cache "$NODE")
check "nor is there a store" jq -e '.boot_sets | length == 3' <(platter --json --store "$WORK/no-store" hoard status --cache "$NODE")
kill "$agent"
wait "$agent" || true
check "an origin answers again" start_origin
pack=$(find "$NODE/hoard/packs" -name '*.pack' | head -1)
check "what was written is published through the hoard" jq -e '.version == "scratch/disk@1"' \
	<(afar_json publish lab/disk scratch/disk --overlays "$WORK/overlays")
afar forget scratch/disk --all >/dev/null
printf 'x' | dd of="$pack" bs=1 seek=200000 conv=notrunc status=none
check "a hoard that is damaged" serve_hoarded lab/disk@1
check "is read from the origin there" cmp <(nbdcopy "$(uri lab/disk)" - | cat) "$WORK/one"
stop TERM

# Revisions.
check "out of the hoard, from afar" afar hoard unregister lab/disk@1
check "a node hears of the difference" jq -e '.gone == 1 and .added == 0 and .whole == false and .members == 2' <(sync_json)
check "and keeps what others need" jq -e '.replica.blocks > 60' <(platter_json hoard status --cache "$NODE")
stop_origin TERM
check_exit "$EXIT_MISSING" "what is out is not taken out again" platter hoard unregister lab/disk@1
platter hoard import "$WORK/all-1" lab/disk@1 >/dev/null
day() { platter hoard daily --now $((86400 * $1)) "${@:2}"; }
check "a day passes" day 20000 --keep-days 2
check "the same day once more" day 20000 --keep-days 2
check "a clock that jumps by years is one day" day 30000 --keep-days 2
check "so the older version is out, and the latest of each image is in" is "$(members)" 'lab/disk@2 secret/disk@1'
for n in 1 2 3 4 5; do day $((20000 + n)) --keep-days 1 --window-days 2 >/dev/null; done
check "for ever" is "$(members)" 'lab/disk@2 secret/disk@1'
check "an origin answers once more" start_origin
check "who was away for longer than the window gets everything" jq -e '.whole and .members == 2 and .fetched_blocks == 0' <(sync_json)
stop_origin TERM
platter hoard follow lab/disk --qemu "$WORK/machine" --until 'serial:login:' >/dev/null
platter capture --raw "$WORK/one" lab/disk >/dev/null
check "a new version of a followed image is recorded" day 20010
check "and no other" is "$(members)" 'lab/disk@2 lab/disk@3 secret/disk@1'
before=$(platter_json hoard show lab/disk@3 | jq -S 'del(.added)')
rm -f "$STORE"/catalog.sqlite* "$STORE/changes.log"
check "the catalog and its log are lost" platter rebuild
check "and boot sets are found in packs" is "$(platter_json hoard show lab/disk@3 | jq -S 'del(.added)')" "$before"
check "an origin whose revisions count anew" start_origin
check "gives everything" jq -e '.whole and .fetched_blocks < 10' <(sync_json)
platter forget lab/disk@2 >/dev/null
check "a boot set is forgotten with its version" sh -c '! echo "$1" | grep -q disk@2' - "$(members)"
platter rename secret lab/secret >/dev/null
check "and has its new name" sh -c 'echo "$1" | grep -q lab/secret/disk@1' - "$(members)"

# Killed at any moment, it goes on.
random $((96 << 20)) large >"$WORK/large"
platter capture --raw "$WORK/large" lab/large >/dev/null
trace_of lab/large "$WORK/all-large" 'read 0 32M' 'read 64M 32M' 'read 32M 32M' >/dev/null
platter hoard import "$WORK/all-large" lab/large >/dev/null
for n in $(seq "$kills"); do
	"$PLATTER" --server "unix:$SOCKET" --quiet hoard sync --cache "$NODE" >/dev/null 2>&1 &
	process=$!
	sleep "0.$(printf %03d "$(number "kill $n" 999)")"
	kill -KILL "$process" 2>/dev/null || true
	wait "$process" 2>/dev/null || true
done
check "a node that was killed $kills times gets it all the same" sync_json
check "its revision is the origin's" is "$(sync_json | jq .revision)" "$(revision)"
stop_origin KILL
check "without an origin" serve_hoarded lab/large
check "a large disk is whole" cmp <(nbdcopy "$(uri lab/large)" - | cat) "$WORK/large"
stop TERM
check "no pack is left that does not count" is "$(find "$NODE/hoard/packs" -name '*.pack' | wc -l)" "$(jq '.packs | length' "$NODE/hoard/hoard.json")"

# What it costs.
check "status as a table" platter hoard status --cache "$NODE" --svg "$WORK/growth.svg"
check_said "with the cost of one more" 'next image'
check "and as a picture" python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$WORK/growth.svg"

# Nodes that were told nothing of it keep the newest revision, and hear of the next one.
FOLLOWERS=(1 2 3 4)
declare -A followers=()
start_followers() {
	local n
	for n in "${FOLLOWERS[@]}"; do
		"$PLATTER" --server "unix:$SOCKET" --quiet node --cache "$WORK/follower-$n" --name "follower-$n" --peers "127.0.0.1:$((PORT + n))" \
			>"$WORK/follower-$n.log" 2>&1 &
		followers[$n]=$!
	done
}
follower_nodes() { curl -s --unix-socket "$SOCKET" http://origin/api/v1/nodes | jq "[.nodes[] | select((.name | startswith(\"follower\")) and $1)] | length"; }
# all_followers CONDITION: it is true of each, as the origin is told, within half a minute
all_followers() {
	local tries=0
	until [ "$(follower_nodes "$1")" = ${#FOLLOWERS[@]} ]; do
		tries=$((tries + 1))
		if [ "$tries" -ge 300 ]; then
			curl -s --unix-socket "$SOCKET" http://origin/api/v1/nodes
			tail -n 3 "$WORK"/follower-*.log
			return 1
		fi
		sleep 0.1
	done
}
all_hold() {
	local n
	for n in "${FOLLOWERS[@]}"; do is "$(platter_json hoard status --cache "$WORK/follower-$n" | jq .replica.revision)" "$1" || return 1; done
}
sent() { curl -s --unix-socket "$SOCKET" http://origin/metrics | awk '$1 == "platter_frame_stream_bytes_sent_total" { print $2 }'; }
STORE=$WORK/few
NODE=$WORK/few-node
platter init >/dev/null
platter capture --raw "$WORK/one" lab/disk >/dev/null
platter hoard import "$WORK/all-1" lab/disk >/dev/null
check "an origin of another store answers" start_origin
start_followers
check "nodes follow it by themselves" all_followers ".hoard_revision == $(revision)"
check "and are connected with each other" all_followers '.counters.peers_connected >= 3'
random $((192 * BLOCK)) four >"$WORK/four"
platter capture --raw "$WORK/four" lab/four >/dev/null
trace_of lab/four "$WORK/all-four" 'read 0 6M' >/dev/null
before=$(sent)
check "another boot set is registered" afar hoard import "$WORK/all-four" lab/four
check "every node has it" all_followers ".hoard_revision == $(revision)"
check "whole" all_hold "$(revision)"
copies=$(awk -v bytes=$(($(sent) - before)) -v one=$((192 * BLOCK)) 'BEGIN { printf "%.2f", bytes / one }')
check "the origin sent $copies copies to ${#FOLLOWERS[@]} nodes" awk -v copies="$copies" 'BEGIN { exit !(copies >= 0.9 && copies < 2.5) }'
for n in "${FOLLOWERS[@]}"; do
	kill "${followers[$n]}"
	wait "${followers[$n]}" || true
done

# By cast, to a node that has nothing, one that has an older revision, and one that has it all.
cast_to_three() {
	local n pids=() bad=0
	for n in 1 2 3; do
		"$ROOT/lab/room" in "$n" timeout 60 "$PLATTER" --quiet --json receive --hoard "$WORK/cast-$n" --interface eth0 --hello "receiver-$n" >"$WORK/cast-$n.json" 2>"$WORK/cast-$n.log" &
		pids+=($!)
	done
	"$ROOT/lab/room" in sender timeout 60 "$PLATTER" --quiet --json cast --hoard "$NODE" --interface eth0 --receivers 3 --wait 30 --give-up 30 >"$WORK/cast.json"
	for n in 1 2 3; do wait "${pids[$((n - 1))]}" || { cat "$WORK/cast-$n.log" && bad=1; }; done
	return $bad
}
cast_fact() { jq -s "[.[] | select(.fetched_blocks? != null)] | last | $2" "$WORK/cast-$1.json"; }
if need_root "a room to cast in"; then
	sync_json >/dev/null
	cp -a "$NODE" "$WORK/cast-2"
	before=$(revision)
	random $((32 * BLOCK)) five >"$WORK/five"
	afar capture --raw "$WORK/five" lab/five >/dev/null
	trace_of lab/five "$WORK/all-five" 'read 0 1M' >/dev/null
	afar hoard import "$WORK/all-five" lab/five >/dev/null
	sync_json >/dev/null
	cp -a "$NODE" "$WORK/cast-3"
	"$ROOT/lab/room" up 3 1gbit
	check "the hoard is cast to three nodes" cast_to_three
	for n in 1 2 3; do check "node $n has the revision" is "$(platter_json hoard status --cache "$WORK/cast-$n" | jq .replica.revision)" "$(revision)"; done
	all=$(platter_json hoard status --cache "$NODE" | jq .replica.blocks)
	check "the one that had nothing got everything" is "$(cast_fact 1 .revision_before) $(cast_fact 1 .fetched_blocks)" "0 $all"
	check "the one that was behind got what it lacked" test "$(cast_fact 2 .revision_before)" = "$before" -a "$(cast_fact 2 .fetched_blocks)" -ge 33 -a "$(cast_fact 2 .fetched_blocks)" -lt 40
	check "the one that had it all got nothing" is "$(cast_fact 3 .fetched_blocks)" 0
	"$ROOT/lab/room" down
fi

stop_origin TERM
STORE=$WORK/store
NODE=$WORK/node

# A real boot.
if [ "${PLATTER_SIZE:-quick}" = full ] && need_root "building a bootable disk"; then
	CATALOG=${PLATTER_CATALOG:-$WORK/catalog}
	[ -f "$CATALOG/base.raw" ] || check "a bootable disk is built" "$ROOT/catalog/make-catalog" "$CATALOG" small base
	platter capture "$CATALOG/base.raw" boot/base >/dev/null
	check "it boots, and is recorded" platter hoard record boot/base --until serial:PLATTER-BOOT-OK --timeout 15m --accelerator tcg
	check "it read something" jq -e '.record.requests > 500 and .record.accelerator == "tcg"' <(platter_json hoard show boot/base)
	check "an origin answers" start_origin
	check "a node hoards it" sync_json
	stop_origin KILL
	check "without an origin" serve_hoarded boot/base
	check "it boots from the hoard alone" boots_to_marker "$(uri boot/base)"
	stop TERM
fi
finish
