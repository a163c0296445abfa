#!/usr/bin/env bash
# bench/nodes.sh TRACES-DIR CATALOG-DIR
#
# Boots of an origin's disks (Liquid, figure 10; Squirrel, section 4.2.3), replayed from traces recorded by
# bench/boots.sh, over a link of NODES_MBIT (200) Mbit/s and NODES_RTT (1) ms made by lab/relay, with TLS:
#   download   the whole disk is exported first, then booted from that file
#   demand     through a node with an empty cache: only what a boot reads is transferred
#   again      the same node, killed and restarted, compared with a disk attached from the origin's own store
#   hoard      from a hoard with the origin down, compared with qemu-nbd on the raw file; both cold for this machine
#   recorded   from the local store, with and without recording; warm for this machine
# The first disk also really boots in QEMU, once in each of two ways: downloaded first, and on demand. Before that, each
# boot set is fetched to an empty hoard, which shows its cost, and then one after another to the hoard of a node that
# was down while they were registered. Bytes are those of frame streams, as the origin counts them; bytes of a catch-up
# include the boot set's list. All replays of a trace must read the same data.
#
#   BOOT_DISKS   other disks of the catalog that have a trace
#   NODES_QEMU   0: nothing is booted in QEMU
. "$(dirname "$0")/lib.sh"
TRACES=${1:?usage: bench/nodes.sh TRACES-DIR CATALOG-DIR}
CATALOG=${2:?usage: bench/nodes.sh TRACES-DIR CATALOG-DIR}
MBIT=${NODES_MBIT:-200}
RTT=${NODES_RTT:-1}
read -ra DISKS <<<"${BOOT_DISKS:-bookworm-base bookworm-desktop bookworm-xfs trixie-web}"
readonly LIMIT=120 ORIGIN_PORT=25670 LINK_PORT=25671
cold() { sync && echo 3 >/proc/sys/vm/drop_caches; }

new_store
for name in "${DISKS[@]}"; do
	platter capture "$CATALOG/$name.raw" "bench/$name" >/dev/null
done
example platter-export replay
begin "$WORK/relay.log" "$ROOT/lab/relay" link --seconds $((LIMIT * 20 * RUNS)) --delay-ms "$(calculate "$RTT / 2")" --mbit "$MBIT" "$LINK_PORT=$ORIGIN_PORT"
serve() {
	begin "$WORK/origin.log" "$PLATTER" --store "$STORE" --quiet serve --listen "127.0.0.1:$ORIGIN_PORT" --listen "unix:$WORK/origin.sock"
	ORIGIN=$SERVER
	wait_for sh -c "openssl s_client -connect 127.0.0.1:$LINK_PORT </dev/null 2>/dev/null >'$WORK/certificate'"
}
serve
FINGERPRINT=$(openssl x509 -in "$WORK/certificate" -outform DER | sha256sum | cut -d' ' -f1)
PLATTER_TOKEN=$(platter_json serve token add bench --role read --images '*' | jq -r .secret)
export PLATTER_TOKEN
afar() { "$PLATTER" --server "https://127.0.0.1:$LINK_PORT" --fingerprint "$FINGERPRINT" --quiet "$@"; }
at_home() { "$PLATTER" --server "unix:$WORK/origin.sock" --quiet --json "$@"; }
from_home() { curl -s --unix-socket "$WORK/origin.sock" "http://origin$1"; }
sent() { from_home /metrics | awk '$1 == "platter_frame_stream_bytes_sent_total" { printf "%d", $2 }'; }
requests() { from_home /metrics | awk '/^platter_http_requests_total.*"\/api\/v1\/frames"/ { sum += $2 } END { printf "%d", sum }'; }

# replay SERIES SOCKET EXPORT
replay() {
	"$EXAMPLE" "$TRACES/$name.trace" --nbd "nbd+unix:///$3?socket=$2" --think 0 --score "$score" >"$WORK/replayed"
	jq .service_seconds "$WORK/replayed" >>"$WORK/times/$1"
	jq .p99_us "$WORK/replayed" >>"$WORK/times/$1-p99"
	jq -r .digest "$WORK/replayed" >>"$WORK/digests"
}
node() {
	rm -f "$WORK/cache/nbd.sock"
	begin "$WORK/node.log" "$PLATTER" --server "https://127.0.0.1:$LINK_PORT" --fingerprint "$FINGERPRINT" --quiet node --no-hoard --cache "$WORK/cache" "bench/$name"
	NODE=$SERVER
	wait_for nbdinfo "nbd+unix:///bench/$name?socket=$WORK/cache/nbd.sock"
}
download() { afar export "bench/$name" "$WORK/raw"; }
raw() { # SERIES
	begin "$WORK/qemu.log" qemu-nbd --persistent --shared=16 --socket="$WORK/raw.sock" --cache=writeback --read-only --format=raw --export-name=disk "$WORK/raw"
	wait_for nbdinfo "nbd+unix:///disk?socket=$WORK/raw.sock"
	replay "$1" "$WORK/raw.sock" disk
	end "$SERVER"
}
ours() { # SERIES OPTION...
	local series=$1
	shift
	rm -f "$WORK/ours.sock"
	begin "$WORK/ours.log" "$PLATTER" --quiet attach "bench/$name" --nbd "$WORK/ours.sock" "$@"
	wait_for nbdinfo "nbd+unix:///bench/$name?socket=$WORK/ours.sock"
	replay "$series" "$WORK/ours.sock" "bench/$name"
	end "$SERVER"
}

