#!/usr/bin/env bash
# bench/storm.sh TRACES-DIR CATALOG-DIR
#
# A boot storm (Squirrel, figure 18): STORM_NODES (64) nodes boot eight disks each at once (BOOT_DISKS names others), replayed from traces
# that bench/boots.sh recorded. Each node is a process with all of its disks on one socket; all machines are threads of one process, which
# replays without pauses. Everything runs on this machine, over a unix socket to the origin and TLS over loopback between nodes: bytes are
# what counts, and times tell what the processors can do. Three cases:
#   direct   no cache: each disk is attached straight to the origin. STORM_DIRECT (4) nodes only, the bytes of all by proportion
#   peers    nodes with empty caches of STORM_CACHE (256M) that share with each other
#   hoard    nodes with the hoard, which they have by hard links to one, as they share this machine's disk; what they fetch is nothing
# All replays of one trace must read the same, in all cases. The full size needs some 14 GB of memory and 20 GB on the disk.
. "$(dirname "$0")/lib.sh"
TRACES=${1:?usage: bench/storm.sh TRACES-DIR CATALOG-DIR}
CATALOG=${2:?usage: bench/storm.sh TRACES-DIR CATALOG-DIR}
NODES=${STORM_NODES:-64}
DIRECT=${STORM_DIRECT:-4}
CACHE=${STORM_CACHE:-256M}
MEMORY=${STORM_MEMORY:-16}
read -ra DISKS <<<"${BOOT_DISKS:-bookworm-base bookworm-web bookworm-base-v2 bookworm-db bookworm-sdk snap1 trixie-base trixie-web}"
[ "$DIRECT" -le "$NODES" ] || DIRECT=$NODES
readonly FIRST_PORT=25800
megabytes() { awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'; }
ulimit -n "$(ulimit -Hn)"

new_store
versions=()
for name in "${DISKS[@]}"; do
	platter capture "$CATALOG/$name.raw" "bench/$name" >/dev/null
	platter hoard import "$TRACES/$name.trace" "bench/$name" >/dev/null
	versions+=("bench/$name")
done
example platter-export replay
platter hoard sync --cache "$WORK/hoarder" >/dev/null
begin "$WORK/origin.log" "$PLATTER" --store "$STORE" --quiet serve --listen "unix:$WORK/origin.sock"
wait_for curl -sf --unix-socket "$WORK/origin.sock" http://origin/metrics
ask() { curl -s --unix-socket "$WORK/origin.sock" "http://origin$1"; }
sent() { ask /metrics | awk '$1 == "platter_frame_stream_bytes_sent_total" { printf "%d", $2 }'; }

# serve CASE NUMBER: starts a node of this case; its directory is $WORK/nodes/NUMBER
serve() {
	local dir=$WORK/nodes/$2 far=("$PLATTER" --server "unix:$WORK/origin.sock" --quiet)
	local sharing=(--peers "127.0.0.1:$((FIRST_PORT + $2))" --name "$1-$2" --cache "$dir" --cache-size "$CACHE" --memory "$MEMORY")
	mkdir -p "$dir"
	case $1 in
	direct) begin "$WORK/node-$2.log" "${far[@]}" attach "${versions[@]}" --nbd "$dir/nbd.sock" --cache "$MEMORY" --overlays "$dir" ;;
	peers) begin "$WORK/node-$2.log" "${far[@]}" node "${sharing[@]}" --no-hoard "${versions[@]}" ;;
	hoard)
		cp -al "$WORK/hoarder/hoard" "$dir/hoard"
		# Files that processes lock or write are not shared.
		rm -f "$dir/hoard/lock"
		begin "$WORK/node-$2.log" "${far[@]}" node "${sharing[@]}" "${versions[@]}"
		;;
	esac
	STARTED+=("$SERVER")
}
know_each_other() { # CASE NODES
	ask /api/v1/nodes | jq -e "[.nodes[] | select((.name | startswith(\"$1-\")) and .counters.peers_known >= $(($2 - 1)))] | length == $2"
}
# counter CASE NAME: the counter's sum over all nodes of a case, once all have reported their disks
counter() { ask /api/v1/nodes | jq "[.nodes[] | select(.name | startswith(\"$1-\")) | .counters.$2 // 0] | add // 0"; }
# storm CASE NODES: sets SENT, bytes from the origin, and SHARED, bytes from peers
storm() {
	local case=$1 count=$2 number name before threads=0 memory
	STARTED=()
	before=$(sent)
	for number in $(seq "$count"); do serve "$case" "$number"; done
	for number in $(seq "$count"); do
		for name in "${versions[@]}"; do echo "$TRACES/${name#bench/}.trace nbd+unix:///$name?socket=$WORK/nodes/$number/nbd.sock"; done
		wait_for nbdinfo --size "nbd+unix:///${versions[-1]}?socket=$WORK/nodes/$number/nbd.sock"
	done >"$WORK/list"
	[ "$case" = direct ] || wait_for know_each_other "$case" "$count"
	"$EXAMPLE" --list "$WORK/list" >"$WORK/stormed"
	jq -r .digest "$WORK/stormed" >>"$WORK/digests"
	SENT=$(($(sent) - before))
	for pid in "${STARTED[@]}"; do threads=$((threads + $(find "/proc/$pid/task" -maxdepth 1 -mindepth 1 | wc -l))); done
	memory=$(for pid in "${STARTED[@]}"; do cat "/proc/$pid/smaps_rollup"; done | awk '$1 == "Pss:" { sum += $2 } END { printf "%.1f", sum / 1024 }')
	# Nodes report every five seconds.
	[ "$case" = direct ] || sleep 6
	SHARED=$(counter "$case" peers_frame_bytes_received)
	result "$case, $count nodes: $(jq .boots "$WORK/stormed") boots until the last one ends" "$(jq .wall_seconds "$WORK/stormed") s" "median boot $(jq .median_boot_seconds "$WORK/stormed") s; reads: p50 $(jq .p50_us "$WORK/stormed"), p99 $(jq .p99_us "$WORK/stormed") us"
	result "  a node: memory, threads" "$(calculate "$memory / $count") MiB, $((threads / count))" "caches not counted: $(du -sm "$WORK/nodes" | cut -f 1) MiB of all nodes"
	[ "$(jq .failed "$WORK/stormed")" = 0 ] || { echo "storm: $case: reads failed" >&2; exit 1; }
	for pid in "${STARTED[@]}"; do kill "$pid" 2>/dev/null || true; done
	for pid in "${STARTED[@]}"; do
		wait "$pid" 2>/dev/null || true
		unset "RUNNING[$pid]"
	done
	rm -rf "$WORK/nodes"
}
heading "$NODES nodes boot ${#DISKS[@]} disks each, all at once"
one=$(platter_json hoard status | jq .boot_set_bytes)
result "boot sets of a node's disks" "$(megabytes "$one")" "of all nodes: $(megabytes $((one * NODES)))"
storm direct "$DIRECT"
direct=$((SENT * NODES / DIRECT))
result "  the origin sent" "$(megabytes "$SENT")" "$NODES nodes would have: $(megabytes "$direct")"
storm peers "$NODES"
result "  the origin sent; nodes to each other" "$(megabytes "$SENT"), $(megabytes "$SHARED")"
result "  of what it would have without" "1/$(awk -v a="$direct" -v b="$SENT" 'BEGIN { printf "%.1f", a / (b ? b : 1) }')" "at most 1/20"
storm hoard "$NODES"
result "  the origin sent; nodes to each other" "$SENT, $SHARED bytes" "0"
[ "$(sort -u "$WORK/digests" | wc -l)" = 1 ] || { echo "storm: not the same was read in all cases" >&2; exit 1; }
