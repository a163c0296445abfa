#!/usr/bin/env bash
# tests/hoard.sh: boot sets and the hoard. Traces made by reads over NBD become boot sets with exactly the blocks that
# were read, in order. The origin's revisions are reported, hidden from restricted tokens, dropped with age, and
# recovered from packs. A node's hoard is synced, killed during a sync, damaged, and read when every origin is down. The
# recorded machine is a script; with the size full, also QEMU with a disk of the catalog. PLATTER_SEED selects the
# moments.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) kills=25 ;; *) kills=4 ;; esac
readonly BLOCK=32768
SERVER=
NODE=$WORK/node
# Other suites may run at the same time, and record, too.
export TMPDIR=$WORK/temporary
mkdir "$TMPDIR"
export PLATTER_ROOM=$WORK/room
suite_cleanup() {
	local process
	for process in $SERVER $ORIGIN $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
	"$ROOT/lab/room" down
}
afar_json() { "$PLATTER" --server "unix:$SOCKET" --quiet --json "$@"; }
# lab_only ARGUMENT...: runs `platter` with a token that may read only lab/*
lab_only() {
	PLATTER_TOKEN=$LAB "$PLATTER" --server "https://127.0.0.1:$PORT" --fingerprint "$FINGERPRINT" --quiet --json "$@"
}
uri() { echo "nbd+unix:///$1?socket=$WORK/nbd.sock"; }
# trace_of VERSION FILE COMMAND...: records what qemu-io reads of the version's disk
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

# Disks of 64 blocks: the first 16 blocks of the second differ from the first disk; the private one shares nothing.
random $((64 * BLOCK)) one >"$WORK/one"
{ random $((16 * BLOCK)) two && tail -c $((48 * BLOCK)) "$WORK/one"; } >"$WORK/two"
random $((64 * BLOCK)) three >"$WORK/three"
platter init >/dev/null
for disk in one two; do platter capture --raw "$WORK/$disk" lab/disk >/dev/null; done
platter capture --raw "$WORK/three" secret/disk >/dev/null

# Boot sets from traces.
check "a disk is read from end to end" trace_of lab/disk@1 "$WORK/all-1" 'read 0 2M'
check "the trace becomes a boot set" platter hoard import "$WORK/all-1" lab/disk
mapfile -t ids < <(platter_json hoard show lab/disk@1 | jq -r '.blocks[]')
check "with every block" is "${#ids[@]}" 64
check "and no block twice" is "$(printf '%s\n' "${ids[@]}" | sort -u | wc -l)" 64
check "parts of a disk are read" trace_of lab/disk@1 "$WORK/some" 'read 640k 4k' 'read 96k 64k' 'read 641k 1k' 'read 0 4k'
check "this trace replaces the boot set" platter hoard import "$WORK/some" lab/disk@1 --marker 'test done'
check "with exactly the blocks that were read, in order" is "$(blocks_of lab/disk@1)" \
	"$(jq -nc '$ARGS.positional' --args "${ids[20]}" "${ids[3]}" "${ids[4]}" "${ids[0]}")"
check "it records how it was made" jq -e '.record.marker == "test done" and .record.requests == 4 and .record.bytes_read == 74752' \
	<(platter_json hoard show lab/disk@1)
check "each import made a revision" is "$(revision)" 2
platter hoard import "$WORK/some" lab/disk@1 --marker 'test done' >/dev/null
check "importing the same trace again makes none" is "$(revision)" 2
check_exit "$EXIT_REFUSED" "a trace of another version is refused" platter hoard import "$WORK/some" lab/disk@2
check_exit "$EXIT_MISSING" "a missing image is refused" platter hoard import "$WORK/some" lab/none
check_exit "$EXIT_CORRUPT" "a file that is no trace is refused" platter hoard import "$WORK/one" lab/disk
platter hoard import "$WORK/all-1" lab/disk@1 >/dev/null
check "the second version is read" trace_of lab/disk@2 "$WORK/all-2" 'read 0 2M'
platter hoard import "$WORK/all-2" lab/disk >/dev/null
check "shared blocks of two versions count once" jq -e '.unique_bytes >= 80 * 32768 and .unique_bytes < 81 * 32768 and .boot_set_bytes >= 128 * 32768' \
	<(platter_json hoard status)