# register NAME: registers its boot set; sync DIR: syncs the hoard there, $SYNCED is the report
register() { at_home hoard import "$TRACES/$1.trace" "bench/$1" >/dev/null; }
sync_hoard() { SYNCED=$(at_home hoard sync --cache "$1"); }

declare -A ALONE=()
for name in "${DISKS[@]}"; do
	rm -rf "$WORK/hoard"
	register "$name"
	sync_hoard "$WORK/hoard"
	ALONE[$name]=$(jq .stored_bytes <<<"$SYNCED")
	at_home hoard unregister "bench/$name" >/dev/null
done
heading "boot sets, one after the other, to a node that was away"
for name in "${DISKS[@]}"; do
	register "$name"
	before=$(sent)
	sync_hoard "$WORK/away"
	bytes=$(($(sent) - before))
	list=$(at_home hoard list | jq -rs --arg image "bench/$name" 'map(select(.image == $image))[0].boot_set')
	bytes=$((bytes + $(from_home "/api/v1/hoard/boot-sets/$list" | wc -c)))
	new=$(jq .stored_bytes <<<"$SYNCED")
	result "$name: bytes that travelled, new frames as kept" "$bytes, $new"
	result "$name: ratio" "$(calculate "$bytes / $new")" "at most 1.05"
done
rm -rf "$WORK/away"

for name in "${DISKS[@]}"; do
	heading "$name booting over $MBIT Mbit/s and $RTT ms"
	rm -f "$WORK/times"/* "$WORK/digests"
	score=$(platter_json show "bench/$name" | jq -r .score)
	rm -rf "$WORK/hoard"
	for _ in $(seq "$RUNS"); do
		rm -rf "$WORK/cache" "$WORK/raw"
		before=$(sent)
		timed download download
		whole=$(($(sent) - before))
		before=$(sent)
		asked=$(requests)
		node
		replay demand "$WORK/cache/nbd.sock" "bench/$name"
		demand=$(($(sent) - before))
		asked=$(($(requests) - asked))
		end "$NODE" -KILL
		cold
		before=$(sent)
		node
		replay again "$WORK/cache/nbd.sock" "bench/$name"
		again=$(($(sent) - before))
		end "$NODE"
		cold
		ours local --store "$STORE"
		rm -rf "$WORK/hoard"
		sync_hoard "$WORK/hoard"
		cold
		raw raw
		end "$ORIGIN"
		cold
		ours hoard --server "https://127.0.0.1:$LINK_PORT" --fingerprint "$FINGERPRINT" --hoard "$WORK/hoard"
		serve
		# The first run finds this machine's caches cold and does not count; then each comes first once.
		ours unmeasured --store "$STORE"
		for one in plain recorded recorded plain; do
			recording=()
			[ "$one" = plain ] || recording=(--record "$WORK/trace")
			ours "$one" --store "$STORE" "${recording[@]}"
			rm -f "$WORK/trace"
		done
	done
	[ "$(sort -u "$WORK/digests" | wc -l)" = 1 ] || { echo "nodes: $name does not read the same from all" >&2; exit 1; }
	platter_json hoard show "bench/$name" >"$WORK/set"
	result "bytes: whole disk, on demand, from the cache again" "$whole, $demand, $again"
	result "bytes of the hoard of all, as kept" "$(jq -r .disk_bytes <<<"$SYNCED")"
	result "boot set, bytes: before compression, as kept by itself" "$(jq -r '.bytes // .record.bytes' "$WORK/set"), ${ALONE[$name]}"
	result "bytes on demand, as a ratio to the boot set as kept" "$(calculate "$demand / ${ALONE[$name]}")" "at most 1.3"
	result "requests on demand, of the boot and of the node" "$(jq .requests "$WORK/replayed"), $asked"
	result "downloaded, then booted; booted on demand" "$(calculate "$(median download) + $(median raw)"), $(median demand) s" "p99 $(median demand-p99) us"
	result "from the cache again, as a ratio to the local store" "$(calculate "$(median again) / $(median local)")" "at most 1.02"
	result "from the hoard, no origin, as a ratio to the raw file" "$(calculate "$(median hoard) / $(median raw)")" "at most 0.9"
	result "recorded, as a ratio to not recorded" "$(calculate "$(median recorded) / $(median plain)")" "at most 1.05"
done

[ "${NODES_QEMU:-1}" != 0 ] || exit 0
name=${DISKS[0]}
heading "$name booting in QEMU, emulated, over $MBIT Mbit/s and $RTT ms; once"
rm -rf "$WORK/times"/* "$WORK/cache" "$WORK/raw"
timed download download
boot "file=$WORK/raw,format=raw,snapshot=on"
result "downloaded; then booted until its marker" "$(median download) s, $BOOTED s"
before=$(sent)
node
boot "file=nbd+unix:///bench/$name?socket=$WORK/cache/nbd.sock,format=raw,snapshot=on"
result "booted on demand until its marker" "$BOOTED s" "$(($(sent) - before)) bytes came"
