#!/usr/bin/env bash
# bench/far.sh
#
# Fetches a version from a distant origin in order: install and export over a link of FAR_MBIT (100) Mbit/s with a round
# trip of FAR_RTT (200) ms, with TLS; then an install next to one greedy TCP flow. lab/relay emulates the link. Each run
# is limited to LIMIT seconds.
. "$(dirname "$0")/lib.sh"
MBIT=${FAR_MBIT:-100}
RTT=${FAR_RTT:-200}
readonly MIB=384 LIMIT=180
readonly ORIGIN_PORT=25660 FAR_PORT=25661 FLOW_PORT=25662 FAR_FLOW_PORT=25663
PIDS=()
bench_cleanup() { for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done; }
RELAY=$ROOT/lab/relay

new_store
openssl rand $((MIB << 20)) >"$WORK/disk"
platter capture --raw "$WORK/disk" bench/far >/dev/null
"$PLATTER" --store "$STORE" --quiet serve --listen "127.0.0.1:$ORIGIN_PORT" --listen "unix:$WORK/origin.sock" >"$WORK/origin.log" 2>&1 &
PIDS+=($!)
seconds=$((LIMIT * (2 * RUNS + 4)))
"$RELAY" link --seconds "$seconds" --delay-ms "$((RTT / 2))" --mbit "$MBIT" "$FAR_PORT=$ORIGIN_PORT" "$FAR_FLOW_PORT=$FLOW_PORT" &
PIDS+=($!)
"$RELAY" source --seconds "$seconds" "$FLOW_PORT" &
PIDS+=($!)
tries=0
until [ -S "$WORK/origin.sock" ] && openssl s_client -connect "127.0.0.1:$FAR_PORT" </dev/null >"$WORK/certificate" 2>/dev/null; do
	tries=$((tries + 1))
	[ "$tries" -lt 100 ] || { echo "far: no origin" >&2; exit 1; }
	sleep 0.1
done
FINGERPRINT=$(openssl x509 -in "$WORK/certificate" -outform DER | sha256sum | cut -d' ' -f1)
TOKEN=$(platter_json serve token add bench --role read --images '*' | jq -r .secret)
far() { PLATTER_TOKEN=$TOKEN timeout "$LIMIT" "$PLATTER" --server "https://127.0.0.1:$FAR_PORT" --fingerprint "$FINGERPRINT" --quiet "$@"; }
install_far() { rm -f "$WORK/target"; far install bench/far "$WORK/target"; }
export_far() { rm -f "$WORK/exported"; far export bench/far "$WORK/exported"; }
bytes=$((MIB << 20))
link_seconds=$(calculate "$bytes * 8 / ($MBIT * 1e6)")

heading "$MIB MiB over $MBIT Mbit/s and $RTT ms; the link alone needs $link_seconds s"
for _ in $(seq "$RUNS"); do
	timed install install_far
	timed export export_far
done
cmp "$WORK/target" "$WORK/disk"
cmp "$WORK/exported" "$WORK/disk"
for what in install export; do
	line "$what" "$bytes"
	result "$what: part of the link" "$(calculate "$link_seconds / $(median $what)")" "at least 0.9"
done

heading "beside one TCP flow"
for run in $(seq "$RUNS"); do
	"$RELAY" sink --seconds "$LIMIT" "$FAR_FLOW_PORT" >"$WORK/taken.$run" &
	sink=$!
	# At first the flow has the link to itself; that part is not counted.
	start=$EPOCHREALTIME
	timed beside install_far
	end=$EPOCHREALTIME
	kill "$sink"
	wait "$sink" || true
	awk -v start="$start" -v end="$end" -v link="$MBIT" '{ printf "%.4f\n", $1 * 8 / (end - start) / 1e6 / link }' "$WORK/taken.$run" >>"$WORK/times/flow"
done
result "ours: part of the link" "$(calculate "$link_seconds / $(median beside)")" "at least 0.4"
result "the flow: part of the link" "$(median flow)" "at least 0.4"