# The machine to be recorded: it reads, writes, reads the written range again, prints its marker, and then runs forever.
cat >"$WORK/machine" <<'MACHINE'
#!/usr/bin/env bash
for argument; do case $argument in file=*) disk=${argument#file=} ;; esac; done
qemu-io -f raw -c 'read 1M 64k' -c 'write -P 7 0 64k' -c 'read -P 7 0 64k' -c 'read 32k 64k' "${disk%%,*}" >/dev/null
printf 'the system is up\nlogin: '
exec sleep 1000
MACHINE
chmod +x "$WORK/machine"
check "a boot is recorded" platter hoard record secret/disk --qemu "$WORK/machine" --until 'serial:login:'
check "blocks that the machine wrote itself are left out" jq -e '(.blocks | length) == 3 and .record.requests == 3 and .record.marker == "serial:login:"' \
	<(platter_json hoard show secret/disk)
check "the version is unchanged" cmp <(platter export secret/disk "$WORK/exported" >/dev/null && cat "$WORK/exported") "$WORK/three"
check_exit "$EXIT_REFUSED" "a missing marker ends the recording" \
	platter hoard record secret/disk --qemu "$WORK/machine" --until serial:never --timeout 2s
check_said "and the machine's last output is printed" 'login:'
check_exit "$EXIT_MISSING" "a missing machine program" platter hoard record secret/disk --qemu "$WORK/none"
check "no temporary file is left" is "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'platter-record-*' | wc -l)" 0
check "a pause in its reads can be the marker" platter hoard record secret/disk --qemu "$WORK/machine" --until quiet:1

# The origin, and what it hides.
check "an origin answers" start_origin
LAB=$(platter_json serve token add lab --role admin --images 'lab/*' | jq -r .secret)
FINGERPRINT=$(origin_fingerprint)
check "the origin lists the same boot sets" is "$(afar_json hoard list)" "$(platter_json hoard list)"
check "boot sets of hidden images are not listed" is "$(lab_only hoard list | jq -rs 'map("\(.image)@\(.number)") | join(" ")')" \
	'lab/disk@1 lab/disk@2'
check_exit "$EXIT_MISSING" "nor sent" lab_only hoard show secret/disk
check_exit "$EXIT_MISSING" "nor can they be unregistered" lab_only hoard unregister secret/disk
curl -sN -m 5 --unix-socket "$SOCKET" http://origin/api/v1/events >"$WORK/events" &
events=$!
until grep -q listening "$WORK/events"; do sleep 0.05; done
check "a trace is imported through the origin" afar hoard import "$WORK/some" lab/disk@1
wait "$events" || true
check "an event reports the revision" grep -A1 '^event: hoard$' "$WORK/events"
check "which is the next one" grep -q "\"revision\":$(revision)" "$WORK/events"
afar hoard import "$WORK/all-1" lab/disk@1 >/dev/null

# A node's hoard.
sync_json() { afar_json hoard sync --cache "$NODE"; }
check "a node syncs the hoard" sync_json
check "and has all of it" jq -e --argjson revision "$(revision)" '.revision == $revision and .members == 3 and .fetched_blocks == 0 and .added == 0' <(sync_json)
check "with every block once" jq -e '.replica.blocks < 100 and .replica.disk_bytes < 85 * 32768' <(platter_json hoard status --cache "$NODE")
check_exit "$EXIT_MISSING" "status of a missing node" platter hoard status --cache "$WORK/no-node"
check "a restricted token hoards only what it may read" jq -e '.members == 2' <(lab_only hoard sync --cache "$WORK/other-node")
# serve_hoarded VERSION OPTION...: serves the version from the hoard, even if the origin is down
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
check "a writable disk is served from the hoard" serve_hoarded "${WRITTEN[@]}"
check "and written" qemu-io -f raw -c 'write -P 7 0 64k' "$(uri lab/disk)"
stop KILL
stop_origin KILL
check "with the origin down, the written disk is served" serve_hoarded "${WRITTEN[@]}"
check "with its writes and its hoarded blocks" cmp <(nbdcopy "$(uri lab/disk)" - | cat) \
	<(head -c 65536 /dev/zero | tr '\0' '\007' && tail -c +65537 "$WORK/two")
stop TERM
check "with the origin down, a version is served" serve_hoarded lab/disk@1
check "its hoarded blocks are read" nbdcopy "$(uri lab/disk)" "$WORK/copied"
check "and have the right bytes" cmp "$WORK/copied" "$WORK/one"
stop TERM
check "the newest version is served without a number" serve_hoarded lab/disk
check "with all bytes" cmp <(nbdcopy "$(uri lab/disk)" - | cat) "$WORK/two"
stop TERM
check "a partly recorded version is served" serve_hoarded secret/disk
qemu-img dd -f raw -O raw bs=64k skip=16 count=17 "if=$(uri secret/disk)" "of=$WORK/piece" >/dev/null 2>&1 || true
check "with its recorded part" cmp <(head -c 65536 "$WORK/piece") <(dd if="$WORK/three" bs=64k skip=16 count=1 status=none)
stop TERM
check_exit 1 "a sync without the origin fails" afar hoard sync --cache "$NODE"
: >"$WORK/agent.log"
"$PLATTER" --server "unix:$SOCKET" node --cache "$NODE" >"$WORK/agent.log" 2>&1 &
agent=$!
until [ -S "$NODE/nbd.sock" ] || ! kill -0 "$agent"; do sleep 0.05; done
check "a node that starts now serves a name from its hoard" platter attach lab/disk@1 --node "$NODE"
check "with the right bytes" cmp <(nbdcopy "nbd+unix:///lab/disk?socket=$NODE/nbd.sock" - | cat) "$WORK/one"
check_exit 1 "but not an unknown name" platter attach lab/none --node "$NODE"
check "status prints the hoard without the origin" \
	jq -e '.store_away != null and (.boot_sets | length) == 3 and .replica.members == 3' <(afar_json hoard status --cache "$NODE")
check "and without a store" jq -e '.boot_sets | length == 3' <(platter --json --store "$WORK/no-store" hoard status --cache "$NODE")
kill "$agent"
wait "$agent" || true
check "an origin answers again" start_origin
pack=$(find "$NODE/hoard/packs" -name '*.pack' | head -1)
check "the written disk is published through the hoard" jq -e '.version == "scratch/disk@1"' \
	<(afar_json publish lab/disk scratch/disk --overlays "$WORK/overlays")
afar forget scratch/disk --all >/dev/null
printf 'x' | dd of="$pack" bs=1 seek=200000 conv=notrunc status=none
check "a version is served from a damaged hoard" serve_hoarded lab/disk@1
check "and damaged blocks are read from the origin" cmp <(nbdcopy "$(uri lab/disk)" - | cat) "$WORK/one"
stop TERM

# Revisions.
check "a version is unregistered through the origin" afar hoard unregister lab/disk@1
check "a sync fetches only the difference" jq -e '.gone == 1 and .added == 0 and .whole == false and .members == 2' <(sync_json)
check "and keeps blocks that other boot sets need" jq -e '.replica.blocks > 60' <(platter_json hoard status --cache "$NODE")
stop_origin TERM
check_exit "$EXIT_MISSING" "unregistering again fails" platter hoard unregister lab/disk@1
platter hoard import "$WORK/all-1" lab/disk@1 >/dev/null
day() { platter hoard daily --now $((86400 * $1)) "${@:2}"; }
check "a day passes" day 20000 --keep-days 2
check "the same day again" day 20000 --keep-days 2
check "a clock that jumps by years counts as one day" day 30000 --keep-days 2
check "the older version is dropped, and the latest of each image is kept" is "$(members)" 'lab/disk@2 secret/disk@1'
for n in 1 2 3 4 5; do day $((20000 + n)) --keep-days 1 --window-days 2 >/dev/null; done
check "permanently" is "$(members)" 'lab/disk@2 secret/disk@1'
check "an origin answers once more" start_origin
check "a node with a revision older than the window gets everything" jq -e '.whole and .members == 2 and .fetched_blocks == 0' <(sync_json)
stop_origin TERM
platter hoard follow lab/disk --qemu "$WORK/machine" --until 'serial:login:' >/dev/null
platter capture --raw "$WORK/one" lab/disk >/dev/null
check "a new version of a followed image is recorded" day 20010
check "and no other version" is "$(members)" 'lab/disk@2 lab/disk@3 secret/disk@1'
before=$(platter_json hoard show lab/disk@3 | jq -S 'del(.added)')
rm -f "$STORE"/catalog.sqlite* "$STORE/changes.log"
check "a rebuild without catalog and log" platter rebuild
check "finds the boot sets in packs" is "$(platter_json hoard show lab/disk@3 | jq -S 'del(.added)')" "$before"
check "an origin with a new revision count answers" start_origin
check "a sync gets everything" jq -e '.whole and .fetched_blocks < 10' <(sync_json)
platter forget lab/disk@2 >/dev/null
check "a boot set is forgotten with its version" sh -c '! echo "$1" | grep -q disk@2' - "$(members)"
platter rename secret lab/secret >/dev/null
check "and renamed with its version" sh -c 'echo "$1" | grep -q lab/secret/disk@1' - "$(members)"

# A sync that is killed at any moment continues.
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
check "a sync that was killed $kills times completes" sync_json
check "its revision is the origin's" is "$(sync_json | jq .revision)" "$(revision)"

# A node that fetches all of it has only a part of it in memory (docs/node.md): with all of it, it would need 150 MiB.
"$PLATTER" --server "unix:$SOCKET" --quiet node --cache "$WORK/fetching" --cache-size 64M --memory 16 >"$WORK/fetching.log" 2>&1 &
process=$!
has_revision() { [ "$(jq .revision "$WORK/fetching/hoard/hoard.json")" = "$1" ]; }
check "a node fetches all of the hoard" until_true 120 has_revision "$(revision)"
peak=$(awk '$1 == "VmHWM:" { print $2 }' "/proc/$process/status")
check "its peak memory is below 105 MiB ($peak KiB)" test "$peak" -lt 107520
kill -TERM "$process"
wait "$process" || true
stop_origin KILL
check "without an origin, a large version is served" serve_hoarded lab/large
check "with all bytes" cmp <(nbdcopy "$(uri lab/large)" - | cat) "$WORK/large"
stop TERM
check "no unlisted pack is left" is "$(find "$NODE/hoard/packs" -name '*.pack' | wc -l)" "$(jq '.packs | length' "$NODE/hoard/hoard.json")"

# What it costs.
check "status as a table" platter hoard status --cache "$NODE" --svg "$WORK/growth.svg"
check_said "with the estimated cost of the next image" 'next image'
check "and as an SVG picture" python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$WORK/growth.svg"

# Nodes without hoard options keep the newest revision, and learn of the next one.
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
# all_followers CONDITION: within half a minute the condition is true for each node, according to the origin
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
check "nodes sync by themselves" all_followers ".hoard_revision == $(revision)"
check "and are connected with each other" all_followers '.counters.peers_connected >= 3'
random $((192 * BLOCK)) four >"$WORK/four"
platter capture --raw "$WORK/four" lab/four >/dev/null
trace_of lab/four "$WORK/all-four" 'read 0 6M' >/dev/null
before=$(sent)
check "another boot set is registered" afar hoard import "$WORK/all-four" lab/four
check "every node has it" all_followers ".hoard_revision == $(revision)"
check "completely" all_hold "$(revision)"
copies=$(awk -v bytes=$(($(sent) - before)) -v one=$((192 * BLOCK)) 'BEGIN { printf "%.2f", bytes / one }')
check "the origin sent $copies copies to ${#FOLLOWERS[@]} nodes" awk -v copies="$copies" 'BEGIN { exit !(copies >= 0.9 && copies < 2.5) }'
for n in "${FOLLOWERS[@]}"; do
	kill "${followers[$n]}"
	wait "${followers[$n]}" || true
done

# By cast, to a node without a hoard, one with an older revision, and one that is up to date.
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
	check "the empty node got everything" is "$(cast_fact 1 .revision_before) $(cast_fact 1 .fetched_blocks)" "0 $all"
	check "the older node got what it lacked" test "$(cast_fact 2 .revision_before)" = "$before" -a "$(cast_fact 2 .fetched_blocks)" -ge 33 -a "$(cast_fact 2 .fetched_blocks)" -lt 40
	check "the current node got nothing" is "$(cast_fact 3 .fetched_blocks)" 0
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
	check "it boots and is recorded" platter hoard record boot/base --until serial:PLATTER-BOOT-OK --timeout 15m --accelerator tcg
	check "with many reads" jq -e '.record.requests > 500 and .record.accelerator == "tcg"' <(platter_json hoard show boot/base)
	check "an origin answers" start_origin
	check "a node hoards it" sync_json
	stop_origin KILL
	check "without an origin, it is served" serve_hoarded boot/base
	check "it boots from the hoard alone" boots_to_marker "$(uri boot/base)"
	stop TERM
fi
finish
